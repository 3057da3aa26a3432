"""Did the machine stay the same? The idle speed of one server, looked at again and again, tells.

What was measured between two looks that disagree is Invalid, whatever its verdict was, and is measured again; what that
happens to twice is given up at its rate, with this as the reason. The verdict is formed here from the probes and not
where the trial ran: a trial cannot know what the next look will say.

A look says something about the machine that it was taken on and no other, so every GPU class, and every node of it as
far as nodes are known, is a :class:`Place` of its own with looks of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from slotune.llama.candidate import Candidate
from slotune.load.summary import IdleProbe
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["LOOKS_IN_VAIN", "MACHINE_DRIFTED", "Drift", "Place", "Watch", "crept", "drifts", "without_drifted"]

MACHINE_DRIFTED = "MachineDrifted"
"""Code of a verdict on a trial from a stretch in which the machine changed."""
LOOKS_IN_VAIN = 2
"""Looks in a row that said nothing, after which the next stretch is waited for."""

TODAYS = "the idle baseline"


@dataclass(frozen=True, slots=True)
class Drift:
    """Two looks at one idle server."""

    before: IdleProbe
    after: IdleProbe
    server: str = TODAYS
    """Which server that is, in words."""

    @property
    def step(self) -> float:
        """Relative change of the time per token; a speed that was not measured did not change."""
        return _change(self.before.fastest_step, self.after.fastest_step)

    @property
    def prefill(self) -> float:
        """Relative change of the speed of reading."""
        return _change(self.before.fastest_prefill, self.after.fastest_prefill)

    @property
    def size(self) -> float:
        """The larger of the two, whichever way it went."""
        return max(abs(self.step), abs(self.prefill))

    def __str__(self) -> str:
        """What moved most, in words."""
        if abs(self.step) >= abs(self.prefill):
            before, after = 1000 * self.before.fastest_step, 1000 * self.after.fastest_step
            return f"its time per token went from {before:.3g} to {after:.3g} ms ({100 * self.step:+.0f} %)"
        before, after = self.before.fastest_prefill, self.after.fastest_prefill
        return f"its reading went from {before:,.0f} to {after:,.0f} tokens/s ({100 * self.prefill:+.0f} %)"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A machine, as far as it is known."""

    gpu_class: str
    node: str = ""
    """Empty where there is one machine, or nobody said which it was."""

    @classmethod
    def of(cls, result: TrialResult) -> Place:
        """Where ``result`` was measured."""
        return cls(result.trial.candidate.gpu_class, result.node)


@dataclass(frozen=True, slots=True)
class _Look:
    """An idle probe, and which of the results it came with."""

    index: int
    probe: IdleProbe


