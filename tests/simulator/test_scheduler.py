"""The simulator against a one-step-at-a-time model, arithmetic by hand, and what is known of llama-server."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.load.records import RequestStatus
from tests.simulator.scheduler import Served, Server, schedule
from tests.simulator.stepwise import schedule_stepwise

SERVER = Server(
    slots=2,
    batch=100,
    context=2000,
    pool=4000,
    unified=True,
    static_batch=False,
    reuse_prefix=False,
    host_cache_tokens=0,
    save_idle_slots=False,
    step_s=0.001,
    weights_s=0.01,
    context_token_s=1e-6,
    prompt_token_s=1e-4,
    host_token_s=1e-6,
)


def serve(
    server: Server, *requests: tuple[float, int, int], groups: list[int] | None = None, prefix: int = 0
) -> Served:
    """Requests as (arrival, prompt tokens, output tokens)."""
    arrivals, prompts, outputs = zip(*requests, strict=True)
    return schedule(server, arrivals, prompts, outputs, groups or [0] * len(requests), prefix)


def moments(times: list[float | None]) -> list[float]:
    """Times that all happened."""
    assert None not in times
    return [time for time in times if time is not None]


def test_one_request_takes_its_prompt_and_then_its_steps() -> None:
    served = serve(SERVER, (1.0, 50, 3))
    assert served.started == [1.0]
    assert served.first == [pytest.approx(1.0 + 0.001 + 50 * 1e-4)]
    steps = (0.001 + 0.01 + 50e-6) + (0.001 + 0.01 + 51e-6)
    assert moments(served.last) == [pytest.approx(moments(served.first)[0] + steps)]


def test_a_prompt_longer_than_the_batch_takes_several_steps() -> None:
    served = serve(SERVER, (0.0, 250, 1))
    assert served.first[0] == pytest.approx(3 * 0.001 + 250 * 1e-4)
    assert served.last == served.first


def test_a_third_request_waits_for_a_slot() -> None:
    served = serve(SERVER, (0.0, 50, 100), (0.0, 50, 200), (0.0, 50, 10))
    assert served.started[0] == served.started[1] == 0.0
    assert served.started[2] == pytest.approx(served.last[0])


def test_prompts_are_read_in_slot_order_not_in_order_of_arrival() -> None:
    # Slot 0 becomes free and takes the last request, which then overtakes the one that reads its prompt in slot 1.
    served = serve(SERVER, (0.0, 100, 2), (0.0001, 5000 - 4000, 1), (0.0002, 100, 1))
    assert moments(served.started)[2] > moments(served.started)[1]
    assert moments(served.first)[2] < moments(served.first)[1]


def test_a_neighbours_prompt_delays_a_decode_by_one_batch() -> None:
    short, long = replace(SERVER, batch=50), replace(SERVER, batch=400)
    gaps = [serve(server, (0.0, 10, 200), (0.1, 800, 1)).longest_gap[0] for server in (short, long)]
    assert gaps[0] == pytest.approx(0.001 + 0.01 + 49e-4, rel=0.01)
    assert gaps[1] == pytest.approx(0.001 + 0.01 + 399e-4, rel=0.01)


def test_a_static_batch_lets_nobody_in_before_all_are_done() -> None:
    static = replace(SERVER, slots=8, static_batch=True)
    served = serve(static, (0.0, 50, 100), (0.0, 50, 10), (0.01, 50, 10))
    assert served.started[2] == pytest.approx(served.last[0])
    assert serve(replace(static, static_batch=False), (0.0, 50, 100), (0.01, 50, 10)).started[1] == pytest.approx(
        0.02, abs=0.01
    )


def test_split_streams_read_the_weights_once_per_run_of_neighbours() -> None:
    # Slots 0, 1 and 2 start together; the middle one ends early and leaves two runs.
    three = [(0.0, 10, 300), (0.0, 10, 20), (0.0, 10, 300)]
    last = {
        unified: moments(serve(replace(SERVER, slots=3, unified=unified, context_token_s=0.0), *three).last)[0]
        for unified in (True, False)
    }
    assert last[False] - last[True] == pytest.approx(0.01 * 280, rel=0.01)


def test_a_full_unified_pool_ends_every_active_request() -> None:
    crowded = replace(SERVER, slots=3, context=600, pool=600)
    served = serve(crowded, (0.0, 150, 400), (0.0, 150, 400), (0.0, 150, 400), (9.0, 150, 10))
    assert served.status == [RequestStatus.STREAM_ERROR] * 3 + [RequestStatus.OK]
    assert all(0 < made < 400 for made in served.generated[:3])


def test_a_prompt_longer_than_the_context_is_refused_and_takes_no_slot() -> None:
    served = serve(replace(SERVER, slots=1), (0.0, 2000, 5), (0.0, 50, 5))
    assert served.status == [RequestStatus.HTTP_ERROR, RequestStatus.OK]
    assert served.started == [None, 0.0]


def test_an_answer_that_runs_out_of_context_is_truncated() -> None:
    served = serve(SERVER, (0.0, 1990, 50))
    assert served.status == [RequestStatus.TRUNCATED]
    assert served.generated == [10]


def test_a_shared_prefix_is_read_once() -> None:
    caching = replace(SERVER, reuse_prefix=True)
    served = serve(caching, (0.0, 90, 1), (1.0, 90, 1), (2.0, 90, 1), groups=[0, 0, 1], prefix=80)
    assert served.cached == [0, 80, 0]
    assert served.computed == [90, 10, 90]
    assert serve(SERVER, (0.0, 90, 1), (1.0, 90, 1), prefix=80).cached == [0, 0]


def test_the_host_cache_brings_back_a_prefix_that_lost_its_slot() -> None:
    one_slot = replace(SERVER, slots=1, reuse_prefix=True)
    requests = [(float(i), 90, 1) for i in range(4)]
    without = serve(one_slot, *requests, groups=[0, 1, 0, 1], prefix=80)
    with_host = serve(replace(one_slot, host_cache_tokens=1000), *requests, groups=[0, 1, 0, 1], prefix=80)
    assert without.cached == [0, 0, 0, 0]
    assert with_host.cached == [0, 0, 80, 80]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(1, 6),
    batch=st.sampled_from([7, 32, 128]),
    unified=st.booleans(),
    static=st.booleans(),
    reuse=st.booleans(),
    host=st.sampled_from([0, 150, 10_000]),
)
def test_taking_many_steps_at_once_changes_nothing(
    seed: int, slots: int, batch: int, unified: bool, static: bool, reuse: bool, host: int
) -> None:
    draw = random.Random(seed)
    server = replace(
        SERVER,
        slots=slots,
        batch=batch,
        pool=slots * 2000,
        unified=unified,
        static_batch=static,
        reuse_prefix=reuse,
        host_cache_tokens=host,
        save_idle_slots=draw.random() < 0.5,
        context_token_s=draw.choice([0.0, 1e-6, 1e-4]),
    )
    count = draw.randint(1, 25)
    arrivals = sorted(draw.uniform(0, draw.choice([0.5, 5.0])) for _ in range(count))
    prompts = [draw.randint(31, 200) for _ in range(count)]
    outputs = [draw.randint(1, 60) for _ in range(count)]
    groups = [draw.randint(0, 2) for _ in range(count)]
    served = schedule(server, arrivals, prompts, outputs, groups, 30)
    for i, want in enumerate(schedule_stepwise(server, arrivals, prompts, outputs, groups, 30)):
        assert served.started[i] == pytest.approx(want.started, rel=1e-9)
        assert served.first[i] == pytest.approx(want.first, rel=1e-9)
        assert served.last[i] == pytest.approx(want.last, rel=1e-9)
        assert served.cached[i] == want.cached
        assert served.longest_gap[i] == pytest.approx(want.longest_gap, rel=1e-9)
        assert served.generated[i] == want.made
        assert served.status[i] is RequestStatus.OK
