"""The pieces in which prompts are read, and the steps for which neighbours wait."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.batch import RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Line
from slotune.llama.log_stream import LogReader
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import (
    NOTHING,
    SLOWEST,
    found,
    is_clear,
    is_undecided,
    log,
    of,
    pod,
    probe,
    server,
    timings,
)

BY_WEIGHTS: dict[str, Any] = {"prefill_tokens_per_s": 1600.0, "decode_step_s": 0.01}
"""A piece of 32 tokens takes 20 ms, of which reading the weights is 10."""


def pieces(ubatch: int, batch: int = 2048, **speeds: Any) -> Symptoms:
    facts = {"model_buffers": {"CUDA0": 10**9}, "ubatch_size": ubatch, "batch_size": batch}
    return of(log=log(requests=timings(), facts=facts), probe=probe(**speeds))


def test_small_pieces_that_cost_little_more_than_a_token_are_found() -> None:
    said = found(RULES, "SLT020", pieces(32, **BY_WEIGHTS))
    assert "pieces of 32 tokens" in said.sentence
    assert said.cost.ttft_share == pytest.approx(0.5 * (1 - 32 / 512))
    assert said.first is not None
    assert "from 32 to 512" in said.first


def test_a_small_batch_makes_small_pieces_whatever_the_ubatch() -> None:
    assert "pieces of 64" in found(RULES, "SLT020", pieces(512, 64, **BY_WEIGHTS | {"decode_step_s": 0.02})).sentence


@pytest.mark.parametrize("ubatch", [512, 1024, 2048])
def test_pieces_of_the_default_or_more_are_never_a_fault(ubatch: int) -> None:
    assert is_clear(RULES, "SLT020", pieces(ubatch, **BY_WEIGHTS))


def test_small_pieces_on_a_cpu_are_work_and_no_fault() -> None:
    # As measured on two cores: 180 tokens/s of a prompt, 65 of an answer.
    assert is_clear(RULES, "SLT020", pieces(128, prefill_tokens_per_s=180.0, decode_step_s=1 / 65))
    assert is_clear(RULES, "SLT020", pieces(32, prefill_tokens_per_s=180.0, decode_step_s=1 / 65))


def test_prompts_that_fit_one_piece_are_not_read_in_pieces() -> None:
    short = log(requests=timings(40, prompt_tokens=40 * 20), facts={"ubatch_size": 32, "batch_size": 2048})
    assert is_clear(RULES, "SLT020", of(log=short, probe=probe(**BY_WEIGHTS)))


def test_pieces_are_undecided_without_their_size_or_their_speed() -> None:
    assert is_undecided(RULES, "SLT020", NOTHING)
    assert is_undecided(RULES, "SLT020", of(log=log(requests=timings()), server=server()))
    assert is_undecided(RULES, "SLT020", of(log=log(facts={"ubatch_size": 32, "batch_size": 2048})))
    assert is_clear(RULES, "SLT020", of(pod=pod()))
    assert is_undecided(RULES, "SLT020", of(pod=pod("-ub", "many")))


HELD_UP = (4.0, 30.0, 50.0)
"""Tokens/s of answers, some of which stood still."""


def stalled(
    tokens: int,
    seconds: float,
    batch: int | None,
    speeds: tuple[float, float, float] = HELD_UP,
    *,
    beside: bool = True,
) -> Symptoms:
    example = Line(77, SLOWEST.format(ms=1e3 * seconds, tokens=tokens))
    requests = timings(decode_tokens_per_s=speeds, example=example, example_beside=example if beside else None)
    return of(log=log(requests=requests, facts={} if batch is None else {"batch_size": batch}))


def test_a_long_prompt_in_one_huge_step_stalls_its_neighbours() -> None:
    said = found(RULES, "SLT021", stalled(1600, 8.0, 2048))
    assert "all other answers wait 8.0 s" in said.sentence
    assert said.evidence[0].line == 77
    assert said.cost.speed_share == pytest.approx(1 - 4 / 50)
    assert said.first is not None
    assert "about 2.6 s" in said.first


def test_a_stall_that_shows_in_the_answers_is_found_without_the_size_of_the_batch() -> None:
    assert found(RULES, "SLT021", stalled(1600, 8.0, None)).confidence is Confidence.POSSIBLE
    assert is_undecided(RULES, "SLT021", stalled(1600, 8.0, None, (45.0, 50.0, 55.0)))


def test_a_long_prompt_that_may_have_been_alone_is_no_alarm() -> None:
    found(RULES, "SLT021", stalled(1600, 8.0, 2048, beside=False), Severity.INFO)


def request(slot: int, task: int, tokens: int, prompt_ms: float, answer_ms: float = 1000.0) -> tuple[str, str]:
    """The lines by which a request of 20 tokens begins, and those by which it ends."""
    of_it = f"id {slot:2d} | task {task} |"
    return (
        f"slot launch_slot_: {of_it} processing task, is_child = 0\n",
        (
            f"slot print_timing: {of_it} prompt eval time = {prompt_ms:.2f} ms / {tokens} tokens\n"
            f"slot print_timing: {of_it}        eval time = {answer_ms:.2f} ms / 20 tokens\n"
            f"slot      release: {of_it} stop processing: n_tokens = {tokens + 19}, truncated = 0\n"
        ),
    )


def served(*lines: str) -> Symptoms:
    start = "build: 11434 (1af25fa1) with cc for x86_64-linux-gnu\nsrv  llama_server: model loaded\n"
    reader = LogReader("server.log")
    reader.feed((start + "".join(lines)).encode())
    (story,) = reader.finish()
    return of(log=story, pod=pod("-b", "2048"))


ALONE = [line for task in range(10) for line in request(0, task, 20, 100.0, 400.0)]
SIX = [request(slot, 20 + slot, 20, 300.0, 4000.0) for slot in range(6)]
LONG = request(7, 99, 1600, 8000.0)


def test_a_long_prompt_that_came_when_nobody_else_was_there_stalled_nobody() -> None:
    """Others did run together, and answers did differ in speed, only at other times."""
    together = [one[0] for one in SIX] + [one[1] for one in SIX]
    assert is_clear(RULES, "SLT021", served(*ALONE, *together, *LONG))


def test_a_long_prompt_that_came_while_others_ran_stalled_them() -> None:
    began, ended = [one[0] for one in SIX], [one[1] for one in SIX]
    said = found(RULES, "SLT021", served(*ALONE, *began, LONG[0], *ended, LONG[1]))
    assert "all other answers wait 8.0 s" in said.sentence
    assert "task 99 |" in said.evidence[0].text


def test_small_pieces_on_a_cpu_are_told_and_alarm_nobody() -> None:
    facts = {"model_buffers": {"CPU_Mapped": 10**9}, "ubatch_size": 32, "batch_size": 2048}
    said = found(
        RULES, "SLT020", of(log=log(requests=timings(), facts=facts), probe=probe(**BY_WEIGHTS)), Severity.INFO
    )
    assert said.cost.ttft_share is None


def test_a_pause_that_no_answer_shows_is_no_alarm() -> None:
    found(RULES, "SLT021", stalled(1600, 8.0, 2048, (45.0, 50.0, 55.0)), Severity.INFO)


@pytest.mark.parametrize(
    ("tokens", "seconds", "batch"),
    [(1600, 0.4, 2048), (400, 3.0, 2048), (1600, 8.0, 512), (700, 4.0, 2048)],
    ids=["a fast GPU", "short prompts", "small steps already", "hardly longer than a small step"],
)
def test_steps_that_are_short_or_can_not_be_shorter_are_no_fault(tokens: int, seconds: float, batch: int) -> None:
    assert is_clear(RULES, "SLT021", stalled(tokens, seconds, batch))


def test_nobody_stalls_who_is_alone_and_nobody_knows_without_a_log() -> None:
    alone = timings(most_busy_slots=1, example=Line(1, SLOWEST.format(ms=8000, tokens=1600)))
    assert is_clear(RULES, "SLT021", of(log=log(requests=alone, facts={"batch_size": 2048})))
    assert is_undecided(RULES, "SLT021", of(probe=probe(), server=server()))


def test_prompts_that_are_read_much_slower_than_alone_share_their_batch() -> None:
    crowded = log(requests=timings(prefill_tokens_per_s=(40.0, 80.0, 190.0)))
    said = found(RULES, "SLT022", of(log=crowded, probe=probe()), Severity.INFO)
    assert said.cost.ttft_share == pytest.approx(0.6)
    found(RULES, "SLT022", of(log=crowded, probe=probe(), promise=Promise(0.5)))


def test_prompts_at_the_speed_that_they_have_alone_do_not_contend() -> None:
    assert is_clear(RULES, "SLT022", of(log=log(requests=timings()), probe=probe()))
    slow = timings(prefill_tokens_per_s=(40.0, 80.0, 190.0), most_busy_slots=1)
    assert is_clear(RULES, "SLT022", of(log=log(requests=slow), probe=probe()))


def test_contention_needs_a_log_and_a_probe_of_an_idle_server() -> None:
    crowded = log(requests=timings(prefill_tokens_per_s=(40.0, 80.0, 190.0)))
    assert is_undecided(RULES, "SLT022", of(log=crowded))
    assert is_undecided(RULES, "SLT022", of(log=crowded, probe=probe(was_idle=False)))


def test_a_prompt_that_alone_takes_longer_than_owed_is_named() -> None:
    said = found(RULES, "SLT024", of(log=log(requests=timings()), probe=probe(), promise=Promise(0.8)))
    assert "reading 200 tokens alone takes 1.0 s here (200 tokens/s), 0.8 s are owed" in said.sentence


def test_a_prompt_in_time_or_one_that_nobody_is_owed_is_clear() -> None:
    assert is_clear(RULES, "SLT024", of(log=log(requests=timings()), probe=probe(), promise=Promise(1.2)))
    assert is_clear(RULES, "SLT024", NOTHING)
    assert is_undecided(RULES, "SLT024", of(promise=Promise(1.0)))
