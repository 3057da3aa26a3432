"""What a trial's pod that has not ended waits for, and when the waiting has become hopeless."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from slotune.sandbox.judgement import Blocked, Judgement, Retry, Waiting
from slotune.sandbox.pod_case import Case, PodCase
from slotune.sandbox.pod_ends import LOST
from slotune.sandbox.pod_facts import ContainerFacts, EventFacts, JobFacts

__all__ = [
    "has_its_image",
    "waiting_for",
    "waiting_for_its_image",
    "waiting_for_its_start",
    "waiting_for_its_volumes",
    "without_pod",
]

GRACE_S = 120.0
"""A registry that stumbles, a ConfigMap that comes a moment later, a webhook that restarts: kubelet and the Job's
controller try again by themselves."""
SOON_S = 60.0
"""A pod that finds no place is likely to find one within this time: what was there before is just leaving."""

_PULL: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
    | {"RegistryUnavailable", "SignatureValidationFailed"}
)
_MAKE: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError"}
)
_HOPELESS: Final = frozenset({"ErrImageNeverPull", "InvalidImageName"})
"""What no further try can change."""


def without_pod(job: JobFacts, events: Sequence[EventFacts], capacity_timeout_s: float, now: datetime) -> Judgement:
    """A Job that has no pod: not any more, not yet, or never."""
    if job.failure is not None:
        reason = "Disrupted" if job.failure.reason == "PodFailurePolicy" else "PodLost"
        return Retry(reason, f"the trial's pod is gone, and what it found with it: {job.failure.message}")
    if job.complete:
        return Retry("PodLost", "the trial's pod was deleted before its result was read")
    if job.deleting:
        return Retry("Deleted", "the trial's Job was deleted while it ran")
    if job.suspended:
        queue = f"Kueue's queue {job.queue}" if job.queue else "whoever suspended the Job"
        return Waiting("Queued", "Suspended", f"waits for {queue}")
    waited_s = _since(job.started_at or job.created_at, now)
    refused = _last(events, "Job", "FailedCreate")
    return (
        _for_a_pod(waited_s, capacity_timeout_s) if refused is None else _refused(refused, waited_s, capacity_timeout_s)
    )


def waiting_for(case: Case) -> Judgement:
    """What the trial's pod waits for or does; Blocked when that won't end by itself."""
    looks = (waiting_for_its_start, _for_the_client, _for_the_server)
    return next((found for look in looks if (found := look(case)) is not None), None) or waiting_for_its_volumes(case)


def waiting_for_its_start(case: PodCase) -> Judgement | None:
    """Whatever keeps containers from being made; None when nothing is known to."""
    looks = (_for_its_turn, _for_a_node, _for_a_container)
    return next((found for look in looks if (found := look(case)) is not None), None)


def waiting_for_its_image(case: PodCase, container: ContainerFacts) -> Judgement | None:
    """Whether a container's image can be had; None when nothing is known against it."""
    return _cannot_start(container, _placed_s(case)) if container.waiting_reason in _PULL else None


def has_its_image(container: ContainerFacts) -> bool:
    """Whether it came as far as its image, which kubelet fetches before it makes anything else."""
    ended = container.ended is not None and container.ended.reason not in LOST
    return ended or container.first_start is not None or container.waiting_reason in _MAKE


def _for_a_pod(waited_s: float, capacity_timeout_s: float) -> Judgement:
    if waited_s >= capacity_timeout_s:
        return Blocked("NoPod", "the Job made no pod: is the Job controller at work? See the Job's events")
    return Waiting("Pending", "NoPod", "the Job makes its pod")


def _refused(refused: EventFacts, waited_s: float, capacity_timeout_s: float) -> Judgement:
    """The API server did not take the pod. A quota may have room later, a rule of admission stays."""
    if "exceeded quota" in refused.message:
        if waited_s >= capacity_timeout_s:
            return Blocked("QuotaExceeded", f"{refused.message}: raise the quota, or let trials run in a quieter time")
        return Waiting("Pending", "PodRefused" if waited_s < SOON_S else "QuotaExceeded", refused.message)
    reason = "PodSecurity" if "PodSecurity" in refused.message else "PodRefused"
    if waited_s < GRACE_S and reason != "PodSecurity":
        return Waiting("Pending", reason, refused.message)
    cure = "a trial runs what the template asks for: change the template, or the rule that refuses it"
    return Blocked(reason, f"the API server refused the trial's pod: {refused.message}: {cure}")


