"""A shared prefix should be computed once: what shows that it was computed again, and what keeping it costs.

That little came from the cache is no fault by itself: prompts may share nothing, and a server can't know. Only what
shows that something was there to reuse (a slot picked for what it holds, a prompt sent twice) makes it one.
"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import reuse_heads, reuse_host_cache, reuse_slots, reuse_window, settings, work
from slotune.diagnose.rules.reuse_causes import (
    CACHE_REUSE_UNSUPPORTED,
    ENTRIES,
    PROMPT_CACHE_OFF,
    PROMPT_COMPUTED_AGAIN,
    SIMILARITY,
    SLIDING_WINDOW,
    SLOTS_FEWER_THAN_PREFIXES,
    TEMPLATE_CHANGES_PREFIX,
)
from slotune.diagnose.rules.reuse_habits import A_TRACE, MOSTLY, OFTEN, SEVERAL, TRACE, least_similarity
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Topic

__all__ = ["ENTRIES", "RULES"]

HARDLY: Final = 0.1
"""About so much of the prompt tokens comes from a chat template that all prompts share."""
HALF: Final = 0.5
"""Of what the picked slots hold at least: prompts differ in length, so not all of it shows in a share of tokens."""
HOURLY_S: Final = 3600.0
"""A prompt's beginning that changes at least this often is read again all day; a date is not."""


def _computed_again(symptoms: Symptoms) -> Finding | Clear | Undecided:
    if _is_off(symptoms) is True:
        return Clear(f"the prompt cache is off: see {PROMPT_CACHE_OFF.id}")
    if symptoms.log is not None and symptoms.log.count(Topic.FULL_REPROCESSING):
        return Clear(f"what is read again has a reason of its own: see {SLIDING_WINDOW.id}")
    probed = _probed(symptoms)
    if isinstance(probed, Finding):
        return probed
    return _by_share(symptoms) or probed or Undecided("--probe: it sends one prompt twice")


def _by_share(symptoms: Symptoms) -> Finding | Clear | None:
    """What the share of cached tokens says; None where it says nothing."""
    known, log = work.cached_share(symptoms), symptoms.log
    if known is None:
        return None
    if (textless := _makes_no_text(symptoms)) is not None:
        return Clear("it makes no text, and keeps nothing of what it reads", (textless,))
    picked, share = _picked(symptoms)
    least = (least_similarity(log) or (SIMILARITY,))[0]
    if log is not None and picked >= SEVERAL and share >= OFTEN and known[0] < min(HARDLY, HALF * share * least):
        return Finding(
            PROMPT_COMPUTED_AGAIN,
            f"{picked} requests got the slot that holds their beginning, yet {100 * known[0]:.0f} % of prompt tokens "
            "came from the cache",
            (known[2], work.quoted(log.seen[Topic.SLOT_BY_SIMILARITY])),
            confidence=Confidence.LIKELY if (log.verbosity or 0) >= TRACE else Confidence.POSSIBLE,
        )
    if known[0] >= MOSTLY:
        return Clear(f"{100 * known[0]:.0f} % of prompt tokens came from the cache", (known[2],))
    is_little = known[0] < HARDLY and reuse_slots.are_long(symptoms, known[1])
    return _of_little(symptoms, *known) if is_little else None


def _of_little(symptoms: Symptoms, share: float, tokens: int, seen: Evidence) -> Finding | Clear:
    if (every_s := _template_changes_every_s(symptoms)) is not None and every_s <= HOURLY_S:
        return Clear(f"the chat template writes the time: see {TEMPLATE_CHANGES_PREFIX.id}", (seen,))
    if (changing := reuse_heads.changing_head(symptoms.log, share, seen)) is not None:
        return changing
    if reuse_slots.takes_turns(symptoms):
        return Clear(f"that conversations take turns would explain it as well: see {SLOTS_FEWER_THAN_PREFIXES.id}")
    head = reuse_heads.common_head(symptoms.log)
    return Finding(
        PROMPT_COMPUTED_AGAIN,
        f"{100 * share:.0f} % of {tokens:,} prompt tokens came from the cache: if your prompts begin alike, something "
        f"near their beginning changes each time{'' if head is None else head.sentence}",
        (seen, *(() if head is None else head.evidence)),
        Severity.INFO,  # a template's first words before prompts that share nothing look just the same
        Confidence.POSSIBLE,
        first=None if head is None else head.first,
    )


