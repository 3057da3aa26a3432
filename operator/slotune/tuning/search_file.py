"""A finished search as one file: enough to run the search code on it again, little enough to hand to anybody.

The whole problem and every result go in, as JSON, packed by gzip where the name says so. Left out is what no search
asks for: prompts, logs, traces, sampling settings, where things lie on this machine. Secrets among the flags that are
passed through are hidden as in a report. Why not the folder that ``slotune tune`` writes: it has the record of every
request, and names of this machine's files.

What is read is checked down to the last field before anything is made of it.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from slotune.llama.candidate import Candidate
from slotune.report.redaction import said_in_public, without_secrets
from slotune.search.problem import Problem
from slotune.search.replay import RecordedAnswer, RecordedSearch
from slotune.search.trial import TrialResult

__all__ = ["SCHEMA", "SUFFIX", "SearchFileError", "from_bytes", "read_search", "to_bytes"]

SCHEMA = "slotune.dev/search/v1"
"""Changes when an older file could not be read any more, or would be read wrongly. History: v1 is the first."""
SUFFIX = ".json.gz"
CONTENT_MAX = 512 * 2**20
"""Bytes of JSON that are read at most: a few kilobytes can be made to unfold into gigabytes."""

_GZIP = b"\x1f\x8b"
_PATH = re.compile(r"(?<![\w:/.\-])/(?:[^\s/'\",:;()]+/)+([^\s/'\",:;()]*)")
"""An absolute path of two parts or more; its last part may stay."""


class SearchFileError(Exception):
    """A file that is no search, or none that can be replayed. Has the file, the field and the cure."""

    def __init__(self, path: Path, field: str, cure: str) -> None:
        self.path, self.field, self.cure = path, field, cure
        super().__init__(f"{path}: {field}{': ' if field else ''}{cure}")


@dataclass(frozen=True, slots=True)
class _Needs:
    """One entry of ``Problem.memory_bytes``: JSON has no keys that are candidates."""

    candidate: Candidate
    bytes_needed: int


@dataclass(frozen=True, slots=True)
class _Document:
    """The file's content."""

    schema: str
    slotune_version: str
    problem: Problem
    memory: tuple[_Needs, ...]
    results: tuple[TrialResult, ...]
    answer: RecordedAnswer


_DOCUMENT = TypeAdapter(_Document)


def to_bytes(recorded: RecordedSearch, *, version: str, packed: bool) -> bytes:
    """The file's content. Equal searches give equal bytes: no time of writing is in it.

    Args:
        recorded: the search.
        version: of this slotune.
        packed: by gzip; else JSON that a person can read.
    """
    problem = recorded.problem
    document = _Document(
        SCHEMA,
        version,
        replace(_public_problem(problem), memory_bytes={}),
        tuple(_Needs(_public(candidate), needed) for candidate, needed in problem.memory_bytes.items()),
        _without_nodes([_public_result(result) for result in recorded.results]),
        replace(
            recorded.answer,
            candidate=None if recorded.answer.candidate is None else _public(recorded.answer.candidate),
        ),
    )
    plain = _DOCUMENT.dump_json(document, indent=None if packed else 1) + b"\n"
    return gzip.compress(plain, compresslevel=9, mtime=0) if packed else plain


