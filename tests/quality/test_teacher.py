"""A server is walked through what the reference answered, and only ever compared with its own kind."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from slotune.llama.server_http import RefusedRequestError, ServerBusyError, ServerUnreachableError
from slotune.load.demand import Prompt
from slotune.load.target import Target
from slotune.quality.divergence import Divergence
from slotune.quality.errors import (
    ContextTooSmallError,
    DamagedAnswerError,
    OtherModelError,
    TooFewPromptsError,
    UnfitServerError,
)
from slotune.quality.limits import QualitySettings
from slotune.quality.prompts import QualityPrompt
from slotune.quality.reference import Reference
from slotune.quality.teacher import compare, record_reference
from tests.quality.toy_server import LOWEST, ToyServer

TARGET = Target("http://127.0.0.1:1")
SETTINGS = QualitySettings(prompts=6, steps=5, top=16)
PROMPTS: tuple[QualityPrompt, ...] = tuple((10 + number, 20 + number, 30 + number) for number in range(6))
SECRET = "the secret of the house"


async def recorded(server: ToyServer, prompts: tuple[QualityPrompt, ...] = PROMPTS, **changes: Any) -> Reference:
    return await record_reference(TARGET, prompts, SETTINGS, transport=server.transport, **changes)


async def compared(server: ToyServer, reference: Reference) -> Divergence:
    return await compare(TARGET, reference, SETTINGS, transport=server.transport)


async def test_the_reference_differs_from_itself_by_nothing() -> None:
    reference = await recorded(ToyServer())
    divergence = await compared(ToyServer(), reference)
    assert (divergence.mean_kld, divergence.kld_upper, divergence.top1) == (0.0, 0.0, 1.0)
    assert divergence.perplexity_ratio == pytest.approx(1.0)
    assert (divergence.prompts, divergence.positions) == (6, reference.positions)
    assert divergence.reference_digest == reference.digest


async def test_more_noise_is_further_away_and_never_further_than_it_is() -> None:
    reference = await recorded(ToyServer())
    last = 0.0
    for noise in (0.05, 0.2, 0.8):
        server = ToyServer(noise=noise)
        divergence = await compared(server, reference)
        truth = []
        for walk in reference.walks:
            for step in range(len(walk.answer)):
                ids = list(walk.prompt + walk.answer[:step])
                p, q = ToyServer().probabilities(ids), server.probabilities(ids)
                truth.append(float(np.sum(p * np.log(p / q))))
        assert last < divergence.mean_kld <= np.mean(truth)
        last = divergence.mean_kld


async def test_each_position_adds_the_references_token_and_asks_for_one() -> None:
    server = ToyServer()
    reference = await recorded(server)
    candidate = ToyServer(noise=2.0)
    await compared(candidate, reference)
    assert [body["prompt"] for body in candidate.bodies] == [body["prompt"] for body in server.bodies]
    walk = reference.walks[0]
    for step in range(len(walk.answer)):
        body = candidate.bodies[step]
        assert tuple(body["prompt"]) == walk.prompt + walk.answer[:step]
        assert {name: body[name] for name in ("n_predict", "n_probs", "temperature", "cache_prompt", "id_slot")} == {
            "n_predict": 1,
            "n_probs": 16,
            "temperature": 0,
            "cache_prompt": True,
            "id_slot": 0,
        }
        assert body["post_sampling_probs"] is False


async def test_an_answer_ends_where_the_reference_ends_it() -> None:
    reference = await recorded(ToyServer(), ((1, 2, 5), (1, 5), (9, 9, 9)))
    assert [walk.answer for walk in reference.walks[:2]] == [(3,), (3,)]


async def test_chats_and_texts_become_the_tokens_that_the_server_makes_of_them() -> None:
    server = ToyServer()
    chat = Prompt(messages=({"role": "user", "content": "Hi"},))
    reference = await recorded(server, (chat, Prompt(text="Once")))
    assert reference.walks[0].prompt == tuple(ord(letter) * 7 % 96 for letter in "<user>Hi")
    assert reference.walks[1].prompt == tuple(ord(letter) * 7 % 96 for letter in "Once")


async def test_prompts_that_do_not_fit_are_left_out_and_counted() -> None:
    reference = await recorded(ToyServer(context=8), (*PROMPTS[:3], tuple(range(4, 10))))
    assert (len(reference.walks), reference.prompts_asked) == (3, 6)
    with pytest.raises(TooFewPromptsError, match=r"0 of 6 prompts fit into a context of 7"):
        await recorded(ToyServer(context=7))


async def test_what_does_not_fit_into_the_bytes_is_left_out() -> None:
    whole = await recorded(ToyServer())
    size = len(whole.to_bytes())
    part = await recorded(ToyServer(), bytes_max=size * 2 // 3)
    assert 2 <= len(part.walks) < len(whole.walks)
    assert len(part.to_bytes()) <= size * 2 // 3
    assert part.walks == whole.walks[: len(part.walks)]
    with pytest.raises(TooFewPromptsError, match="bytes"):
        await recorded(ToyServer(), bytes_max=100)


async def test_a_token_that_ends_within_a_character_is_asked_for_again() -> None:
    plain = await recorded(ToyServer())
    tokens = frozenset(token for walk in plain.walks for token in walk.answer[:2])
    server = ToyServer(within_character=tokens)
    assert await recorded(server) == plain
    assert any("logit_bias" in body for body in server.bodies)
    assert (await compared(ToyServer(within_character=tokens), plain)).mean_kld == 0


async def test_another_vocabulary_is_another_model() -> None:
    reference = await recorded(ToyServer())
    with pytest.raises(OtherModelError, match=r"knows 128 tokens and the reference 96: it is another model"):
        await compared(ToyServer(vocabulary=128), reference)


async def test_another_tokenizer_is_another_model() -> None:
    reference = await recorded(ToyServer())
    server = ToyServer(tokenizer=11)
    with pytest.raises(OtherModelError, match="cuts the same text into other tokens"):
        await compared(server, reference)
    assert "/completion" not in server.paths


async def test_a_token_beyond_the_vocabulary_is_another_model() -> None:
    def beyond(path: str, _: dict[str, Any], answer: Any) -> Any:
        if path == "/completion":
            answer["completion_probabilities"][0]["top_logprobs"][0]["id"] = 5000
        return answer

    reference = await recorded(ToyServer())
    with pytest.raises(OtherModelError, match="expects token 5000"):
        await compared(ToyServer(change=beyond), reference)


async def test_a_context_that_is_too_small_is_named() -> None:
    reference = await recorded(ToyServer())
    with pytest.raises(ContextTooSmallError, match=r"needs a context of 8 tokens .* has 7"):
        await compared(ToyServer(context=7), reference)


def completion(change: Any) -> Any:
    """A change of what /completion answers, and of nothing else."""
    return lambda path, _, answer: change(answer) if path == "/completion" else answer


def without_probabilities(answer: Any) -> Any:
    return {name: value for name, value in answer.items() if name != "completion_probabilities"}


def fewer(answer: Any) -> Any:
    answer["completion_probabilities"][0]["top_logprobs"] = answer["completion_probabilities"][0]["top_logprobs"][:5]
    return answer


def more(answer: Any) -> Any:
    listed = answer["completion_probabilities"][0]["top_logprobs"]
    listed.append({**listed[-1], "id": next(number for number in range(96) if number not in {e["id"] for e in listed})})
    return answer


def old(answer: Any) -> Any:
    return {**answer, "completion_probabilities": [{"content": " a", "probs": [{"tok_str": " a", "prob": 0.5}]}]}


def nulls(answer: Any) -> Any:
    for entry in answer["completion_probabilities"][0]["top_logprobs"]:
        entry["logprob"] = None
    return answer


def cut(answer: Any) -> Any:
    return {**answer, "tokens_evaluated": answer["tokens_evaluated"] - 1}


@pytest.mark.parametrize(
    ("change", "error", "want"),
    [
        pytest.param(without_probabilities, UnfitServerError, "without probabilities", id="no probabilities"),
        pytest.param(fewer, UnfitServerError, "listed 5 tokens of the 16", id="fewer probabilities"),
        pytest.param(old, UnfitServerError, "older than December 2024", id="the fields of old builds"),
        pytest.param(nulls, DamagedAnswerError, "damaged", id="no numbers"),
        pytest.param(cut, UnfitServerError, r"read 2 of 3 prompt tokens", id="a prompt that was cut"),
        pytest.param(lambda _: [], UnfitServerError, "something else", id="a list"),
    ],
)
async def test_answers_that_cannot_be_used_are_refused(change: Any, error: type[Exception], want: str) -> None:
    reference = await recorded(ToyServer())
    with pytest.raises(error, match=want):
        await compared(ToyServer(change=completion(change)), reference)


async def test_more_probabilities_than_were_asked_for_change_nothing() -> None:
    reference = await recorded(ToyServer())
    assert (await compared(ToyServer(change=completion(more)), reference)).mean_kld == 0


async def test_a_probability_of_zero_is_a_large_divergence_and_no_error() -> None:
    def certain(answer: Any) -> Any:
        for number, entry in enumerate(answer["completion_probabilities"][0]["top_logprobs"]):
            entry["logprob"] = LOWEST if number else 0.0
        return answer

    reference = await recorded(ToyServer())
    divergence = await compared(ToyServer(change=completion(certain)), reference)
    assert 10 < divergence.mean_kld < 110
    assert math.isfinite(divergence.kld_upper)


async def test_an_error_of_the_server_is_told_without_what_was_sent() -> None:
    def refuse(path: str, _: dict[str, Any], answer: Any) -> Any:
        error = {"error": {"code": 500, "message": f"cannot parse {SECRET}", "type": "server_error"}}
        return httpx.Response(500, json=error) if path == "/apply-template" else answer

    prompts = tuple(Prompt(messages=({"role": "user", "content": f"{SECRET} {number}"},)) for number in range(2))
    with pytest.raises(RefusedRequestError) as failure:
        await recorded(ToyServer(change=refuse), prompts)
    assert (failure.value.status, failure.value.kind) == (500, "server_error")
    assert SECRET not in str(failure.value)


async def test_a_build_without_templates_is_too_old() -> None:
    gone = httpx.Response(404, json={"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})
    server = ToyServer(change=lambda path, _, answer: gone if path == "/apply-template" else answer)
    with pytest.raises(UnfitServerError, match="/apply-template: its build is too old"):
        await recorded(server, tuple(Prompt(messages=({"role": "user", "content": word},)) for word in ("a", "b")))


async def test_a_server_that_does_not_tell_its_vocabulary_is_too_old() -> None:
    server = ToyServer(change=lambda path, _, answer: {"data": [{"id": "toy"}]} if path == "/v1/models" else answer)
    with pytest.raises(UnfitServerError, match="n_vocab"):
        await recorded(server)


@pytest.mark.parametrize(
    ("failure", "want"),
    [
        pytest.param(httpx.ReadTimeout("slow"), ServerBusyError, id="too slow"),
        pytest.param(httpx.ConnectError("gone"), ServerUnreachableError, id="gone"),
    ],
)
async def test_a_server_that_goes_away_is_no_verdict(failure: Exception, want: type[Exception]) -> None:
    def fail(path: str, body: dict[str, Any], answer: Any) -> Any:
        if path == "/completion" and len(body["prompt"]) > 4:
            raise failure
        return answer

    reference = await recorded(ToyServer())
    with pytest.raises(want):
        await compared(ToyServer(change=fail), reference)


async def test_it_tells_how_far_it_is() -> None:
    heard: list[tuple[int, int]] = []
    reference = await record_reference(
        TARGET, PROMPTS, SETTINGS, lambda *told: heard.append(told), transport=ToyServer().transport
    )
    assert heard[-1] == (30, 30)
    heard.clear()
    await compare(TARGET, reference, SETTINGS, lambda *told: heard.append(told), transport=ToyServer().transport)
    assert heard == [(done, reference.positions) for done in range(1, reference.positions + 1)]


async def test_a_small_vocabulary_is_listed_whole() -> None:
    reference = await record_reference(
        TARGET, PROMPTS, replace(SETTINGS, top=500), transport=ToyServer(vocabulary=90).transport
    )
    assert reference.top == 90


async def test_a_key_is_sent_with_each_call() -> None:
    keys: set[str | None] = set()
    server = ToyServer()

    def answer(request: httpx.Request) -> httpx.Response:
        keys.add(request.headers.get("Authorization"))
        return server.transport.handle_request(request)

    await record_reference(replace(TARGET, api_key="k"), PROMPTS[:2], SETTINGS, transport=httpx.MockTransport(answer))
    assert keys == {"Bearer k"}
