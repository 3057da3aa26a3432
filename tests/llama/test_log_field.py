"""What servers in the field write, and how people paste it: each is a kind of log that was once read wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slotune.gathering.log_file import read_log
from slotune.llama.failures import FailureClass
from slotune.llama.log_json import messages
from slotune.llama.log_json_forms import Form
from slotune.llama.log_old_builds import IK_LLAMA
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader

DEFAULT = """0.00.363.811 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
0.00.365.823 I srv    load_model: loading model '/models/m.gguf'
0.06.091.079 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 2048, kv_unified = 'false'
0.06.204.714 I srv  llama_server: model loaded
"""
UP = "main: model loaded\nslot launch_slot_: id  0 | task 0 | processing task\n"
OLD = 'INFO [   launch_slot_with_task] slot is processing task | tid="7" timestamp={} id_slot=0 id_task=0\n'
RELEASED = (
    'INFO [            update_slots] slot released | tid="7" timestamp=1748127268 id_slot=0 id_task=0 n_ctx=32768 '
    "n_past=526 n_system_tokens=0 n_cache_tokens={} truncated=false\n"
)
OLD_TIMES = """prompt eval time =    1316.22 ms /    11 tokens (  119.66 ms per token,     8.36 tokens per second)
       eval time =   13369.13 ms /    23 tokens (  581.27 ms per token,     1.72 tokens per second)
