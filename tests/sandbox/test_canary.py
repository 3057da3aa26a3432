"""A cache that answers from somebody else's context is caught by what it answers, and a sound one is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.failures import FailureClass
from slotune.llama.server_http import LlamaServer
from slotune.load.cache_facts import CacheFacts
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.estimates import with_estimates
from slotune.load.target import Target
from slotune.sandbox.cache_look import CacheLook
from slotune.sandbox.canary import BEGINNING, SECRET, Canaries, make_canaries
from slotune.sandbox.measurement import Findings, Question, measure_server
from slotune.search.problem import Measurement
from slotune.search.trial import Trial, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict
from tests.sandbox.caching_server import VOCABULARY, CachingServer
from tests.sandbox.worlds import candidate

BEGINNINGS = [list(range(200, 260)), list(range(300, 310))]
LOAD = {"prompt": list(range(130, 180)), "stream": True, "n_predict": 1}
SHARED = with_estimates(Demand(20.0, 2, synthetic=SyntheticPrompts(100, shared_prefix_tokens=60)))
QUICK = Measurement(0.6, 10, 2, 2, 0, probe_requests=3, request_timeout_s=20.0)


async def looked_at(server: CachingServer, rounds: int = 2) -> CacheFacts:
    """What the canaries show of ``server`` when somebody's prompt comes before each round."""
    async with server.serve() as mock:
        canaries = Canaries(Target(mock.url), BEGINNINGS, VOCABULARY, 5)
        await canaries.take_cold()
        for _ in range(rounds):
            server.foreign = list(range(130, 180))
            server.seen.append(BEGINNINGS[0])
            await canaries.look()
        return canaries.on(CacheFacts())


async def test_a_sound_cache_answers_every_canary_from_its_own_context() -> None:
    facts = await looked_at(CachingServer())
    assert (facts.canaries, facts.foreign) == (8, 0)
    assert facts.canary_divergence == facts.canary_noise == 0.0


async def test_a_cache_that_restores_a_foreign_context_is_caught_though_it_says_that_nothing_was_cached() -> None:
    """ggml-org/llama.cpp#27148."""
    facts = await looked_at(CachingServer(leaks=True))
    assert facts.foreign == 6, "the three known canaries, each in both rounds"
    assert facts.canary_divergence is not None
    assert facts.canary_divergence > 0.5


async def test_more_cached_than_was_ever_seen_is_another_prompts() -> None:
    facts = await looked_at(CachingServer(overclaims=True), rounds=1)
    assert facts.foreign == 1, "the new one: the known ones may have been kept from before"


async def test_a_server_that_never_answers_alike_is_unsteady_not_foreign() -> None:
    facts = await looked_at(CachingServer(unsteady=True))
    assert facts.foreign == 0
    assert facts.canary_noise is not None
    assert facts.canary_noise > 0.5


