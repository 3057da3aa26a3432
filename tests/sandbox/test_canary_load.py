"""Canaries meet a server at work: what a cache does wrong only then is caught, and no measured request sees them."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.server_http import LlamaServer
from slotune.load.bodies import Bodies
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.estimates import with_estimates
from slotune.load.target import Target
from slotune.load.trace import TraceEntry, build_trace
from slotune.sandbox.canary import BEGINNING
from slotune.sandbox.canary_load import LOAD_REQUESTS, LOAD_S, LOAD_TOKENS, CanaryLoad, load_size
from slotune.sandbox.measurement import Findings, Question, measure_server, run_seed
from slotune.search.problem import Measurement
from slotune.search.rates import requests_per_run
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.sandbox.caching_server import VOCABULARY, CachingServer

SYNTHETIC = with_estimates(
    Demand(20.0, 2, synthetic=SyntheticPrompts(100, shared_prefix_tokens=60, prefix_groups=3, zipf_exponent=0.0))
)
SYSTEM = "You answer for the harbor master of a small town, briefly. "
REAL = with_estimates(Demand(20.0, 2, prompts=tuple(Prompt(text=f"{SYSTEM}Question {n} of ten?") for n in range(10))))
QUICK = Measurement(0.6, 10, 2, 2, 0, probe_requests=3, request_timeout_s=20.0)
PROMISE = Promise(5.0)
DEMANDS = pytest.mark.parametrize("demand", [SYNTHETIC, REAL], ids=["synthetic prompts", "real prompts"])


async def measured(server: CachingServer, demand: Demand) -> Findings:
    async with server.serve() as mock, LlamaServer(mock.url) as control:
        question = Question(demand, PROMISE, QUICK, 20.0, 0.6, caching_slots=2)
        return await measure_server(control, Target(mock.url), question, lambda _: None)


async def test_a_cache_that_mixes_prompts_up_only_under_concurrent_load_is_caught() -> None:
    """ggml-org/llama.cpp#27148 as it was reported: an idle server answers every canary well."""
    found = await measured(CachingServer(leaks=True, only_when_busy=True, lasts_s=0.2), SYNTHETIC)
    assert (found.verdict.outcome, found.verdict.code) == (Outcome.FAIL, "ForeignContext")


async def test_a_cache_that_mixes_up_only_prompts_that_begin_alike_is_caught_with_real_prompts() -> None:
    found = await measured(CachingServer(leaks=True, only_to_kin=True), REAL)
    assert (found.verdict.outcome, found.verdict.code) == (Outcome.FAIL, "ForeignContext")


async def test_a_server_that_is_unsteady_under_load_without_its_cache_too_is_not_accused() -> None:
    found = await measured(CachingServer(unsteady_when_busy=True, lasts_s=0.2), SYNTHETIC)
    assert found.cache is not None
    assert (found.cache.foreign, found.verdict.code == "ForeignContext") == (0, False)
    assert found.cache.canary_noise is not None
    assert found.cache.canary_noise > 0.5, "and the report says that it is unsteady"


@DEMANDS
async def test_no_canary_and_nothing_of_its_load_is_sent_while_a_run_is_measured(demand: Demand) -> None:
    server = CachingServer()
    found = await measured(server, demand)
    assert found.cache is not None
    assert (found.cache.canaries, found.cache.foreign) == (8, 0)
    assert len(server.plain) == 6 + 2 * 4
    seen = [tuple(ids) for ids in server.seen]
    for number in range(QUICK.runs):
        own, behind = prompts_of_run(demand, number)
        places = [seen.index(ids) for ids in own]
        assert set(seen[min(places) : max(places) + 1]) <= {*own, *behind}


