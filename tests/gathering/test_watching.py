"""A watch: looks at many moments, over when time is up, the server falls silent or a person says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.mock_server import Received, Script
from slotune.diagnose.symptoms import ServerLook
from slotune.gathering.server import look_at
from slotune.gathering.watching import Watch, still_for
from slotune.llama.server_answers import Slot
from tests.gathering.standing_in import METRICS, SILENCE, SLOTS, page, said, stand_in

LONG_S = 60.0


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 (the stand-in has no event)
            await asyncio.sleep(0.01)


def counting(name: str, path: str = "/metrics") -> tuple[Callable[[Received], Script], list[int]]:
    """A page whose ``name`` is the number of the look, from 1 on."""
    seen: list[int] = []

    def answer(_: Received) -> Script:
        seen.append(len(seen) + 1)
        if path == "/slots":
            return said([SLOTS[0], {**SLOTS[1], name: seen[-1], "id_task": 3, "is_processing": len(seen) == 2}])
        return page({**METRICS, name: seen[-1]})

    return answer, seen


@pytest.mark.alone
async def test_a_watch_looks_again_and_again_and_keeps_the_first_and_the_last() -> None:
    waiting, seen = counting("requests_deferred")
    slots, slots_seen = counting("n_ctx", "/slots")
    begun: list[int] = []
    began = time.monotonic()
    async with stand_in({"/metrics": waiting, "/slots": slots}) as server:
        look = await look_at(server.url, None, between_s=0.1, watch=Watch(3.5, lambda: begun.append(1)))
    assert time.monotonic() - began < 5.5
    assert begun == [1]
    assert look.deferred == tuple(seen) == (1, 2, 3, 4)  # at once, 0.1 s, 2 s and 3.5 s later
    assert look.looks_at_metrics == 4
    assert look.processing == (1,) * 4
    assert look.metrics is not None
    assert look.metrics_later is not None
    assert (look.metrics.deferred, look.metrics_later.deferred) == (1, 4)
    assert 3.5 <= look.between_s < 4.0
    assert len(slots_seen) == 4
    assert look.slots is not None
    assert look.slots[1].processing, "the one of four looks in which a slot was at work"
    assert look.slots_still_s == 0.0


Answers = Mapping[str, Script | Callable[[Received], Script]]


async def stopped_watch(answers: Answers, when: Callable[[list[str]], bool]) -> tuple[ServerLook, float]:
    """A look with a watch that is ended once the paths asked for so far are ``when``; seconds that it took to end."""
    watch = Watch(LONG_S)
    async with stand_in(answers) as server:
        looking = asyncio.create_task(look_at(server.url, None, between_s=0.1, watch=watch))
        await until(lambda: when([received.path for received in server.requests]))
        watch.enough.set()
        ended = time.monotonic()
        return await looking, time.monotonic() - ended


@pytest.mark.alone
async def test_a_watch_that_is_ended_holds_what_was_seen_by_then() -> None:
    look, took_s = await stopped_watch({}, lambda paths: paths.count("/metrics") >= 2)
    assert took_s < 0.5
    assert look.looks_at_metrics in {1, 2}  # the second may be on its way
    assert look.slots is not None
    assert not look.refused
    assert not look.silent_s


@pytest.mark.alone
async def test_a_watch_that_is_ended_while_nothing_answers_says_how_long_that_was() -> None:
    silent = {"/metrics": SILENCE, "/slots": SILENCE}
    look, took_s = await stopped_watch(silent, lambda paths: "/slots" in paths)
    assert took_s < 0.5
    assert set(look.silent_s) == {"/metrics", "/slots"}


async def test_a_question_that_is_given_up_at_once_is_no_silence() -> None:
    answers = iter([page(METRICS)])
    look, _ = await stopped_watch(
        {"/metrics": lambda _: next(answers, SILENCE)}, lambda paths: paths.count("/metrics") == 2
    )
    assert look.metrics is not None
    assert look.metrics_later is None
    assert not look.silent_s


@pytest.mark.alone
async def test_a_server_that_falls_silent_is_waited_for_as_long_as_the_watch_is() -> None:
    answers = iter([page(METRICS), page(METRICS)])
    began = time.monotonic()
    async with stand_in({"/metrics": lambda _: next(answers, SILENCE)}) as server:
        look = await look_at(server.url, None, between_s=0.1, watch=Watch(1.5))
    assert time.monotonic() - began < 4.5
    assert look.silent_s == pytest.approx({"/metrics": 1.5}, abs=0.3)
    assert look.refused == {"/metrics": "later: no answer within 1.5 s"}
    assert look.looks_at_metrics == 2


async def test_a_server_that_ends_meanwhile_ends_the_watch() -> None:
    began = time.monotonic()
    async with stand_in() as server:
        looking = asyncio.create_task(look_at(server.url, None, between_s=0.1, watch=Watch(24.0)))
        await until(lambda: [received.path for received in server.requests].count("/metrics") >= 2)
    look = await looking
    assert time.monotonic() - began < 15.0
    assert look.refused["/metrics"] == "later: it ended meanwhile, or was started anew"
    assert look.metrics is not None


async def test_endpoints_that_are_off_are_not_watched() -> None:
    off = said({"error": {"code": 501}}, "501 Not Implemented")
    began = time.monotonic()
    async with stand_in({"/metrics": off, "/slots": off}) as server:
        await look_at(server.url, None, watch=Watch(LONG_S))
    assert time.monotonic() - began < 5.0


def at(task: int, read: int, made: int, *, busy: bool = True) -> tuple[Slot, ...]:
    return (Slot(0, 4096, busy, task=task, prompt_tokens_processed=read, decoded=made), Slot(1, 4096, False))


def test_slots_stand_still_from_the_first_look_at_which_they_stood_where_they_are_now() -> None:
    looks = [(0.0, at(1, 20, 3)), (5.0, at(1, 20, 7)), (10.0, at(1, 20, 7)), (15.5, at(1, 20, 7))]
    assert still_for(looks) == 10.5
    assert still_for([*looks, (20.0, at(1, 20, 8))]) == 0.0
    assert still_for([*looks, (20.0, at(1, 20, 7, busy=False))]) == 0.0
    assert still_for([(0.0, at(1, 20, 3)), (5.0, at(2, 20, 3))]) == 0.0, "another request that has come as far"


def test_slots_that_do_not_say_where_they_are_do_not_stand_still() -> None:
    assert still_for([(0.0, at(1, 2, 3))]) is None
    mute = (Slot(0, 4096, True, task=1),)
    assert still_for([(0.0, mute), (60.0, mute)]) is None


@given(seconds=st.floats(1, 3600), began=st.floats(0, 1e6), second=st.floats(0.01, 0.5))
def test_a_watch_of_any_length_has_few_looks_never_two_at_once_and_one_at_its_end(
    seconds: float, began: float, second: float
) -> None:
    moments = Watch(seconds).moments(began, second)
    assert moments == tuple(sorted(set(moments)))
    assert began < moments[0]
    assert moments[-1] == began + seconds
    assert len(moments) <= 14
    later = moments[1:]
    assert all(after - before > 0.9 for before, after in pairwise(later))
