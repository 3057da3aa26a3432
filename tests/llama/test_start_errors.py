"""What keeps a server from starting is named with the very line that says so, and with a cure."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Finding
from slotune.diagnose.rules.health import RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.failures import FailureClass
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import ask

BUILD = "build: 6397 (cd08fc3e) with cc for x86_64-linux-gnu\n"
LOADING = BUILD + "main: loading model\nsrv    load_model: loading model '/models/m.gguf'\n"
HEADER = "0.00.002.546 I srv          init: build_info: b11549-0123abc\n"
UNLOADED = "srv    load_model: failed to load model, '/models/m.gguf'\nmain: exiting due to model loading error\n"

BAD_FLAG, UNREADABLE, CRASHED = FailureClass.BAD_FLAG, FailureClass.MODEL_UNREADABLE, FailureClass.CRASHED


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


@pytest.mark.parametrize(
    ("text", "want", "line", "cure"),
    [
        pytest.param("error: --model is required\n\n", BAD_FLAG, "error: --model is required", "set -m", id="no model"),
        pytest.param(
            "error: unknown argument: --n-gpu-layerz\nusage: ./server [options]\n",
            BAD_FLAG,
            "error: unknown argument: --n-gpu-layerz",
            "remove --n-gpu-layerz",
            id="a flag that an old build does not know",
        ),
        pytest.param(
            "error: invalid parameter for argument: -ub\n",
            BAD_FLAG,
            "error: invalid parameter for argument: -ub",
            "the value of -ub",
            id="a value that an old build refuses",
        ),
        pytest.param(
            "error: either --embedding or --reranking can be specified, but not both\n",
            BAD_FLAG,
            "error: either --embedding or --reranking can be specified, but not both",
            "remove --embedding",
            id="two tasks at once",
        ),
        pytest.param(
            "error: the supplied chat template is not supported: mine.\n"
            "note: llama.cpp was started without --jinja, we only support commonly used templates\n",
            BAD_FLAG,
            "error: the supplied chat template is not supported: mine.",
            "set --jinja",
            id="a template without jinja",
        ),
        pytest.param(
            HEADER + "0.00.002.600 E srv          init: the server is built without SSL support\n",
            BAD_FLAG,
            "the server is built without SSL support",
            "remove --ssl-key-file",
            id="a certificate for a build without TLS",
        ),
        pytest.param(
            HEADER + "0.00.002.600 E srv          init: static assets path not found: /www\n",
            BAD_FLAG,
            "static assets path not found: /www",
            "remove --path",
            id="a folder of pages that is not there",
        ),
        pytest.param(
            HEADER + "0.00.002.600 E srv  llama_server: failed to initialize router models: no such folder\n",
            BAD_FLAG,
            "failed to initialize router models: no such folder",
            "check --models-dir",
            id="a router without models",
        ),
        pytest.param(
            BUILD + "couldn't bind to server socket: hostname=0.0.0.0 port=8080\n",
            CRASHED,
            "couldn't bind to server socket: hostname=0.0.0.0 port=8080",
            "0.0.0.0:8080 is taken",
            id="a port that is taken, as builds of 2024 say",
        ),
        pytest.param(
            BUILD + "main: exiting due to HTTP server error\n",
            CRASHED,
            "exiting due to HTTP server error",
            "take another --port",
            id="a port that is taken, where only the end is known",
        ),
        pytest.param(
            LOADING + "gguf_init_from_file: failed to open '/models/m.gguf': 'No such file or directory'\n" + UNLOADED,
            UNREADABLE,
            "gguf_init_from_file: failed to open '/models/m.gguf'",
            "(No such file or directory): check the path",
            id="a file that is not there, as builds of 2025 say",
        ),
        pytest.param(
            LOADING + "llama_model_load: error loading model: failed to open /models/m.gguf: Permission denied\n",
            UNREADABLE,
            "failed to open /models/m.gguf: Permission denied",
            "(Permission denied): check the path",
            id="a file that may not be read",
        ),
        pytest.param(
            LOADING + UNLOADED,
            UNREADABLE,
            "failed to load model, '/models/m.gguf'",
            "set -lv 4",
            id="issue 11819: a log that does not say why",
        ),
        pytest.param(
            LOADING + "srv    load_model: failed to load multimodal model, '/models/p.gguf'\n",
            UNREADABLE,
            "failed to load multimodal model, '/models/p.gguf'",
            "remove --mmproj",
            id="a projector of another model",
        ),
        pytest.param(
            LOADING + "common_init_from_params: failed to load lora adapter '/models/a.gguf'\n" + UNLOADED,
            UNREADABLE,
            "failed to load lora adapter '/models/a.gguf'",
            "remove --lora",
            id="an adapter of another model",
        ),
        pytest.param(
            LOADING
            + "llama_model_load_from_file_impl: no backends are loaded. hint: use ggml_backend_load()\n"
            + UNLOADED,
            CRASHED,
            "no backends are loaded",
            "set GGML_BACKEND_PATH",
            id="an image without the libraries that compute",
        ),
        pytest.param(
            "/app/llama-server: error while loading shared libraries: libcuda.so.1: cannot open shared object file: "
            "No such file or directory\n",
            CRASHED,
            "error while loading shared libraries: libcuda.so.1",
            "the library libcuda.so.1",
            id="a library that is not there",
        ),
        pytest.param(
            "/app/llama-server: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by "
            "/app/libggml.so)\n/app/llama-server: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not "
            "found (required by /app/llama-server)\n",
            CRASHED,
            "version `GLIBC_2.38",
            "a build for this system",
            id="a system that is older than the build",
        ),
        pytest.param(
            LOADING
            + "clip_init: failed to load model '/models/mmproj.gguf': operator(): unable to find tensor v.blk.0.ln1\n",
            UNREADABLE,
            "failed to load model '/models/mmproj.gguf'",
            "/models/mmproj.gguf could not be loaded: operator(): unable to find tensor",
            id="a projector of another model",
        ),
        pytest.param(
            BUILD + "error: failed to download model from Hugging Face\n",
            UNREADABLE,
            "error: failed to download model",
            "check its name",
            id="a model that can't be fetched",
        ),
        pytest.param(
            LOADING + "Illegal instruction (core dumped)\n",
            CRASHED,
            "Illegal instruction",
            "take a build for this processor",
            id="an older processor",
        ),
    ],
)
def test_a_server_that_does_not_start_says_why(text: str, want: FailureClass, line: str, cure: str) -> None:
    story = read(text)
    assert story.failure is not None
    assert story.failure.failure_class is want
    assert cure in story.failure.sentence
    assert story.failure_line is not None
    assert line in story.failure_line.text

    found = [said for one in RULES if isinstance(said := one.check(Symptoms("server.log", log=story)), Finding)]
    assert any(line in evidence.text for said in found for evidence in said.evidence), "the finding quotes the line"


CUDA_END = """\
CUDA error: {}
  current device: 0, in function ggml_backend_cuda_synchronize at /app/ggml/src/ggml-cuda/ggml-cuda.cu:2508
  cudaStreamSynchronize(cuda_ctx->stream())
