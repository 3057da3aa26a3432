"""The node's own control groups: everything that its pods use is counted and limited below one name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["make_cgroup", "remove_cgroup"]

ROOT = Path("/sys/fs/cgroup")
REMOVAL_LIMIT_S = 20.0
"""The kernel lets go of a group some time after its last process has ended."""


def make_cgroup(name: str) -> None:
    """Make ``name`` at the top of every hierarchy; a node before this one may have left it."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
    if (ROOT / "cgroup.controllers").exists():  # version 2: a group has the controllers that the one above hands down
        held = (ROOT / "cgroup.controllers").read_text().split()
        (ROOT / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in held))
    cpuset = ROOT / "cpuset" / name
    for limit in ("cpuset.cpus", "cpuset.mems"):  # version 1: a new group has none, and no process could join
        if (cpuset / limit).exists():
            (cpuset / limit).write_text((cpuset.parent / limit).read_text())


def remove_cgroup(name: str) -> None:
    """Remove the groups of ``name`` from every hierarchy, the innermost first.

    Raises:
        TimeoutError: one of them is still in use.
    """
    deadline = time.monotonic() + REMOVAL_LIMIT_S
    for hierarchy in _hierarchies():
        top = hierarchy / name
        while top.exists() and not _removed(top):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{top} is still in use {REMOVAL_LIMIT_S:g} s after the node's last process")
            time.sleep(0.05)


def _hierarchies() -> Iterator[Path]:
    """The top of each hierarchy: one per controller in version 1, a single one in version 2."""
    if (ROOT / "cgroup.controllers").exists():
        yield ROOT
        return
    for folder in sorted(ROOT.iterdir()):
        if folder.is_dir() and not folder.is_symlink():
            yield folder


def _removed(top: Path) -> bool:
    folders = [top, *(path for path in top.rglob("*") if path.is_dir())]
    for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:  # EBUSY
            return False
    return True
