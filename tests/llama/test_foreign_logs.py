"""The log of another program is named where it can be recognised."""

from __future__ import annotations

import pytest

from slotune.llama.foreign_logs import looks_like
from tests.llama.logged import read


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("INFO 11-29 [loggers.py:1] Engine 000: Avg prompt throughput: 5.0 tokens/s\n", "vLLM"),
        ('time=2026-11-29T01:02:03.4Z level=INFO source=routes.go:1158 msg="server config"\n', "Ollama"),
        # lmstudio-ai/lmstudio-bug-tracker#1229: what its own engine writes, without a line of llama-server's.
        ("2025-11-14 03:14:05  [INFO]\n [lab/model-q8_0.gguf] Prompt processing progress: 5.8%\n", "LM Studio"),
        ("[2026-11-29] Prefill batch. #new-seq: 1\n", "SGLang"),
        ("llama_perf_context_print: load time = 1 ms\n", "a program of llama.cpp's other than llama-server"),
        ("perplexity: calculating perplexity over 16 chunks\nllama_perf_context_print: x\n", "llama-perplexity"),
        ("main: interactive mode on.\nllama_perf_context_print: load time = 1 ms\n", "llama-cli"),
        ("Llama.generate: 5 prefix-match hit\nllama_perf_context_print: x\n", "llama-cpp-python"),
        ("apiVersion: v1\nkind: Pod\n", "manifest"),
        ("GGUF\x03\0\0\0", "model file"),
        ("\x7fELF\x02", "program"),
        ("# HELP llamacpp:requests_processing x\n", "metrics"),
    ],
)
def test_the_log_of_another_program_is_named(text: str, want: str) -> None:
    assert want in (looks_like(text.encode("latin-1")) or "")


def test_what_is_not_obvious_is_not_guessed() -> None:
    assert looks_like(b"2026-11-29 hello\nworld\n") is None
    assert read(b"2026-11-29 hello\nworld: yes\n") == ()
