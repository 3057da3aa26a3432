"""Starting a node: each thing that stays outside its namespaces is recorded first, then made."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e.node.addresses import Addresses, reserved_block
from e2e.node.certificates import make_certificates
from e2e.node.cgroups import make_cgroup
from e2e.node.components import components
from e2e.node.configuration import NODE_NAME, Layout, first_objects, write_configuration
from e2e.node.inside import Orders, orders_line
from e2e.node.pause_image import write_pause_image
from e2e.node.places import CHECKOUT
from e2e.node.processes import boot_id, child_of, identify
from e2e.node.programs import Programs
from e2e.node.record import Record, write_record

__all__ = ["NodeError", "Tell", "launch", "launched"]

START_LIMIT_S = 180.0
"""Seen: 10 s on two cores. A machine that is building something at the same time needs several times that."""

_SOCKET_PATH_MAX = 100
"""Bytes; the kernel takes 107."""

_INNER_LINK = "uplink"
"""The node's end of its link, as it is called inside."""

_NAMESPACES = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--ipc", "--uts"]

Tell = Callable[[str], None]

launched: dict[str, subprocess.Popen[bytes]] = {}
"""What this process started, by the node's name. The open input is what a tied node is tied to."""


class NodeError(Exception):
    """The node cannot be brought up; the message says at which step and where the logs are."""


def launch(name: str, programs: Programs, gpus: int, tied: bool, tell: Tell) -> Record:
    """Start a node and wait until it is Ready; the caller holds the lock, and clears away when this fails.

    Raises:
        NodeError: a step failed.
    """
    folder = Path(tempfile.gettempdir(), f"slotune-node-{name}-{secrets.token_hex(4)}").absolute()
    if len(str(folder / "containerd.sock")) > _SOCKET_PATH_MAX:
        raise NodeError(f"TMPDIR: {folder} is too long for the path of a socket: choose a shorter one")
    with reserved_block() as block:
        record = Record(
            name=name,
            boot=boot_id(),
            folder=folder,
            cgroup=f"slotune-{name}",
            link=f"slotune-{name}"[:15],
            block=block,
        )
        return _launch(record, programs, gpus, tied, tell)


def _launch(record: Record, programs: Programs, gpus: int, tied: bool, tell: Tell) -> Record:
    name, folder, addresses = record.name, record.folder, Addresses(record.block)
    write_record(record)
    folder.mkdir(mode=0o755)
    record.logs.mkdir()
    layout = Layout(folder, addresses, record.cgroup, programs)
    make_certificates(layout.keys, addresses, NODE_NAME, programs["openssl"])
    write_configuration(layout)
    pause_image = write_pause_image(folder, Path(programs["busybox"]))
    make_cgroup(record.cgroup)
    tell(f"files and certificates in {folder}")

    with (record.logs / "inside.log").open("wb") as log:
        launcher = subprocess.Popen(
            [programs["unshare"], *_NAMESPACES, sys.executable, "-m", "e2e.node.inside"],
            cwd=CHECKOUT,
            env=_environment(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the one who waits, and clears away in order
        )
    launched[name] = launcher
    # The first process does nothing before it is told, and ends when nobody is left to tell it.
    record = dataclasses.replace(record, launcher=identify(launcher.pid))
    write_record(record)
    first = _first_process(launcher)
    record = dataclasses.replace(record, first=identify(first))
    write_record(record)
    _connect(record, addresses, first, programs["ip"])

    kubectl = [programs["kubectl"], "--kubeconfig", str(record.kubeconfig)]
    orders = Orders(
        folder=str(folder),
        tied=tied,
        link=_INNER_LINK,
        address=addresses.node,
        gateway=addresses.machine,
        network=addresses.all,
        components=[[part.name, part.command, part.ready] for part in components(layout)],
        images=[str(pause_image)],
        ctr=[programs["ctr"], "--address", str(record.containerd_socket), "--namespace", "k8s.io"],
        kubectl=kubectl,
        objects=first_objects(addresses),
        node=NODE_NAME,
        gpus=gpus,
        start_limit_s=START_LIMIT_S,
    )
    assert launcher.stdin is not None
    launcher.stdin.write(orders_line(orders))
    launcher.stdin.flush()
    _follow(launcher, record, tell)
    record = dataclasses.replace(record, ready=True, tied=tied)
    write_record(record)
    if not tied:
        launcher.stdin.close()
    return record


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """No proxy: everything that the node's programs talk to is the node."""
    kept = {name: value for name, value in environ.items() if not name.lower().endswith("_proxy")}
    return kept | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def _first_process(launcher: subprocess.Popen[bytes], limit_s: float = 10.0) -> int:
    deadline = time.monotonic() + limit_s
    while (first := child_of(launcher.pid)) is None:
        if launcher.poll() is not None or time.monotonic() > deadline:
            raise NodeError(
                "unshare made no namespaces: this machine does not allow them, or is a container without them"
            )
        time.sleep(0.01)
    return first


def _connect(record: Record, addresses: Addresses, first: int, ip: str) -> None:
    """One link between the machine and the node, and the machine's route over it."""
    ends = ["link", "add", record.link, "type", "veth", "peer", "name", _INNER_LINK, "netns", str(first)]
    _run(ip, *ends)
    _run(ip, "address", "add", f"{addresses.machine}/30", "dev", record.link)
    _run(ip, "link", "set", record.link, "up")
    _run(ip, "route", "add", addresses.all, "via", addresses.node)


def _follow(launcher: subprocess.Popen[bytes], record: Record, tell: Tell) -> None:
    """Hand on what the first process reports until the node is ready."""
    assert launcher.stdout is not None
    deadline = time.monotonic() + START_LIMIT_S + 30
    buffered = b""
    while True:
        line, newline, rest = buffered.partition(b"\n")
        if newline:
            buffered = rest
            told: dict[str, Any] = json.loads(line)
            if "failed" in told:
                raise NodeError(f"{told['failed']} (in {record.logs})")
            if "ready" in told:
                return
            tell(f"{told['step']}: {told['seconds']} s")
            continue
        readable = select.select([launcher.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]
        received = os.read(launcher.stdout.fileno(), 65536) if readable else b""
        if not received:
            raise NodeError(f"the node's first process ended, or is stuck: see {record.logs}/inside.log")
        buffered += received


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        raise NodeError(f"{' '.join(command)}: {error.stderr.strip()}") from error
