"""What was given together must be of one server: what says otherwise is left out, and both values are said.

Only what can't be true of one start counts. A port is none of it (a forwarded one is another), nor is the name of a
weights file alone beside equal sizes: files are renamed, linked, and kept in caches under names of their own. Of two
that contradict each other the server that answers counts before its log, and both before a file that was named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from slotune.diagnose.device_names import are_others, logged_names, seen_names
from slotune.diagnose.symptoms import ServerLook, Symptoms
from slotune.llama.build_number import build_of_text
from slotune.llama.log_story import LogStory
from slotune.llama.model_facts import ModelFacts
from slotune.load.nvidia_smi import DeviceSnapshot

__all__ = ["without_contradictions"]

MIB: Final = 2**20
SIZE_TOLERANCE: Final = 0.03
"""Of weights: a log rounds them. Q4_0 and Q4_1 of one model are further apart."""
CONTEXT_TOLERANCE: Final = 256
"""Tokens: llama.cpp pads a context to as many."""
LEAST_EXACT_BUILD: Final = 4600
"""Builds before may count weights that are used twice twice in /v1/models."""
LEAST_HELD_BYTES: Final = 64 * MIB
"""Less than any program holds that computes on a GPU."""
BESIDE_WEIGHTS_BYTES: Final = 1024 * MIB
"""More than a server holds on a GPU that has no weights there: CUDA's context, and scratch space for long prompts."""

_BLOB: Final = re.compile(r"(?:sha256[-:])?[0-9a-f]{40,64}(?:\.gguf)?", re.IGNORECASE)
"""A file that a cache named by its content."""


def without_contradictions(symptoms: Symptoms) -> tuple[Symptoms, tuple[str, ...]]:
    """What is of one server, and a sentence for each thing that was left out or may be of another."""
    notes: list[str] = []
    log, server = symptoms.log, symptoms.server
    if log is not None and server is not None and symptoms.pod is None:
        told, left_out = _log_beside_server(log, server)
        if told and left_out:
            notes.append(
                f"the log ({log.source}) and {server.url} are not of one start of one server: {told}; the log was left "
                "out: give the log of the server that runs there, from its last start on"
            )
            symptoms = replace(symptoms, log=None)
        elif told:
            notes.append(
                f"the log ({log.source}) may be of an earlier start than what runs at {server.url}: {told}; the "
                "weights are of one size, so both were used"
            )
    if symptoms.model is not None:
        told, left_out = _weights_beside(symptoms.model, symptoms.log, symptoms.server)
        if told and left_out:
            notes.append(
                f"{symptoms.name}: --model is not the file that is served: {told}; it was left out: give the file "
                "that this server loads"
            )
            symptoms = replace(symptoms, model=None)
        elif told:
            notes.append(
                f"{symptoms.name}: --model may not be the file that is served: {told}, and nothing says how large that "
                "one is; it was used"
            )
    if (apart := _device_beside_log(symptoms)) is not None:
        notes.append(
            f"{symptoms.name}: the output of nvidia-smi is not of this server: {apart}; it was left out: take it where "
            "and while this server computes"
        )
        symptoms = replace(symptoms, device=None, device_evidence=())
    return symptoms, tuple(notes)


def _log_beside_server(log: LogStory, server: ServerLook) -> tuple[str, bool]:
    """What differs, and whether that is enough. Both names of the weights are the process's own argument."""
    facts, props, meta = log.facts, server.props, server.model
    told: list[str] = []
    same_size = False
    if meta is not None:
        told += _differ("elements of an embedding", facts.shape.embedding, meta.embedding, "the log", "/v1/models")
        logged, answered = facts.shape.weights_bytes, _size_of(server)
        if logged and answered:
            same_size = _alike(logged, answered)
            told += [] if same_size else [_sizes(logged, answered, "the log", "/v1/models")]
    if props is None:
        return "; ".join(told), bool(told)
    told += _differ("slots", facts.slots, props.total_slots, "the log", "/props")
    told += _contexts(log, props.context_per_slot, props.total_slots)
    told += _differ("build", log.build, build_of_text(props.build), "the log", "/props")
    here, there = _base(facts.model_path), _base(props.model_path)
    if not here or there in ("", "none") or here == there:
        return "; ".join(told), bool(told)
    named = f"{here} is served by the log, {there} by /props"
    return "; ".join([named, *told]), bool(told) or not same_size


