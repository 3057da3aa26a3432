"""More work than a server can do, and guesses that are thrown away. Who is saturated: test_queue."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Confidence, Finding
from slotune.diagnose.rules.load import RULES
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import (
    NOTHING,
    ask,
    found,
    is_clear,
    is_undecided,
    log,
    metrics,
    of,
    probe,
    queueing,
    server,
    timings,
)


def owed(speed: float) -> Promise:
    return Promise(1.0, speed)


def test_a_queue_with_no_speed_to_spare_is_saturation() -> None:
    full = queueing(6, 6, busy=4, tokens_predicted_total=900, tokens_predicted_seconds_total=100)
    said = found(RULES, "SLT100", of(server=full, promise=owed(10)))
    assert "6 wait for 4 busy slots" in said.sentence
    assert "9 tok/s per user, 10 are owed" in said.sentence


def test_one_user_who_gets_less_than_owed_alone_is_named() -> None:
    said = found(RULES, "SLT101", of(probe=probe(), promise=owed(80)))
    assert said.sentence == "one user alone gets 50.0 tok/s (20 ms a token), 80 are owed"
    assert said.cost.speed_share == pytest.approx(0.375)


def test_one_user_with_enough_or_to_whom_nothing_is_owed_is_clear() -> None:
    assert is_clear(RULES, "SLT101", of(probe=probe(), promise=owed(30)))
    assert is_clear(RULES, "SLT101", NOTHING)


def test_one_users_speed_is_undecided_without_a_probe_of_an_idle_server() -> None:
    assert is_undecided(RULES, "SLT101", of(promise=owed(30)))
    assert is_undecided(RULES, "SLT101", of(promise=owed(80), probe=probe(was_idle=False)))


def test_users_who_are_too_slow_together_and_not_alone_share_too_many_bytes() -> None:
    slow = log(requests=timings(decode_tokens_per_s=(15.0, 20.0, 48.0)))
    symptoms = of(log=slow, probe=probe(), promise=owed(30))
    said = found(RULES, "SLT102", symptoms)
    assert "users get 20 tok/s (50 alone), 30 are owed" in said.sentence
    assert said.confidence is Confidence.POSSIBLE


def test_users_with_enough_speed_share_no_more_than_they_may() -> None:
    assert is_clear(RULES, "SLT102", of(log=log(requests=timings()), probe=probe(), promise=owed(30)))
    alone_too_slow = of(log=log(requests=timings()), probe=probe(), promise=owed(80))
    assert is_clear(RULES, "SLT102", alone_too_slow)
    assert is_clear(RULES, "SLT102", NOTHING)
    assert is_undecided(RULES, "SLT102", of(promise=owed(30)))


def test_guesses_that_are_mostly_thrown_away_do_not_pay() -> None:
    wasted = timings(40, drafted_tokens=9000, accepted_tokens=450)  # of 4000 tokens
    said = found(RULES, "SLT103", of(log=log(requests=wasted)))
    assert "of 9,000 guessed tokens 450 were accepted (5 %)" in said.sentence
    counters = metrics(
        spec_decode_num_draft_tokens_total=9000,
        spec_decode_num_accepted_tokens_total=450,
        tokens_predicted_total=4000,
    )
    assert isinstance(ask(RULES, "SLT103", of(server=server(metrics=counters))), Finding)


@pytest.mark.parametrize(
    ("drafted", "accepted"),
    [(9000, 4500), (400, 10), (9000, 1200), (0, 0)],
    ids=["half is right", "few are made", "long ones that help now and then", "none is made"],
)
def test_guesses_that_help_or_are_few_are_clear(drafted: int, accepted: int) -> None:
    guessing = timings(40, drafted_tokens=drafted, accepted_tokens=accepted)
    assert is_clear(RULES, "SLT103", of(log=log(requests=guessing)))


def test_guesses_are_undecided_without_answers_or_with_few() -> None:
    assert is_undecided(RULES, "SLT103", NOTHING)
    few = timings(1, drafted_tokens=150, accepted_tokens=2)
    assert is_undecided(RULES, "SLT103", of(log=log(requests=few)))
