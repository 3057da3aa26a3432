"""What the terminal says, word for word at two widths, and that it holds for every ending."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.report.text import bench_text, ending_text, header_text, plain, trial_header, trial_line
from slotune.verdict.verdicts import Outcome
from tests.report.samples import ALL, Sample, infeasible, worked_example

ENDING_80 = """\
The promise can be kept for $1,460 a month; today’s $7,300 misses it.
Today                    5 × a100-40g · $7,300 a month · misses the promise
                         p95 TTFT 2.8 s · 98 tok/s per user (p5)
                         The queue is 1.4 s of 1.9 s: 8 slots, all busy.
                         3,000 of 4,000 prompt tokens were read before and are
                         read again.
What each change bought  queue: 4 × a100-40g, $5,840 (keeps the promise, saves
                         $1,460): 8 → 16 slots
                         cache: 2 × a100-40g, $2,920 (saves $2,920): prefix
                         cache
                         bytes: 1 × a100-40g, $1,460 (saves $1,460): BF16 →
                         Q8_0, KV f16 → q8_0
Cheapest that keeps it   1 × a100-40g · $1,460 a month (today 5 · $7,300) ·
                         $0.37 per million tokens out
                         16 slots, prefix cache, Q8_0, KV q8_0
                         p95 TTFT 0.64 s (at most 0.73 s, 95 % sure) · 43 tok/s
                         per user (p5)
llama-server -m /models/llama-8b.Q8_0.gguf -ngl all -fit off -np 16 -c 131072 \\
  -no-kvu -b 2048 -ub 512 -fa on -ctk q8_0 -ctv q8_0 --cache-prompt \\
  --cache-ram 0 --metrics --slots
How sure                 Nothing among 432 candidates can be cheaper.
                         The winner kept the promise twice, on fresh starts and
                         with fresh seeds.
                         Not proved: How the winner behaves above 6 requests/s
                         was not measured.
Spent                    38 min of GPU time in 9 trials
Next                     open out/report.html
                         slotune export out --format kustomize
"""


def ending(sample: Sample, width: int) -> str:
    return plain(
        ending_text(
            sample.problem, sample.decision, flags=sample.flags, findings=sample.findings, width=width, out="out"
        )
    )


def test_the_ending_of_the_worked_example() -> None:
    assert ending(worked_example(), 80) == ENDING_80


def test_the_header_names_model_hardware_and_promise() -> None:
    problem = worked_example().problem
    assert plain(header_text(problem, width=120)) == (
        "support-chat   8B · BF16, Q8_0, Q4_K_M · a100-40g at $2/h · "
        "owed: p95 TTFT ≤ 1 s and ≥ 30 tok/s per user at 6/s\n"
    )
    assert "$0.096/h" in plain(header_text(ALL["demo_like"]().problem, width=80))


def test_trials_come_row_by_row_with_their_reason() -> None:
    sample = worked_example()
    today, winner = sample.results[0], sample.results[2]
    rows = [
        plain(trial_line(sample.problem, result, n, findings=sample.findings, width=130))
        for n, result in ((1, today), (3, winner))
    ]
    assert plain(trial_header(sample.problem, width=130)) + "".join(rows) == (
        "  #  candidate                                 load        verdict        p95 TTFT  tok/s  why\n"
        "  1  baseline (what runs today)                1.2/s ×5    Fail              2.8 s     98  "
        "The queue is 1.4 s of 1.9 s: 8 slots,\n"
        "                                                                                           "
        "all busy. 3,000 of 4,000 prompt tokens\n"
        "                                                                                           "
        "were read before and are read again.\n"
        "  3  16 slots, prefix cache, Q8_0, KV q8_0     6/s ×1      Pass             0.64 s     43  "
        "Kept for 986 of 1,000 requests; at most\n"
        "     (confirmation)                                                                        "
        "4 % can be late, 5 % are allowed.\n"
    )


def test_a_verdict_is_coloured_on_a_terminal_only() -> None:
    sample = worked_example()
    line = trial_line(sample.problem, sample.results[0], 1, findings={}, width=80)
    assert "red" in {str(span.style) for span in line.spans}
    assert "\x1b" not in plain(line)


@pytest.mark.parametrize("width", [66, 80, 140])
@pytest.mark.parametrize("name", ALL)
def test_every_ending_fits_its_width_and_shows_only_numbers(name: str, width: int) -> None:
    sample = ALL[name]()
    trials = [plain(trial_line(sample.problem, r, 1, findings={}, width=width)) for r in sample.results]
    text = plain(header_text(sample.problem, width=width)) + ending(sample, width) + "".join(trials)
    for line in text.splitlines():
        assert len(line) <= width or line.startswith("llama-server"), line
    lowered = text.lower().split()
    assert not {"nan", "inf", "none", "null"} & {word.strip("().,;:") for word in lowered}


def test_an_infeasible_ending_says_why_and_what_came_nearest() -> None:
    text = ending(infeasible(), 200)
    assert "A 4,000-token prompt alone takes 0.4 s to read here (10,000 tokens/s), you owe 0.25 s." in text
    assert "Nearest: 16 slots, batch 4,096, Q4_K_M at 0.75/s ×8: p95 TTFT 0.46 s · 72 tok/s per user (p5)" in text
    assert "slotune export" not in text


def test_a_demo_says_in_one_line_what_was_lowered() -> None:
    assert "Lowered for this run: confidence 80 % (else 95 %), 2 runs (else 5)" in ending(ALL["demo_like"](), 200)


def test_a_secret_is_not_printed() -> None:
    sample = worked_example()
    text = ending(replace(sample, flags=(*sample.flags, "--api-key", "top-secret")), 80)
    assert "top-secret" not in text
    assert "REDACTED" in text


def test_a_bench_says_its_verdict_first() -> None:
    sample = worked_example()
    text = plain(bench_text(sample.problem, sample.results[0], findings=sample.findings, width=100))
    assert text == (
        "Fail                     51 of 64 requests were late, 50 are allowed of 1,000.\n"
        "Owed                     p95 TTFT ≤ 1 s and ≥ 30 tok/s per user at 6/s\n"
        "Measured                 p95 TTFT 2.8 s · 98 tok/s per user (p5)\n"
        "Requests                 64 requests of 1,000, stopped early · 51 violations · took 2 min\n"
        "Where the wait went      slowest 5 %: queue 2.39 s · prefill 0.4 s · contention 0.12 s\n"
        "                         mean: queue 1.42 s · prefill 0.4 s · contention 60 ms\n"
        "Findings                 The queue is 1.4 s of 1.9 s: 8 slots, all busy.\n"
        "                         3,000 of 4,000 prompt tokens were read before and are read again.\n"
    )


@pytest.mark.parametrize("outcome", Outcome)
def test_a_bench_has_words_for_every_outcome(outcome: Outcome) -> None:
    sample = ALL["without_numbers"]()
    result = sample.results[0]
    result = replace(result, verdict=replace(result.verdict, outcome=outcome), warnings=("throttled",))
    text = plain(bench_text(sample.problem, result, findings={}, width=80))
    assert text.startswith(outcome.value)
    assert "nothing was answered" in text
    assert "throttled" in text
