"""Every slot is shown the shared prefixes at once and before a run, with prompts that are never asked again."""

from __future__ import annotations

import json

from slotune.load.client import Target
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.estimates import with_estimates
from slotune.load.priming import PRIMING_TOKENS, prime_slots
from slotune.load.trace import build_trace
from tests.load.serving import DEMAND, VOCABULARY, answer, generations, load, serve

SHARED = with_estimates(
    Demand(
        peak_rate=1.0,
        output_tokens=3,
        synthetic=SyntheticPrompts(20, shared_prefix_tokens=12, prefix_groups=1),
    )
)


async def test_as_many_prompts_as_slots_go_out_at_once_with_the_runs_own_prefix() -> None:
    async with serve(answer(2, first_s=0.3)) as server:
        trace = build_trace(SHARED, rate=50.0, seed=1, requests=4)
        await prime_slots(Target(server.url), trace, SHARED, 8, vocabulary=VOCABULARY)
        primed = [json.loads(received.body) for received in generations(server)]
        moments = [received.arrived_s for received in generations(server)]
        await load(server, demand=SHARED, requests=4, seed=1)
        measured = [json.loads(received.body) for received in generations(server)][8:]
    assert len(primed) == 8
    assert max(moments) - min(moments) < 0.3  # none waited for another's answer
    assert {body["n_predict"] for body in primed} == {PRIMING_TOKENS}
    (prefix,) = {tuple(body["prompt"][:12]) for body in primed}
    assert {tuple(body["prompt"][:12]) for body in measured} == {prefix}
    assert not {tuple(body["prompt"]) for body in primed} & {tuple(body["prompt"]) for body in measured}


async def test_nothing_is_sent_where_nothing_is_shared_or_no_slot_caches() -> None:
    async with serve(answer(2)) as server:
        plain = with_estimates(DEMAND)
        trace = build_trace(plain, rate=50.0, seed=1, requests=2)
        await prime_slots(Target(server.url), trace, plain, 8, vocabulary=VOCABULARY)
        await prime_slots(Target(server.url), trace, SHARED, 0, vocabulary=VOCABULARY)
        assert generations(server) == []
