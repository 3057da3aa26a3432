"""Figures of a server's work, and one law for all checks: whatever is known of a server, each says something sound."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.diagnose.evidence import LONGEST, Evidence
from slotune.diagnose.finding import Clear, Finding, Undecided
from slotune.diagnose.rules import batch, client, load, logs, queue, reuse, sampling, template, threads, work
from slotune.diagnose.symptoms import NodeFacts, ServerLook
from slotune.llama.log_story import LogStory, Topic
from slotune.llama.server_answers import ModelMeta
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import COUNTERS, log, metrics, of, pod, probe, server, slot, timings

RULES = tuple(
    rule for module in (batch, reuse, queue, threads, sampling, template, logs, client, load) for rule in module.RULES
)

counts = st.integers(0, 10**6)
speeds = st.floats(0.01, 1e5)
spreads = st.none() | st.tuples(speeds, speeds, speeds).map(lambda three: tuple(sorted(three)))
pages = st.none() | st.dictionaries(st.sampled_from(COUNTERS), st.floats(0, 1e6)).map(lambda page: metrics(**page))
arguments = st.lists(
    st.sampled_from(
        ("-nocb", "-np 16", "-np -1", "-ub 32", "-b 64", "-t 64", "-v", "--no-cache-prompt", "-sps 0.9", "-x")
    )
).map(lambda words: tuple(word for one in words for word in one.split()))


@st.composite
def stories(draw: st.DrawFn) -> LogStory:
    requests = timings(
        draw(st.integers(1, 5000)),
        prompt_ms=draw(st.floats(0, 1e7)),
        predicted_ms=draw(st.floats(0, 1e7)),
        predicted_tokens=draw(counts),
        cached_tokens=draw(st.none() | counts),
        prefill_tokens_per_s=draw(spreads),
        decode_tokens_per_s=draw(spreads),
        most_busy_slots=draw(st.none() | st.integers(1, 64)),
        drafted_tokens=draw(counts),
        accepted_tokens=draw(counts),
    )
    return log(
        draw(st.dictionaries(st.sampled_from(Topic), st.integers(1, 10**5))),
        draw(st.none() | st.just(requests)),
        facts={
            "slots": draw(st.none() | st.integers(1, 64)),
            "kv_unified": draw(st.none() | st.booleans()),
            "threads": draw(st.none() | st.integers(1, 128)),
            "ubatch_size": draw(st.none() | st.integers(1, 4096)),
            "batch_size": draw(st.none() | st.integers(1, 8192)),
            "cache_ram_mib": draw(st.none() | st.integers(-1, 9000)),
        },
        verbosity=draw(st.none() | st.integers(1, 5)),
        seconds=draw(st.none() | st.floats(0, 1e6)),
        starts=draw(st.integers(0, 3)),
    )


@st.composite
def looks(draw: st.DrawFn) -> ServerLook:
    numbers = st.none() | counts
    shown = draw(
        st.none()
        | st.lists(st.tuples(st.booleans(), numbers, numbers, numbers), max_size=16).map(
            lambda all_: tuple(
                slot(number, at_work, task=task, prompt_tokens_processed=read, decoded=decoded)
                for number, (at_work, task, read, decoded) in enumerate(all_)
            )
        )
    )
    more: dict[str, Any] = {} if draw(st.booleans()) else {"props": None}
    return server(
        draw(st.integers(1, 64)),
        slots=shown,
        model=ModelMeta("m", vocabulary=draw(numbers)),
        metrics=draw(pages),
        metrics_later=draw(pages),
        deferred=tuple(draw(st.lists(st.integers(0, 99), max_size=2))),
        sampling=draw(st.dictionaries(st.sampled_from(("repeat_penalty", "mirostat", "grammar", "n_probs")), counts)),
        request_params_seen=draw(st.booleans()),
        **more,
    )


@settings(max_examples=400, deadline=None)  # a busy machine is no failure
@given(
    story=st.none() | stories(),
    look=st.none() | looks(),
    probed=st.none()
    | st.builds(
        probe,
        prefill_tokens_per_s=speeds,
        decode_step_s=st.just(0.0) | st.floats(1e-5, 10),
        overhead_s=st.floats(0, 100),
        short_prompt_overhead_s=st.none() | st.floats(0, 100),
        cached_tokens_again=st.none() | st.integers(0, 400),
        connect_s=st.none() | st.floats(0, 10),
        stream_s=st.none() | st.floats(0, 100),
        stream_made_s=st.none() | st.floats(0, 100),
        was_idle=st.booleans(),
    ),
    args=st.none() | arguments,
    limit=st.none() | st.floats(0.1, 128),
    owed=st.none() | st.builds(Promise, st.floats(0.01, 100), st.none() | speeds),
)
def test_every_check_says_something_sound_of_any_server(
    story: Any, look: Any, probed: Any, args: Any, limit: Any, owed: Any
) -> None:
    held = None if args is None else pod(*args, cpu_limit=limit)
    symptoms = of(log=story, server=look, probe=probed, pod=held, node=NodeFacts("n", 64), promise=owed)
    for rule in RULES:
        said = rule.check(symptoms)
        assert isinstance(said, Finding | Clear | Undecided)
        if isinstance(said, Undecided):
            assert said.needs
            continue
        assert said.sentence
        assert all(isinstance(one, Evidence) and len(one.text) <= LONGEST for one in said.evidence)
        if isinstance(said, Finding):
            assert said.id == rule.id
            assert said.evidence
            assert said.cost.weight == -1 or 0 <= said.cost.weight <= 1
            assert said.cost.ttft_s is None or (math.isfinite(said.cost.ttft_s) and said.cost.ttft_s >= 0)


def test_a_counter_that_fell_was_started_again_and_tells_nothing() -> None:
    look = server(metrics=metrics(n_decode_total=900), metrics_later=metrics(n_decode_total=10))
    assert work.grown(look, "n_decode_total") is None
    assert work.grown(server(metrics=metrics(n_decode_total=900)), "n_decode_total") is None


def test_what_users_get_now_counts_more_than_what_they_got_before() -> None:
    before = metrics(tokens_predicted_total=1000, tokens_predicted_seconds_total=20)
    now = metrics(tokens_predicted_total=1100, tokens_predicted_seconds_total=30)
    speed = work.user_speed(of(server=server(metrics=before, metrics_later=now)))
    assert speed is not None
    assert speed.value == pytest.approx(10)
    hardly = metrics(tokens_predicted_total=1010, tokens_predicted_seconds_total=30)
    speed = work.user_speed(of(server=server(metrics=before, metrics_later=hardly)))
    assert speed is not None
    assert speed.value == pytest.approx(1010 / 30), "ten tokens are no measurement"


def test_a_log_speaks_where_no_counter_does() -> None:
    speed = work.user_speed(of(log=log(requests=timings()), server=server(metrics=metrics())))
    assert speed is not None
    assert speed.value == 50.0
    assert work.user_speed(of(server=server())) is None


def test_the_part_of_a_log_in_which_a_slot_works_counts_all_slots() -> None:
    story = log(requests=timings(40), seconds=60.0)  # 120 s of work
    assert work.pressed(story, 4) == pytest.approx(0.5)
    assert work.pressed(log(requests=timings(40), seconds=None), 4) is None


def test_the_last_steps_of_many_millions_say_nothing_by_a_rounded_mean() -> None:
    """3 slots in each of 100,000,000 steps, and in the 25 after them: rounding alone moves their mean by 3."""
    name = "n_busy_slots_per_decode"
    young = server(
        metrics=metrics(**{name: 3.0, "n_decode_total": 1000}),
        metrics_later=metrics(**{name: 2.9, "n_decode_total": 1100}),
    )
    old = server(
        metrics=metrics(**{name: 3.0, "n_decode_total": 100_000_000}),
        metrics_later=metrics(**{name: 2.9999998, "n_decode_total": 100_000_025}),
    )
    now, ever = work.busy_slots(young), work.busy_slots(old)
    assert now is not None
    assert now.value == pytest.approx(1.9)
    assert ever is not None
    assert "since the start" in str(ever.evidence)


def test_a_probe_that_was_not_alone_gives_way_to_a_faster_tenth_of_the_log() -> None:
    story = log(requests=timings(prefill_tokens_per_s=(100.0, 300.0, 500.0)))
    crowded, alone = of(log=story, probe=probe(was_idle=False)), of(log=story, probe=probe())
    for symptoms, speed, is_alone in ((crowded, 500.0, False), (alone, 200.0, True)):
        read = work.prefill_alone(symptoms)
        assert read is not None
        assert (read.value, read.alone) == (speed, is_alone)


def test_a_slot_is_at_work_for_no_more_than_all_of_a_log_that_begins_late() -> None:
    assert work.pressed(log(requests=timings(40), seconds=60.0), 1) == 1.0
