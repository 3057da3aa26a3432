"""A stand-in for llama-server: what build 11549 answers, and whatever else a test wants answered in its place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.mock_server import STALL, MockServer, Received, Script, document
from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.flags import to_args
from slotune.sandbox.process import HOST, LlamaProcess, new_alias

__all__ = [
    "METRICS",
    "MODELS",
    "PARAMS",
    "PROPS",
    "SECRET",
    "SILENCE",
    "SLOTS",
    "answered",
    "engine",
    "page",
    "said",
    "stand_in",
]

SECRET = "the patient's name"
"""In every place where a server may show what it was asked."""

PARAMS: dict[str, Any] = {
    "seed": 4294967295,
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "n_probs": 0,
    "stream": True,
    "chat_format": "Content-only",
    "samplers": ["penalties", "dry", "top_k", "temperature"],
    "lora": [],
}

PROPS: dict[str, Any] = {
    "default_generation_settings": {"params": PARAMS, "n_ctx": 4096},
    "total_slots": 2,
    "model_alias": "small",
    "model_path": "/models/small.gguf",
    "chat_template": "{# " + SECRET + " #}{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m }}{% endfor %}",
    "build_info": "b11549-0a1b2c3",
    "endpoint_slots": True,
    "endpoint_metrics": True,
    "is_sleeping": False,
}

MODELS: dict[str, Any] = {
    "object": "list",
    "data": [
        {
            "id": "small",
            "object": "model",
            "owned_by": "llamacpp",
            "meta": {"n_vocab": 49152, "n_ctx_train": 8192, "n_params": 134515008, "size": 98000000},
        }
    ],
}

SLOTS: list[dict[str, Any]] = [
    {"id": 0, "n_ctx": 4096, "speculative": False, "is_processing": False},
    {"id": 1, "n_ctx": 4096, "speculative": False, "is_processing": False},
]

METRICS: dict[str, object] = {
    "prompt_tokens_total": 900,
    "prompt_tokens_cached_total": 100,
    "prompt_seconds_total": 4.5,
    "tokens_predicted_total": 120,
    "tokens_predicted_seconds_total": 2.5,
    "n_decode_total": 60,
    "n_busy_slots_per_decode": 1.2,
    "requests_processing": 1,
    "requests_deferred": 3,
}


def answered(status: str, head: str = "", body: bytes = b"<html>no</html>") -> Script:
    """An answer as proxies give it, with more lines in its head."""
    lines = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{head}Content-Length: {len(body)}\r\n\r\n"
    return [(0.0, lines.encode() + body)]


def said(body: object, status: str = "200 OK") -> Script:
    """JSON."""
    return document(json.dumps(body), status=status)


def page(values: Mapping[str, object], prefix: str = "llamacpp:") -> Script:
    """Metrics."""
    lines = [f"# HELP {prefix}{name} words\n{prefix}{name} {value}\n" for name, value in values.items()]
    return document("".join(lines), content_type="text/plain; version=0.0.4")


SILENCE: Script = [(0.0, STALL)]
"""The connection stays open and nothing comes."""

Answers = Mapping[str, Script | Callable[[Received], Script]]

_USUAL: Answers = {
    "/health": said({"status": "ok"}),
    "/props": said(PROPS),
    "/v1/models": said(MODELS),
    "/slots": said(SLOTS),
    "/metrics": page(METRICS),
}


def stand_in(answers: Answers | None = None, *, usual: bool = True) -> MockServer:
    """A server that answers as llama-server does, except for ``answers``; any other path is not found."""
    all_answers = {**(_USUAL if usual else {}), **(answers or {})}

    def respond(received: Received) -> Script:
        found = all_answers.get(received.path.partition("?")[0])
        if found is None:
            return said(
                {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, "404 Not Found"
            )
        return found(received) if callable(found) else found

    return MockServer(respond)


@asynccontextmanager
async def engine(model: Path, folder: Path, *, without: Sequence[str] = (), **settings: Any) -> AsyncIterator[str]:
    """A real llama-server of ``model``, without the flags ``without``; yields its address."""
    usual: dict[str, Any] = {"parallel_slots": 1, "context_per_slot": 4096, "threads": 1}
    candidate = Candidate("tiny", "cpu", **{**usual, **settings})
    alias = new_alias()
    arguments = to_args(candidate, model_path=str(model), host=HOST, port=0, alias=alias)
    kept = [one for one in arguments if one not in without]
    if "--slots" in without:
        kept.append("--no-slots")
    process = LlamaProcess(
        find_engine("embedded"),
        kept,
        directory=folder,
        alias=alias,
        startup_limit_s=60,
    )
    async with process:
        yield process.base_url
