"""How a server ended, or ran out of memory, in the words of each back end: read from the text of its log."""

from __future__ import annotations

import pytest

from slotune.llama.failure_words import in_flags
from slotune.llama.failures import FailureClass, classify_failure
from slotune.llama.log_story import LogStory, Topic
from slotune.llama.log_stream import LogReader

START = """build: 6397 (cd08fc3e) with cc for x86_64-linux-gnu
main: loading model
"""
UP = (
    START
    + """main: model loaded
slot launch_slot_: id  0 | task 0 | processing task
"""
)
ANSWERED = "slot      release: id  0 | task 0 | stop processing: n_tokens = 2148, truncated = 0\n"

ROCM = """0.41.894.173 E ROCm error: out of memory
0.41.894.175 E   current device: 0, in function alloc at /app/ggml/src/ggml-cuda/common.cuh:1661
0.41.894.175 E   hipMalloc(&ptr, size)
/app/ggml/src/ggml-cuda/ggml-cuda.cu:115: ROCm error
libggml-base.so.0(ggml_abort+0x15b)[0x78f1c8066aab]
"""
VULKAN = """ggml_vulkan: Device memory allocation of size 369827840 failed.
ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory
"""
PINNED = """ggml_vulkan: Failed to allocate pinned memory.
ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory
"""
METAL = """ggml_metal_synchronize: error: command buffer 0 failed with status 5
error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)
srv  update_slots: Compute error. i = 0, n_batch = 2048, ret = -3
"""
LOST = """terminate called after throwing an instance of 'vk::DeviceLostError'
  what():  vk::Queue::submit: ErrorDeviceLost
"""


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


@pytest.mark.parametrize(
    ("end", "failure_class", "words"),
    [
        (ROCM, FailureClass.OUT_OF_MEMORY_RUNTIME, "GPU memory ran out under load"),
        (ROCM.replace("ROCm", "MUSA"), FailureClass.OUT_OF_MEMORY_RUNTIME, "GPU memory ran out under load"),
        (VULKAN, FailureClass.OUT_OF_MEMORY_RUNTIME, "under load (353 MiB were refused)"),
        (METAL, FailureClass.OUT_OF_MEMORY_RUNTIME, "GPU memory ran out under load"),
        (ROCM.replace("out of memory", "illegal memory access"), FailureClass.CRASHED, "ROCm error: illegal memory"),
        # What a library prints without a line end leaves blanks in front.
        (ROCM.replace("0.41.894.173 E ROCm", " ROCm"), FailureClass.OUT_OF_MEMORY_RUNTIME, "GPU memory ran out"),
        (LOST, FailureClass.CRASHED, "gave the GPU up"),
        ("E ggml_vulkan: device lost on Vulkan0\n", FailureClass.CRASHED, "gave the GPU up"),
        (
            "srv  update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost\n",
            FailureClass.CRASHED,
            "gave the GPU up",
        ),
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n",
            FailureClass.CRASHED,
            "runtime_error",
        ),
        (LOST.replace("vk::", "x::").replace("DeviceLost", "Odd"), FailureClass.CRASHED, "x::Queue::submit: ErrorOdd"),
        ("/src/ggml-metal/ggml-metal-context.m:235: fatal error\n", FailureClass.CRASHED, "context.m:235: fatal error"),
        ("Segmentation fault (core dumped)\n", FailureClass.CRASHED, "SIGSEGV"),
        ("/app/run.sh: line 3:     7 Segmentation fault      (core dumped) llama\n", FailureClass.CRASHED, "SIGSEGV"),
    ],
)
def test_every_back_ends_end_is_heard(end: str, failure_class: FailureClass, words: str) -> None:
    story = read(UP + end)
    assert story.failure is not None
    assert story.failure.failure_class is failure_class
    assert words in story.failure.sentence
    assert story.failure_line is not None
    assert story.failure_line.text in end


@pytest.mark.parametrize("full", [ROCM, VULKAN, METAL])
def test_memory_that_ran_out_is_counted_also_where_the_server_went_on(full: str) -> None:
    story = read(UP + full + ANSWERED)
    assert story.failure is None
    assert story.count(Topic.OUT_OF_MEMORY) == 1


def test_pinned_memory_that_is_done_without_is_no_full_gpu() -> None:
    story = read(UP + PINNED)
    assert story.failure is None
    assert not story.count(Topic.OUT_OF_MEMORY)


def test_a_start_that_ran_out_of_vulkans_memory_names_its_buffer() -> None:
    end = VULKAN + "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
    story = read(START + end)
    assert story.failure is not None
    assert story.failure.failure_class is FailureClass.OUT_OF_MEMORY_KV


def test_a_prompt_about_a_crash_is_none() -> None:
    assert read(UP + "Segmentation fault: why does my program say that?\nROCm errors are odd\n").failure is None


@pytest.mark.parametrize(
    "line",
    [
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        "llama_init_from_model: failed to allocate compute pp buffers",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "CUDA error: out of memory",
        "std::bad_alloc",
        "quantized V cache requires Flash Attention",
        "K cache type q8_0 with block size 32 does not divide n_embd_head_k=80",
        "vk::DeviceLostError",
    ],
)
def test_who_runs_the_server_by_hand_is_told_flags_and_no_settings_of_the_api(line: str) -> None:
    sentence = in_flags(classify_failure(None, line).sentence)
    for name in ("uBatchSize", "contextSizePerSlot", "parallelSlots", "cacheType", "flashAttention", "cacheRAMMiB"):
        assert name not in sentence
    assert "variant" not in sentence
    assert "GPU class" not in sentence
