"""The text, the time and the pod of lines that are JSON objects: llama-server's own, and those of who keeps its log.

Keepers agree on objects with a text, a time and where it is from, and on little else. Known names are looked for in the
object and in the few objects in which some keepers nest them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import add, methodcaller
from typing import Any, Final

import orjson

from slotune.llama.log_json_forms import OWN_CLOCK, Form, docker_form, form_of, own_form
from slotune.llama.log_old_builds import as_old_line
from slotune.llama.log_times import in_seconds

__all__ = ["Messages", "messages", "without_colours"]

_LATEST: Final = 1e18
"""No clock is beyond it, whatever its unit."""

_TEXTS: Final = ("msg", "log", "message", "MESSAGE", "textPayload", "line", "body")
_NESTED: Final = ("jsonPayload", "_source", "event", "fields", "data")
"""Objects that have the text in them: Google's, Elasticsearch's."""
_TIMES: Final = ("time", "timestamp", "ts", "@timestamp", "date", "__REALTIME_TIMESTAMP")
_HOMES: Final = ("kubernetes", "resource", "labels", "stream", "k8s", "metadata", "attributes")
"""Objects that tell where a line is from: of Fluent Bit, Vector, Google, Loki, OpenTelemetry."""
_PODS: Final = ("pod_name", "pod", "podName", "k8s.pod.name")
_CONTAINERS: Final = ("container_name", "container", "containerName", "k8s.container.name")
_FLAT: Final = ("CONTAINER_NAME", "SYSLOG_IDENTIFIER", *_PODS)
"""What journald and others have beside the text."""
_LEVELS: Final = {"debug": "D ", "info": "I ", "warn": "W ", "warning": "W ", "error": "E ", "err": "E ", "trace": "T "}
_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
"""How UTF-16 and UTF-8 begin on Windows."""
_FORMS: Final = 8
"""Pods, streams and levels of one log for which there is a pattern; objects of others are decoded."""
_LEARNED_FROM: Final = 16
"""Lines of a piece that are looked at for such patterns."""
_COLOUR = re.compile(rb"\x1b\[[0-9;:?]*[A-Za-z]")
_BEGINS: Final = methodcaller("startswith", b'{"')
_KNOWN: Final = (own_form({name.encode(): letter.encode() for name, letter in _LEVELS.items()}), docker_form())
"""llama-server's own objects, and Docker's."""


def without_colours(text: bytes) -> bytes:
    """``text`` without what a terminal would take as a colour, and without what no log should have."""
    if text.startswith(_MARKS):
        text = text.lstrip(b"\xff\xfe\xef\xbb\xbf")
    if b"\x1b" in text:
        text = _COLOUR.sub(b"", text)
    if b"\xc2" in text and b"\xc2\xa0" in text:  # copied from a web page; one byte is found fast
        text = text.replace(b"\xc2\xa0", b" ")
    if b"\r" in text:
        text = text.replace(b"\r", b"")
    return text.replace(b"\0", b"") if b"\0" in text else text


@dataclass(frozen=True, slots=True)
class Messages:
    """What lines say, those that are no JSON object as they are; each list has an entry for each line."""

    texts: list[bytes | list[bytes]]
    """A line, or none or several of them."""
    times: list[float | bytes | None]
    """Seconds of any clock, or as they are written."""
    names: dict[int, str]
    """``pod/container`` of the lines that name one."""


def messages(
    lines: Sequence[bytes], times: Sequence[float | bytes | None], forms: list[Form] | None = None
) -> Messages | None:
    """What ``lines`` with these times beside them say; None: none of them is a JSON object.

    Args:
        lines: JSON objects, or anything else.
        times: what is beside each, if it has no time in it.
        forms: how objects of this log were so far; what is learned of them is added.
    """
    if not any(line.startswith(b'{"') for line in lines):
        return None
    told = Messages(list(lines), list(times), {})
    texts, written = told.texts, told.times
    others: Sequence[int] = list(compress(range(len(lines)), map(_BEGINS, lines)))
    if forms is None:
        forms = []
    for form in (*_KNOWN, *forms):
        others = _of_form(form, lines, others, told)
    if others and len(forms) < _FORMS:
        _learn(lines, others, forms)
    for index, document in zip(others, _decoded([lines[index] for index in others]), strict=True):
        text = _message(document) if isinstance(document, dict) else None
        if not isinstance(document, dict) or text is None:
            texts[index] = []
            continue
        said = without_colours(text.encode(errors="replace"))
        texts[index] = said.split(b"\n") if b"\n" in said else said
        if (time := _time(document)) is not None:
            written[index] = time
        if name := _home(document):
            told.names[index] = name
    return told


def _of_form(form: Form, lines: Sequence[bytes], places: Sequence[int], told: Messages) -> Sequence[int]:
    """Take what the lines at ``places`` say that have this form; the places of those that have not."""
    if not form.seams.any_of(lines[index] for index in _some(places)):
        return places
    found = form.seams.take_apart(lines if len(places) == len(lines) else [lines[index] for index in places])
    at = places if not found.rest else [places[index] for index in found.places]
    _put(told.texts, at, _with_levels(found.groups[1], found.texts, form.letters) if form.letters else found.texts)
    if form.time is not None:
        written = found.groups[form.time]
        _put(told.times, at, written if form.seconds is None else form.seconds(written))
    if form.name:
        told.names.update(dict.fromkeys(at, form.name))
    return [places[index] for index in found.rest]


def _with_levels(levels: Sequence[bytes], texts: Sequence[bytes], letters: Mapping[bytes, bytes]) -> list[bytes]:
    written = {level: letters.get(level, b"") for level in set(levels)}
    return list(map(add, map(written.__getitem__, levels), texts))


def _put(column: list[Any], places: Sequence[int], values: Sequence[object]) -> None:
    if len(places) == len(column):
        column[:] = values
    else:
        for place, value in zip(places, values, strict=True):
            column[place] = value


def _some(places: Sequence[int]) -> Sequence[int]:
    return places[:: max(1, len(places) // _LEARNED_FROM)][:_LEARNED_FROM]


def _learn(lines: Sequence[bytes], places: Sequence[int], forms: list[Form]) -> None:
    """Add the forms of a few of the lines at ``places``."""
    for index in _some(places):
        line = lines[index]
        if len(forms) >= _FORMS:
            return
        document = None if any(form.seams.any_of((line,)) for form in forms) else _one(line)
        text = _message(document) if isinstance(document, dict) else None
        if isinstance(document, dict) and text is not None:
            form = form_of(line, document, text, _written(document), _home(document))
            if form is not None:
                forms.append(form)


def _decoded(lines: Sequence[bytes]) -> list[object]:
    """Each line's document, or None for one that is broken."""
    try:
        found = orjson.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        return [_one(line) for line in lines]
    return found if len(found) == len(lines) else [_one(line) for line in lines]