def _makes_no_text(symptoms: Symptoms) -> Evidence | None:
    """Who says that it serves embeddings or ranks, of which no prompt is kept."""
    for flag in ("--embedding", "--rerank"):
        if (setting := settings.stated(symptoms, flag)) is not None:
            return settings.said(setting)
    server = symptoms.server
    if server is None or work.total(server, "tokens_predicted_total") != 0 or not work.total(server, "n_decode_total"):
        return None
    return Evidence(Source.METRICS, "tokens_predicted_total 0")


def _picked(symptoms: Symptoms) -> tuple[int, float]:
    """(Requests that got a slot for what it holds, which part of all requests they are)."""
    log = symptoms.log
    if log is None:
        return 0, 0.0
    picked = log.count(Topic.SLOT_BY_SIMILARITY)
    requests = 0 if log.requests is None else log.requests.requests
    return picked, picked / max(1, requests, picked + log.count(Topic.SLOT_BY_LRU))


def _probed(symptoms: Symptoms) -> Finding | Clear | None:
    probe = symptoms.probe
    if probe is None or probe.cached_tokens_again is None or probe.prompt_tokens < reuse_slots.LONG_PROMPT:
        return None
    again, tokens = probe.cached_tokens_again, probe.prompt_tokens
    seen = Evidence(Source.PROBE, f"a prompt of {tokens:,} tokens sent twice: {again:,} cached the second time")
    if again >= MOSTLY * tokens:
        return Clear(f"a prompt that was sent twice came from the cache: {again:,} of {tokens:,} tokens", (seen,))
    if not probe.was_idle:
        return None  # somebody else's prompt may have taken the slot in between
    log = symptoms.log
    picked, share = _picked(symptoms)
    return Finding(
        PROMPT_COMPUTED_AGAIN,
        f"of a prompt of {tokens:,} tokens that was sent twice, {again:,} came from the cache the second time",
        (seen,) if log is None or not picked else (seen, work.quoted(log.seen[Topic.SLOT_BY_SIMILARITY])),
        # Whoever sends prompts that share nothing loses nothing, and may have switched the cache off for that.
        Severity.WARNING if picked >= SEVERAL and share >= OFTEN else Severity.INFO,
        cost=Cost(work.read_again_s(symptoms, tokens - again), 1 - again / tokens),
    )


def _cache_off(symptoms: Symptoms) -> Finding | Clear | Undecided:
    known = work.cached_share(symptoms)
    is_off = _is_off(symptoms)
    if is_off is None and known is not None and known[0] > 0:
        return Clear("prompts do come from the cache", (known[2],))
    if is_off is None:
        probed = _probed(symptoms)
        return probed if isinstance(probed, Clear) else Undecided(f"--probe, or {settings.ITS_ARGUMENTS}")
    if not is_off:
        return Clear("the prompt cache is on")
    evidence = _what_turns_it_off(symptoms)
    log = symptoms.log
    if not _is_switched_off(symptoms):
        return _nothing_kept(symptoms, evidence)
    shared, share = _picked(symptoms)
    if log is not None and shared >= SEVERAL and share >= OFTEN:
        evidence = (*evidence, work.quoted(log.seen[Topic.SLOT_BY_SIMILARITY]))
        words = f"the prompt cache is off, and {shared} requests got a slot that holds their beginning"
        return Finding(PROMPT_CACHE_OFF, words, evidence)
    words = "the prompt cache is off; whether prompts share a beginning does not show here"
    return Finding(PROMPT_CACHE_OFF, words, evidence, Severity.INFO)


def _nothing_kept(symptoms: Symptoms, evidence: tuple[Evidence, ...]) -> Finding:
    """Nobody says that the cache is off; that nothing is in it after any request does."""
    requests = None if symptoms.log is None else symptoms.log.requests
    released = 0 if requests is None else requests.released
    return Finding(
        PROMPT_CACHE_OFF,
        f"after all of {released:,} requests their slot kept nothing of the prompt; whether prompts share a beginning "
        "does not show here",
        evidence,
        Severity.INFO,
        Confidence.LIKELY,
        first="Send cache_prompt: true in each request: builds that write such a log keep a prompt only if its request "
        "asks for that, and most of them do not by themselves.",
    )


def _is_off(symptoms: Symptoms) -> bool | None:
    """Whether prompts are not kept; None: nobody said."""
    return True if _unkept_line(symptoms) is not None else _is_switched_off(symptoms)


