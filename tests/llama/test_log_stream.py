"""A log of any size and any wrapping becomes the same story; nothing that a prompt could be in is in it.

``logs/`` has what build 11549 printed on a CPU at three verbosities and as JSON lines, and logs in the words of
llama.cpp's source with CUDA (b11434, and one of b8586 as people post them).
"""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.llama.log_lines import parse_log
from slotune.llama.log_story import LONGEST, Line, Topic
from slotune.llama.log_stream import LogReader
from tests.llama.logged import ALL, LOGS, content, only, read, request

# What a log says


@pytest.mark.parametrize("name", ALL)
def test_the_facts_of_one_start_are_those_of_its_whole_text(name: str) -> None:
    story = only(content(name))

    assert story.facts == parse_log(content(name).decode())
    assert (story.source, story.starts, story.size_bytes) == ("server.log", 1, len(content(name)))
    assert story.lines == content(name).count(b"\n")


@pytest.mark.parametrize(("name", "want"), [("served_three", 3), ("served_four", 4), ("served_five", 5)])
def test_the_verbosity_is_told_from_the_lines(name: str, want: int) -> None:
    assert only(content(name)).verbosity == want


def test_a_line_is_quoted_with_its_number_and_without_its_prefix() -> None:
    story = only(content("cuda_kernel_fallback"))
    seen = story.seen[Topic.KERNEL_FALLBACK]

    assert seen.count == 1
    assert seen.first == seen.last
    assert seen.first.text.startswith(
        "ggml_cuda_flash_attn_ext_vec: no FlashAttention vector kernel compiled for K/V types q5_0-f16"
    )
    assert content("cuda_kernel_fallback").decode().splitlines()[seen.first.number - 1].endswith(seen.first.text[-60:])


def test_each_fact_has_the_line_that_said_it() -> None:
    story = only(content("cuda_layers_on_host"))

    assert story.fact_lines["layers_offloaded"] == Line(11, "load_tensors: offloaded 20/33 layers to GPU")
    assert story.fact_lines["fit_changes"].text.endswith("need 15875 MiB less memory in total")
    assert "speculation" not in story.fact_lines
    assert all(hasattr(story.facts, name) for name in story.fact_lines)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("cuda_no_driver", Topic.NO_USABLE_GPU),
        ("cuda_layers_on_host", Topic.LAYERS_OFFLOADED),
        ("cuda_layers_on_host", Topic.FIT_REDUCED_CONTEXT),
        ("cuda_layers_on_host", Topic.FLASH_ATTENTION_FALLBACK),
        ("cuda_kv_too_big", Topic.OUT_OF_MEMORY),
        ("context_capped", Topic.CONTEXT_CAPPED),
        ("cuda_old_build", Topic.SLOT_BY_LRU),
    ],
)
def test_a_topic_is_seen_in_the_words_of_its_build(name: str, topic: Topic) -> None:
    assert only(content(name)).count(topic) >= 1


def test_a_driver_that_fails_is_heard_before_the_server_says_that_it_has_no_gpu() -> None:
    seen = only(content("cuda_no_driver")).seen[Topic.NO_USABLE_GPU]
    assert (seen.count, seen.first.number, seen.last.number) == (2, 1, 2)
    assert "driver version is insufficient" in seen.first.text


LINES = {
    Topic(name): line
    for name, _, line in (entry.partition(": ") for entry in (LOGS / "topics.txt").read_text("utf-8").splitlines())
}
"""A line for each topic, as build 11549 or the source at b11434 prints it."""


@pytest.mark.parametrize("topic", list(Topic))
def test_every_topic_has_a_line_that_is_counted_and_no_other_topic_takes_it(topic: Topic) -> None:
    story = only((LINES[topic] + "\n").encode() * 3)

    assert {key: seen.count for key, seen in story.seen.items()} == {topic: 3}
    assert (story.seen[topic].first.number, story.seen[topic].last.number) == (1, 3)


@pytest.mark.parametrize("topic", [topic for topic in Topic if topic is not Topic.DEBUG_LINE])
@pytest.mark.parametrize("stamp", ["", "12.34.567.890 "])
def test_without_levels_and_with_time_stamps_a_topic_is_the_same(topic: Topic, stamp: str) -> None:
    bare = LINES[topic][2:]
    story = only(f"{stamp}{bare if not stamp else LINES[topic]}\n".encode())

    assert set(story.seen) == {topic}
    assert story.seen[topic].first.text == bare.strip()[:LONGEST]


