"""A search that goes on where it was: comparisons are remembered, and a lost reference is recorded again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from slotune.quality.limits import STRICT
from slotune.quality.reference import Reference
from slotune.sandbox.protocol import Measured, Progress, ProgressListener
from slotune.sandbox.reference_files import ReferenceFiles
from slotune.search.pairs import pair_of
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.ledger import Ledger
from slotune.tuning.loop import Answer, tune
from tests.sandbox.test_reference_files import reference
from tests.search.worlds import QUALITY, World, candidate, divergence, problem

TODAY = candidate("F16", slots=8)
SMALL = candidate("Q4_0", slots=8)
MIDDLE = candidate("Q8_0", slots=8)
SPACE = problem([TODAY, SMALL], replicas_today=6, quality=QUALITY, context="one promise")

WITH_A_THIRD = replace(SPACE, candidates=(TODAY, SMALL, MIDDLE), context="another promise")


class Quiet:
    """Hears and says nothing."""

    def resumed(self, results: list[TrialResult]) -> None: ...

    def started(self, number: int, trial: Trial) -> None: ...

    def progressed(self, progress: Progress) -> None: ...

    def finished(self, number: int, result: TrialResult) -> None: ...


@dataclass
class Sandbox:
    """A world that keeps references as a real sandbox does."""

    problem: Problem
    files: ReferenceFiles
    world: World = field(
        default_factory=lambda: World({TODAY: 1.0, SMALL: 6.0, MIDDLE: 6.0}, divergences={pair_of(SMALL): 0.03})
    )
    records: Reference = field(default_factory=reference)

    async def measure(self, trial: Trial, listener: ProgressListener) -> Measured:
        result = self.world.measure(trial)
        if trial.purpose is Purpose.REFERENCE:
            self.files.keep(self.problem, self.records)
            return Measured(replace(result, reference=self.records.digest), reference=self.records)
        if result.quality is not None:
            kept = self.files.current(self.problem)
            assert kept is not None
            numbers = result.quality
            result = replace(
                result, quality=divergence(numbers.mean_kld, numbers.kld_lower, numbers.kld_upper, kept.digest)
            )
        return Measured(result)

    @property
    def looks(self) -> list[tuple[Purpose, str]]:
        return [(t.purpose, t.candidate.variant) for t in self.world.asked if t.purpose.asks_answers]


def lose_references(directory: Path) -> None:
    for file in (directory / "references").iterdir():
        file.unlink()


async def searched(directory: Path, space: Problem = SPACE, records: Reference | None = None) -> tuple[Answer, Sandbox]:
    with Ledger(directory) as ledger:
        sandbox = Sandbox(space, ledger.references, records=records or reference())
        answer = await tune(space, sandbox, ledger, Quiet(), lambda problem, _: problem)
        return answer, sandbox


async def test_what_is_kept_is_the_verdict_that_the_limits_give(tmp_path: Path):
    answer, _ = await searched(tmp_path)
    with Ledger(tmp_path) as ledger:
        kept = [r for r in ledger.results(*SPACE.contexts) if r.trial.purpose is Purpose.QUALITY]
    assert [result.verdict.code for result in kept] == ["NoiseFloorLow", "QualityKept"]
    assert answer.decision.choice is not None
    assert answer.decision.choice.candidate == SMALL


async def test_the_same_search_again_compares_nothing_again(tmp_path: Path):
    await searched(tmp_path)
    answer, again = await searched(tmp_path)
    assert again.world.asked == []
    assert answer.decision.choice is not None


async def test_a_changed_promise_asks_for_load_again_and_not_for_answers(tmp_path: Path):
    await searched(tmp_path)
    _, again = await searched(tmp_path, replace(SPACE, context="another promise"))
    assert again.world.asked != []
    assert again.looks == []


async def test_changed_limits_are_applied_to_what_was_compared(tmp_path: Path):
    await searched(tmp_path)
    strict = replace(SPACE, quality=replace(QUALITY, limits=STRICT), context="another promise")
    answer, again = await searched(tmp_path, strict)
    assert again.looks == []
    assert answer.decision.choice is not None
    assert answer.decision.choice.candidate == TODAY
    assert {rejection.code for rejection in answer.decision.rejections} == {"QualityTooLow"}


async def test_a_reference_that_is_lost_is_not_missed_while_nothing_new_is_to_be_compared(tmp_path: Path):
    await searched(tmp_path)
    lose_references(tmp_path)
    _, again = await searched(tmp_path, replace(SPACE, context="another promise"))
    assert again.looks == []


async def test_a_reference_that_is_lost_and_recorded_equal_again_saves_the_comparisons(tmp_path: Path):
    await searched(tmp_path)
    lose_references(tmp_path)
    _, again = await searched(tmp_path, WITH_A_THIRD)
    assert again.looks == [(Purpose.REFERENCE, "F16"), (Purpose.QUALITY, "Q8_0")]


async def test_a_reference_that_is_lost_and_recorded_otherwise_has_everything_compared_again(tmp_path: Path):
    await searched(tmp_path)
    lose_references(tmp_path)
    answer, again = await searched(tmp_path, WITH_A_THIRD, reference(6))
    assert again.looks[:3] == [(Purpose.REFERENCE, "F16"), (Purpose.QUALITY, "F16"), (Purpose.QUALITY, "Q8_0")]
    assert answer.decision.choice is not None
    assert answer.decision.choice.candidate == MIDDLE
