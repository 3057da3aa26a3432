"""An operator's life in a simulated cluster: watches, schedulers and time, without a wait.

Only what a cluster holds outlives a life. Watches bring changes late when a test wants that, each kind in its own
order, as an API server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from slotune.api.labels import MANAGED_BY, MANAGED_BY_LABEL, TRIAL_LABEL
from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus
from slotune.controller.act import Hands
from slotune.controller.cluster import Object
from slotune.controller.handlers import take, wake_those_concerned
from slotune.controller.heartbeat import Heartbeat
from slotune.controller.kinds import JOB, LLAMA_DEPLOYMENT, LLAMA_TRIAL, WATCHED, kind_of
from slotune.controller.metrics import OperatorMetrics
from slotune.controller.observe import Observer
from slotune.controller.reasons import REASONS_OF, ConditionType
from slotune.controller.reconcile import Reconciler
from slotune.controller.run import fill
from slotune.controller.settings import Settings
from slotune.controller.store import Key, Store, key_of, labels_of
from slotune.controller.wakes import Wakes
from slotune.llama.candidate import Candidate
from slotune.rollout.facts import Capacity, Look, Slots
from slotune.search.trial import Trial
from tests.controller.fake_cluster import START, Change, FakeCluster
from tests.controller.fake_node import FakeNode, tiny_model
from tests.controller.manifests import GPU_CLASS, NAMESPACE
from tests.search.worlds import World

TRIAL_IMAGE = "ghcr.io/slotune/slotune:test"


class Killed(BaseException):
    """SIGKILL: nothing catches it."""


class Capacities(Mapping[Candidate, float]):
    """True capacities by a rule, for candidates that nobody can list beforehand."""

    def __init__(self, rule: Callable[[Candidate], float]) -> None:
        self._rule = rule

    def __getitem__(self, candidate: Candidate) -> float:
        return self._rule(candidate)

    def __iter__(self) -> Any:
        raise TypeError("there is no end of candidates")

    def __len__(self) -> int:
        return 0


def world(rule: Callable[[Candidate], float] = lambda candidate: 1.0 * candidate.parallel_slots, **more: Any) -> World:
    """By default a slot carries one request a second, whatever else is set."""
    return World(Capacities(rule), **more)


@dataclass
class FakeReader:
    """What a rollout asks of nodes and servers."""

    free: int | None = 4
    busy: int | None = 0
    outcome: str = "Kept"

    async def capacity(self, *_: Any, **__: Any) -> Capacity:
        return Capacity(self.free)

    async def slots(self, *args: Any, **_: Any) -> Slots:
        return Slots(args[-1], self.busy)

    async def look(self, *_: Any, now: datetime, **__: Any) -> Look:
        return Look(now, self.outcome)  # type: ignore[arg-type]  # one of three words


@dataclass
class Life:
    """One operator process."""

    cluster: FakeCluster
    settings: Settings
    clock: Callable[[], datetime]
    reader: FakeReader
    store: Store = field(default_factory=Store)
    wakes: Wakes = field(default_factory=Wakes)
    due: dict[Key, datetime] = field(default_factory=dict)
    _seen: int = 0
    _late: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.observer = Observer(
            self.cluster, self.store, self.settings, self.clock, lambda key: self.wakes.wake([key])
        )
        self.observer._reader = self.reader  # type: ignore[assignment]  # the real one asks servers over the network
        self.hands = Hands(self.cluster, self.store, self.settings.max_trials)
        self.reconciler = Reconciler(
            self.observer,
            self.hands,
            self.wakes,
            settings=self.settings,
            metrics=OperatorMetrics(),
            heartbeat=Heartbeat(0.0),
            clock=self.clock,
        )

    async def begin(self) -> None:
        """List, then watch from there."""
        self._seen = len(self.cluster.changes)
        await fill(self.store, self.cluster, self.settings.namespaces)

    def deliver(self, late: Random | None = None) -> None:
        """Bring the store up to date; with ``late`` some changes come at a later time."""
        self._late += self.cluster.changes[self._seen :]
        self._seen = len(self.cluster.changes)
        held: set[str] = set()
        kept: list[Change] = []
        for change in self._late:
            kind = change.object["kind"]
            if kind in held or (late is not None and late.random() < 0.4):
                held.add(kind)
                kept.append(change)
            else:
                self._see(change)
        self._late = kept

    @property
    def has_news(self) -> bool:
        """Whether a watch has something to tell."""
        return bool(self._late) or self._seen < len(self.cluster.changes)

    def _see(self, change: Change) -> None:
        manifest = change.object
        kind = kind_of(manifest)
        if kind not in WATCHED:
            return
        if kind == JOB and labels_of(manifest).get(MANAGED_BY_LABEL) != MANAGED_BY:
            return
        if take(self.store, manifest, gone=change.type == "DELETED"):
            wake_those_concerned(self.store, self.wakes, kind, manifest)


@dataclass
class Simulation:
    """Users, a cluster, and operators one after the other."""

    world: World = field(default_factory=world)
    max_trials: int = 1
    late: Random | None = None
    now: datetime = START
    requeues: list[tuple[Key, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(now=lambda: self.now)
        self.node = FakeNode(self.cluster, self.world.measure, files={"/models/f16.gguf": tiny_model("F16")})
        self.reader = FakeReader()
        self.settings = Settings(trial_image=TRIAL_IMAGE, max_trials=self.max_trials)
        self.life: Life | None = None
        self.apply(GPU_CLASS)

    # ------------------------------------------------------------------ users

    def apply(self, *manifests: Object) -> None:
        """As ``kubectl apply`` does."""
        for manifest in manifests:
            self.cluster.put(manifest)

    def status(self, name: str = "chat") -> Object:
        """Status of a LlamaDeployment; empty while there is none."""
        found = self.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, name)
        assert found is not None
        return found.get("status") or {}

    def condition(self, kind: str, name: str = "chat") -> Object:
        """A condition; empty when it is not there."""
        return next((one for one in self.status(name).get("conditions", ()) if one["type"] == kind), {})

    def says(self, kind: str, name: str = "chat") -> tuple[str, str]:
        """Status and reason of a condition."""
        found = self.condition(kind, name)
        return found.get("status", ""), found.get("reason", "")

    def trials(self) -> list[Object]:
        return self.cluster.all_of(LLAMA_TRIAL, NAMESPACE)

    def jobs(self) -> list[Object]:
        return self.cluster.all_of(JOB, NAMESPACE)

    def flying(self) -> list[Object]:
        """Jobs of trials that run."""
        jobs = [job for job in self.jobs() if TRIAL_LABEL in job["metadata"]["labels"]]
        return [job for job in jobs if not (job.get("status") or {}).get("conditions")]

    # ------------------------------------------------------------------ operators and time

    def kill(self) -> None:
        """The operator's process is gone, and a write of it is not stopped any more."""
        self.life = None
        self.cluster.before = self.cluster.after = lambda _: None

    async def alive(self) -> Life:
        """The operator, started if there is none."""
        if self.life is None:
            self.life = Life(self.cluster, self.settings, lambda: self.now, self.reader)
            await self.life.begin()
        return self.life

    async def run(self, until: Callable[[], bool] = lambda: False, *, most_s: float = 86_400) -> None:
        """Let time pass until something is so, or nothing more happens within ``most_s``."""
        end = self.now + timedelta(seconds=most_s)
        await self.alive()
        while not until():
            try:
                busy = await self.turn()
            except Killed:
                self.kill()
                await self.alive()
                continue
            if busy:
                continue
            following = self._next_moment()
            if following is None or following > end:
                self.now = end
                return
            self.now = following

    async def turn(self) -> bool:
        """One round without time passing: the node, the watches, every scheduler that is due. Whether any was."""
        life = await self.alive()
        self.node.tick()
        life.deliver(self.late)
        self._begin_schedulers(life)
        due = [key for key, at in life.due.items() if at <= self.now or life.wakes.event(key).is_set()]
        for key in due:
            await self.reconcile(key)
        return bool(due) or life.has_news

    async def reconcile(self, key: Key = (NAMESPACE, "chat")) -> float:
        """What a daemon does in one turn."""
        life = await self.alive()
        raw = life.store.get(LLAMA_DEPLOYMENT, *key)
        life.wakes.event(key).clear()
        if raw is None:
            life.due.pop(key, None)
            return 0.0
        if raw["metadata"].get("deletionTimestamp"):
            if (again := await life.reconciler.release(key)) > 0:
                life.due[key] = self.now + timedelta(seconds=again)
                return again
            self.cluster.release(LLAMA_DEPLOYMENT, *key)
            life.due.pop(key, None)
            life.wakes.forget(key)
            return 0.0
        seconds = await life.reconciler.reconcile(key)
        self.requeues.append((key, seconds))
        life.due[key] = self.now + timedelta(seconds=seconds)
        return seconds

    def _begin_schedulers(self, life: Life) -> None:
        for key in life.store.of(LLAMA_DEPLOYMENT):
            if key not in life.due:
                life.due[key] = self.now
                life.wakes.event(key)

    def _next_moment(self) -> datetime | None:
        assert self.life is not None
        moments = [*self.life.due.values(), self.node.next_event()]
        return min((moment for moment in moments if moment is not None and moment > self.now), default=None)

    async def until_decided(self, name: str = "chat", *, most_s: float = 86_400) -> None:
        """Until nothing is left to measure."""
        await self.run(lambda: self.says("SearchCompleted", name)[0] == "True", most_s=most_s)


