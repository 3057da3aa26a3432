"""What a trial's load client says to the operator, over the only two ways out of its pod: the log and the end.

The log carries lines of JSON: progress, then the whole result and the record of every request, or the answers that were
recorded, all in frames short enough for any log pipeline, with a checksum over each. The termination message carries a
summary that fits its 4 KiB, for when the log is gone. Lines of others, half lines and lost lines are normal; a result
that does not add up is no result. Numbers are written so that they read back as themselves.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from slotune.load.record_lines import record_lines
from slotune.load.records import RequestStatus, RunResult
from slotune.sandbox.protocol import Progress
from slotune.search.trial import Trial, TrialResult

__all__ = [
    "RECORD_LIMIT",
    "SUMMARY_LIMIT",
    "ClientLog",
    "frames",
    "parse_client_log",
    "payloads",
    "progress_line",
    "record_frames",
    "record_of",
    "reference_frames",
    "result_frames",
    "result_from_summary",
    "stopped_line",
    "summary_limit",
    "summary_of",
]

T = TypeVar("T")

MARK = "slotune"
"""First key of every line that is ours; its value is the kind."""

LINE_LIMIT = 8192
"""Bytes of one line. containerd cuts at 16 KiB; kubelet joins again, other pipelines may not."""
_CHUNK = 7900

SUMMARY_LIMIT = 4096
"""Bytes of a termination message (kubelet)."""
_POD_MESSAGES = 12 * 1024
"""Bytes of all termination messages of a pod together: kubelet gives each container an equal part."""

RECORD_LIMIT = 900 * 1024
"""Bytes of the compressed record: a ConfigMap holds 1 MiB."""

_RESULT: TypeAdapter[TrialResult] = TypeAdapter(TrialResult)
_PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)

_LEFT_OUT = (
    ("latencies", "ttft_quantiles_s"),
    ("log_tail",),
    ("warnings",),
    ("trace_hashes",),
    ("effective",),
    ("run_violation_shares",),
    ("device",),
    ("slowest",),
    ("attribution",),
    ("cache",),
    ("latencies",),
    ("probe",),
)
"""What a summary can do without, the least missed first."""
_SHORTEST = 60


@dataclass(frozen=True, slots=True)
class ClientLog:
    """What the log of a load client says."""

    progress: Progress | None = None
    """The last there is."""
    result: TrialResult | None = None
    """None: it has not ended, or not all of it is there."""
    record: bytes | None = field(default=None, repr=False)
    """gzip of JSON Lines."""
    reference: bytes | None = field(default=None, repr=False)
    """The answers that a trial recorded, as :meth:`slotune.quality.reference.Reference.to_bytes` has them."""
    stopped: str | None = None
    """The signal that ended it before there was a result."""
    broken: tuple[str, ...] = ()
    """Kinds of which frames are there, but not all, or not as they were sent."""


def progress_line(progress: Progress) -> bytes:
    """One line of the log."""
    return _line("progress", {"progress": _PROGRESS.dump_python(progress)})


def stopped_line(signal_name: str) -> bytes:
    """The last line of a client that was told to stop."""
    return _line("stopped", {"signal": signal_name})


def result_frames(result: TrialResult) -> Iterator[bytes]:
    """The lines that carry the whole result, without the trial, which the reader knows."""
    return frames("result", _json(_plain(result)))


def record_frames(record: bytes) -> Iterator[bytes]:
    """The lines that carry a record from :func:`record_of`."""
    return frames("record", record)


def reference_frames(reference: bytes) -> Iterator[bytes]:
    """The lines that carry a recorded reference."""
    return frames("reference", reference)


def frames(kind: str, payload: bytes) -> Iterator[bytes]:
    """``payload`` as lines of at most 8 KiB, each with its number, how many there are, and the checksum of all."""
    text = base64.b64encode(payload).decode()
    parts = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)] or [""]
    digest = hashlib.sha256(payload).hexdigest()
    for number, part in enumerate(parts, start=1):
        yield _line(kind, {"part": number, "of": len(parts), "sha256": digest, "data": part})


def record_of(runs: Sequence[RunResult], limit: int = RECORD_LIMIT) -> bytes | None:
    """The record of every request, compressed; None without requests.

    One that would be larger than ``limit`` bytes is thinned: every violation stays, of the rest every 2nd, 4th, ...,
    and its first line says so.
    """
    if not any(run.records for run in runs):
        return None
    every, total = 1, sum(len(run.records) for run in runs)
    kept: Sequence[RunResult] = runs
    while True:
        note = b"" if every == 1 else _json({"note": "thinned", "every": every, "requests": total}) + b"\n"
        packed = gzip.compress(note + b"".join(record_lines(kept)), compresslevel=6, mtime=0)
        if len(packed) <= limit or every >= total:
            return packed
        every *= 2
        kept = [_thinned(run, every) for run in runs]


def _thinned(run: RunResult, every: int) -> RunResult:
    # Where even the violations are too many, they are thinned as well, a power of two behind the rest.
    rare = max(1, every // 64)
    wanted = [
        record
        for place, record in enumerate(run.records)
        if place % every == 0 or (record.status is not RequestStatus.OK and place % rare == 0)
    ]
    return replace(run, records=wanted)


def parse_client_log(text: str, trial: Trial) -> ClientLog:
    """What ``text``, a log or any part of one, says about ``trial``. Whatever is not ours is passed over."""
    progress, stopped = None, None
    found = payloads(text, ("result", "record", "reference"))
    for line in _lines(text):
        if line[MARK] == "progress":
            progress = _valid(_PROGRESS.validate_python, line.get("progress")) or progress
        elif line[MARK] == "stopped":
            stopped = str(line.get("signal", ""))
    result = None
    if packed := found["result"]:
        result = _result(packed, trial)
    broken = tuple(
        kind for kind, payload in found.items() if payload == b"" or (kind == "result" and packed and not result)
    )
    return ClientLog(progress, result, found["record"] or None, found["reference"] or None, stopped, broken)


def payloads(text: str, kinds: Sequence[str]) -> dict[str, bytes | None]:
    """The last whole payload of each kind in a log; None where there is no frame of it, b"" where some are missing."""
    frames_of: dict[tuple[str, str, int], dict[int, str]] = {}
    for line in _lines(text):
        part, of, digest, data = (line.get(name) for name in ("part", "of", "sha256", "data"))
        if line[MARK] in kinds and isinstance(part, int) and isinstance(of, int) and isinstance(data, str):
            frames_of.setdefault((line[MARK], str(digest), of), {})[part] = data
    found: dict[str, bytes | None] = dict.fromkeys(kinds)
    for (kind, digest, of), parts in frames_of.items():
        payload = _joined(parts, of, digest)
        found[kind] = payload or found[kind] or b""
    return found


def summary_limit(containers: int) -> int:
    """Bytes that the termination message of each of ``containers`` (init containers too) may have."""
    return min(SUMMARY_LIMIT, _POD_MESSAGES // max(1, containers))


def summary_of(result: TrialResult, limit: int = SUMMARY_LIMIT) -> bytes:
    """``result`` in at most ``limit`` bytes (not below 1024) of JSON, for a termination message.

    What does not fit is left out, named in ``leftOut``: quantiles first, the outcome never.
    """
    plain = _plain(result)
    text = _json(plain)
    left_out: list[str] = []
    for path in _LEFT_OUT:
        if len(text) <= limit:
            return text
        holder = plain if len(path) == 1 else plain.get(path[0], {})
        if holder.pop(path[-1], None) is not None:
            left_out.append(".".join(path))
            plain["leftOut"] = left_out
            text = _json(plain)
    for holder, name in ((plain["verdict"], "reason"), (plain, "failure_knob"), (plain, "started_at")):
        while len(text) > limit and len(holder.get(name) or "") > _SHORTEST:
            words = holder[name]
            holder[name] = words[: len(words) * 3 // 4 - 1] + "…"
            text = _json(plain)
    if len(text) <= limit:
        return text
    verdict = plain["verdict"]
    least = {name: verdict[name] for name in ("outcome", "confidence", "requests", "violations") if name in verdict}
    least |= {"reason": verdict["reason"][:_SHORTEST], "code": verdict["code"][:_SHORTEST]}
    return _json({"verdict": least, "gpu_seconds": result.gpu_seconds})


def result_from_summary(summary: bytes, trial: Trial) -> TrialResult | None:
    """The result that a termination message holds; None when it holds none."""
    return _result(summary, trial)


def _plain(result: TrialResult) -> dict[str, Any]:
    """Everything but the trial and what has its default, the verdict first."""
    dumped: dict[str, Any] = _RESULT.dump_python(result)
    return {name: value for name, value in _without_defaults(result, dumped).items() if name != "trial"}


def _without_defaults(value: Any, dumped: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for each in fields(value):
        own = getattr(value, each.name)
        default = each.default_factory() if callable(each.default_factory) else each.default
        if own != default or (isinstance(own, float) and math.isnan(own)):
            inner = dumped[each.name]
            kept[each.name] = _without_defaults(own, inner) if isinstance(inner, dict) else inner
    return kept


def _json(value: Any) -> bytes:
    return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    """JSON has no infinity; a word reads back as one."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _line(kind: str, said: Mapping[str, Any]) -> bytes:
    return _json({MARK: kind, **said}) + b"\n"


def _lines(text: str) -> Iterator[dict[str, Any]]:
    """Our lines, also where another writer's half line stands before or behind one."""
    start = f'{{"{MARK}":'
    decoder = json.JSONDecoder()
    for line in text.splitlines():
        place = line.find(start)
        while place >= 0:
            try:
                value, end = decoder.raw_decode(line, place)
            except ValueError:
                value, end = None, place + 1
            if isinstance(value, dict):
                yield value
            place = line.find(start, end)


def _joined(parts: Mapping[int, str], of: int, digest: str) -> bytes | None:
    if not 0 < of <= len(parts):
        return None
    try:
        payload = base64.b64decode("".join(parts[number] for number in range(1, of + 1)), validate=True)
    except (KeyError, binascii.Error, ValueError):
        return None
    return payload if hashlib.sha256(payload).hexdigest() == digest else None


def _result(text: bytes, trial: Trial) -> TrialResult | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return _valid(_RESULT.validate_python, value | {"trial": trial})


def _valid(validate: Callable[[Any], T], value: Any) -> T | None:
    try:
        return validate(value)
    except ValidationError:
        return None