def _one(line: bytes) -> object:
    try:
        return json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _message(document: dict[str, object]) -> str | None:
    """The text of a message without its line end, its level in front as llama-server has it; None: there is none."""
    if "function" in document and (old := as_old_line(document)) is not None:
        return old
    text = _text(document)
    if text is None:
        text = next((found for key in _NESTED if (found := _text(document.get(key))) is not None), None)
    if text is None:
        return None
    level = document.get("level")  # of another's object it is that of all its lines
    if isinstance(level, str) and document.get("type") == "log":
        text = _LEVELS.get(level.lower(), "") + text
    return text.rstrip("\n")


def _text(document: object) -> str | None:
    """The text of a message; journald writes one with colours as a list of bytes."""
    if not isinstance(document, dict):
        return None
    for key in _TEXTS:
        value = document.get(key)
        if isinstance(value, str):
            return value
    listed = document.get("MESSAGE")
    if isinstance(listed, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in listed):
        return bytes(listed).decode(errors="replace")
    return None


def _written(document: dict[str, object]) -> str | float | None:
    """The time, as it is written."""
    for key in _TIMES:
        value = document.get(key)
        if isinstance(value, str) or (
            isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST
        ):
            return value
    return None


def _time(document: dict[str, object]) -> float | bytes | None:
    for key in _TIMES:
        value = document.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST:
            return float(value) / OWN_CLOCK if document.get("type") == "log" else in_seconds(float(value))
        if isinstance(value, str):
            return value.encode(errors="replace")
    return None


def _home(document: dict[str, object]) -> str:
    for key in _HOMES:
        home = document.get(key)
        if isinstance(home, dict):
            nested = home.get("labels")
            for labels in (home, nested) if isinstance(nested, dict) else (home,):
                pod = _first(labels, _PODS)
                if pod:
                    container = _first(labels, _CONTAINERS)
                    return f"{pod}/{container}" if container else pod
    return _first(document, _FLAT)


def _first(labels: dict[str, object], keys: Sequence[str]) -> str:
    return next((value for key in keys if isinstance(value := labels.get(key), str)), "")
