"""Can anybody reach it? A pod that is not ready gets no request, whatever else is well, and its status says why.

What ends and is started again has findings of its own; here is all else between a Deployment and its first answer: no
node, no image, a container that fails before or beside the server, a probe that asks the wrong thing, a server that
listens to its own pod alone or has stopped to answer.
"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source, shortened
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.before_serving import Obstacle, obstacle_before
from slotune.diagnose.rules.probes import (
    LISTEN_TO_ALL,
    FailedProbe,
    bound_to_loopback,
    cure_of_probe,
    failed_probes,
    has_timed_out,
)
from slotune.diagnose.symptoms import PodFacts, ServerLook, Symptoms
from slotune.diagnose.trouble import Role

__all__ = ["ENTRIES", "NOT_SERVING", "RULES"]

YOUNG_S: Final = 60.0
"""Seconds that a container may be without a probe that passed, and nothing is wrong: kubelet asks every ten."""
MADE_S: Final = 120.0
"""And that a pod may take until its containers run, where nothing is said against it."""
RECENT_S: Final = 600.0
"""An end within so many seconds is why a pod is not ready now; one before that no more."""
LOADING: Final = "still loading its model"
SILENT: Final = "takes connections and says nothing"
"""Words of a look (``ServerLook.refused``)."""
REFUSED: Final = "connection refused"
FROZEN: Final = (
    "Keep the end of its log, delete the pod, which kills the server after its grace period, and give it a liveness "
    "probe of /health: on a server that is well that answers at once, also under load."
)

NOT_SERVING: Final = Entry(
    id="SLT116",
    code="NotServing",
    item=Item.HEALTH,
    title="It gets no requests: its pod is not ready",
    cause="A Service sends requests to pods that are ready alone: each container runs, and each readiness probe "
    "passes. Until then a server may wait for a node, an image, a volume or an init container, or be well and asked at "
    "the wrong place.",
    first="Read what the finding quotes: it is what Kubernetes says is missing (kubectl describe pod has all of it).",
    avoid="Do not tune the server or add replicas: each new pod waits for the same thing.",
    verify="kubectl get pods shows all of its containers ready, and the Service has its address.",
)

ENTRIES: Final = (NOT_SERVING,)


def _not_serving(symptoms: Symptoms) -> Finding | Clear | Undecided:
    pod, server = symptoms.pod, symptoms.server
    if pod is None:
        if server is not None and _answers(server):
            return Clear("it answers")
        return Undecided("--url or --deployment: whether it answers, and whether its pod is ready")
    if pod.ready is True:
        return _ready(symptoms, pod)
    if pod.ready is None and pod.phase != "Pending":
        return Undecided("whether its pod is ready, which its status does not say")
    return _waiting(symptoms, pod)


def _waiting(symptoms: Symptoms, pod: PodFacts) -> Finding | Clear:
    """A pod that is not ready."""
    before = obstacle_before(pod)
    if before is not None and not (before.role is Role.SERVER and pod.last_exit is not None):
        return _found(before)
    if _ended(pod):
        return Clear("its pod is not ready because its container ended, which is a finding of its own")
    return _starting(pod) if pod.running_s is None and pod.phase is not None else _unready(symptoms, pod)


def _found(one: Obstacle) -> Finding:
    return Finding(
        NOT_SERVING,
        f"its pod is not ready: {one.sentence}",
        one.evidence,
        Severity.CRITICAL,
        first=one.cure,
    )


def _ended(pod: PodFacts) -> bool:
    """Whether an end of its container is why it is not ready."""
    if pod.last_exit is None and not pod.restarts:
        return False
    return pod.running_s is None or pod.last_exit_ago_s is None or pod.last_exit_ago_s < RECENT_S


def _starting(pod: PodFacts) -> Finding:
    """Its container has not run yet, and nothing is said against the pod."""
    age = "" if pod.age_s is None else f" for {pod.age_s:.0f} s"
    is_young = pod.age_s is not None and pod.age_s < MADE_S
    return Finding(
        NOT_SERVING,
        f"its pod is not ready{age}: the server's container was not started yet, and nothing says why",
        _all_said(pod),
        Severity.INFO if is_young else Severity.WARNING,
        Confidence.POSSIBLE,
        first="Look at kubectl describe pod: an init container that still works, or an image that is still pulled, "
        "only takes time.",
    )


def _unready(symptoms: Symptoms, pod: PodFacts) -> Finding:
    """Its container runs, and the pod is not ready."""
    server = symptoms.server
    if server is not None and _says(server, LOADING):
        return _passing(pod, "it is still loading its model", "Ask again when it has loaded it.")
    asked = next((probe for probe in failed_probes(pod) if probe.kind != "liveness"), None)
    if server is not None and _says(server, SILENT):
        return _critical(f"it {SILENT}", (_look(server), *(asked.evidence if asked else ())), FROZEN, Confidence.LIKELY)
    loopback = bound_to_loopback(symptoms)
    if loopback is not None and (asked is None or REFUSED in asked.why):
        words = "it listens to its own pod alone, so neither its probes nor its users reach it"
        return _critical(words, (loopback, *(asked.evidence if asked else ())), LISTEN_TO_ALL)
    return _unasked(pod) if asked is None else _asked(symptoms, pod, asked)


def _unasked(pod: PodFacts) -> Finding:
    """Nobody tells of a probe that failed."""
    if pod.running_s is not None and pod.running_s < YOUNG_S:
        words = f"its container was started {pod.running_s:.0f} s ago, and no probe has passed yet"
        return _passing(pod, words, "Ask again in a minute.")
    return _critical("its server runs, and nothing says why", _all_said(pod), None, Confidence.POSSIBLE)


def _asked(symptoms: Symptoms, pod: PodFacts, asked: FailedProbe) -> Finding:
    """A probe failed."""
    server = symptoms.server
    answers = server is not None and _answers(server)
    if "503" in asked.why and answers:
        return _passing(pod, "it has loaded its model, and its probe has yet to pass", "Ask again in a minute.")
    if REFUSED in asked.why and not answers and pod.running_s is not None and pod.running_s < YOUNG_S:
        words = f"its container was started {pod.running_s:.0f} s ago, and does not listen yet"
        return _passing(pod, words, "Ask again in a minute.")
    is_frozen = has_timed_out(asked.why) and server is not None and not answers
    words = asked.words + (", while the server answers" if answers else "")
    return _critical(words, asked.evidence, FROZEN if is_frozen else cure_of_probe(asked, symptoms))


def _critical(
    words: str, evidence: tuple[Evidence, ...], first: str | None, confidence: Confidence = Confidence.CERTAIN
) -> Finding:
    return Finding(NOT_SERVING, f"its pod is not ready: {words}", evidence, Severity.CRITICAL, confidence, first=first)


def _passing(pod: PodFacts, words: str, first: str) -> Finding:
    """What every start goes through."""
    since = () if pod.running_s is None else (Evidence(Source.POD, f"its container runs for {pod.running_s:.0f} s"),)
    evidence = since or (Evidence(Source.POD, f"ready {pod.ready}"),)
    return Finding(NOT_SERVING, f"its pod is not ready yet: {words}", evidence, Severity.INFO, first=first)


def _ready(symptoms: Symptoms, pod: PodFacts) -> Finding | Clear:
    """Kubernetes takes it for ready, and sends it requests: without a readiness probe a pod is ready when it runs."""
    server, loopback = symptoms.server, bound_to_loopback(symptoms)
    if server is not None and _says(server, SILENT):
        return Finding(
            NOT_SERVING,
            f"its pod counts as ready, and the server {SILENT}",
            (_look(server),),
            confidence=Confidence.LIKELY,
            first=FROZEN,
        )
    if server is not None and loopback is not None and _says(server, REFUSED) and pod.containers == 1:
        return Finding(
            NOT_SERVING,
            "its pod counts as ready, and the server listens to its own pod alone, so no Service reaches it",
            (loopback, _look(server)),
            Severity.CRITICAL,
            first=LISTEN_TO_ALL,
        )
    return Clear("its pod is ready", (Evidence(Source.POD, "ready True"),))


def _all_said(pod: PodFacts) -> tuple[Evidence, ...]:
    return (Evidence(Source.POD, f"phase {pod.phase}, ready {pod.ready}"), *pod.events[:3])


def _answers(server: ServerLook) -> bool:
    return server.health_s is not None or any((server.props, server.model, server.slots, server.metrics))


def _says(server: ServerLook, words: str) -> bool:
    return not _answers(server) and any(words in why for why in server.refused.values())


def _look(server: ServerLook) -> Evidence:
    path, why = next(iter(server.refused.items()))
    return Evidence(Source.POD, shortened(f"{path}: {why}"))


RULES: Final = (Rule(NOT_SERVING.id, Item.HEALTH, _not_serving),)
