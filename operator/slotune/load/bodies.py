"""What goes over the wire for each entry of a trace: path and JSON body.

Synthetic prompts go to ``/completion`` as token ids (no template, no tokenizer on either side), raw text
to ``/completion``, messages to ``/v1/chat/completions``. ``cache_prompt`` is not sent: it is a setting of the
candidate (``--no-cache-prompt``), and a request that names it would overrule the server.

Token ids come from the middle half of the vocabulary, because special tokens sit at its ends. Prefix and
suffix depend on the run's seed and on the entry alone, so every candidate reads the same prompts and no
run finds those of another in a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.lengths import DemandError
from slotune.load.sharing import marked, shared_lengths
from slotune.load.trace import TraceEntry

__all__ = ["CHAT_PATH", "COMPLETION_PATH", "Bodies"]

COMPLETION_PATH = "/completion"
CHAT_PATH = "/v1/chat/completions"

_LAST_EVENT_FIELDS = ("content", "tokens", "stop", "stop_type", "truncated", "timings")
"""Asked of the last event of /completion, which otherwise repeats the prompt and every setting."""

_LEAST_VOCABULARY = 64


class Bodies:
    """Makes the requests of one run. Call it with an entry."""

    def __init__(self, demand: Demand, *, seed: int, vocabulary: int | None, model: str = "") -> None:
        """``vocabulary``: tokens of the model (``meta.n_vocab`` of /v1/models); only synthetic prompts need it.

        Raises:
            DemandError: the vocabulary is missing or too small to draw from.
        """
        self._demand = demand
        self._seed = seed
        self._model = model
        self._prefixes: dict[int, bytes] = {}
        self._shared: Sequence[int] = shared_lengths(demand.prompts)
        self._tokens = (0, 0)
        if demand.synthetic is not None:
            if vocabulary is None or vocabulary < _LEAST_VOCABULARY:
                raise DemandError(
                    f"vocabulary is {vocabulary}: synthetic prompts need the model's number of tokens, "
                    f"at least {_LEAST_VOCABULARY} (meta.n_vocab of /v1/models); or give real prompts"
                )
            self._tokens = (vocabulary // 4, vocabulary - vocabulary // 4)

    def __call__(self, entry: TraceEntry) -> tuple[str, bytes]:
        """Return the path and the body of one request."""
        synthetic = self._demand.synthetic
        if synthetic is not None:
            return COMPLETION_PATH, self._synthetic(synthetic, entry)
        prompt = self._demand.prompts[entry.prompt_id]
        prompt = marked(prompt, self._shared[entry.prompt_id], f" {entry.nonce:016x} ")
        return self._real(prompt, entry.max_tokens)

    def uncached(self, entry: TraceEntry) -> tuple[str, bytes]:
        """Return a request of the same length that shares nothing with any other."""
        synthetic = self._demand.synthetic
        if synthetic is not None:
            length = entry.input_tokens or synthetic.input_tokens_mean
            return COMPLETION_PATH, self._join(self._ids(entry.nonce, length), entry.max_tokens)
        prompt = marked(self._demand.prompts[entry.prompt_id], 0, f"{entry.nonce:016x} ")
        return self._real(prompt, entry.max_tokens)

    def prefix_ids(self, group: int) -> list[int]:
        """Return the token ids that all synthetic prompts of one group begin with; none where nothing is shared."""
        synthetic = self._demand.synthetic
        if synthetic is None or not synthetic.shared_prefix_tokens:
            return []
        ids: list[int] = orjson.loads(b"[" + self._ids((self._seed, group), synthetic.shared_prefix_tokens) + b"]")
        return ids

    def _synthetic(self, synthetic: SyntheticPrompts, entry: TraceEntry) -> bytes:
        assert entry.input_tokens is not None
        if entry.prefix_group is None:
            return self._join(self._ids(entry.nonce, entry.input_tokens), entry.max_tokens)
        shared = synthetic.shared_prefix_tokens
        prefix = self._prefixes.get(entry.prefix_group)
        if prefix is None:
            prefix = self._ids((self._seed, entry.prefix_group), shared)
            self._prefixes[entry.prefix_group] = prefix
        suffix = self._ids(entry.nonce, entry.input_tokens - shared)
        return self._join(prefix + b"," + suffix, entry.max_tokens)

    def _ids(self, entropy: int | tuple[int, int], count: int) -> bytes:
        """Return ``count`` token ids, joined by commas."""
        rng = np.random.default_rng(entropy)
        ids = rng.integers(*self._tokens, size=count, dtype=np.int32)
        return orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]

    def _join(self, ids: bytes, max_tokens: int) -> bytes:
        return b'{"prompt":[' + ids + b"]," + orjson.dumps(self._completion(max_tokens))[1:]

    def _completion(self, max_tokens: int) -> dict[str, Any]:
        return {
            **dict(self._demand.sampling),
            "n_predict": max_tokens,
            "ignore_eos": self._demand.ignore_eos,
            "stream": True,
            "response_fields": _LAST_EVENT_FIELDS,
        }

    def _real(self, prompt: Prompt, max_tokens: int) -> tuple[str, bytes]:
        if prompt.text is not None:
            return COMPLETION_PATH, orjson.dumps({**self._completion(max_tokens), "prompt": prompt.text})
        body = {
            **dict(self._demand.sampling),
            "messages": prompt.messages,
            "max_tokens": max_tokens,
            "ignore_eos": self._demand.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._model:
            body["model"] = self._model
        return CHAT_PATH, orjson.dumps(body)
