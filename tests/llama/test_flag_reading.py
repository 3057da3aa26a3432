"""Whatever llama-server refuses is refused here, all of it at once, and each refusal names the cure."""

from __future__ import annotations

import importlib.util
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.flag_cures import CONFLICTING, DROPPED, ELSEWHERE, PRESETS, REMOVED, SECRET, closest_flag
from slotune.llama.flag_reading import read
from slotune.llama.flag_table import BY_ENV, BY_NAME, FLAGS, Flag
from slotune.llama.flags import from_args


def problems(args: str, env: dict[str, str] | None = None) -> list[str]:
    words = ["-m", "m.gguf", *args.split()]
    parsed = from_args(words, variant="v", gpu_class="g", training_context=4096, env=env or {})
    return [str(problem) for problem in parsed.errors]


@pytest.mark.parametrize(
    ("args", "flag", "cure"),
    [
        pytest.param("--no-mmap", "--no-mmap", "use -lm none", id="removed"),
        pytest.param("--mlock", "--mlock", "use -lm mlock", id="removed, without a value"),
        pytest.param("--draft 8 --jinja", "--draft", "use --spec-draft-n-max", id="removed, with a value"),
        pytest.param("--draft-max=8", "--draft-max", "use --spec-draft-n-max", id="removed, with an equals sign"),
        pytest.param("--n_parallel 4", "--n_parallel", "use -np", id="llama-cpp-python's name"),
        pytest.param("--max-model-len 4096", "--max-model-len", "use -c", id="vLLM's name"),
        pytest.param("-p hello", "-p", "send it in a request", id="llama-cli's flag"),
        pytest.param("--no-clear-idle", "--no-clear-idle", "use --no-cache-idle-slots", id="renamed"),
        pytest.param("-cd 4096", "-cd", "leave it out", id="removed, without a successor"),
        pytest.param("--ctx-size=4096", "--ctx-size", '"--ctx-size", "4096"', id="an equals sign"),
        pytest.param("hello", "hello", "put its flag before it", id="a stray word"),
        pytest.param("-fa --jinja", "-fa", '"-fa", "on"', id="flash attention as a switch"),
        pytest.param("-c", "-c", "write its value after it", id="the value is missing at the end"),
        pytest.param("-c 4k", "-c", "write it in digits", id="a unit that llama-server would drop"),
        pytest.param("-b many", "-b", "write it in digits", id="no number"),
        pytest.param("-c -5", "-c", "at least 0", id="below zero"),
        pytest.param("-np 0", "-np", "write 1 to 256", id="no slots"),
        pytest.param("-np 257", "-np", "to 256", id="too many slots"),
        pytest.param("--port 70000", "--port", "from 0 to 65535", id="no port"),
        pytest.param("-ctk q3_0", "-ctk", "f32, f16, bf16, q8_0", id="no type of a cache"),
        pytest.param("-fa maybe", "-fa", "on, off or auto", id="no mode of attention"),
        pytest.param("-fit perhaps", "-fit", "on or off", id="no switch"),
        pytest.param("-fa off -ctv q8_0", "-ctv", "write -fa on", id="quantized values without flash attention"),
        pytest.param("--spec-synth-len 3", "--spec-synth-len", "leave it out", id="invented acceptance"),
        pytest.param("--embedding", "--embedding", "generates text", id="no text to measure"),
        pytest.param("--version", "--version", "would answer and exit", id="a question"),
        pytest.param("--gpt-oss-20b-default", "--gpt-oss-20b-default", "-np 2 -c 262144", id="a preset"),
    ],
)
def test_a_refusal_names_the_flag_and_the_cure(args: str, flag: str, cure: str) -> None:
    (problem,) = problems(args)

    assert problem.startswith(flag)
    assert cure in problem


def test_a_router_is_refused_and_with_a_model_it_is_none() -> None:
    (problem,) = read(["--models-dir", "/m"], {}).problems

    assert "name one model" in problem.cure
    assert problems("--models-dir /m") == []
    assert read(["--models-preset", "/m.ini"], {"LLAMA_ARG_MODEL": "/m.gguf"}).problems == ()