@dataclass(slots=True)
class Watch:
    """The fold of all looks at all machines."""

    since: dict[Place, list[int]] = field(default_factory=dict)
    """Load trials (their index) since the last look at each place; a place without any is not listed."""
    failed: Counter[str] = field(default_factory=Counter)
    """By GPU class, looks in a row that told nothing: without a probe, on a device at fault, or on another node."""
    looked_at: set[int] = field(default_factory=set)
    """Load trials between two looks at one server on one machine."""
    drifted: dict[int, Drift] = field(default_factory=dict)
    """Those of them whose two looks disagree."""
    _known: dict[Place, dict[Candidate, _Look]] = field(default_factory=dict)
    """What a later look at each server can be compared with: the last look, or the probes of trials since."""

    @classmethod
    def from_results(cls, problem: Problem, results: Sequence[TrialResult]) -> Watch:
        """Fold ``results`` in the order in which they were measured.

        A look is compared with the one before it, not with the first: a machine that changed speed for good must not
        invalidate everything ever after. A probe that was itself at fault, on a throttled device, is no measure.
        """
        watch = cls()
        for index, result in enumerate(results):
            if result.trial.purpose is Purpose.SENTINEL:
                watch._look(problem, index, result)
            elif result.trial.purpose.puts_load:  # answers do not depend on speed
                watch.since.setdefault(Place.of(result), []).append(index)
                if (probe := _probe_of(result)) is not None:
                    known = watch._known.setdefault(Place.of(result), {})
                    known.setdefault(result.trial.candidate, _Look(index, probe))
        return watch

    def due(self, every: int) -> list[Place]:
        """Where to look again when that is done after ``every`` trials on a class; after failures, the next stretch."""
        return [
            place
            for place in self._by_need()
            if self._count(place.gpu_class) >= every * (1 + self.failed[place.gpu_class] // LOOKS_IN_VAIN)
        ]

    def left(self) -> list[Place]:
        """Where something was measured since the last look, and a look is still worth a try."""
        return [place for place in self._by_need() if self.failed[place.gpu_class] < LOOKS_IN_VAIN]

    def server(self, place: Place, is_out: Callable[[Candidate], bool]) -> Candidate | None:
        """Whose idle speed tells most about ``place``: that which was known first, of those that still start.

        As a rule that is the baseline. None where no server's idle speed is known.
        """
        known = {c: look for c, look in self._known.get(place, {}).items() if not is_out(c)}
        return min(known, key=lambda c: known[c].index, default=None)

    def place_of(self, candidate: Candidate) -> Place | None:
        """Where a look at ``candidate`` would tell most; None where it would tell nothing."""
        places = (place for place in self._by_need() if candidate in self._known.get(place, {}))
        return next(places, None)

    def _by_need(self) -> list[Place]:
        return sorted(self.since, key=lambda place: (-len(self.since[place]), place))

    def _count(self, gpu_class: str) -> int:
        return sum(len(trials) for place, trials in self.since.items() if place.gpu_class == gpu_class)

    def _look(self, problem: Problem, index: int, result: TrialResult) -> None:
        place, candidate = Place.of(result), result.trial.candidate
        probe, known = _probe_of(result), self._known.setdefault(Place.of(result), {})
        before = known.get(candidate)
        if probe is None or before is None:  # also where it came to another node than that it was meant for
            self.failed[place.gpu_class] += 1
            if probe is not None:
                known[candidate] = _Look(index, probe)
            return
        trials = self.since.pop(place, [])
        self.failed[place.gpu_class] = 0 if trials else self.failed[place.gpu_class] + 1
        between = [trial for trial in trials if trial >= before.index]
        self.looked_at.update(between)
        drift = Drift(before.probe, probe, _server(problem, candidate, place))
        if drift.size > problem.measurement.drift_limit:
            self.drifted.update(dict.fromkeys(between, drift))
        self._known[place] = {candidate: _Look(index, probe)}


def drifts(problem: Problem, results: Sequence[TrialResult]) -> dict[int, Drift]:
    """By index, each load trial between two looks at its machine that disagree by more than the limit."""
    return Watch.from_results(problem, results).drifted


def without_drifted(problem: Problem, results: Sequence[TrialResult]) -> list[TrialResult]:
    """``results``, each load trial of a stretch in which the machine changed made Invalid. Twice changes nothing."""
    allowed = f"{100 * problem.measurement.drift_limit:.3g} % are allowed"
    drifted = drifts(problem, results)
    return [
        result
        if (drift := drifted.get(index)) is None or _is_throttled(result)
        else replace(
            result,
            verdict=Verdict(
                Outcome.INVALID,
                f"the machine changed meanwhile: between two looks at {drift.server} {drift}, {allowed}",
                MACHINE_DRIFTED,
                result.trial.confidence,
            ),
        )
        for index, result in enumerate(results)
    ]


def crept(problem: Problem, results: Sequence[TrialResult]) -> Drift | None:
    """The most that an idle server moved on one machine, from its first look to its last; None without two looks.

    Steps that are each within the limit may add up, and no single stretch is to blame then.
    """
    first: dict[tuple[Place, Candidate], IdleProbe] = {}
    last: dict[tuple[Place, Candidate], Drift] = {}
    for result in results:
        probe = None if result.trial.purpose.asks_answers else _probe_of(result)
        place, candidate = Place.of(result), result.trial.candidate
        if probe is None:
            continue
        if (place, candidate) not in first:
            first[place, candidate] = probe
        elif result.trial.purpose is Purpose.SENTINEL:
            last[place, candidate] = Drift(first[place, candidate], probe, _server(problem, candidate, place))
    return max(last.values(), key=lambda drift: drift.size, default=None)


def _probe_of(result: TrialResult) -> IdleProbe | None:
    """None where there is none, or it was measured on a device at fault."""
    return None if _is_throttled(result) else result.probe


def _is_throttled(result: TrialResult) -> bool:
    return result.verdict.outcome is Outcome.INVALID and result.verdict.code == "DeviceThrottled"


def _server(problem: Problem, candidate: Candidate, place: Place) -> str:
    """Whose looks are compared, in words."""
    words = TODAYS if candidate == problem.baseline else f"one idle server on {place.gpu_class}"
    return f"{words} (node {place.node})" if place.node else words


def _change(before: float, after: float) -> float:
    return after / before - 1 if before > 0 and after > 0 else 0.0
