"""Against a real llama.cpp: it loads what is generated here, generates with it, and allocates what is predicted.

The benchmark ``memory_prediction`` does this over many more configurations.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from slotune.llama.candidate import Candidate
from slotune.llama.engine import clean_environment, find_engine
from slotune.llama.flags import to_args
from slotune.llama.gguf_facts import read_facts
from slotune.llama.log_lines import parse_log
from slotune.llama.memory import NOTHING_LEARNED, predict
from slotune.llama.requantize import requantize
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.engine

START_LIMIT_S = 60.0
BASE = Candidate("tiny", "cpu", 2, 512, ubatch_size=128, gpu_layers="0", threads=1)


@dataclass(frozen=True)
class Running:
    """A server and its log up to the moment it was ready."""

    url: str
    log: str

    def generate(self, tokens: int) -> dict[str, object]:
        """The answer to a chat that must have this many tokens."""
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens, "ignore_eos": True}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=60, trust_env=False)
        return dict(answer.raise_for_status().json())


@contextmanager
def running(model: Path, candidate: Candidate) -> Iterator[Running]:
    arguments = to_args(candidate, model_path=str(model), host="127.0.0.1", port=0, alias="tiny")
    process = subprocess.Popen(
        find_engine("embedded").command([*arguments, "--no-warmup"]),
        env=clean_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    watchdog = threading.Timer(START_LIMIT_S, process.kill)
    watchdog.start()
    assert process.stdout is not None
    reader = threading.Thread(target=process.stdout.read, daemon=True)  # a full pipe would stop the server
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "slotune engine: serving" in line:
                break
        else:
            pytest.fail("".join(lines[-20:]))
        reader.start()
        yield Running(lines[-1].rpartition(" ")[2].strip(), "".join(lines))
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        if reader.ident is not None:
            reader.join(timeout=START_LIMIT_S)
        process.stdout.close()


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        pytest.param({"kv_heads": 2, "quantization": "Q8_0"}, {}, id="grouped heads"),
        pytest.param({"kv_heads": 1, "quantization": "Q4_0"}, {"kv_unified": True}, id="copies for vector units"),
        pytest.param({"architecture": "deci", "kv_heads": [4, 2]}, {}, id="heads per layer"),
        pytest.param(
            {"architecture": "gemma3", "layers": 6, "kv_heads": 1, "window": 128},
            {"cache_type_k": "q8_0", "cache_type_v": "q8_0"},
            id="sliding window, quantized cache",
        ),
        pytest.param({"architecture": "deepseek2", "kv_heads": 1}, {}, id="latent attention"),
        pytest.param({"architecture": "mamba", "layers": 8}, {}, id="states"),
    ],
)
def test_generated_models_generate_and_take_what_is_predicted(
    tmp_path: Path, model: dict[str, object], changes: dict[str, object]
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", **model)
    candidate = replace(BASE, **changes)
    facts = read_facts(path)

    with running(path, candidate) as server:
        log = parse_log(server.log)
        answer = server.generate(8)

    estimate = predict(candidate, facts, on_gpu=False)
    assert estimate.weights + estimate.kv == pytest.approx(log.model_bytes + log.kv_bytes, rel=0.02)
    learned = NOTHING_LEARNED.with_start(candidate, facts, log.compute_bytes, on_gpu=False)
    assert predict(candidate, facts, learned, on_gpu=False).compute == pytest.approx(log.compute_bytes, rel=0.001)
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize("target", ["F16", "Q8_0", "Q4_0"])
def test_variants_of_the_demos_model_still_know_the_capital_of_france(
    demo_model: Path, tmp_path: Path, target: str
) -> None:
    path = requantize(demo_model, target, tmp_path)

    with running(path, BASE) as server:
        question = {"role": "user", "content": "What is the capital of France? Answer briefly."}
        body = {"messages": [question], "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60, trust_env=False).json()
        log = parse_log(server.log)

    estimate = predict(BASE, read_facts(path), on_gpu=False)
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert estimate.weights + estimate.kv == pytest.approx(log.model_bytes + log.kv_bytes, rel=0.001)
