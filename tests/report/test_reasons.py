"""Each candidate has exactly one reason, and thousands stay readable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.report.reasons import code_in_words, reason_groups
from tests.report.samples import ALL


@pytest.mark.parametrize("name", ALL)
def test_every_candidate_but_the_winner_stands_in_one_group(name: str) -> None:
    sample = ALL[name]()
    problem, decision = sample.problem, sample.decision
    candidates = {*problem.candidates, *(p.candidate for p in problem.pruned)}
    candidates |= {r.candidate for r in decision.rejections}
    if decision.choice is not None:
        candidates.discard(decision.choice.candidate)
    groups = reason_groups(problem, decision)
    assert sum(len(g.rows) for g in groups) == len(candidates)


def test_undecided_candidates_come_first() -> None:
    sample = ALL["budget_exhausted"]()
    undecided = [g.undecided for g in reason_groups(sample.problem, sample.decision)]
    assert undecided == sorted(undecided, reverse=True)
    assert undecided[0]


def test_a_candidate_that_the_decision_forgot_is_said_to_be_undecided() -> None:
    sample = ALL["worked_example"]()
    decision = replace(sample.decision, rejections=())
    titles = [g.title for g in reason_groups(sample.problem, decision)]
    assert titles[0] == "Not decided before the search ended"


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("TooManyThings", "Too many things"),
        ("OutOfMemoryKV", "Out of memory KV"),
        ("CPUFallback", "CPU fallback"),
        ("DoesNotFit", "Does not fit in memory"),
        ("", "No reason given"),
    ],
)
def test_codes_are_read_as_words(code: str, want: str) -> None:
    assert code_in_words(code) == want
