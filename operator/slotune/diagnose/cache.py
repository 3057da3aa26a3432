"""Why a prompt cache served less than it could, as far as the measurement can tell.

A cause is only named where something else than the shortfall itself speaks for it: the server's own settings, the
model's layers, a template that was asked, or what so many slots could keep of this very trace. Where nothing does, the
sentence says so: a wrong cause sends people to the wrong setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slotune.diagnose.rules.reuse_causes import SIMILARITY
from slotune.llama.candidate import Candidate
from slotune.llama.kv_cells import slot_cells
from slotune.llama.memory import kv_bytes
from slotune.llama.model_facts import ModelFacts
from slotune.load.cache_facts import EFFECTIVE, CacheFacts
from slotune.search.trial import TrialResult

__all__ = ["CODES", "Shortfall", "cache_shortfall", "falls_short", "served_words"]

LEAST_SHARED = 0.05
"""A cache that could save less than this is nobody's concern."""
NEARLY_ALL = 0.8
"""Of the slots: when so many are at work, a prompt has one or two to choose from."""
SIMILARITY_FLAGS = ("-sps", "--slot-prompt-similarity")


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One cache that served less than :data:`~slotune.load.cache_facts.EFFECTIVE` of what it could."""

    code: str
    """One of :data:`CODES`."""
    sentence: str


@dataclass(frozen=True, slots=True)
class _Seen:
    candidate: Candidate
    facts: CacheFacts
    model: ModelFacts | None
    prompt_tokens: float | None
    busy_slots: float | None
    """Mean slots at work."""

    @property
    def slots_fall_short(self) -> bool:
        """Whether this trace needs more than the slots can keep, whatever else is wrong."""
        kept, whole = self.facts.slots_reuse, self.facts.theoretical_reuse
        return kept is not None and whole is not None and kept < EFFECTIVE * whole

    @property
    def less_than_slots_keep(self) -> bool:
        """Whether not even that was served which the slots alone could have."""
        kept, served = self.facts.slots_reuse, self.facts.measured_reuse
        return kept is not None and served is not None and served < EFFECTIVE * kept


def falls_short(facts: CacheFacts) -> bool:
    """Whether less was served than counts as effective, of something worth serving."""
    effectiveness = facts.effectiveness
    return (facts.theoretical_reuse or 0.0) >= LEAST_SHARED and effectiveness is not None and effectiveness < EFFECTIVE


def cache_shortfall(result: TrialResult, model: ModelFacts | None = None) -> Shortfall | None:
    """The finding about a trial's cache; None where it did what it could, or nobody knows.

    ``model`` is the weights file's facts; without them a sliding window and a full host cache can't be told.
    """
    facts = result.cache
    if facts is None or not falls_short(facts):
        return None
    busy = None if result.attribution is None else result.attribution.busy_slots
    seen = _Seen(result.trial.candidate, facts, model, result.latencies.mean_prompt_tokens, busy)
    for code, check in _CAUSES:
        if (why := check(seen)) is not None:
            return Shortfall(code, f"{served_words(facts)}: {why}")
    raise AssertionError("the last check always speaks")


def served_words(facts: CacheFacts) -> str:
    """``the prompt cache served 12 % of prompt tokens, 64 % were possible``."""
    served, possible = facts.measured_reuse or 0.0, facts.theoretical_reuse or 0.0
    return f"the prompt cache served {100 * served:.0f} % of prompt tokens, {100 * possible:.0f} % were possible"


def _off(seen: _Seen) -> str | None:
    return None if seen.candidate.cache_prompt else "it is switched off"


def _template(seen: _Seen) -> str | None:
    if seen.facts.template_keeps_prefix is not False:
        return None
    return "the chat template makes different beginnings of what prompts share"


def _similarity(seen: _Seen) -> str | None:
    share, least = seen.facts.prefix_share, _least_similarity(seen.candidate)
    if share is None or least is None or share > least or not seen.less_than_slots_keep:
        return None
    return (
        f"a prompt shares {100 * share:.0f} % of its length, and a slot is chosen for what it holds from "
        f"{100 * least:g} % on (--slot-prompt-similarity)"
    )


def _window(seen: _Seen) -> str | None:
    if seen.model is None or not seen.less_than_slots_keep:
        return None
    if any(layer.state_bytes for layer in seen.model.layers):
        return "the model keeps a state that can't go back to where prompts part, so they are read from the start"
    windows = [layer.window for layer in seen.model.layers if layer.window is not None]
    if not windows or "--swa-full" in seen.candidate.extra_args:
        return None
    return (
        f"layers with a window of {min(windows):,} tokens forget what lies behind it, so prompts are read from the "
        "start; --swa-full keeps it, for more memory"
    )


def _slots(seen: _Seen) -> str | None:
    if not seen.slots_fall_short or seen.candidate.cache_ram_mib != 0:
        return None
    return (
        f"{seen.facts.prefixes} prefixes take turns in {seen.candidate.parallel_slots} slots, which alone could serve "
        f"{100 * (seen.facts.slots_reuse or 0.0):.0f} %, and there is no host cache"
    )


def _host_cache(seen: _Seen) -> str | None:
    candidate, limit = seen.candidate, seen.candidate.cache_ram_mib
    if not seen.slots_fall_short or limit <= 0 or seen.model is None or seen.prompt_tokens is None:
        return None
    cells = slot_cells(candidate) * (1 if candidate.kv_unified else candidate.parallel_slots)
    each = kv_bytes(candidate, seen.model, on_gpu=False) / cells * seen.prompt_tokens
    waiting = seen.facts.prefixes - candidate.parallel_slots
    if each * waiting <= limit * 2**20:
        return None
    return (
        f"{waiting} prefixes wait outside of the slots, about {each * waiting / 2**20:,.0f} MiB, and the host cache "
        f"holds {limit:,} MiB"
    )


def _undecided(seen: _Seen) -> str:
    kept, slots = seen.facts.slots_reuse, seen.candidate.parallel_slots
    if seen.less_than_slots_keep and seen.busy_slots is not None and seen.busy_slots >= NEARLY_ALL * slots:
        return (
            f"on average {seen.busy_slots:.1f} of {slots} slots were at work, so a prompt gets the slot that becomes "
            "free, seldom the one that holds its beginning"
        )
    alone = "" if kept is None else f"; the slots alone could have served {100 * kept:.0f} %"
    return f"why is not decided{alone}"


_CAUSES: tuple[tuple[str, Callable[[_Seen], str | None]], ...] = (
    ("PromptCacheOff", _off),
    ("TemplateChangesPrefix", _template),
    ("SlotSimilarity", _similarity),
    ("SlidingWindow", _window),
    ("SlotsFewerThanPrefixes", _slots),
    ("CacheRAMChurn", _host_cache),
    ("CacheWithoutEffect", _undecided),
)
"""The surest evidence first."""

CODES = tuple(code for code, _ in _CAUSES)


def _least_similarity(candidate: Candidate) -> float | None:
    """The share from which a slot is chosen for what it holds; None where the stated one is no number."""
    for flag, value in zip(candidate.extra_args, candidate.extra_args[1:], strict=False):
        if flag in SIMILARITY_FLAGS:
            try:
                return float(value)
            except ValueError:
                return None
    return SIMILARITY