def _for_its_turn(case: PodCase) -> Judgement | None:
    scheduled = case.pod.conditions.get("PodScheduled")
    if scheduled is not None and scheduled.reason == "SchedulingGated":
        return Waiting("Queued", "SchedulingGated", "waits for the pod's scheduling gates")
    return None


def _for_a_node(case: PodCase) -> Judgement | None:
    if case.pod.node is not None:
        return None
    waited_s = _since(case.pod.created_at, case.now)
    scheduled = case.pod.conditions.get("PodScheduled")
    said = (scheduled and scheduled.message) or "the scheduler has not said why"
    if waited_s < case.capacity_timeout_s:
        return Waiting("Pending", "Scheduling" if waited_s < SOON_S else "Unschedulable", said)
    return Blocked(
        "NoCapacity",
        f"no node took the trial's pod for {waited_s / 60:.0f} min ({said}): free a GPU or add a node, allow more time "
        "with sandbox.capacityTimeout, or let trials take production's GPU with sandbox.mode Borrow",
    )


def _for_a_container(case: PodCase) -> Judgement | None:
    stuck = next((c for c in case.pod.containers.values() if c.waiting_reason in _PULL | _MAKE), None)
    return None if stuck is None else _cannot_start(stuck, _placed_s(case))


def _for_the_client(case: Case) -> Judgement | None:
    if case.client is None or case.client.running_since is None:
        return None
    progress = case.client_log.progress
    stage = progress.stage if progress else "starting"
    reason = "".join(word.capitalize() for word in stage.split())
    facts = case.server_facts if case.server_facts.ready else None
    return Waiting("Running", reason, f"the load client is {stage}", progress, facts)


def _for_the_server(case: Case) -> Judgement | None:
    if case.server is not None and case.server.running_since is not None:
        return Waiting("Running", "Starting", "llama-server loads the model")
    return None


def _cannot_start(container: ContainerFacts, placed_s: float) -> Judgement:
    reason, message = container.waiting_reason or "", container.waiting_message
    pull = reason in _PULL
    if placed_s < GRACE_S and reason not in _HOPELESS:
        return Waiting("Pending", reason, f"container {container.name}: {message or reason}")
    if pull:
        cure = "check its name, the registry, and imagePullSecrets"
        return Blocked(
            "ImagePullFailed", f"container {container.name}: image {container.image} can't be had ({message}): {cure}"
        )
    cure = "check what it refers to: Secrets, ConfigMaps, the user that it runs as"
    return Blocked("CannotStart", f"container {container.name} can't be made ({message or reason}): {cure}")


def waiting_for_its_volumes(case: PodCase) -> Judgement:
    """Whatever comes before a container runs, init containers among it."""
    for container in case.pod.containers.values():
        if container.is_init and not container.is_sidecar and container.running_since is not None:
            return Waiting("Pending", "Initializing", f"init container {container.name} is at work")
    placed_s = _placed_s(case)
    missing = _last(case.events, "Pod", "FailedMount", "FailedAttachVolume")
    if missing is not None and placed_s >= GRACE_S:
        return Blocked("VolumeNotMounted", f"{missing.message}: make what the pod mounts, or take it off the template")
    if placed_s >= case.capacity_timeout_s:
        return Blocked("NotStarted", f"node {case.pod.node} has not started the pod for {placed_s / 60:.0f} min")
    said = missing.message if missing else f"node {case.pod.node} makes the pod: images, volumes, devices"
    return Waiting("Pending", "ContainerCreating", said)


def _placed_s(case: PodCase) -> float:
    """Seconds since a node was found."""
    scheduled = case.pod.conditions.get("PodScheduled")
    known = scheduled is not None and scheduled.is_true and scheduled.since
    return _since(known or case.pod.created_at, case.now)


def _last(events: Sequence[EventFacts], kind: str, *reasons: str) -> EventFacts | None:
    own = [event for event in events if event.kind == kind and event.reason in reasons]
    return max(own, key=lambda event: event.last_seen.timestamp() if event.last_seen else 0.0, default=None)


def _since(time: datetime | None, now: datetime) -> float:
    return 0.0 if time is None else max(0.0, (now - time).total_seconds())