def _contexts(log: LogStory, answered: int, slots: int) -> list[str]:
    """A pool that slots share is told whole or by the slot, and some builds log it before they cap it."""
    logged, cap = log.facts.context_per_slot, log.facts.context_trained_cap
    if not logged or answered <= 0:
        return []
    alike = {logged, logged * max(slots, 1), logged // max(slots, 1), min(logged, cap or logged)}
    if any(abs(one - answered) <= CONTEXT_TOLERANCE for one in alike):
        return []
    return [f"{logged:,} tokens of context per slot by the log, {answered:,} by /props"]


def _weights_beside(model: ModelFacts, log: LogStory | None, server: ServerLook | None) -> tuple[str, bool]:
    """What differs from what the server or its log says, and whether that is enough."""
    told: list[str] = []
    sizes = ((None if server is None else _size_of(server)), (None if log is None else log.facts.shape.weights_bytes))
    meta = None if server is None else server.model
    widths = (
        (None if meta is None else meta.embedding),
        (None if log is None else log.facts.shape.embedding),
    )
    by = ("/v1/models", "the log")
    for who, size, width in zip(by, sizes, widths, strict=True):
        if told:
            break  # what both say is said once
        if size and model.weights_bytes and not _alike(model.weights_bytes, size):
            told.append(_sizes(model.weights_bytes, size, "the file", who))
        told += _differ("elements of an embedding", model.embedding, width, "the file", who)
    here = _base(model.path)
    props = None if server is None else server.props
    named = (_base(None if props is None else props.model_path), _base(None if log is None else log.facts.model_path))
    there = next((name for name in named if name not in ("", "none")), "")
    if _may_be_one(here, there):
        return "; ".join(told), bool(told)
    names = f"it is {here}, and {there} is served"
    if told:
        return "; ".join([names, *told]), True
    return ("" if any(sizes) else names), False


def _may_be_one(first: str, second: str) -> bool:
    """Whether two names can be of one file: caches put the repository before it, or a digest in its place."""
    if not first or not second or _BLOB.fullmatch(first) or _BLOB.fullmatch(second):
        return True
    first, second = first.lower(), second.lower()
    return first.endswith(second) or second.endswith(first)


def _device_beside_log(symptoms: Symptoms) -> str | None:
    """Another device than the log's, or a llama-server with memory on it beside the log of one that has none there."""
    log, device = symptoms.log, symptoms.device
    if log is None or not isinstance(device, DeviceSnapshot):
        return None
    logged, seen = logged_names(log.facts), seen_names(device)
    if logged and seen and are_others(logged, seen):
        return f"its log names {' and '.join(logged)}, and it names {' and '.join(seen)}"
    return None if not device.server_bytes else _held_beside_log(log, device, device.server_bytes)


def _held_beside_log(log: LogStory, device: DeviceSnapshot, held: int) -> str | None:
    facts = log.facts
    if facts.no_usable_gpu and not facts.devices and not facts.on_gpu:
        least, where = LEAST_HELD_BYTES, "its log says that it found no usable GPU"
    elif facts.model_buffers and not facts.on_gpu:
        least = facts.model_bytes + BESIDE_WEIGHTS_BYTES
        where = f"all {facts.model_bytes / MIB:,.0f} MiB of its weights lie in host memory by its log"
    else:
        return None
    return f"{where}, and a llama-server holds {held / MIB:,.0f} MiB on {device.name}" if held >= least else None


def _size_of(server: ServerLook) -> int | None:
    build = None if server.props is None else build_of_text(server.props.build)
    exact = build is None or build >= LEAST_EXACT_BUILD
    return server.model.size_bytes if server.model is not None and exact else None


def _alike(first: int, second: int) -> bool:
    return abs(first - second) <= SIZE_TOLERANCE * max(first, second)


def _sizes(first: int, second: int, here: str, there: str) -> str:
    return f"{first / MIB:,.0f} MiB of weights by {here}, {second / MIB:,.0f} MiB by {there}"


def _differ(what: str, first: int | None, second: int | None, here: str, there: str) -> Sequence[str]:
    """0 is not known either."""
    if not first or not second or first == second:
        return ()
    if what == "build":
        return (f"build {first} by {here}, {second} by {there}",)
    return (f"{first:,} {what} by {here}, {second:,} by {there}",)


def _base(path: str | None) -> str:
    return re.split(r"[/\\]", path or "")[-1]
