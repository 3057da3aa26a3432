"""A recording is completed with what today's search code asks besides, and nothing is measured that was recorded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bench import recording
from bench.recording import AnotherQuestionError, check_same_question, record_space
from slotune.diagnose.hints import hints
from slotune.sandbox.protocol import Measured, Progress, ProgressListener
from slotune.search import best_first, evidence, kept
from slotune.search import replay as replaying
from slotune.search.options import unhinted
from slotune.search.problem import Measurement, Problem
from slotune.search.replay import Comparison, RecordedSearch, replay
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning import loop
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.ledger import Ledger
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import World, candidate, problem

TODAY = candidate(slots=8)
LOSSY = candidate("Q4_0", slots=8)
GUESSING, GUESSING_LOSSY = (
    candidate(variant, slots=8, speculation="ngram-mod", speculation_tokens=8) for variant in ("Q8_0", "Q4_0")
)
SPACE = problem([TODAY, GUESSING, GUESSING_LOSSY], replicas_today=5)
NUMBERS = itertools.count()
CAPACITY = {TODAY: 1.2, GUESSING: 3.0, GUESSING_LOSSY: 3.0}


@dataclass
class Fake:
    """A sandbox over a world, and a reporter."""

    world: World
    reported: list[TrialResult] = field(default_factory=list)

    async def measure(self, trial: Trial, _listener: ProgressListener) -> Measured:
        return Measured(self.world.measure(trial))

    def resumed(self, results: list[TrialResult]) -> None:
        assert results

    def started(self, number: int, trial: Trial) -> None: ...

    def progressed(self, progress: Progress) -> None: ...

    def finished(self, number: int, result: TrialResult) -> None:
        self.reported.append(result)

    @property
    def asked(self) -> list[tuple[Purpose, object, float]]:
        return [(trial.purpose, trial.candidate, trial.rate) for trial in self.world.asked]


async def recorded_in(
    folder: Path, fake: Fake, known: RecordedSearch | None = None, *, space: Problem = SPACE, whole: bool = True
) -> RecordedSearch:
    with Ledger(folder / f"ledger-{next(NUMBERS)}") as ledger:
        return await record_space(space, fake, ledger, fake, known, whole=whole)


@contextmanager
def before_half_loads() -> Iterator[None]:
    """The search code of a day when half of the load was asked of nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (best_first, evidence, kept, recording, replaying):
            patch.setattr(module, "must_hold_half", lambda *_: False)
        yield


async def old_recording(folder: Path, *, whole: bool = True) -> RecordedSearch:
    with before_half_loads():
        return await recorded_in(folder, Fake(World(CAPACITY)), whole=whole)


def assert_complete(recorded: RecordedSearch) -> None:
    own = recorded.results[: recorded.answer.trials]
    assert recorded.answer.gpu_seconds == pytest.approx(sum(result.gpu_seconds for result in own))
    keys = [recorded.problem.key(result.trial) for result in recorded.results]
    assert len(set(keys)) == len(keys)
    for prefer in (hints, unhinted):
        again = replay(recorded, without_what_cannot_fit, prefer)
        assert again.unrecorded == ()
        assert again.comparison in {Comparison.SAME, Comparison.EQUAL}
        assert again.regret == 0


@pytest.mark.parametrize("whole", [True, False])
async def test_a_recording_answers_whatever_todays_search_asks(whole, tmp_path):
    recorded = await recorded_in(tmp_path, Fake(World(CAPACITY)), whole=whole)
    assert_complete(recorded)
    assert (recorded.answer.candidate, recorded.answer.replicas) == (GUESSING, 2)
    confirmed = {r.trial.candidate for r in recorded.results if r.trial.purpose is Purpose.CONFIRM}
    assert (confirmed == set(SPACE.candidates)) == whole


