"""A prompt's speed is held against the arithmetic of its GPU, and nobody is accused whose bound is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.diagnose.finding import Confidence
from slotune.diagnose.rules.prefill import RULES
from slotune.diagnose.speeds import prefill_speed
from slotune.diagnose.symptoms import GPUFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from slotune.llama.server_answers import Metrics, ModelMeta, Props
from tests.diagnose.rules.building import found, is_clear, is_undecided

DENSE = LogStory("log", LogFacts(experts=0, model_buffers={"CUDA0": 16_000_000_000}))
EIGHT_B = ServerLook(
    "http://127.0.0.1:8080", model=ModelMeta("chat", parameters=8_000_000_000, size_bytes=16_000_000_000)
)


def alone(prefill: float, tokens: int = 512) -> ProbeFacts:
    return ProbeFacts(4, tokens, 0.01, prefill_tokens_per_s=prefill, decode_step_s=0.06)


L4 = Symptoms("chat", log=DENSE, server=EIGHT_B, gpu=GPUFacts("NVIDIA L4"))


def test_8_b_at_100_tokens_a_second_on_a_gpu_that_could_compute_15125_has_a_cause() -> None:
    said = found(RULES, "SLT013", replace(L4, probe=alone(100.0)))
    assert "512 tokens alone take 5.1 s to read, NVIDIA L4 can compute them in 34 ms" in said.sentence
    assert said.confidence is Confidence.LIKELY
    # 40 times what the arithmetic takes, and 0.1 s; 10 ms come before the prompt is read.
    usual_s = 40 * 512 * 2 * 8e9 / 242e12 + 0.1
    assert said.cost.ttft_s == pytest.approx(5.12 - usual_s, rel=0.01)
    assert said.cost.ttft_share == pytest.approx((5.12 - usual_s) / 5.13, rel=0.01)


def test_half_a_second_for_the_same_prompt_is_as_kernels_are() -> None:
    assert is_clear(RULES, "SLT013", replace(L4, probe=alone(1000.0)))


def test_a_small_model_on_a_fast_gpu_is_not_accused_of_its_launches() -> None:
    small = replace(EIGHT_B, model=ModelMeta("tiny", parameters=135_000_000, size_bytes=270_000_000))
    assert is_clear(RULES, "SLT013", replace(L4, server=small, gpu=GPUFacts("NVIDIA H200"), probe=alone(8000.0)))


def test_what_is_far_below_a_dense_models_bound_is_as_far_below_that_of_any_mixture() -> None:
    silent = replace(DENSE, facts=replace(DENSE.facts, experts=None))
    said = found(RULES, "SLT013", replace(L4, probe=alone(100.0), log=silent))
    assert said.confidence is Confidence.POSSIBLE
    assert is_undecided(RULES, "SLT013", replace(L4, probe=alone(1000.0), log=silent))


def test_without_a_probe_or_a_device_it_stays_open() -> None:
    assert is_undecided(RULES, "SLT013", L4)
    assert is_undecided(RULES, "SLT013", replace(L4, probe=alone(100.0), gpu=None))
    assert is_undecided(RULES, "SLT013", replace(L4, probe=alone(100.0), gpu=GPUFacts("mine", 300e9)))


def test_a_mean_of_whatever_was_asked_is_not_held_against_the_gpu_even_on_one_slot() -> None:
    """Short prompts, or what a cache left of long ones, are mostly the fixed cost of a step."""
    counters = Metrics({"prompt_tokens_total": 5000.0, "prompt_seconds_total": 50.0})
    props = Props(1, 4096, "m.gguf", "m", "b11434", metrics_enabled=True, slots_enabled=False)
    shown = replace(EIGHT_B, metrics=counters, props=props)
    seen = prefill_speed(replace(L4, server=shown))
    assert seen is not None
    assert seen.alone
    assert is_undecided(RULES, "SLT013", replace(L4, server=shown))


def test_others_in_the_batch_say_nothing_about_a_prompt_alone() -> None:
    assert is_undecided(RULES, "SLT013", replace(L4, probe=replace(alone(100.0), was_idle=False)))


def test_a_log_of_short_prompts_costs_no_more_than_those_took() -> None:
    """100 tokens in a second, one at a time: no 512 tokens were ever read, so they can not have taken 5 s."""
    lines = ["build: 11434 (1af25fa1) with cc for x86_64-linux-gnu", "srv  llama_server: model loaded"]
    for task in range(20):
        of_it = f"id  0 | task {task} |"
        lines += [
            f"slot launch_slot_: {of_it} processing task, is_child = 0",
            f"slot print_timing: {of_it} prompt eval time = 1000.00 ms / 100 tokens",
            f"slot print_timing: {of_it}        eval time = 600.00 ms / 11 tokens",
            f"slot      release: {of_it} stop processing: n_tokens = 110, truncated = 0",
        ]
    reader = LogReader("server.log")
    reader.feed("\n".join([*lines, ""]).encode())
    (story,) = reader.finish()
    said = found(RULES, "SLT013", replace(L4, log=replace(DENSE, requests=story.requests)))
    assert "100 tokens alone take 1.0 s" in said.sentence
    assert said.cost.ttft_s is not None
    assert 0 < said.cost.ttft_s < 1


READ = """slot launch_slot_: id  0 | task {task} | processing task
slot print_timing: id  0 | task {task} |
prompt eval time = {prompt_ms:10.2f} ms /   100 tokens (   20.99 ms per token,    47.64 tokens per second)
       eval time = {ms:10.2f} ms /   101 tokens (   20.00 ms per token,    50.00 tokens per second)
{drafted}slot      release: id  0 | task {task} | stop processing: n_tokens = 200, truncated = 0
"""
DRAFTED = "draft acceptance rate = 0.70000 (   70 accepted /   100 generated)\n"


def spoken(prompt_ms: float, *, count: int = 4, drafted: str = "", at_once: bool = False) -> Symptoms:
    """A log that names no device: prompts of 100 tokens, and answers at 50 tokens/s (ggml-org/llama.cpp#26435)."""
    start = "srv    load_model: loading model 'm.gguf'\nmain: model loaded\n"
    beside = "slot launch_slot_: id  1 | task 99 | processing task\n" if at_once else ""
    lines = (READ.format(task=task, prompt_ms=prompt_ms, ms=2000.0, drafted=drafted) for task in range(count))
    reader = LogReader("server.log")
    reader.feed((start + beside + "".join(lines)).encode())
    (story,) = reader.finish()
    return Symptoms("chat", log=story)


def test_prompts_that_are_read_no_faster_than_answers_are_written_have_a_cause_on_any_gpu() -> None:
    said = found(RULES, "SLT013", spoken(4000.0))
    assert "are read at 25 tokens/s at best, and answers are written at 50" in said.sentence
    assert said.confidence is Confidence.LIKELY
    assert said.cost.ttft_share == pytest.approx(0.5)
    assert said.cost.ttft_s == pytest.approx(2.0)


@pytest.mark.parametrize(
    "symptoms",
    [
        spoken(1900.0),
        spoken(4000.0, count=3),
        spoken(4000.0, drafted=DRAFTED),
        spoken(4000.0, at_once=True),
    ],
    ids=["faster", "too few", "answers are drafted", "beside others"],
)
def test_what_may_have_another_reason_is_held_against_nobody(symptoms: Symptoms) -> None:
    assert is_undecided(RULES, "SLT013", symptoms)
