"""What a forgotten prompt costs is what it had in common with its slot, as the log says."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.reuse import RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import found, of

BEGIN = "0.04.000.000 W slot update_slots: id  {slot} | task {task} | "
FORGOTTEN = (
    BEGIN
    + "n_past = {shared}, slot.prompt.tokens.size() = 90400, seq_id = {slot}, pos_min = 90399, n_swa = 1\n"
    + BEGIN
) + "forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory)\n"
ERASED = (
    BEGIN + "erased invalidated context checkpoint (pos_min = {at}, pos_max = {at}, n_tokens = {tokens}, n_swa = 0, "
    "pos_next = 0, size = 149.626 MiB)\n"
)
TIMES = """\
0.04.000.000 I slot print_timing: id  {slot} | task {task} | prompt eval time =    4000.00 ms /  {read} tokens
0.04.000.000 I slot print_timing: id  {slot} | task {task} |        eval time =    1000.00 ms /    50 tokens
0.04.000.000 I slot      release: id  {slot} | task {task} | stop processing: n_tokens = 90000, truncated = 0
"""


def read(*parts: str) -> Symptoms:
    reader = LogReader("server.log")
    reader.feed("".join(parts).encode())
    (story,) = reader.finish()
    return of(log=story)


def prompts(count: int, shared: int, tokens: int = 2000) -> list[str]:
    return [
        (FORGOTTEN + TIMES).format(slot=task % 4, task=task, shared=shared, read=tokens)
        for task in range(100, 100 + count)
    ]


def test_a_template_that_prompts_share_is_little_to_read_again() -> None:
    said = found(RULES, "SLT041", read(*prompts(12, 21)), Severity.INFO)
    assert said.sentence.startswith("12 of 12 prompts were read from the start")
    assert said.sentence.endswith("252 tokens of them were in the slot and read again")
    assert "n_past = 21, slot.prompt.tokens.size() = 90400" in said.evidence[0].text
    assert said.cost.ttft_share == 252 / 24_000


def test_what_is_read_again_each_time_is_an_alarm() -> None:
    said = found(RULES, "SLT041", read(*prompts(12, 1500)))
    assert said.cost.ttft_share == 0.75
    assert said.cost.ttft_s == pytest.approx(3.0, rel=0.01)


def test_slots_lines_that_come_between_each_other_are_told_apart() -> None:
    first, second = (FORGOTTEN.format(slot=slot, task=slot, shared=shared) for slot, shared in ((0, 5000), (1, 7)))
    between = [line for both in zip(first.splitlines(True), second.splitlines(True), strict=True) for line in both]
    assert "5,007 tokens of them" in found(RULES, "SLT041", read(*between)).sentence


def test_a_long_checkpoint_that_is_thrown_away_bounds_what_was_lost() -> None:
    line = BEGIN + "forcing full prompt re-processing due to lack of cache data (likely due to SWA)\n"
    thrown = ERASED.replace("{tokens}", "75963").replace("{at}", "75962")
    said = found(RULES, "SLT041", read(*(text.format(slot=0, task=48472) for text in (line, thrown))))
    assert said.confidence is Confidence.POSSIBLE
    assert "a checkpoint of 75,963 tokens was thrown away: up to so much was read twice" in said.sentence
    oldest = "0.03.000.000 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 96\n"
    other = read(oldest, *(text.format(slot=0, task=48472) for text in (line, thrown)))
    found(RULES, "SLT041", other, Severity.INFO)
