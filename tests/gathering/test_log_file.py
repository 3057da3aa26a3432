"""A log can be a file, a pipe or packed; what is none is refused with a way out."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slotune.gathering.log_file import read_log
from slotune.tuning.errors import InvalidInputError

LOGS = Path(__file__).parent.parent / "llama" / "logs"
SERVED = LOGS / "served_four.log"


class Standard:
    """A standard input."""

    def __init__(self, content: bytes, *, terminal: bool = False) -> None:
        self.buffer = io.BytesIO(content)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_a_file_is_read() -> None:
    (story,) = read_log(SERVED)

    assert (story.source, story.size_bytes) == (str(SERVED), SERVED.stat().st_size)
    assert story.facts.ready


def test_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(SERVED.read_bytes()))
    (story,) = read_log("-")

    assert story.source == "standard input"
    assert story.facts == read_log(SERVED)[0].facts


def test_a_packed_file_of_several_members_is_read_whatever_its_name(tmp_path: Path) -> None:
    packed = tmp_path / "old.log"
    text = SERVED.read_bytes() + b"0.09.000.000 I srv  update_slots: all slots are idle\n" * 60_000
    packed.write_bytes(gzip.compress(text[:40_000]) + gzip.compress(text[40_000:]) + b"\0" * 100)
    (story,) = read_log(packed)

    assert story.size_bytes == len(text)
    assert story.lines == text.count(b"\n")


def test_a_packed_pipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(gzip.compress(SERVED.read_bytes())))

    assert read_log("-")[0].facts.ready


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (b"", "holds nothing: write the server's log into it with"),
        (b"\n \r\n\n", "2>&1"),
        (b"hello\nworld\n", "no line of it is llama-server's: name the log of a llama-server"),
        (b"INFO EngineCore started\n", "it looks like the log of vLLM"),
        (b"GGUF\x03\x00\x00\x00" + bytes(range(256)) * 40, "it looks like a model file (GGUF)"),
        (os.urandom(50_000).replace(b"\n", b"x"), "it looks like a binary file"),
        (gzip.compress(b"x" * 5_000_000)[:-20], "its gzip data is broken or ends early"),
        (gzip.compress(b""), "holds nothing"),
        (b"\x1f\x8b nothing of the kind", "its gzip data is broken"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_a_cure(tmp_path: Path, content: bytes, cure: str) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError) as refused:
        read_log(path)

    assert refused.value.field == "--log"
    assert str(refused.value.value) == str(path)
    assert cure in str(refused.value)


def test_a_file_that_is_missing_or_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"is not there: make it with `kubectl logs"):
        read_log(tmp_path / "missing.log")
    with pytest.raises(InvalidInputError, match="is a directory"):
        read_log(tmp_path)


def test_a_file_that_may_not_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(InvalidInputError, match=r"cannot be opened \(Permission denied\)"):
        read_log(tmp_path / "server.log")


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(b"", terminal=True))
    with pytest.raises(InvalidInputError, match="nothing is piped in"):
        read_log("-")


READ_STDIN = """
import sys
from slotune.gathering.log_file import read_log
print("reading", flush=True)
read_log("-")
"""


def test_an_interrupt_ends_the_reading_of_an_endless_pipe() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READ_STDIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"reading\n"
        process.stdin.write(b"0.09.000.000 I srv  update_slots: all slots are idle\n" * 50_000)
        process.stdin.flush()
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)

    assert time.monotonic() - started < 10
    assert b"KeyboardInterrupt" in errors
    assert process.returncode != 0


LARGE = """
import sys
from pathlib import Path
from slotune.gathering.log_file import read_log
def most_mib():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
before = most_mib()
(story,) = read_log(Path(sys.argv[1]))
print(story.lines, most_mib() - before)
"""


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    text = SERVED.read_bytes()
    copies = 60_000_000 // len(text)
    work = text[text.index(b"\n", text.index(b"model loaded")) + 1 :]
    with path.open("wb") as file:
        file.write(text)
        for _ in range(copies):
            file.write(work)
    done = subprocess.run([sys.executable, "-c", LARGE, str(path)], stdout=subprocess.PIPE, check=True, text=True)
    lines, grown_mib = map(int, done.stdout.split())

    assert lines > 100_000
    assert grown_mib < 40


LOADER = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA L4, compute capability 8.9, VMM: yes
llama_model_loader: loaded meta data with 33 key-value pairs and 272 tensors from /models/model.gguf
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_context: n_ctx         = 4096
"""
"""What llama.cpp says in whatever program it is."""
TIMES = """\
{0}:        load time =     121.10 ms
{0}: prompt eval time =     100.00 ms /   100 tokens (    1.00 ms per token,  1000.00 tokens per second)
{0}:        eval time =     200.00 ms /    20 runs   (   10.00 ms per token,   100.00 tokens per second)
"""

