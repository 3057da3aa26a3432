"""SHA-256 of whole files, kept so that the same file is read for it only once.

A kept digest holds for one (device, inode, size, mtime, ctime): writing into a file moves its ctime, which no program
can put back. A file that changed a moment ago could change again within the same tick of its clock, so its digest is
not kept. Where nothing can be kept, every call reads the file; nobody else notices.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["FileChangedError", "cache_folder", "file_digest"]

KEPT_FROM: Final = 64 * 2**20
"""Bytes. A smaller file is read faster than anybody notices, and leaves nothing behind."""
SETTLED_S: Final = 2.0
"""The coarsest clock of a file system in use: a file that changed less than this ago may change unseen."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class FileChangedError(Exception):
    """A file was written to while it was read, so no digest holds for it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: the file changed while it was read; wait until it is complete")
        self.path = path


def cache_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """``$SLOTUNE_CACHE``, else ``$XDG_CACHE_HOME/slotune``, else ``~/.cache/slotune``; None where there is no home."""
    stated = os.environ if environment is None else environment
    if own := stated.get("SLOTUNE_CACHE"):
        return Path(own).expanduser()
    try:
        return Path(stated.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "slotune"
    except RuntimeError:
        return None


def file_digest(path: Path, cache: Path | None = None, *, kept_from: int = KEPT_FROM, now: float | None = None) -> str:
    """SHA-256 of all bytes of ``path``, as hex.

    Args:
        path: A regular file.
        cache: Folder below which digests are kept; None keeps none.
        kept_from: Bytes from which a digest is worth keeping.
        now: Seconds since the epoch.

    Raises:
        OSError: the file can't be read. Never for the cache.
        FileChangedError: it was written to meanwhile.
    """
    began = time.time() if now is None else now
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        place = None if cache is None or before.st_size < kept_from else _place(cache, before)
        if place is not None and (known := _kept(place, before)) is not None:
            return known
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        after = os.fstat(file.fileno())
    if _state(before) != _state(after):
        raise FileChangedError(path)
    if place is not None and max(after.st_mtime, after.st_ctime) < began - SETTLED_S:
        _keep(place, after, digest)
    return digest


def _state(found: os.stat_result) -> list[int]:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _place(cache: Path, found: os.stat_result) -> Path:
    """One small file for each weights file, whatever becomes of its contents."""
    return cache / "digests" / f"{found.st_dev:x}-{found.st_ino:x}.json"


def _kept(place: Path, found: os.stat_result) -> str | None:
    try:
        said = json.loads(place.read_text())
    except (OSError, ValueError):  # bad UTF-8 is a ValueError too
        return None
    if not isinstance(said, dict) or said.get("state") != _state(found):
        return None
    digest = said.get("sha256")
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None


def _keep(place: Path, found: os.stat_result, digest: str) -> None:
    """Best effort, and whole or not at all: two processes may keep the same file's."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, suffix=".part", delete=False) as made:
            unfinished = Path(made.name)
            try:
                made.write(json.dumps({"state": _state(found), "sha256": digest}))
                made.flush()
                unfinished.replace(place)
            except OSError:
                unfinished.unlink(missing_ok=True)
