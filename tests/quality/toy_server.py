"""A llama-server in a function: a tiny language model whose probabilities are known, and its ways to misbehave."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from slotune.quality.coarse import LEAST_LOGPROB

LOWEST = -3.4028234663852886e38
"""How a probability of zero is written."""

Change = Callable[[str, dict[str, Any], Any], Any]
"""Path, request and answer in; another answer out."""


@dataclass
class ToyServer:
    """Logits are a function of the last two tokens, plus ``noise`` times another such function."""

    vocabulary: int = 96
    noise: float = 0.0
    context: int = 4096
    end: int = 3
    """The token that ends an answer; it becomes likely after token 5."""
    within_character: frozenset[int] = frozenset()
    """Tokens whose text ends within a character: text and probabilities are kept back when one is generated."""
    tokenizer: int = 7
    change: Change | None = None
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    @property
    def transport(self) -> httpx.MockTransport:
        """What a client is given in place of the network."""
        return httpx.MockTransport(self._answer)

    def probabilities(self, ids: list[int]) -> NDArray[np.float64]:
        """Of every token after ``ids``."""
        seed = (ids[-1], ids[-2] if len(ids) > 1 else 0)
        logits = np.random.default_rng(seed).normal(0, 3, self.vocabulary)
        logits += self.noise * np.random.default_rng((1, *seed)).normal(0, 1, self.vocabulary)
        logits[self.end] += 30.0 if ids[-1] == 5 else -30.0
        values = np.exp(logits - logits.max())
        return np.asarray(values / values.sum())

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.paths.append(path)
        body = json.loads(request.content) if request.content else {}
        if path == "/completion":
            self.bodies.append(body)
        answer = self._own(path, body)
        if self.change is not None:
            answer = self.change(path, body, answer)
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(200, text=json.dumps(answer))

    def _own(self, path: str, body: dict[str, Any]) -> Any:
        match path:
            case "/props":
                settings = {"n_ctx": self.context}
                return {"total_slots": 1, "default_generation_settings": settings, "build_info": "b7000-toy"}
            case "/v1/models":
                return {"data": [{"id": "toy", "meta": {"n_vocab": self.vocabulary}}]}
            case "/apply-template":
                return {"prompt": "".join(f"<{message['role']}>{message['content']}" for message in body["messages"])}
            case "/tokenize":
                return {"tokens": [ord(letter) * self.tokenizer % self.vocabulary for letter in body["content"]]}
            case "/completion":
                return self._completion(body)
        return httpx.Response(
            404, json={"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
        )

    def _completion(self, body: dict[str, Any]) -> Any:
        ids = body["prompt"]
        if len(ids) > self.context:
            kind = {"code": 400, "message": "too long", "type": "exceed_context_size_error"}
            return httpx.Response(400, json={"error": kind})
        probabilities = self.probabilities(ids)
        order = np.argsort(-probabilities, kind="stable")[: body["n_probs"]].tolist()
        generated = next((token for token, bias in body.get("logit_bias", []) if bias > 1000), order[0])
        top = [
            {"id": token, "token": "?", "bytes": [63], "logprob": min(0.0, math.log(probabilities[token]))}
            for token in order
        ]
        for entry in top:
            if entry["logprob"] < LEAST_LOGPROB:
                entry["logprob"] = LOWEST
        answer: dict[str, Any] = {
            "stop_type": "eos" if generated == self.end else "limit",
            "tokens_evaluated": len(ids),
            "truncated": False,
        }
        if generated not in self.within_character:
            answer["completion_probabilities"] = [{"id": generated, "logprob": -1.0, "top_logprobs": top}]
        return answer
