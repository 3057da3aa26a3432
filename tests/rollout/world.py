"""A cluster with one Deployment, an operator that may die at any moment, and people who change their minds.

The operator is the loop that a controller would be: observe, plan, carry out, nothing remembered but the status.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from slotune.api.v1alpha1 import Recommendation, Rollout
from slotune.production.verification import judge_counts
from slotune.rollout.facts import Capacity, Look, Readings, Serving, Slots, Strategy, template_digest
from slotune.rollout.intent import Intent
from slotune.rollout.last_good import record_name
from slotune.rollout.memory import Memory
from slotune.rollout.planner import plan_rollout
from slotune.rollout.steps import Apply, RollBack, RolloutStep, Verify, Wait, WriteAhead
from tests.rollout.deployment_model import PodSet, State, successors
from tests.rollout.objects import HASH, OWN_HASH, deployment, template

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
PROGRESS_DEADLINE_S = 600

SETTINGS: dict[str, Any] = {
    "model": "q8",
    "gpu_class": "l4",
    "parallel_slots": 8,
    "context_size_per_slot": 4096,
    "kv_unified": False,
    "batch_size": 2048,
    "u_batch_size": 512,
    "flash_attention": "Auto",
    "cache_type_k": "f16",
    "cache_type_v": "f16",
    "cache_prompt": True,
    "cache_ram_mib": 0,
    "cache_idle_slots": False,
    "cache_reuse": 0,
    "gpu_layers": "all",
    "speculation": "none",
}


def recommendation(candidate: str = HASH, replicas: int | None = 1, saving: str | None = "40") -> Recommendation:
    return Recommendation.model_validate(
        {
            "candidate_hash": candidate,
            "candidate": SETTINGS,
            "gpu_class": "l4",
            "replicas": replicas,
            "saving_percent": saving,
            "args": ("-np", candidate),
            "patch_config_map": "chat-recommendation",
        }
    )


@dataclass
class World:
    """Everything outside the planner."""

    policy: Rollout = field(default_factory=lambda: Rollout(mode="Auto"))
    free: int = 1
    replicas: int = 1
    owned: bool = True
    stated: dict[str, Any] = field(default_factory=dict)
    wanted: Recommendation | None = field(default_factory=recommendation)
    outcome: str = "Kept"
    busy: int | None = 0
    sick: frozenset[str] = frozenset()
    """Candidates whose pods never answer."""
    keeps_slo: bool | None = False
    suspended: bool = False
    capacity_known: bool = True

    now: datetime = START
    memory: Memory = field(default_factory=Memory)
    spec_generation: int = 4
    generation: int = 1
    templates: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)
    steps: list[RolloutStep] = field(default_factory=list)
    progressed_at: datetime = START
    writer: str = "kubectl"

    def __post_init__(self) -> None:
        self.baseline = pods = template(candidate=OWN_HASH)
        key = template_digest(pods)
        self.templates[key] = pods
        strategy = Strategy.from_stated(self.stated, self.replicas)
        old = PodSet(key, spec=self.replicas, ready=self.replicas)
        self.state = State(self.replicas, self.replicas, strategy, (old,), key, (("a", self.free),))

    # What an API server shows.

    @property
    def raw(self) -> dict[str, Any]:
        state, newest = self.state, self.state.set(self.state.newest)
        late = self.now - self.progressed_at >= timedelta(seconds=PROGRESS_DEADLINE_S) and not state.is_done
        progressing = {"type": "Progressing", "reason": "ProgressDeadlineExceeded" if late else "ReplicaSetUpdated"}
        raw = deployment(
            replicas=state.replicas,
            strategy=self.stated,
            pods=self.templates[state.newest],
            progressDeadlineSeconds=PROGRESS_DEADLINE_S,
            status={
                "observedGeneration": self.generation,
                "replicas": sum(it.pods for it in state.sets),
                "updatedReplicas": newest.pods,
                "availableReplicas": state.ready,
                "conditions": [progressing],
            },
            managed=[
                {"manager": self.writer, "time": "2026-03-02T12:00:00Z", "fieldsV1": {"f:spec": {"f:template": {}}}}
            ],
        )
        raw["metadata"]["generation"] = self.generation
        return raw

    @property
    def serving(self) -> Serving:
        return Serving.from_deployment(self.raw, "llama")

    @property
    def intent(self) -> Intent:
        return Intent(
            policy=self.policy,
            wanted=self.wanted,
            generation=self.spec_generation,
            owned=self.owned,
            container="llama",
            baseline_hash=OWN_HASH,
            keeps_slo=self.keeps_slo,
            suspended=self.suspended,
        )

    @property
    def readings(self) -> Readings:
        free = dict(self.state.free)["a"] if self.capacity_known else None
        outcome = self.outcome
        return Readings(
            capacity=Capacity(free),
            slots=Slots(self.now, self.busy, "" if self.busy is not None else "it answers 501: start it with --slots"),
            look=Look(self.now, outcome),  # type: ignore[arg-type]  # one of three words
        )

    # What an operator does.

    def plan(self) -> RolloutStep:
        verify = self.policy.verify

        def judge(kept: int, missed: int, inconclusive: int) -> Any:
            found = judge_counts(verify, kept=kept, missed=missed, inconclusive=inconclusive)
            return found.decision.value, found.reason

        arguments = (self.intent, self.serving, self.memory, self.readings, self.now)
        step = plan_rollout(*arguments, judge=judge)
        assert plan_rollout(*arguments, judge=judge) == step
        return step

    def carry_out(self, step: RolloutStep) -> None:
        self.steps.append(step)
        match step:
            case WriteAhead():
                if step.record_template:
                    now = self.state.newest
                    self.records[record_name("chat", now)] = self.templates[now]
                self.memory = step.memory
            case Apply():
                self.applied.append(step.candidate_hash)
                self.change(self.pods_of(step.candidate_hash), step.replicas, step.strategy)
            case RollBack():
                assert step.to.template_digest is not None
                pods = self.records[record_name("chat", step.to.template_digest)]
                self.change(pods, step.replicas, step.strategy)
            case _:
                pass

    def operate(self, passes: int = 1) -> RolloutStep:
        """As many plans, each carried out."""
        for _ in range(passes):
            step = self.plan()
            self.carry_out(step)
        return step

    # What Kubernetes and others do.

    def pods_of(self, candidate: str) -> dict[str, Any]:
        return self.baseline if candidate == OWN_HASH else template("-np", candidate, candidate=candidate)

    def change(self, pods: dict[str, Any], replicas: int | None = None, strategy: Strategy | None = None) -> None:
        """The Deployment's spec becomes this."""
        key, state = template_digest(pods), self.state
        self.templates[key] = pods
        if strategy is not None:
            self.stated = strategy.for_deployment()
        count = state.replicas if replicas is None else replicas
        if all(it.key != key for it in state.sets):
            args = pods["spec"]["containers"][0]["args"]
            state = replace(state, sets=(*state.sets, PodSet(key, healthy=not self.sick & set(args))))
        changed = replace(state, newest=key, replicas=count, strategy=Strategy.from_stated(self.stated, count))
        if changed != self.state:
            self.generation += 1
            self.progressed_at = self.now
        self.state = changed

    def happen(self, random: Random) -> bool:
        """One event in the cluster; False when nothing can happen."""
        following = sorted(set(successors(self.state)), key=repr)
        if not following:
            return False
        self.state = random.choice(following)
        self.progressed_at = self.now
        return True

    def calm_down(self) -> None:
        """Until nothing happens in the cluster."""
        random = Random(0)
        while self.happen(random):
            pass

    def pass_time(self, **duration: float) -> None:
        self.now += timedelta(**duration)

    def run(self, *, most: int = 400) -> RolloutStep:
        """The operator and the cluster take turns until nothing new is planned; two hours may pass for each wait."""
        for _ in range(most):
            step = self.plan()
            self.carry_out(step)
            self.calm_down()
            if isinstance(step, WriteAhead | Apply | RollBack):
                continue
            if not isinstance(step, Verify | Wait) and not hasattr(step, "next_look"):
                return step
            if step.reason in {"VerificationInconclusive", "PodsBusy", "IdleCheckFailed", "FieldOwnedByOther"}:
                return step  # looked at for ever, and nothing changes by itself
            if (then := _next(step)) is None:
                return step
            self.now = max(self.now, then) + timedelta(seconds=1)
        raise AssertionError(f"no end: {self.steps[-5:]}")

    @property
    def running(self) -> str | None:
        """Candidate whose pods answer."""
        ready = [it.key for it in self.state.sets if it.ready]
        annotations = self.templates[ready[0]]["metadata"].get("annotations", {}) if ready else {}
        return annotations.get("slotune.dev/candidate")


def _next(step: RolloutStep) -> datetime | None:
    return getattr(step, "next_look", None) or getattr(step, "until", None)
