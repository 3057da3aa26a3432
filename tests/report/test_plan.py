"""The plan shows every candidate before anything runs, quickly."""

from __future__ import annotations

import time
from dataclasses import replace

from slotune.report.plan import PlanRow, plan_line, plan_table
from slotune.report.text import plain
from tests.report.building import GIB
from tests.report.samples import worked_example
from tests.report.worked import BASELINE

PROBLEM = worked_example().problem
ROWS = (
    PlanRow(replace(BASELINE, parallel_slots=32), 48 * GIB, None, "needs 48 GiB, the GPU has 40 GiB", "DoesNotFit"),
    PlanRow(BASELINE, 25 * GIB, 3),
    PlanRow(replace(BASELINE, variant="Q8_0"), 17 * GIB, 1),
    PlanRow(replace(BASELINE, variant="Q4_K_M"), None, None),
)


def test_cheapest_bound_first_and_pruned_last_with_their_reason() -> None:
    assert plain(plan_table(PROBLEM, ROWS, width=120)) == (
        "candidate                                        memory  at least      a month  why it is left out\n"
        "Q8_0                                             17 GiB       1 ×       $1,460\n"
        "baseline (what runs today)                       25 GiB       3 ×       $4,380\n"
        "Q4_K_M                                                –         –            –\n"
        "32 slots                                         48 GiB         –            –  "
        "needs 48 GiB, the GPU has 40 GiB\n"
    )


def test_at_80_columns_reasons_stand_below() -> None:
    assert plain(plan_table(PROBLEM, ROWS[:1], width=80)) == (
        "candidate                              memory  at least      a month\n"
        "32 slots                               48 GiB         –            –\n"
        "     needs 48 GiB, the GPU has 40 GiB\n"
    )


def test_the_plan_in_one_line() -> None:
    assert plan_line(PROBLEM, ROWS, usually_s=2400) == (
        "4 candidates · 1 left out: does not fit in memory · "
        "at most 2 h of GPU time and 200 trials, usually under 40 min"
    )


def test_two_thousand_candidates_take_no_time_worth_waiting_for() -> None:
    rows = [PlanRow(replace(BASELINE, context_per_slot=1000 + n), GIB, 2) for n in range(2000)]
    started = time.perf_counter()
    text = plain(plan_table(PROBLEM, rows, width=80))
    assert len(text.splitlines()) == 2001
    assert time.perf_counter() - started < 5
