"""The server's own words are taken with patience, and silence is never read as zero."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from bench.mock_server import STALL, MockServer, Received, Script, document
from slotune.load import gauges
from slotune.load.gauges import Gauges, Sampler, parse_gauges, scrape, wait_idle
from slotune.load.target import Target, open_session
from tests.load.serving import until

TEXT = """\
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 561
llamacpp:n_decode_total 100
llamacpp:n_busy_slots_per_decode 2.5
llamacpp:requests_processing 3
llamacpp:requests_deferred 4
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 7
llamacpp:something_new{of="tomorrow"} 1e9 1795971218
"""


def metrics(processing: int = 0, deferred: int = 0, *, decodes: int = 0, busy: float = 0.0) -> Script:
    text = f"llamacpp:requests_processing {processing}\nllamacpp:requests_deferred {deferred}\n"
    text += f"llamacpp:n_decode_total {decodes}\nllamacpp:n_busy_slots_per_decode {busy}\n"
    return document(text, content_type="text/plain")


def test_the_metrics_of_a_server_are_read() -> None:
    assert parse_gauges(TEXT) == Gauges(3, 4, 561, 100.0, 2.5)


def test_nan_missing_and_unreadable_lines_are_nothing() -> None:
    text = "llamacpp:requests_processing -nan\nllamacpp:tokens_predicted_total\nllamacpp:n_decode_total x\n"
    assert parse_gauges(text) == Gauges()
    assert parse_gauges("") == Gauges()
    assert not Gauges().idle
    assert Gauges(processing=0).idle
    assert not Gauges(processing=0, deferred=1).idle


@pytest.mark.parametrize(
    "script",
    [document("{}", status="501 Not Implemented"), [(0.0, STALL)], document("", status="302 Found")],
    ids=["without metrics", "blocked in a decode", "a redirect"],
)
async def test_a_server_that_does_not_tell_gives_nothing(script: Script) -> None:
    async with MockServer(lambda _: script) as server, open_session(Target(server.url)) as session:
        assert await scrape(session, Target(server.url), timeout_s=0.2) is None


async def test_a_server_that_is_gone_gives_nothing() -> None:
    async with MockServer(lambda _: metrics()) as server, open_session(Target(server.url)) as session:
        await server.refuse()
        assert await scrape(session, Target(server.url), timeout_s=1.0) is None


async def test_idle_is_waited_for() -> None:
    states = itertools.chain([metrics(1, 2), metrics(1, 0), metrics(0, 1)], itertools.repeat(metrics()))
    async with MockServer(lambda _: next(states)) as server, open_session(Target(server.url)) as session:
        told = await wait_idle(session, Target(server.url), timeout_s=5.0)
    assert told is not None
    assert told.idle
    assert len(server.requests) == 4


async def test_a_server_that_never_rests_is_given_up_in_time() -> None:
    async with MockServer(lambda _: metrics(1)) as server, open_session(Target(server.url)) as session:
        started = time.monotonic()
        told = await wait_idle(session, Target(server.url), timeout_s=0.3)
        assert told is not None
        assert told.processing == 1
        assert time.monotonic() - started < 3


async def test_the_sampler_takes_one_scrape_at_a_time_however_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "SAMPLE_EVERY_S", 0.1)
    peak = 0

    def respond(received: Received) -> Script:
        nonlocal peak
        peak = max(peak, server.in_flight + 1)
        return [(0.3, metrics(2, 1)[0][1])]

    async with MockServer(respond) as server, open_session(Target(server.url)) as session:
        sampler = Sampler(session, Target(server.url), start=time.perf_counter())
        task = asyncio.create_task(sampler.run())
        await until(lambda: len(sampler.samples) == 2)
        task.cancel()
        await asyncio.wait({task})
    assert peak == 1
    assert [sample[1:] for sample in sampler.samples] == [(2, 1), (2, 1)]
    assert sampler.samples[1][0] - sampler.samples[0][0] > 0.28


async def test_busy_slots_are_those_of_the_run_and_not_of_the_servers_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "SAMPLE_EVERY_S", 0.1)
    # 100 decodes at 1 slot before; 300 more at 5 make a lifetime mean of 4.
    states = itertools.chain([metrics(1, decodes=100, busy=1.0)], itertools.repeat(metrics(1, decodes=400, busy=4.0)))
    async with MockServer(lambda _: next(states)) as server, open_session(Target(server.url)) as session:
        sampler = Sampler(session, Target(server.url), start=time.perf_counter())
        assert sampler.busy_slots() is None
        task = asyncio.create_task(sampler.run())
        await until(lambda: len(sampler.samples) == 2)
        task.cancel()
        await asyncio.wait({task})
    assert sampler.busy_slots() == pytest.approx(5.0)


async def test_the_sampler_of_a_server_without_gauges_ends() -> None:
    script = document("nothing", content_type="text/plain")
    async with MockServer(lambda _: script) as server, open_session(Target(server.url)) as session:
        sampler = Sampler(session, Target(server.url), start=0.0)
        async with asyncio.timeout(5):
            await sampler.run()
    assert sampler.samples == []
