"""The idle probe: one request at a time, nothing cached, medians of what is left."""

from __future__ import annotations

import json

import pytest

from bench.mock_server import END, MockServer, Received, Script, chunk, document, event, http_head, last, token
from slotune.load.client import Target
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.probe import IdleProbeError, probe_idle
from tests.load.serving import DEMAND, VOCABULARY, answer, generations, serve


def timed(
    prompt_ms: float, *, overhead_s: float = 0.05, prompt_n: int = 100, tokens: int = 5, step_ms: float = 20.0
) -> Script:
    """Return an answer whose TTFT is ``prompt_ms`` and an overhead."""
    first = prompt_ms / 1e3 + overhead_s
    said = last(tokens)
    said["timings"] = {
        "prompt_n": prompt_n,
        "cache_n": 0,
        "prompt_ms": prompt_ms,
        "predicted_n": tokens,
        "predicted_ms": step_ms * (tokens - 1),
    }
    return [(0.0, http_head()), (first, chunk(event(token()))), (first, chunk(event(said)) + END)]


@pytest.mark.alone
async def test_overhead_prefill_speed_and_decode_step_are_told_apart() -> None:
    async with serve(timed(100.0)) as server:
        probe = await probe_idle(Target(server.url), DEMAND, 3, vocabulary=VOCABULARY)
    assert probe.prefill_tokens_per_s == pytest.approx(1000.0)
    assert probe.decode_step_s == pytest.approx(0.020)
    assert 0.05 <= probe.overhead_s < 0.15


async def test_the_first_of_three_is_discarded_and_medians_are_taken() -> None:
    speeds = iter([timed(400.0), timed(100.0), timed(50.0), timed(25.0)])
    async with serve(lambda _: next(speeds)) as server:
        probe = await probe_idle(Target(server.url), DEMAND, 4, vocabulary=VOCABULARY)
    assert probe.prefill_tokens_per_s == pytest.approx(2000.0)


async def test_probes_come_one_at_a_time_and_wait_for_an_idle_server() -> None:
    def respond(received: Received) -> Script:
        if received.method == "POST":
            return timed(50.0)
        # Busy for three looks after each answer, as a server is that has not noticed its end.
        looks = (
            len(server.requests)
            - 1
            - max((number for number, seen in enumerate(server.requests) if seen.method == "POST"), default=-9)
        )
        return document(f"llamacpp:requests_processing {int(looks < 4)}\n", content_type="text/plain")

    async with MockServer(respond) as server:
        await probe_idle(Target(server.url), DEMAND, 2, vocabulary=VOCABULARY)
    methods = [received.method for received in server.requests]
    assert methods == ["GET", "POST", "GET", "GET", "GET", "GET", "POST"]


async def test_probes_are_of_the_mean_length_and_share_nothing_even_between_two_probes() -> None:
    demand = Demand(
        peak_rate=1.0,
        output_tokens=500,
        synthetic=SyntheticPrompts(40, 10, shared_prefix_tokens=20, prefix_groups=1),
    )
    async with serve(timed(1.0)) as server:
        await probe_idle(Target(server.url), demand, 3, vocabulary=VOCABULARY)
        await probe_idle(Target(server.url), demand, 3, vocabulary=VOCABULARY)
        bodies = [json.loads(received.body) for received in generations(server)]
    assert {len(body["prompt"]) for body in bodies} == {40}
    assert len({tuple(body["prompt"][:3]) for body in bodies}) == 6
    assert {body["n_predict"] for body in bodies} == {64}


async def test_real_prompts_are_probed_with_typical_ones() -> None:
    prompts = tuple(Prompt(text=word * 50) for word in ("a", "bbbbbbbbbbbbbbbbbbbb", "ccccccc", "dddddddd"))
    async with serve(timed(1.0)) as server:
        await probe_idle(Target(server.url), Demand(peak_rate=1.0, output_tokens=5, prompts=prompts), 2)
        texts = [json.loads(received.body)["prompt"] for received in generations(server)]
    assert {text[-1] for text in texts} == {"c", "d"}


async def test_a_server_that_fails_every_probe_is_told_with_its_reasons() -> None:
    refusal = document(json.dumps({"error": {"code": 503, "type": "unavailable_error"}}), status="503 Loading")
    async with serve(refusal) as server:
        with pytest.raises(IdleProbeError, match="HTTP 503: 503 unavailable_error") as caught:
            await probe_idle(Target(server.url), DEMAND, 2, vocabulary=VOCABULARY)
    assert len(caught.value.records) == 2


async def test_answers_without_timings_are_no_probe() -> None:
    silent = [(0.0, http_head() + chunk(event(token()) + event("[DONE]")) + END)]
    async with serve(silent) as server:
        with pytest.raises(IdleProbeError, match="without timings"):
            await probe_idle(Target(server.url), DEMAND, 1, vocabulary=VOCABULARY)


async def test_one_good_probe_is_enough() -> None:
    answers = iter([document("{}", status="500 Oops"), timed(100.0)])
    async with serve(lambda _: next(answers)) as server:
        probe = await probe_idle(Target(server.url), DEMAND, 2, vocabulary=VOCABULARY)
    assert probe.prefill_tokens_per_s == pytest.approx(1000.0)


async def test_a_single_token_has_no_step() -> None:
    async with serve(timed(100.0, tokens=1)) as server:
        probe = await probe_idle(Target(server.url), DEMAND, 1, vocabulary=VOCABULARY)
    assert probe.decode_step_s == 0.0


async def test_the_usual_answer_of_the_tests_is_a_probe_too() -> None:
    async with serve(answer()) as server:
        assert (await probe_idle(Target(server.url), DEMAND, 1, vocabulary=VOCABULARY)).decode_step_s > 0
