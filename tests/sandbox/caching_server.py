"""A server without a model whose answers depend on all that it holds: honest, or with a cache that mixes prompts up.

Its next-token probabilities are a function of the context that they are computed from, so a foreign context shows in
them as it does with a real model. It says how much was cached as llama-server does.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.mock_server import END, STALL, MockServer, Received, Script, chunk, document, event, http_head, last, token

VOCABULARY = 512
KIN = 16


@dataclass
class CachingServer:
    """What it is told to do wrong."""

    leaks: bool = False
    """After a streamed request, answers come from that request's context too, and nothing is said to be cached."""
    only_when_busy: bool = False
    """It does so only while a streamed request is at work."""
    only_to_kin: bool = False
    """It does so only to prompts that begin as that request does, in :data:`KIN` tokens."""
    overclaims: bool = False
    """Says that a whole prompt was cached which it never saw."""
    unsteady: bool = False
    """No two answers are alike."""
    unsteady_when_busy: bool = False
    """No two answers are alike while a streamed request is at work."""
    without_probabilities: bool = False
    silent: bool = False
    """Takes what is not streamed and never answers."""
    lasts_s: float = 0.0
    """Least time that a streamed answer takes."""
    caches: bool = True
    template: str = "{}"
    """What /apply-template makes of the contents of the messages."""
    seen: list[list[int]] = field(default_factory=list)
    foreign: list[int] = field(default_factory=list)
    plain: list[dict[str, Any]] = field(default_factory=list)
    """Requests that were not streamed."""
    made: int = 0
    busy_until: float = 0.0
    """When the last streamed answer ends, on the monotonic clock."""

    def serve(self) -> MockServer:
        return MockServer(self.respond)

    def respond(self, received: Received) -> Script:
        if received.path == "/metrics":
            lines = ("requests_processing 0", "requests_deferred 0", f"tokens_predicted_total {self.made}")
            return document("".join(f"llamacpp:{line}\n" for line in lines), content_type="text/plain")
        if received.path == "/v1/models":
            return document(json.dumps({"data": [{"id": "mock", "meta": {"n_vocab": VOCABULARY}}]}))
        if received.path in ("/apply-template", "/tokenize"):
            return document(json.dumps(self._texts(json.loads(received.body), received.number)))
        if received.path != "/completion":
            return document('{"status":"ok"}')
        body = json.loads(received.body)
        ids = [ord(letter) for letter in body["prompt"]] if isinstance(body["prompt"], str) else body["prompt"]
        cached = self._cached(ids) if self.caches and body.get("cache_prompt", True) else 0
        self.seen.append(ids)
        if body.get("stream"):
            self.foreign = ids
            return self._streamed(body["n_predict"], len(ids), cached)
        self.plain.append(body)
        return [(0.0, STALL)] if self.silent else self._answered(body, ids, cached)

    def _texts(self, body: dict[str, Any], number: int) -> dict[str, Any]:
        if "content" in body:
            return {"tokens": [ord(letter) for letter in body["content"]]}
        contents = "".join(message["content"] for message in body["messages"])
        return {"prompt": self.template.format(contents, number=number)}

    def _cached(self, ids: list[int]) -> int:
        def common(other: list[int]) -> int:
            pairs = zip(ids, other, strict=False)
            return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(ids), len(other)))

        return min(len(ids) - 1, max(map(common, self.seen), default=0))

    def _streamed(self, tokens: int, length: int, cached: int) -> Script:
        self.made += tokens
        end = last(tokens)
        end["timings"] = {
            "cache_n": cached,
            "prompt_n": length - cached,
            "prompt_ms": (length - cached) / 10,
            "predicted_n": tokens,
            "predicted_ms": 1.0,
        }
        first = (length - cached) / 10_000
        script = [(0.0, http_head()), *((first, chunk(event(token(number=at + 1)))) for at in range(tokens))]
        lasts = max(first, self.lasts_s)
        self.busy_until = max(self.busy_until, time.monotonic() + lasts)
        return [*script, (lasts, chunk(event(end)) + END)]

    def _answered(self, body: dict[str, Any], ids: list[int], cached: int) -> Script:
        context = ids
        if body.get("cache_prompt", True):
            if self.leaks and self.foreign and self._mixes_up(ids):
                context, cached = [*self.foreign, *ids], 0
            if self.overclaims:
                cached = len(ids) - 1
        if self.unsteady or (self.unsteady_when_busy and self._busy):
            context = [len(self.plain), *ids]
        said: dict[str, Any] = {"tokens_evaluated": len(ids), "timings": {"cache_n": cached}}
        if not self.without_probabilities:
            listed = _probabilities(context)[: body["n_probs"]]
            said["completion_probabilities"] = [{"top_logprobs": listed}]
        self.made += 1
        return document(json.dumps(said))

    @property
    def _busy(self) -> bool:
        return time.monotonic() < self.busy_until

    def _mixes_up(self, ids: list[int]) -> bool:
        if self.only_when_busy and not self._busy:
            return False
        return not self.only_to_kin or self.foreign[:KIN] == ids[:KIN]


def _probabilities(context: list[int]) -> list[dict[str, Any]]:
    seed = int.from_bytes(hashlib.sha256(json.dumps(context).encode()).digest()[:8], "big")
    logits = np.random.default_rng(seed).normal(0.0, 2.0, VOCABULARY)
    logprobs = logits - np.log(np.exp(logits).sum())
    return [{"id": int(at), "logprob": float(logprobs[at])} for at in np.argsort(-logprobs)]
