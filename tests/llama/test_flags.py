"""What slotune starts is what it read, and what a user already runs becomes the baseline, surprises included."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.llama.engine_flags import ENGINE_FLAGS, parse_arguments
from slotune.llama.flags import (
    EMITTED,
    BuildDefaults,
    ConflictingArgumentError,
    ModelSource,
    ParsedServer,
    UnusableArgumentsError,
    from_args,
    model_source,
    to_args,
)

EXTRAS = st.sampled_from(
    [
        (),
        ("--jinja",),
        ("--mmproj", "/models/eye.gguf", "-sps", "0.5"),
        ("--no-kv-offload", "--temp", "-0.5"),
        ("--control-vector-layer-range", "1", "4"),
        ("--lora", "a.gguf", "--lora", "b.gguf"),
    ]
)


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    """Every candidate that llama-server can hold as it is."""
    unified = draw(st.booleans())
    batch = draw(st.integers(1, 32768))
    ram = draw(st.integers(-1, 65536))
    return Candidate(
        variant=draw(st.sampled_from(["bf16", "q4"])),
        gpu_class=draw(st.sampled_from(["l4", "cpu"])),
        parallel_slots=draw(st.integers(1, 256)),
        context_per_slot=draw(st.integers(1, 131072)) if unified else 256 * draw(st.integers(1, 512)),
        kv_unified=unified,
        batch_size=batch,
        ubatch_size=draw(st.integers(1, batch)),
        cache_type_k=draw(st.sampled_from(["f16", "q8_0", "bf16"])),
        cache_type_v="f16",
        flash_attention=draw(st.sampled_from(["on", "off", "auto"])),
        cache_prompt=draw(st.booleans()),
        cache_ram_mib=ram,
        cache_idle_slots=ram != 0 and draw(st.booleans()),
        cache_reuse=draw(st.integers(0, 4096)),
        gpu_layers=draw(st.sampled_from(["all", "auto", "0", "17"])),
        threads=draw(st.none() | st.integers(1, 512)),
        speculation=draw(st.sampled_from(["none", "ngram-mod", "ngram-simple,ngram-cache"])),
        extra_args=draw(EXTRAS),
    )


def arguments(candidate: Candidate, **changes: Any) -> list[str]:
    settings: dict[str, Any] = {"model_path": "/models/m.gguf", "host": "127.0.0.1", "port": 8081, "alias": "m"}
    return to_args(candidate, **(settings | changes))


def baseline(args: str, **changes: Any) -> ParsedServer:
    settings: dict[str, Any] = {"variant": "bf16", "gpu_class": "l4", "training_context": 8192}
    return from_args(f"-m m.gguf {args}".split(), **(settings | changes))


@given(candidates())
def test_a_candidate_that_is_written_and_read_is_the_same_candidate(candidate: Candidate) -> None:
    parsed = from_args(arguments(candidate), variant=candidate.variant, gpu_class=candidate.gpu_class)

    assert parsed.errors == ()
    assert parsed.candidate == candidate
    assert (parsed.model.path, parsed.host, parsed.port, parsed.alias) == ("/models/m.gguf", "127.0.0.1", 8081, "m")


@given(candidates())
def test_reading_what_was_written_finds_nothing_surprising(candidate: Candidate) -> None:
    plain = replace(candidate, cache_type_k="f16", extra_args=())

    assert from_args(arguments(plain), variant="bf16", gpu_class="l4").notes == ()


@given(candidates())
def test_the_engine_takes_every_candidate_and_reads_the_same_slots_and_pool(candidate: Candidate) -> None:
    settings = parse_arguments(arguments(replace(candidate, extra_args=())))

    assert settings["n_parallel"] == candidate.parallel_slots
    assert settings["n_ctx"] == candidate.context_total
    assert settings["kv_unified"] == candidate.kv_unified


def test_the_engine_takes_every_spelling_of_what_is_emitted() -> None:
    taken = {name for flag in ENGINE_FLAGS for name in (*flag.names, *flag.negations)}

    assert {name for flag in EMITTED for name in (*flag.names, *flag.negations)} <= taken


def test_every_setting_is_stated() -> None:
    words = arguments(Candidate("bf16", "l4", 8, 4608), threads=4)

    assert " ".join(words) == (
        "-m /models/m.gguf --host 127.0.0.1 --port 8081 --alias m -ngl all -fit off -np 8 -c 36864 -no-kvu -b 2048 "
        "-ub 512 -fa on -ctk f16 -ctv f16 -t 4 -tb 4 --cache-prompt --cache-ram 0 --no-cache-idle-slots "
        "--cache-reuse 0 --metrics --slots -lv 4"
    )


def test_every_field_of_a_candidate_changes_the_arguments() -> None:
    base = Candidate("bf16", "l4", 8, 4608)
    other: dict[str, Any] = {
        "parallel_slots": 9, "context_per_slot": 512, "kv_unified": True, "batch_size": 999, "ubatch_size": 99,
        "cache_type_k": "q8_0", "cache_type_v": "q8_0", "flash_attention": "auto", "cache_prompt": False,
        "cache_ram_mib": 7, "cache_idle_slots": True, "cache_reuse": 3, "gpu_layers": "5", "threads": 3,
        "speculation": "ngram-mod", "extra_args": ("--jinja",), "backend_sampling": True,
    }  # fmt: skip
    named_elsewhere = {"variant", "gpu_class", "speculation_tokens", "speculation_match", "draft"}

    assert set(other) == {field.name for field in fields(Candidate)} - named_elsewhere
    for name, value in other.items():
        assert arguments(replace(base, **{name: value})) != arguments(base), name


def test_a_split_cache_is_asked_for_in_whole_blocks_for_each_slot() -> None:
    words = arguments(Candidate("bf16", "l4", 3, 1000))

    assert words[words.index("-c") + 1] == str(3 * 1024)


def test_a_candidates_own_threads_win_over_the_sandboxs() -> None:
    words = arguments(Candidate("bf16", "l4", 1, 256, threads=2), threads=8)

    assert words[words.index("-t") : words.index("-t") + 4] == ["-t", "2", "-tb", "2"]


def test_threads_for_batches_of_their_own_are_stated_once() -> None:
    words = arguments(Candidate("bf16", "l4", 1, 256, threads=2, extra_args=("-tb", "4")))

    assert words.count("-tb") == 1
    assert words[words.index("-tb") + 1] == "4"


@pytest.mark.parametrize("extra", [("-c", "4096"), ("--parallel", "2"), ("-hf", "a/b"), ("--no-kv-unified",)])
def test_extra_arguments_must_not_contradict_the_candidate(extra: tuple[str, ...]) -> None:
    with pytest.raises(ConflictingArgumentError, match=extra[0]):
        arguments(Candidate("bf16", "l4", 1, 256, extra_args=extra))


def test_a_server_without_any_flags_is_what_the_build_does_by_default() -> None:
    parsed = baseline("")

    assert parsed.candidate == Candidate(
        "bf16", "l4", 4, 2048, kv_unified=True, flash_attention="auto", cache_ram_mib=8192, cache_idle_slots=True,
        gpu_layers="auto",
    )  # fmt: skip
    assert (parsed.host, parsed.port, parsed.alias) == ("127.0.0.1", 8080, None)
    told = " ".join(parsed.notes)
    assert "4 slots on one unified KV cache" in told
    assert "8,192 tokens, shared by 4 slots" in told
    assert "-fit is on while -c and -ngl are not set" in told


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param("-np 4 -c 4096", {"parallel_slots": 4, "kv_unified": False, "context_per_slot": 1024},
                     id="stated slots leave the cache split"),
        pytest.param("-np -1 -c 4096", {"parallel_slots": 4, "kv_unified": True, "context_per_slot": 1024},
                     id="minus one slots are automatic"),
        pytest.param("-np -1 -no-kvu -c 4096", {"kv_unified": True}, id="automatic slots unify whatever is said"),
        pytest.param("-np 2", {"context_per_slot": 4096}, id="the training context is divided"),
        pytest.param("-np 2 -c 0", {"context_per_slot": 4096}, id="zero is the training context"),
        pytest.param("-np 3 -c 10000", {"context_per_slot": 3584}, id="a share is rounded up to a block"),
        pytest.param("-np 3 -c 4000 -kvu", {"context_per_slot": 1365}, id="a rounded pool is shared out evenly"),
        pytest.param("-np 2 --kv-unified-per-slot 3000 -kvu", {"context_per_slot": 3000}, id="a pool made per slot"),
        pytest.param("-np 1 -c 65536", {"context_per_slot": 8192}, id="a slot is capped at the training context"),
        pytest.param("-ub 4096 -b 1024", {"batch_size": 1024, "ubatch_size": 1024}, id="a ubatch is clamped"),
        pytest.param("-ub 0 -b 1024", {"ubatch_size": 1024}, id="a ubatch of zero is the batch"),
        pytest.param("-fa 1", {"flash_attention": "on"}, id="one is on"),
        pytest.param("-fa -1", {"flash_attention": "auto"}, id="minus one is auto"),
        pytest.param("-ngl 99", {"gpu_layers": "99"}, id="a number of layers"),
        pytest.param("-ngl -1", {"gpu_layers": "auto"}, id="minus one layer is auto"),
        pytest.param("-ngl -2", {"gpu_layers": "all"}, id="minus two layers are all"),
        pytest.param("--cache-ram 0", {"cache_ram_mib": 0, "cache_idle_slots": False}, id="no cache, no idle slots"),
        pytest.param("--cache-ram 0 --cache-idle-slots", {"cache_idle_slots": False}, id="idle slots need the cache"),
        pytest.param("--no-cache-prompt --cache-reuse 256", {"cache_prompt": False, "cache_reuse": 256}, id="caches"),
        pytest.param("--spec-type ngram-mod --spec-type ngram-cache", {"speculation": "ngram-mod,ngram-cache"},
                     id="kinds of speculation add up"),
        pytest.param("--spec-default", {"speculation": "ngram-mod"}, id="default speculation"),
        pytest.param("--spec-type none", {"speculation": "none"}, id="no speculation"),
        pytest.param("--threads 8", {"threads": 8}, id="threads"),
        pytest.param("-t 0", {"threads": None}, id="no threads are all cores"),
        pytest.param("-t 8 -tb 4", {"threads": 8, "extra_args": ("-tb", "4")}, id="threads for batches of their own"),
        pytest.param("--ctx_size 2048 --n_gpu_layers all", {"gpu_layers": "all", "context_per_slot": 512},
                     id="underscores are hyphens"),
        pytest.param("-c 1024 -c 2048 -np 1", {"context_per_slot": 2048}, id="the last of a repeated flag wins"),
        pytest.param("--no-cont-batching --temp 0.2 --jinja --reasoning-budget 0",
                     {"extra_args": ("--no-cont-batching", "--temp", "0.2", "--jinja", "--reasoning-budget", "0")},
                     id="what is not tuned is passed on in order"),
        pytest.param("-lv 5 --log-file x.log -v", {"extra_args": ()}, id="the log is slotune's"),
    ],
)  # fmt: skip
def test_stated_flags_become_the_baseline(args: str, want: dict[str, Any]) -> None:
    parsed = baseline(args)

    assert parsed.errors == ()
    assert {name: getattr(parsed.candidate, name) for name in want} == want


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ("-c 1024 -c 2048 -np 1", "more than once"),
        ("-np 3 -c 10000", "rounded up to 3584"),
        ("-np 1 -c 65536", "more than the model's training context"),
        ("-ub 4096 -b 1024", "clamped to 1024"),
        ("-ctk q5_0 -ctv q5_0", "no flash-attention kernel"),
        ("-ctk q8_0 -ctv f16", "no flash-attention kernel"),
        ("--cache-ram 0 --cache-idle-slots", "has no effect"),
        ("-t 0", "all cores of the host"),
        ("-v", "-v is left out: slotune sets -lv 4"),
    ],
)
def test_what_a_reader_would_not_expect_is_said(args: str, word: str) -> None:
    assert any(word in note for note in baseline(args).notes)


def test_arguments_win_over_the_environment_and_what_is_not_tuned_becomes_an_argument() -> None:
    parsed = baseline(
        "-np 2",
        env={
            "LLAMA_ARG_N_PARALLEL": "8",
            "LLAMA_ARG_CTX_SIZE": "4096",
            "LLAMA_ARG_KV_UNIFIED": "true",
            "LLAMA_ARG_NO_CACHE_PROMPT": "0",
            "LLAMA_ARG_THINK_BUDGET": "0",
            "LLAMA_ARG_NO_MMAP": "1",
            "LLAMA_ARG_HOST": "0.0.0.0",
            "PATH": "/bin",
        },
    )

    assert parsed.baseline == Candidate(
        "bf16", "l4", 2, 2048, kv_unified=True, flash_attention="auto", cache_prompt=False, cache_ram_mib=8192,
        cache_idle_slots=True, gpu_layers="auto", extra_args=("--reasoning-budget", "0"),
    )  # fmt: skip
    assert parsed.host == "0.0.0.0"
    assert any("LLAMA_ARG_NO_MMAP has no effect" in note for note in parsed.notes)


def test_an_argument_replaces_its_variable_where_it_is_passed_on() -> None:
    parsed = baseline("--reasoning-budget 5", env={"LLAMA_ARG_THINK_BUDGET": "0"})

    assert parsed.baseline.extra_args == ("--reasoning-budget", "5")


def test_secrets_of_the_environment_stay_there() -> None:
    parsed = baseline("", env={"LLAMA_API_KEY": "hunter3", "HF_TOKEN": "hf_abc"})

    assert (parsed.secret_args, parsed.baseline.extra_args) == ((), ())


def test_kinds_of_speculation_that_add_up_are_no_repetition() -> None:
    assert not any("more than once" in note for note in baseline("--spec-type a --spec-type b").notes)


def test_secrets_are_kept_apart_and_never_shown() -> None:
    parsed = baseline("--api-key hunter2 -hft hf_abc --jinja", env={"LLAMA_API_KEY": "hunter3"})

    assert parsed.secret_args == ("--api-key", "hunter2", "-hft", "hf_abc")
    assert parsed.baseline.extra_args == ("--jinja",)
    assert "hunter" not in repr(parsed)
    assert "hf_abc" not in repr(parsed)


def test_the_model_is_found_before_anything_else_is_known() -> None:
    assert model_source(["-hf", "user/model:Q8_0", "-c", "nonsense"]) == ModelSource(hf_repo="user/model:Q8_0")
    assert model_source([], {"LLAMA_ARG_MODEL": "/m.gguf"}) == ModelSource(path="/m.gguf")


def test_a_server_without_a_model_is_refused() -> None:
    parsed = from_args(["-np", "2", "-c", "512"], variant="bf16", gpu_class="l4")

    assert [problem.flag for problem in parsed.errors] == ["-m"]
    assert parsed.candidate is None
    with pytest.raises(UnusableArgumentsError, match="router"):
        _ = parsed.baseline


def test_the_training_context_must_be_known_only_where_it_is_used() -> None:
    unknown = baseline("-np 2", training_context=None)

    (problem,) = unknown.errors
    assert str(problem).startswith("-c: is not set, so it is the model's training context, which is not known here;")
    assert baseline("-np 2 -c 512", training_context=None).errors == ()


def test_another_build_may_have_other_defaults() -> None:
    parsed = baseline("-c 4096", defaults=BuildDefaults(auto_slots=1, port=9931, cache_ram_mib=0))

    assert parsed.port == 9931
    assert (parsed.baseline.parallel_slots, parsed.baseline.cache_ram_mib) == (1, 0)
