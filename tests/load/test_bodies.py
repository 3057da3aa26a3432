"""What is sent: prompts that share what was declared and nothing else, and options that leave the candidate alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotune.load.bodies import Bodies
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.lengths import DemandError
from slotune.load.trace import build_trace

SHARED = Demand(
    peak_rate=1.0,
    output_tokens=9,
    synthetic=SyntheticPrompts(40, 5, shared_prefix_tokens=16, prefix_groups=3),
    sampling=(("temperature", 0.0), ("top_k", 1)),
)


def made(demand: Demand, *, seed: int = 1, requests: int = 40, vocabulary: int | None = 4000) -> list[dict[str, Any]]:
    bodies = Bodies(demand, seed=seed, vocabulary=vocabulary, model="alias")
    entries = build_trace(demand, rate=1.0, seed=seed, requests=requests).entries
    return [json.loads(bodies(entry)[1]) for entry in entries]


def test_requests_of_a_group_share_its_prefix_and_nothing_more() -> None:
    entries = build_trace(SHARED, rate=1.0, seed=1, requests=40).entries
    prompts = [body["prompt"] for body in made(SHARED)]
    assert [len(prompt) for prompt in prompts] == [entry.input_tokens for entry in entries]
    prefixes = {(entry.prefix_group, tuple(prompt[:16])) for entry, prompt in zip(entries, prompts, strict=True)}
    assert len(prefixes) == 3
    assert len({tuple(prompt[16:19]) for prompt in prompts}) == 40


def test_no_prompt_of_one_run_starts_like_any_of_another() -> None:
    one, two = ({tuple(body["prompt"][:4]) for body in made(SHARED, seed=seed)} for seed in (1, 2))
    assert not one & two


def test_tokens_come_from_the_middle_half_of_the_vocabulary() -> None:
    tokens = [token for body in made(SHARED, vocabulary=4001) for token in body["prompt"]]
    assert min(tokens) >= 1000
    assert max(tokens) < 3001
    assert len(set(tokens)) > 700


def test_a_request_asks_for_what_was_declared_and_leaves_the_cache_to_the_server() -> None:
    body = made(SHARED, requests=1)[0]
    assert (body["n_predict"], body["stream"], body["ignore_eos"], body["top_k"]) == (9, True, True, 1)
    assert not {"cache_prompt", "n_probs", "logprobs", "timings_per_token", "return_progress"} & set(body)


def test_sampling_options_can_not_turn_the_stream_off() -> None:
    demand = Demand(peak_rate=1.0, output_tokens=2, prompts=(Prompt(text="a"),), sampling=(("stream", False),))
    assert made(demand, requests=1)[0]["stream"] is True


def test_a_prompt_that_is_sent_again_is_not_the_same_but_keeps_what_it_shares() -> None:
    prompts = (Prompt(text="You are kind. Cats?"), Prompt(text="You are kind. Dogs?"))
    texts = [body["prompt"] for body in made(Demand(peak_rate=1.0, output_tokens=2, prompts=prompts), requests=20)]
    assert len(set(texts)) == 20
    assert all(text.startswith("You are kind. ") for text in texts)
    assert len({text[14:24] for text in texts}) == 20


def test_messages_go_to_the_chat_endpoint_with_the_models_alias() -> None:
    demand = Demand(peak_rate=1.0, output_tokens=2, prompts=(Prompt(messages=({"role": "user", "content": "a"},)),))
    entry = build_trace(demand, rate=1.0, seed=1, requests=1).entries[0]
    path, body = Bodies(demand, seed=1, vocabulary=None, model="alias")(entry)
    assert path == "/v1/chat/completions"
    assert json.loads(body)["model"] == "alias"
    assert "model" not in json.loads(Bodies(demand, seed=1, vocabulary=None)(entry)[1])


def test_an_uncached_request_shares_nothing_at_its_start() -> None:
    bodies = Bodies(SHARED, seed=1, vocabulary=4000)
    entries = build_trace(SHARED, rate=1.0, seed=1, requests=20).entries
    prompts = [json.loads(bodies.uncached(entry)[1])["prompt"] for entry in entries]
    assert len({tuple(prompt[:3]) for prompt in prompts}) == 20
    assert [len(prompt) for prompt in prompts] == [entry.input_tokens for entry in entries]


@pytest.mark.parametrize("vocabulary", [None, 10])
def test_synthetic_prompts_need_a_vocabulary(vocabulary: int | None) -> None:
    with pytest.raises(DemandError, match=f"vocabulary is {vocabulary}"):
        Bodies(SHARED, seed=1, vocabulary=vocabulary)
