"""Of several starts in a log the last counts; how a process ended is told with its line."""

from __future__ import annotations

import pytest

from slotune.llama.failures import FailureClass
from slotune.llama.log_lines import parse_log
from slotune.llama.log_story import Topic
from tests.llama.logged import SERVED, content, only, request


def test_of_several_starts_the_last_counts() -> None:
    first = content("unified_pool") + b"".join(request(task).encode() for task in range(5))
    story = only(first + content("split_quantized") + request(9).encode())

    assert story.starts == 2
    assert story.facts == parse_log(content("split_quantized").decode())
    assert story.requests is not None
    assert story.requests.requests == 1
    assert story.lines == first.count(b"\n") + content("split_quantized").count(b"\n") + 6
    assert (story.last_start_line, story.requests_before) == (first.count(b"\n") + 1, 5)


def test_requests_of_every_process_before_the_last_are_left_out() -> None:
    served = content("split_quantized") + request(1).encode() + request(2).encode()
    assert only(served * 3).requests_before == 4
    assert only(served * 3).last_start_line == 2 * served.count(b"\n") + 1
    alone = only(served)
    assert (alone.last_start_line, alone.requests_before) == (None, 0)
    late = only(request(1).encode() + served)
    assert (late.starts, late.requests_before) == (1, 1)


@pytest.mark.parametrize(
    "name", ["cuda_old_build", "cuda_no_driver", "cuda_kernel_fallback", "all_defaults", "port_taken"]
)
def test_the_same_start_over_and_over_is_counted_each_time(name: str) -> None:
    story = only(content(name) * 7)

    assert story.starts == 7
    assert story.facts == parse_log(content(name).decode())


def test_a_log_that_begins_in_the_middle_has_no_start_and_no_facts() -> None:
    story = only(request(1).encode()[30:] + request(2).encode())

    assert (story.starts, story.facts.ready, story.facts.slots) == (0, False, None)
    assert story.requests is not None
    assert story.requests.requests == 2


def test_how_the_process_before_the_last_start_ended_is_kept() -> None:
    crash = b"CUDA error: out of memory\n  current device: 0, in function alloc at ggml-cuda.cu:700\n"
    story = only(content("cuda_kernel_fallback") + request(1).encode() + crash + content("cuda_kernel_fallback"))

    assert story.failure is None
    assert story.earlier_failure is not None
    assert story.earlier_failure.failure_class is FailureClass.OUT_OF_MEMORY_RUNTIME
    assert story.earlier_failure_line is not None
    assert story.earlier_failure_line.text == "CUDA error: out of memory"


@pytest.mark.parametrize(
    ("name", "want", "text"),
    [
        ("cuda_kv_too_big", FailureClass.OUT_OF_MEMORY_KV, "failed to allocate buffer for kv cache"),
        ("compute_too_big", FailureClass.OUT_OF_MEMORY_COMPUTE, "allocate"),
        ("model_missing", FailureClass.MODEL_UNREADABLE, "failed to open GGUF file"),
        ("port_taken", FailureClass.CRASHED, "couldn't bind HTTP server socket"),
        ("quantized_v_without_flash_attention", FailureClass.BAD_FLAG, "quantized V cache"),
    ],
)
def test_a_bad_end_is_told_with_its_line(name: str, want: FailureClass, text: str) -> None:
    story = only(content(name))

    assert story.failure is not None
    assert story.failure.failure_class is want
    assert story.failure_line is not None
    assert text in story.failure_line.text


def test_what_a_server_survived_is_no_bad_end() -> None:
    survived = b"W srv alloc: failed to allocate memory for prompt cache state: std::bad_alloc\n"
    story = only(content("cuda_kernel_fallback") + request(1).encode() + survived + request(2).encode())

    assert story.failure is None
    assert story.count(Topic.OUT_OF_MEMORY) == 1


@pytest.mark.parametrize("name", [*SERVED, "all_defaults", "cuda_old_build"])
def test_a_clean_end_is_no_failure(name: str) -> None:
    assert only(content(name)).failure is None


def test_what_is_said_after_the_start_completes_its_facts() -> None:
    words = b"no FlashAttention vector kernel compiled for K/V types q8_0-f16, converting"
    late = b"0.09.000.000 W ggml_cuda_flash_attn_ext_vec: %s\n" % words
    story = only(content("unified_pool").split(b"0.00.700")[0] + request(1).encode() + late)

    assert story.facts.kernel_fallback == "q8_0-f16"
    assert "q8_0-f16" in story.fact_lines["kernel_fallback"].text


def test_the_time_it_spans_is_that_of_the_last_start() -> None:
    assert only(content("unified_pool") * 2).seconds == pytest.approx(0.701537 - 0.000454)
    assert only(content("cuda_old_build")).seconds is None


def test_a_log_that_ends_within_a_list_of_buffers_does_not_say_that_all_of_them_are_on_the_host() -> None:
    whole = content("cuda_old_build")
    ends = whole.index(b"load_tensors:        CUDA0 model buffer")
    assert only(whole[:ends]).facts.model_buffers == {}, "what lies on a GPU is said behind it"
    assert only(whole[: whole.index(b"\n", ends) + 1]).facts.on_gpu
    assert not only(whole[:ends] + whole[ends:].partition(b"\n")[2]).facts.on_gpu, "the list is over"
    alone = b"load_tensors: loading model tensors\nload_tensors:   CPU_Mapped model buffer size =   281.81 MiB\n"
    assert only(alone).facts.model_bytes, "there is no device that it could lie on"
