"""A binary and the embedded engine must be one thing to everybody above, and say clearly when they cannot run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from slotune.llama.engine import (
    EmbeddedEngineMissingError,
    Engine,
    EngineNotFoundError,
    EngineNotRunnableError,
    clean_environment,
    find_engine,
    serve,
)

VERSION = "echo 'version: 11434 (abc1234)' >&2; echo 'built with GNU' >&2"


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Makes an executable ``llama-server`` out of shell lines."""

    def make(lines: str) -> Path:
        path = tmp_path / "llama-server"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "xllamacpp" else find_spec(name, *rest)
    )
    monkeypatch.setitem(sys.modules, "xllamacpp", None)


def test_a_binary_names_its_build_and_keeps_llama_servers_arguments(script: Callable[[str], Path]) -> None:
    path = script(VERSION)

    engine = find_engine(str(path))

    assert engine == Engine("binary", "11434 (abc1234)", str(path))
    assert engine.command(["-m", "x", "-np", "2"]) == [str(path), "-m", "x", "-np", "2"]


def test_the_description_names_the_build_and_no_path(script: Callable[[str], Path]) -> None:
    assert find_engine(str(script(VERSION))).describe() == "llama-server 11434 (abc1234)"


def test_auto_prefers_the_llama_server_on_path(script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(VERSION)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    assert find_engine("auto").path == str(path)


@pytest.mark.engine
def test_auto_falls_back_to_the_embedded_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    engine = find_engine("auto")

    assert (engine.kind, engine.path) == ("embedded", None)
    assert engine == find_engine("embedded")
    assert engine.describe().startswith("xllamacpp 20")
    assert engine.command(["-np", "2"])[-2:] == ["-np", "2"]


@pytest.mark.usefixtures("no_wheel")
def test_without_any_engine_both_cures_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(EngineNotFoundError, match=r"put llama-server on PATH, or pip install 'slotune\[engine\]'"):
        find_engine("auto")
    with pytest.raises(EmbeddedEngineMissingError, match=r"pip install 'slotune\[engine\]'"):
        find_engine("embedded")


def test_a_path_that_does_not_exist_is_told_from_one_that_cannot_run(tmp_path: Path) -> None:
    plain = tmp_path / "notes.txt"
    plain.write_text("hello")

    with pytest.raises(EngineNotFoundError, match=r"engine /nonexistent/llama-server: no such file"):
        find_engine("/nonexistent/llama-server")
    for path in (plain, tmp_path):
        with pytest.raises(EngineNotRunnableError, match=re.escape(f"engine {path}: not an executable file")):
            find_engine(str(path))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        pytest.param(
            "echo 'error while loading shared libraries: libcuda.so.1' >&2; exit 127",
            "exit code 127: error while loading shared libraries: libcuda.so.1",
            id="a library is missing",
        ),
        pytest.param("exit 3", "exit code 3: it printed nothing", id="it says nothing"),
        pytest.param("echo hello", "names no version", id="it is another program"),
    ],
)
def test_a_binary_that_is_no_working_llama_server_is_refused(
    script: Callable[[str], Path], lines: str, told: str
) -> None:
    with pytest.raises(EngineNotRunnableError, match=told):
        find_engine(str(script(lines)))


def test_a_text_file_marked_executable_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "llama-server"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)

    with pytest.raises(EngineNotRunnableError, match="cannot run it with --version"):
        find_engine(str(path))


def test_the_environment_cannot_change_a_benchmark(
    script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_PORT", "tcp://10.0.0.1:80")
    kept = {"PATH": "/bin", "HOME": "/h", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "2", "GGML_CUDA_P2P": "1"}
    dropped = {
        "LLAMA_ARG_N_PARALLEL": "9",
        "LLAMA_API_KEY": "k",
        "AIP_MODE": "PREDICTION",
        "HF_TOKEN": "t",
        "https_proxy": "http://p",
        "NO_PROXY": "*",
    }

    assert clean_environment(kept | dropped) == kept
    assert find_engine(str(script(f'test -z "$LLAMA_ARG_PORT" || exit 1; {VERSION}'))).build == "11434 (abc1234)"


def test_the_embedded_engine_refuses_a_foreign_flag_and_says_what_it_takes(capfd: pytest.CaptureFixture[str]) -> None:
    assert serve(["-m", "m.gguf", "--mlock"]) == 1

    first, second = capfd.readouterr().err.splitlines()
    assert first == "error: invalid argument: --mlock"
    assert "-np" in second
    assert "--engine PATH" in second


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_asking_the_embedded_engine_for_help_is_no_error(flag: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert serve([flag]) == 0
    assert "-cram" in capfd.readouterr().out


@pytest.mark.usefixtures("no_wheel")
def test_serving_without_the_wheel_names_the_cure(capfd: pytest.CaptureFixture[str]) -> None:
    assert serve(["-m", "m.gguf"]) == 2
    assert "pip install 'slotune[engine]'" in capfd.readouterr().err


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_serving_engine_with_exit_code_zero(
    demo_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log"
    command = find_engine("embedded").command(["-m", str(demo_model), "--port", "0", "-np", "1", "-c", "512"])
    with log.open("wb") as out:
        process = subprocess.Popen(command, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while (match := re.search(r"slotune engine: serving (\S+)", log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"exit code {process.wait(0.05)}: {log.read_text()}")
        assert httpx.get(f"{match[1]}/health", trust_env=False).status_code == 200
        process.send_signal(number)

        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.engine
def test_the_engine_ends_with_code_one_when_the_model_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    command = find_engine("embedded").command(["-m", "missing.gguf", "--port", "0"])

    assert subprocess.run(command, check=False, timeout=60).returncode == 1
    assert "exiting due to model loading error" in capfd.readouterr().err
