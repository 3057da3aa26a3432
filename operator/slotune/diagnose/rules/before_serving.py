"""What stands between a pod and its server's first breath, as its status and its events say it, each with its cure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from slotune.diagnose.evidence import Evidence, Source, shortened
from slotune.diagnose.symptoms import PodFacts
from slotune.diagnose.trouble import Role, Trouble

__all__ = ["CORRECT_COMMAND", "Obstacle", "obstacle_before"]

LATE_S: Final = 60.0
"""A volume that was not mounted at the first try often is at the second."""

_IMAGE: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
    | {"RegistryUnavailable", "SignatureValidationFailed"}
)
_CONFIG: Final = frozenset({"CreateContainerConfigError"})
_CREATE: Final = frozenset({"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"})
_MOUNT: Final = re.compile(r"(?:FailedMount|FailedAttachVolume|FailedMapVolume)(?: × \d+)?: ")
_SANDBOX: Final = re.compile(r"FailedCreatePodSandBox(?: × \d+)?: ")
_LACKS: Final = re.compile(r"Insufficient ([\w./-]+\w)")
_CLAIM: Final = re.compile(
    r"persistentvolumeclaim|PersistentVolumeClaim|volume node affinity|bound to persistent volume"
)
_GPU: Final = re.compile(r"gpu|/mig-|neuron|tpu|npu", re.IGNORECASE)

_OF_IMAGE: Final = (
    "Correct the image's name and tag, or give the pod what the registry wants (imagePullSecrets): kubectl describe "
    "pod has the registry's own words."
)
_OF_CONFIG: Final = (
    "Make the Secret or ConfigMap, or the key in it, that the message names, in the pod's namespace; or take the "
    "variable that wants it out of the container."
)
CORRECT_COMMAND: Final = (
    "Correct the container's command: what it names is not in the image, or is no program that runs there. Without a "
    "command the image starts its own."
)
_OF_CLAIM: Final = (
    "Make the PersistentVolumeClaim that the message names, or correct the name in the pod's volumes; if it is there, "
    "see why it is not bound (kubectl describe pvc)."
)
_OF_MOUNT: Final = (
    "Make what the message names, or correct its name in the pod's volumes: a Secret, a ConfigMap, a claim, or a path "
    "on the server of the share."
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that somebody has to put right."""

    sentence: str
    evidence: tuple[Evidence, ...]
    cure: str
    role: Role


def obstacle_before(pod: PodFacts) -> Obstacle | None:
    """The first of them; None where the pod's status and events name none."""
    for one in pod.troubles:
        cure = _cure(one, pod)
        if cure is not None:
            return Obstacle(_sentence(one), _quoted(one, pod), cure, one.role)
    if pod.running_s is not None:
        return None
    for pattern, cure in ((_MOUNT, _OF_MOUNT), (_SANDBOX, "Look at the node: it cannot make the pod's sandbox.")):
        event = next((one for one in pod.events if one.source is Source.EVENT and pattern.match(one.text)), None)
        if event is not None and (pod.age_s is None or pod.age_s > LATE_S):
            return Obstacle(pattern.sub("", event.text, count=1).rstrip("."), (event,), cure, Role.POD)
    return None


def _sentence(one: Trouble) -> str:
    whose = {Role.POD: "", Role.SERVER: "its own container: "}.get(one.role, f"{one.role.value} {one.container}: ")
    return shortened(f"{whose}{one.reason}: {one.message}".removesuffix(": ").rstrip("."))


def _quoted(one: Trouble, pod: PodFacts) -> tuple[Evidence, ...]:
    """Its status and, where they add to it, the newest events."""
    own = tuple(
        said
        for said in pod.events
        if said.source is Source.POD and one.reason in said.text and one.container in said.text
    )
    events = tuple(said for said in pod.events if said.source is Source.EVENT)
    return (*own[:1], *events[:3]) or (Evidence(Source.POD, _sentence(one)),)


def _cure(one: Trouble, pod: PodFacts) -> str | None:
    """None: not of this kind."""
    if one.role is Role.POD:
        return _of_pod(one)
    for reasons, cure in ((_IMAGE, _OF_IMAGE), (_CONFIG, _OF_CONFIG), (_CREATE, CORRECT_COMMAND)):
        if one.reason in reasons:
            return cure
    return None if one.role is Role.SERVER else _of_another(one, pod)


def _of_another(one: Trouble, pod: PodFacts) -> str:
    """Of a container before or beside the server."""
    log = f"kubectl logs {pod.name} -c {one.container}"
    if one.reason == "not ready":
        return f"See why container {one.container} is not ready ({log}): requests come only when all of them are."
    previous = " --previous" if one.reason == "CrashLoopBackOff" else ""
    is_before = one.role is Role.INIT
    waits = "the server is started after it" if is_before else "requests come only when all of them are ready"
    return f"Read what {one.role.value} {one.container} said last ({log}{previous}): {waits}."


_BY_REASON: Final = {
    "SchedulingGated": "Wait for, or ask, whoever set its scheduling gates: a queue such as Kueue lets it in when it "
    "is its turn.",
    "ReadinessGatesNotReady": "See who has to set the condition that its readiness gate names, such as a load "
    "balancer's controller.",
}
_BY_WORDS: Final = (
    (_CLAIM, _OF_CLAIM),
    (_LACKS, ""),
    (re.compile("taint"), "Give the pod a toleration of the taint that the message names, or add a node without it."),
    (
        re.compile("affinity|selector"),
        "Correct the pod's nodeSelector or affinity: no node has the labels that it asks for.",
    ),
    (re.compile(""), "Read the scheduler's words: each says what a node lacks for this pod."),
)
"""Of a scheduler's message to what helps; empty: it depends on what is lacking."""


def _of_pod(one: Trouble) -> str:
    if one.reason != "Unschedulable":
        return _BY_REASON.get(one.reason, "Read what is said of it: kubectl describe pod.")
    cure = next(cure for pattern, cure in _BY_WORDS if pattern.search(one.message))
    return cure or _of_lack(list(dict.fromkeys(_LACKS.findall(one.message))))


def _of_lack(lacking: list[str]) -> str:
    """No node has as much to give."""
    if gpu := next((name for name in lacking if _GPU.search(name)), None):
        return (
            f"Free a {gpu}, or add a node that has one: kubectl describe nodes shows how many each has (Allocatable) "
            "and how many are taken. A node that shows none lacks the vendor's device plugin."
        )
    return f"Lower the pod's requests of {' and '.join(lacking)}, or add a node that has as much to give."