async def test_completing_measures_only_what_the_recording_lacks(tmp_path):
    old, fake = await old_recording(tmp_path), Fake(World(CAPACITY))
    assert replay(old).unrecorded != ()
    recorded = await recorded_in(tmp_path, fake, old)
    assert fake.asked == [(Purpose.PARTIAL, GUESSING, 1.5), (Purpose.PARTIAL, GUESSING_LOSSY, 1.5)]
    assert_complete(recorded)
    first = old.answer.trials
    assert recorded.results[:first] == old.results[:first], "the search goes on from where it ended"
    assert recorded.answer.trials == first + 1, "half of the load of what wins; that of others is not the search's"
    assert {r.trial.key() for r in old.results} < {r.trial.key() for r in recorded.results}


async def test_what_the_search_asks_now_is_taken_from_the_rest_where_it_was_recorded(tmp_path):
    old = await old_recording(tmp_path)
    fake = Fake(World(CAPACITY, weak_below={GUESSING: 2.0}))
    recorded = await recorded_in(tmp_path, fake, old)
    assert (recorded.answer.candidate, recorded.answer.replicas) == (GUESSING_LOSSY, 2)
    assert {purpose for purpose, who, _ in fake.asked if who == GUESSING_LOSSY} == {Purpose.PARTIAL}
    own = recorded.results[: recorded.answer.trials]
    assert [r.trial.purpose for r in own if r.trial.candidate == GUESSING_LOSSY][-2:] == [
        Purpose.CONFIRM,
        Purpose.PARTIAL,
    ]
    assert_complete(recorded)


async def test_a_complete_recording_stays_as_it_is(tmp_path):
    recorded = await recorded_in(tmp_path, Fake(World(CAPACITY)))
    nothing = Fake(World({}))
    assert await recorded_in(tmp_path, nothing, recorded) == recorded
    assert nothing.asked == []


async def test_a_search_alone_is_completed_without_its_space(tmp_path):
    old, fake = await old_recording(tmp_path, whole=False), Fake(World(CAPACITY))
    recorded = await recorded_in(tmp_path, fake, old, whole=False)
    assert fake.asked == [(Purpose.PARTIAL, GUESSING, 1.5)]
    assert_complete(recorded)


async def test_questions_of_replays_without_hints_are_recorded_as_well(tmp_path, monkeypatch):
    equals = [candidate("Q8_0", slots=8, batch_size=size) for size in (512, 1024)]
    space = problem([TODAY, *equals], replicas_today=5)
    asked = []
    for first in equals:
        for module in (recording, loop):
            monkeypatch.setattr(module, "hints", lambda *_, first=first: {first: -1})
        fake = Fake(World(dict.fromkeys(equals, 3.0) | {TODAY: 1.2}))
        assert_complete(await recorded_in(tmp_path, fake, space=space, whole=False))
        asked.append({who for _, who, rate in fake.asked if rate == 3.0})
    assert any(set(equals) <= seen for seen in asked), "one is asked first with hints, the other one without"


async def test_a_measurement_at_fault_is_repeated_once_and_counted(tmp_path):
    faulty = World(CAPACITY, verdicts=lambda t: Outcome.INVALID if t.attempt == 1 and t.rate == 6.0 else None)
    assert_complete(await recorded_in(tmp_path, Fake(faulty)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"replicas_today": 4}, "replicas_today"),
        ({"measurement": Measurement(runs=2)}, "measurement"),
        ({"candidates": (TODAY, LOSSY), "explain": True}, "candidates, explain"),
    ],
)
def test_a_recording_of_another_question_is_refused_with_what_differs(change, named):
    with pytest.raises(AnotherQuestionError, match=f"another {named} now"):
        check_same_question(SPACE, replace(SPACE, **change))


def test_where_files_lie_and_how_they_are_told_apart_is_no_other_question():
    moved = {name: replace(facts, path="/elsewhere", identity="new") for name, facts in SPACE.models.items()}
    sampled = replace(SPACE.demand, sampling=(("temperature", 0.0),))
    check_same_question(SPACE, replace(SPACE, models=moved, demand=sampled, context="other"))
