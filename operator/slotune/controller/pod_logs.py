"""What pods say: their logs, as far as a judgement would read them, and the events about them."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.controller.cluster import Cluster, ForbiddenError
from slotune.controller.kinds import EVENT
from slotune.sandbox.judgement import LogRequest, Logs
from slotune.sandbox.pod_facts import EventFacts, PodFacts

__all__ = ["read_events", "read_logs"]

_GONE = "unable to retrieve container logs for "
"""What kubelet answers, as if it were the log, about an instance that its runtime has removed: the one before the last,
once a sidecar has ended twice."""


async def read_logs(cluster: Cluster, namespace: str, pod: str, wanted: Sequence[LogRequest]) -> Logs:
    """The logs of a pod. One that is gone, or of a container that never started, is left out."""
    found: dict[LogRequest, str] = {}
    for one in wanted:
        text = await cluster.logs(
            namespace,
            pod,
            one.container,
            previous=one.previous,
            limit_bytes=one.limit_bytes,
            tail_lines=one.tail_lines,
        )
        if text is not None and not text.startswith(_GONE):
            found[one] = text
    return found


async def read_events(cluster: Cluster, namespace: str, job: str, pod: PodFacts | None) -> tuple[EventFacts, ...]:
    """Why no pod was made of a Job, or why its containers don't start; nothing once they run."""
    if pod is not None and pod.phase != "Pending":
        return ()
    about = job if pod is None else pod.name
    try:
        found = await cluster.list(EVENT, namespace, fields=f"regarding.name={about}")
    except ForbiddenError:  # then the waiting takes its full time
        return ()
    return tuple(EventFacts.from_object(event) for event in found)
