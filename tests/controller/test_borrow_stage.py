"""Production's GPU is taken within its window only, after the way back is written down, and it always comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.labels import TRIAL_LABEL
from slotune.controller.contact import Contact
from slotune.controller.handlers import build_registry
from slotune.controller.kinds import DEPLOYMENT, LLAMA_DEPLOYMENT
from slotune.controller.references import parse
from slotune.controller.run import release_the_deleted
from slotune.controller.store import Store
from slotune.controller.wakes import Wakes
from tests.controller.fake_cluster import START, Change, Request
from tests.controller.manifests import NAMESPACE, owned, target, targeting
from tests.controller.simulation import Killed, Simulation, assert_good_statuses, drive, world

HOUR, DAY = 3600.0, 86_400.0
OPENS, CLOSES = START + timedelta(hours=1), START + timedelta(hours=3)
SANDBOX = {"mode": "Borrow", "borrow": {"window": "13:00-15:00", "maxDowntime": "1h"}}


@dataclass
class Night:
    """A search that borrows production, and what it did to it."""

    simulation: Simulation
    name: str = "web"
    down: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    """From when until when production had no replicas."""
    _replicas: int | None = None
    _seen: int = 0
    _restore: bool = False
    _trials: set[str] = field(default_factory=set)

    @property
    def replicas(self) -> int:
        found = self.simulation.cluster.find(DEPLOYMENT, NAMESPACE, self.name)
        assert found is not None
        return int(found["spec"]["replicas"])

    def watch(self) -> None:
        """Follow what has changed: production goes down only after the way back was written, trials run only then."""
        for change in self.simulation.cluster.changes[self._seen :]:
            self._follow(change)
        self._seen = len(self.simulation.cluster.changes)

    def _follow(self, change: Change) -> None:
        manifest = change.object
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == "LlamaDeployment":
            self._restore = "restore" in (manifest.get("status") or {})
        elif kind == "Job" and TRIAL_LABEL in manifest["metadata"]["labels"]:
            if change.type == "ADDED":
                assert self._replicas == 0, "a trial starts while production holds the GPU"
            (self._trials.discard if change.type == "DELETED" else self._trials.add)(name)
        elif kind == "Deployment" and name == self.name:
            replicas = manifest["spec"]["replicas"]
            if replicas == 0 and self._replicas:
                assert self._restore, "production goes down before the way back is written"
                self.down.append((self.simulation.now, None))
            elif replicas and self._replicas == 0:
                assert all(self._is_over(job) for job in self._trials), "production comes back before the trials end"
                self.down[-1] = (self.down[-1][0], self.simulation.now)
            self._replicas = replicas

    def _is_over(self, job: str) -> bool:
        found = self.simulation.cluster.objects.get(("Job", NAMESPACE, job))
        return found is None or bool((found.get("status") or {}).get("conditions"))

    async def run(self, until: Any = lambda: False, *, most_s: float = DAY) -> None:
        def seen() -> bool:
            self.watch()
            return bool(until())

        await self.simulation.run(seen, most_s=most_s)
        self.watch()


def begun(*manifests: Any, seconds: float = 2.0, **more: Any) -> Night:
    simulation = Simulation(world(seconds=lambda _: seconds), **more)
    simulation.apply(*(manifests or (target(), targeting(sandbox=SANDBOX))))
    return Night(simulation, "web" if len(manifests) != 1 else "chat")


async def borrowed(*manifests: Any, **more: Any) -> Night:
    """A night in which a trial runs on production's GPU."""
    night = begun(*manifests, **more)
    await night.run(lambda: night.simulation.flying() != [])
    assert night.replicas == 0
    return night


def assert_back(night: Night, replicas: int = 2) -> None:
    night.watch()
    assert night.replicas == replicas
    assert night.simulation.status().get("restore") is None
    assert_good_statuses(night.simulation)


# ------------------------------------------------------------------- the story


@pytest.mark.parametrize(
    "manifests", [(target(), targeting(sandbox=SANDBOX)), (owned(sandbox=SANDBOX),)], ids=["target", "owned"]
)
async def test_trials_run_in_the_window_on_production_which_is_back_in_time(manifests):
    night = begun(*manifests)
    await night.run(most_s=HOUR / 2)
    assert "production's GPU" in night.simulation.status()["progress"]["message"]
    assert "opens at 2026-03-02T13:00" in night.simulation.status()["progress"]["message"]
    await night.run(lambda: night.simulation.says("SearchCompleted")[0] == "True")
    await night.run(most_s=300)
    assert night.simulation.says("SearchCompleted") == ("True", "Found")
    assert night.simulation.status()["baseline"]["replicas"] == 2
    ((down, back),) = night.down
    assert down >= OPENS
    assert back is not None
    assert back <= OPENS + timedelta(hours=1)
    assert_back(night)
    told = [one.object["reason"] for one in night.simulation.cluster.changes if one.object["kind"] == "Event"]
    assert {"BorrowingProduction", "ReturningProduction", "ProductionReturned"} <= set(told)


