"""Whatever happens, in whatever order, and wherever the operator dies: what a rollout promises still holds.

Hypothesis drives the world: the operator plans and acts or dies before it does, pods come and go, answers run or
cannot be seen, people approve, withdraw, suspend and edit, GPUs are taken.
"""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slotune.api.v1alpha1 import Rollout
from slotune.api.v1alpha1.rollout import Drain as DrainPolicy
from slotune.rollout.last_good import record_name
from slotune.rollout.steps import (
    Apply,
    AwaitApproval,
    Done,
    Drain,
    NothingToDo,
    Refuse,
    RollBack,
    Verify,
    Wait,
    WriteAhead,
)
from tests.rollout.objects import HASH, OTHER_HASH, template
from tests.rollout.world import World, recommendation

CANDIDATES = st.sampled_from([HASH, OTHER_HASH])
ENDS = {
    "RolledOut",
    "RolledBack",
    "WouldDeadlock",
    "NeedsDowntime",
    "ChangedByOther",
    "RevertedByOther",
    "CandidateRolledBack",
    "LastGoodUnhealthy",
    "AwaitingApproval",
    "StaleApproval",
    "RecommendOnly",
    "Suspended",
    "NoRecommendation",
    "SavesTooLittle",
    "VerificationInconclusive",
    "PodsBusy",
    "IdleCheckFailed",
    "ProductionNotReady",
}


class AnyOrder(RuleBasedStateMachine):
    """One rollout after the other."""

    @initialize(
        mode=st.sampled_from(["Auto", "Auto", "RequireApproval", "Recommend"]),
        allow_downtime=st.booleans(),
        on_timeout=st.sampled_from(["Abort", "Proceed"]),
        free=st.integers(0, 2),
        replicas=st.integers(1, 3),
        wanted=st.integers(1, 3),
        owned=st.booleans(),
        surge=st.sampled_from([0, 1, "25%"]),
        sick=st.sets(CANDIDATES),
        keeps_slo=st.sampled_from([True, False, None]),
    )
    def begin(self, mode, allow_downtime, on_timeout, free, replicas, wanted, owned, surge, sick, keeps_slo):  # type: ignore[no-untyped-def]
        stated = {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 if surge == 0 else 0},
        }
        self.world = World(
            policy=Rollout(
                mode=mode,
                allow_downtime=allow_downtime,
                approved_candidate=HASH if mode == "RequireApproval" else None,
                drain=DrainPolicy(timeout="2m", on_timeout=on_timeout),
            ),
            free=free,
            replicas=replicas,
            owned=owned,
            stated={} if owned else stated,
            wanted=recommendation(replicas=wanted),
            sick=frozenset(sick),
            keeps_slo=keeps_slo,
        )
        self.disturbed = False
        """Whether pods or GPUs were taken: downtime is then not ours."""

    # The operator.

    @rule(passes=st.integers(1, 6))
    def operator_works(self, passes: int) -> None:
        for _ in range(passes):
            self._one_pass(die=False)

    @rule()
    def operator_dies_before_it_acts(self) -> None:
        """Also: the write of the status is lost."""
        self._one_pass(die=True)

    def _one_pass(self, *, die: bool) -> None:
        world = self.world
        step = world.plan()
        if isinstance(step, Apply):
            wanted = world.wanted
            assert wanted is not None
            assert step.candidate_hash == wanted.candidate_hash
            assert step.candidate_hash not in world.memory.refused
            assert world.policy.mode != "Recommend"
            assert not world.suspended
            if world.policy.mode == "RequireApproval":
                assert world.policy.approved_candidate == step.candidate_hash
            self._can_come_back()
            if world.serving.candidate != step.candidate_hash:
                assert world.busy is not None
                assert world.busy == 0 or world.policy.drain.on_timeout == "Proceed"
        if isinstance(step, RollBack):
            self._can_come_back()
            assert world.memory.refused
            assert world.owned or world.policy.mode != "Recommend"
            assert not world.suspended
        if not die:
            world.carry_out(step)

    def _can_come_back(self) -> None:
        good = self.world.memory.last_good
        assert good is not None
        assert good.template_digest is not None
        assert record_name("chat", good.template_digest) in self.world.records

    # The cluster.

    @rule(seed=st.integers(0, 1000), events=st.integers(1, 12))
    def pods_come_and_go(self, seed: int, events: int) -> None:
        random = Random(seed)
        for _ in range(events):
            self.world.happen(random)
            self._nobody_is_cut_off()

    @rule(seconds=st.sampled_from([1, 6, 61, 300, 1300]))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds=seconds)

    @rule(free=st.booleans())
    def a_gpu_is_taken_or_given_back(self, free: bool) -> None:
        if free or dict(self.world.state.free)["a"] > 0:
            self.world.state = self.world.state.with_gpus("a", 1 if free else -1)
            self.disturbed = True

    # Users and people.

    @rule(busy=st.sampled_from([0, 0, 2, None]))
    def users_come(self, busy: int | None) -> None:
        self.world.busy = busy

    @rule(outcome=st.sampled_from(["Kept", "Missed", "Inconclusive"]))
    def production_shows(self, outcome: str) -> None:
        self.world.outcome = outcome

    @rule(candidate=st.sampled_from([HASH, HASH, OTHER_HASH, OTHER_HASH, None]), replicas=st.integers(1, 3))
    def another_search_ends_or_begins(self, candidate: str | None, replicas: int) -> None:
        self.world.wanted = None if candidate is None else recommendation(candidate, replicas=replicas)

    @rule(candidate=st.none() | CANDIDATES, mode=st.sampled_from(["Auto", "RequireApproval", "Recommend"]))
    def a_person_decides(self, candidate: str | None, mode: str) -> None:
        changes = {"mode": mode, "approved_candidate": candidate}
        self.world.policy = self.world.policy.model_copy(update=changes)
        self.world.spec_generation += 1

    @rule()
    def it_is_suspended_or_resumed(self) -> None:
        self.world.suspended = not self.world.suspended
        self.world.spec_generation += 1

    @rule(who=st.sampled_from(["argocd", "argocd", "kubectl-edit"]))
    def somebody_writes_the_template(self, who: str) -> None:
        self.world.writer = who
        self.world.change(self.world.baseline if who == "argocd" else template("-m", "/m.gguf", "--verbose"))
        self.disturbed = True

    # What always holds.

    @invariant()
    def _nobody_is_cut_off(self) -> None:
        """Production is only down where that was allowed, or others made it so."""
        if hasattr(self, "world") and not self.disturbed and not self.world.policy.allow_downtime:
            rolls_back = bool(self.world.memory.refused)
            assert self.world.state.ready > 0 or rolls_back

    def teardown(self) -> None:
        if hasattr(self, "world"):
            step = self.world.run()
            assert isinstance(step, Done | Refuse | NothingToDo | AwaitApproval | Verify | Wait | Drain)
            assert step.reason in ENDS, step
            again = self.world.plan()
            assert not isinstance(again, WriteAhead | Apply | RollBack), again


AnyOrder.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyOrder = AnyOrder.TestCase
