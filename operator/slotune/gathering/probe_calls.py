"""What a probe asks beside its requests: how long a connection takes, what the tokenizer does, what was counted."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import statistics
import time
from urllib.parse import urlsplit

import orjson

from slotune.gathering.probe_plan import TOKENS_PER_WORD, plain_text
from slotune.llama.server_http import LlamaServer, ServerError

__all__ = ["CALL_LIMIT_S", "connecting", "tokenizing", "tokens_counted"]

CALL_LIMIT_S = 2.0
"""For one of these questions."""
_CONNECTIONS = 3


async def tokens_counted(server: LlamaServer) -> float | None:
    """Tokens that the server ever computed, by its own count; None when it does not say."""
    try:
        metrics = await server.metrics()
    except ServerError:
        return None
    prompts, answers = metrics.get("prompt_tokens_total"), metrics.get("tokens_predicted_total")
    return None if prompts is None or answers is None else prompts + answers


async def tokenizing(server: LlamaServer, tokens: int) -> tuple[float | None, float]:
    """Return (seconds for about so many tokens, tokens per word); None and a guess where the server does not."""
    words = round(tokens / 1.5)
    body = orjson.dumps({"content": plain_text(words, 0)})
    began = time.monotonic()
    try:
        said = await server.post("/tokenize", body)
    except ServerError:
        return None, TOKENS_PER_WORD
    took_s = time.monotonic() - began
    made = said.get("tokens") if isinstance(said, dict) else None
    return (took_s, len(made) / words) if isinstance(made, list) and made else (None, TOKENS_PER_WORD)


async def connecting(base: str) -> float | None:
    """Median seconds until a new connection can be used, TLS included; None when none came about."""
    parts = urlsplit(base)
    secure = parts.scheme == "https"
    tls = ssl.create_default_context() if secure else None
    took: list[float] = []
    with contextlib.suppress(OSError):  # TimeoutError and SSLError are OSErrors
        for _ in range(_CONNECTIONS):
            began = time.monotonic()
            async with asyncio.timeout(CALL_LIMIT_S):
                _, writer = await asyncio.open_connection(
                    parts.hostname, parts.port or (443 if secure else 80), ssl=tls
                )
            took.append(time.monotonic() - began)
            writer.close()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(CALL_LIMIT_S):
                    await writer.wait_closed()
    return statistics.median(took) if took else None