async def test_the_answer_is_rolled_out_once_production_is_back():
    rollout = {"mode": "Auto", "allowDowntime": True}
    night = begun(owned(sandbox=SANDBOX, rollout=rollout))
    night.simulation.reader.free = 0
    await night.run(lambda: night.simulation.status().get("phase") == "Tuned", most_s=DAY)
    assert night.simulation.says("RolledOut") == ("True", "RolledOut")
    assert_back(night, night.simulation.status()["recommendation"]["replicas"])


async def test_what_does_not_end_in_one_window_goes_on_in_the_next():
    sandbox = {"mode": "Borrow", "borrow": {"window": "13:00-15:00", "maxDowntime": "12m"}}
    night = begun(target(), targeting(sandbox=sandbox), seconds=100.0)
    await night.run(lambda: night.simulation.says("SearchCompleted")[0] == "True", most_s=20 * DAY)
    await night.run(most_s=300)
    assert night.simulation.says("SearchCompleted") == ("True", "Found")
    assert len(night.down) > 1
    days = [down.date() for down, _ in night.down]
    assert len(days) == len(set(days))
    for down, back in night.down:
        assert back is not None
        assert back - down <= timedelta(minutes=12)
    measured = [trial.key() for trial in night.simulation.node.measured]
    assert len(measured) == len(set(measured))
    assert_back(night)


async def test_a_trial_that_takes_longer_than_expected_is_ended_when_production_is_due_back():
    sandbox = {"mode": "Borrow", "borrow": {"window": "13:00-15:00", "maxDowntime": "10m"}}
    night = await borrowed(target(), targeting(sandbox=sandbox), seconds=100_000.0)
    until = datetime.fromisoformat(night.simulation.status()["restore"]["until"])
    await night.run(lambda: night.replicas > 0)
    assert night.simulation.now <= until - timedelta(minutes=2)  # the time that its pods need
    await night.run(most_s=300)
    assert night.simulation.flying() == []
    assert_back(night)


@pytest.mark.parametrize(
    ("busy", "words"), [(1, "Answers still run"), (None, "Nobody can see")], ids=["answers run", "nobody knows"]
)
async def test_production_that_answers_somebody_is_left_alone(busy, words):
    night = begun()
    night.simulation.reader.busy = busy
    await night.run(most_s=1.1 * HOUR)
    assert night.replicas == 2
    assert night.down == []
    assert words in night.simulation.status()["progress"]["message"]
    night.simulation.reader.busy = 0
    await night.run(lambda: night.replicas == 0, most_s=60)


# ------------------------------------------------------------------- it comes back whatever happens


async def test_suspending_gives_production_back():
    night = await borrowed(seconds=500.0)
    night.simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"suspend": True})
    await night.run(lambda: night.replicas > 0, most_s=10)
    await night.run(most_s=300)
    assert night.simulation.jobs() == []
    assert_back(night)


async def test_deleting_gives_production_back_before_the_object_goes():
    night = await borrowed(seconds=500.0)
    night.simulation.cluster.forbidden = {("patch", "Deployment")}
    night.simulation.cluster.remove(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    await night.simulation.run(most_s=60)
    assert night.simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "chat") is not None
    night.simulation.cluster.forbidden = set()
    await night.simulation.run(most_s=60)
    assert night.replicas == 2
    assert night.simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "chat") is None
    assert night.simulation.jobs() == []


async def test_what_was_deleted_while_no_operator_ran_is_given_back_before_kopf_lets_it_go():
    night = await borrowed(seconds=500.0)
    simulation = night.simulation
    simulation.kill()
    simulation.cluster.remove(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    simulation.cluster.forbidden = {("patch", "Deployment")}
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        simulation.cluster.forbidden = set()

    life = await simulation.alive()
    await release_the_deleted(life.reconciler, life.store, sleep)
    assert night.replicas == 2
    assert len(slept) == 1


def test_a_release_is_never_cancelled_in_the_middle():
    contact = Contact("watches", 390)
    registry = build_registry(None, Store(), Wakes(), watched=set(), contact=contact)  # type: ignore[arg-type]  # nobody is scheduled
    (daemon,) = registry._spawning.get_all_handlers()
    assert daemon.cancellation_timeout is None
    assert daemon.cancellation_backoff


@pytest.mark.parametrize(
    "change",
    [
        {"workload": {"inline": None, "ref": {"name": "nowhere"}}},
        {"slo": {"ttftP95": "soon"}},
        {"sandbox": {"borrow": {"timeZone": "Europe/Atlantis"}}},
    ],
    ids=["a reference is gone", "a spec that nobody can read", "a time zone that nobody knows"],
)
async def test_a_spec_that_stands_in_the_way_gives_production_back(change):
    night = await borrowed(seconds=500.0)
    night.simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec=change)
    await night.run(lambda: night.replicas > 0, most_s=60)
    await night.run(most_s=60)
    assert_back(night)


async def test_a_spec_that_no_longer_allows_it_gives_production_back_before_the_search_goes_on():
    night = await borrowed(seconds=500.0)
    mode = {"mode": "SpareGPU", "borrow": None}
    night.simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"sandbox": mode})
    await night.run(lambda: night.simulation.status().get("restore") is None, most_s=60)
    assert_back(night)
    await night.simulation.run(lambda: night.simulation.flying() != [], most_s=60)
    assert night.replicas == 2


