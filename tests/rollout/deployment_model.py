"""Kubernetes' Deployment controller on a few GPUs, as a graph: a state, and every state that may come next.

An independent oracle for what ``slotune.rollout.strategy`` says in closed form. Written after the rules of
pkg/controller/deployment (sync.go, rolling.go, recreate.go, util/deployment_util.go). The controller, the ReplicaSets,
the scheduler and the kubelets act in any order, so all orders are in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slotune.rollout.facts import Strategy

__all__ = ["PodSet", "State", "endings", "least_ready", "start", "successors"]


@dataclass(frozen=True)
class PodSet:
    """A ReplicaSet with its pods."""

    key: str
    gpu: str = "a"
    healthy: bool = True
    spec: int = 0
    pending: int = 0
    running: int = 0
    ready: int = 0

    @property
    def pods(self) -> int:
        return self.pending + self.running + self.ready


@dataclass(frozen=True)
class State:
    replicas: int
    synced: int
    """Replicas that the ReplicaSets' desired-replicas annotations say."""
    strategy: Strategy
    sets: tuple[PodSet, ...]
    newest: str
    free: tuple[tuple[str, int], ...]

    def set(self, key: str) -> PodSet:
        return next(it for it in self.sets if it.key == key)

    def with_set(self, changed: PodSet) -> State:
        return replace(self, sets=tuple(changed if it.key == changed.key else it for it in self.sets))

    def with_gpus(self, gpu: str, more: int) -> State:
        return replace(self, free=tuple((name, n + more if name == gpu else n) for name, n in self.free))

    @property
    def ready(self) -> int:
        return sum(it.ready for it in self.sets)

    @property
    def is_done(self) -> bool:
        return all(it.pods == it.ready == (self.replicas if it.key == self.newest else 0) for it in self.sets)


def start(
    before: int, after: int, strategy: Strategy, free: int, *, same_gpu: bool = True, healthy: bool = True
) -> State:
    """``before`` pods answer, and the Deployment was just given a new template and ``after`` replicas."""
    old = PodSet("old", spec=before, ready=before)
    new = PodSet("new", gpu="a" if same_gpu else "b", healthy=healthy)
    gpus = (("a", free if same_gpu else 0), ("b", 0 if same_gpu else free))
    return State(after, before, strategy, (old, new), "new", gpus)


def successors(state: State) -> Iterator[State]:
    """Every state that may come next; nothing when nothing ever happens again."""
    if (synced := _sync(state)) != state:
        yield synced
    for it in state.sets:
        if it.pods < it.spec:
            yield state.with_set(replace(it, pending=it.pending + it.spec - it.pods))
        if it.pods > it.spec:
            yield _delete_one(state, it)
        if it.pending and dict(state.free)[it.gpu] > 0:
            placed = replace(it, pending=it.pending - 1, running=it.running + 1)
            yield state.with_set(placed).with_gpus(it.gpu, -1)
        if it.running and it.healthy:
            yield state.with_set(replace(it, running=it.running - 1, ready=it.ready + 1))


def endings(first: State) -> tuple[set[State], int]:
    """(states in which nothing happens any more, fewest pods that answered on the way), over every order of events."""
    seen, to_do, final, least = {first}, [first], set(), first.ready
    while to_do:
        state = to_do.pop()
        following = set(successors(state))
        least = min(least, state.ready)
        if not following:
            final.add(state)
        to_do += following - seen
        seen |= following
    return final, least


def least_ready(first: State) -> int:
    return endings(first)[1]


def _delete_one(state: State, it: PodSet) -> State:
    """A ReplicaSet ends pods that do not answer before those that do."""
    if it.pending:
        return state.with_set(replace(it, pending=it.pending - 1))
    ended = replace(it, running=it.running - 1) if it.running else replace(it, ready=it.ready - 1)
    return state.with_set(ended).with_gpus(it.gpu, 1)


def _sync(state: State) -> State:
    if state.replicas != state.synced:
        return _scale(state)
    return _recreate(state) if state.strategy.kind == "Recreate" else _roll(state)


def _scale(state: State) -> State:
    """A scaling event: the ReplicaSets follow the new number before anything is rolled."""
    active = [it for it in state.sets if it.spec > 0]
    scaled = replace(state, synced=state.replicas)
    if len(active) <= 1:
        only = active[0] if active else state.set(state.newest)
        return scaled.with_set(replace(only, spec=state.replicas))
    newest = state.set(state.newest)
    if newest.spec == state.synced == newest.ready:
        for it in active:
            scaled = scaled.with_set(replace(it, spec=state.replicas if it.key == newest.key else 0))
        return scaled
    if state.strategy.kind == "Recreate":
        return scaled
    allowed = state.replicas + state.strategy.max_surge if state.replicas else 0
    was_allowed = state.synced + state.strategy.max_surge
    left = to_add = allowed - sum(it.spec for it in active)
    order = sorted(active, key=lambda it: -it.spec)
    specs = {}
    for it in order:
        share = round(it.spec * allowed / was_allowed) - it.spec
        share = max(min(share, left), 0) if to_add > 0 else min(max(share, left), 0)
        specs[it.key] = it.spec + share
        left -= share
    specs[order[0].key] = max(0, specs[order[0].key] + left)
    for key, spec in specs.items():
        scaled = scaled.with_set(replace(scaled.set(key), spec=spec))
    return scaled


def _recreate(state: State) -> State:
    old = [it for it in state.sets if it.key != state.newest]
    for it in old:
        if it.spec:
            state = state.with_set(replace(it, spec=0))
    if any(it.pods for it in old):
        return state
    return state.with_set(replace(state.set(state.newest), spec=state.replicas))


def _roll(state: State) -> State:
    new = state.set(state.newest)
    total = sum(it.spec for it in state.sets)
    if new.spec > state.replicas:
        return state.with_set(replace(new, spec=state.replicas))
    if new.spec < state.replicas:
        room = min(state.replicas + state.strategy.max_surge - total, state.replicas - new.spec)
        if room > 0:
            return state.with_set(replace(new, spec=new.spec + room))
    least = state.replicas - state.strategy.max_unavailable
    most = total - least - (new.spec - new.ready)
    if most <= 0:
        return state
    changed = state
    for it in state.sets:  # what does not answer goes first, whatever the least number is
        unhealthy = min(most, it.spec - it.ready) if it.key != state.newest else 0
        if unhealthy > 0:
            changed = changed.with_set(replace(it, spec=it.spec - unhealthy))
            most -= unhealthy
    spare = state.ready - least
    for it in changed.sets:
        ended = min(spare, it.spec) if it.key != state.newest else 0
        if ended > 0:
            changed = changed.with_set(replace(it, spec=it.spec - ended))
            spare -= ended
    return changed
