"""Which slot gets a prompt: the one that remembers its beginning, or one that forgets something for it."""

from __future__ import annotations

import math
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules import settings, work
from slotune.diagnose.rules.reuse_causes import PINNED_SLOT, SIMILARITY, SLOT_SIMILARITY, SLOTS_FEWER_THAN_PREFIXES
from slotune.diagnose.rules.reuse_habits import A_LOG, MOSTLY, OFTEN, least_similarity
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Topic

__all__ = ["LONG_PROMPT", "RULES", "are_long", "is_pinned", "takes_turns"]

LONG_PROMPT: Final = 64
"""Tokens. What a shorter prompt could save is not worth a word."""
ENOUGH_TOKENS: Final = 20_000
"""Prompt tokens of which a share is told where the number of requests is not known: fewer may be one prompt."""
DEFAULT: Final = 3
"""``-lv`` that prints which slot a request got."""


def _few_slots(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, picks = symptoms.log, _picks(symptoms)
    if log is None or picks is None:
        return Clear(f"the server picks no slots: see {PINNED_SLOT.id}") if is_pinned(symptoms) else Undecided(A_LOG)
    similar, oldest = picks
    known = work.cached_share(symptoms)
    if oldest < OFTEN * (similar + oldest) or (known is not None and known[0] >= MOSTLY):
        return Clear(f"{similar} of {similar + oldest} requests found a slot that holds their beginning")
    ram = settings.number(symptoms, "-cram", fact="cache_ram_mib")
    if ram is None:
        return Undecided(f"a log with -lv 4 that holds the start, or {settings.ITS_ARGUMENTS}")
    if ram.value != 0:
        return Clear("what slots forget is kept in the host cache")
    if similar < OFTEN * (similar + oldest):
        return _none_found(symptoms, ram, oldest, similar)
    count = settings.slots(symptoms)
    named = "the slots" if count is None else counted(count.value, "slot")
    return Finding(
        SLOTS_FEWER_THAN_PREFIXES,
        f"{oldest} of {similar + oldest} requests found no slot that holds their beginning, {similar} did: "
        f"conversations may take turns in {named}, and there is no host cache",
        (work.quoted(log.seen[Topic.SLOT_BY_LRU]), work.quoted(log.seen[Topic.SLOT_BY_SIMILARITY])),
        Severity.INFO,  # new conversations find none either
        Confidence.POSSIBLE,
    )


def _none_found(symptoms: Symptoms, ram: settings.Number, oldest: int, similar: int) -> Finding | Clear | Undecided:
    """Hardly any prompt found a slot that holds its beginning, and nothing else would keep it.

    One log looks the same whether more conversations take turns than there are slots, or one whose beginning changes:
    both are named, and what tells them apart.
    """
    log, known = symptoms.log, work.cached_share(symptoms)
    if known is None or log is None:
        return Undecided("/metrics, which says what came from the cache: --url (start it with --metrics)")
    requests = 0 if log.requests is None else log.requests.requests
    if requests < work.MANY_REQUESTS:
        return Undecided(f"a log of {work.MANY_REQUESTS} requests or more")
    if not are_long(symptoms, known[1]):
        return Clear(f"prompts of {known[1] / requests:.0f} tokens in the mean are soon read again", (known[2],))
    count = settings.slots(symptoms)
    named = (
        "the slots remember" if count is None else f"{counted(count.value, 'slot')} remember{'s' * (count.value == 1)}"
    )
    return Finding(
        SLOTS_FEWER_THAN_PREFIXES,
        f"{oldest} of {similar + oldest} requests found no slot that holds their beginning, and there is no host "
        f"cache: either more conversations take turns than {named}, or something near their beginning changes each "
        "time",
        (work.quoted(log.seen[Topic.SLOT_BY_LRU]), ram.evidence, known[2]),
        Severity.INFO,  # prompts that share nothing find none either
        Confidence.POSSIBLE,
        first="Give the host cache room (--cache-ram 8192, llama.cpp's default): if prompts then come from a cache, "
        "conversations took turns; if not, look for what changes near the beginning of each prompt.",
    )


def takes_turns(symptoms: Symptoms) -> bool:
    """Whether conversations that take turns would explain that nothing came from a cache."""
    return isinstance(_few_slots(symptoms), Finding)


def are_long(symptoms: Symptoms, tokens: int) -> bool:
    """Whether so many prompts of such a length came that a share of them says something."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.cached_tokens is not None:
        return requests.requests >= work.MANY_REQUESTS and tokens >= LONG_PROMPT * requests.requests
    return tokens >= ENOUGH_TOKENS


def _similarity(symptoms: Symptoms) -> Finding | Clear | Undecided:
    picks, known = _picks(symptoms), _least_similarity(symptoms)
    if known is None:
        return Undecided(f"a log of the server under load, or {settings.ITS_ARGUMENTS}")
    least, evidence = known
    if 0 < least <= MOSTLY:
        return Clear(f"a slot is picked for {100 * least:.0f} % of a prompt", (evidence,))
    if picks is None:
        return Undecided(A_LOG)
    similar, oldest = picks
    if oldest < MOSTLY * (similar + oldest):
        return Clear(f"{similar} of {similar + oldest} requests found a slot that holds their beginning", (evidence,))
    return Finding(
        SLOT_SIMILARITY,
        f"a slot is picked for what it holds only above {100 * least:.0f} % of a prompt"
        f"{' (0: never)' if least == 0 else ''}, and {oldest} of {similar + oldest} requests got another one",
        (evidence,),
        Severity.INFO,
        Confidence.POSSIBLE,
    )


def _least_similarity(symptoms: Symptoms) -> tuple[float, Evidence] | None:
    """(Part of a prompt from which a slot is picked for it, who says so); None: nobody, or not as a number."""
    setting = settings.stated(symptoms, "-sps")
    if setting is not None:
        try:
            stated = float(setting.values[0])
        except ValueError:
            return None
        return (stated, settings.said(setting)) if math.isfinite(stated) else None
    if (logged := least_similarity(symptoms.log)) is not None:
        return logged[0], work.quoted(logged[1])
    if settings.has_defaults(symptoms):
        return SIMILARITY, Evidence(Source.FLAGS, f"--slot-prompt-similarity is not stated: {SIMILARITY}")
    return None


def _pinned(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, picks = symptoms.log, _picks(symptoms)
    requests = 0 if log is None or log.requests is None else log.requests.requests
    would_say = log is not None and (log.verbosity or 0) >= DEFAULT and log.build is not None
    if requests < work.MANY_REQUESTS or (picks is None and not would_say):
        return Undecided(A_LOG)
    picked = 0 if picks is None else sum(picks)
    free = requests - picked
    seen = Evidence(Source.LOG, f"{requests} requests, {picked} of them with 'selected slot by'")
    if free < MOSTLY * requests:
        return Clear("the server picks the slots", (seen,))
    return Finding(
        PINNED_SLOT,
        f"for {free} of {requests} requests the server picked no slot: they name one themselves (id_slot)",
        (seen,),
        Severity.INFO,
        Confidence.LIKELY,
    )


def is_pinned(symptoms: Symptoms) -> bool:
    """Whether most requests are known to name their slot; those that name one and the same run one by one."""
    return isinstance(_pinned(symptoms), Finding)


def _picks(symptoms: Symptoms) -> tuple[int, int] | None:
    """(Slots picked for what they hold, slots picked for being idle longest); None: none was logged."""
    log = symptoms.log
    if log is None:
        return None
    similar, oldest = log.count(Topic.SLOT_BY_SIMILARITY), log.count(Topic.SLOT_BY_LRU)
    return (similar, oldest) if similar + oldest else None


RULES: Final = (
    Rule(SLOTS_FEWER_THAN_PREFIXES.id, Item.REUSE, _few_slots),
    Rule(SLOT_SIMILARITY.id, Item.REUSE, _similarity),
    Rule(PINNED_SLOT.id, Item.REUSE, _pinned),
)