def test_two_words_in_one_argument_are_taken_apart() -> None:
    parsed = from_args(["-m", "m.gguf", "-np 4"], variant="v", gpu_class="g", training_context=4096)

    assert [str(problem) for problem in parsed.errors] == [
        '-np: two arguments stand in one; write two arguments: "-np", "4"'
    ]


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems("--mlock -c 4k -b many -ctk q3_0")) == 4


@pytest.mark.parametrize("args", ["--api-key=hunter2", "--api_key=hunter2"])
def test_a_secret_is_not_repeated_in_a_refusal(args: str) -> None:
    (problem,) = problems(args)

    assert "hunter2" not in problem


def test_a_port_that_kubernetes_made_of_a_service_is_explained() -> None:
    (problem,) = problems("", {"LLAMA_ARG_PORT": "tcp://10.0.0.1:80", "LLAMA_ARG_PORT_80_TCP_ADDR": "10.0.0.1"})

    assert "enableServiceLinks: false" in problem


def test_variables_of_a_removed_flag_are_refused_or_said_to_have_no_effect() -> None:
    (problem,) = problems("", {"LLAMA_ARG_DRAFT_MAX": "3", "LLAMA_ARG_MLOCK": "1"})

    assert problem == "LLAMA_ARG_DRAFT_MAX: llama-server removed it; use LLAMA_ARG_SPEC_DRAFT_N_MAX"
    assert read([], {"LLAMA_ARG_MLOCK": "1", "LLAMA_ARG_NOPE": "1"}, 11434).notes == (
        "LLAMA_ARG_MLOCK has no effect any more; LLAMA_ARG_LOAD_MODE=mlock has.",
        "LLAMA_ARG_NOPE is no variable of llama-server and has no effect.",
    )


def test_a_variable_that_is_neither_on_nor_off_is_refused() -> None:
    assert problems("", {"LLAMA_ARG_KV_UNIFIED": "maybe"}) == [
        "LLAMA_ARG_KV_UNIFIED maybe: is neither on nor off; write true or false"
    ]


def test_a_switch_that_cannot_be_turned_off_ignores_other_values() -> None:
    assert read([], {"LLAMA_ARG_SWA_FULL": "false"}).settings == ()
    assert [setting.words for setting in read([], {"LLAMA_ARG_SWA_FULL": "1"}).settings] == [("--swa-full",)]


def test_the_presence_of_a_negative_variable_turns_off_whatever_it_holds() -> None:
    (setting,) = read([], {"LLAMA_ARG_NO_JINJA": "false", "LLAMA_ARG_JINJA": "true"}).settings

    assert (setting.flag.name, setting.on) == ("--jinja", False)


def test_the_programs_own_name_is_no_argument() -> None:
    assert read(["/app/llama-server", "-np", "2"], {}).problems == ()


@given(st.lists(st.text(alphabet=string.printable, max_size=20) | st.sampled_from(sorted(BY_NAME)), max_size=12))
def test_no_list_of_words_is_too_odd_to_be_read(words: list[str]) -> None:
    parsed = from_args(words, variant="v", gpu_class="g", training_context=4096)

    assert (parsed.candidate is None) == bool(parsed.errors)
    assert all(problem.cure for problem in parsed.errors)


@given(st.lists(st.sampled_from([flag for flag in FLAGS if flag.values <= 1 and flag.name not in CONFLICTING])))
def test_known_flags_with_a_value_each_are_never_unknown(flags: list[Flag]) -> None:
    words = [word for flag in flags for word in (flag.names[-1], "7")[: 1 + flag.values]]

    assert not [problem for problem in read(words, {}).problems if "write out" not in problem.cure]


def test_a_spelling_belongs_to_one_flag_and_a_variable_too() -> None:
    spellings = [name for flag in FLAGS for name in (*flag.names, *flag.negations)]
    variables = [flag.env for flag in FLAGS if flag.env]

    assert len(spellings) == len(set(spellings)) == len(BY_NAME)
    assert len(variables) == len(set(variables)) == len(BY_ENV)