def prompts_of_run(demand: Demand, number: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Token ids of what a run sends from its warm-up to its window's end, and of some of what follows."""
    trace = build_trace(
        demand,
        rate=20.0,
        seed=run_seed(QUICK.base_seed, 0, number),
        requests=requests_per_run(QUICK, PROMISE, 0.6),
        warmup_requests=QUICK.warmup_requests,
    )
    bodies = Bodies(demand, seed=trace.seed, vocabulary=VOCABULARY)

    def ids(entry: TraceEntry) -> tuple[int, ...]:
        prompt = json.loads(bodies(entry)[1])["prompt"]
        return tuple(map(ord, prompt)) if isinstance(prompt, str) else tuple(prompt)

    return [ids(entry) for entry in trace.entries], [ids(entry) for entry in islice(trace.continuation(), 20)]


@DEMANDS
async def test_the_load_repeats_no_prompt_and_shares_with_a_run_only_what_that_run_has_sent(demand: Demand) -> None:
    trace = build_trace(demand, rate=20.0, seed=7, requests=10, warmup_requests=2)
    load = CanaryLoad(Target("http://127.0.0.1:9"), demand, 4, vocabulary=VOCABULARY)
    assert load.draw() == [], "before the first run nothing was sent that could be sent again"
    load.after(trace.entries)
    bodies = [json.loads(prompt.body) for prompt in (*load.draw(), *load.draw())]
    assert len(bodies) == 8
    assert len({str(body["prompt"]) for body in bodies}) == 8
    assert all(body["n_predict"] <= LOAD_TOKENS for body in bodies)
    assert [prompt.entry.prompt_id for prompt in load.draw()] == [entry.prompt_id for entry in trace.entries[:4]]


async def test_canaries_begin_as_the_prompts_of_their_load_do() -> None:
    load = CanaryLoad(Target("http://127.0.0.1:9"), SYNTHETIC, 6, vocabulary=VOCABULARY)
    load.after(build_trace(SYNTHETIC, rate=20.0, seed=7, requests=10, warmup_requests=3).entries)
    async with CachingServer().serve() as mock, LlamaServer(mock.url) as control:
        beginnings = await load.beginnings(control)
    sent = [json.loads(prompt.body)["prompt"][:BEGINNING] for prompt in load.draw()]
    assert all(one[:BEGINNING] in sent for one in beginnings)


CHATS = {
    "texts that share a beginning": ((Prompt(text="alone"), *REAL.prompts), [SYSTEM, "alone"]),
    "texts that share nothing": (tuple(Prompt(text=word) for word in ("one", "two", "six")), ["one", "two"]),
    "chats, as their template puts them": (
        tuple(Prompt(messages=({"role": "user", "content": f"{SYSTEM}{n}"},)) for n in "ab"),
        [f"<user>{SYSTEM}"],
    ),
    "an empty prompt": ((Prompt(text=""),), []),
}


@pytest.mark.parametrize(("prompts", "begin"), CHATS.values(), ids=CHATS.keys())
async def test_real_prompts_give_canaries_the_tokens_that_they_begin_with(
    prompts: tuple[Prompt, ...], begin: list[str]
) -> None:
    demand = with_estimates(Demand(1.0, 2, prompts=prompts))
    load = CanaryLoad(Target("http://127.0.0.1:9"), demand, 2, vocabulary=None)
    async with CachingServer(template="<user>{}").serve() as mock, LlamaServer(mock.url) as control:
        beginnings = await load.beginnings(control)
    assert ["".join(map(chr, ids))[: len(want)] for ids, want in zip(beginnings, begin, strict=True)] == begin


async def test_a_server_that_does_not_tokenize_gives_none() -> None:
    load = CanaryLoad(Target("http://127.0.0.1:9"), REAL, 2, vocabulary=None)
    async with LlamaServer("http://127.0.0.1:9") as nobody:
        assert await load.beginnings(nobody) == []


@given(st.integers(1, 256), st.floats(0, 100) | st.none())
def test_the_load_is_bounded_and_left_out_where_two_prompts_would_take_too_long(
    slots: int, alone_s: float | None
) -> None:
    size = load_size(slots, alone_s)
    assert size == 0 or 2 <= size <= min(2 * slots, LOAD_REQUESTS)
    assert size * (alone_s or 0.0) <= LOAD_S
    assert (size == 0) == (2 * (alone_s or 0.0) > LOAD_S)
