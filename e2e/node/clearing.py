"""Taking away what a record names, exactly that, in an order that can be cut short and begun again."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

from e2e.node.cgroups import remove_cgroup
from e2e.node.launching import launched
from e2e.node.processes import boot_id, kill
from e2e.node.record import Record, remove_record

__all__ = ["clear"]


def clear(record: Record, *, keep_logs: bool = False) -> None:
    """Remove a node, whatever state it is in; with ``keep_logs`` its folder stays, with nothing but the logs in it."""
    if record.boot == boot_id():
        for process in (record.first, record.launcher):
            if process is not None:
                kill(process)
    _collect(record.name)
    if Path("/sys/class/net", record.link).exists():
        # It goes with the node's network namespace, but the kernel takes its time, and may be quicker than this.
        subprocess.run(["ip", "link", "delete", record.link], capture_output=True, check=False)
    remove_cgroup(record.cgroup)
    if keep_logs and record.folder.exists():
        for entry in record.folder.iterdir():
            if entry != record.logs:
                _remove(entry)
    else:
        _remove(record.folder)
    remove_record(record)


def _collect(name: str) -> None:
    """Close our ends and collect the exit status, when it was this process that started the node."""
    launcher = launched.pop(name, None)
    if launcher is None:
        return
    for end in (launcher.stdin, launcher.stdout):
        if end is not None:
            with contextlib.suppress(BrokenPipeError):
                end.close()
    launcher.wait()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
