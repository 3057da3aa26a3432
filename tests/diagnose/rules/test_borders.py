"""Where one case ends and the next begins: each limit is met from both sides, and each doubt is said to be one."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules import batch, health, layers, memory, queue, reuse, sampling, threads
from slotune.diagnose.rules import gpu as gpus
from slotune.diagnose.symptoms import NodeFacts, Symptoms
from slotune.llama.log_story import Topic
from slotune.llama.server_answers import ModelMeta
from tests.diagnose.rules.building import ask, found, log, of, pod, probe, server, timings

MIB = 2**20
SIMILAR = Topic.SLOT_BY_SIMILARITY


def event(text: str) -> Evidence:
    return Evidence(Source.EVENT, text)


# A habit is three requests, and a tenth of all


def cache_is_off(picked: int, requests: int) -> Symptoms:
    return of(pod=pod("--no-cache-prompt"), log=log({SIMILAR: picked}, timings(requests)))


def read_twice(picked: int, requests: int) -> Symptoms:
    return of(probe=probe(cached_tokens_again=0), log=log({SIMILAR: picked}, timings(requests, cached_tokens=None)))


@pytest.mark.parametrize(
    ("picked", "requests", "severity"),
    [
        pytest.param(3, 30, Severity.WARNING, id="three are a tenth"),
        pytest.param(3, 31, Severity.INFO, id="three are less than a tenth"),
        pytest.param(2, 4, Severity.INFO, id="two may be a coincidence"),
    ],
)
@pytest.mark.parametrize(("rule", "made"), [("SLT047", cache_is_off), ("SLT040", read_twice)])
def test_requests_that_share_a_beginning_make_an_alarm_once_they_are_a_habit(
    rule: str, made: Any, picked: int, requests: int, severity: Severity
) -> None:
    found(reuse.RULES, rule, made(picked, requests), severity)


@pytest.mark.parametrize(
    ("picked", "requests", "confidence"),
    [
        (3, 30, Confidence.LIKELY),
        (3, 31, Confidence.POSSIBLE),
        (2, 20, Confidence.POSSIBLE),
    ],
)
def test_a_cache_that_serves_nothing_is_likely_the_cause_only_as_a_habit(
    picked: int, requests: int, confidence: Confidence
) -> None:
    said = ask(reuse.RULES, "SLT040", of(log=log({SIMILAR: picked}, timings(requests, cached_tokens=0))))
    assert isinstance(said, Finding)
    assert said.confidence is confidence


# Waiting that only a log hints at


def busy(requests: int, part: float) -> Symptoms:
    """One slot that is at work for this part of the log's time: three seconds for each request."""
    facts = {"slots": 1}
    return of(log=log(requests=timings(requests, most_busy_slots=1), facts=facts, seconds=3 * requests / part))


@pytest.mark.parametrize(
    ("requests", "part", "kind"),
    [
        pytest.param(10, 0.8, Finding, id="ten requests, four fifths of the time"),
        pytest.param(9, 0.8, Undecided, id="nine requests"),
        pytest.param(10, 0.79, Undecided, id="less than four fifths of the time"),
    ],
)
def test_slots_that_are_always_at_work_may_have_kept_somebody_waiting(requests: int, part: float, kind: type) -> None:
    assert isinstance(ask(queue.RULES, "SLT050", busy(requests, part)), kind)


# Doubts


def confidence_of(rules: Any, identifier: str, symptoms: Symptoms) -> Confidence:
    said = ask(rules, identifier, symptoms)
    assert isinstance(said, Finding), said
    return said.confidence


def test_small_pieces_on_a_gpu_are_likely_only_where_their_speeds_were_seen_alone() -> None:
    facts = {"model_buffers": {"CUDA0": 10**9}, "ubatch_size": 32, "batch_size": 2048}
    speeds = {"prefill_tokens_per_s": 1600.0, "decode_step_s": 0.01}
    alone = of(log=log(requests=timings(), facts=facts), probe=probe(**speeds))
    beside = of(log=log(requests=timings(), facts=facts), probe=probe(**speeds, was_idle=False))
    assert confidence_of(batch.RULES, "SLT020", alone) is Confidence.LIKELY
    assert confidence_of(batch.RULES, "SLT020", beside) is Confidence.POSSIBLE


