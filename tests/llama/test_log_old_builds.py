"""Logs of builds of 2024 and before become the same story as those of today, and say that they are old.

``logs/old_*`` are written in the format of llama.cpp's source at b1735, b3561 and b4450; the JSON lines of b3561 are
its other log under ``--log-format json``.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from slotune.gathering.log_file import read_log
from slotune.llama.log_old_builds import as_old_line, old_line
from slotune.llama.log_story import LogStory, Topic
from slotune.llama.log_stream import LogReader

LOGS = Path(__file__).parent / "logs"
MIB = 1024 * 1024


def only(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


def content(name: str) -> str:
    return (LOGS / name).read_text("utf-8")


@pytest.mark.parametrize("name", ["old_b3561.log", "old_b3561.jsonl"])
def test_a_build_of_2024_tells_its_setup(name: str) -> None:
    story = only(content(name))
    facts = story.facts

    assert (story.build, story.starts, facts.build, facts.ready) == (3561, 1, "3561 (1466621e)", True)
    assert (facts.slots, facts.context_per_slot, facts.context_total) == (2, 4096, 8192)
    assert (facts.batch_size, facts.ubatch_size, facts.threads, facts.threads_batch) == (2048, 512, 8, 8)
    assert (facts.layers_offloaded, facts.layers, facts.devices) == (10, 33, ("NVIDIA GeForce RTX 3060",))
    assert {name: round(size / MIB, 2) for name, size in facts.model_buffers.items()} == {
        "CPU": 4685.3,
        "CUDA0": 1304.07,
    }
    assert {name: round(size / MIB) for name, size in facts.kv_buffers.items()} == {"CUDA_Host": 704, "CUDA0": 320}
    assert {name: round(size / MIB) for name, size in facts.compute_buffers.items()} == {
        "CUDA0": 669,
        "CUDA_Host": 24,
        "CPU": 2,
    }
    assert (facts.cache_type_k, facts.cache_type_v, facts.flash_attention) == ("f16", "f16", False)
    assert facts.parameters == pytest.approx(8.03e9)
    assert facts.experts == 0


@pytest.mark.parametrize("name", ["old_b3561.log", "old_b3561.jsonl"])
def test_its_requests_are_added_up_by_slot(name: str) -> None:
    story = only(content(name))
    timings = story.requests

    assert timings is not None
    assert (timings.requests, timings.prompt_tokens, timings.predicted_tokens) == (4, 3200, 2583)
    assert timings.cached_tokens == 800, "of the third request; two ended together, and the last was truncated"
    assert timings.most_busy_slots == 2
    assert timings.prefill_tokens_per_s == pytest.approx((1000 / 3, 500, 500), rel=0.01)
    assert (story.count(Topic.TRUNCATED), story.count(Topic.CONTEXT_SHIFTED)) == (1, 1)
    assert story.seconds == 90


@pytest.mark.parametrize("name", ["old_b3561.log", "old_b3561.jsonl", "old_b1735.jsonl"])
def test_it_says_that_it_is_old_and_that_silence_means_nothing(name: str) -> None:
    story = only(content(name))

    assert story.verbosity is None, "a rule would take what is not said for what is not so"
    assert "about b3750" in story.notes[0]
    assert not story.mixed
    (read,) = read_log(LOGS / name)
    assert read == replace(story, source=str(LOGS / name))


def test_no_build_of_today_is_called_old() -> None:
    for path in LOGS.glob("[!o]*.log"):
        assert only(path.read_text("utf-8")).notes == ()
    assert only(content("old_b4450.log")).notes == ()


def test_restarts_of_an_old_build_are_counted() -> None:
    story = only(content("old_b3561.log") * 3)

    assert (story.starts, story.mixed) == (3, False)
    assert story.requests is not None
    assert story.requests.requests == 4


def test_before_february_2024_the_times_are_read_and_what_is_not_said_is_left_open() -> None:
    story = only(content("old_b1735.jsonl"))
    timings, facts = story.requests, story.facts

    assert (story.build, story.starts, facts.ready, facts.context_total) == (1735, 1, True, 4096)
    assert (facts.slots, facts.layers, facts.batch_size) == (None, None, None)
    assert timings is not None
    assert (timings.requests, timings.prompt_tokens, timings.cached_tokens, timings.most_busy_slots) == (
        1,
        120,
        None,
        2,
    )


def test_late_2024_prints_the_end_of_a_request_before_its_times() -> None:
    story = only(content("old_b4450.log"))
    timings, facts = story.requests, story.facts

    assert (story.build, facts.slots, facts.context_per_slot, facts.flash_attention) == (4450, 2, 4096, True)
    assert (facts.cache_type_k, facts.layers_offloaded, facts.ubatch_size) == ("q8_0", 33, 512)
    assert timings is not None
    assert (timings.requests, timings.prompt_tokens) == (4, 1580)
    assert timings.cached_tokens == 950, "450 and 500; a cancelled request between them counts for nothing"


def test_a_cancelled_request_of_a_build_of_today_lends_its_length_to_no_other() -> None:
    cancelled = "I slot      release: id  1 | task 7 | stop processing: n_tokens = 4000, truncated = 0\n"
    timing = "I slot print_timing: id  0 | task 8 | "
    finished = (
        f"{timing}prompt eval time =     100.00 ms /   100 tokens (    1.00 ms per token,  1000.00 tokens per second)\n"
        f"{timing}       eval time =     100.00 ms /    11 tokens (   10.00 ms per token,   100.00 tokens per second)\n"
        "I slot      release: id  0 | task 8 | stop processing: n_tokens = 150, truncated = 0\n"
    )
    timings = only(cancelled + finished).requests

    assert timings is not None
    assert timings.cached_tokens == 40


def test_nor_where_times_do_not_name_their_slot() -> None:
    text = content("cuda_old_build.log")
    work = text[text.index("slot launch_slot_: id  3 | task 0 | processing") :]
    cancelled = "slot      release: id  1 | task 7 | stop processing: n_tokens = 4000, truncated = 0\n"
    place = work.index("slot print_timing")
    timings = only(text + work[:place] + cancelled + work[place:]).requests

    assert timings is not None
    assert (timings.requests, timings.cached_tokens) == (2, 0)


def test_a_build_of_early_2026_tells_its_slots() -> None:
    facts = only(content("cuda_old_build.log")).facts

    assert (facts.slots, facts.context_per_slot) == (4, 8192)


def test_a_draft_model_of_an_old_build_hides_nothing_of_the_server() -> None:
    text = content("cuda_old_build.log")
    draft = "srv    load_model: loading draft model '/models/draft.gguf'\nllama_context: n_ctx         = 512\n"
    place = text.index("srv    load_model: initializing slots")
    facts = only(text[:place] + draft + text[place:]).facts

    assert (facts.slots, facts.context_total, facts.draft_loaded) == (4, 8192, True)


def test_an_engine_without_gpu_support_says_so_in_the_words_of_its_time() -> None:
    words = (
        "WARN [              server_params_parse] Not compiled with GPU offload support, --n-gpu-layers option will be "
        'ignored. See main README.md for information on enabling GPU BLAS support | tid="1" timestamp=1722900000 '
        "n_gpu_layers=33\n"
    )
    story = only(words + content("old_b3561.log"))

    assert story.facts.no_usable_gpu
    assert story.count(Topic.NO_USABLE_GPU) == 1
    assert story.seen[Topic.NO_USABLE_GPU].first.text.endswith("BLAS support n_gpu_layers=33")


def test_nothing_that_a_user_wrote_is_shown() -> None:
    secret = "out of memory model loaded the password is swordfish n_slots=99 CUDA error: out of memory"
    fields = f'tid="5" timestamp=1722900010 generated_text="{secret} \\" id_slot=1" model_name="x" count=3'
    lines = [
        f"INFO [format_partial_response_oaicompat] DEBUG: Streaming finish_reason check | {fields}",
        f"VERB [      process_token] next token | {fields} token_text={secret!r}",
        json.dumps(
            {
                "tid": "5",
                "timestamp": 1,
                "level": "VERB",
                "function": "update_slots",
                "line": 9,
                "msg": "prompt",
                "text": secret,
            }
        ),
    ]
    story = only(content("old_b3561.log") + "\n".join(lines) + "\n")

    assert "swordfish" not in repr(story)
    assert story.facts == only(content("old_b3561.log")).facts
    assert story.failure is None
    assert story.count(Topic.OUT_OF_MEMORY) == 0
    assert story.count(Topic.DEBUG_LINE) == 2


def test_a_line_and_its_document_are_the_same() -> None:
    document = {
        "tid": "77",
        "timestamp": 1722900000,
        "level": "INFO",
        "function": "update_slots",
        "line": 1794,
        "msg": "slot released",
        "id_slot": 1,
        "truncated": False,
        "note": "a text",
    }
    line = as_old_line(document)

    assert (
        line
        == 'INFO [            update_slots] slot released | tid="77" timestamp=1722900000 id_slot=1 truncated=false'
    )
    taken = old_line(line.encode())
    assert taken is not None
    assert taken.shown == b"slot released id_slot=1 truncated=false"


@pytest.mark.parametrize(
    "change", [{"line": "12"}, {"timestamp": "now"}, {"level": 30}, {"function": "a b"}, {"msg": None}]
)
def test_a_document_of_another_program_is_left_as_it_is(change: dict[str, object]) -> None:
    document = {"timestamp": 1722900000, "level": "INFO", "function": "main", "line": 3, "msg": "build info"}

    assert as_old_line(document) is not None
    assert as_old_line(document | change) is None


def test_lines_of_several_pods_keep_their_cached_tokens() -> None:
    chance = random.Random(5)
    logs = {pod: content("old_b4450.log").splitlines(keepends=True)[::-1] for pod in ("a", "b", "c")}
    lines = []
    while any(logs.values()):
        pod = chance.choice([pod for pod, left in logs.items() if left])
        lines.append(f"[pod/llama-{pod}/server] {logs[pod].pop()}")
    reader = LogReader()
    reader.feed("".join(lines).encode())

    assert {story.requests.cached_tokens for story in reader.finish() if story.requests} == {950}


def test_blanks_that_a_web_page_took_away_do_not_matter() -> None:
    story = only(re.sub(r"\[ +", "[ ", content("old_b3561.log")))

    assert story.facts == only(content("old_b3561.log")).facts
