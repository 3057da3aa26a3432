"""How many prompt tokens of a mean request had been computed before.

llama-server says of each request which part of its prompt the slot holds that it gets (``f_sim_best``), and what it
computed: the part that it held and computed all the same was computed again. Where the log has no such line, what was
found of reuse says of how many requests at most; how much they share, nobody says then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slotune.diagnose.finding import Finding
from slotune.diagnose.rules import reuse, reuse_causes
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory, Topic

__all__ = ["Again", "computed_again"]


@dataclass(frozen=True, slots=True)
class Again:
    """Of a mean request."""

    tokens: float
    is_bound: bool
    """Whether it is at most so many: how much of these prompts had been computed is not known."""
    cause: str | None
    """Identifier of the finding; None: the server's lines alone say so."""


def computed_again(symptoms: Symptoms) -> Again | None:
    """None where nothing says that anything was computed again, nor that nothing was."""
    log = symptoms.log
    requests = None if log is None else log.requests
    if log is None or requests is None or not requests.requests:
        return None
    found = [result for rule in reuse.RULES if isinstance(result := rule.check(symptoms), Finding)]
    is_said = requests.cached_tokens is not None and log.count(Topic.SLOT_BY_SIMILARITY) > 0
    if is_said and not any(finding.id in _ELSEWHERE for finding in found):
        causes = [finding.id for finding in found if finding.id in _MOST]
        return Again(requests.held_tokens / requests.requests, False, causes[0] if causes else None)
    bounds = [(min(1.0, _MOST[finding.id](symptoms, log)), finding.id) for finding in found if finding.id in _MOST]
    if not bounds:
        return None
    share, cause = max(bounds, key=lambda bound: bound[0])
    rest = max(0, requests.prompt_tokens - requests.held_tokens)
    return Again((requests.held_tokens + share * rest) / requests.requests, True, cause)


def _all(_symptoms: Symptoms, _log: LogStory) -> float:
    return 1.0


def _counted(topic: Topic) -> Callable[[Symptoms, LogStory], float]:
    return lambda _, log: 0.0 if log.requests is None else log.count(topic) / log.requests.requests


def _oldest(_symptoms: Symptoms, log: LogStory) -> float:
    """Requests that got a slot for being idle longest."""
    oldest = log.count(Topic.SLOT_BY_LRU)
    return oldest / max(1, oldest + log.count(Topic.SLOT_BY_SIMILARITY))


def _unpicked(_symptoms: Symptoms, log: LogStory) -> float:
    """Requests for which the server picked no slot."""
    picked = log.count(Topic.SLOT_BY_SIMILARITY) + log.count(Topic.SLOT_BY_LRU)
    return 1.0 if log.requests is None else max(0.0, 1 - picked / log.requests.requests)


def _thrown_out(_symptoms: Symptoms, log: LogStory) -> float:
    thrown = max(log.count(Topic.CACHE_EVICTED), log.count(Topic.STATE_EXCEEDS_CACHE))
    return 0.0 if log.requests is None else thrown / log.requests.requests


_MOST: Final[Mapping[str, Callable[[Symptoms, LogStory], float]]] = MappingProxyType(
    {
        reuse_causes.PROMPT_COMPUTED_AGAIN.id: _all,
        reuse_causes.SLIDING_WINDOW.id: _counted(Topic.FULL_REPROCESSING),
        reuse_causes.SLOTS_FEWER_THAN_PREFIXES.id: _oldest,
        reuse_causes.SLOT_SIMILARITY.id: _oldest,
        reuse_causes.PINNED_SLOT.id: _unpicked,
        reuse_causes.CACHE_RAM_CHURN.id: _thrown_out,
        reuse_causes.PROMPT_CACHE_OFF.id: _all,
        reuse_causes.TEMPLATE_CHANGES_PREFIX.id: _all,
    }
)
"""Finding to the share of computed prompt tokens that had been computed before at most: that of its requests."""
_ELSEWHERE: Final = frozenset(
    entry.id
    for entry in (
        reuse_causes.SLOTS_FEWER_THAN_PREFIXES,
        reuse_causes.SLOT_SIMILARITY,
        reuse_causes.PINNED_SLOT,
        reuse_causes.CACHE_RAM_CHURN,
    )
)
"""What was forgotten was not in the slot that the request got, so no line says how much of it there was."""