"""


def read(text: str) -> tuple[LogStory, ...]:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    return reader.finish()


def only(text: str) -> LogStory:
    (story,) = read(text)
    return story


@pytest.mark.parametrize("first", [0, 1])
def test_a_log_at_the_default_verbosity_holds_its_start(first: int) -> None:
    story = only("".join(DEFAULT.splitlines(keepends=True)[first:]))

    assert (story.starts, story.facts.slots, story.facts.ready) == (1, 4, True)
    assert only(DEFAULT + DEFAULT).starts == 2


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("/src/llama-kv-cache.cpp:18430: Deepseek2 does not support K-shift\nNo stack.\n", "support K-shift"),
        ("/src/a.cu:1: anything at all\nptrace: Operation not permitted.\nNo stack.\n", "anything at all"),
        ("GGML_ASSERT: ggml-metal.m:1645: false\n", "ggml-metal.m:1645: false"),
    ],
)
def test_an_abort_is_told_in_whatever_words_it_gives(end: str, words: str) -> None:
    story = only(UP + end)

    assert story.failure is not None
    assert story.failure.failure_class is FailureClass.CRASHED
    assert words in story.failure.sentence
    assert story.failure_line is not None
    assert (story.failure_line.number, words in story.failure_line.text) == (3, True)


def test_a_place_in_a_source_file_is_no_abort_without_what_follows_one() -> None:
    assert only(UP + "/src/llama-kv-cache.cpp:18430: something that went well\n").failure is None


@pytest.mark.parametrize("wrap", ["{}", "[56285] 0.54.236.075 E {}"])
def test_a_crash_alone_is_enough_to_be_looked_at(wrap: str, tmp_path: Path) -> None:
    lines = [
        "CUDA error: an illegal memory access was encountered",
        "  current device: 0, in function ggml_backend_cuda_synchronize at /x/ggml/src/ggml-cuda/ggml-cuda.cu:2780",
    ]
    path = tmp_path / "crash.log"
    path.write_text("".join(wrap.format(line) + "\n" for line in lines))
    (story,) = read_log(path)

    assert story.failure is not None


def test_the_old_form_in_later_years_is_that_of_a_fork_which_counts_its_builds_on_its_own() -> None:
    head = 'INFO [                    main] build info | tid="7" timestamp={} build=3703 commit="a2b5057a"\n'
    fork, old = (only(head.format(stamp) + OLD.format(stamp)) for stamp in (1772882469, 1721895109))

    assert (fork.build, old.build) == (None, 3703)
    assert fork.facts.build == f"{IK_LLAMA} 3703 (a2b5057a)"
    assert IK_LLAMA in fork.notes[0]
    assert IK_LLAMA not in old.notes[0]


def test_a_slot_that_kept_nothing_is_counted() -> None:
    text = "".join(OLD.format(1748127260) + OLD_TIMES + RELEASED.format(kept) for kept in (0, 0, 526))
    requests = only(text).requests

    assert requests is not None
    assert (requests.released, requests.unkept) == (3, 2)
    assert requests.unkept_line is not None
    assert "n_cache_tokens=0" in requests.unkept_line.text


def test_a_request_that_runs_has_a_speed() -> None:
    slot = "1.00.000.000 I slot print_timing: id  0 | task 7 | "
    running = only(f"{slot}prompt processing, n_tokens = 88, progress = 0.36, t =  5.96 s / 328.57 tokens per second\n")

    assert running.running is not None
    assert running.running.prefill_tokens_per_s == 328.57
    assert running.running.tokens == 88


def test_a_child_of_a_router_has_the_name_of_its_model() -> None:
    spawn = "0.00.020.000 I srv          load: spawning server instance with name=org/m:Q4_K_M on port 41002\n"
    names = [story.source for story in read(spawn + "[41002] srv  update_slots: all slots are idle\n")]

    assert names == ["server.log", "port 41002 (org/m:Q4_K_M)"]


def test_a_router_that_names_a_child_long_before_it_speaks_is_remembered() -> None:
    spawn = "0.00.020.000 I srv          load: spawning server instance with name=org/m:Q4_K_M on port 41002\n"
    reader = LogReader("server.log", block=256)
    reader.feed((spawn + "0.00.030.000 I srv  update_slots: all slots are idle\n" * 20).encode())
    reader.feed(b"[41002] srv  update_slots: all slots are idle\n")

    assert [story.source for story in reader.finish()] == ["server.log", "port 41002 (org/m:Q4_K_M)"]


@pytest.mark.parametrize(
    "prefix",
    [
        "[2025-09-27][09:18:10][tauri_plugin_llamacpp::commands][INFO] [llamacpp] ",
        "2024-10-24T08:12:44.111906Z  WARN llama_cpp::supervisor: crates\\srv\\src\\run.rs:110: <embedding>: ",
    ],
)
def test_the_prefixes_of_programs_that_start_a_server_are_taken_off(prefix: str) -> None:
    lines = [*DEFAULT.splitlines(), "load_tensors: offloaded 13/13 layers to GPU"] * 2

    assert only("".join(f"{prefix}{line}\n" for line in lines)).facts.slots == 4


def test_dots_of_a_load_do_not_hide_the_line_behind_them() -> None:
    assert only("....srv    load_model: initializing slots, n_slots = 1\n").facts.slots == 1


def test_a_plan_for_memory_names_the_device() -> None:
    line = "llama_params_fit_impl:   - CUDA0 (NVIDIA GeForce RTX 3090):  24575 total,  23781 used,   -793 free\n"

    assert only("srv    load_model: loading model 'm.gguf'\n" + line).facts.devices == ("NVIDIA GeForce RTX 3090",)


def test_utf_16_is_decoded_with_whatever_letters_are_in_it() -> None:
    text = DEFAULT + "0.00.001.000 I print_info: LF token = 198 'Ċ'\n"
    reader = LogReader("server.log")
    data = text.encode("utf-16")
    for start in range(0, len(data), 7):
        reader.feed(data[start : start + 7])
    (story,) = reader.finish()

    assert story.lines == len(text.splitlines())


def test_forms_of_objects_say_what_a_decoder_says() -> None:
    def line(number: int, said: str, pod: str) -> bytes:
        document = {"date": 1790000000.5 + number, "message": said, "kubernetes": {"pod_name": pod}}
        return json.dumps(document, separators=(",", ":")).encode()

    said = ['plain "quoted"', "a", "b", "x" * 50, "tab\t", "\x1b[1mc\x1b[0m", "1790000001.5"]
    lines = [line(number, text, f"llama-{number % 3}") for number, text in enumerate(said * 5)]
    forms: list[Form] = []
    first, again = (messages(lines, [None] * len(lines), forms) for _ in range(2))
    one_by_one = [messages([one], [None]) for one in lines]

    assert forms
    assert first is not None
    assert first == again
    assert first.texts == [told.texts[0] for told in one_by_one if told]
    assert first.times == [told.times[0] for told in one_by_one if told]
    assert [first.names[index] for index in range(len(lines))] == [f"llama-{index % 3}" for index in range(len(lines))]
