"""Limits of the rules on requests, each met from both sides: what has reached one is another case."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Line, Seen, Topic
from slotune.llama.server_answers import ModelMeta
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import SLOWEST, log, metrics, of, pod, probe, queueing, server, timings
from tests.diagnose.rules.limits import (
    CERTAIN,
    CLEAR,
    INFO,
    LIKELY,
    POSSIBLE,
    UNDECIDED,
    WARNING,
    Limit,
    named,
    on_both_sides,
)

ON_GPU: dict[str, Any] = {"model_buffers": {"CUDA0": 10**9}}


# Servers of which one number is given


def one_by_one(part: float) -> Symptoms:
    return of(log=log(requests=timings(40, most_busy_slots=1), seconds=120 / part))


def one_by_one_beside(busy: float) -> Symptoms:
    looked = server(metrics=metrics(n_busy_slots_per_decode=busy, n_decode_total=1000))
    return of(log=log(requests=timings(40, most_busy_slots=1), seconds=130.0), server=looked)


def connecting(part: float) -> Symptoms:
    """0.2 s of a request that takes so many times as long."""
    return of(probe=probe(connect_s=0.2, prefill_tokens_per_s=400 / (0.2 / part - 0.2)))


def small_pieces(saved: float) -> Symptoms:
    """Pieces of 256 tokens, of which larger ones save such a part."""
    facts = ON_GPU | {"ubatch_size": 256, "batch_size": 2048}
    return of(log=log(facts=facts), probe=probe(prefill_tokens_per_s=51_200 * saved, decode_step_s=0.01))


def stalled(tokens: int = 1600, seconds: float = 8.0, slowest: float = 4.0) -> Symptoms:
    example = Line(77, SLOWEST.format(ms=1e3 * seconds, tokens=tokens))
    speeds = (slowest, 45.0, 50.0)
    requests = timings(decode_tokens_per_s=speeds, example=example, example_beside=example)
    return of(log=log(requests=requests, facts={"batch_size": 2048}))


def crowded(tokens: float = 200, share: float = 0.5, cached: int = 0, prompt_tokens: int = 400) -> Symptoms:
    """40 prompts of so many tokens, a share of whose time is others' work, beside a probe at 200 tokens/s."""
    alone_ms = 1e3 * (40 * tokens / 200 + 40 * 0.02)
    requests = timings(
        40, long_prompt_tokens=round(40 * tokens), long_prompt_ms=alone_ms / (1 - share), cached_tokens=cached
    )
    return of(log=log(requests=requests), probe=probe(prompt_tokens=prompt_tokens))


def guessing(drafted: int, accepted: int = 0, requests: int = 40) -> Symptoms:
    return of(log=log(requests=timings(requests, drafted_tokens=drafted, accepted_tokens=accepted)))


def cached(tokens: int, computed: int = 8000) -> Symptoms:
    return of(log=log(requests=timings(40, prompt_tokens=computed, cached_tokens=tokens)))


def copying(total_ms: float, prompt_ms: float) -> Symptoms:
    """40 requests without cached tokens."""
    seen = Seen(40, Line(1, "a line"), Line(9, "prompt cache update took"), total_ms)
    topics: dict[Topic, int | Seen] = {Topic.CACHE_UPDATE: seen, Topic.IDLE_SLOT_SAVED: 40}
    return of(log=log(topics, timings(40, prompt_ms=40 * prompt_ms)))


def scattered(busy: float) -> Symptoms:
    looked = server(8, metrics=metrics(n_busy_slots_per_decode=busy, n_decode_total=1000))
    return of(server=looked, log=log(facts={"kv_unified": False, "slots": 8}))


def queue(waiting: int) -> Symptoms:
    return of(server=queueing(waiting, waiting, busy=100, slots=100))


def saturated(waiting: int) -> Symptoms:
    counters = {"tokens_predicted_total": 900.0, "tokens_predicted_seconds_total": 100.0}
    return of(server=queueing(waiting, waiting, busy=100, slots=100, **counters), promise=Promise(1.0, 10.0))


def served(speed: float) -> Symptoms:
    full = queueing(6, 6, busy=4, tokens_predicted_total=1000, tokens_predicted_seconds_total=1000 / speed)
    return of(server=full, promise=Promise(1.0, 10.0))


def penalized(speed: float) -> Symptoms:
    counters = metrics(tokens_predicted_total=1000, tokens_predicted_seconds_total=1000 / speed)
    return of(
        server=server(
            model=ModelMeta("m", vocabulary=128_000),
            metrics=counters,
            sampling={"repeat_penalty": 1.3},
            request_params_seen=True,
        )
    )


def template(extra_s: float = 0.1, reading_s: float = 0.1) -> Symptoms:
    return of(probe=probe(overhead_s=0.1 + extra_s, short_prompt_overhead_s=0.1, prefill_tokens_per_s=400 / reading_s))


def late(count: int, requests: int) -> Symptoms:
    """So many prompts that took longer than the second that is owed, one at a time."""
    spread = ((500.0, requests - count), (2000.0, count))
    story = log(requests=timings(requests, most_busy_slots=1, prompt_ms_spread=spread))
    return of(log=story, promise=Promise(1.0, None))


def over(excess: float) -> Symptoms:
    """Prompts that took so much longer than the second that is owed."""
    spread = ((1000.0 * (1 + excess), 40),)
    story = log(requests=timings(40, most_busy_slots=1, prompt_ms_spread=spread))
    return of(log=story, promise=Promise(1.0, None))


