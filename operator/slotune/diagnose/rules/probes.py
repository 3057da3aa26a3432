"""What kubelet says of probes that failed, and what to change: the probe, the server's address, or neither."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.rules.placement import shown, stated
from slotune.diagnose.symptoms import PodFacts, Symptoms

__all__ = [
    "LISTEN_TO_ALL",
    "FailedProbe",
    "bound_to_loopback",
    "cure_of_probe",
    "failed_probes",
    "has_timed_out",
    "probe_that_killed",
]

LISTEN_TO_ALL: Final = "Start it with --host 0.0.0.0: on 127.0.0.1 it takes connections from its own pod alone."

_SAID: Final = re.compile(
    r"Unhealthy(?: × \d+)?: (?P<kind>Readiness|Liveness|Startup) probe (?:failed|errored)"
    r"(?: and resulted in unknown state)?:? ?(?P<why>.*)"
)
"""kubelet's words about the server's own container; of another one its name stands before the colon."""
_KILLED: Final = re.compile(r"Killing(?: × \d+)?: Container \S+ failed (?P<kind>liveness|startup) probe")
_HOOK: Final = re.compile(r"(?:Killing(?: × \d+)?: )?FailedPostStartHook(?: × \d+)?\b:? ?(?P<why>.*)")
_STATUS: Final = re.compile(r"statuscode: (\d+)")
_ADDRESS: Final = re.compile(r"dial tcp \S+:(\d+): connect: connection refused")
_SLOW: Final = re.compile(r"deadline exceeded|[Tt]imeout|timed out")
_OF_KILLS: Final = frozenset({0, 137, 143})
"""Exit codes of a llama-server that kubelet stops: it ends by itself on SIGTERM, or is killed after a grace period."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class FailedProbe:
    """One probe of the server's container."""

    kind: str
    """``readiness``, ``liveness``, ``startup`` or ``postStart hook``."""
    why: str
    """kubelet's words; empty where only the kill was told."""
    evidence: tuple[Evidence, ...]

    @property
    def words(self) -> str:
        """``its liveness probe failed: HTTP probe failed with statuscode: 503``."""
        name = self.kind if " " in self.kind else f"{self.kind} probe"
        return f"its {name} failed: {self.why}".removesuffix(": ").rstrip(".")


def failed_probes(pod: PodFacts) -> tuple[FailedProbe, ...]:
    """The newest first."""
    found = [(match, one) for one in _events(pod) if (match := _SAID.match(one.text))]
    return tuple(FailedProbe(match["kind"].lower(), match["why"], (one,)) for match, one in found)


def probe_that_killed(symptoms: Symptoms) -> FailedProbe | None:
    """What kubelet killed the server for; None where it was nothing of the kind."""
    pod, log = symptoms.pod, symptoms.log
    reason, code = (pod.last_exit if pod is not None else None) or ("", -1)
    if pod is None or reason == "OOMKilled" or (not pod.restarts and pod.last_exit is None):
        return None
    said, is_explained = failed_probes(pod), log is not None and log.failure is not None
    if is_explained and code not in _OF_KILLS:
        return None
    for one in _events(pod):
        if match := _KILLED.match(one.text):
            same = next((probe for probe in said if probe.kind == match["kind"]), None)
            return FailedProbe(match["kind"], same.why if same else "", (*(same.evidence if same else ()), one))
        if match := _HOOK.match(one.text):
            return FailedProbe("postStart hook", match["why"], (one,))
    if is_explained or code not in _OF_KILLS:
        return None
    return next((probe for probe in said if probe.kind != "readiness"), None)


def has_timed_out(why: str) -> bool:
    """Whether nothing came in time."""
    return _SLOW.search(why) is not None


def cure_of_probe(probe: FailedProbe, symptoms: Symptoms) -> str:
    """What to try first, as a sentence."""
    name = probe.kind
    port = _port(symptoms)
    if name == "postStart hook":
        return "Correct the container's postStart hook, or take it away: kubelet kills the container when it fails."
    if status := _STATUS.search(probe.why):
        return _by_status(name, int(status[1]), port)
    if refused := _ADDRESS.search(probe.why):
        return _by_refusal(name, int(refused[1]), port, symptoms)
    if has_timed_out(probe.why):
        return (
            f"Look whether it still computes (--watch 60), for /health answers at once on a server that is well; raise "
            f"the {name} probe's timeoutSeconds only if its CPU limit starves it."
        )
    return _by_words(probe, port)


def _by_words(probe: FailedProbe, port: int | None) -> str:
    name = probe.kind
    if not probe.why:
        return _patience(name)
    if "HTTP response to HTTPS" in probe.why or "malformed HTTP" in probe.why:
        return f"Correct the scheme of the {name} probe: the server speaks the other one of HTTP and HTTPS."
    return (
        f"Run the {name} probe's command in the container (kubectl exec), or replace it by an httpGet of /health at "
        f"port {port or 8080}."
    )


def _by_refusal(name: str, asked: int, port: int | None, symptoms: Symptoms) -> str:
    if port and asked != port:
        return f"Let the {name} probe ask port {port}, where the server listens: it asks port {asked}."
    if bound_to_loopback(symptoms) is not None:
        return LISTEN_TO_ALL
    if name == "readiness":
        return (
            "Compare the probe's port with --port, and --host with 0.0.0.0: nothing listens there for the pod's "
            "address. A server that still fetches its weights listens nowhere either."
        )
    return _patience(name)


def _by_status(name: str, status: int, port: int | None) -> str:
    if status == 503:
        if name == "readiness":
            return "Wait: /health answers 503 until the weights are loaded."
        return _patience(name)
    if status in {401, 403}:
        return f"Let the {name} probe ask /health, which wants no API key."
    return (
        f"Let the {name} probe ask /health at port {port or 8080} (behind --api-prefix, where that is set): what it "
        f"asks now answers {status}."
    )


def _patience(name: str) -> str:
    longer = "its failureThreshold × periodSeconds" if name == "startup" else "a startupProbe of /health"
    verb = "Raise" if name == "startup" else "Add"
    return (
        f"{verb} {longer}, so that it has longer than loading the weights takes: until then /health answers 503 or not "
        "at all."
    )


def bound_to_loopback(symptoms: Symptoms) -> Evidence | None:
    """The argument by which it takes connections from its own pod alone."""
    setting = stated(symptoms).get("--host")
    return shown(setting) if setting is not None and setting.values[:1] and setting.values[0] in _LOOPBACK else None


def _port(symptoms: Symptoms) -> int | None:
    """Where the server listens, as far as it is known: by its arguments, else by where it was asked."""
    setting = stated(symptoms).get("--port")
    if setting is not None and setting.values and setting.values[0].isdecimal():
        return int(setting.values[0])
    match = None if symptoms.server is None else re.search(r":(\d+)(?:/|$)", symptoms.server.url)
    return None if match is None else int(match[1])


def _events(pod: PodFacts) -> tuple[Evidence, ...]:
    return tuple(one for one in pod.events if one.source is Source.EVENT)
