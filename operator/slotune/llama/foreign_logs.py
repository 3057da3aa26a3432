"""Whose log it is that has no line of llama-server's: a file that was mixed up is the usual cause.

Ollama and LM Studio are apart: they start a llama-server, or what was made of one, and its lines are in their log.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["host_notes", "hosts", "is_binary", "looks_like"]

_MAGIC: Final = (
    (b"GGUF", "a model file (GGUF)"),
    (b"\x7fELF", "a program (ELF)"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd)"),
    (b"\xfd7zXZ", "compressed (xz)"),
    (b"BZh", "compressed (bzip2)"),
    (b"SQLite format 3", "a database (SQLite)"),
    (b"\x89PNG", "a picture (PNG)"),
)
_PROGRAMS: Final = (
    ("the log of vLLM", rb"\bvllm\b|\bEngineCore\b|Avg prompt throughput"),
    ("the log of SGLang", rb"\bsglang\b|Prefill batch[.,] |Decode batch[.,] "),
    ("the log of text-generation-inference", rb"text_generation_(?:launcher|router)"),
    ("the log of TensorRT-LLM or Triton", rb"tritonserver|TRT-?LLM"),
    ("the log of LiteLLM", rb"\bLiteLLM\b"),
    ("the log of KoboldCpp", rb"Welcome to KoboldCpp|^Namespace\(.*\bblasbatchsize=|\bCtxLimit:\d+/\d+"),
    (
        "output of llama-cli",
        (
            rb"^(?:[\d.]+ I )?(?:sampler seed: \d+|generate: n_ctx = \d+|main: interactive mode on)"
            rb"|== Running in interactive mode|llama_perf_sampler_print"
        ),
    ),
    ("output of llama-perplexity", rb"^(?:[\d.]+ I )?(?:perplexity|kl_divergence): |Final estimate: PPL"),
    (
        "the log of llama-cpp-python, which prints other lines than llama-server",
        rb"llama_cpp[./]|\bLlama\.generate: |\bllama_cpp_python\b",
    ),
    ("the log of whisper.cpp", rb"\bwhisper_(?:init|model_load|print_timings|full)"),
    ("output of llama-bench", rb"^\| model +\| +size \| +params \|"),
    (
        "output of a program of llama.cpp's other than llama-server, or of one that llama.cpp is in",
        rb"llama_perf_context_print|llama_print_timings|\bcommon_perf_print: ",
    ),
    ("the log of slotune", rb"\bslotune\.\w+|\"slotune\":"),
    ("the log of a web server", rb"\"(?:GET|POST|HEAD) \S+ HTTP/\d"),
    ("a Kubernetes manifest", rb"^apiVersion: \S+|^kind: \w+"),
    ("output of nvidia-smi", rb"NVIDIA-SMI \d|==+NVSMI LOG==+"),
    ("a page of metrics", rb"^# (?:HELP|TYPE) \w+"),
    ("a web page", rb"^\s*<(?:!DOCTYPE|html)"),
)
_HOSTS: Final = (
    ("the log of Ollama", rb"source=\w+\.go:\d+|\[GIN\] \d{4}/|msg=\"?(?:inference compute|starting llama)"),
    (
        "the log of LM Studio",
        rb"\[LM ?STUDIO SERVER\]|\[LMSInternal\]|\] Prompt processing progress: \d+\.\d%|\] Generated prediction: +\{",
    ),
)
_PATTERNS = tuple((name, re.compile(pattern, re.MULTILINE | re.IGNORECASE)) for name, pattern in _PROGRAMS)

_HOST_PATTERNS = tuple((name, re.compile(pattern, re.MULTILINE | re.IGNORECASE)) for name, pattern in _HOSTS)

_TEXT = bytes({*range(32, 127), *range(128, 256), 7, 8, 9, 10, 12, 13, 27})
_STRANGE: Final = 0.05
"""Share of bytes that no text has, from which on it is none."""


def is_binary(sample: bytes) -> bool:
    """Whether ``sample``, the beginning of a file, is no text. UTF-16, as PowerShell writes it, is text."""
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False
    return len(sample.translate(None, _TEXT)) > _STRANGE * len(sample)


def hosts(sample: bytes) -> str | None:
    """The program that starts servers of its own, if ``sample`` is of its log; in words that fit behind ``it is``."""
    return next((name for name, pattern in _HOST_PATTERNS if pattern.search(sample)), None)


def host_notes(host: str | None) -> tuple[str, ...]:
    """What to say of a server whose lines are in the log of such a program."""
    if host is None:
        return ()
    program = host.rpartition(" of ")[2]
    return (f"it is {host}: its llama-server gets its flags from {program}, so they are set there",)


def looks_like(sample: bytes) -> str | None:
    """What ``sample``, the beginning of a file, is, in words that fit behind ``looks like``; None: not obvious."""
    for magic, name in _MAGIC:
        if sample.startswith(magic):
            return name
    if is_binary(sample):
        return "a binary file"
    return hosts(sample) or next((name for name, pattern in _PATTERNS if pattern.search(sample)), None)