def test_what_has_a_cure_is_unknown_and_what_is_special_is_known() -> None:
    assert not BY_NAME.keys() & (REMOVED.keys() | ELSEWHERE.keys())
    firsts = {flag.name for flag in FLAGS}
    assert {*CONFLICTING, *PRESETS, *DROPPED, *SECRET} <= firsts


def test_cures_name_flags_that_exist() -> None:
    for cure in (cure for cure in (*REMOVED.values(), *ELSEWHERE.values()) if cure.startswith("-")):
        named = [word.rstrip(",:") for word in cure.split() if word.startswith("-")]
        assert named
        assert all(word in BY_NAME for word in named), cure


def test_a_preset_stands_for_flags_that_can_be_read() -> None:
    for words in PRESETS.values():
        assert read(words.split(), {}).problems == ()


def test_the_flag_that_was_meant_is_found_where_one_is_near() -> None:
    assert closest_flag("--cache-rm") == "--cache-ram"
    assert closest_flag("--zzzzzz") is None


# ------------------------------------------------------------------- flags that slotune does not know


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param("--frobnicate", ("--frobnicate",), id="a switch"),
        pytest.param("--frobnicate 3 -1 x --jinja", ("--frobnicate", "3", "-1", "x", "--jinja"), id="several values"),
        pytest.param("--paralel 4", ("--paralel", "4"), id="a typing error"),
        pytest.param("--fork-mode=fast -np 2", ("--fork-mode=fast",), id="an equals sign"),
        pytest.param("-rtr --fork_thing a", ("-rtr", "--fork_thing", "a"), id="short, and with underscores"),
    ],
)
def test_an_unknown_flag_is_kept_with_the_words_up_to_the_next_flag(args: str, want: tuple[str, ...]) -> None:
    parsed = from_args(["-m", "m.gguf", *args.split()], variant="v", gpu_class="g", training_context=4096)

    assert parsed.errors == ()
    assert parsed.baseline.extra_args == want
    assert any(want[0].partition("=")[0] in note and "not tuned" in note for note in parsed.notes)


def test_a_typing_error_is_kept_and_named() -> None:
    (note,) = read(["--paralel", "4"], {}).notes

    assert note.endswith("Did you mean --parallel?")


@pytest.mark.parametrize("args", [["--apikey=hunter2"], ["--auth-token", "hunter2"], ["--fork-secret", "hunter2", "x"]])
def test_an_unknown_flag_that_may_hold_a_key_is_treated_as_one_that_does(args: list[str]) -> None:
    parsed = from_args(["-m", "m.gguf", *args], variant="v", gpu_class="g", training_context=4096)

    assert parsed.secret_args == tuple(args)
    assert "hunter2" not in repr(parsed)


@pytest.mark.parametrize("flag", ["--max-tokens", "--auth-key-file", "--monkey"])
def test_not_every_flag_with_such_a_word_in_it_is_secret(flag: str) -> None:
    assert from_args(["-m", "m", flag, "7"], variant="v", gpu_class="g", training_context=512).secret_args == ()


# ------------------------------------------------------------------- flags that depend on the build


@pytest.mark.parametrize(
    ("args", "build", "kept"),
    [
        pytest.param("--mlock --no-mmap", 6869, "--mlock --no-mmap", id="before the load modes"),
        pytest.param("--draft-max 8 --jinja", 8000, "--draft-max 8 --jinja", id="before the draft's new names"),
        pytest.param("--mlock", 10500, "--mlock", id="between what is known: the server itself runs with it"),
    ],
)
def test_a_flag_that_the_build_still_has_is_kept(args: str, build: int, kept: str) -> None:
    reading = read(args.split(), {}, build)

    assert reading.problems == ()
    assert [word for setting in reading.settings for word in setting.words] == kept.split()
    assert any("later builds" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("args", "build", "cure"),
    [
        pytest.param("--mlock", 10875, "use -lm mlock", id="the build that dropped it"),
        pytest.param("--draft 3", 9016, "use --spec-draft-n-max", id="a draft"),
        pytest.param("-fit off", 6869, "use an image from b7539 on", id="too early"),
        pytest.param("-np 4 -no-kvu", 7000, "b8664", id="a negation that came later"),
        pytest.param("--cache-idle-slots", 8700, "b8854", id="a name that came later"),
    ],
)
def test_a_flag_that_the_build_does_not_have_is_refused(args: str, build: int, cure: str) -> None:
    (problem,) = read(args.split(), {}, build).problems

    assert cure in problem.cure


