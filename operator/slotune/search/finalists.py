"""Two that cost the same and lose the same: which has more room, on a machine that may move meanwhile?

A verdict is absolute: a candidate is held against the promise, never against another candidate, so a machine that is
slower at three than at two can spoil a verdict (the sentinel sees that) but not a comparison. One thing is left that
compares: of two that passed at the same rate, at the same cost, with the same weights and KV types, the one with more
room should win, and fewer changes where neither has. Their two passes may lie an hour apart, so they are not used.
Both are measured again, in short blocks on fresh servers, in turns:

    block     1   2   3   4
    server    A   B   B   A        A: the would-be winner, B: its nearest rival
    seeds     1   1   2   2        the two of a pair get the very same traffic

What the machine does at a steady pace adds as much to A (blocks 1 and 4) as to B (2 and 3), and cancels out. How far
the two pairs disagree tells how much four blocks say: a difference within what that much scatter brings about by itself
is a tie (:func:`more_room`), and the one that changes less of today's settings wins it. A block is never cut short,
however many requests break the promise: where a stopped one ends says when its luck ran out, not how much room it had.

It happens after the winner is confirmed and its story told, once per search, and only where it costs at most
:data:`COST_SHARE` of what the search has taken by then: of two that keep the promise at one price either will do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotune.llama.candidate import Candidate
from slotune.search.evidence import Evidence, Option
from slotune.search.lossiness import lossiness
from slotune.search.problem import Measurement, Problem
from slotune.search.rates import must_hold_half
from slotune.search.standing import same_rate
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.promise import Promise

__all__ = [
    "BLOCKS",
    "COST_SHARE",
    "FINAL_SEEDS",
    "WORTH_CHANGES",
    "Duel",
    "duel_of",
    "margin",
    "measurement_for",
    "more_room",
    "stops_early",
]

COST_SHARE = 0.25
"""Most GPU-seconds that the blocks, and a confirmation of the rival, may take; by those of the search before."""
FINAL_SEEDS = 3
"""Seed block of the first pair; the second has the one after it. Search, confirmation and half load have 0 to 2."""
BLOCKS = ((0, 0), (1, 0), (1, 1), (0, 1))
"""(0 for A or 1 for B, pair) of each block, in order."""
PAIRS = 2
WORTH_CHANGES = 0.02
"""Share of room below which a difference is worth no change of a setting, however sure it is."""


@dataclass(frozen=True, slots=True)
class Duel:
    """Two finalists, and what was measured of them in turns."""

    first: Candidate
    """The would-be winner (A)."""
    rival: Candidate
    """B."""
    rate: float
    """Requests per second at which both passed."""
    blocks: tuple[TrialResult | None, ...]
    """What was measured in each of :data:`BLOCKS`; None where it is still open."""

    @property
    def open_block(self) -> tuple[Candidate, int] | None:
        """(candidate, seed block) to measure next; None when all four are known."""
        for (who, pair), found in zip(BLOCKS, self.blocks, strict=True):
            if found is None:
                return (self.first, self.rival)[who], FINAL_SEEDS + pair
        return None

    def rooms(self, promise: Promise) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Room of A's blocks and of B's, by pair, as times what is owed; None while a block is open."""
        rooms: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for (who, pair), found in zip(BLOCKS, self.blocks, strict=True):
            if found is None:
                return None
            rooms[who][pair] = margin(found, promise)
        first, rival = (tuple(of[pair] for pair in sorted(of)) for of in rooms)
        return first, rival

    def margins(self, promise: Promise) -> tuple[float, float] | None:
        """Room of A and of B (geometric means of their blocks), as times what is owed; None while a block is open."""
        rooms = self.rooms(promise)
        return None if rooms is None else (_mean(rooms[0]), _mean(rooms[1]))

    def favourite(self, problem: Problem) -> Candidate | None:
        """Who wins; None while a block is open."""
        rooms = self.rooms(problem.promise)
        if rooms is None:
            return None
        ahead = more_room(*rooms, problem.measurement.confidence)
        if ahead is not None:
            return (self.first, self.rival)[ahead]
        return min(self.first, self.rival, key=lambda c: (len(c.changed_from(problem.baseline)), repr(c)))

    def is_tie(self, problem: Problem) -> bool:
        """Whether all blocks are known and neither was shown to have more room."""
        rooms = self.rooms(problem.promise)
        return rooms is not None and more_room(*rooms, problem.measurement.confidence) is None


def measurement_for(trial: Trial, measurement: Measurement) -> Measurement:
    """How much evidence ``trial`` takes: ``measurement``, and for a block of a comparison one run of it."""
    return replace(measurement, runs=1, extensions=0) if trial.purpose is Purpose.FINALIST else measurement


def stops_early(trial: Trial) -> bool:
    """Whether ``trial`` ends when it can't pass any more: all that are held against the promise, but no block."""
    return trial.purpose is not Purpose.FINALIST


