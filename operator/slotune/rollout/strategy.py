"""Whether a change of pods can end on the GPUs that there are, and whether somebody is served all the while.

A rolling update that starts a new pod before it stops an old one waits for ever when no GPU is spare: the new pod is
Pending, the old one stays, nothing is reported but a deadline. So it is computed before anything is sent.

The pods of the change are ``before`` old ones and, in the end, ``replicas`` new ones with one GPU each. When template
and replicas change in one request, Kubernetes first brings the old pods to the new number (a scaling event), and then
replaces them. From its rules (pkg/controller/deployment/rolling.go) follows:

- all pods have to fit in the end: on the old pods' GPUs and the free ones, or on the free ones alone where the
  candidate runs on another class;
- with maxUnavailable >= 1 an old pod may always end first, and with Recreate they all do: it ends when they fit;
- with maxUnavailable 0 a new pod has to be there first, so one GPU more than ``replicas`` is needed. Old pods beyond
  the new number count as that GPU, since they end first;
- on another class the old pods are in nobody's way.

Nobody is served for a while with Recreate, and when as many pods may be unavailable as there are. All of it is checked
against a model of the controller, for every order of events (tests/rollout/deployment_model.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.rollout.facts import Capacity, Serving, Strategy

__all__ = ["ONE_AT_A_TIME", "SURGE", "Choice", "Refusal", "choose_strategy", "completes", "takes_down", "way_back"]

SURGE: Final = Strategy("RollingUpdate", max_surge=1, max_unavailable=0)
"""A new pod answers before an old one ends: nobody notices, and one GPU is spare."""
ONE_AT_A_TIME: Final = Strategy("RollingUpdate", max_surge=0, max_unavailable=1)
"""An old pod ends before a new one starts: ends on any number of GPUs. With one replica nobody is served meanwhile."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How the pods are replaced."""

    strategy: Strategy | None
    """To be set; None: the Deployment's own, which is left alone."""
    replicas: int
    """Replicas while pods are replaced. Fewer follow once the candidate answers, so that today's load is not put on
    fewer of today's pods."""
    downtime: bool
    """Whether nobody is served for a while."""
    message: str
    """What users will notice, in words."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the pods can't be replaced, and what to set."""

    reason: str
    message: str


def completes(strategy: Strategy, before: int, replicas: int, capacity: Capacity) -> bool:
    """Whether the change ends, for ``before`` pods that run today and ``replicas`` >= 1."""
    free = capacity.free or 0
    if not capacity.released:
        return free >= replicas
    spare = before + free - replicas
    return spare >= 0 if strategy.kind == "Recreate" or strategy.max_unavailable else spare >= 1


def takes_down(strategy: Strategy, before: int, replicas: int) -> bool:
    """Whether there may be a moment in which no pod answers.

    When the replicas go down in the same request, Kubernetes may count pods as answering that a ReplicaSet is about to
    end, and end as many others too.
    """
    counted_twice = max(0, before - replicas)
    unavailable = strategy.max_unavailable
    return strategy.kind == "Recreate" or (unavailable > 0 and unavailable + counted_twice >= replicas)


def choose_strategy(
    serving: Serving, replicas: int, capacity: Capacity, *, owned: bool, allow_downtime: bool
) -> Choice | Refusal:
    """How the pods of ``serving`` can be replaced by ``replicas`` (at least 1) of a candidate.

    In order: at the larger number of replicas before the final one; a surge before one at a time; without downtime
    before with it. A Deployment that is not ours (``owned`` is False) keeps its own strategy, and is refused when that
    would not end.
    """
    before = serving.desired
    down: Choice | None = None
    for number in dict.fromkeys((max(before, replicas), replicas)):
        for strategy in (SURGE, ONE_AT_A_TIME) if owned else (Strategy.from_stated(serving.stated_strategy, number),):
            if not completes(strategy, before, number, capacity):
                continue
            downtime = takes_down(strategy, before, number)
            choice = Choice(
                strategy if owned else None, number, downtime, _notice(strategy, before, number, downtime=downtime)
            )
            if not downtime:
                return choice
            down = down or choice
    if down is not None and allow_downtime:
        return down
    return _refusal(serving, replicas, capacity, owned=owned, only_down=down is not None)


def way_back(before: int, replicas: int, capacity: Capacity) -> Strategy:
    """How an owned Deployment goes back to what it ran: the first way that ends, whatever users notice of it."""
    return SURGE if completes(SURGE, before, replicas, capacity) else ONE_AT_A_TIME


def _notice(strategy: Strategy, before: int, replicas: int, *, downtime: bool) -> str:
    if downtime:
        return "No pod answers while the new one loads its model: rollout.allowDowntime permits it"
    fewer = before - replicas if before > replicas else strategy.max_unavailable
    if fewer:
        pods = "1 pod fewer answers" if fewer == 1 else f"Up to {fewer} pods fewer answer"
        return f"{pods} while pods are replaced: no GPU is spare for more"
    return "A new pod answers before an old one ends"


def _refusal(serving: Serving, replicas: int, capacity: Capacity, *, owned: bool, only_down: bool) -> Refusal:
    before, free = serving.desired, capacity.free or 0
    known = f"{free} GPUs are free" if capacity.free is not None else "nobody knows whether a GPU is free"
    if free == 1:
        known = "1 GPU is free"
    needed = replicas - free - (before if capacity.released else 0)
    if needed > 0:
        class_note = "" if capacity.released else ", and today's pods hold GPUs of another class"
        return Refusal(
            "WouldDeadlock",
            f"{replicas} replicas do not fit: {known}{class_note}. Free {needed} more, or lower the gpuClasses' "
            "maxReplicas so that another answer is found",
        )
    if owned:
        return Refusal(
            "WouldDeadlock",
            f"Of {_pods(before)} none can be replaced while it serves: {known}. Set rollout.allowDowntime: true, or "
            "free a GPU",
        )
    if only_down:
        return Refusal(
            "NeedsDowntime",
            f"Deployment {serving.name} stops every pod before a new one answers. Set rollout.allowDowntime: true, or "
            "give the Deployment another spec.strategy, with maxSurge 1 and maxUnavailable 0 where a GPU is spare",
        )
    downtime = " and, since its only pod ends first, rollout.allowDowntime: true here" if replicas == 1 else ""
    return Refusal(
        "WouldDeadlock",
        f"Deployment {serving.name} starts a new pod before an old one ends, and {known}: the new pod would wait for "
        f"ever. Set maxSurge: 0 and maxUnavailable: 1 in its spec.strategy.rollingUpdate{downtime}, or free a GPU",
    )


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
