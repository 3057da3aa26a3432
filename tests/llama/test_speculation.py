"""Speculation is stated as each way of it takes it, read back as it was stated, and told apart from none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.build_arguments import unsupported
from slotune.llama.build_defaults import defaults_of
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass, classify_failure
from slotune.llama.flag_table import BY_NAME
from slotune.llama.flags import ConflictingArgumentError, ParsedServer, from_args, stated_twice, to_args
from slotune.llama.log_lines import parse_log
from slotune.llama.speculation import DRAFT_MODEL, KINDS, SPECULATION_FLAGS

BASE = Candidate("big", "l4", 2, 1024)
DRAFTING = replace(BASE, speculation=DRAFT_MODEL, draft="tiny")


def arguments(candidate: Candidate) -> list[str]:
    return to_args(
        candidate, model_path="/m/big.gguf", host="::1", port=1, alias="m", threads=2, draft_path="/m/tiny.gguf"
    )


def said_of(candidate: Candidate) -> str:
    words = arguments(candidate)
    start = words.index("--slots") + 1
    return " ".join(words[start : words.index("-lv")])


def read_back(words: list[str], build: int | None = None) -> ParsedServer:
    return from_args(words, variant="big", gpu_class="l4", defaults=defaults_of(build), drafts={"/m/tiny.gguf": "tiny"})


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({}, ""),
        ({"speculation": "ngram-cache"}, "--spec-type ngram-cache"),
        (
            {"speculation": "ngram-simple", "speculation_tokens": 16, "speculation_match": 8},
            "--spec-type ngram-simple --spec-ngram-simple-size-n 8 --spec-ngram-simple-size-m 16",
        ),
        (
            {"speculation": "ngram-mod", "speculation_tokens": 96},
            "--spec-type ngram-mod --spec-ngram-mod-n-max 96",
        ),
        (
            {"speculation": "ngram-mod", "speculation_tokens": 16},
            "--spec-type ngram-mod --spec-ngram-mod-n-max 16 --spec-ngram-mod-n-min 16",
        ),
        (
            {"speculation": DRAFT_MODEL, "draft": "tiny", "speculation_tokens": 5},
            "--spec-type draft-simple --spec-draft-model /m/tiny.gguf --spec-draft-ngl all --spec-draft-n-max 5",
        ),
        ({"backend_sampling": True}, "-bs"),
    ],
)
def test_each_way_has_flags_of_its_own(changes, want):
    assert said_of(replace(BASE, **changes)) == want


def test_a_draft_of_a_model_on_the_cpu_is_on_the_cpu():
    assert "--spec-draft-ngl 0" in said_of(replace(DRAFTING, gpu_layers="0"))


def test_llama_server_has_every_flag():
    assert set(SPECULATION_FLAGS) <= set(BY_NAME)


GUESSES = st.sampled_from([kind for kind in KINDS if kind != "none"]).flatmap(
    lambda way: st.builds(
        replace,
        st.just(BASE),
        speculation=st.just(way),
        draft=st.just("tiny" if way == DRAFT_MODEL else None),
        speculation_tokens=st.none() | st.integers(1, 1024) if KINDS[way].tokens else st.none(),
        speculation_match=st.none() | st.integers(1, 1024) if KINDS[way].match else st.none(),
        backend_sampling=st.booleans(),
        threads=st.just(2),
    )
)


@given(GUESSES)
def test_what_is_stated_is_read_back(candidate):
    assert read_back(arguments(candidate)).candidate == candidate


def test_a_draft_model_that_nobody_listed_is_passed_through():
    parsed = read_back(["-m", "/m/big.gguf", "-np", "2", "-c", "2048", "-md", "/m/other.gguf"])

    assert parsed.candidate is not None
    assert (parsed.candidate.speculation, parsed.candidate.draft) == ("none", None)
    assert parsed.extra_args == ("-md", "/m/other.gguf")


def test_numbers_of_a_way_that_the_server_does_not_go_are_passed_through_and_exclude_those_of_a_candidate():
    parsed = read_back(["-m", "/m/big.gguf", "-np", "2", "-c", "2048", "--spec-ngram-mod-n-max", "32"])
    other = replace(parsed.baseline, speculation="ngram-mod", speculation_tokens=16)

    assert parsed.extra_args == ("--spec-ngram-mod-n-max", "32")
    assert stated_twice(other) == "--spec-ngram-mod-n-max"
    with pytest.raises(ConflictingArgumentError):
        arguments(other)
    assert stated_twice(replace(other, speculation_tokens=None)) is None


def test_a_candidate_keeps_its_name_unless_it_has_what_came_later():
    assert not {"draft", "backend_sampling", "speculation_tokens", "speculation_match"} & set(BASE.as_said())
    assert DRAFTING.as_said()["draft"] == "tiny"


@pytest.mark.parametrize(
    ("candidate", "build", "said"),
    [
        (replace(BASE, backend_sampling=True), 7539, "no --backend-sampling"),
        (replace(BASE, speculation="ngram-mod"), 7539, "no --spec-type"),
        (replace(BASE, speculation="ngram-mod", speculation_tokens=8), 8953, "no numbers"),
        (DRAFTING, 9712, "spells draft models otherwise"),
    ],
)
def test_an_early_build_is_not_asked_for_what_it_lacks(candidate, build, said):
    [reason] = unsupported(candidate, defaults_of(build))
    assert said in reason
    assert unsupported(candidate, defaults_of(11549)) == ()


LOADED = "0.02.1 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 1024, kv_unified = 'false'\n"
DRAFT_LOAD = "0.01.1 I common_speculative_init_result: loading draft model '/m/tiny.gguf'\n"
FAILED = "0.02.2 E srv    load_model: failed to load draft model, '/m/tiny.gguf'\n"
EXITING = "0.02.3 E srv          init: exiting due to model loading error\n"


def test_a_draft_model_that_is_not_there_is_named():
    gone = "0.01.2 E gguf_init_from_file: failed to open GGUF file '/m/tiny.gguf' (No such file or directory)\n"
    failure = classify_failure(1, DRAFT_LOAD + gone + FAILED + EXITING)

    assert failure.failure_class is FailureClass.SPECULATION_UNAVAILABLE
    assert failure.knob == "draft"
    assert "/m/tiny.gguf cannot be opened (No such file or directory)" in failure.sentence


def test_memory_that_runs_out_for_the_draft_is_memory_with_that_cure():
    full = "0.01.2 E alloc_tensor_range: failed to allocate buffer for kv cache\n"
    failure = classify_failure(1, DRAFT_LOAD + full + FAILED + EXITING)

    assert failure.failure_class is FailureClass.OUT_OF_MEMORY_KV
    assert failure.knob == "draft"
    assert "for the draft model /m/tiny.gguf" in failure.sentence


def test_a_server_that_came_up_with_its_draft_and_then_crashed_is_no_failure_of_the_draft():
    log = DRAFT_LOAD + LOADED + "0.03 I srv  load_model: model loaded\n0.04 GGML_ASSERT(x) failed\n"

    assert classify_failure(134, log).failure_class is FailureClass.CRASHED


def test_the_context_of_the_draft_is_not_taken_for_the_servers():
    kv = "0.1 I llama_kv_cache: size = 1.00 MiB ( 8 cells, 1 layers, 2/2 seqs), K ({0}): 0.50 MiB, V ({0}): 0.50 MiB\n"
    buffer = "0.1 I llama_kv_cache: CPU KV buffer size = {} MiB\n"
    log = kv.format("q8_0") + buffer.format("3.00") + DRAFT_LOAD + kv.format("f16") + buffer.format("2.00") + LOADED

    facts = parse_log(log)

    assert (facts.cache_type_k, facts.slots) == ("q8_0", 2)
    assert facts.kv_bytes == 5 * 2**20  # memory is of both
