"""The pieces in which prompts are read, and the steps for which neighbours wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.finding import Confidence, Cost, Severity
from slotune.diagnose.rules.batch import RULES
from slotune.diagnose.symptoms import ProbeFacts, Symptoms
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
    # 200 tokens are 7 pieces of 10 ms and 62.5 ms of work; in one piece 6 times 10 ms are saved. 8 ms come before.
    assert said.cost.ttft_share == pytest.approx(60 / 132.5 * 125 / 133)
    assert "larger ones save at most 45 %" in said.sentence
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
    assert "ran at 4 tokens/s, the fastest at 50" in said.sentence
    assert said.cost == Cost()
    assert said.first is not None
    assert "about 2.6 s" in said.first


def test_a_stall_that_shows_in_the_answers_is_found_without_the_size_of_the_batch() -> None:
    assert found(RULES, "SLT021", stalled(1600, 8.0, None)).confidence is Confidence.POSSIBLE
    assert is_undecided(RULES, "SLT021", stalled(1600, 8.0, None, (45.0, 50.0, 55.0)))


def test_a_prompt_that_is_longer_than_a_step_keeps_nobody_waiting_for_all_of_it() -> None:
    said = found(RULES, "SLT021", stalled(20_480, 40.0, None))
    assert "up to 2,048 of them are one step at the default --batch-size" in said.sentence
    assert "wait 4.0 s" in said.sentence
    assert is_undecided(RULES, "SLT021", stalled(20_480, 5.0, None))  # with -b 20480 a pause of 5 s


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


def crowd(tokens: int, prompt_ms: float, answer_ms: float = 1000.0, *, rounds: int = 4, at_once: int = 4) -> list[str]:
    """Requests that begin together, and end together before the next do."""
    lines: list[str] = []
    for turn in range(rounds):
        together = [request(slot, 100 * turn + slot, tokens, prompt_ms, answer_ms) for slot in range(at_once)]
        lines += [one[0] for one in together] + [one[1] for one in together]
    return lines


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


def test_answers_that_are_slow_because_they_share_steps_did_not_stall() -> None:
    """Some run alone at 47.5 tokens/s, some six at a time at 11.9; a long prompt beside them is told all the same."""
    six = [request(slot, 20 + slot, 20, 300.0, 1600.0) for slot in range(6)]
    began, ended = [one[0] for one in six], [one[1] for one in six]
    said = found(RULES, "SLT021", served(*ALONE[:2], *began, LONG[0], *ended, LONG[1]), Severity.INFO)
    assert "tokens/s" not in said.sentence
    assert said.cost == Cost()


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


LARGE = probe(prompt_tokens=4000, prefill_tokens_per_s=10_000.0, decode_step_s=0.01, overhead_s=0.1)
"""A GPU that reads 4,000 tokens in 0.4 s."""


def beside(lines: list[str], probed: ProbeFacts = LARGE, **more: Any) -> Symptoms:
    return replace(served(*lines), probe=probed, **more)


def test_long_prompts_that_took_much_longer_than_alone_share_their_batch() -> None:
    crowded = beside(crowd(3990, 1600.0))
    said = found(RULES, "SLT022", crowded, Severity.INFO)
    # 16 prompts: 25.6 s seen; alone 16 * 3990 tokens at 10,000/s, and a step of 10 ms for each: 6.544 s.
    share = 1 - 6.544 / 25.6
    assert f"about {100 * share:.0f} % of their time" in said.sentence
    assert said.cost.ttft_share == pytest.approx(share * 1.6 / 1.7)
    found(RULES, "SLT022", replace(crowded, promise=Promise(1.0)))


def test_what_a_cache_left_of_a_prompt_is_not_held_against_a_long_one() -> None:
    """80 tokens take a step of 30 ms, alone or not: 2,667 tokens/s, and a prompt of 4,000 is read at 10,000."""
    assert is_undecided(RULES, "SLT022", beside(crowd(80, 30.0)))
    assert is_undecided(RULES, "SLT022", beside(crowd(20, 30.0)))


def test_the_fixed_cost_of_a_step_is_not_other_requests_work() -> None:
    slow_steps = replace(LARGE, decode_step_s=0.03)
    assert is_clear(RULES, "SLT022", beside(crowd(300, 60.0), slow_steps))


def test_short_prompts_among_long_ones_do_not_make_these_slow() -> None:
    mixed = crowd(3990, 420.0) + [line.replace("task ", "task 9") for line in crowd(10, 25.0, rounds=40)]
    assert is_clear(RULES, "SLT022", beside(mixed))


def test_prompts_behind_much_context_are_not_held_against_one_without() -> None:
    short = probe(prompt_tokens=500, prefill_tokens_per_s=10_000.0, decode_step_s=0.01)
    assert is_undecided(RULES, "SLT022", beside(crowd(16_000, 6400.0), short))


def test_prompts_at_the_speed_that_they_have_alone_do_not_contend() -> None:
    assert is_clear(RULES, "SLT022", beside(crowd(3990, 420.0)))


def test_prompts_that_had_nothing_beside_them_do_not_contend() -> None:
    assert is_clear(RULES, "SLT022", beside(crowd(3990, 1600.0, at_once=1)))


def test_contention_needs_a_log_and_a_probe_of_an_idle_server() -> None:
    lines = crowd(3990, 1600.0)
    assert is_undecided(RULES, "SLT022", served(*lines))
    assert is_undecided(RULES, "SLT022", beside(lines, replace(LARGE, was_idle=False)))
    assert is_undecided(RULES, "SLT022", of(probe=LARGE))


def test_a_prompt_that_alone_takes_longer_than_owed_is_named() -> None:
    said = found(RULES, "SLT024", of(log=log(requests=timings()), probe=probe(), promise=Promise(0.8)))
    assert "reading 200 tokens alone takes 1.0 s here (200 tokens/s), 0.8 s are owed" in said.sentence


def test_a_prompt_alone_explains_what_it_takes_alone_and_not_the_whole_wait() -> None:
    """3,990 tokens alone take 0.399 s; with others beside it was 1.6 s, and 0.1 s come before."""
    said = found(RULES, "SLT024", beside(crowd(3990, 1600.0), promise=Promise(0.3)))
    assert said.cost.ttft_s == pytest.approx(0.399, rel=0.006)  # lengths are kept to half a percent
    assert said.cost.ttft_share == pytest.approx(0.399 / 1.7, rel=0.01)
    assert said.confidence is Confidence.LIKELY


def test_a_prompt_can_not_take_longer_alone_than_it_took_beside_others() -> None:
    slow = replace(LARGE, prefill_tokens_per_s=1000.0)
    assert is_clear(RULES, "SLT024", beside(crowd(3990, 1600.0), slow, promise=Promise(2.0)))
    late = found(RULES, "SLT024", beside(crowd(3990, 1600.0), slow, promise=Promise(1.0)))
    assert late.cost.ttft_s == pytest.approx(1.6, rel=0.006)


def test_what_a_prompt_takes_alone_is_a_bound_where_nothing_ever_ran_alone() -> None:
    said = found(RULES, "SLT024", replace(served(*crowd(3990, 1600.0)), promise=Promise(1.0)))
    assert "takes up to 1.6 s" in said.sentence
    assert said.cost == Cost()
    assert said.confidence is Confidence.POSSIBLE


def one_by_one(prompts: list[tuple[int, float]]) -> Symptoms:
    """Prompts of (tokens, ms), one at a time."""
    return served(*(line for task, (tokens, ms) in enumerate(prompts) for line in request(0, task, tokens, ms)))


def test_a_quarter_of_late_prompts_is_no_promise_kept_whatever_their_mean_is() -> None:
    """41 of 159 took two seconds, the rest 50 ms: half a second on average, where 0.8 are owed to 95 of 100."""
    server_log = one_by_one([(50, 50.0)] * 118 + [(1000, 2000.0)] * 41)
    said = found(RULES, "SLT024", replace(server_log, promise=Promise(0.8)))
    assert "41 of 159 prompts took over 0.8 s to read, 5 % may, and nothing ran beside them" in said.sentence
    assert said.confidence is Confidence.LIKELY
    assert is_clear(RULES, "SLT024", replace(server_log, promise=Promise(2.0)))
    assert is_clear(RULES, "SLT024", replace(server_log, promise=Promise(0.8, violation_share=0.3)))


def test_one_late_prompt_of_a_few_may_be_chance_and_so_many_as_may_be_are_none_too_many() -> None:
    assert is_undecided(RULES, "SLT024", replace(one_by_one([(50, 50.0)] * 9 + [(9, 2e3)]), promise=Promise(0.8)))
    assert is_clear(RULES, "SLT024", replace(one_by_one([(50, 50.0)] * 38 + [(9, 2e3)] * 2), promise=Promise(0.8)))


def test_prompts_that_are_late_only_beside_others_are_not_called_late_alone() -> None:
    assert is_undecided(RULES, "SLT024", beside(crowd(3990, 1600.0), promise=Promise(1.0)))


def test_a_mean_without_the_times_of_each_prompt_decides_nothing() -> None:
    only_sums = log(requests=timings(prompt_ms_spread=(), prompt_tokens_spread=()))
    assert is_undecided(RULES, "SLT024", of(log=only_sums, probe=probe(), promise=Promise(1.2)))


def test_a_prompt_in_time_or_one_that_nobody_is_owed_is_clear() -> None:
    assert is_clear(RULES, "SLT024", of(log=log(requests=timings()), probe=probe(), promise=Promise(1.2)))
    assert is_clear(RULES, "SLT024", NOTHING)
    assert is_undecided(RULES, "SLT024", of(promise=Promise(1.0)))