FOREIGN = {
    "a job": "my_module: something happened\ninit: ready\nmain: done\n" * 20,
    "a job with one line alike": "step 1\nmodel loaded\nmain: model loaded\nmain: loading model\nslot machine: on\n",
    "a job whose GPU was full": "Traceback (last call):\nCUDA error: out of memory\nmain: failed to start\n",
    "an agent": '{"level":"info","ts":1722900000,"msg":"model loaded"}\nsrv_worker: 3 jobs\nque_main: empty\n' * 5,
    "nginx beside a worker": '10.0.0.1 - - [now] "GET / HTTP/1.1" 200 5\nworker_main: job 7 done\n' * 9,
    "whisper.cpp": "whisper_init_from_file_with_params_no_state: loading model\nsystem_info: n_threads = 4 / 8\n",
    "llama-bench": "| model | size | params | backend |\nload_tensors: offloaded 33/33 layers to GPU\n".replace(
        "| model | size | params |", "| model                 |     size |  params |"
    ),
    "llama-cli": f"build: 6019 (8ad7b3e6) with cc\nmain: load the model\n{LOADER}sampler seed: 42\n"
    + TIMES.format("llama_perf_context_print"),
    "llama-cpp-python": LOADER + TIMES.format("llama_perf_context_print") + "INFO:     Started server process [71]\n",
    "llama-cpp-python of 2024": LOADER + TIMES.format("llama_print_timings"),
    "KoboldCpp": f"***\nWelcome to KoboldCpp - Version 1.90\n{LOADER}CtxLimit:8346/32768, Amt:226/512\n",
    "KoboldCpp without memory": f"***\nWelcome to KoboldCpp - Version 1.90\n{LOADER}"
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.00 MiB on device 0: cudaMalloc failed: out of memory\n",
    "Ollama's own engine": 'time=2026-02-02T12:29:02.7Z level=INFO source=server.go:1339 msg="llama runner started"\n'
    + LOADER,
    "vLLM": "INFO 11-29 [loggers.py:1] Engine 000: Avg prompt throughput: 5.0 tokens/s\nmain: model loaded\n",
    "a program that only loads": LOADER,
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_program_whose_lines_only_look_alike_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"no line of it is llama-server's"):
        read_log(path)


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("llama-cli", "output of llama-cli"),
        (
            "llama-cpp-python of 2024",
            "a program of llama.cpp's other than llama-server, or of one that llama.cpp is in",
        ),
        ("KoboldCpp", "the log of KoboldCpp"),
        ("Ollama's own engine", "the log of Ollama"),
        ("a program that only loads", "llama.cpp loads a model in it, in whatever program"),
    ],
)
def test_a_program_that_llama_cpp_is_in_is_named(program: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_text(FOREIGN[program])
    with pytest.raises(InvalidInputError, match=named):
        read_log(path)


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")) + sorted(LOGS.glob("*.jsonl")), ids=lambda path: path.name)
def test_every_log_of_a_server_is_taken_for_one(path: Path) -> None:
    (story,) = read_log(path)

    assert story.server_lines or story.engine_lines
    assert not story.mixed


REQUEST = SERVED.read_text().partition("listening on")[2].partition("\n")[2]
PARTS = {
    "only requests": REQUEST,
    "only what one request took": "".join(line for line in REQUEST.splitlines(True) if "eval time" in line),
    "only errors": "E gguf_init_from_file: failed to open GGUF file 'm.gguf' (No such file or directory)\n"
    "E llama_model_load: error loading model: llama_model_loader: failed to load model from m.gguf\n",
    "a model that does not fit": LOADER
    + "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.00 MiB on device 0: cudaMalloc failed: out of memory\n"
    "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n",
    "an argument that it does not know": "error: invalid argument: --no-such-flag\n",
    "a warning": "W srv          init: security: no API key is set and CORS allows all origins\n",
    "an assertion": "/src/ggml-cuda.cu:77: GGML_ASSERT(a->ne[0] == b->ne[0]) failed\n",
}


@pytest.mark.parametrize("content", PARTS.values(), ids=PARTS)
def test_a_part_of_a_log_is_read_whatever_it_holds(content: str, tmp_path: Path) -> None:
    path = tmp_path / "part.log"
    path.write_text(content)

    assert len(read_log(path)) == 1


def test_of_the_lines_of_several_pods_only_those_of_servers_are_read(tmp_path: Path) -> None:
    lines = {
        "chat-0/server": SERVED.read_text().splitlines(),
        "chat-0/istio-proxy": ["2026-11-30T04:03:08.1Z info Envoy proxy is ready", "init: ready", "main: model loaded"]
        * 9,
        "other-0/vllm": FOREIGN["vLLM"].splitlines() * 9,
        "job-0/python": FOREIGN["llama-cpp-python"].splitlines(),
    }
    path = tmp_path / "pods.log"
    path.write_text("".join(f"[pod/{name}] {line}\n" for name, all_lines in lines.items() for line in all_lines))

    assert [story.source for story in read_log(path)] == ["chat-0/server"]


def test_a_server_in_the_log_of_ollama_is_read_and_said_to_be_there(tmp_path: Path) -> None:
    path = tmp_path / "ollama.log"
    go = 'time=2026-06-02T12:29:02.735Z level=INFO source=server.go:1339 msg="llama-server started"\n'
    path.write_text(go + SERVED.read_text() + go)
    (story,) = read_log(path)

    assert story.requests is not None
    assert story.requests.requests == 5
    assert story.notes == (
        "it is the log of Ollama: its llama-server gets its flags from Ollama, so they are set there",
    )


def test_lines_of_two_servers_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.log"
    work = SERVED.read_text().splitlines(keepends=True)
    path.write_text("".join(line for pair in zip(work, [*work[40:], *work[:40]], strict=True) for line in pair))
    with pytest.raises(InvalidInputError, match=r"two servers or more are mixed.*kubectl logs --prefix -l") as refused:
        read_log(path)

    assert str(refused.value.value) == str(path)


def test_beside_a_server_of_its_own_what_is_mixed_is_said_and_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "pods.log"
    lines = SERVED.read_text().splitlines()
    path.write_text(
        "".join(f"[pod/a/server] {line}\n" for line in lines)
        + "".join(f"[pod/b/server] {line}\n" for line in lines for _ in range(2))
    )
    alone, mixed = read_log(path)

    assert (alone.mixed, alone.notes) == (False, ())
    assert (mixed.mixed, mixed.requests, mixed.facts.slots) == (True, None, None)


def test_a_router_passes_on_the_lines_of_each_child_which_are_told_apart_by_port(tmp_path: Path) -> None:
    path = tmp_path / "router.log"
    own = "srv  load_models: router mode is on\n"
    path.write_text(
        own + "".join(f"[{port}] {line}\n" for line in SERVED.read_text().splitlines() for port in (41001, 41002))
    )
    plain = tmp_path / "plain.log"
    plain.write_text(SERVED.read_text())
    (alone,) = read_log(plain)
    children = {story.source: story for story in read_log(path) if "port" in story.source}
    assert len(children) == 2
    assert {story.facts.slots for story in children.values()} == {alone.facts.slots}
    assert {story.requests for story in children.values() if story.requests is None} == set()


def test_a_time_and_a_level_in_front_of_each_line_are_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "kept.log"
    path.write_text("".join(f"2026-11-30 04:03:08.123 INFO {line}\n" for line in SERVED.read_text().splitlines()))
    plain = tmp_path / "plain.log"
    plain.write_text(SERVED.read_text())
    (story,), (alone,) = read_log(path), read_log(plain)
    assert story.facts == alone.facts
    assert story.requests is not None
    assert alone.requests is not None
    assert story.requests.requests == alone.requests.requests


@pytest.mark.parametrize(
    "said",
    [
        "error while loading shared libraries: libcuda.so.1: cannot open shared object file: No such file or directory",
        "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /app/libggml.so)",
    ],
)
def test_what_the_loader_says_of_a_server_that_never_began_is_a_servers_log(said: str, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"/app/llama-server: {said}\n")
    (story,) = read_log(path)
    assert story.failure is not None
