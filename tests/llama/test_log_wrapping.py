"""Whatever a keeper of logs put around a server's lines, alone or together, the log tells what the bare one tells."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotune.llama.log_story import Line, LogStory, Topic
from slotune.llama.log_stream import LogReader
from slotune.llama.log_times import seconds_of

LOGS = Path(__file__).parent / "logs"
SERVED = ["served_three", "served_four"]

Wrap = Callable[[int, str], str]
"""Makes a line from its number and its text."""


def bare(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text().splitlines()


def log(lines: Sequence[str], *wraps: Wrap) -> bytes:
    """Lines within the first of ``wraps``, within the next."""
    for wrap in wraps:
        lines = [wrap(number, line) for number, line in enumerate(lines)]
    return "".join(f"{line}\n" for line in lines).encode()


def read(*chunks: bytes, block: int = 1 << 20) -> tuple[LogStory, ...]:
    reader = LogReader("server.log", block=block)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


@cache
def of_bare(name: str) -> LogStory:
    (story,) = read(log(bare(name)))
    return story


def told(story: LogStory) -> LogStory:
    """``story`` without what a wrapping may change: the name, the size and the time."""
    return replace(story, source="", size_bytes=0, seconds=None, loaded_s=None)


def totals(story: LogStory) -> dict[str, object]:
    """Of its requests, without the lines that they are quoted with, whose numbers a wrapping may change."""
    assert story.requests is not None
    values = {entry.name: getattr(story.requests, entry.name) for entry in fields(story.requests)}
    return {name: value for name, value in values.items() if not isinstance(value, Line)}


def counts(story: LogStory) -> dict[Topic, int]:
    return {topic: seen.count for topic, seen in story.seen.items()}


def clock(number: int) -> str:
    return f"{4 + number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}"


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def level(number: int) -> str:
    return "WARNING" if number % 7 == 3 else "INFO"


PREFIXES: dict[str, Wrap] = {
    "nothing": lambda n, line: line,
    "a quotation": lambda n, line: f"> {line}",
    "cat -n": lambda n, line: f"{n + 1:6}\t{line}",
    "grep -n": lambda n, line: f"{n + 1}:{line}",
    "the borders of a window": lambda n, line: f"│ {line:120} │",
    "a block of Markdown": lambda n, line: f"    {line}",
    "minutes of a run": lambda n, line: f"{n // 60:02}:{n % 60:02}.46 {line}",
    "kubectl --timestamps": lambda n, line: f"2026-11-30T{clock(n)}.123456789Z {line}",
    "time in brackets and a level": lambda n, line: f"[2026-11-30 {clock(n)}] {level(n)}: {line}",
    "clock and level": lambda n, line: f"{clock(n)}.123 {level(n)} {line}",
    "level that is padded": lambda n, line: f"{clock(n)} {level(n):8} {line}",
    "Python's logging": lambda n, line: f"2026-11-30 {clock(n)},123 - llama - {level(n)} - {line}",
    "level first": lambda n, line: f"{level(n)}:llama:{line}",
    "level as a field": lambda n, line: f"level=info {line}",
    "lower-case level": lambda n, line: f"2026/11/30 {clock(n)} info {line}",
    "logfmt": lambda n, line: f'time="2026-11-30T{clock(n)}Z" level=info msg={json.dumps(line)}',
    "logfmt and more fields": lambda n, line: f"ts=2026-11-30T{clock(n)}Z level=info msg={json.dumps(line)} stream=err",
    "syslog": lambda n, line: f"Nov 30 {clock(n)} host llama-server[12]: {line}",
    "journald, ISO": lambda n, line: f"2026-11-30T{clock(n)}+0000 host llama-server[12]: {line}",
    "journald, full": lambda n, line: f"Mon 2026-11-30 {clock(n)} UTC host llama-server[12]: {line}",
    "journald, monotonic": lambda n, line: f"[ {1234 + n}.567890] host llama-server[12]: {line}",
    "ts": lambda n, line: f"Nov 30 {clock(n)} {line}",
    "seconds since 1970": lambda n, line: f"{1790000000 + n}.123456 {line}",
    "klog": lambda n, line: f"I1130 {clock(n)}.123456      12 run.go:45] {line}",
    "containerd": lambda n, line: f"2026-11-30T{clock(n)}.123456789Z stderr F {line}",
    "kubectl --prefix": lambda n, line: f"[pod/llama-0/server] {line}",
    "stern": lambda n, line: f"llama-0 server {line}",
    "Compose": lambda n, line: f"llama-1  | {line}",
    "Compose with times": lambda n, line: f"llama-1  | 2026-11-30T{clock(n)}.123456789Z {line}",
    "Honcho": lambda n, line: f"{clock(n)} llama.1 | {line}",
    "a Swarm's service": lambda n, line: f"chat_llama.1.x7k2m9@node-1    | {line}",
    "CloudWatch's tail": lambda n, line: f"2026-11-30T{clock(n)}.123000+00:00 llama/server/0a1b2c {line}",
    "Loki's text": lambda n, line: f"2026-11-30T{clock(n)}Z\t{line}",
    "logcli": lambda n, line: f'2026-11-30T{clock(n)}Z {{app="llama", pod="llama-0"}} {line}',
    "Loki's CSV": lambda n, line: '"2026-11-30 {}","{}"'.format(clock(n), line.replace('"', '""')),
    "Docker's files": lambda n, line: compact(
        {"log": f"{line}\n", "stream": "stderr", "time": f"2026-11-30T{clock(n)}.5Z"}
    ),
    "Fluent Bit": lambda n, line: compact(
        {
            "date": 1790000000.5 + n,
            "stream": "stderr",
            "message": line,
            "kubernetes": {"pod_name": "llama-0", "namespace_name": "chat", "container_name": "server"},
        }
    ),
    "Fluentd's files": lambda n, line: f"2026-11-30 {clock(n)}.5 +0000 kube.llama: {compact({'log': line})}",
    "Google's logging": lambda n, line: compact(
        {
            "textPayload": line,
            "timestamp": f"2026-11-30T{clock(n)}.5Z",
            "resource": {"type": "k8s_container", "labels": {"pod_name": "llama-0", "container_name": "server"}},
        }
    ),
    "Google's logging, nested": lambda n, line: compact({"jsonPayload": {"message": line}, "severity": "INFO"}),
    "CloudWatch's export": lambda n, line: compact({"timestamp": 1790000000000 + n, "message": line}),
    "logcli, JSON": lambda n, line: compact(
        {"labels": {"pod": "llama-0"}, "line": line, "timestamp": f"2026-11-30T{clock(n)}Z"}
    ),
    "journald, JSON": lambda n, line: compact(
        {"MESSAGE": line, "SYSLOG_IDENTIFIER": "llama-server", "__REALTIME_TIMESTAMP": str(1790000000000000 + n)}
    ),
    "journald, JSON of bytes": lambda n, line: compact({"MESSAGE": list(line.encode()), "_PID": "12"}),
    "a logger's JSON": lambda n, line: compact({"level": "info", "ts": 1790000000.5 + n, "msg": line}),
}
"""What llama-server's lines are found in, as those programs print them."""


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("prefix", list(PREFIXES))
def test_what_a_keeper_puts_around_the_lines_changes_nothing(name: str, prefix: str) -> None:
    (story,) = read(log(bare(name), PREFIXES[prefix]))

    assert told(story) == told(of_bare(name))


