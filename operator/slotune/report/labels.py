"""Candidates in words: each is named by what differs from what runs today."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slotune.llama.candidate import Candidate
from slotune.report.figures import count, size
from slotune.search.story import SAID_ALOUD

__all__ = ["BASELINE_LABEL", "candidate_label", "change_phrases", "settings", "settings_label"]

BASELINE_LABEL = "baseline (what runs today)"

_MIB = 1024 * 1024


def candidate_label(candidate: Candidate, baseline: Candidate) -> str:
    """``16 slots, prefix cache, Q8_0``: the settings that differ, in the order queue, cache, bytes, hardware."""
    changed = _told(candidate, baseline)
    return ", ".join(_words(candidate, changed)) if changed else BASELINE_LABEL


def settings_label(candidate: Candidate, baseline: Candidate) -> str:
    """Like :func:`candidate_label`, for a place that has named the GPU class already."""
    changed = [name for name in _told(candidate, baseline) if name != "gpu_class"]
    return ", ".join(_words(candidate, changed)) if changed else "what runs today"


def change_phrases(candidate: Candidate, before: Candidate) -> tuple[str, ...]:
    """One phrase for each setting that changed: ``8 → 16 slots``, ``prefix cache``, ``BF16 → Q8_0``."""
    changed = _told(candidate, before)
    old, new = _settings(before, changed), _settings(candidate, changed)
    return tuple(_arrow(old.get(name), text) for name, text in new.items())


def settings(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """(name, value) of every setting, for a table."""
    return (
        ("Weights", candidate.variant),
        ("GPU class", candidate.gpu_class),
        ("Slots", count(candidate.parallel_slots)),
        ("Context per slot", f"{count(candidate.context_per_slot)} tokens"),
        ("KV cache", "one shared pool" if candidate.kv_unified else "one stream per slot"),
        ("KV type", _kv_type(candidate)),
        ("Batch", f"{count(candidate.batch_size)} tokens, {count(candidate.ubatch_size)} at a time"),
        ("Prefix cache", "on" if candidate.cache_prompt else "off"),
        ("Host prompt cache", _host_cache(candidate)),
        ("Flash attention", candidate.flash_attention),
        ("GPU layers", candidate.gpu_layers),
        ("Speculation", _speculation(candidate)),
        ("Sampling", "where the model runs" if candidate.backend_sampling else "on the CPU"),
    )


def _told(candidate: Candidate, before: Candidate) -> tuple[str, ...]:
    """Settings that differ, without those that only say aloud what the server would have chosen by itself."""
    changed = candidate.changed_from(before)
    telling = tuple(
        name for name in changed if (name, getattr(before, name), getattr(candidate, name)) not in SAID_ALOUD
    )
    return telling or changed


def _words(candidate: Candidate, changed: Iterable[str]) -> tuple[str, ...]:
    return tuple(_settings(candidate, changed).values())


def _settings(candidate: Candidate, changed: Iterable[str]) -> dict[str, str]:
    """Phrase by setting, in telling order; K and V types are one setting when they are equal."""
    names = set(changed)
    if names & {"cache_type_k", "cache_type_v"}:
        names = names - {"cache_type_v"} | {"cache_type_k"}
    return {name: phrase(candidate) for name, phrase in _PHRASES.items() if name in names}


def _arrow(old: str | None, new: str) -> str:
    """Old and new value with their common words said once: ``8 slots``, ``16 slots`` is ``8 → 16 slots``."""
    if old in {None, new} or new.startswith("no ") or (old or "").startswith("no "):
        return new
    before, after = (old or "").split(" "), new.split(" ")
    head: list[str] = []
    while len(before) > 1 and len(after) > 1 and before[0] == after[0]:
        head.append(before.pop(0))
        after.pop(0)
    tail: list[str] = []
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        tail.insert(0, before.pop())
        after.pop()
    return " ".join([*head, *before, "→", *after, *tail])


def _kv_type(candidate: Candidate) -> str:
    if candidate.cache_type_k == candidate.cache_type_v:
        return candidate.cache_type_k
    return f"K {candidate.cache_type_k} V {candidate.cache_type_v}"


def _speculation(candidate: Candidate) -> str:
    said = [candidate.speculation]
    if candidate.draft is not None:
        said.append(f"drafts of {candidate.draft}")
    if candidate.speculation_tokens is not None:
        said.append(f"up to {count(candidate.speculation_tokens)} tokens")
    if candidate.speculation_match is not None:
        said.append(f"after {count(candidate.speculation_match)} that repeat")
    return ", ".join(said)


def _or_default(number: int | None, what: str) -> str:
    return f"default {what}" if number is None else f"{count(number)} {what}"


def _host_cache(candidate: Candidate) -> str:
    if candidate.cache_ram_mib < 0:
        return "without limit"
    return size(candidate.cache_ram_mib * _MIB) if candidate.cache_ram_mib else "off"


def _host_cache_phrase(candidate: Candidate) -> str:
    amount = _host_cache(candidate)
    return "no host cache" if amount == "off" else f"host cache {amount}"


_PHRASES: Mapping[str, Callable[[Candidate], Any]] = {
    # queue: how many are answered at once, and in which steps
    "parallel_slots": lambda c: "1 slot" if c.parallel_slots == 1 else f"{c.parallel_slots} slots",
    "context_per_slot": lambda c: f"context {count(c.context_per_slot)}",
    "kv_unified": lambda c: "shared KV pool" if c.kv_unified else "separate KV per slot",
    "batch_size": lambda c: f"batch {count(c.batch_size)}",
    "ubatch_size": lambda c: f"ubatch {count(c.ubatch_size)}",
    # cache: what is not computed again
    "cache_prompt": lambda c: "prefix cache" if c.cache_prompt else "no prefix cache",
    "cache_ram_mib": _host_cache_phrase,
    "cache_idle_slots": lambda c: "idle slots saved" if c.cache_idle_slots else "no idle slots saved",
    "cache_reuse": lambda c: f"reuse from {count(c.cache_reuse)} tokens" if c.cache_reuse else "no chunk reuse",
    # bytes: what is read per step
    "variant": lambda c: c.variant,
    "cache_type_k": lambda c: f"KV {_kv_type(c)}",
    "flash_attention": lambda c: f"flash attention {c.flash_attention}",
    "speculation": lambda c: "no speculation" if c.speculation == "none" else f"{c.speculation} speculation",
    "speculation_tokens": lambda c: _or_default(c.speculation_tokens, "guessed tokens"),
    "speculation_match": lambda c: _or_default(c.speculation_match, "tokens to match"),
    "draft": lambda c: "no draft model" if c.draft is None else f"drafts of {c.draft}",
    "backend_sampling": lambda c: "sampling where the model runs" if c.backend_sampling else "sampling on the CPU",
    # hardware
    "gpu_class": lambda c: f"on {c.gpu_class}",
    "gpu_layers": lambda c: f"GPU layers {c.gpu_layers}",
    "threads": lambda c: "threads by the sandbox" if c.threads is None else f"{c.threads} threads",
    "extra_args": lambda _: "other flags of its own",
}
"""Setting to phrase, in the order queue, cache, bytes, hardware: the order in which changes are told."""