@pytest.mark.parametrize("fault", ["without_probabilities", "silent"])
async def test_a_server_that_cannot_be_asked_is_not_judged(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotune.sandbox.canary.LIMIT_S", 0.3)
    assert await looked_at(CachingServer(**{fault: True})) == CacheFacts()


async def test_each_canary_is_asked_cold_twice_and_then_as_users_ask() -> None:
    server = CachingServer()
    await looked_at(server, rounds=1)
    cold = [tuple(body["prompt"]) for body in server.plain if body.get("cache_prompt") is False]
    warm = [tuple(body["prompt"]) for body in server.plain if "cache_prompt" not in body]
    assert len(cold) == 6
    assert len(set(cold)) == 3
    assert len(set(warm)) == 4
    assert set(cold) < set(warm)


@given(st.lists(st.lists(st.integers(0, 999), max_size=60), max_size=4), st.integers(64, 200_000), st.integers(0))
def test_canaries_share_a_beginning_and_nothing_else(beginnings: list[list[int]], vocabulary: int, secret: int) -> None:
    canaries = make_canaries(beginnings, vocabulary, secret)
    assert canaries == make_canaries(beginnings, vocabulary, secret)
    tails = [canary.ids[canary.shared :] for canary in canaries]
    assert len(set(tails)) == len(canaries)
    for canary in canaries:
        assert canary.shared <= BEGINNING
        assert len(canary.ids) == canary.shared + 2 * SECRET + SECRET // 2
        given_start = list(canary.ids[: canary.shared])
        assert not any(beginnings) or given_start in [start[:BEGINNING] for start in beginnings]


async def measured(server: CachingServer, *, slots: int = 2, demand: Demand = SHARED) -> Findings:
    async with server.serve() as mock, LlamaServer(mock.url) as control:
        question = Question(demand, Promise(5.0), QUICK, 20.0, 0.6, caching_slots=slots)
        return await measure_server(control, Target(mock.url), question, lambda _: None)


async def test_a_trial_on_a_leaking_cache_fails_at_once_with_the_setting_to_change() -> None:
    found = await measured(CachingServer(leaks=True))
    assert (found.verdict.outcome, found.verdict.code) == (Outcome.FAIL, "ForeignContext")
    assert "--cache-ram 0" in found.verdict.reason
    assert len(found.runs) == 1, "the second run could not make it better"
    base = TrialResult(Trial(candidate(), 20.0), Verdict(Outcome.INVALID, "", "", 0.6), 0.0, effective=(("a", "b"),))
    result = found.on(base)
    assert (result.failure, result.failure_knob) == (FailureClass.FOREIGN_CONTEXT, "cacheRAMMiB")
    assert result.never_ran, "no slower rate is asked for"


@pytest.mark.alone
async def test_a_sound_trial_says_cold_and_warm_and_what_was_reused_of_what_could_be() -> None:
    found = await measured(CachingServer())
    facts = found.cache
    assert facts is not None
    assert found.verdict.code != "ForeignContext"
    assert facts.theoretical_reuse == pytest.approx(0.6)
    assert facts.measured_reuse == pytest.approx(0.6, abs=0.01), "two of 256 tokens are alike now and then"
    assert facts.slots_reuse == pytest.approx(0.6)
    assert (facts.canaries, facts.foreign) == (8, 0)
    assert facts.cold_reuse == pytest.approx(0.0, abs=0.02)
    assert facts.warm_reuse == pytest.approx(0.6, abs=0.02)
    assert facts.warm_ttft_s is not None
    assert facts.cold_ttft_s is not None
    assert facts.warm_ttft_s < facts.cold_ttft_s


async def test_a_cache_that_is_off_has_a_cold_number_and_no_canaries() -> None:
    server = CachingServer(caches=False)
    found = await measured(server, slots=0)
    facts = found.cache
    assert facts is not None
    assert facts.measured_reuse == 0.0
    assert facts.theoretical_reuse is not None
    assert facts.theoretical_reuse > 0.5
    assert (facts.warm_ttft_s, facts.canaries) == (None, 0)
    assert facts.cold_ttft_s is not None
    assert not server.plain


async def test_where_nothing_is_shared_only_canaries_are_asked() -> None:
    plain = with_estimates(replace(SHARED, identity="", synthetic=SyntheticPrompts(100), reusable_tokens=0.0))
    found = await measured(CachingServer(), demand=plain)
    assert found.cache is not None
    assert replace(found.cache, canaries=0, canary_noise=None, canary_divergence=None) == CacheFacts()
    assert found.cache.canaries == 8


@pytest.mark.parametrize(
    ("template", "keeps"),
    [("<user>{}", True), ("request {number}: {}", False)],
    ids=["a template that leaves the beginning alone", "a template that counts"],
)
async def test_a_template_is_asked_only_where_less_was_reused_than_could_be(template: str, keeps: bool) -> None:
    same = "the same long beginning of every chat, " * 3
    chats = tuple(Prompt(messages=({"role": "user", "content": f"{same}{word}"},)) for word in ("one", "two"))
    demand = with_estimates(Demand(1.0, 2, prompts=chats))
    server = CachingServer(template=template)
    async with server.serve() as mock, LlamaServer(mock.url) as control:
        look = CacheLook(control, Target(mock.url), demand, 2, vocabulary=None, request_timeout_s=5.0)
        await look.finish()
        assert not any(received.path == "/apply-template" for received in mock.requests)
        assert await look.template_keeps_prefix() is keeps