def assert_good_statuses(simulation: Simulation) -> None:
    """What holds of every status that was ever written: see the conventions in :mod:`slotune.controller.conditions`."""
    for change in simulation.cluster.changes:
        status = change.object.get("status") or {}
        if change.object["kind"] != "LlamaDeployment" or not status:
            continue
        LlamaDeploymentStatus.from_manifest(status)
        conditions = {one["type"]: one for one in status["conditions"]}
        assert "Ready" in conditions
        assert not {"Reconciling", "Stalled"} <= set(conditions)
        assert all(one["status"] == "True" for kind, one in conditions.items() if kind in {"Reconciling", "Stalled"})
        assert status["observedGeneration"] <= change.object["metadata"]["generation"]
        assert all(one["observedGeneration"] <= status["observedGeneration"] for one in conditions.values())
        for kind in ConditionType:
            if kind.value in conditions and kind not in {ConditionType.READY, ConditionType.STALLED}:
                assert conditions[kind.value]["reason"] in {*REASONS_OF[kind], "Suspended"}, conditions[kind.value]


def drive(coroutine: Awaitable[Any]) -> Any:
    """Run a simulation from a test that is no coroutine."""

    async def wrapped() -> Any:
        return await coroutine

    return asyncio.run(wrapped())


__all__ = [
    "Capacities",
    "FakeReader",
    "Killed",
    "Life",
    "Simulation",
    "Trial",
    "assert_good_statuses",
    "drive",
    "key_of",
    "world",
]
