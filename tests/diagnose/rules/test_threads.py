"""Threads against the cores that may run them."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.threads import RULES
from slotune.diagnose.symptoms import NodeFacts
from slotune.llama.log_story import Line, LogStory
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, pod, server, timings


def with_threads(threads: int, batch: int, cores: int, **more: object) -> LogStory:
    line = Line(3, f"system_info: n_threads = {threads} (n_threads_batch = {batch}) / {cores}")
    facts = {"threads": threads, "threads_batch": batch, **more}
    return log(requests=timings(), facts=facts, fact_lines={"threads": line})


def test_more_threads_than_the_limit_are_found() -> None:
    said = found(RULES, "SLT060", of(log=with_threads(16, 16, 32), pod=pod(cpu_limit=4.0)))
    assert said.confidence is Confidence.CERTAIN
    assert said.sentence.startswith("16 threads share 4 cores")
    assert "50.0 tok/s" in said.sentence
    assert said.first == "set -t 4 and -tb 4"
    assert [one.text for one in said.evidence][1] == "limits.cpu: 4"


def test_threads_of_the_batch_count_too() -> None:
    found(RULES, "SLT060", of(log=with_threads(4, 16, 32), pod=pod(cpu_limit=4.0)))
    found(RULES, "SLT060", of(pod=pod("-t", "4", "-tb", "12", cpu_limit=4.0)))


def test_more_threads_than_the_machine_has_cores_are_found_in_a_log_alone() -> None:
    said = found(RULES, "SLT060", of(log=with_threads(16, 16, 2)))
    assert said.sentence.startswith("16 threads share 2 cores")
    assert said.evidence[0].line is None or said.evidence[0].line == 3


def test_the_hosts_cores_are_too_many_threads_for_a_small_limit() -> None:
    said = found(RULES, "SLT060", of(pod=pod(cpu_limit=2.0), node=NodeFacts("n", 64)))
    assert said.confidence is Confidence.LIKELY
    assert said.sentence.startswith("at least 32 threads share 2 cores")


def test_a_model_that_is_wholly_on_the_gpu_hardly_feels_it() -> None:
    on_gpu = with_threads(16, 16, 32, layers=33, layers_offloaded=33, model_buffers={"CUDA0": 10**9})
    found(RULES, "SLT060", of(log=on_gpu, pod=pod(cpu_limit=4.0)), Severity.INFO)


@pytest.mark.parametrize("limit", [4.0, 3.5, 8.0])
def test_threads_within_the_limit_are_clear(limit: float) -> None:
    assert is_clear(RULES, "SLT060", of(log=with_threads(4, 4, 32), pod=pod(cpu_limit=limit)))


def test_a_pod_without_a_limit_is_clear() -> None:
    assert is_clear(RULES, "SLT060", of(log=with_threads(16, 16, 32), pod=pod()))
    assert is_clear(RULES, "SLT060", of(pod=pod()))
    assert is_clear(RULES, "SLT060", of(pod=pod(cpu_limit=8.0), node=NodeFacts("n", 8)))


def test_threads_are_undecided_without_them_or_the_limit() -> None:
    assert is_undecided(RULES, "SLT060", NOTHING)
    assert is_undecided(RULES, "SLT060", of(server=server()))
    assert is_undecided(RULES, "SLT060", of(log=with_threads(4, 4, 8))), "a limit is not in a log"
    assert is_undecided(RULES, "SLT060", of(pod=pod(cpu_limit=2.0)))
    assert is_undecided(RULES, "SLT060", of(pod=pod(cpu_limit=6.0), node=NodeFacts("n", 8)))


def test_two_threads_on_hardly_more_than_one_core_are_told() -> None:
    squeezed = of(pod=pod("-t", "2", "-tb", "2", cpu_limit=1.1))
    assert "2 threads share 1.1 cores" in found(RULES, "SLT060", squeezed, Severity.INFO).sentence
    assert is_clear(RULES, "SLT060", of(pod=pod("-t", "4", "-tb", "4", cpu_limit=3.5)))


def test_a_limit_below_one_core_is_found_as_the_limit_and_not_as_its_threads() -> None:
    symptoms = of(log=with_threads(1, 1, 8), pod=pod("-ngl", "0", "-t", "1", cpu_limit=0.05))
    said = found(RULES, "SLT061", symptoms)
    assert "0.05 of a core" in said.sentence
    assert "limits.cpu to at least 1" in said.entry.first
    assert said.cost.speed_share == pytest.approx(0.95)
    assert said.confidence is Confidence.LIKELY
    unknown = found(RULES, "SLT061", of(pod=pod(cpu_limit=0.05)))
    assert unknown.confidence is Confidence.POSSIBLE, "a GPU may compute"
    assert is_clear(RULES, "SLT060", symptoms)
    assert is_clear(RULES, "SLT061", of(pod=pod(cpu_limit=1.0)))
    assert is_clear(RULES, "SLT061", of(pod=pod()))
    assert is_undecided(RULES, "SLT061", NOTHING)


def test_a_server_on_a_gpu_hears_of_such_a_limit_without_an_alarm() -> None:
    said = found(RULES, "SLT061", of(pod=pod(gpus=1, cpu_limit=0.5)), Severity.INFO)
    assert said.confidence is Confidence.LIKELY
    on_gpu = with_threads(1, 1, 8, layers=33, layers_offloaded=33, model_buffers={"CUDA0": 5 << 30})
    found(RULES, "SLT061", of(log=on_gpu, pod=pod(cpu_limit=0.5)), Severity.INFO)
