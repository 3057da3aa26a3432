"""A log that was copied from a terminal, which broke its lines, tells what it told before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader

LOGS = Path(__file__).parent / "logs"
SERVED = ["served_three", "served_four", "cuda_kernel_fallback"]


def read(content: bytes, *, block: int = 1 << 20) -> LogStory:
    reader = LogReader("server.log", block=block)
    reader.feed(content)
    (story,) = reader.finish()
    return replace(story, size_bytes=0)


def folded(text: str, width: int) -> str:
    return "\n".join(
        line[start : start + width] for line in text.split("\n") for start in range(0, max(1, len(line)), width)
    )


def facts(story: LogStory) -> tuple[object, ...]:
    counts = {topic: seen.count for topic, seen in story.seen.items()}
    requests = None if story.requests is None else story.requests.predicted_ms
    return story.facts, counts, requests, story.lines, story.starts, story.verbosity


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", SERVED)
def test_lines_that_a_terminal_broke_are_joined(name: str, width: int) -> None:
    text = (LOGS / f"{name}.log").read_text()

    assert facts(read(folded(text, width).encode())) == facts(read(text.encode()))


@pytest.mark.parametrize("block", [500, 5000])
def test_how_a_broken_log_is_cut_into_blocks_changes_nothing(block: int) -> None:
    text = folded((LOGS / "served_four.log").read_text(), 80).encode()

    assert read(text, block=block) == read(text)


def test_a_line_keeps_the_number_that_it_has_in_the_file() -> None:
    text = folded((LOGS / "served_four.log").read_text(), 60)
    story = read(text.encode())
    line = story.fact_lines["slots"]

    assert text.split("\n")[line.number - 1].strip() in line.text or "n_slots" in line.text
    assert text.split("\n")[line.number - 1][24:] in line.text


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.glob("*.log")))
def test_lines_that_are_equally_long_by_themselves_stay_apart(name: str) -> None:
    text = (LOGS / f"{name}.log").read_text()

    assert read(text.encode()).lines == len(text.splitlines())