def test_milliseconds_that_lines_name_are_added_up() -> None:
    story = only(b"".join(b"I srv  get_availabl: prompt cache update took %d.25 ms\n" % ms for ms in (1, 20, 300)))

    assert story.seen[Topic.CACHE_UPDATE].total_ms == pytest.approx(321.75)


# Wrappings


def stamped(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join(
        b"2026-11-29T12:%02d:%02d.123456789Z %s" % (n // 60 % 60, n % 60, line) for n, line in enumerate(lines)
    )


def coloured(text: bytes) -> bytes:
    """As on a terminal: the time stamp blue, the level green, warnings magenta to their end."""
    text = re.sub(rb"(?m)^([\d.]+) (?=[IWED] )", b"\x1b[34m\\1\x1b[0m ", text)
    text = re.sub(rb"(?m)(\x1b\[0m )I ", b"\\1\x1b[32mI \x1b[0m", text)
    return re.sub(rb"(?m)(\x1b\[0m )(W .*)$", b"\\1\x1b[35m\\2\x1b[0m", text)


def docker(text: bytes) -> bytes:
    documents = (
        {"log": line, "stream": "stderr", "time": "2026-11-29T12:00:00.5Z"}
        for line in text.decode().splitlines(keepends=True)
    )
    return "".join(json.dumps(document) + "\n" for document in documents).encode()


LEVELS = {"I": "info", "W": "warn", "E": "error", "D": "debug"}


def json_lines(text: bytes) -> bytes:
    """As ``--log-jsonl`` prints them."""
    documents = []
    for line in text.decode().splitlines(keepends=True):
        prefix = re.match(r"(?:[\d.]+ )?([IWED]) ", line)
        level, message = ("cont", line) if prefix is None else (LEVELS[prefix[1]], line[prefix.end() :])
        documents.append({"type": "log", "time": 1, "level": level, "msg": message})
    return "".join(json.dumps(document, separators=(",", ":")) + "\n" for document in documents).encode()


WRAPPINGS = {
    "carriage returns": lambda text: text.replace(b"\n", b"\r\n"),
    "NUL bytes": lambda text: b"\0\0" + text.replace(b"\n", b"\0\n"),
    "UTF-16 of a Windows shell": lambda text: text.decode().encode("utf-16"),
    "colours": coloured,
    "kubectl --timestamps": stamped,
    "kubectl --prefix": lambda text: b"".join(
        b"[pod/llama-0/server] " + line for line in text.splitlines(keepends=True)
    ),
    "kubectl --prefix --timestamps": lambda text: b"".join(
        b"[pod/llama-0/server] " + line for line in stamped(text).splitlines(keepends=True)
    ),
    "stern": lambda text: b"".join(b"llama-0 server " + line for line in text.splitlines(keepends=True)),
    "Compose": lambda text: b"".join(b"llama-1  | " + line for line in text.splitlines(keepends=True)),
    "journald": lambda text: b"".join(
        b"Nov 29 12:00:01 host llama-server[77]: " + line for line in text.splitlines(keepends=True)
    ),
    "containerd": lambda text: b"".join(
        line.replace(b"Z ", b"Z stderr F ", 1) for line in stamped(text).splitlines(keepends=True)
    ),
    "Docker's files": docker,
    "JSON lines": json_lines,
    "JSON lines in Docker's files": lambda text: docker(json_lines(text)),
}


@pytest.mark.parametrize("name", ["served_three", "served_four", "cuda_kernel_fallback", "model_missing"])
@pytest.mark.parametrize("wrapping", list(WRAPPINGS))
def test_what_is_wrapped_around_the_lines_changes_nothing(name: str, wrapping: str) -> None:
    plain, wrapped = only(content(name)), only(WRAPPINGS[wrapping](content(name)))

    assert wrapped.facts == plain.facts
    assert {topic: seen.count for topic, seen in wrapped.seen.items()} == {
        topic: seen.count for topic, seen in plain.seen.items()
    }
    assert wrapped.requests == plain.requests
    assert (wrapped.starts, wrapped.build, wrapped.verbosity) == (plain.starts, plain.build, plain.verbosity)
    assert wrapped.failure == plain.failure
    assert wrapped.fact_lines == plain.fact_lines


def test_real_json_lines_tell_the_same_as_text() -> None:
    story = only((LOGS / "served.jsonl").read_bytes())

    assert (story.facts.slots, story.facts.context_per_slot, story.facts.ready) == (2, 512, True)
    assert story.requests is not None
    assert story.requests.requests >= 3
    assert story.verbosity == 4
    assert story.seconds is not None
    assert 0 < story.seconds < 60


def test_interleaved_pods_are_told_apart() -> None:
    chance = random.Random(7)
    logs = {
        "llama-0": content("unified_pool") + request(1).encode() * 40,
        "llama-1": content("split_quantized") + request(2, cached=300).encode() * 20,
        "proxy-0": b"GET /health 200\n" * 30,
    }
    waiting = {pod: log.splitlines(keepends=True)[::-1] for pod, log in logs.items()}
    lines = []
    while any(waiting.values()):
        pod = chance.choice([pod for pod, left in waiting.items() if left])
        lines.append((pod, waiting[pod].pop()))
    stories = {
        story.source: story for story in read(b"".join(b"[pod/%s/c] %s" % (pod.encode(), line) for pod, line in lines))
    }

    assert set(stories) == {"llama-0", "llama-1"}
    for pod, story in stories.items():
        alone = only(logs[pod])
        assert (story.facts, story.lines) == (alone.facts, alone.lines)
        assert story.requests is not None
        assert alone.requests is not None
        assert story.requests.cached_tokens == alone.requests.cached_tokens
        for name, line in story.fact_lines.items():
            source, text = lines[line.number - 1]
            assert source == pod
            assert line.text in text.decode(), f"{name} is quoted with its number in the file"


def test_two_containers_of_a_pod_have_both_names() -> None:
    log = b"".join(
        b"[pod/llama-0/%s] %s" % (c, line) for c in (b"a", b"b") for line in request(1).encode().splitlines(True)
    )

    assert [story.source for story in read(log)] == ["llama-0/a", "llama-0/b"]


@pytest.mark.parametrize(
    "document",
    ['{"type":"log","time":NaN,"level":7,"msg":"x"}', '{"time":' + "9" * 400 + ',"msg":"x"}', '{"', "{" * 5000],
)
def test_broken_json_is_passed_over(document: str) -> None:
    story = only(f"{document}\n".encode() + json_lines(request(1).encode()))

    assert story.requests is not None
    assert story.requests.requests == 1


# Streaming


MIXED = (
    content("all_defaults")
    + b"".join(request(task, slot=task % 4, prompt=64 + task, cached=task).encode() for task in range(60))
    + content("cuda_kernel_fallback")
    + b"\xff\xfe broken \xf0\x9f utf-8\n"
    + b"".join(request(task, slot=task % 3, prompt=640 + task).encode() for task in range(60))
    + (LINES[Topic.CACHE_UPDATE] + "\n").encode() * 9
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(MIXED)), max_size=12), st.integers(1, 4000))
def test_how_the_stream_is_cut_into_chunks_does_not_matter(cuts: list[int], size: int) -> None:
    ends = sorted({0, *cuts, len(MIXED)})
    uneven = [MIXED[start:end] for start, end in itertools.pairwise(ends)]
    even = [MIXED[start : start + size] for start in range(0, len(MIXED), size)]

    assert read(*uneven) == read(MIXED) == read(*even)


