"""Walks a server through the reference's answers, one token at a time, and writes down what it expected at each.

llama-server gives logprobs for tokens that it generates, never for those of a prompt, so the prompt is sent again for
every position, one token longer, and one token is asked for. The slot's cache holds all but that token, so a position
costs one decode and one HTTP exchange, not a prefill. Recording takes the very same steps, so that the reference
compared with itself shows the noise of the procedure and nothing else.

One position at a time, in one slot: batches of other shapes round differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import orjson

from slotune.llama.server_http import LlamaServer, RefusedRequestError
from slotune.load.target import Target
from slotune.quality.answers import RESPONSE_FIELDS, NextToken, read_next_token, withheld
from slotune.quality.coarse import Likeliest, kept
from slotune.quality.divergence import Divergence, PositionFacts, compare_position, summarise
from slotune.quality.errors import (
    ContextTooSmallError,
    OtherModelError,
    TooFewPromptsError,
    UnfitServerError,
)
from slotune.quality.limits import QualitySettings
from slotune.quality.prompts import LEAST_PROMPTS, QualityPrompt
from slotune.quality.reference import BYTES_MAX, Reference, Walk

__all__ = ["Listener", "compare", "record_reference"]

Listener = Callable[[int, int], None]
"""Hears after each position how many are done, and how many there are at most."""

_TOKENIZED = "The 3 quick foxes' naïve café, 中文, Ω≈π: x[i] += 0x7F;\n\tif (done) { return -12.5e3; }  🙂 \u00a0"
"""Words, numbers, scripts, code, blanks and an emoji: two tokenizers hardly agree on all of it."""


_CERTAIN = 10_000.0
"""Added to a logit so that no other can exceed it."""


@dataclass(frozen=True, slots=True)
class _Identity:
    vocabulary: int
    tokenizer: str
    build: str
    context: int


async def record_reference(
    target: Target,
    prompts: Sequence[QualityPrompt],
    settings: QualitySettings,
    listener: Listener | None = None,
    *,
    model: str = "",
    cache_types: tuple[str, str] = ("f16", "f16"),
    bytes_max: int = BYTES_MAX,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Reference:
    """Let the server answer each prompt greedily and keep what it expected at each position.

    Prompts that its context does not hold are left out, and the last ones if the reference would not fit into
    ``bytes_max``: ``walks`` is then shorter than ``prompts_asked``.

    Args:
        target: A server of the reference pair that serves nobody else.
        prompts: From ``quality_prompts``.
        settings: How many tokens of each answer, how many likeliest tokens, how long to wait.
        listener: Hears how far it is.
        model: Identity of the weights.
        cache_types: KV cache types that the server runs with.
        bytes_max: Size that ``Reference.to_bytes`` must not exceed.
        transport: Replaces the network in tests.

    Raises:
        TooFewPromptsError: fewer than two prompts are left.
        UnfitServerError: the server can't be asked for this.
        DamagedAnswerError: the reference's own probabilities are none.
        ServerError: the server refused, was too slow or went away.
    """
    async with _server(target, settings, transport) as server:
        identity = await _identify(server)
        top = min(settings.top, identity.vocabulary)
        starts = [await _token_ids(server, prompt) for prompt in prompts]
        fitting = [start for start in starts if start and len(start) + settings.steps <= identity.context]
        if len(fitting) < LEAST_PROMPTS:
            raise TooFewPromptsError(
                f"{len(fitting)} of {len(starts)} prompts fit into a context of {identity.context} tokens: quality "
                f'needs at least {LEAST_PROMPTS}; raise contextSizePerSlot, add shorter prompts, or set it to "Off"'
            )
        walks = []
        for number, start in enumerate(fitting):
            walks.append(await _answered(server, start, settings.steps, top))
            if listener is not None:
                listener((number + 1) * settings.steps, len(fitting) * settings.steps)
    whole = Reference(
        walks=tuple(walks),
        top=top,
        vocabulary=identity.vocabulary,
        tokenizer=identity.tokenizer,
        model=model,
        cache_types=cache_types,
        build=identity.build,
        prompts_asked=settings.prompts,
    )
    return _within(whole, bytes_max)


async def compare(
    target: Target,
    reference: Reference,
    settings: QualitySettings,
    listener: Listener | None = None,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Divergence:
    """Walk the server through the reference's answers and say how far its expectations lie from them.

    Of ``settings`` only the confidence and the time-out count: the rest is what was recorded.

    Raises:
        OtherModelError: vocabulary or tokenizer differ: this is no quantization of the same model.
        ContextTooSmallError: the longest prompt does not fit.
        DamagedAnswerError: the candidate's probabilities are none.
        UnfitServerError: the server can't be asked for this.
        ServerError: the server refused, was too slow or went away.
    """
    facts: list[PositionFacts] = []
    async with _server(target, settings, transport) as server:
        identity = await _identify(server)
        _check_same_model(reference, identity)
        if identity.context < reference.longest:
            raise ContextTooSmallError(reference.longest, identity.context)
        for number, walk in enumerate(reference.walks):
            for step, expected in enumerate(walk.positions):
                ids = walk.prompt + walk.answer[:step]
                found = (await _next_token(server, ids, reference.top)).listed
                if max(found.tokens) >= reference.vocabulary:
                    raise OtherModelError(
                        f"the server expects token {max(found.tokens)}, and the reference knows "
                        f"{reference.vocabulary} tokens: it is another model, so answers can't be compared"
                    )
                facts.append(compare_position(number, expected, found))
                if listener is not None:
                    listener(len(facts), reference.positions)
    return summarise(facts, reference.digest, settings.confidence)


def _server(target: Target, settings: QualitySettings, transport: httpx.AsyncBaseTransport | None) -> LlamaServer:
    return LlamaServer(
        target.url(""), api_key=target.api_key, timeout_s=settings.request_timeout_s, transport=transport
    )


async def _identify(server: LlamaServer) -> _Identity:
    props = await server.props()
    vocabulary = (await server.model()).vocabulary
    if not vocabulary:
        raise UnfitServerError(
            "the server does not say how many tokens its model knows (meta.n_vocab of /v1/models), so another model "
            "could not be told from a quantized one; use a newer image"
        )
    ids = await _tokenized(server, _TOKENIZED, special=False)
    tokenizer = hashlib.sha256(orjson.dumps(ids)).hexdigest()[:16]
    return _Identity(vocabulary, tokenizer, props.build, props.context_per_slot)


def _check_same_model(reference: Reference, identity: _Identity) -> None:
    if identity.vocabulary != reference.vocabulary:
        raise OtherModelError(
            f"the model knows {identity.vocabulary} tokens and the reference {reference.vocabulary}: it is another "
            "model, not a quantization of the same one, so answers can't be compared; offer it in a deployment of its "
            "own"
        )
    if identity.tokenizer != reference.tokenizer:
        raise OtherModelError(
            "the model's tokenizer cuts the same text into other tokens than the reference's: it is another model, or "
            "its file was converted differently, so answers can't be compared; offer it in a deployment of its own, or "
            "convert both files in the same way"
        )


async def _token_ids(server: LlamaServer, prompt: QualityPrompt) -> tuple[int, ...]:
    """What llama-server itself would make of this prompt."""
    if isinstance(prompt, tuple):
        return prompt
    text = prompt.text
    if text is None:
        answer = await _asked(server, "/apply-template", {"messages": prompt.messages})
        text = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise UnfitServerError("the server answered /apply-template without a prompt")
    return await _tokenized(server, text, special=True)


async def _tokenized(server: LlamaServer, text: str, *, special: bool) -> tuple[int, ...]:
    body = {"content": text, "add_special": special, "parse_special": special}
    answer = await _asked(server, "/tokenize", body)
    ids = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
        raise UnfitServerError("the server answered /tokenize without token ids")
    return tuple(ids)


async def _asked(server: LlamaServer, path: str, body: object) -> object:
    try:
        return await server.post(path, orjson.dumps(body))
    except RefusedRequestError as error:
        if error.status in (404, 501):
            raise UnfitServerError(f"the server has no {path}: its build is too old; use a newer image") from error
        raise


async def _answered(server: LlamaServer, prompt: tuple[int, ...], steps: int, top: int) -> Walk:
    answer: list[int] = []
    positions: list[Likeliest] = []
    while len(answer) < steps:
        found = await _next_token(server, prompt + tuple(answer), top)
        positions.append(kept(found.listed))
        answer.append(found.listed.tokens[0])
        if found.ended:
            break
    return Walk(prompt, tuple(answer), tuple(positions))


async def _next_token(server: LlamaServer, ids: tuple[int, ...], top: int) -> NextToken:
    """What the server expects after ``ids``.

    Where it generates a token that ends within a character, which is every few positions of Chinese or emoji, it keeps
    text and probabilities back. It is then asked again and made to generate a plain letter: the probabilities are those
    before sampling, so what is generated does not change them.
    """
    body = {
        "prompt": ids,
        "n_predict": 1,
        "n_probs": top,
        "post_sampling_probs": False,
        "temperature": 0,
        "ignore_eos": False,
        "cache_prompt": True,
        "id_slot": 0,
        "response_fields": RESPONSE_FIELDS,
    }
    answer = await _completed(server, body)
    if withheld(answer):
        letter = (await _tokenized(server, "a", special=False))[-1:]
        answer = await _completed(server, {**body, "logit_bias": [[token, _CERTAIN] for token in letter]})
    return read_next_token(answer, asked=top, sent=len(ids))


async def _completed(server: LlamaServer, body: dict[str, Any]) -> object:
    try:
        return await server.post("/completion", orjson.dumps(body))
    except RefusedRequestError as error:
        if error.kind == "exceed_context_size_error":
            raise ContextTooSmallError(len(body["prompt"])) from error
        raise


def _within(reference: Reference, bytes_max: int) -> Reference:
    """Fewer prompts, as many as fit."""
    size = len(reference.to_bytes())
    while size > bytes_max and len(reference.walks) > LEAST_PROMPTS:
        share = bytes_max / size
        count = max(LEAST_PROMPTS, min(len(reference.walks) - 1, int(len(reference.walks) * share)))
        reference = replace(reference, walks=reference.walks[:count])
        size = len(reference.to_bytes())
    if size > bytes_max:
        raise TooFewPromptsError(
            f"the reference of {len(reference.walks)} prompts takes {size} bytes, and {bytes_max} can be kept: "
            "add shorter prompts to the workload, or ask for fewer steps"
        )
    return reference