def test_events_about_memory_are_likely_about_the_server_and_a_node_that_is_short_is_certain() -> None:
    told = of(pod=pod(events=(event("SystemOOM: System OOM encountered"),)))
    assert confidence_of(memory.RULES, "SLT034", told) is Confidence.LIKELY
    node = of(pod=pod(), node=NodeFacts("n", pressures=("MemoryPressure",)))
    assert confidence_of(memory.RULES, "SLT034", node) is Confidence.CERTAIN


def test_two_threads_on_a_core_and_a_half_may_be_held_up_and_three_are() -> None:
    assert confidence_of(threads.RULES, "SLT060", of(pod=pod("-t", "2", cpu_limit=1.4))) is Confidence.POSSIBLE
    assert isinstance(ask(threads.RULES, "SLT060", of(pod=pod("-t", "2", cpu_limit=1.5))), Clear)
    assert confidence_of(threads.RULES, "SLT060", of(pod=pod("-t", "3", cpu_limit=1.4))) is Confidence.CERTAIN


# Words


def test_what_lies_on_the_host_by_an_argument_is_told_where_it_is_found() -> None:
    facts = {"layers_offloaded": 33, "layers": 33, "kv_buffers": {"CUDA0": 10**8}}
    on_gpu = facts | {"model_buffers": {"CPU_Mapped": 200 * MIB, "CUDA0": 4000 * MIB}}
    spread = facts | {"model_buffers": {"CPU_Mapped": 4000 * MIB, "CUDA0": 4000 * MIB}, "kept_on_host": 12}
    said = ask(gpus.RULES, "SLT003", of(log=log(facts=on_gpu)))
    assert said == Clear("-fit moved no layers")
    assert ask(gpus.RULES, "SLT003", of(log=log(facts=spread))) == Clear(
        f"what lies in host memory is told as {layers.LAYERS_ON_CPU.id}"
    )


@pytest.mark.parametrize(("count", "words"), [(1, "1 request was refused"), (2, "2 requests were refused")])
def test_one_refused_request_is_not_several(count: int, words: str) -> None:
    story = log({Topic.CONTEXT_EXCEEDED: count}, timings(4))
    assert words in found(memory.RULES, "SLT031", of(log=story)).sentence


@pytest.mark.parametrize(
    ("silent", "words"),
    [
        ({"/slots": 5.0}, "/slots was silent for 5 s"),
        ({"/slots": 5.0, "/metrics": 5.0}, "/metrics and /slots were silent for 5 s"),
    ],
)
def test_one_silent_endpoint_is_not_several(silent: dict[str, float], words: str) -> None:
    said = ask(health.RULES, "SLT110", of(server=server(health_s=0.003, silent_s=silent)))
    assert isinstance(said, Undecided)
    assert said.needs.endswith(words)


def test_a_kill_for_memory_of_a_server_without_a_prompt_cache_says_that_it_has_none() -> None:
    by_size = {"server": server(model=ModelMeta("m", size_bytes=900 * MIB))}
    killed = {"memory_limit_bytes": 2000 * MIB, "last_exit": ("OOMKilled", 137), "ready": False}
    off = ask(memory.RULES, "SLT034", of(pod=pod("--cache-ram", "0", **killed), **by_size))
    on = ask(memory.RULES, "SLT034", of(pod=pod("--cache-ram", "256", **killed), **by_size))
    assert isinstance(off, Finding)
    assert isinstance(on, Finding)
    assert "there is no prompt cache" in off.sentence
    assert "prompt cache" not in on.sentence


# Who was killed


@pytest.mark.parametrize(
    "ended",
    [{"restarts": 2}, {"last_exit": ("Completed", 0)}, {"restarts": 1, "last_exit": ("Error", 137)}],
    ids=["only counted", "only its end is known", "both"],
)
def test_a_kill_for_a_probe_is_one_whether_its_end_or_its_restarts_are_known(ended: dict[str, Any]) -> None:
    killed = pod(events=(event("Killing: Container llama failed liveness probe, will be restarted"),), **ended)
    said = ask(health.RULES, "SLT111", of(pod=killed))
    assert isinstance(said, Finding)
    assert said.id == "SLT117"


def test_a_kill_that_did_not_end_it_is_none() -> None:
    killed = pod(events=(event("Killing: Container llama failed liveness probe, will be restarted"),))
    assert isinstance(ask(health.RULES, "SLT111", of(pod=killed)), Clear)


def test_samplers_that_arguments_name_are_only_possible_for_a_request_may_say_otherwise() -> None:
    stated = of(pod=pod("--repeat-penalty", "1.3"))
    assert confidence_of(sampling.RULES, "SLT070", stated) is Confidence.POSSIBLE