SHOWN = {"the borders of a window", "grep -n"}
"""What is put around lines as they are shown, and by nobody who keeps them: no keeper puts anything around that."""


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SERVED),
    st.lists(st.sampled_from(sorted(PREFIXES.keys() - SHOWN)), min_size=2, max_size=2),
    st.lists(st.integers(1, 60_000), max_size=6),
)
@example("served_three", ["journald, monotonic", "a block of Markdown"], [])
def test_nor_do_two_of_them_at_once(name: str, prefixes: list[str], cuts: list[int]) -> None:
    wrapped = log(bare(name), *(PREFIXES[prefix] for prefix in prefixes))
    ends = [0, *sorted({cut for cut in cuts if cut < len(wrapped)}), len(wrapped)]
    stories = read(*(wrapped[start:end] for start, end in itertools.pairwise(ends)))

    assert [told(story) for story in stories] == [told(of_bare(name))]
    assert stories == read(wrapped), "how it was cut into chunks does not matter"


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(PREFIXES)), st.integers(2000, 40_000))
def test_nor_does_how_much_of_it_is_looked_at_together(prefix: str, block: int) -> None:
    wrapped = log(bare("served_four"), PREFIXES[prefix])
    (story,), alone = read(wrapped, block=block), of_bare("served_four")

    assert (story.facts, totals(story), counts(story)) == (alone.facts, totals(alone), counts(alone))


