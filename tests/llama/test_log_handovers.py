"""At the default verbosity nothing says what copying a prompt out of a slot takes, but two lines have a time.

What it can take is in mostlygeek/llama-swap#560, at a higher verbosity.
"""

from __future__ import annotations

import pytest

from slotune.llama.log_story import LogStory, Seen
from slotune.llama.log_stream import LogReader

UP = "0.00.000.100 I srv    load_model: loading model 'm.gguf'\n0.00.900.000 I srv  llama_server: model loaded\n"
OLDEST = "selected slot by LRU, t_last = 347604932"
ALIKE = "selected slot by LCP similarity, sim_best = 0.450 (> 0.100 thold), f_keep = {kept}"


def handed(pick: str, *, at: str = "1.29.730.028", until: str = "2.08.174.164", slot: int = 0) -> str:
    """As builds of summer 2026 print it at ``-lv 3``."""
    return (
        f"{at} I slot get_availabl: id  0 | task -1 | {pick}\n"
        f"{until} I slot launch_slot_: id  {slot} | task 243 | processing task, is_child = 0\n"
    )


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed((UP + text).encode())
    (story,) = reader.finish()
    return story


def handover(text: str) -> Seen | None:
    return read(text).handovers


@pytest.mark.parametrize("pick", [OLDEST, ALIKE.format(kept="0.441")])
def test_what_lies_between_the_pick_of_a_slot_and_the_work_in_it_is_counted(pick: str) -> None:
    seen = handover(handed(pick) + handed(pick, at="2.10.000.000", until="2.10.000.500"))
    assert seen is not None
    assert seen.count == 2
    assert seen.total_ms == pytest.approx(38_444.136 + 0.5)
    assert (seen.first.number, seen.last.number) == (3, 4), "the longest"


@pytest.mark.parametrize(
    "text",
    [
        handed(ALIKE.format(kept="0.500")),
        handed(OLDEST, slot=1),
        handed(OLDEST, until="0.00.174.164"),
        handed(OLDEST).replace("1.29.730.028 I ", "").replace("2.08.174.164 I ", ""),
        handed(OLDEST).splitlines(keepends=True)[1],
    ],
    ids=["half is kept", "another slot", "time goes back", "no times", "no pick"],
)
def test_other_lines_are_no_handover(text: str) -> None:
    assert handover(text) is None


def test_a_pick_is_of_one_request() -> None:
    launched = handed(OLDEST).splitlines(keepends=True)[1].replace("2.08.", "3.08.")
    seen = handover(handed(OLDEST) + launched)
    assert seen is not None
    assert seen.count == 1


def test_what_a_slot_without_copies_takes_is_no_copying() -> None:
    # A second for a grammar, which each of three requests has; one of them also waits 38 s for copies.
    plain = handed(ALIKE.format(kept="0.900"), at="2.10.000.000", until="2.11.000.000")
    seen = handover(handed(OLDEST) + 2 * plain)
    assert seen is not None
    assert seen.count == 1
    assert seen.total_ms == pytest.approx(38_444.136 - 1000)


def test_of_very_many_the_times_of_some_tell_what_all_took() -> None:
    moments = (f"{n // 600}.{n // 10 % 60:02d}.{n % 10}" for n in range(100_000))
    ends = "slot      release: id  0 | task 243 | stop processing: n_tokens = 10, truncated = 0\n"
    both = [handed(OLDEST, at=f"{of}00.000", until=f"{of}20.{n % 100:03d}") for n, of in enumerate(moments)]
    seen = handover(ends.join(both))
    assert seen is not None
    assert seen.count == 100_000
    assert seen.total_ms == pytest.approx(100_000 * 20.0495, rel=1e-3)
