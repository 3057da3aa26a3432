"""Which programs the node is made of: Kubernetes and etcd from their Go modules, the rest from Debian."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.node.places import CHECKOUT, node_folder

__all__ = ["MissingProgramsError", "Programs", "find_programs"]

CNI_FOLDER = Path("/usr/lib/cni")
"""Where Debian's ``containernetworking-plugins`` puts the plugins."""

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
        MissingProgramsError: a program of the system, or the Go compiler when something has to be built.
    """
    system = {name: shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") for name in _SYSTEM}
    missing = {_SYSTEM[name] for name, path in system.items() if path is None}
    if not (CNI_FOLDER / "bridge").exists():
        missing.add("containernetworking-plugins")
    if missing:
        raise MissingProgramsError(f"missing: apt-get install -y --no-install-recommends {' '.join(sorted(missing))}")
    build = subprocess.run(
        [str(CHECKOUT / "e2e" / "node" / "build.sh"), str(node_folder())],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if build.returncode != 0:
        raise MissingProgramsError("e2e/node/build.sh could not build Kubernetes; its messages are above")
    return Programs(Path(build.stdout.strip()), {name: path for name, path in system.items() if path is not None})