def test_an_earlier_name_of_a_tuned_flag_is_that_flag() -> None:
    (setting,) = read(["--no-clear-idle"], {}, 8700).settings

    assert (setting.flag.name, setting.on) == ("--cache-idle-slots", False)


@pytest.mark.parametrize(("build", "args"), [(6000, "-fa -np 2"), (6310, "-fa -np 2"), (6310, "-fa on -np 2")])
def test_flash_attention_was_a_switch(build: int, args: str) -> None:
    reading = read(args.split(), {}, build)

    assert reading.problems == ()
    assert [(setting.flag.name, setting.values) for setting in reading.settings] == [("-fa", ("on",)), ("-np", ("2",))]


def test_variables_go_by_the_build_too() -> None:
    reading = read([], {"LLAMA_ARG_NO_MMAP": "1", "LLAMA_ARG_DRAFT_MAX": "4", "LLAMA_ARG_FIT": "off"}, 6869)

    assert [setting.words for setting in reading.settings] == [("--draft-max", "4"), ("--no-mmap",)]
    assert reading.notes == ("LLAMA_ARG_FIT has no effect in b6869, which the image is of.",)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LLAMA_ARG_MODEL_DRAFT", ("--model-draft", "7")),
        ("LLAMA_ARG_HFD_REPO", ("--hf-repo-draft", "7")),
        ("LLAMA_ARG_DRAFT_P_MIN", ("--draft-p-min", "7")),
        ("LLAMA_ARG_DRAFT_P_SPLIT", ("--draft-p-split", "7")),
        ("LLAMA_ARG_CACHE_TYPE_K_DRAFT", ("--cache-type-k-draft", "7")),
        ("LLAMA_ARG_CACHE_TYPE_V_DRAFT", ("--cache-type-v-draft", "7")),
        ("LLAMA_ARG_N_CPU_MOE_DRAFT", ("--n-cpu-moe-draft", "7")),
        ("LLAMA_ARG_CTX_SIZE_DRAFT", ("--ctx-size-draft", "7")),
        ("LLAMA_ARG_DRAFT_MIN", ("--draft-min", "7")),
    ],
)
def test_a_variable_of_an_early_build_is_a_flag_there_and_said_to_be_none_in_a_late_one(
    name: str, words: tuple[str, ...]
) -> None:
    assert [setting.words for setting in read([], {name: "7"}, 8000).settings] == [words]
    assert read([], {name: "7"}, 8000).notes == ()

    late = read([], {name: "7"}, 11434)
    assert late.settings == ()
    assert any(name in told for told in (*late.notes, *(problem.flag for problem in late.problems)))

    unknown = read([], {name: "7"})
    assert (unknown.settings, unknown.problems) == ((), ())
    assert unknown.notes[0].startswith(f"{name} stays as it is, in trials too")


@pytest.mark.parametrize("build", [None, 8000, 12000])
def test_a_variable_that_nobody_knows_is_kept_where_the_build_may_know_it(build: int | None) -> None:
    (note,) = read([], {"LLAMA_ARG_NEWER": "1"}, build).notes

    assert (
        note == "LLAMA_ARG_NEWER is no variable that slotune knows: it stays as it is, in trials too, and is not tuned."
    )


