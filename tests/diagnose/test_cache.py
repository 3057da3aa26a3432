"""Causes of a cache that serves too little: each is named on evidence of its own, and without any none is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.diagnose.cache import CODES, cache_shortfall
from slotune.diagnose.findings import TABLE, findings
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.load.cache_facts import EFFECTIVE, CacheFacts
from slotune.load.summary import Latencies
from slotune.search.trial import TrialResult
from tests.diagnose.test_findings import PROMISE, SHARED, cached, parts, result

shares = st.none() | st.floats(0, 1)


def model(*layers: LayerCache) -> ModelFacts:
    return ModelFacts("m.gguf", 10**9, "id", "any", "F16", 8192, 32_000, 4096, 32, layers, 10**9, 10**9, 16.0)


FULL = model(LayerCache(1024, 1024), LayerCache(1024, 1024))
SLIDING = model(LayerCache(1024, 1024, window=512), LayerCache(1024, 1024))
RECURRENT = model(LayerCache(0, 0, state_bytes=10**6), LayerCache(1024, 1024))


def with_candidate(measured: TrialResult, **settings: object) -> TrialResult:
    candidate = replace(measured.trial.candidate, **settings)  # type: ignore[arg-type]  # a test's shorthand
    return replace(measured, trial=replace(measured.trial, candidate=candidate))


CASES = {
    "a window, and less served than slots keep": (cached(0.1), SLIDING, "SlidingWindow", "a window of 512 tokens"),
    "a state that can't go back": (cached(0.1), RECURRENT, "SlidingWindow", "can't go back to where prompts part"),
    "a window that is kept whole": (
        with_candidate(cached(0.1), extra_args=("--swa-full",)),
        SLIDING,
        "CacheWithoutEffect",
        "why is not decided; the slots alone could have served 60 %",
    ),
    "a window, but slots explain it": (
        cached(0.24, slots_reuse=0.25, prefixes=20),
        SLIDING,
        "SlotsFewerThanPrefixes",
        "20 prefixes take turns in 8 slots",
    ),
    "a host cache that can't hold the prefixes": (
        replace(
            with_candidate(cached(0.2, slots_reuse=0.25, prefixes=20), cache_ram_mib=64),
            latencies=Latencies(mean_prompt_tokens=4000.0),
        ),
        FULL,
        "CacheRAMChurn",
        "12 prefixes wait outside of the slots, about 375 MiB, and the host cache holds 64 MiB",
    ),
    "a host cache with room": (
        replace(
            with_candidate(cached(0.2, slots_reuse=0.25, prefixes=20), cache_ram_mib=8192),
            latencies=Latencies(mean_prompt_tokens=4000.0),
        ),
        FULL,
        "CacheWithoutEffect",
        "why is not decided; the slots alone could have served 25 %",
    ),
    "a short beginning, but slots are chosen from less": (
        with_candidate(
            cached(0.01, theoretical_reuse=0.06, slots_reuse=0.06, prefix_share=0.06), extra_args=("-sps", "0.02")
        ),
        FULL,
        "CacheWithoutEffect",
        "why is not decided",
    ),
    "slots that are all at work": (
        replace(cached(0.3), attribution=parts(2.4, 0.4, busy_slots=7.6)),
        FULL,
        "CacheWithoutEffect",
        "on average 7.6 of 8 slots were at work, so a prompt gets the slot that becomes free",
    ),
    "slots that are all at work and did keep what they could": (
        replace(cached(0.45, slots_reuse=0.5), attribution=parts(2.4, 0.4, busy_slots=7.6)),
        None,
        "CacheWithoutEffect",
        "why is not decided",
    ),
    "slots of which some are idle": (
        replace(cached(0.3), attribution=parts(0.0, 0.4, busy_slots=3.0)),
        FULL,
        "CacheWithoutEffect",
        "why is not decided",
    ),
    "nothing speaks for a cause": (cached(0.3), None, "CacheWithoutEffect", "why is not decided"),
}


@pytest.mark.parametrize(("measured", "facts", "code", "words"), CASES.values(), ids=CASES.keys())
def test_a_cause_needs_evidence_of_its_own(
    measured: TrialResult, facts: ModelFacts | None, code: str, words: str
) -> None:
    found = cache_shortfall(measured, facts)
    assert found is not None
    assert found.code == code
    assert words in found.sentence
    assert code in [one.code for one in findings(measured, PROMISE, SHARED, model=facts)]


def test_a_cache_that_does_four_fifths_of_what_it_could_is_left_alone() -> None:
    assert cache_shortfall(cached(0.6 * EFFECTIVE)) is None
    assert cache_shortfall(cached(0.6 * EFFECTIVE - 0.01)) is not None


def test_what_could_save_next_to_nothing_is_no_finding() -> None:
    assert cache_shortfall(cached(0.0, theoretical_reuse=0.04, slots_reuse=0.04)) is None


def test_a_server_that_never_said_is_not_accused() -> None:
    silent = replace(cached(0.0), cache=CacheFacts(theoretical_reuse=0.6))
    assert cache_shortfall(silent) is None


def test_a_server_that_answers_unsteadily_is_said_to_hide_what_its_cache_does() -> None:
    shaky = replace(result(), cache=CacheFacts(canaries=8, canary_noise=0.3, canary_divergence=0.4))
    assert "CanaryUnsteady" in [one.code for one in findings(shaky, PROMISE, SHARED)]
    steady = replace(shaky, cache=CacheFacts(canaries=8, canary_noise=0.01, canary_divergence=0.02))
    assert "CanaryUnsteady" not in [one.code for one in findings(steady, PROMISE, SHARED)]


def test_every_cause_has_a_row_with_settings_to_try() -> None:
    knobs = {row.entry.code: row.entry.knobs for row in TABLE}
    assert all(knobs[code] for code in CODES)


@given(shares, shares, shares, st.integers(0, 100), shares, st.sampled_from([None, True, False]))
def test_whatever_was_seen_there_is_one_cause_exactly_when_it_falls_short(
    theoretical: float | None,
    served: float | None,
    kept: float | None,
    prefixes: int,
    share: float | None,
    keeps: bool | None,
) -> None:
    facts = CacheFacts(theoretical, served, kept, prefixes, share, keeps)
    found = cache_shortfall(replace(result(), cache=facts), SLIDING)
    short = theoretical is not None and served is not None and theoretical >= 0.05 and served / theoretical < EFFECTIVE
    assert (found is not None) == short
    assert found is None or found.code in CODES
