"""Recorded arrivals: when real requests came, and how long they were, from a JSONL file.

Each line is an object with one time (``timestamp_s`` or ``timestamp_ms`` as a number, or ``timestamp`` as
an ISO 8601 text) and, on every line or on none,
``input_tokens`` (or ``input_length``) and ``output_tokens`` (or ``output_length``). Order does not matter:
a log of several servers is rarely sorted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from slotune.load.demand import Arrivals
from slotune.load.jsonl import InputFileError, json_lines, lines_of

__all__ = ["ARRIVAL_LIMIT", "parse_arrivals", "read_arrivals"]

ARRIVAL_LIMIT = 1_000_000
"""Arrivals are replayed in one piece, so a longer file is refused rather than sampled."""

_CURE = (
    'a line is {"timestamp_s": 12.5}, {"timestamp_ms": 12500} or {"timestamp": "2026-01-31T12:00:00Z"}, with optional '
    "input_tokens and output_tokens; a bare timestamp number says no unit"
)


def read_arrivals(path: Path) -> Arrivals:
    """Read the recording at ``path``.

    Raises:
        InputFileError: the file is missing, holds fewer than two arrivals, or a line is none.
    """
    return parse_arrivals(lines_of(path), source=str(path))


def parse_arrivals(lines: Iterable[bytes], *, source: str) -> Arrivals:
    """Read a recording from ``lines``; ``source`` names it in errors.

    Raises:
        InputFileError: fewer than two arrivals, no time between them, or a line is none.
    """
    rows: list[tuple[float, int | None, int | None]] = []
    for number, _, value in json_lines(lines, source=source, cure=_CURE):
        if len(rows) == ARRIVAL_LIMIT:
            raise InputFileError(source, number, f"more than {ARRIVAL_LIMIT} arrivals: cut it to its busiest hour")
        time = _seconds(value)
        if time is None:
            raise InputFileError(source, number, f"has no usable time: {_CURE}")
        try:
            row = (
                time,
                _tokens(value, "input_tokens", "input_length"),
                _tokens(value, "output_tokens", "output_length"),
            )
        except ValueError as error:
            raise InputFileError(source, number, str(error)) from None
        rows.append(row)
    if len(rows) < 2:
        raise InputFileError(source, None, f"holds {len(rows)} arrivals, a rate needs at least 2: {_CURE}")
    rows.sort(key=lambda row: row[0])
    start = rows[0][0]
    if rows[-1][0] <= start:
        raise InputFileError(source, None, "all arrivals have the same time: is the unit of the timestamps right?")
    return Arrivals(
        process="replay",
        offsets_s=tuple(row[0] - start for row in rows),
        input_tokens=_column([row[1] for row in rows], "input_tokens", source),
        output_tokens=_column([row[2] for row in rows], "output_tokens", source),
    )


def _seconds(value: Any) -> float | None:
    """Seconds of a line. A bare ``timestamp`` number has no unit: guessed wrongly, the rate is off by a thousand."""
    if not isinstance(value, dict):
        return None
    scale = {"timestamp_s": 1.0, "timestamp_ms": 1e-3, "timestamp": None}
    given = [key for key in scale if key in value]
    if len(given) != 1:
        return None
    time = value[given[0]]
    if isinstance(time, str) and given[0] == "timestamp":
        try:
            return datetime.fromisoformat(time).timestamp()
        except ValueError:
            return None
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        return None
    unit = scale[given[0]]
    return None if unit is None else float(time) * unit


def _tokens(value: dict[str, Any], name: str, other_name: str) -> int | None:
    count = value.get(name, value.get(other_name))
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"{name} must be a whole number above 0")
    return count


def _column(counts: list[int | None], name: str, source: str) -> tuple[int, ...]:
    stated = tuple(count for count in counts if count is not None)
    if stated and len(stated) < len(counts):
        raise InputFileError(source, None, f"{name} stands on {len(stated)} of {len(counts)} lines: all or none")
    return stated
