"""Files and documents as the commands write them: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import orjson
import yaml

__all__ = ["print_document", "write_atomically"]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path`` with ``content``; a reader sees the old file or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def print_document(
    document: Mapping[str, Any], form: str, *, stream: IO[str] | None = None, into: Path | None = None
) -> None:
    """Write ``document`` as ``json`` or ``yaml`` to a stream or into a file."""
    if form == "json":
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    else:
        text = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    if into is not None:
        write_atomically(into, text.encode())
    if stream is not None:
        stream.write(text)
