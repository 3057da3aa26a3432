"""What to write instead of an argument that llama-server does not take, or that slotune cannot measure.

Each table is data: spelling to cure. Removed and renamed flags are those of build b11434; the other tables keep
the words that people bring from llama-cli, llama-cpp-python, vLLM and Ollama.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from slotune.llama.flag_history import FORMER, FORMER_VARIABLES, REMOVED_FLAGS
from slotune.llama.flag_table import BY_NAME

__all__ = [
    "CONFLICTING",
    "DRAFT_MODELS",
    "DROPPED",
    "ELSEWHERE",
    "MODEL_FLAGS",
    "PRESETS",
    "REMOVED",
    "REMOVED_ENV",
    "ROUTER",
    "SECRET",
    "UNMEASURED",
    "closest_flag",
    "looks_secret",
]

REMOVED: Final = {name: removed.cure for name, removed in REMOVED_FLAGS.items()} | {
    name: former.name if former.on else former.name.replace("--", "--no-", 1) for name, former in FORMER.items()
}
"""Flags of earlier builds and their successors."""

REMOVED_ENV: Final = {
    "LLAMA_ARG_MLOCK": "LLAMA_ARG_LOAD_MODE=mlock",
    "LLAMA_ARG_MMAP": "LLAMA_ARG_LOAD_MODE=mmap",
    "LLAMA_ARG_NO_MMAP": "LLAMA_ARG_LOAD_MODE=none",
    "LLAMA_ARG_DIO": "LLAMA_ARG_LOAD_MODE=dio",
    "LLAMA_ARG_DRAFT_MAX": "LLAMA_ARG_SPEC_DRAFT_N_MAX",
    "LLAMA_ARG_DRAFT_MIN": "LLAMA_ARG_SPEC_DRAFT_N_MIN",
    "LLAMA_ARG_KV_SPLIT": "LLAMA_ARG_KV_UNIFIED",
} | {name: str(BY_NAME[former.name][0].env) for name, former in FORMER_VARIABLES.items()}
"""Variables of earlier builds. llama-server ignores those of the load mode and refuses those of the draft."""

ELSEWHERE: Final = {
    "--n-ctx": "-c",
    "--num-ctx": "-c",
    "--max-model-len": "-c, which is the context of all slots together",
    "--context-length": "-c",
    "--max-num-seqs": "-np",
    "--n-parallel": "-np",
    "--num-parallel": "-np",
    "--n-batch": "-b",
    "--max-num-batched-tokens": "-b",
    "--n-ubatch": "-ub",
    "--n-threads": "-t",
    "--n-gpu": "-ngl",
    "--tensor-parallel-size": "-ts, or -sm",
    "--kv-cache-dtype": "-ctk and -ctv",
    "--type-k": "-ctk",
    "--type-v": "-ctv",
    "--enable-prefix-caching": "--cache-prompt",
    "--no-enable-prefix-caching": "--no-cache-prompt",
    "--gpu-memory-utilization": "-fitt, the memory to leave free in MiB",
    "--served-model-name": "--alias",
    "--speculative-model": "-md",
    "-p": "send it in a request: it is a flag of llama-cli",
    "--prompt": "send it in a request: it is a flag of llama-cli",
    "-f": "send it in a request: it is a flag of llama-cli",
    "--file": "send it in a request: it is a flag of llama-cli",
    "-i": "leave it out: it is a flag of llama-cli",
    "--interactive": "leave it out: it is a flag of llama-cli",
    "-cnv": "leave it out: it is a flag of llama-cli",
    "-no-cnv": "leave it out: it is a flag of llama-cli",
    "-sys": "send a system message in each request",
    "--system-prompt": "send a system message in each request",
    "--system-prompt-file": "send a system message in each request",
    "-spf": "send a system message in each request",
    "-gan": "--rope-scaling: self-extend is not in llama-server any more",
    "--grp-attn-n": "--rope-scaling: self-extend is not in llama-server any more",
    "-gaw": "--rope-scaling: self-extend is not in llama-server any more",
    "--grp-attn-w": "--rope-scaling: self-extend is not in llama-server any more",
}
"""Names that other tools have: the flag that llama-server has for each, or what to do instead."""

_QWEN_CODER: Final = "-ub 1024 -b 1024 -c 0 --cache-reuse 256 --port 8012"
_GPT_OSS: Final = "-ub 2048 -b 32768 -np 2 -c 262144 --port 8013 --temp 1 --top-p 1 --top-k 0 --min-p 0.01"

PRESETS: Final = {
    "--embd-gemma-default": "-hf ggml-org/embeddinggemma-300M-qat-q4_0-GGUF -ub 2048 -b 2048 -np 32 -c 65536",
    "--fim-qwen-1.5b-default": f"-hf ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF {_QWEN_CODER}",
    "--fim-qwen-3b-default": f"-hf ggml-org/Qwen2.5-Coder-3B-Q8_0-GGUF {_QWEN_CODER}",
    "--fim-qwen-7b-default": f"-hf ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF {_QWEN_CODER}",
    "--fim-qwen-7b-spec": (
        f"-hf ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF -hfd ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF {_QWEN_CODER}"
    ),
    "--fim-qwen-14b-spec": (
        f"-hf ggml-org/Qwen2.5-Coder-14B-Q8_0-GGUF -hfd ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF {_QWEN_CODER}"
    ),
    "--fim-qwen-30b-default": f"-hf ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF {_QWEN_CODER}",
    "--gpt-oss-20b-default": f"-hf ggml-org/gpt-oss-20b-GGUF {_GPT_OSS}",
    "--gpt-oss-120b-default": f"-hf ggml-org/gpt-oss-120b-GGUF {_GPT_OSS}",
    "--vision-gemma-4b-default": "-hf ggml-org/gemma-3-4b-it-qat-GGUF -c 0 --port 8014",
    "--vision-gemma-12b-default": "-hf ggml-org/gemma-3-12b-it-qat-GGUF -c 0 --port 8014",
}
"""One flag that stands for many, tuned ones among them: what it stands for."""

_ROUTER: Final = "name one model with -m: as a router llama-server starts other servers, and slotune measures one"
_ANSWER: Final = "leave it out: llama-server would answer and exit"
_NO_TEXT: Final = "tune a server that generates text: there are no tokens per second to keep"
_SYNTHETIC: Final = "leave it out: the acceptance would be invented and the text invalid"

CONFLICTING: Final = {
    "--models-dir": _ROUTER,
    "--models-preset": _ROUTER,
    "-h": _ANSWER,
    "--version": _ANSWER,
    "-cl": _ANSWER,
    "--completion-bash": _ANSWER,
    "--list-devices": _ANSWER,
    "--embedding": _NO_TEXT,
    "--rerank": _NO_TEXT,
    "--spec-synth-len": _SYNTHETIC,
    "--spec-synth-rates": _SYNTHETIC,
}
"""Flags (by first spelling) with which there is nothing to measure, and why."""

MODEL_FLAGS: Final = frozenset({"-m", "-mu", "-dr", "-hf", "-hff"})
"""Where the weights come from (first spellings): the model variant's business, not the candidate's."""

DRAFT_MODELS: Final = ("--spec-draft-model", "--spec-draft-hf")
"""Flags (first spellings) with which llama-server speculates, also where no kind of speculation is stated."""

ROUTER: Final = frozenset({"--models-dir", "--models-preset"})
"""Flags (by first spelling) that make a router of llama-server, unless it gets a model too."""

DROPPED: Final = {
    "-lv": "slotune sets -lv 4, which shows what was allocated",
    "-v": "slotune sets -lv 4, which shows what was allocated",
    "--log-disable": "slotune reads the log",
    "--log-file": "slotune reads the log where the server writes it",
    "--log-jsonl": "slotune reads the plain log",
    "-dt": "llama-server takes it and does nothing with it",
    "--kv-unified-per-slot": "slotune states the pool with -c instead",
}
"""Flags (by first spelling) that a measured server does not get, and why."""

UNMEASURED: Final = frozenset({"--api-key-file", "--ssl-key-file", "--ssl-cert-file", "--api-prefix"})
"""Flags (by first spelling) that say who reaches a server and how: it is measured without them, and keeps them."""

SECRET: Final = frozenset({"--api-key", "-hft"})
"""Flags (by first spelling) whose value must never be stored or shown."""

CLOSE_ENOUGH: Final = 0.6
"""Similarity (difflib's ratio) from which a known spelling is worth offering."""


_SECRET_WORDS: Final = re.compile(r"(^|-)(api-?key|key|token|secret|password|passwd|auth)(?!.*-(file|path)$)(-|$)")


def closest_flag(word: str) -> str | None:
    """The flag of llama-server that ``word`` may be a typing error for; None when none is near."""
    close = difflib.get_close_matches(word, BY_NAME, n=1, cutoff=CLOSE_ENOUGH)
    return close[0] if close else None


def looks_secret(word: str) -> bool:
    """Whether an unknown flag is called like one that holds a key: ``--auth-token`` does, ``--key-file`` names one."""
    return _SECRET_WORDS.search(word.lower().replace("_", "-")) is not None