def test_a_level_that_first_comes_late_is_taken_off_too() -> None:
    others = ["0.08.000.000 I srv  get_availabl: prompt cache update took 12.50 ms"] * 300
    late = "0.09.000.000 W srv        update:  - cache size limit reached, removing oldest entry (size = 22.500 MiB)"
    lines = [f"{clock(n)} {'INFO':8} {line}" for n, line in enumerate([*bare("served_four"), *others])]
    (story,) = read(log([*lines, f"{clock(0)} {'WARNING':8} {late}"]))

    assert story.count(Topic.CACHE_EVICTED) == 1


# Routers


def router(names: Sequence[str], ports: Sequence[int]) -> list[str]:
    """What a router prints: its own lines, and those of its children in turn."""
    own = [
        "0.00.010.000 I srv    load_models: Available models (2)",
        "0.00.020.000 I srv          load: spawning server instance with name=a on port 8081",
    ]
    children = itertools.zip_longest(
        *([f"[{port:5}] {line}" for line in bare(name)] for name, port in zip(names, ports, strict=True))
    )
    return own + [line for turn in children for line in turn if line is not None]


@pytest.mark.parametrize("prefix", list(PREFIXES))
def test_the_children_of_a_router_are_told_apart_within_any_wrapping(prefix: str) -> None:
    ports = (443, 50000) if prefix == "nothing" else (8081, 41002)
    alone = [of_bare(name) for name in SERVED]
    stories = read(log(router(SERVED, ports), PREFIXES[prefix]))
    children = [next(story for story in stories if str(port) in story.source) for port in ports]

    for child, want in zip(children, alone, strict=True):
        assert child.facts == want.facts
        assert (totals(child), counts(child)) == (totals(want), counts(want))
    (own,) = (story for story in stories if not any(str(port) in story.source for port in ports))
    assert own.lines == 2
    assert own.facts.slots is None


def test_children_and_the_router_have_the_name_of_their_pod() -> None:
    wrapped = log(router(SERVED, (8081, 8082)), PREFIXES["kubectl --timestamps"], PREFIXES["kubectl --prefix"])
    assert [story.source for story in read(wrapped)] == ["llama-0", "llama-0:8081 (a)", "llama-0:8082"]
    assert [story.source for story in read(log(router(SERVED, (8081, 8082))))] == [
        "server.log",
        "port 8081 (a)",
        "port 8082",
    ]


def own_json(number: int, line: str) -> str:
    return compact({"type": "log", "time": number, "level": "cont", "msg": f"{line}\n"})


def test_a_child_that_writes_json_through_a_router_that_does_too_is_read() -> None:
    lines = [f"[ 8081] {own_json(number, line)}" for number, line in enumerate(bare("served_four"))]
    alone = of_bare("served_four")
    for wraps in ([], [own_json], [own_json, PREFIXES["Docker's files"]]):
        (story,) = read(log(lines, *wraps))
        assert story.source == "port 8081"
        assert told(story) == told(alone)


# Names


@pytest.mark.parametrize(
    ("prefix", "source"),
    [
        ("Fluent Bit", "llama-0"),
        ("Google's logging", "llama-0"),
        ("logcli, JSON", "llama-0"),
        ("syslog", "llama-server"),
        ("journald, ISO", "llama-server"),
        ("journald, JSON", "llama-server"),
        ("Compose with times", "llama-1"),
        ("clock and level", "server.log"),
        ("logfmt", "server.log"),
    ],
)
def test_a_server_has_the_name_that_its_keeper_gives_it(prefix: str, source: str) -> None:
    (story,) = read(log(bare("served_three"), PREFIXES[prefix]))
    assert story.source == source


