"""Exit code 1 has many causes; each must name its own setting. ``logs/`` was provoked, CUDA lines are from source."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.failures import FailureClass, classify_failure

LOGS = Path(__file__).parent / "logs"

LOADING_FAILED = "cmn  common_init_: failed to load model 'm.gguf'\nsrv init: exiting due to model loading error\n"
CUDA_FULL = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {} MiB on device 0: cudaMalloc failed: out of memory\n"
)
UP = "0.01.386.256 I srv          init: model loaded\n"


@pytest.mark.parametrize(
    ("exit_code", "log", "want", "knob", "told"),
    [
        pytest.param(
            1,
            "error: invalid argument: --no-mmap\n",
            FailureClass.BAD_FLAG,
            "--no-mmap",
            "does not know the flag --no-mmap",
            id="a removed flag is named",
        ),
        pytest.param(
            1,
            'error while handling argument "-ctk": Unsupported cache type: q9_0\n\nusage:\n-ctk, --cache-type-k TYPE',
            FailureClass.BAD_FLAG,
            "cacheTypeK",
            "Unsupported cache type: q9_0",
            id="a bad value names the setting as the API spells it",
        ),
        pytest.param(
            1,
            'error while handling argument "-ngl": stoi\n\nusage:\n-ngl, --gpu-layers N',
            FailureClass.BAD_FLAG,
            "-ngl",
            "refused -ngl: its value is no number that it can take (stoi)",
            id="a value that is no number is called so",
        ),
        pytest.param(
            1,
            'error while handling environment variable "LLAMA_ARG_PORT": stoi\n',
            FailureClass.BAD_FLAG,
            "LLAMA_ARG_PORT",
            "environment variable LLAMA_ARG_PORT: its value is no number",
            id="a Service called llama-arg breaks the environment",
        ),
        pytest.param(
            1,
            CUDA_FULL.format("4403.50")
            + "E llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
            + LOADING_FAILED,
            FailureClass.OUT_OF_MEMORY_WEIGHTS,
            "variant",
            "CUDA0 (4404 MiB were refused)",
            id="weights that do not fit ask for a smaller variant",
        ),
        pytest.param(
            1,
            CUDA_FULL.format("2880.00")
            + "E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
            + LOADING_FAILED,
            FailureClass.OUT_OF_MEMORY_KV,
            "contextSizePerSlot",
            "parallelSlots",
            id="a KV cache that does not fit asks for less context",
        ),
        pytest.param(
            1,
            CUDA_FULL.format("900.00") + "E failed to allocate compute pp buffers\n" + LOADING_FAILED,
            FailureClass.OUT_OF_MEMORY_COMPUTE,
            "uBatchSize",
            "900 MiB were refused",
            id="a compute buffer that does not fit asks for a smaller physical batch",
        ),
        pytest.param(
            134,
            UP + "CUDA error: out of memory\n  current device: 0, in function alloc\n",
            FailureClass.OUT_OF_MEMORY_RUNTIME,
            "uBatchSize",
            "under load",
            id="memory that runs out under load is no failure to start",
        ),
        pytest.param(
            -6,
            "CUDA error: out of memory\n",
            FailureClass.OUT_OF_MEMORY_RUNTIME,
            "uBatchSize",
            "GPU memory ran out",
            id="the start may have left the log's tail",
        ),
        pytest.param(
            137,
            UP + "slot launch_slot_: id 0 | task 7 | processing task\n",
            FailureClass.OUT_OF_MEMORY_HOST,
            "cacheRAMMiB",
            "memory limit",
            id="a container killed for memory, as a shell tells it",
        ),
        pytest.param(
            -9,
            UP,
            FailureClass.OUT_OF_MEMORY_HOST,
            "cacheRAMMiB",
            "137",
            id="a process killed for memory, as Python tells it",
        ),
        pytest.param(
            134,
            "terminate called after throwing an instance of 'std::bad_alloc'\n",
            FailureClass.OUT_OF_MEMORY_HOST,
            "cacheRAMMiB",
            "host memory",
            id="an allocation that throws is host memory",
        ),
        pytest.param(
            134,
            "ggml.c:3000: GGML_ASSERT(ne0 > 0) failed\n",
            FailureClass.CRASHED,
            None,
            "GGML_ASSERT(ne0 > 0)",
            id="an assertion is repeated",
        ),
        pytest.param(
            139, "loading\n\n", FailureClass.CRASHED, None, "SIGSEGV; its last line: loading", id="a segmentation fault"
        ),
        pytest.param(
            -4,
            "I cmn init: llama threadpool init, n_threads = 2\n",
            FailureClass.CRASHED,
            "--engine",
            "a build for this processor",
            id="a build for another processor",
        ),
        pytest.param(
            3, "", FailureClass.CRASHED, None, "exit code 3; its last line: it logged nothing", id="no log at all"
        ),
        pytest.param(
            1,
            "error loading model: unknown model architecture: 'qwen9'\n" + LOADING_FAILED,
            FailureClass.MODEL_UNREADABLE,
            "variant",
            "architecture qwen9",
            id="a model that is newer than the build",
        ),
        pytest.param(
            2,
            "slotune engine: the package xllamacpp is not installed: pip install 'slotune[engine]'\n",
            FailureClass.CRASHED,
            "--engine",
            "pip install 'slotune[engine]'",
            id="the embedded engine is missing",
        ),
    ],
)
def test_a_failure_names_its_cause_and_its_knob(
    exit_code: int, log: str, want: FailureClass, knob: str | None, told: str
) -> None:
    got = classify_failure(exit_code, log)

    assert (got.failure_class, got.knob) == (want, knob)
    assert told in got.sentence


@pytest.mark.parametrize(
    ("name", "want", "knob", "told"),
    [
        ("model_missing", FailureClass.MODEL_UNREADABLE, "variant", "missing.gguf cannot be opened (No such file"),
        ("model_cut_off", FailureClass.MODEL_UNREADABLE, "variant", "cut off (tensor token_embd.weight"),
        ("model_no_gguf", FailureClass.MODEL_UNREADABLE, "variant", "no complete GGUF file"),
        ("kv_too_big", FailureClass.OUT_OF_MEMORY_KV, "contextSizePerSlot", "2880 MiB were refused"),
        ("compute_too_big", FailureClass.OUT_OF_MEMORY_COMPUTE, "uBatchSize", "2680 MiB were refused"),
        ("weights_too_big", FailureClass.OUT_OF_MEMORY_WEIGHTS, "variant", "smaller model variant"),
        ("port_taken", FailureClass.CRASHED, "--port", "127.0.0.1:18999 is taken"),
        ("quantized_v_without_flash_attention", FailureClass.BAD_FLAG, "flashAttention", "set flashAttention to on"),
    ],
)
def test_a_real_log_is_diagnosed(name: str, want: FailureClass, knob: str, told: str) -> None:
    got = classify_failure(1, (LOGS / f"{name}.log").read_text(encoding="utf-8"))

    assert (got.failure_class, got.knob) == (want, knob)
    assert told in got.sentence


def test_what_the_caller_saw_outranks_what_the_log_says() -> None:
    log = UP + "CUDA error: out of memory\n"

    wedged = classify_failure(-9, log, wedged=True, limit_s=60)
    slow = classify_failure(None, "", timed_out=True, limit_s=600)

    assert (wedged.failure_class, wedged.knob) == (FailureClass.WEDGED, None)
    assert "within 60 s" in wedged.sentence
    assert (slow.failure_class, slow.knob) == (FailureClass.STARTUP_TIMEOUT, "startupTimeout")
    assert "within 600 s" in slow.sentence


def test_only_memory_failures_take_larger_candidates_with_them() -> None:
    memory = {kind for kind in FailureClass if kind.is_memory}

    assert memory == {kind for kind in FailureClass if kind.name.startswith("OUT_OF_MEMORY")}
    assert len(memory) == 5


@given(st.text(), st.one_of(st.none(), st.integers(-70, 400)))
def test_every_end_gets_a_sentence_of_bounded_length(log: str, exit_code: int | None) -> None:
    got = classify_failure(exit_code, log)

    assert 0 < len(got.sentence) < 1000