def margin(result: TrialResult, promise: Promise) -> float:
    """Times what is owed, at the tighter of the two promises: 1.0 just keeps it, 0 is none at all."""
    shape = result.latencies
    if not shape.ttft_p95_s:
        return 0.0
    room = promise.ttft_s / shape.ttft_p95_s
    if promise.tokens_per_second_per_user is not None:
        room = min(room, (shape.tokens_per_second_p5 or 0.0) / promise.tokens_per_second_per_user)
    return room


def more_room(first: Sequence[float], rival: Sequence[float], confidence: float) -> int | None:
    """0 where the first was shown to have more room, 1 where the rival was; None where the blocks do not show it.

    Each pair of blocks got the same traffic, so it is one observation d of log(first / rival). Shown is a mean of them
    that lies further from 0 than Student's t allows for at ``confidence`` (two-sided: nobody said before which would
    be ahead). For two observations that is one degree of freedom, whose quantile is tan(pi x confidence / 2), 12.7 at
    95 %, times the standard error |d1 - d2| / 2. A machine that moves steadily adds to d1 what it takes from d2: it
    widens the band and can hide a difference, never make one. Less than :data:`WORTH_CHANGES` is a tie in any case.

    Raises:
        ValueError: not one block a pair.
    """
    if len(first) != len(rival) or len(first) != PAIRS:
        raise ValueError(f"{len(first)} and {len(rival)} blocks: each of the two has {PAIRS}")
    if min(*first, *rival) <= 0:
        return None  # nothing was measured of it
    one, two = (math.log(a / b) for a, b in zip(first, rival, strict=True))
    mean, error = (one + two) / 2, abs(one - two) / 2
    if abs(mean) <= max(math.log1p(WORTH_CHANGES), math.tan(math.pi * confidence / 2) * error):
        return None
    return 0 if mean > 0 else 1


def _mean(rooms: Sequence[float]) -> float:
    return math.prod(rooms) ** (1 / len(rooms))


def duel_of(evidence: Evidence, winner: Option) -> Duel | None:
    """The comparison that a confirmed ``winner`` still owes or has had; None where measured room decides nothing."""
    confirmed = evidence.knowledge.standing(winner.candidate).confirmed
    if confirmed is None:
        return None
    fought = [result for result in evidence.knowledge.sound if result.trial.purpose is Purpose.FINALIST]
    rival = _nearest_rival(evidence, winner, confirmed)
    if rival is None or any(result.trial.candidate not in {winner.candidate, rival} for result in fought):
        return None  # one comparison per search
    if not _is_cheap(evidence, rival, confirmed):
        return None
    found = tuple(
        _last((winner.candidate, rival)[who], FINAL_SEEDS + pair, confirmed.trial.rate, fought) for who, pair in BLOCKS
    )
    return Duel(winner.candidate, rival, confirmed.trial.rate, found)


def _nearest_rival(evidence: Evidence, winner: Option, confirmed: TrialResult) -> Candidate | None:
    """The candidate that differs least from the winner, among those that differ from it in nothing that is decided.

    One with fewer bits, or dearer, or that passed at another rate only, has lost or won by that already. What it still
    owes (a confirmation, half of its load) is asked when it is ahead.
    """
    models = evidence.problem.models
    equals = []
    for candidate in evidence.problem.candidates:
        standing = evidence.knowledge.standing(candidate)
        if candidate == winner.candidate or candidate.gpu_class != winner.candidate.gpu_class:
            continue
        if standing.out is not None or standing.passed is None or not evidence.knowledge.answers.may_win(candidate):
            continue
        if lossiness(candidate, models) == lossiness(winner.candidate, models) and same_rate(
            standing.passed.trial.rate, confirmed.trial.rate
        ):
            equals.append(candidate)
    today = evidence.problem.baseline
    return min(
        equals,
        key=lambda c: (len(c.changed_from(winner.candidate)), len(c.changed_from(today)), repr(c)),
        default=None,
    )


def _is_cheap(evidence: Evidence, rival: Candidate, confirmed: TrialResult) -> bool:
    """Whether four blocks, and what the rival owes before it may win, take at most their share of what was spent."""
    measurement = evidence.problem.measurement
    per_run = measurement.requests_per_run + measurement.warmup_requests
    load = min(confirmed.gpu_seconds, measurement.runs * per_run / confirmed.trial.rate)
    start = confirmed.gpu_seconds - load
    needed = len(BLOCKS) * (start + load / measurement.runs)
    if evidence.knowledge.standing(rival).confirmed is None:
        needed += confirmed.gpu_seconds
    if must_hold_half(rival, evidence.problem.baseline) and not evidence.holds_half(rival):
        needed += start + 2 * load
    spent = sum(r.gpu_seconds for r in evidence.results if r.trial.purpose is not Purpose.FINALIST)
    return needed <= COST_SHARE * spent


def _last(candidate: Candidate, seeds: int, rate: float, fought: Sequence[TrialResult]) -> TrialResult | None:
    same = (
        result
        for result in reversed(fought)
        if result.trial.candidate == candidate
        and result.trial.seed_block == seeds
        and same_rate(result.trial.rate, rate)
    )
    return next(same, None)
