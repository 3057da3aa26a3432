"""Decisions to write reports about: the worked example that the product is told with, and every other end of a search.

Each function returns a fresh ``Sample``. Numbers of the worked example are the product's own story;
the rest is made up so that each kind of decision has one.
"""

from __future__ import annotations

from tests.report.building import HOSTILE, Sample
from tests.report.compared import answers_compared
from tests.report.endings import budget_exhausted, inconclusive, infeasible, invalid, nothing_measured
from tests.report.oddities import demo_like, hostile, two_gpu_classes, without_numbers
from tests.report.worked import worked_example

__all__ = [
    "ALL",
    "HOSTILE",
    "Sample",
    "answers_compared",
    "budget_exhausted",
    "demo_like",
    "hostile",
    "inconclusive",
    "infeasible",
    "invalid",
    "nothing_measured",
    "two_gpu_classes",
    "without_numbers",
    "worked_example",
]

ALL = {
    make.__name__: make
    for make in (
        worked_example,
        answers_compared,
        infeasible,
        budget_exhausted,
        inconclusive,
        invalid,
        nothing_measured,
        two_gpu_classes,
        demo_like,
        hostile,
        without_numbers,
    )
}
"""Every sample by name."""