@pytest.mark.parametrize(
    ("env", "build", "states"),
    [
        pytest.param({"LLAMA_ARG_NO_MMAP": "true"}, 6000, [("--no-mmap",)], id="a negative one"),
        pytest.param({"LLAMA_ARG_NO_MMAP": "on"}, 6000, [], id="a negative one with another word"),
        pytest.param({"LLAMA_ARG_NO_CACHE_PROMPT": "0"}, 6000, [], id="a negation with another word"),
        pytest.param({"LLAMA_ARG_NO_CACHE_PROMPT": "0"}, 7403, [("--no-cache-prompt",)], id="a negation since"),
        pytest.param({"LLAMA_ARG_MLOCK": "enabled"}, 6000, [], id="a removed switch with another word"),
        pytest.param({"LLAMA_ARG_CONT_BATCHING": "false"}, 6000, [], id="off is nothing"),
        pytest.param({"LLAMA_ARG_CONT_BATCHING": "false"}, 7403, [("--no-cont-batching",)], id="off since"),
        pytest.param({"LLAMA_ARG_KV_UNIFIED": "on"}, 6000, [], id="on is nothing"),
        pytest.param({"LLAMA_ARG_KV_UNIFIED": "1"}, 6000, [("--kv-unified",)], id="one"),
        pytest.param({"LLAMA_ARG_FLASH_ATTN": "on"}, 6000, [], id="flash attention, a word"),
        pytest.param({"LLAMA_ARG_FLASH_ATTN": "1"}, 6000, [("--flash-attn",)], id="flash attention"),
        pytest.param({"LLAMA_ARG_FLASH_ATTN": "on"}, 6500, [("--flash-attn", "on")], id="flash attention since"),
    ],
)
def test_the_variable_of_a_switch_means_what_the_build_takes_it_for(
    env: dict[str, str], build: int, states: list[tuple[str, ...]]
) -> None:
    reading = read([], env, build)

    assert [setting.words for setting in reading.settings] == states
    assert states or reading.notes == (f"{next(iter(env))} has no effect in b{build}: only 1 and true have one there.",)


@pytest.mark.parametrize("build", [None, 7200])
def test_a_switch_whose_rule_is_not_certain_is_read_as_today_and_said(build: int | None) -> None:
    reading = read(
        [], {"LLAMA_ARG_CONT_BATCHING": "off", "LLAMA_ARG_NO_JINJA": "0", "LLAMA_ARG_KV_UNIFIED": "1"}, build
    )

    assert sorted(setting.words for setting in reading.settings) == [
        ("--kv-unified",), ("--no-cont-batching",), ("--no-jinja",),
    ]  # fmt: skip
    assert [note.split(" is taken")[0] for note in reading.notes] == ["LLAMA_ARG_CONT_BATCHING", "LLAMA_ARG_NO_JINJA"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("-fa -np 2", "-fa without a value is on in builds before b6327"),
        ("--no-mmap", "from b10875 on llama.cpp refuses it: use -lm none there"),
        ("--draft-max 8", "use --spec-draft-n-max there"),
        ("--no-clear-idle", "use --no-cache-idle-slots there"),
    ],
)
def test_an_unknown_build_takes_the_forms_of_any_and_a_note_says_what_others_do(args: str, words: str) -> None:
    reading = read(args.split(), {})

    assert reading.problems == ()
    assert any(words in note for note in reading.notes), reading.notes


@given(st.lists(st.text(alphabet=string.printable, max_size=20) | st.sampled_from(sorted(BY_NAME)), max_size=12))
def test_every_setting_says_where_it_stands(words: list[str]) -> None:
    for setting in read(words, {}).settings:
        assert setting.position is not None
        assert tuple(words[setting.position : setting.position + len(setting.words)]) == setting.words


@pytest.mark.engine
def test_every_long_flag_of_the_table_is_in_the_build() -> None:
    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None
    assert spec.origin is not None
    (library,) = Path(spec.origin).parent.glob("*.so")
    binary = library.read_bytes()
    names = [name for flag in FLAGS for name in (*flag.names, *flag.negations) if name.startswith("--")]
    variables = [flag.env for flag in FLAGS if flag.env]

    assert [name for name in (*names, *variables) if f"\0{name}\0".encode() not in binary] == []
