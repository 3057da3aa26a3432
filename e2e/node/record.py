"""What a node has put on the machine, written down before it is put there.

Whoever comes next, after a crash too, reads the record and takes exactly these things away, nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.node.places import node_folder
from e2e.node.processes import ProcessIdentity

__all__ = ["Record", "locked", "read_record", "remove_record", "write_record"]


@dataclass(frozen=True, slots=True)
class Record:
    """One node's traces outside its namespaces."""

    name: str
    boot: str
    """The boot in which the processes were started."""
    folder: Path
    cgroup: str
    """Its name at the top of every cgroup hierarchy."""
    link: str
    """The network device on the machine's side."""
    block: int
    """The node's addresses are ``10.<block>.0.0/16``."""
    launcher: ProcessIdentity | None = None
    """``unshare``, on the machine's side of the namespaces."""
    first: ProcessIdentity | None = None
    """The first process inside; with it goes everything."""
    ready: bool = False
    tied: bool = False
    """Whether the node ends with the process that started it."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        """For ``ctr``."""
        return self.folder / "containerd.sock"

    @property
    def logs(self) -> Path:
        """One file for each program."""
        return self.folder / "log"


def read_record(name: str) -> Record | None:
    """The record of the node called ``name``, or None when there is none."""
    try:
        held = json.loads(_path(name).read_text())
    except FileNotFoundError:
        return None
    for process in ("launcher", "first"):
        if held[process] is not None:
            held[process] = ProcessIdentity(**held[process])
    return Record(**{**held, "folder": Path(held["folder"])})


def write_record(record: Record) -> None:
    """Replace the record in one step and see it onto the disk."""
    path = _path(record.name)
    beside = path.with_suffix(".new")
    with beside.open("w") as file:
        json.dump(dataclasses.asdict(record) | {"folder": str(record.folder)}, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def remove_record(record: Record) -> None:
    """Forget a node of which nothing is left."""
    _path(record.name).unlink(missing_ok=True)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Only one process at a time brings a node of this folder up or down: two at once would each take the other's node
    for what a crash has left."""
    with (node_folder() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _path(name: str) -> Path:
    return node_folder() / f"{name}.json"