@settings(max_examples=25, deadline=None)
@given(st.integers(600, 20_000), st.sampled_from(["kubectl --timestamps", "JSON lines", "kubectl --prefix", "colours"]))
def test_nor_does_how_much_of_it_is_looked_at_together(block: int, wrapping: str) -> None:
    wrapped = WRAPPINGS[wrapping](MIXED.replace(b"\xff\xfe broken \xf0\x9f utf-8\n", b""))

    assert read(MIXED, block=block) == read(MIXED)
    assert read(wrapped, block=block) == read(wrapped)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.binary(max_size=80), st.sampled_from(content("served_five").splitlines() or [b""])), max_size=60
    )
)
def test_no_bytes_upset_the_reader(lines: list[bytes]) -> None:
    for story in read(b"\n".join(lines), block=600):
        quoted = [line for seen in story.seen.values() for line in (seen.first, seen.last)]
        assert all(len(line.text) <= LONGEST for line in quoted)


@pytest.mark.parametrize("block", [64, 4096, 1 << 20])
def test_carriage_returns_end_lines_where_nothing_else_does(block: int) -> None:
    text = content("served_three")
    want = read(text, block=block)
    assert read(text.replace(b"\n", b"\r"), block=block) == want
    bare = text.replace(b"\n", b"\r")
    assert read(*(bare[at : at + 7] for at in range(0, len(bare), 7)), block=block) == want
    (before,), (progress,) = read(text), read(text.replace(b"\n", b"\r\n"))
    assert progress.lines == before.lines


