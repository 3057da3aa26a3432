"""Work is bounded, waiting is not work, and no place is ever lost or given away twice."""

from __future__ import annotations

import asyncio

import pytest

from slotune.controller.turns import Turns, aside


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_than_so_many_work_at_the_same_time():
    turns, at_work, most = Turns(2), 0, 0

    async def work() -> None:
        nonlocal at_work, most
        async with turns.turn():
            at_work += 1
            most = max(most, at_work)
            await asyncio.sleep(0)
            at_work -= 1

    await asyncio.gather(*(work() for _ in range(9)))
    assert most == 2


async def test_who_waits_for_somebody_else_lets_others_work_and_takes_its_place_again():
    turns, answer, order = Turns(1), asyncio.Event(), []

    async def waits() -> None:
        async with turns.turn():
            async with aside():
                await answer.wait()
            order.append("waited")

    async def works() -> None:
        async with turns.turn():
            order.append("worked")
            answer.set()
            await settled()
            order.append("done")

    await asyncio.gather(waits(), works())
    assert order == ["worked", "done", "waited"]


@pytest.mark.parametrize("when", ["while it waits for the answer", "while it waits for its place"])
async def test_one_that_is_cancelled_leaves_as_many_places_as_there_were(when):
    turns, answer = Turns(1), asyncio.Event()

    async def waits() -> None:
        async with turns.turn(), aside():
            await answer.wait()

    task = asyncio.create_task(waits())
    await settled()
    async with turns.turn():
        if when == "while it waits for its place":
            answer.set()
            await settled()
        task.cancel()
        await settled()
        other = asyncio.create_task(waits())
        await settled()
        assert not task.done() or task.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer.set()
    await asyncio.wait_for(other, 5)
    async with turns.turn():
        third = asyncio.create_task(waits())
        await settled()
        assert not third.done()
    await third


async def test_without_a_turn_nothing_is_given_back():
    async with aside():
        pass
