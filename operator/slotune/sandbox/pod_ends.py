"""How a pod of the sandbox ends without having done its work, when its own containers are not to blame."""

from __future__ import annotations

import re
from typing import Final

from slotune.sandbox.judgement import Blocked, Judgement, Retry, Waiting
from slotune.sandbox.pod_case import PodCase, init_log

__all__ = [
    "LINE",
    "LOST",
    "deleted",
    "disrupted",
    "held_back",
    "init_container_failed",
    "job_failed",
    "last_line",
    "quoted",
    "refused_by_its_node",
]

LINE: Final = 300
"""Characters of a log that a sentence repeats."""

LOST: Final = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Reasons of a container that nobody saw end: the node, or its container runtime, was started again."""


def held_back(case: PodCase) -> Judgement | None:
    """Whoever suspends a Job ends its pod: that is the queue's doing, however the pod ends."""
    job, pod = case.job, case.pod
    if job.deleting:
        return None
    if job.suspended:
        return Waiting("Queued", "Suspended", "stopped by the queue; it starts again when its turn comes")
    if pod.deleting and job.started_at is not None and pod.created_at is not None and pod.created_at < job.started_at:
        return Waiting("Pending", "NoPod", "its turn has come; the pod of before goes first")
    return None


def disrupted(case: PodCase) -> Judgement | None:
    """Somebody else wanted the node or the pod."""
    pod, job = case.pod, case.job
    if target := pod.condition("DisruptionTarget"):
        return Retry("Disrupted", f"the pod was stopped by the cluster ({target.reason}): {target.message}")
    if any(c.ended and c.ended.reason in LOST for c in pod.containers.values()):
        return Retry("NodeLost", f"node {pod.node} lost the pod's containers")
    if job.failure is not None and job.failure.reason == "PodFailurePolicy":
        return Retry("Disrupted", f"the pod was stopped by the cluster: {job.failure.message}")
    return None


def refused_by_its_node(case: PodCase) -> Judgement | None:
    """Kubelet ended the pod, or never took it."""
    pod = case.pod
    if not pod.over or pod.reason in ("", "DeadlineExceeded"):
        return None
    if pod.reason == "Evicted":
        # Kubelet marks pressure of the whole node as a disruption (above); what is left is the pod's own use.
        return Blocked(
            "StorageExceeded",
            f"kubelet evicted the pod: {pod.message}: raise the limit (sizeLimit, ephemeral-storage) in the template",
        )
    return Retry("NodeRefused", f"node {pod.node} did not run the pod ({pod.reason}): {pod.message}")


def deleted(case: PodCase) -> Judgement | None:
    """Somebody deleted what was running."""
    if not (case.job.deleting or case.pod.deleting):
        return None
    return Retry("Deleted", "the trial's Job or pod was deleted while it ran")


def init_container_failed(case: PodCase) -> Judgement | None:
    """What the user's pod does first did not work: no model, no candidate to blame."""
    for container in case.pod.containers.values():
        if not container.is_init or container.is_sidecar or container.ended is None or not container.ended.exit_code:
            continue
        how = f"exit code {container.ended.exit_code}"
        if container.ended.reason not in ("", "Error"):
            how += f", {container.ended.reason}"
        said = last_line(case.logs.get(init_log(container.name), ""))
        cure = "see its log"
        if "ead-only file system" in said:
            cure = "volumes are read-only in a trial: let it skip the fetch when the file is there, or fill an emptyDir"
        elif re.search(r"resolve|timed? ?out|unreachable|connect", said, re.IGNORECASE):
            cure = "a trial reaches nothing unless sandbox.egress is HTTPS"
        return Blocked("InitContainerFailed", f"init container {container.name} failed ({how}){quoted(said)}: {cure}")
    return None


def job_failed(case: PodCase) -> Judgement | None:
    """The Job gave up for a reason that its pod does not show."""
    failure = case.job.failure
    if failure is None or not (case.pod.over or failure.reason == "DeadlineExceeded"):
        return None
    return Retry(failure.reason or "JobFailed", f"the trial's Job failed without a result: {failure.message}")


def last_line(log: str) -> str:
    """The last line that says something, without what may be a secret in an address."""
    said = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    return re.sub(r"(\w+://)[^\s/@]+@|\?[^\s'\"]*|\bhf_\w+", lambda found: found[1] or "", said)[:LINE]


def quoted(said: str) -> str:
    return f": {said}" if said else ""
