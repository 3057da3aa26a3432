"""What a server says of its sampling and its template is kept as facts: no text of a user comes along."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.llama.sampling_values import NUMBERS, SIZES, WORDS, sampling_values
from slotune.llama.server_answers import MalformedAnswerError, parse_metrics, parse_model, parse_props, parse_slots
from slotune.llama.template_facts import template_facts

PROPS = {"default_generation_settings": {"n_ctx": 512, "params": {}}, "total_slots": 4}


def test_parameters_keep_their_names_and_numbers() -> None:
    params = {"repeat_penalty": 1.1, "n_probs": 5, "backend_sampling": True, "samplers": ["top_k", "min_p"], "seed": 7}
    want = {"repeat_penalty": 1.1, "n_probs": 5, "backend_sampling": True, "samplers": ("top_k", "min_p")}
    assert sampling_values(params) == want


def test_texts_are_kept_as_their_length() -> None:
    params = {"grammar": "root ::= .*", "json_schema": {"a": 1}, "stop": ["x", "y"], "logit_bias": [], "lora": None}
    assert sampling_values(params) == {"grammar": 11, "json_schema": 1, "stop": 2, "logit_bias": 0, "lora": 0}


@given(
    st.dictionaries(
        st.sampled_from(sorted(NUMBERS | SIZES | WORDS | {"samplers", "prompt", "model"})),
        st.just("Ärztin 🩺 says") | st.lists(st.just("Ärztin 🩺 says")) | st.integers() | st.none(),
    )
)
def test_no_text_of_a_user_is_kept(params: dict[str, object]) -> None:
    assert "rztin" not in repr(sampling_values(params))


@pytest.mark.parametrize(
    ("text", "want", "every_s"),
    [
        ("{{ messages }}", (), None),
        ("{{ strftime_now('%d %b %Y') }}", ("%d %b %Y",), 86400.0),
        ('{{ strftime_now("%H:%M") }}', ("%H:%M",), 60.0),
        ("{{ strftime_now('%Y-%m-%dT%H:%M:%S') }}", ("%Y-%m-%dT%H:%M:%S",), 1.0),
        ("{% if strftime_now is defined %}{{ strftime_now('%d') }}{% endif %}", ("%d",), 86400.0),
        ("{{ strftime_now(format) }}", ("?",), None),
    ],
)
def test_a_template_that_writes_the_time_says_how_often_it_changes(
    text: str, want: tuple[str, ...], every_s: float | None
) -> None:
    facts = template_facts(text)
    assert (facts.clock, facts.changes_every_s) == (want, every_s)


def test_a_template_that_drops_earlier_reasoning_is_told() -> None:
    facts = template_facts("{% set content = content.split('</think>')[-1] %}")
    assert facts.drops_reasoning
    assert facts.sentence.startswith("49 characters (sha256 ")
    assert facts.sentence.endswith("), leaves out the reasoning of earlier turns")


def test_props_of_a_build_without_these_have_none() -> None:
    props = parse_props(PROPS)
    assert (props.sampling, props.template, props.sleeping) == ({}, None, False)


def test_a_slot_has_the_numbers_of_its_task() -> None:
    entry = {
        "id": 0,
        "n_ctx": 8,
        "is_processing": True,
        "id_task": 3,
        "n_prompt_tokens": 700,
        "n_prompt_tokens_cache": 650,
        "params": {"top_k": 40},
    }
    (slot,) = parse_slots([entry])
    assert (slot.task, slot.prompt_tokens, slot.cached_tokens, slot.sampling) == (3, 700, 650, {"top_k": 40})


@pytest.mark.parametrize("number", ["1e999", "1e308", "-1e308", "9223372036854775807"])
def test_a_number_too_large_for_a_number_is_no_answer_of_ours(number: str) -> None:
    body = json.loads('{"default_generation_settings": {"n_ctx": NUMBER}, "total_slots": 1}'.replace("NUMBER", number))
    with pytest.raises(MalformedAnswerError):
        parse_props(body)
    with pytest.raises(MalformedAnswerError):
        parse_slots([{"id": 0, "n_ctx": body["default_generation_settings"]["n_ctx"], "is_processing": False}])
    entry = {"id": "m", "meta": {"size": json.loads(number), "n_params": 7}}
    assert (parse_model({"data": [entry]}).size_bytes, parse_model({"data": [entry]}).parameters) == (None, 7)


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_props_are_either_understood_or_refused(inner: object) -> None:
    for body in (inner, {**PROPS, "default_generation_settings": inner}, {**PROPS, "chat_template": inner}):
        with contextlib.suppress(MalformedAnswerError):
            parse_props(body)


@pytest.mark.parametrize("prefix", ["llamacpp:", "llamacpp_", ""])
def test_metrics_have_one_name_whatever_stands_before_it(prefix: str) -> None:
    assert parse_metrics(f"{prefix}requests_deferred 7\n").deferred == 7


@pytest.mark.parametrize("value", ["-7", "-0.5", "nan", "-nan", "+Inf", "-Inf", "1e300"])
def test_a_sample_that_can_not_be_true_is_none_and_is_kept_as_it_came(value: str) -> None:
    metrics = parse_metrics(f"llamacpp:requests_deferred {value}\nllamacpp:requests_processing 1\n")
    assert (metrics.deferred, metrics.processing) == (None, 1)
    assert metrics.unusable == {"requests_deferred": value}
