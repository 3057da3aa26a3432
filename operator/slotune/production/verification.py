"""Whether a new configuration may stay: looks are counted, and only looks that show the promise kept speak for it.

The rules are those of Argo Rollouts' analysis. More failures than their limit end it at once as Failure, more looks
without a number than theirs as Inconclusive (a person decides), and once all looks were taken, it is a Success if any
of them was one. A broken probe is not a bad result, and no result is not a good one. Pure.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import SLO, Verify
from slotune.production.looks import Look, Shown, what_it_shows
from slotune.production.queries import Queries

__all__ = [
    "Decision",
    "Judgement",
    "LookResult",
    "judge_counts",
    "judge_looks",
    "look_due",
    "looks_needed",
    "result_of",
]


class LookResult(enum.StrEnum):
    """What one look says for the new configuration."""

    KEPT = "Kept"
    MISSED = "Missed"
    INCONCLUSIVE = "Inconclusive"


class Decision(enum.StrEnum):
    """What becomes of it."""

    SUCCESS = "Success"
    """It stays."""
    FAILURE = "Failure"
    """The last good configuration comes back."""
    INCONCLUSIVE = "Inconclusive"
    """The rollout stops and asks."""
    CONTINUE = "Continue"
    """More looks are needed."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A decision, with its counts and the limit that they met, as one clause."""

    decision: Decision
    reason: str


def result_of(look: Look, slo: SLO) -> LookResult:
    """Kept needs a TTFT that is a number within the SLO, and the speed too if one is owed."""
    match what_it_shows(look, slo):
        case Shown.KEPT:
            return LookResult.KEPT
        case Shown.MISSED:
            return LookResult.MISSED
        case _:
            return LookResult.INCONCLUSIVE


def looks_needed(verify: Verify) -> int:
    """Looks in the window; at least one."""
    return max(1, math.ceil(parse_duration(verify.window) / parse_duration(verify.interval)))


def look_due(number: int, rolled_out_at: datetime, queries: Queries, verify: Verify) -> datetime:
    """When look ``number`` (0 is the first) is due.

    The first one comes when the deciding queries no longer reach back to the old configuration, whose misses would
    otherwise count against the new one, and one interval after the rollout at least.
    """
    interval_s = float(parse_duration(verify.interval))
    return rolled_out_at + timedelta(seconds=max(queries.settle_s, interval_s) + number * interval_s)


def judge_looks(results: Sequence[LookResult], verify: Verify) -> Judgement:
    """What the looks so far decide. Their order does not matter; more looks than needed are all counted."""
    kept, missed, inconclusive = (
        sum(result is kind for result in results)
        for kind in (LookResult.KEPT, LookResult.MISSED, LookResult.INCONCLUSIVE)
    )
    return judge_counts(verify, kept=kept, missed=missed, inconclusive=inconclusive)


def judge_counts(verify: Verify, *, kept: int, missed: int, inconclusive: int) -> Judgement:
    """The same from counts, which is all that a status remembers."""
    looks, needed = kept + missed + inconclusive, looks_needed(verify)
    counts = f"of {looks} looks {kept} kept the SLO, {missed} missed it, {inconclusive} showed neither"
    if missed > verify.failure_limit:
        return Judgement(Decision.FAILURE, f"{counts}: failureLimit is {verify.failure_limit}")
    if inconclusive > verify.inconclusive_limit:
        return Judgement(Decision.INCONCLUSIVE, f"{counts}: inconclusiveLimit is {verify.inconclusive_limit}")
    if looks < needed:
        return Judgement(Decision.CONTINUE, f"{counts}: {needed} looks are needed")
    if kept:
        return Judgement(Decision.SUCCESS, counts)
    return Judgement(Decision.FAILURE if missed else Decision.INCONCLUSIVE, f"{counts}: at least one must keep it")