@pytest.mark.parametrize("prefix", ["Fluent Bit", "Compose with times", "syslog", "Honcho", "logcli"])
def test_servers_with_different_names_are_told_apart(prefix: str) -> None:
    def other(number: int, line: str) -> str:
        wrapped = PREFIXES[prefix](number, line)
        return (
            wrapped.replace("llama-0", "llama-7")
            .replace("llama-1", "llama-7")
            .replace("llama.1", "llama.7")
            .replace("llama-server[", "other-server[")
        )

    pairs = itertools.zip_longest(
        log(bare("served_three"), PREFIXES[prefix]).splitlines(), log(bare("served_four"), other).splitlines()
    )
    mixed = b"".join(line + b"\n" for pair in pairs for line in pair if line is not None)
    stories = read(mixed)

    assert len({story.source for story in stories}) == 2
    assert [story.facts for story in stories] == [of_bare(name).facts for name in SERVED]


def test_the_name_of_a_pod_stands_before_that_of_a_logger_in_it() -> None:
    lines = log(bare("served_three"), PREFIXES["Python's logging"], PREFIXES["Fluent Bit"])
    others = log(bare("served_four"), PREFIXES["Python's logging"], PREFIXES["Fluent Bit"])
    stories = read(lines + others.replace(b"llama-0", b"llama-1"))

    assert [story.source for story in stories] == ["llama-0", "llama-1"]


# What is no prefix


def test_the_words_of_a_script_around_a_server_change_nothing() -> None:
    script = [f"2026-11-30 {clock(n)} INFO step {n}: worker {n % 3}: main loop" for n in range(300)]
    alone = of_bare("served_four")
    (story,) = read(log([*script, *bare("served_four"), *script[:9]]))

    assert story.source == "server.log"
    assert story.facts == alone.facts
    assert (totals(story), counts(story)) == (totals(alone), counts(alone))


def test_the_lines_that_llama_swap_prints_between_those_of_a_server_change_nothing() -> None:
    lines = []
    for number, line in enumerate(bare("served_four")):
        lines += [line, f"2026-11-30 {clock(number)} [INFO] Request 127.0.0.1 POST /v1/chat/completions"]
    alone, (story,) = of_bare("served_four"), read(log(lines))

    assert story.facts == alone.facts
    assert (totals(story), counts(story)) == (totals(alone), counts(alone))


def test_a_prefix_that_begins_after_the_lines_of_others_is_found() -> None:
    pulled = [f"Collecting package {n}" for n in range(3000)]
    alone = of_bare("served_four")
    (story,) = read(log(pulled) + log(bare("served_four"), PREFIXES["Python's logging"]))

    assert story.facts == alone.facts
    assert story.requests is not None


def test_lines_with_a_prefix_among_bare_ones_of_the_same_server_stay_together() -> None:
    lines = [
        PREFIXES["Python's logging"](number, line) if number % 3 == 0 else line
        for number, line in enumerate(bare("served_four"))
    ]
    alone, (story,) = of_bare("served_four"), read(log(lines))

    assert told(story) == told(alone)


