"""The pods of a Deployment: all that may be at work on an answer, and the newest ones that take requests.

Which of its ReplicaSets is the present one takes no right to read ReplicaSets: its pods carry the present template's
mark, and were made last. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from slotune.controller.listening import Listening
from slotune.rollout.facts import CANDIDATE_ANNOTATION

__all__ = ["TEMPLATE_HASH", "ServingPod", "labels_to_ask", "newest_pods", "pods_of"]

JSON = Mapping[str, Any]

TEMPLATE_HASH: Final = "pod-template-hash"
"""Label that the Deployment's controller puts on the pods of one ReplicaSet."""


@dataclass(frozen=True, slots=True)
class ServingPod:
    """A pod as the API server last saw it."""

    name: str
    address: str | None
    """IP address; None while it has none."""
    is_running: bool
    """Whether a server may be at work in it: a container runs, and nobody has told the pod to end."""
    is_ready: bool
    """Whether it gets requests."""
    template_hash: str | None
    candidate: str | None
    """Hash of the candidate that it was made with; None when nobody rolled one out."""
    created_at: str

    @classmethod
    def from_object(cls, pod: JSON) -> ServingPod:
        """Facts of a raw Pod."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        lives = status.get("phase") == "Running" and not metadata.get("deletionTimestamp")
        conditions = status.get("conditions") or ()
        return cls(
            name=str(metadata["name"]),
            address=status.get("podIP") or None,
            is_running=lives and _any_container_runs(status),
            is_ready=lives and any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions),
            template_hash=(metadata.get("labels") or {}).get(TEMPLATE_HASH),
            candidate=(metadata.get("annotations") or {}).get(CANDIDATE_ANNOTATION),
            created_at=str(metadata.get("creationTimestamp") or ""),
        )

    def url(self, listening: Listening) -> str:
        """Where its server answers. The pod must have an address."""
        assert self.address is not None
        return listening.url(f"[{self.address}]" if ipaddress.ip_address(self.address).version == 6 else self.address)


def labels_to_ask(deployment: JSON) -> str:
    """The part of a Deployment's selector that a list request states."""
    labels = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def pods_of(deployment: JSON, pods: Iterable[JSON]) -> tuple[ServingPod, ...]:
    """Those of ``pods`` that the whole selector means, by name."""
    selector = deployment["spec"].get("selector") or {}
    meant = [pod for pod in pods if _is_meant(selector, (pod["metadata"].get("labels") or {}))]
    return tuple(sorted((ServingPod.from_object(pod) for pod in meant), key=lambda pod: pod.name))


def newest_pods(deployment: JSON, pods: Iterable[ServingPod]) -> tuple[ServingPod, ...]:
    """The pods of the present template, by name; those that do not take requests among them.

    A pod that carries another candidate than the template is an old one. Of the others the ReplicaSet counts that made
    the last pod.
    """
    annotations = (deployment["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    marked = [pod for pod in pods if pod.candidate == annotations.get(CANDIDATE_ANNOTATION)]
    if not marked:
        return ()
    last = max(marked, key=lambda pod: (pod.created_at, pod.template_hash or ""))
    return tuple(pod for pod in marked if pod.template_hash == last.template_hash)


def _any_container_runs(status: JSON) -> bool:
    """Where every container has ended or waits to start anew there is no answer to cut off."""
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    return not states or any("running" in state for state in states)


def _is_meant(selector: JSON, labels: Mapping[str, str]) -> bool:
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_fits(one, labels) for one in selector.get("matchExpressions") or ())


def _fits(expression: JSON, labels: Mapping[str, str]) -> bool:
    """See LabelSelectorRequirement of apimachinery: a label that is absent is not in any list."""
    key, values = expression.get("key"), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(str(key)) in values
        case "NotIn":
            return labels.get(str(key)) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return True