@pytest.mark.parametrize("failure", [("list", "Pod"), ("create", "LlamaTrial")], ids=" ".join)
async def test_a_right_that_goes_missing_gives_production_back(failure):
    night = await borrowed(seconds=30.0)
    night.simulation.cluster.forbidden = {failure}
    await night.run(lambda: night.replicas > 0, most_s=120)
    assert night.simulation.says("Stalled") == ("True", "Forbidden")
    night.simulation.cluster.forbidden = set()
    await night.run(most_s=900)
    assert_back(night)


async def test_a_trial_that_cannot_run_here_gives_production_back():
    night = begun()
    night.simulation.node.fate = lambda *_: "image pull"
    await night.run(lambda: bool(night.down), most_s=2 * HOUR)
    await night.run(lambda: night.replicas > 0, most_s=HOUR)
    assert night.simulation.says("Stalled") == ("True", "ImagePullFailed")


async def test_who_scales_production_up_meanwhile_wants_it_back():
    night = await borrowed(seconds=500.0)
    night.simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", spec={"replicas": 3})
    night._trials.clear()  # whoever scaled it did not ask
    await night.run(lambda: night.simulation.status().get("restore") is None, most_s=300)
    await night.run(most_s=HOUR)
    assert night.replicas == 3
    assert len(night.down) == 1


class KillAt:
    """Ends the operator at its so manyth write after ``begins``, before or after it takes effect."""

    def __init__(self, simulation: Simulation, points: dict[int, str]) -> None:
        self.simulation, self.points, self.count = simulation, points, 0
        ended = simulation.kill

        def kill() -> None:
            ended()
            self.install()

        simulation.kill = kill  # type: ignore[method-assign]  # the next life may die too
        self.install()

    def install(self) -> None:
        self.simulation.cluster.before = lambda request: self._at(request, "before")
        self.simulation.cluster.after = lambda request: self._at(request, "after")

    def _at(self, request: Request, when: str) -> None:
        if request.is_write:
            self.count += when == "before"
            if self.points.get(self.count) == when:
                raise Killed


@settings(deadline=None, max_examples=6)
@given(st.dictionaries(st.integers(5, 60), st.sampled_from(["before", "after"]), min_size=1, max_size=5), st.booleans())
def test_an_operator_that_dies_at_any_write_gives_production_back(points, is_owned):
    async def law() -> None:
        night = begun(*((owned(sandbox=SANDBOX),) if is_owned else ()))
        KillAt(night.simulation, points)
        await night.run(lambda: night.simulation.says("SearchCompleted")[0] == "True", most_s=3 * DAY)
        await night.run(most_s=300)
        assert night.simulation.says("SearchCompleted") == ("True", "Found")
        for down, back in night.down:
            assert back is not None
            assert back - down <= timedelta(hours=1)
            assert OPENS.time() <= down.time() <= CLOSES.time()
        assert_back(night)

    drive(law())


# ------------------------------------------------------------------- what a person has to do


async def test_a_window_in_which_no_trial_fits_is_said_with_the_field():
    sandbox = {"mode": "Borrow", "borrow": {"window": "13:00-15:00", "maxDowntime": "5m"}}
    night = begun(target(), targeting(sandbox=sandbox))
    await night.run(lambda: night.simulation.says("Stalled")[0] == "True", most_s=1.5 * HOUR)
    assert night.simulation.says("Stalled") == ("True", "WindowTooShort")
    assert "maxDowntime (5m)" in night.simulation.condition("Stalled")["message"]
    assert night.down == []
    assert_good_statuses(night.simulation)


async def test_an_operator_that_may_not_write_deployments_says_what_to_set():
    night = begun()
    night.simulation.cluster.forbidden = {("patch", "Deployment")}
    await night.run(lambda: night.simulation.says("Stalled")[0] == "True", most_s=1.5 * HOUR)
    assert night.simulation.says("Stalled") == ("True", "Forbidden")
    assert "permissions.deployments to Write" in night.simulation.condition("Stalled")["message"]
    await night.run(most_s=3 * HOUR)
    assert night.replicas == 2
    assert night.simulation.status().get("restore") is None


async def test_a_time_zone_that_nobody_knows_is_refused():
    sandbox = {"mode": "Borrow", "borrow": {**SANDBOX["borrow"], "timeZone": "Europe/Atlantis"}}
    night = begun(target(), targeting(sandbox=sandbox))
    await night.run(lambda: night.simulation.says("Stalled")[0] == "True", most_s=60)
    assert night.simulation.says("TargetResolved") == ("False", "InvalidSpec")
    assert "spec.sandbox.borrow.timeZone is 'Europe/Atlantis'" in night.simulation.condition("Stalled")["message"]


async def test_the_way_back_survives_a_status_that_cannot_be_read():
    night = await borrowed(seconds=500.0)
    raw = night.simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    raw["status"]["phase"] = "Dreaming"
    _, status, _ = parse(raw)
    assert status.phase is None
    assert status.restore is not None
    assert status.restore.replicas == 2
