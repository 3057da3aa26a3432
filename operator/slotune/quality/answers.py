"""What a llama-server's /completion says about the next token. Reading only, no network.

Since December 2024 (ggml-org/llama.cpp#10783) the list has token ids and logprobs before sampling; older builds list
pieces of text with probabilities after sampling, which can't be compared, so they are refused. A probability that is
zero in 32 bits is written as the lowest float, one that is no number as null.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from slotune.quality.coarse import LEAST_LOGPROB, Likeliest
from slotune.quality.errors import DamagedAnswerError, UnfitServerError

__all__ = ["RESPONSE_FIELDS", "NextToken", "read_next_token", "withheld"]

RESPONSE_FIELDS = ("completion_probabilities", "stop_type", "stopped_eos", "tokens_evaluated", "truncated")
"""Asked of /completion: the rest repeats the prompt and every setting, some 2 kB each time."""

_OLD_BUILD = (
    "the server lists no token ids with its probabilities: its build is older than December 2024; use a newer image"
)


@dataclass(frozen=True, slots=True)
class NextToken:
    """The likeliest tokens after a prompt."""

    listed: Likeliest
    ended: bool
    """Whether the likeliest one ends the answer."""


def read_next_token(body: Any, *, asked: int, sent: int) -> NextToken:
    """Read an answer of /completion to a prompt of ``sent`` tokens with ``n_probs`` of ``asked``.

    Raises:
        UnfitServerError: no probabilities, another number of them, or not of the prompt that was sent.
        DamagedAnswerError: what is listed are no probabilities.
    """
    if not isinstance(body, dict):
        raise UnfitServerError("the server answered /completion with something else than an object")
    evaluated = body.get("tokens_evaluated", sent)
    if body.get("truncated") is True or evaluated != sent:
        raise UnfitServerError(f"the server read {evaluated} of {sent} prompt tokens: it cut or changed the prompt")
    entries = _listed(body)
    if len(entries) < asked:
        raise UnfitServerError(
            f"the server listed {len(entries)} tokens of the {asked} that were asked for: "
            "something between here and it keeps them back, or its build does"
        )
    listed = _likeliest(entries[:asked])
    ended = body.get("stop_type") == "eos" or body.get("stopped_eos") is True
    return NextToken(listed, ended)


def withheld(body: Any) -> bool:
    """Whether an answer has no probabilities at all, as when its token ends within a character."""
    return isinstance(body, dict) and not body.get("completion_probabilities")


def _listed(body: dict[str, Any]) -> list[Any]:
    positions = body.get("completion_probabilities")
    if not isinstance(positions, list) or not positions or not isinstance(positions[0], dict):
        raise UnfitServerError("the server answered without probabilities although n_probs asked for them")
    listed = positions[0].get("top_logprobs")
    if listed is None and ("probs" in positions[0] or "top_probs" in positions[0]):
        raise UnfitServerError(_OLD_BUILD)
    if not isinstance(listed, list):
        raise UnfitServerError("the server answered without probabilities although n_probs asked for them")
    return listed


def _likeliest(entries: list[Any]) -> Likeliest:
    tokens, logprobs = [], []
    for entry in entries:
        token = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(token, int) or isinstance(token, bool):
            raise UnfitServerError(_OLD_BUILD)
        logprob = entry.get("logprob")
        if not isinstance(logprob, int | float) or isinstance(logprob, bool) or math.isnan(logprob):
            raise DamagedAnswerError("the model's logprobs are no numbers: its weights or its KV cache are damaged")
        tokens.append(token)
        logprobs.append(max(LEAST_LOGPROB, float(logprob)))
    try:
        return Likeliest(tuple(tokens), tuple(logprobs))
    except ValueError as error:
        raise DamagedAnswerError(f"the model's logprobs are no probabilities: {error}") from error