def _is_switched_off(symptoms: Symptoms) -> bool | None:
    """Whether an argument or a request is known to turn the prompt cache off; None: nobody said."""
    setting = settings.stated(symptoms, "--cache-prompt")
    asked = None if symptoms.server is None else symptoms.server.sampling.get("cache_prompt")
    if asked is False:
        return True
    if setting is not None:
        return not setting.on
    return False if asked is True or settings.has_defaults(symptoms) else None


def _unkept_line(symptoms: Symptoms) -> Evidence | None:
    """A line of the log that says, as all of its kind do, that a slot kept nothing of the prompt that it had read."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is None or requests.unkept_line is None or _makes_no_text(symptoms) is not None:
        return None
    is_habit = requests.unkept >= SEVERAL and requests.unkept == requests.released and requests.predicted_tokens > 0
    return Evidence.of_line(requests.unkept_line) if is_habit else None


def _what_turns_it_off(symptoms: Symptoms) -> tuple[Evidence, ...]:
    if not _is_switched_off(symptoms) and (unkept := _unkept_line(symptoms)) is not None:
        return (unkept,)
    setting = settings.stated(symptoms, "--cache-prompt")
    if setting is not None and not setting.on:
        return (settings.said(setting),)
    source = None if symptoms.server is None else symptoms.server.sampling_source
    return (Evidence(Source.SLOTS if source is None else source.source, "cache_prompt false"),)


def _window(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, model = symptoms.log, symptoms.model
    count = 0 if log is None else log.count(Topic.FULL_REPROCESSING)
    if log is None or not count:
        if model is not None and all(layer.window is None and not layer.state_bytes for layer in model.layers):
            return Clear("the model's layers remember the whole context")
        if log is not None and log.requests is not None and (log.verbosity or 0) >= TRACE:
            return Clear(f"no prompt of {counted(log.requests.requests, 'request')} had to be read from the start")
        return Undecided(f"{A_TRACE}, or --model FILE")
    return reuse_window.forgotten(symptoms, log, count, _picked(symptoms)[0])


def _unsupported(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    seen = None if log is None else log.seen.get(Topic.CACHE_REUSE_UNSUPPORTED)
    if seen is not None:
        words = "--cache-reuse has no effect here: the server switched it off"
        return Finding(CACHE_REUSE_UNSUPPORTED, words, (work.quoted(seen),), Severity.INFO)
    asked = settings.number(symptoms, "--cache-reuse", 0)
    if asked is not None and asked.value <= 0:
        return Clear("--cache-reuse is not asked for")
    if log is not None and log.starts and (log.verbosity or 0) >= 2:
        return Clear("the server did not switch --cache-reuse off")
    return Undecided(f"a log that holds the start, or {settings.ITS_ARGUMENTS}")


def _template(symptoms: Symptoms) -> Finding | Clear | Undecided:
    props = None if symptoms.server is None else symptoms.server.props
    template = None if props is None else props.template
    if template is None:
        return Undecided("--url: /props shows the chat template")
    every_s = template.changes_every_s
    seen = Evidence(Source.PROPS, f"chat_template: {template.sentence}")
    if every_s is not None and every_s <= HOURLY_S:
        return Finding(
            TEMPLATE_CHANGES_PREFIX,
            f"the chat template writes the time: prompts begin differently after {every_s:,.0f} s, and all of them are "
            "read again",
            (seen,),
            confidence=Confidence.LIKELY,
        )
    if template.clock and every_s is None:
        return Undecided("what time the chat template writes: slotune trial compares two turns")
    return Clear("the chat template writes no time that changes within the hour", (seen,))


def _template_changes_every_s(symptoms: Symptoms) -> float | None:
    """None: never, or not known."""
    props = None if symptoms.server is None else symptoms.server.props
    return None if props is None or props.template is None else props.template.changes_every_s


RULES: Final = (
    Rule(PROMPT_COMPUTED_AGAIN.id, Item.REUSE, _computed_again),
    Rule(PROMPT_CACHE_OFF.id, Item.REUSE, _cache_off),
    Rule(SLIDING_WINDOW.id, Item.REUSE, _window),
    Rule(CACHE_REUSE_UNSUPPORTED.id, Item.REUSE, _unsupported),
    Rule(TEMPLATE_CHANGES_PREFIX.id, Item.REUSE, _template),
    *reuse_slots.RULES,
    *reuse_host_cache.RULES,
)