LIMITS: tuple[Limit, ...] = (
    ("one slot at work for half of the time", "SLT095", one_by_one, (0.49, CLEAR), (0.5, INFO + POSSIBLE)),
    ("requests beside each other", "SLT095", one_by_one_beside, (1.19, INFO + POSSIBLE), (1.2, CLEAR)),
    (
        "an answer long enough to tell",
        "SLT096",
        lambda x: of(probe=probe(stream_s=0.0, stream_made_s=x)),
        (0.195, UNDECIDED),
        (0.2, WARNING + LIKELY),
    ),
    (
        "tokens that come in half of their time",
        "SLT096",
        lambda x: of(probe=probe(stream_s=x, stream_made_s=2.0)),
        (0.98, WARNING + LIKELY),
        (1.0, CLEAR),
    ),
    (
        "a connection that is felt",
        "SLT097",
        lambda x: of(probe=probe(connect_s=x, prefill_tokens_per_s=4000.0)),
        (0.098, CLEAR),
        (0.1, WARNING + LIKELY),
    ),
    ("a connection that is a fifth of the wait", "SLT097", connecting, (0.196, CLEAR), (0.201, WARNING + LIKELY)),
    ("pieces that waste a quarter", "SLT020", small_pieces, (0.245, CLEAR), (0.251, WARNING + LIKELY)),
    ("a pause of a second", "SLT021", lambda x: stalled(seconds=x), (0.98, CLEAR), (1.0, WARNING + LIKELY)),
    (
        "a prompt of two small steps",
        "SLT021",
        lambda x: stalled(tokens=round(x)),
        (1023, CLEAR),
        (1024, WARNING + LIKELY),
    ),
    (
        "answers below four fifths of a share",
        "SLT021",
        lambda x: stalled(slowest=x),
        (19.8, WARNING + LIKELY),
        (20.0, INFO + POSSIBLE),
    ),
    (
        "others' work in a third of the time",
        "SLT022",
        lambda x: crowded(share=x),
        (0.295, CLEAR),
        (0.301, INFO + POSSIBLE),
    ),
    ("prompts half as long as the probe's", "SLT022", crowded, (199, UNDECIDED), (200, INFO + POSSIBLE)),
    (
        "prompts of half a piece",
        "SLT022",
        lambda x: crowded(x, prompt_tokens=1000),
        (255.5, UNDECIDED),
        (256, INFO + POSSIBLE),
    ),
    (
        "context four times a probe's prompt",
        "SLT022",
        lambda x: crowded(cached=round(x)),
        (60_000, INFO + POSSIBLE),
        (60_400, UNDECIDED),
    ),
    (
        "a fifth of the guesses accepted",
        "SLT103",
        lambda x: guessing(2000, round(x)),
        (395, WARNING + LIKELY),
        (400, CLEAR),
    ),
    (
        "guesses for three of ten tokens",
        "SLT103",
        lambda x: guessing(round(x)),
        (1190, CLEAR),
        (1200, WARNING + LIKELY),
    ),
    (
        "enough guesses to tell",
        "SLT103",
        lambda x: guessing(round(x), requests=4),
        (199, UNDECIDED),
        (200, WARNING + LIKELY),
    ),
    ("half of the tokens cached", "SLT040", lambda x: cached(round(x)), (7900, UNDECIDED), (8000, CLEAR)),
    ("a tenth of the tokens cached", "SLT040", lambda x: cached(round(x)), (880, INFO + POSSIBLE), (889, UNDECIDED)),
    ("prompts worth a word", "SLT040", lambda x: cached(0, round(x)), (2559, UNDECIDED), (2560, INFO + POSSIBLE)),
    ("copies of a tenth of reading", "SLT056", lambda x: copying(x, 1000), (4420, CLEAR), (4445, WARNING + CERTAIN)),
    ("copies that are felt", "SLT056", lambda x: copying(x, 100), (3990, INFO + CERTAIN), (4000, WARNING + CERTAIN)),
    ("slots that are three quarters busy", "SLT053", scattered, (5.9, INFO + POSSIBLE), (6.0, CLEAR)),
    ("weights read one and a half times", "SLT053", scattered, (1.61, CLEAR), (1.64, INFO + POSSIBLE)),
    (
        "a queue of half a request per slot",
        "SLT050",
        lambda x: queue(round(x)),
        (49, INFO + POSSIBLE),
        (50, WARNING + POSSIBLE),
    ),
    (
        "a queue of half a request per slot, at a speed below what is owed",
        "SLT100",
        lambda x: saturated(round(x)),
        (49, INFO + LIKELY),
        (50, WARNING + LIKELY),
    ),
    ("three tenths of speed to spare", "SLT100", served, (12.9, WARNING + LIKELY), (13.0, CLEAR)),
    ("a sampler that takes a twentieth", "SLT070", penalized, (48.0, INFO + LIKELY), (49.0, WARNING + LIKELY)),
    ("a template that is felt", "SLT075", template, (0.049, CLEAR), (0.051, WARNING + LIKELY)),
    (
        "a template of a tenth of the wait",
        "SLT075",
        lambda x: template(0.1, x),
        (0.79, WARNING + LIKELY),
        (0.82, CLEAR),
    ),
    ("late prompts that are no chance", "SLT024", lambda x: late(round(x), 2), (1, UNDECIDED), (2, WARNING + LIKELY)),
    ("a time that is over for sure", "SLT024", over, (0.0049, CLEAR), (0.0051, WARNING + LIKELY)),
    ("debug lines", "SLT080", lambda x: of(pod=pod("-lv", f"{x:.0f}")), (4, CLEAR), (5, WARNING + CERTAIN)),
)


@pytest.mark.parametrize("limit", LIMITS, ids=named)
def test_what_has_reached_a_limit_is_another_case(limit: Limit) -> None:
    *_, (_, below), (_, reached) = limit
    assert on_both_sides(limit) == (below, reached)
