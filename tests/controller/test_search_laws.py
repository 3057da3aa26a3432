"""A search that is driven by reconciles is the search of the command line: the same questions, the same answer, whoever
asks and however often the asker dies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.v1alpha1 import LlamaTrial
from slotune.controller.kinds import JOB, LLAMA_DEPLOYMENT
from slotune.controller.understanding import Understood
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.sandbox.protocol import Measured
from slotune.search.decision import DecisionKind
from slotune.search.trial import Trial, TrialResult
from slotune.tuning.ledger import Ledger
from slotune.tuning.loop import Answer, tune
from slotune.tuning.trial_objects import candidate_hash, trial_of
from tests.controller.fake_cluster import Request, written
from tests.controller.manifests import NAMESPACE, owned
from tests.controller.simulation import Killed, Simulation, drive, world
from tests.search.worlds import World

few = settings(deadline=None, max_examples=5)
KEY = (NAMESPACE, "chat")

capacities = st.fixed_dictionaries({slots: st.sampled_from([0.2, 0.7, 1.3, 2.6, 5.0]) for slots in (1, 2, 4)})


def world_of(capacity: dict[int, float], full: frozenset[int] = frozenset()) -> World:
    """Capacities by number of slots; servers with a ``full`` number of slots do not fit."""

    class Failing(dict[Candidate, FailureClass]):
        def get(self, candidate: Any, default: Any = None) -> Any:
            return FailureClass.OUT_OF_MEMORY_KV if candidate.parallel_slots in full else default

    return world(lambda one: capacity[one.parallel_slots], failures=Failing(), seconds=lambda _: 2.0)


class InProcess:
    """The command line's way to a server."""

    def __init__(self, measured: World) -> None:
        self._world = measured

    async def measure(self, trial: Trial, _listener: Any) -> Measured:
        result = self._world.measure(trial)
        return Measured(replace(result, gpu_seconds=float(max(2, round(result.gpu_seconds)))))


class Quiet:
    def resumed(self, results: list[TrialResult]) -> None: ...
    def started(self, number: int, trial: Trial) -> None: ...
    def progressed(self, progress: Any) -> None: ...
    def finished(self, number: int, result: TrialResult) -> None: ...


async def tuned(simulation: Simulation, measured: World) -> Answer:
    """What the command line's loop says about the problem that the operator has read."""
    life = await simulation.alive()
    raw = life.store.get(LLAMA_DEPLOYMENT, *KEY)
    assert raw is not None
    understood = (await life.observer.observe(raw, simulation.now)).understood
    assert isinstance(understood, Understood)
    with TemporaryDirectory() as folder, Ledger(Path(folder)) as ledger:
        return await tune(
            understood.space, InProcess(measured), ledger, Quiet(), lambda _, results: understood.refined(results)
        )


def asked_keys(measured: World) -> list[str]:
    return [trial.key() for trial in measured.asked]


def assert_same_answer(simulation: Simulation, answer: Answer) -> None:
    decision, status = answer.decision, simulation.status()
    reasons = {DecisionKind.FOUND: "Found", DecisionKind.INFEASIBLE: "Infeasible"}
    assert simulation.says("SearchCompleted") == ("True", reasons.get(decision.kind, decision.kind.value))
    recommendation = status.get("recommendation")
    if decision.choice is None:
        assert recommendation is None
        return
    assert recommendation["candidateHash"] == candidate_hash(decision.choice.candidate)
    assert recommendation["replicas"] == decision.choice.replicas
    assert float(recommendation["monthlyCost"]) == float(round(decision.choice.monthly_cost, 2))


def assert_each_question_once(simulation: Simulation) -> None:
    """No result that counts was measured twice, and no more servers ran at once than may."""
    ended = [trial.key() for trial in simulation.node.measured]
    assert len(ended) == len(set(ended))
    assert simulation.node.most_at_once <= simulation.max_trials


@few
@given(capacities, st.sampled_from([frozenset(), frozenset({4}), frozenset({2, 4})]), st.booleans())
def test_the_cluster_gives_the_answer_of_the_command_line(capacity, full, explained):
    explain = "Measured" if explained else "Off"

    async def law() -> None:
        there, here = world_of(capacity, full), world_of(capacity, full)
        simulation = Simulation(there)
        simulation.apply(owned(search__explain=explain))
        await simulation.until_decided()
        answer = await tuned(simulation, here)
        assert_same_answer(simulation, answer)
        assert asked_keys(there) == asked_keys(here)
        assert_each_question_once(simulation)
        assert simulation.jobs() == []

    drive(law())


class KillAt:
    """Ends the operator at its so manyth writes, before or after they take effect."""

    def __init__(self, points: dict[int, str]) -> None:
        self.points, self.count = points, 0

    def install(self, simulation: Simulation) -> None:
        simulation.cluster.before, simulation.cluster.after = self.before, self.after

    def before(self, request: Request) -> None:
        if request.is_write:
            self.count += 1
            if self.points.get(self.count) == "before":
                raise Killed

    def after(self, request: Request) -> None:
        if request.is_write and self.points.get(self.count) == "after":
            raise Killed


kills = st.dictionaries(st.integers(1, 90), st.sampled_from(["before", "after"]), min_size=1, max_size=8)


@settings(deadline=None, max_examples=6)
@given(kills, st.none() | st.integers(0, 99))
def test_an_operator_that_dies_at_any_write_ends_with_the_same_answer(points, seed):
    async def law() -> None:
        there = world_of({1: 0.7, 2: 1.3, 4: 2.6})
        simulation = Simulation(there, late=None if seed is None else Random(seed))
        simulation.apply(owned())
        killer = KillAt(points)
        killer.install(simulation)
        reborn = simulation.kill

        def kill_and_go_on() -> None:
            reborn()
            killer.install(simulation)

        simulation.kill = kill_and_go_on  # type: ignore[method-assign]  # the next life may die too
        await simulation.until_decided()
        assert_same_answer(simulation, await tuned(simulation, world_of({1: 0.7, 2: 1.3, 4: 2.6})))
        assert_each_question_once(simulation)
        await simulation.run(most_s=120)
        assert simulation.jobs() == []
        names = [trial["metadata"]["name"] for trial in simulation.trials()]
        assert len(names) == len({trial.key() for trial in there.asked})

    drive(law())


@settings(deadline=None, max_examples=3)
@given(st.integers(0, 999))
def test_watches_that_come_late_ask_no_question_twice(seed):
    async def law() -> None:
        simulation = Simulation(world_of({1: 0.7, 2: 1.3, 4: 2.6}), late=Random(seed))
        simulation.apply(owned())
        await simulation.until_decided()
        assert simulation.says("SearchCompleted") == ("True", "Found")
        assert_each_question_once(simulation)
        assert all(count == 1 for count in simulation.node.pods_of.values())
        for trial in simulation.trials():
            assert LlamaTrial.from_manifest(trial).status.interruptions == 0

    drive(law())


async def test_a_trials_name_is_a_function_of_what_it_measures():
    simulation = Simulation(world_of({1: 0.7, 2: 1.3, 4: 2.6}))
    simulation.apply(owned())
    await simulation.until_decided()
    for raw in simulation.trials():
        trial = LlamaTrial.from_manifest(raw)
        assert raw["metadata"]["name"] == f"chat-{trial_of(trial.spec).key(trial.spec.context_digest)}"
    made = [one.name for one in written(simulation.cluster.requests, JOB) if one.verb == "create"]
    assert set(made) >= {raw["metadata"]["name"] for raw in simulation.trials()}