@pytest.mark.parametrize("prefix", ["logfmt", "Docker's files", "journald, JSON of bytes", "syslog", "Loki's CSV"])
def test_colours_within_a_wrapping_are_taken_off(prefix: str) -> None:
    coloured = [f"\x1b[34m{line[:12]}\x1b[0m{line[12:]}" for line in bare("served_four")]
    (story,) = read(log(coloured, PREFIXES[prefix]))

    assert told(story) == told(of_bare("served_four"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("prefix", ["nothing", "Python's logging"])
def test_a_log_that_windows_wrote_is_read_from_its_first_line_on(encoding: str, prefix: str) -> None:
    lines = [line for line in bare("served_four") if line.isascii()][1:]
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (alone,) = read(log(lines))
    (story,) = read((mark + log(lines, PREFIXES[prefix]).decode().rstrip()).encode(encoding))

    assert told(story) == told(alone)


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_no_part_of_a_line_of_its_own_is_taken_for_a_prefix(name: str) -> None:
    whole, lines = read(log(bare(name))), bare(name)
    assert [story.source for story in whole] == ["server.log"]
    assert whole[0].lines == len(lines)
    stamped = [told(story) for story in read(log(lines, PREFIXES["kubectl --timestamps"]))]
    assert stamped == [told(story) for story in whole]


# Times


@pytest.mark.parametrize(
    "prefix",
    [
        "kubectl --timestamps",
        "logfmt",
        "journald, ISO",
        "seconds since 1970",
        "Docker's files",
        "Loki's CSV",
        "Google's logging",
    ],
)
def test_the_time_that_it_spans_is_its_keepers(prefix: str) -> None:
    lines = bare("served_three")
    (story,) = read(log(lines, PREFIXES[prefix]))
    assert story.seconds == pytest.approx(len(lines) - 1, abs=1)


@pytest.mark.parametrize(
    ("time", "want"),
    [
        (b"2026-11-30T04:03:08.5Z", 1796011388.5),
        (b"2026-11-30 05:03:08,500+01:00", 1796011388.5),
        (b"2026/11/30 04:03:08", 1796011388.0),
        (b"1796011388.5", 1796011388.5),
        (b"1796011388500", 1796011388.5),
        (b"1796011388500000000", 1796011388.5),
        (b"04:03:08", None),
        (b"2026-99-30T04:03:08Z", None),
    ],
)
def test_a_time_is_read_in_the_forms_that_keepers_have(time: bytes, want: float | None) -> None:
    assert seconds_of(time) == want


def test_lines_that_are_folded_to_the_last_one_leave_none_to_take_prefixes_off() -> None:
    info = "web  | system_info: n_threads = 4 / 40 | CPU : " + "SSE3 = 1 | " * 12
    reader = LogReader("compose.log")
    reader.feed("\n".join([info, "web  | ", info, info, info, "web  | ", ""]).encode())
    assert not any(story.requests for story in reader.finish())


INDENTED = """srv    load_model: loading model 'm.gguf'
srv    load_model: initializing slots, n_slots = 4
main: model loaded
slot launch_slot_: id  3 | task 0 | processing task, is_child = 0
slot print_timing: id  3 | task 0 |
prompt eval time =     700.00 ms /  1179 tokens (   20.99 ms per token,    47.64 tokens per second)
       eval time =     900.00 ms /    29 tokens (   32.03 ms per token,    31.22 tokens per second)
slot      release: id  3 | task 0 | stop processing: n_tokens = 1207, truncated = 0
"""


@pytest.mark.parametrize("blanks", ["    ", "\t", " "], ids=["four blanks", "a tab", "one blank"])
@pytest.mark.parametrize(
    "prefix", ["[ocr]        | ", "llama-cpp  | ", "[pod/chat-7d9f8/server] ", "[2026-05-01 10:00:00] [llama] "]
)
def test_what_a_keeper_put_in_front_is_taken_off_where_it_was_pasted_indented(blanks: str, prefix: str) -> None:
    plain = LogReader("server.log")
    plain.feed(INDENTED.encode())
    pasted = LogReader("server.log")
    pasted.feed("".join(f"{blanks}{prefix}{line}\n" for line in INDENTED.splitlines()).encode())
    (want,), (got,) = plain.finish(), pasted.finish()
    assert got.requests == want.requests
    assert got.requests is not None
    assert got.facts.slots == want.facts.slots == 4


@pytest.mark.parametrize("block", [1 << 20, 8000], ids=["in one piece", "in many"])
@pytest.mark.parametrize("names", [*itertools.permutations(["nothing", "bracketed", "a level"], 2)], ids=" then ".join)
def test_a_prefix_that_changes_late_in_a_log_is_learned_anew(names: tuple[str, str], block: int) -> None:
    """As where two files were put one behind the other, or the service that keeps the log was replaced."""
    forms: dict[str, Wrap] = {
        "nothing": lambda _, line: line,
        "bracketed": lambda n, line: f"[2026-11-30 {clock(n)}] [{level(n)}] {line}",
        "a level": lambda n, line: f"2026-11-30T{clock(n)}Z {level(n)} {line}",
    }
    lines, (first, then) = bare("served_five"), (forms[name] for name in names)
    changed = [(first if number < 320 else then)(number, line) for number, line in enumerate(lines)]
    (story,) = read(log(changed), block=block)
    (whole,) = read(log(lines))
    assert (totals(story), counts(story)) == (totals(whole), counts(whole))
    assert story.facts == whole.facts
