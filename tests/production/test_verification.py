"""A new configuration stays only if looks showed that it keeps the promise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.v1alpha1 import Prometheus, Verify
from slotune.production.looks import Look
from slotune.production.queries import Pods, queries_for
from slotune.production.readings import NoData, NotANumber, SeveralSeries, Unreachable
from slotune.production.verification import (
    Decision,
    LookResult,
    judge_looks,
    look_due,
    looks_needed,
    result_of,
)
from tests.production.samples import PROMISE, look

RESULTS = {"k": LookResult.KEPT, "m": LookResult.MISSED, "-": LookResult.INCONCLUSIVE}
FIVE = Verify(window="5m", interval="1m", failure_limit=1, inconclusive_limit=2)
"""Five looks; one may miss, two may show nothing."""


def results(letters: str) -> list[LookResult]:
    return [RESULTS[letter] for letter in letters]


@pytest.mark.parametrize(
    ("looks", "want"),
    [
        pytest.param("", Decision.CONTINUE, id="nobody looked yet"),
        pytest.param("kkkk", Decision.CONTINUE, id="four of five are not enough"),
        pytest.param("kkkkk", Decision.SUCCESS, id="all kept"),
        pytest.param("kmkkk", Decision.SUCCESS, id="one miss is allowed"),
        pytest.param("mkm", Decision.FAILURE, id="the second miss ends it at once"),
        pytest.param("k-k-k", Decision.SUCCESS, id="two without a number are allowed"),
        pytest.param("---", Decision.INCONCLUSIVE, id="the third without a number ends it at once"),
        pytest.param("mm---", Decision.FAILURE, id="a failure outranks doubt"),
        pytest.param("m--kk", Decision.SUCCESS, id="both limits reached, none passed"),
        pytest.param("kkkkkkk", Decision.SUCCESS, id="more looks than needed"),
    ],
)
def test_looks_are_judged_as_argo_does(looks: str, want: Decision) -> None:
    assert judge_looks(results(looks), FIVE).decision is want


@pytest.mark.parametrize(
    ("looks", "want"),
    [
        pytest.param("--", Decision.INCONCLUSIVE, id="silence is no success"),
        pytest.param("m-", Decision.FAILURE, id="the only number was a miss"),
        pytest.param("k-", Decision.SUCCESS, id="one number within the SLO"),
    ],
)
def test_limits_that_never_bite_do_not_turn_silence_into_success(looks: str, want: Decision) -> None:
    lenient = Verify(window="2m", interval="1m", failure_limit=100, inconclusive_limit=100)
    assert judge_looks(results(looks), lenient).decision is want


@given(
    st.lists(st.sampled_from(list(LookResult)), max_size=30),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(1, 12),
)
def test_success_needs_a_look_that_kept_it_and_both_limits_kept(
    looks: list[LookResult], failures: int, unclear: int, minutes: int
) -> None:
    verify = Verify(window=f"{minutes}m", interval="1m", failure_limit=failures, inconclusive_limit=unclear)
    if judge_looks(looks, verify).decision is Decision.SUCCESS:
        assert LookResult.KEPT in looks
        assert looks.count(LookResult.MISSED) <= failures
        assert looks.count(LookResult.INCONCLUSIVE) <= unclear
        assert len(looks) >= minutes


@given(st.lists(st.sampled_from(list(LookResult)), max_size=12), st.data())
def test_the_order_of_looks_does_not_matter(looks: list[LookResult], data: st.DataObject) -> None:
    assert judge_looks(data.draw(st.permutations(looks)), FIVE) == judge_looks(looks, FIVE)


@given(st.lists(st.sampled_from(list(LookResult)), max_size=12))
def test_an_early_end_is_final(looks: list[LookResult]) -> None:
    if judge_looks(looks, FIVE).decision is Decision.FAILURE and len(looks) < looks_needed(FIVE):
        for more in LookResult:
            assert judge_looks([*looks, more], FIVE).decision is Decision.FAILURE


def test_the_reason_has_both_counts_and_the_limit() -> None:
    judgement = judge_looks(results("km-m"), FIVE)
    want = "of 4 looks 1 kept the SLO, 2 missed it, 1 showed neither: failureLimit is 1"
    assert judgement.reason == want


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(look(), LookResult.KEPT, id="both numbers within"),
        pytest.param(look(2.0), LookResult.MISSED, id="late"),
        pytest.param(look(NoData()), LookResult.INCONCLUSIVE, id="no data"),
        pytest.param(look(NotANumber()), LookResult.INCONCLUSIVE, id="NaN"),
        pytest.param(look(SeveralSeries(2)), LookResult.INCONCLUSIVE, id="several series"),
        pytest.param(look(Unreachable("down")), LookResult.INCONCLUSIVE, id="Prometheus is down"),
        pytest.param(look(None), LookResult.INCONCLUSIVE, id="TTFT was not asked: the speed alone keeps no promise"),
    ],
)
def test_only_numbers_within_the_slo_speak_for_it(seen: Look, want: LookResult) -> None:
    assert result_of(seen, PROMISE) is want


@pytest.mark.parametrize(("window", "interval", "want"), [("10m", "1m", 10), ("90s", "1m", 2), ("1s", "1m", 1)])
def test_looks_fill_the_window(window: str, interval: str, want: int) -> None:
    assert looks_needed(Verify(window=window, interval=interval)) == want


def test_the_first_look_waits_until_the_queries_see_nothing_of_the_old_configuration() -> None:
    then = datetime(2026, 1, 31, 12, tzinfo=UTC)
    prometheus = Prometheus(url="http://prometheus:9090", ttft_query="ttft[10m]", tokens_per_second_query="min(speed)")
    queries = queries_for(prometheus, Pods("shop", "chat"))
    assert look_due(0, then, queries, FIVE) == then + timedelta(minutes=10)
    assert look_due(3, then, queries, FIVE) == then + timedelta(minutes=13)
