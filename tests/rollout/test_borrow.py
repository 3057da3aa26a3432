"""Production's GPU is taken only as agreed, and always comes back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.quantities import parse_window
from slotune.api.v1alpha1 import Borrow, RolloutRecord
from slotune.api.v1alpha1 import Drain as DrainPolicy
from slotune.rollout.borrow import Borrowed, BorrowStep, GiveBack, NotBorrowed, ScaleDown, Wish, plan_borrow
from slotune.rollout.facts import Serving, Slots
from slotune.rollout.memory import Memory, moment, stamp
from slotune.rollout.steps import Drain, Wait, WriteAhead
from slotune.rollout.windows import UnknownTimeZoneError, opening_at, time_zone
from tests.rollout.objects import deployment

OPEN = datetime(2026, 3, 2, 2, tzinfo=UTC)
POLICY = Borrow(window="02:00-05:00", max_downtime="1h")
MINUTE = timedelta(minutes=1)


@dataclass
class Town:
    """One Deployment, and an operator that plans every now and then."""

    now: datetime = OPEN
    policy: Borrow | None = POLICY
    wants: bool = True
    busy: int | None = 0
    on_timeout: str = "Abort"
    trial_runs: bool = False
    trial_takes: timedelta = 10 * MINUTE
    reload: timedelta = 5 * MINUTE
    memory: Memory = field(default_factory=Memory)
    replicas: int = 1
    generation: int = 3
    uid: str = "u-1"
    answers_at: datetime = OPEN - timedelta(days=9)
    """When the pods that are there answer."""

    @property
    def answers(self) -> bool:
        return self.replicas > 0 and self.now >= self.answers_at

    @property
    def serving(self) -> Serving:
        ready = self.replicas if self.answers else 0
        raw = deployment(replicas=self.replicas, status={"availableReplicas": ready})
        raw["metadata"] |= {"generation": self.generation, "uid": self.uid}
        raw["status"]["observedGeneration"] = self.generation
        return Serving.from_deployment(raw, "llama")

    def plan(self, **others: Any) -> BorrowStep:
        wish = Wish(
            policy=self.policy,
            drain=DrainPolicy(timeout="5m", on_timeout=self.on_timeout),
            wants_gpu=self.wants,
            since=OPEN - timedelta(days=1),
            trial_takes=self.trial_takes,
            reload=self.reload,
            trial_runs=self.trial_runs,
        )
        arguments = {"serving": self.serving, "memory": self.memory, "now": self.now} | others
        return plan_borrow(wish, slots=Slots(self.now, self.busy), **arguments)

    def scale(self, replicas: int) -> None:
        if replicas != self.replicas:
            self.generation += 1
            self.answers_at = self.now + 4 * MINUTE
        self.replicas = replicas

    def carry_out(self, step: BorrowStep) -> BorrowStep:
        match step:
            case WriteAhead():
                self.memory = step.memory
            case ScaleDown():
                assert step.uid == self.uid
                self.scale(0)
            case GiveBack():
                assert step.uid == self.uid
                self.trial_runs = False
                self.scale(step.replicas)
            case _:
                pass
        return step

    def operate(self, passes: int = 1) -> BorrowStep:
        for _ in range(passes):
            step = self.carry_out(self.plan())
        return step


def test_the_way_back_is_written_before_the_gpu_is_taken() -> None:
    town = Town()
    assert isinstance(town.operate(), WriteAhead)
    intent = town.memory.restore
    assert intent is not None
    assert (intent.name, intent.uid, intent.replicas) == ("chat", "u-1", 1)
    assert moment(intent.until) == OPEN + timedelta(hours=1)
    assert isinstance(town.operate(), ScaleDown)
    step = town.operate()
    assert isinstance(step, Borrowed)
    assert step.until == OPEN + timedelta(minutes=55)


def test_it_is_back_when_its_time_is_over_and_stays_until_the_next_window() -> None:
    town = Town()
    town.operate(3)
    town.trial_runs = True
    town.now = OPEN + timedelta(minutes=55)
    assert isinstance(town.operate(), GiveBack)
    assert town.replicas == 1
    assert isinstance(town.operate(), Wait)
    town.now += 4 * MINUTE
    assert isinstance(town.operate(), WriteAhead)
    assert town.memory.restore is None
    step = town.operate()
    assert isinstance(step, NotBorrowed)
    assert step.reason == "BorrowedBefore"
    assert step.until == OPEN + timedelta(days=1)
    town.now = step.until
    assert isinstance(town.operate(), WriteAhead)


def test_the_end_of_the_window_is_earlier_than_the_longest_downtime() -> None:
    town = Town(now=OPEN + timedelta(hours=2, minutes=30))
    town.operate()
    assert town.memory.restore is not None
    assert moment(town.memory.restore.until) == OPEN + timedelta(hours=3)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"wants": False}, id="decided, failed, suspended or deleted"),
        pytest.param({"policy": None}, id="no longer allowed"),
        pytest.param({"now": OPEN + timedelta(hours=9)}, id="the operator was dead for hours"),
        pytest.param({"now": OPEN + timedelta(minutes=50)}, id="no other trial fits"),
    ],
)
def test_restoring_wins(change: dict[str, Any]) -> None:
    town = Town()
    town.operate(3)
    for name, value in change.items():
        setattr(town, name, value)
    assert isinstance(town.plan(), GiveBack)


def test_a_time_zone_that_is_no_longer_known_does_not_keep_production_down() -> None:
    town = Town()
    town.operate(3)
    town.policy = Borrow(window="02:00-05:00", time_zone="Europe/Atlantis")
    town.now = OPEN + timedelta(hours=2)
    assert isinstance(town.plan(), GiveBack)
    with pytest.raises(UnknownTimeZoneError):
        Town(policy=town.policy).plan()


def test_a_running_trial_may_end_until_the_last_moment() -> None:
    town = Town()
    town.operate(3)
    town.trial_runs = True
    town.now = OPEN + timedelta(minutes=54)
    assert isinstance(town.plan(), Borrowed)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"now": OPEN - MINUTE}, "OutsideWindow", id="before the window"),
        pytest.param({"now": OPEN + timedelta(hours=2, minutes=46)}, "TooShort", id="too late for a trial"),
        pytest.param({"trial_takes": timedelta(hours=1)}, "TooShort", id="a trial longer than the downtime"),
        pytest.param({"wants": False}, "NotNeeded", id="nothing to measure"),
        pytest.param({"replicas": 0}, "NothingToBorrow", id="production is down already"),
        pytest.param({"answers_at": OPEN + 9 * MINUTE}, "ProductionNotReady", id="production is not well"),
        pytest.param({"busy": 2}, "PodsBusy", id="answers run"),
        pytest.param({"busy": None, "on_timeout": "Proceed"}, "IdleCheckFailed", id="nobody knows"),
    ],
)
def test_production_is_not_taken(change: dict[str, Any], reason: str) -> None:
    town = Town(**{"now": OPEN + 6 * MINUTE} | change)
    step = town.plan()
    assert isinstance(step, NotBorrowed)
    assert step.reason == reason


def test_running_answers_have_their_time_after_the_window_opens() -> None:
    assert isinstance(Town(busy=1).plan(), Drain)
    assert isinstance(Town(busy=1, on_timeout="Proceed", now=OPEN + 5 * MINUTE).plan(), WriteAhead)


def test_it_is_not_taken_in_the_middle_of_a_rollout() -> None:
    record = RolloutRecord(candidate_hash="b" * 10, stage="Verifying", started_at=stamp(OPEN), since=stamp(OPEN))
    step = Town(memory=Memory(rollout=record)).plan()
    assert isinstance(step, NotBorrowed)
    assert step.reason == "ProductionNotReady"


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "another one of the same name"])
def test_another_deployment_is_left_alone(gone: bool) -> None:
    town = Town()
    town.operate(3)
    town.uid = "u-2"
    step = town.plan(serving=None) if gone else town.plan()
    assert isinstance(step, WriteAhead)
    assert step.memory.restore is None
    assert town.replicas == 0


def test_who_scales_it_up_meanwhile_wants_it_back() -> None:
    town = Town()
    town.operate(3)
    town.scale(2)
    assert isinstance(town.operate(), Wait)
    town.now += 4 * MINUTE
    town.operate()
    assert town.memory.restore is None
    assert town.replicas == 2
    assert town.plan().reason == "BorrowedBefore"  # type: ignore[union-attr]  # the only step it can be


def test_an_operator_that_died_before_it_scaled_down_takes_it_or_lets_it_go() -> None:
    town = Town()
    town.operate()
    assert isinstance(town.plan(), ScaleDown)
    town.now = OPEN + timedelta(hours=2)
    step = town.operate()
    assert isinstance(step, WriteAhead)
    assert town.memory.restore is None
    assert town.memory.last_restored is None  # it was never down


EVENTS = st.sampled_from(["works", "works", "works", "dies", "starts a trial", "wants or not", "sleeps", "users"])


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["02:00-05:00", "Mon 23:00-01:30", "00:00-00:00"]),
    st.sampled_from(["10m", "40m", "1h30m"]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    st.lists(st.tuples(EVENTS, st.integers(1, 30)), min_size=5, max_size=40),
    st.datetimes(datetime(2026, 3, 28), datetime(2026, 3, 30), timezones=st.just(UTC)),
)
def test_production_is_down_only_as_agreed(
    window: str, downtime: str, zone: str, events: list[tuple[str, int]], now: datetime
) -> None:
    """Never without a note, never out of the window, and never longer than agreed while the operator lives."""
    policy = Borrow(window=window, max_downtime=downtime, time_zone=zone)
    town = Town(policy=policy, now=now, trial_takes=3 * MINUTE)
    for kind, number in events:
        lives = _happens(town, kind, number)
        for _ in range(number):  # the operator looks every half minute
            town.now += timedelta(seconds=30)
            if lives:
                town.operate(2)
            _as_agreed(town, policy, lives=lives)
    town.wants = False
    for _ in range(40):
        town.now += timedelta(seconds=30)
        town.operate()
    assert town.answers
    assert town.memory.restore is None


def _happens(town: Town, kind: str, number: int) -> bool:
    """What comes; False while there is no operator."""
    match kind:
        case "starts a trial":
            town.trial_runs = isinstance(town.plan(), Borrowed)
        case "wants or not":
            town.wants = not town.wants
        case "users":
            town.busy = number % 3 or None
        case "sleeps":
            town.now += timedelta(minutes=7 * number)
    return kind != "dies"


def _as_agreed(town: Town, policy: Borrow, *, lives: bool) -> None:
    if town.replicas > 0:
        return
    intent = town.memory.restore
    assert intent is not None, "down without a note"
    if lives:
        assert town.now < moment(intent.until)
        assert opening_at(parse_window(policy.window), time_zone(policy.time_zone), town.now) is not None


def test_production_answers_by_the_time_that_was_promised() -> None:
    town = Town()
    promised = None
    while town.now < OPEN + timedelta(hours=3):
        town.now += timedelta(seconds=30)
        step = town.operate()
        if isinstance(step, Borrowed):
            town.trial_runs = True
        if town.memory.restore is not None:
            promised = moment(town.memory.restore.until)
        if promised is not None and town.now >= promised:
            assert town.answers
    assert promised is not None
    assert replace(town.memory, last_restored=None) == Memory()
