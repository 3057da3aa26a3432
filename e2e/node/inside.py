"""The first process inside the node's namespaces: makes the world there, starts the programs, then minds orphans.

It is told what to do by one line of JSON on its input and reports on its output, one line of JSON for each step. When
its input ends before that line, or later on a node that is tied to whoever started it, it ends, and with it all of
the node. Only the standard library, so that this process stays small.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Orders", "orders_line"]

POLL_S = 0.1

_KUBELET_SYSCTLS = {
    "kernel/keys/root_maxbytes": 25_000_000,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
"""What kubelet sets when it differs. They belong to the whole machine, so kubelet is shown what it wants to see."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the first process is told."""

    folder: str
    tied: bool
    """End when the input ends."""
    link: str
    """The node's end of the network link."""
    address: str
    gateway: str
    """The machine's end of the link."""
    network: str
    """All addresses of the node."""
    components: Sequence[Sequence[Any]]
    """Name, command, readiness command (may be empty) of each."""
    images: Sequence[str]
    """Archives that containerd imports."""
    ctr: Sequence[str]
    kubectl: Sequence[str]
    objects: str
    """What to apply before anything else."""
    node: str
    gpus: int
    start_limit_s: float


def orders_line(orders: Orders) -> bytes:
    """The line that ``main`` reads."""
    return json.dumps(asdict(orders)).encode() + b"\n"


class _StartError(Exception):
    """A step failed; the message names it and the log."""


def main() -> int:
    """Runs until it is killed, or until its input ends when the node is tied to somebody."""
    line = sys.stdin.buffer.readline()
    if not line:
        return 1
    orders = Orders(**json.loads(line))
    try:
        _start(orders)
    except (_StartError, OSError, subprocess.CalledProcessError) as error:
        _report(failed=f"{error}{_error_output(error)}")
        return 1
    _report(ready=True)
    return _mind(orders)


def _start(orders: Orders) -> None:
    folder = Path(orders.folder)
    deadline = time.monotonic() + orders.start_limit_s
    with _step("mounts and network"):
        _make_mounts(folder)
        _make_network(orders)
    running: dict[str, subprocess.Popen[bytes]] = {}
    for name, command, ready in orders.components:
        with _step(name), (folder / "log" / f"{name}.log").open("wb") as log:
            running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            if ready:
                _until(lambda ready=ready: _succeeds(ready), running, name, deadline)
            if name == "containerd":
                for image in orders.images:
                    _run(*orders.ctr, "images", "import", image)
    resource = ["node", orders.node]
    with _step("node is Ready"):
        ready = [*orders.kubectl, "wait", "--for=condition=Ready", "--timeout=1s", *resource]
        _until(lambda: _succeeds(ready), running, "kubelet", deadline)
    with _step("fake GPUs"):
        counts = {"nvidia.com/gpu": str(orders.gpus)}
        patch = json.dumps({"status": {"capacity": counts, "allocatable": counts}})
        _run(*orders.kubectl, "patch", *resource, "--subresource=status", "--type=merge", "-p", patch)
    with _step("first objects"):
        apply = [*orders.kubectl, "create", "--filename=-"]
        subprocess.run(
            apply, input=orders.objects.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
        )
    with _step("default service account"):
        account = [*orders.kubectl, "get", "serviceaccount", "default"]
        _until(lambda: _succeeds(account), running, "kube-controller-manager", deadline)
    (folder / "pids.json").write_text(json.dumps({name: process.pid for name, process in running.items()}))


def _make_mounts(folder: Path) -> None:
    """Make private what the programs write to outside their folder, with no place to tell them otherwise."""
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in ("var", "var-work", "sysctl", "containerd"):
        (folder / name).mkdir()
    # Images are unpacked here: in memory it takes half the time, and taking a node down no time instead of seconds.
    _run("mount", "-t", "tmpfs", "-o", "mode=711,size=8g", "tmpfs", str(folder / "containerd"))
    layers = f"lowerdir=/var,upperdir={folder}/var,workdir={folder}/var-work"
    _run("mount", "-t", "overlay", "-o", layers, "overlay", "/var")
    for name, value in _KUBELET_SYSCTLS.items():
        if Path("/proc/sys", name).exists():
            shown = folder / "sysctl" / name.replace("/", ".")
            shown.write_text(f"{value}\n")
            _run("mount", "--bind", str(shown), f"/proc/sys/{name}")
    # kubelet hands mounts on to pods.
    _run("mount", "--make-rshared", "/")


def _make_network(orders: Orders) -> None:
    socket.sethostname(orders.node)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{orders.address}/30", "dev", orders.link)
    _run("ip", "link", "set", orders.link, "up")
    # For Service addresses, which are translated only after a route was found. There is no default route on purpose:
    # what a pod wants from outside is refused at once.
    _run("ip", "route", "add", orders.network, "via", orders.gateway)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")
    # Without it a pod that calls a Service and is answered by a pod on the same bridge gets the answer of a stranger.
    Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1\n")


def _mind(orders: Orders) -> int:
    """Collect what ended, and say so in a file when it is one of the node's programs."""
    folder = Path(orders.folder)
    names = {pid: name for name, pid in json.loads((folder / "pids.json").read_text()).items()}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    inputs = [woken, 0] if orders.tied else [woken]
    while True:
        # A child that ended before the handler was there would wake nobody, hence the limit.
        readable = select.select(inputs, [], [], 5.0)[0]
        if 0 in readable and not os.read(0, 4096):
            return 0
        if woken in readable:
            os.read(woken, 4096)
        for pid, status in _ended():
            if pid in names:
                with (folder / "ended").open("a") as file:
                    file.write(f"{names[pid]} ended with {os.waitstatus_to_exitcode(status)}\n")


def _ended() -> Iterator[tuple[int, int]]:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _until(ready: Any, running: dict[str, subprocess.Popen[bytes]], waited_for: str, deadline: float) -> None:
    while not ready():
        for name, process in running.items():
            if process.poll() is not None:
                raise _StartError(f"{name} ended with {process.returncode}: see {name}.log")
        if time.monotonic() > deadline:
            raise _StartError(f"{waited_for} is not ready: see {waited_for}.log")
        time.sleep(POLL_S)


@contextmanager
def _step(name: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    _report(step=name, seconds=round(time.monotonic() - start, 2))


def _report(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _succeeds(command: Sequence[str]) -> bool:
    quiet = subprocess.DEVNULL
    return subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=False).returncode == 0


def _run(*command: str) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)


def _error_output(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        return f": {error.stderr.decode(errors='replace').strip()[-500:]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
