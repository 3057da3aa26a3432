"""Samplers that cost time at every token, seen in requests, in defaults and in arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Severity
from slotune.diagnose.rules.sampling import COST_S, RULES
from slotune.diagnose.symptoms import ServerLook
from slotune.llama.server_answers import ModelMeta
from tests.diagnose.rules.building import (
    NOTHING,
    ask,
    found,
    is_undecided,
    log,
    metrics,
    of,
    pod,
    server,
    slot,
    timings,
)

PLAIN: dict[str, object] = {
    "temperature": 0.8,
    "top_k": 40,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "xtc_probability": 0.0,
    "n_probs": 0,
    "grammar": 0,
    "samplers": ("penalties", "dry", "top_k", "top_p", "temperature"),
}


def running(asked: bool = True, speed: float | None = None, **params: Any) -> ServerLook:
    counters = {} if speed is None else {"tokens_predicted_total": 1e3, "tokens_predicted_seconds_total": 1e3 / speed}
    return server(
        model=ModelMeta("m", vocabulary=128_000),
        metrics=metrics(**counters),
        sampling=PLAIN | params,
        sampling_source=Evidence(Source.SLOTS if asked else Source.PROPS, "params"),
        request_params_seen=asked,
    )


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"repeat_penalty": 1.100000023841858}, "repeat_penalty 1.1"),
        ({"presence_penalty": 0.5}, "presence_penalty 0.5"),
        ({"dry_multiplier": 0.8}, "dry_multiplier 0.8"),
        ({"mirostat": 2}, "mirostat 2"),
        ({"n_probs": 20}, "n_probs 20"),
        ({"grammar": 812}, "a grammar of 812 characters"),
    ],
)
def test_each_costly_sampler_of_a_request_is_named(params: dict[str, Any], words: str) -> None:
    said = found(RULES, "SLT070", of(server=running(**params)), Severity.INFO)
    assert words in said.sentence
    assert said.confidence is Confidence.LIKELY


def test_penalties_that_take_a_part_of_a_token_that_is_felt_are_an_alarm() -> None:
    speed = 100.0
    said = found(RULES, "SLT070", of(server=running(speed=speed, repeat_penalty=1.3)))
    assert said.cost.speed_share == pytest.approx(COST_S["penalty"] * 128_000 * speed)
    found(RULES, "SLT070", of(server=running(speed=5.0, repeat_penalty=1.3)), Severity.INFO)


def test_a_step_waits_for_the_samplers_of_all_who_share_it() -> None:
    alone = running(speed=20.0, repeat_penalty=1.3)
    assert alone.metrics is not None
    counters = {**alone.metrics.values, "n_decode_total": 1e4, "n_busy_slots_per_decode": 4.0}
    one = found(RULES, "SLT070", of(server=alone), Severity.INFO)
    four = found(RULES, "SLT070", of(server=replace(alone, metrics=metrics(**counters))))
    assert one.cost.speed_share is not None
    assert four.cost.speed_share == pytest.approx(4 * one.cost.speed_share)


@pytest.mark.parametrize(
    ("build", "severity", "ms_a_token"),
    [(9730, Severity.WARNING, 9.9), (9731, Severity.INFO, 1.3), (None, Severity.INFO, 1.3)],
)
def test_probabilities_cost_much_on_builds_that_sort_the_whole_vocabulary(
    build: int | None, severity: Severity, ms_a_token: float
) -> None:
    speed = 30.0
    image = None if build is None else f"ghcr.io/ggml-org/llama.cpp:server-cuda-b{build}"
    unnumbered = replace(running(speed=speed, n_probs=20), props=None)
    said = found(RULES, "SLT070", of(server=unnumbered, pod=pod(image=image)), severity)
    assert said.cost.speed_share == pytest.approx(1e-3 * ms_a_token * speed, rel=0.02)
    is_old = severity is Severity.WARNING
    assert ("b9731" in (said.first or "")) is is_old
    assert any(f"b{build}" in one.text for one in said.evidence) is is_old


def test_an_old_build_without_probabilities_is_not_blamed_for_them() -> None:
    old = pod(image="ghcr.io/ggml-org/llama.cpp:server-cuda-b9000")
    plain = replace(running(speed=30.0, dry_multiplier=0.5), props=None)
    assert found(RULES, "SLT070", of(server=plain, pod=old), Severity.INFO).first is None


def test_a_grammar_that_was_asked_for_is_no_alarm_whatever_it_costs() -> None:
    said = found(RULES, "SLT070", of(server=running(speed=100.0, grammar=812)), Severity.INFO)
    assert "about 13 % of the time of a token" in said.sentence


def test_defaults_that_were_changed_hold_for_requests_that_say_nothing() -> None:
    said = found(RULES, "SLT070", of(server=running(asked=False, repeat_penalty=1.3)), Severity.INFO)
    assert said.sentence.startswith("unless a request says otherwise")
    flags = of(pod=pod("--repeat-penalty", "1.2", "--grammar", "root ::= secret"))
    by_flag = found(RULES, "SLT070", flags, Severity.INFO)
    assert "repeat_penalty 1.2" in by_flag.sentence
    assert "secret" not in " ".join(map(str, (by_flag, *by_flag.evidence)))


@pytest.mark.parametrize(
    "params",
    [{}, {"repeat_penalty": 1.3, "samplers": ("top_k",)}, {"repeat_penalty": 1.3, "repeat_last_n": 0}],
    ids=["llama.cpp's defaults", "a chain without penalties", "over no tokens"],
)
def test_plain_sampling_is_clear_and_says_what_slots_do_not_show(params: dict[str, Any]) -> None:
    look = replace(running(**params), slots=(slot(0, sampling=PLAIN), slot(1, sampling=PLAIN), slot(2, False)))
    said = ask(RULES, "SLT070", of(server=look))
    assert isinstance(said, Clear)
    assert said.sentence.startswith("the request in 2 slots asked for no penalties")
    assert said.sentence.endswith("whether for a grammar or a schema, /slots does not show")


def test_sampling_is_undecided_while_no_request_shows_what_it_asks_for() -> None:
    assert is_undecided(RULES, "SLT070", NOTHING)
    assert is_undecided(RULES, "SLT070", of(log=log(requests=timings())))
    assert is_undecided(RULES, "SLT070", of(server=running(asked=False)))
    assert is_undecided(RULES, "SLT070", of(pod=pod("--repeat-penalty", "1.0", "--mirostat", "none")))
