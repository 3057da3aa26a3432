"""Files that people write, one JSON value per line, read with bounded memory and errors that name the line.

An error says where and what to do, and never shows what stands there: prompts are other people's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

__all__ = ["MAX_LINE_BYTES", "InputFileError", "json_lines", "lines_of"]

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is no value but a file without line ends."""

_BOM = b"\xef\xbb\xbf"


class InputFileError(ValueError):
    """A file that can't be used. ``line`` counts from 1; None when the file as a whole is at fault."""

    def __init__(self, source: str, line: int | None, problem: str) -> None:
        self.source = source
        self.line = line
        self.problem = problem
        super().__init__(f"{source}:{line}: {problem}" if line else f"{source}: {problem}")


def lines_of(path: Path) -> Iterator[bytes]:
    """Read the lines of ``path`` one by one.

    Raises:
        InputFileError: it can't be read, or a line is longer than ``MAX_LINE_BYTES``.
    """
    try:
        with path.open("rb") as file:
            yield from _bounded(file, str(path))
    except OSError as error:
        raise InputFileError(
            str(path), None, f"can't be read ({error.strerror}): name a readable JSONL file"
        ) from error


def json_lines(lines: Iterable[bytes], *, source: str, cure: str) -> Iterator[tuple[int, bytes, Any]]:
    """Yield (line number, bytes without surrounding space, value) of each line that is not blank.

    ``cure`` says what a line should look like.

    Raises:
        InputFileError: a line is no JSON or not UTF-8.
    """
    for number, raw in enumerate(lines, start=1):
        line = raw.removeprefix(_BOM).strip() if number == 1 else raw.strip()
        if not line:
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            # The decoder's own error holds the document, so it is not chained.
            raise InputFileError(source, number, _problem(line, error.colno, cure)) from None
        yield number, line, value


def _bounded(file: BinaryIO, source: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise InputFileError(
                source, number, f"longer than {MAX_LINE_BYTES} bytes: write one JSON value per line (JSONL)"
            )
        yield line


def _problem(line: bytes, column: int, cure: str) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        return f"not UTF-8 at byte {bad.start + 1} of the line: save the file as UTF-8"
    if b"\x00" in line:
        return "holds NUL bytes: save the file as UTF-8 text"
    if line == b"[":
        return f"opens a list over several lines: write one JSON value per line (JSONL); {cure}"
    return f"no JSON (column {column}): {cure}"
