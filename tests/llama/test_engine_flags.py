"""The embedded engine must take what llama-server takes, and must not swallow a flag that it would ignore."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.engine_flags import ENGINE_FLAGS, EngineFlagError, apply_settings, parse_arguments
from slotune.llama.flag_table import Flag
from slotune.llama.flags import EMITTED

MODEL = ["-m", "model.gguf"]

EVERY_FLAG = """
-m m.gguf -a one,two --host 127.0.0.1 --port 0 -ngl 3 -fit off -np 3 -c 768 -kvu -b 64 -ub 32 -fa off
-ctk q8_0 -ctv iq4_nl -t 2 -tb 3 --no-cache-prompt --cache-ram 7 --no-cache-idle-slots --cache-reuse 5
--metrics --no-slots --spec-type ngram-mod --context-shift --no-warmup --no-ui -lv 4
"""


@pytest.mark.parametrize(
    ("argv", "attribute", "want"),
    [
        pytest.param(["-ngl", "all"], "n_gpu_layers", -2, id="all layers"),
        pytest.param(["-ngl", "auto"], "n_gpu_layers", -1, id="automatic layers"),
        pytest.param(["--gpu-layers", "7"], "n_gpu_layers", 7, id="a number of layers"),
        pytest.param(["-fit", "off"], "fit_params", False, id="fit off"),
        pytest.param(["-kvu"], "kv_unified", True, id="unified"),
        pytest.param(["-no-kvu"], "kv_unified", False, id="split, short"),
        pytest.param(["--no-kv-unified"], "kv_unified", False, id="split, long"),
        pytest.param(["--no_kv_unified"], "kv_unified", False, id="underscores are dashes"),
        pytest.param(["--no-cache-prompt"], "cache_prompt", False, id="a negated switch"),
        pytest.param(["-fa", "auto"], "flash_attn_type", "auto", id="flash attention by name"),
        pytest.param(["--cache-ram", "-1"], "cache_ram_mib", -1, id="a negative number is a value"),
        pytest.param(["-np", "2", "-np", "4"], "n_parallel", 4, id="the last of a repeated flag wins"),
        pytest.param(["-kvu", "-no-kvu"], "kv_unified", False, id="the last of a switch and its negation wins"),
        pytest.param(["--host", "127.0.0.1,::1"], "hostnames", ("127.0.0.1", "::1"), id="several addresses"),
        pytest.param(["--spec-type", "ngram-mod"], "speculative.types", ("ngram-mod",), id="speculation"),
    ],
)
def test_a_flag_sets_what_it_sets_in_llama_server(argv: list[str], attribute: str, want: object) -> None:
    assert parse_arguments([*MODEL, *argv])[attribute] == want


def test_without_slots_llama_servers_own_default_holds() -> None:
    settings = parse_arguments(MODEL)

    assert settings["n_parallel"] == -1
    assert settings["port"] == 8080


@pytest.mark.parametrize("flag", ["--no-mmap", "--mlock", "--draft-max", "--frobnicate", "-z", "model.gguf"])
def test_any_other_flag_is_refused_by_name_in_llama_servers_words(flag: str) -> None:
    with pytest.raises(EngineFlagError, match=f"^error: invalid argument: {flag}$") as caught:
        parse_arguments([*MODEL, flag])

    assert caught.value.flag == flag


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        pytest.param(["-np"], 'error while handling argument "-np": expected value', id="no value"),
        pytest.param(["-np", "four"], "invalid number: 'four'", id="not a number"),
        pytest.param(["-np", "0"], "invalid value for n_parallel: 0", id="no slots"),
        pytest.param(["-np", "257"], "1 to 256", id="too many slots"),
        pytest.param(["-ctk", "q9_0"], "Unsupported cache type: q9_0", id="unknown cache type"),
        pytest.param(["-fa", "maybe"], "maybe", id="unknown attention"),
        pytest.param(["-fit", "perhaps"], "perhaps", id="unknown switch value"),
    ],
)
def test_a_value_that_a_flag_does_not_take_is_refused_with_the_flag_and_the_value(argv: list[str], want: str) -> None:
    with pytest.raises(EngineFlagError, match=want) as caught:
        parse_arguments([*MODEL, *argv])

    assert argv[0] in str(caught.value)


def test_a_model_is_required() -> None:
    with pytest.raises(EngineFlagError, match="--model is required"):
        parse_arguments(["-np", "1"])


@pytest.mark.parametrize("emitted", EMITTED, ids=lambda flag: flag.name)
def test_every_flag_that_slotune_emits_is_taken_in_every_spelling(emitted: Flag) -> None:
    taken = {name: flag for flag in ENGINE_FLAGS for name in (*flag.names, *flag.negations)}

    for name in (*emitted.names, *emitted.negations):
        assert name in taken
        assert (taken[name].read is None) == (emitted.values == 0)


def test_no_spelling_means_two_things() -> None:
    spellings = [name for flag in ENGINE_FLAGS for name in (*flag.names, *flag.negations)]

    assert len(spellings) == len(set(spellings))


@given(st.lists(st.sampled_from([(f, n) for f in ENGINE_FLAGS if f.read is None for n in (*f.names, *f.negations)])))
def test_a_switch_never_eats_the_flag_behind_it(switches: list[tuple[object, str]]) -> None:
    settings = parse_arguments([*(name for _, name in switches), "-np", "3", *MODEL])

    assert (settings["n_parallel"], settings["model.path"]) == (3, "model.gguf")


@pytest.mark.engine
def test_every_flag_reaches_an_attribute_that_the_wheel_has() -> None:
    xllamacpp = importlib.import_module("xllamacpp")
    argv = EVERY_FLAG.split()
    params = xllamacpp.CommonParams()

    apply_settings(parse_arguments(argv), params, xllamacpp)

    assert params.model.path == "m.gguf"
    assert params.model_alias == {"one", "two"}
    assert (params.hostnames, params.port) == (["127.0.0.1"], 0)
    assert (params.n_gpu_layers, params.fit_params) == (3, False)
    assert (params.n_parallel, params.n_ctx, params.kv_unified) == (3, 768, True)
    assert (params.n_batch, params.n_ubatch) == (64, 32)
    assert params.flash_attn_type == xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    assert params.cache_type_k == xllamacpp.ggml_type.GGML_TYPE_Q8_0
    assert params.cache_type_v == xllamacpp.ggml_type.GGML_TYPE_IQ4_NL
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (2, 3)
    assert (params.cache_prompt, params.cache_ram_mib, params.cache_idle_slots) == (False, 7, False)
    assert (params.n_cache_reuse, params.endpoint_metrics, params.endpoint_slots) == (5, True, False)
    assert params.speculative.types == [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_MOD]
    assert (params.ctx_shift, params.warmup, params.ui, params.verbosity) == (True, False, False, 4)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        pytest.param(["--spec-type", "telepathy"], "--spec-type", id="a speculation that the build does not know"),
        pytest.param(["-c", "9999999999"], "-c", id="a number beyond 32 bits"),
    ],
)
def test_what_only_the_build_can_refuse_is_refused_by_the_flags_name(argv: list[str], flag: str) -> None:
    xllamacpp = importlib.import_module("xllamacpp")

    with pytest.raises(EngineFlagError) as caught:
        apply_settings(parse_arguments([*MODEL, *argv]), xllamacpp.CommonParams(), xllamacpp)

    assert caught.value.flag == flag


@pytest.mark.engine
def test_an_explicit_context_of_zero_asks_for_the_whole_context() -> None:
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()

    apply_settings(parse_arguments([*MODEL, "-c", "0"]), params, xllamacpp)

    assert (params.n_ctx, params.fit_params_min_ctx) == (0, -1)
