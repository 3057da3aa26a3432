"""A small context is information until a request does not fit; a cache that outgrows its pod is a time bomb."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.memory import RULES
from slotune.diagnose.symptoms import NodeFacts, Symptoms
from slotune.llama.failures import Failure, FailureClass
from slotune.llama.log_story import Line, Seen, Topic
from slotune.llama.server_answers import ModelMeta
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, pod, server, timings

MIB = 2**20
GIB = 2**30
CPU = {
    "model_buffers": {"CPU_Mapped": 2048 * MIB},
    "kv_buffers": {"CPU": 480 * MIB},
    "compute_buffers": {"CPU": 32 * MIB},
}
CUDA = {"model_buffers": {"CUDA0": 8000 * MIB, "CPU_Mapped": 300 * MIB}, "kv_buffers": {"CUDA0": 512 * MIB}}
IMAGE = "ghcr.io/ggml-org/llama.cpp:server-b11434"

# SLT030


def test_a_context_that_fit_reduced_is_worth_knowing() -> None:
    change = "context size reduced from 131072 to 24576 -> need 10240 MiB less memory in total"
    got = found(RULES, "SLT030", of(log=log(facts=CUDA | {"fit_changes": (change,)})), Severity.INFO)
    assert "from 131072 to 24576" in got.sentence


def test_a_context_beyond_the_training_of_the_model_is_capped() -> None:
    got = found(RULES, "SLT030", of(log=log(facts=CPU | {"context_trained_cap": 8192})), Severity.INFO)
    assert "8,192" in got.sentence


def test_a_context_that_its_slots_divide_is_as_stated() -> None:
    assert is_clear(RULES, "SLT030", of(server=server(4), flags=("-m", "x", "-c", "16384", "-np", "4")))
    assert is_clear(RULES, "SLT030", of(log=log(facts=CPU)))


def test_a_context_is_undecided_without_the_start_or_the_arguments() -> None:
    assert is_undecided(RULES, "SLT030", NOTHING)
    assert is_undecided(RULES, "SLT030", of(log=log(verbosity=3)))


# SLT031


def refused(tokens: int, limit: int, count: int = 3) -> Seen:
    text = f"request ({tokens} tokens) exceeds the available context size ({limit} tokens), try increasing it"
    return Seen(count, Line(70, text), Line(90, text))


def test_refused_requests_are_counted_and_the_context_they_needed_is_said() -> None:
    story = log({Topic.CONTEXT_EXCEEDED: refused(5000, 4096)}, timings(37), facts={"slots": 4, "kv_unified": False})
    got = found(RULES, "SLT031", of(log=story, server=server(4)))
    assert got.sentence == "3 requests were refused: a slot has 4,096 tokens"
    assert got.first == "Set -c 25600 (6,400 for each of 4 slots): a prompt of 5,000 tokens was refused."
    assert got.evidence[0].line == 70


def test_one_pool_needs_the_context_once() -> None:
    story = log({Topic.CONTEXT_EXCEEDED: refused(5000, 4096)}, timings(37), facts={"slots": 4, "kv_unified": True})
    assert (found(RULES, "SLT031", of(log=story, server=server(4))).first or "").startswith("Set -c 6400:")


def test_answers_that_were_cut_off_or_lost_their_beginning_count_too() -> None:
    got = found(RULES, "SLT031", of(log=log({Topic.TRUNCATED: 2, Topic.CONTEXT_SHIFTED: 1}, timings(40))))
    assert "2 answers were cut off and 1 time a beginning was dropped" in got.sentence
    assert len(got.evidence) == 2


def test_one_oversized_request_in_a_thousand_is_a_clients_mistake() -> None:
    story = log({Topic.CONTEXT_EXCEEDED: refused(5000, 4096, count=1)}, timings(1000))
    found(RULES, "SLT031", of(log=story), Severity.INFO)


def test_a_log_in_which_all_fitted_is_clear_and_no_log_decides_nothing() -> None:
    assert is_clear(RULES, "SLT031", of(log=log(requests=timings())))
    assert is_clear(RULES, "SLT031", of(log=log(requests=timings(), starts=0, verbosity=3)))
    assert is_undecided(RULES, "SLT031", NOTHING)
    assert is_undecided(RULES, "SLT031", of(log=log(starts=0)))


# SLT032


def test_a_pool_that_ran_full_says_how_large_it_is() -> None:
    got = found(RULES, "SLT032", of(log=log({Topic.KV_FULL: 7}, facts={"slots": 4, "context_total": 8192})))
    assert got.sentence == "the KV cache of 8,192 tokens, which 4 slots share, was full 7 times"


def test_a_pool_that_never_ran_full_is_clear() -> None:
    assert is_clear(RULES, "SLT032", of(log=log(requests=timings())))
    assert is_undecided(RULES, "SLT032", NOTHING)
    assert is_undecided(RULES, "SLT032", of(log=log(starts=0)))


# SLT033


def cached(limit: int | None, *args: str, **more: Any) -> Symptoms:
    own = pod(*args, memory_limit_bytes=limit, image=IMAGE)
    return of(**{"log": log(facts=CPU, build=11434), "pod": own, **more})


def test_the_default_cache_outgrows_a_small_pod() -> None:
    got = found(RULES, "SLT033", cached(4 * GIB))
    assert got.confidence is Confidence.LIKELY
    assert "8192 MiB" in got.evidence[0].text
    assert (got.first or "").startswith("Set --cache-ram 1280,"), "nine tenths of what 2,560 of 4,096 MiB leave"


@pytest.mark.parametrize("args", [("--cache-ram", "0"), ("-cram", "1024"), ("--cache-ram", "1024", "-np", "2")])
def test_a_cache_that_fits_is_clear(args: tuple[str, ...]) -> None:
    assert is_clear(RULES, "SLT033", cached(4 * GIB, *args))


def test_a_cache_without_limit_never_fits() -> None:
    assert "without limit" in found(RULES, "SLT033", cached(64 * GIB, "--cache-ram", "-1")).sentence


def test_weights_on_a_gpu_leave_the_host_to_the_cache() -> None:
    own = pod(memory_limit_bytes=10 * GIB, gpus=1)
    assert is_clear(RULES, "SLT033", of(log=log(facts=CUDA, build=11434), pod=own))


def test_a_pod_without_a_limit_has_none_to_outgrow() -> None:
    assert is_clear(RULES, "SLT033", cached(None))


def test_what_the_log_says_of_the_cache_is_believed_before_the_default() -> None:
    assert is_clear(RULES, "SLT033", cached(4 * GIB, log=log(facts=CPU | {"cache_ram_mib": 0})))


def test_the_cache_is_undecided_without_a_limit_a_build_or_a_size() -> None:
    assert is_undecided(RULES, "SLT033", of(log=log(facts=CPU | {"cache_ram_mib": 8192})))
    assert is_undecided(RULES, "SLT033", of(pod=pod(memory_limit_bytes=4 * GIB)))
    assert is_undecided(RULES, "SLT033", of(pod=pod(memory_limit_bytes=16 * GIB, image=IMAGE)))


# SLT034


def test_a_container_that_the_kernel_killed_is_critical() -> None:
    got = found(
        RULES,
        "SLT034",
        of(pod=pod(last_exit=("OOMKilled", 137), memory_limit_bytes=4 * GIB)),
        Severity.CRITICAL,
        entry="SLT207",
    )
    assert "its limit is 4,096 MiB" in got.sentence


def test_a_kill_of_which_nobody_says_why_may_be_something_else() -> None:
    killed = pod(last_exit=("Error", 137), memory_limit_bytes=4 * GIB, image=IMAGE)
    got = found(RULES, "SLT034", of(pod=killed), Severity.INFO)
    assert got.confidence is Confidence.POSSIBLE
    assert got.first is not None
    assert "probe" in got.first
    short = NodeFacts("small", pressures=("MemoryPressure",))
    assert "small" in found(RULES, "SLT034", of(pod=killed, node=short)).sentence, "what is known goes first"


@pytest.mark.parametrize(
    ("ago_s", "ready", "want"),
    [
        (None, True, Severity.CRITICAL),
        (3600.0, True, Severity.CRITICAL),
        (3 * 86_400.0, True, Severity.WARNING),
        (30 * 86_400.0, True, Severity.INFO),
        (30 * 86_400.0, False, Severity.CRITICAL),
    ],
    ids=["nobody knows when", "an hour ago", "three days ago", "a month ago", "and it does not serve"],
)
def test_a_kill_for_memory_weighs_less_the_longer_it_is_ago(ago_s: float | None, ready: bool, want: Severity) -> None:
    killed = pod(last_exit=("OOMKilled", 137), last_exit_ago_s=ago_s, ready=ready)
    said = found(RULES, "SLT034", of(pod=killed), want, entry="SLT207").sentence
    assert ("ago" in said) is (ago_s is not None)


def test_a_node_that_is_short_of_memory_is_told() -> None:
    node = NodeFacts("small", pressures=("MemoryPressure",))
    assert "small" in found(RULES, "SLT034", of(pod=pod(), node=node)).sentence


def test_a_log_that_ends_for_want_of_host_memory_is_critical() -> None:
    failure = Failure(FailureClass.OUT_OF_MEMORY_HOST, "cacheRAMMiB", "host memory ran out: lower cacheRAMMiB")
    story = log(failure=failure, failure_line=Line(200, "std::bad_alloc"))
    got = found(RULES, "SLT034", of(log=story), Severity.CRITICAL, entry="SLT207")
    assert got.evidence == (Evidence(Source.LOG, "std::bad_alloc", 200),)
    assert is_clear(RULES, "SLT036", of(log=story))
    followed = replace(story, starts=2, facts=replace(story.facts, ready=True))
    found(RULES, "SLT034", of(log=followed), entry="SLT207")


def test_a_pod_that_was_never_killed_on_a_roomy_node_is_clear() -> None:
    assert is_clear(RULES, "SLT034", of(pod=pod(last_exit=("Completed", 0)), node=NodeFacts("roomy")))
    assert is_undecided(RULES, "SLT034", NOTHING)
    assert is_undecided(RULES, "SLT034", of(log=log()))


# SLT036


def test_a_gpu_that_ran_full_says_which_buffer() -> None:
    failure = Failure(FailureClass.OUT_OF_MEMORY_KV, "contextSizePerSlot", "the KV cache did not fit: lower it")
    story = log(facts=CUDA, failure=failure, failure_line=Line(88, "failed to allocate buffer for kv cache"))
    got = found(RULES, "SLT036", of(log=story), Severity.CRITICAL, entry="SLT204")
    assert got.sentence == "memory ran out: the KV cache did not fit: lower it"
    assert got.first == "Lower it."
    assert got.evidence[0] == Evidence(Source.LOG, "failed to allocate buffer for kv cache", 88)


def test_that_memory_ran_out_is_said_once() -> None:
    sentence = "GPU memory ran out (32768 MiB were refused): lower it"
    failure = Failure(FailureClass.OUT_OF_MEMORY_RUNTIME, "uBatchSize", sentence)
    story = log(facts=CUDA, failure=failure, failure_line=Line(88, "cudaMalloc failed: out of memory"))
    assert found(RULES, "SLT036", of(log=story), Severity.CRITICAL, entry="SLT206").sentence == f"the {sentence}"


@pytest.mark.parametrize(
    ("facts", "line"),
    [(CPU, "failed to allocate buffer for kv cache"), ({}, "llama_model_load: mmap failed: Cannot allocate memory")],
)
def test_what_did_not_fit_on_a_cpu_server_is_host_memory(facts: dict[str, Any], line: str) -> None:
    failure = Failure(FailureClass.OUT_OF_MEMORY_KV, "contextSizePerSlot", "the KV cache did not fit: lower it")
    story = log(facts=facts, failure=failure, failure_line=Line(88, line))
    found(RULES, "SLT034", of(log=story), Severity.CRITICAL, entry="SLT204")
    assert is_clear(RULES, "SLT036", of(log=story))


def test_an_allocation_that_failed_while_it_served_on_is_a_warning() -> None:
    found(RULES, "SLT036", of(log=log({Topic.OUT_OF_MEMORY: 2}, facts=CUDA)))


def test_a_start_without_a_failed_allocation_is_clear() -> None:
    assert is_clear(RULES, "SLT036", of(log=log()))
    assert is_undecided(RULES, "SLT036", NOTHING)
    assert is_undecided(RULES, "SLT036", of(log=log(starts=0)))


def test_a_host_cache_without_memory_is_no_full_gpu() -> None:
    line = Line(60, "failed to allocate memory for prompt cache state: std::bad_alloc")
    story = log({Topic.OUT_OF_MEMORY: Seen(1, line, line)}, facts=CUDA)
    assert is_clear(RULES, "SLT036", of(log=story))
    found(RULES, "SLT034", of(log=story))


def test_a_start_that_failed_before_the_one_that_came_up_is_no_longer_critical() -> None:
    failure = Failure(FailureClass.OUT_OF_MEMORY_KV, "contextSizePerSlot", "the KV cache did not fit: lower it")
    came_up = log(facts=CUDA | {"ready": True}, failure=failure, starts=2)
    found(RULES, "SLT036", of(log=came_up), entry="SLT204")


def test_weights_that_are_to_lie_in_memory_whole_and_do_not_fit_are_killed_while_they_load() -> None:
    meta = ModelMeta("m", size_bytes=8 * GIB)
    for build, *words in ((11434, "-lm", "none"), (11434, "--load-mode", "dio"), (9000, "--no-mmap")):
        image = f"ghcr.io/ggml-org/llama.cpp:server-b{build}"
        loading = of(
            pod=pod(*map(str, words), image=image, memory_limit_bytes=4 * GIB, ready=False),
            log=log(facts={"model_buffers": {"CPU": 8 * GIB}}),
        )
        said = found(RULES, "SLT034", loading, Severity.CRITICAL)
        assert (said.first or "").startswith("Take smaller weights, or raise the memory limit to ")
        assert said.confidence is Confidence.LIKELY
    mapped = of(pod=pod("-lm", "mlock", image=IMAGE, memory_limit_bytes=4 * GIB), server=server(model=meta))
    assert "read from its file again" in found(RULES, "SLT038", mapped).sentence


def test_the_share_of_requests_that_were_refused_is_what_too_small_a_context_costs() -> None:
    some = log({Topic.CONTEXT_EXCEEDED: refused(5000, 4096, 6)}, timings(3))
    assert found(RULES, "SLT031", of(log=some)).cost.refused_share == pytest.approx(6 / 9)
    shifted = log({Topic.CONTEXT_SHIFTED: 3}, timings(3))
    assert found(RULES, "SLT031", of(log=shifted)).cost.refused_share is None