/app/ggml/src/ggml-cuda/ggml-cuda.cu:96: CUDA error
"""


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        ("unspecified launch failure", "Try the newest build"),
        ("an illegal memory access was encountered", "Try the newest build"),
        ("no kernel image is available for execution on the device", "Take an image that was built for its generation"),
        ("uncorrectable ECC error encountered", "Check nvidia-smi, and dmesg for Xid"),
        ("unknown error", "Check nvidia-smi, and dmesg for Xid"),
        ("CUDA-capable device(s) is/are busy or unavailable", "Check nvidia-smi, and dmesg for Xid"),
    ],
)
def test_an_error_of_the_gpu_is_told_with_its_line_and_a_cure(error: str, cure: str) -> None:
    up = LOADING + "main: model loaded\nslot launch_slot_: id  0 | task 4 | processing task\n"
    said = ask(RULES, "SLT114", Symptoms("server.log", log=read(up + CUDA_END.format(error))))
    assert isinstance(said, Finding)
    assert f"CUDA error: {error}" in said.evidence[0].text
    assert (said.first or "").startswith(cure)


@pytest.mark.parametrize("error", ["unspecified launch failure", "unknown error"])
def test_who_has_no_nvidia_gpu_is_not_sent_to_nvidias_tools(error: str) -> None:
    up = LOADING + "main: model loaded\nslot launch_slot_: id  0 | task 4 | processing task\n"
    rocm = CUDA_END.format(error).replace("CUDA error", "ROCm error")
    said = ask(RULES, "SLT114", Symptoms("server.log", log=read(up + rocm)))
    assert isinstance(said, Finding)
    assert error in said.sentence
    assert "dmesg" in (said.first or "")
    assert not any(word in f"{said.sentence}{said.first}" for word in ("Xid", "nvidia-smi"))


def test_errors_of_a_start_are_heard_behind_the_time_and_level_of_other_builds() -> None:
    story = read("0.00.000.100 E error: --model is required\n")
    assert story.failure is not None
    assert story.failure.knob == "-m"


def test_what_a_running_server_says_of_a_request_is_no_start_error() -> None:
    up = LOADING + "main: model loaded\nsrv    send_error: task id = 3, error: failed to get embeddings\n"
    answered = "slot      release: id  0 | task 0 | stop processing: n_tokens = 27, truncated = 0\n"
    assert read(up + "slot launch_slot_: id  0 | task 4 | processing task\n" + answered).failure is None


def test_another_programs_error_is_not_taken_for_llama_servers() -> None:
    reader = LogReader("other.log")
    reader.feed(b"python: error while loading shared libraries: libfoo.so: cannot open\nerror: failed to open file\n")
    assert reader.finish() == ()