def read_search(path: Path) -> RecordedSearch:
    """Read what ``slotune export --format search`` wrote, packed or not.

    Raises:
        SearchFileError: it can't be read, is cut, was changed, or is of another version.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise SearchFileError(
            path, "", f"can't be read ({reason}): name a file of `slotune export --format search`"
        ) from error
    return from_bytes(raw, path)


def from_bytes(raw: bytes, path: Path) -> RecordedSearch:
    """The search in ``raw``; ``path`` is only named in errors.

    Raises:
        SearchFileError: see :func:`read_search`.
    """
    plain = _unpacked(raw, path)
    _check_schema(plain, path)
    try:
        document = _DOCUMENT.validate_json(plain, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise SearchFileError(path, field, f"{first['msg']}; the file was changed: export it again") from error
    except ValueError as error:  # a value that a fact refuses to be built from, in a place that has no name
        raise SearchFileError(path, "", f"{error}; the file was changed: export it again") from error
    problem = replace(document.problem, memory_bytes={needs.candidate: needs.bytes_needed for needs in document.memory})
    recorded = RecordedSearch(problem, document.results, document.answer)
    for field, complaint in _complaints(recorded):
        raise SearchFileError(path, field, f"{complaint}; the file was changed: export it again")
    return recorded


def _unpacked(raw: bytes, path: Path) -> bytes:
    if not raw.startswith(_GZIP):
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            plain = file.read(CONTENT_MAX + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise SearchFileError(path, "", "is cut off or damaged: copy it again, or export it again") from error
    if len(plain) > CONTENT_MAX:
        raise SearchFileError(path, "", f"holds more than {CONTENT_MAX >> 20} MiB: no search is as large")
    return plain


def _check_schema(plain: bytes, path: Path) -> None:
    try:
        document = orjson.loads(plain)
    except orjson.JSONDecodeError as error:
        raise SearchFileError(path, "", "is no JSON, or cut off: copy it again, or export it again") from error
    said = document.get("schema") if isinstance(document, dict) else None
    if said is None:
        raise SearchFileError(path, "schema", "is missing: name a file of `slotune export --format search`")
    if said != SCHEMA:
        by = document.get("slotune_version")
        raise SearchFileError(
            path, "schema", f"is {said}, this slotune reads {SCHEMA}: replay it with the slotune that wrote it ({by})"
        )


def _complaints(recorded: RecordedSearch) -> Iterator[tuple[str, str]]:
    """(field, what is wrong) of facts that are well formed and yet no search."""
    problem = recorded.problem
    if problem.quality is not None and problem.quality.reference not in problem.models:
        yield "problem.quality.reference", f"is {problem.quality.reference}, which is none of problem.models"
    yield from _odd_numbers(recorded)
    tried = [("problem.baseline", problem.baseline)]
    tried += [(f"problem.candidates.{at}", candidate) for at, candidate in enumerate(problem.candidates)]
    tried += [(f"problem.pruned.{at}", pruned.candidate) for at, pruned in enumerate(problem.pruned)]
    tried += [(f"results.{at}.trial", result.trial.candidate) for at, result in enumerate(recorded.results)]
    for field, candidate in tried:
        if candidate.gpu_class not in problem.hardware or candidate.variant not in problem.models:
            yield (
                field,
                f"names {candidate.variant} on {candidate.gpu_class}: the problem has no such model or GPU class",
            )


def _odd_numbers(recorded: RecordedSearch) -> Iterator[tuple[str, str]]:
    problem = recorded.problem
    for name, hardware in problem.hardware.items():
        field = f"problem.hardware.{name}"
        if hardware.price_per_hour < 0 or hardware.replicas_max < 1:
            yield field, "a price is 0 or more, and replicas_max at least 1"
    if not 0 < problem.demand.peak_rate < float("inf"):
        yield "problem.demand.peak_rate", f"is {problem.demand.peak_rate}, it must be above 0"
    if problem.replicas_today < 1:
        yield "problem.replicas_today", f"is {problem.replicas_today}, it must be at least 1"
    for at, result in enumerate(recorded.results):
        if result.trial.purpose.puts_load and not 0 < result.trial.rate < float("inf"):
            yield f"results.{at}.trial.rate", f"is {result.trial.rate}, it must be above 0"
        if not 0 <= result.gpu_seconds < float("inf"):
            yield f"results.{at}.gpu_seconds", f"is {result.gpu_seconds}, it must be 0 or more"


def _public_problem(problem: Problem) -> Problem:
    """``problem`` without what only a server is asked: its digest still tells which prompts they were."""
    demand = replace(
        problem.demand,
        prompts=(),
        sampling=(),
        arrivals=replace(problem.demand.arrivals, offsets_s=(), input_tokens=(), output_tokens=()),
    )
    return replace(
        problem,
        demand=demand,
        models={name: replace(facts, path="") for name, facts in problem.models.items()},
        candidates=tuple(map(_public, problem.candidates)),
        baseline=_public(problem.baseline),
        pruned=tuple(replace(p, candidate=_public(p.candidate), reason=_words(p.reason)) for p in problem.pruned),
    )


def _public_result(result: TrialResult) -> TrialResult:
    return replace(
        result,
        trial=replace(result.trial, candidate=_public(result.trial.candidate)),
        verdict=replace(result.verdict, reason=_words(result.verdict.reason)),
        effective=tuple((name, _words(value)) for name, value in result.effective),
        warnings=tuple(map(_words, result.warnings)),
        log_tail=(),
        noticed=tuple(
            replace(one, sentence=_words(one.sentence), evidence=_words(one.evidence)) for one in result.noticed
        ),
    )


def _without_nodes(results: Sequence[TrialResult]) -> tuple[TrialResult, ...]:
    """``results`` with a number for each node, and without UUIDs: what ran together matters, no names do."""
    nodes = dict.fromkeys(result.node for result in results if result.node)
    numbered = {node: f"node-{number}" for number, node in enumerate(nodes, start=1)}
    return tuple(
        replace(
            result,
            node=numbered.get(result.node, ""),
            device=None if result.device is None else replace(result.device, uuids=()),
        )
        for result in results
    )


def _public(candidate: Candidate) -> Candidate:
    if not candidate.extra_args:
        return candidate
    return replace(candidate, extra_args=tuple(map(_words, without_secrets(candidate.extra_args))))


def _words(text: str) -> str:
    """``text`` without secrets, requests and folders of this machine."""
    return _PATH.sub(r"…/\1", said_in_public(text))