def test_a_very_long_line_is_passed_over_and_costs_nothing() -> None:
    reader = LogReader(block=1 << 16)
    for _ in range(200):
        reader.feed(b"x" * 50_000)
    reader.feed(b"\n" + request(1).encode())
    (story,) = reader.finish()

    assert story.requests is not None
    assert (story.requests.requests, story.lines) == (1, 7)


def test_a_log_in_which_each_line_is_unlike_the_others_is_read_as_well() -> None:
    syllables = ["ta", "lo", "mi", "ru", "pen", "gor", "ash", "ki", "du", "vel"]
    tokens = ("".join(four) for four in itertools.product(syllables, repeat=4))
    head = "0.01.000.000 D slot process_toke: id  0 | task 1 | n_gen = 5, n_remaining = 9, next token: 77"
    log = "".join(f"{head} '{token}'\n" for token in tokens).encode() * 3
    started = time.process_time()

    assert only(log).count(Topic.DEBUG_LINE) == 30_000
    assert time.process_time() - started < 1.5, "a search for each of its shapes took 3 s"


def test_a_last_line_without_its_end_states_no_number_but_may_tell_an_end() -> None:
    cut = content("cuda_kernel_fallback").split(b"n_ctx                 = 16384")[0] + b"n_ctx                 = 163"

    assert only(cut).facts.context_total is None
    assert only(content("cuda_kernel_fallback") + b"CUDA error: out of memory").failure is not None


def test_a_first_line_that_is_cut_is_passed_over() -> None:
    cut, uncut = only(content("served_four")[50:]), only(content("served_four"))

    assert cut.facts == replace(uncut.facts, build="b0-unknown"), "the first line named the package"
    assert cut.requests is not None
    assert cut.requests.requests == 5


# Privacy


SECRET = "my password is swordfish"


def test_no_prompt_comes_out_of_a_log_that_prints_them() -> None:
    lines = [
        f"0.01.000.000 D slot process_toke: id  0 | task 1 | n_gen = 5, n_remaining = 9, next token: 77 '{SECRET}'",
        f'0.01.000.000 D srv  log_server_r: request: {{"prompt":"{SECRET}"}}',
        f"0.01.000.000 D srv   launch_slot: {SECRET} out of memory no usable GPU found",
        f'0.01.000.000 W srv    operator(): got exception: {{"message":"{SECRET} CUDA error: out of memory"}}',
        f"0.01.000.000 W srv    operator(): got exception: {SECRET} CUDA error: out of memory",
        f"0.01.000.000 W common_chat_parse: unparsed output: {SECRET} is out of memory",
        f"{SECRET} prompt cache update took 5.00 ms CUDA error: out of memory GGML_ASSERT(x)",
    ]
    story = only((content("served_five").decode() + "\n".join(lines) + "\n").encode())

    assert "swordfish" not in repr(story)
    assert story.failure is None
    assert set(story.seen) == set(only(content("served_five")).seen), "nor is it taken for something that happened"
    assert story.count(Topic.DEBUG_LINE) > 3


def test_nothing_of_a_real_prompt_is_in_the_story_of_a_debug_log() -> None:
    assert "lighthouse" in content("served_five").decode(), "the requests of this log asked about one"
    assert "lighthouse" not in repr(only(content("served_five")))
