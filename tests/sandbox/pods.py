"""Jobs and pods of a trial in the shapes that a real API server sends (Kubernetes 1.34), and ways to change them."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

Object = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def ago(seconds: float) -> str:
    """As Kubernetes writes a time."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: chat-0123456789
  namespace: models
  uid: job-uid
  creationTimestamp: "2026-03-01T11:50:00Z"
  labels: {slotune.dev/trial: chat-0123456789, kueue.x-k8s.io/queue-name: gpus}
spec: {backoffLimit: 0, suspend: false}
status:
  startTime: "2026-03-01T11:50:00Z"
  active: 1
  ready: 1
  terminating: 0
  uncountedTerminatedPods: {}
"""

_POD = """
apiVersion: v1
kind: Pod
metadata:
  name: chat-0123456789-x7k2p
  namespace: models
  uid: pod-uid
  creationTimestamp: "2026-03-01T11:50:00Z"
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: chat-0123456789, uid: job-uid, controller: true}]
spec:
  nodeName: gpu-1
  initContainers:
    - {name: fetch, image: "fetcher:1"}
    - {name: llama, image: "llama.cpp:server-cuda", restartPolicy: Always}
  containers:
    - {name: load-client, image: "slotune:1"}
status:
  phase: Running
  startTime: "2026-03-01T11:50:01Z"
  conditions:
    - {type: PodReadyToStartContainers, status: "True", lastTransitionTime: "2026-03-01T11:50:02Z"}
    - {type: Initialized, status: "True", lastTransitionTime: "2026-03-01T11:51:00Z"}
    - {type: PodScheduled, status: "True", lastTransitionTime: "2026-03-01T11:50:01Z"}
  initContainerStatuses:
    - name: fetch
      image: docker.io/library/fetcher:1
      imageID: docker.io/library/fetcher@sha256:aaaa
      ready: true
      restartCount: 0
      started: false
      state:
        terminated:
          exitCode: 0
          reason: Completed
          startedAt: "2026-03-01T11:50:05Z"
          finishedAt: "2026-03-01T11:50:30Z"
      lastState: {}
    - name: llama
      image: docker.io/library/llama.cpp:server-cuda
      imageID: docker.io/library/llama.cpp@sha256:bbbb
      ready: true
      restartCount: 0
      started: true
      state: {running: {startedAt: "2026-03-01T11:50:31Z"}}
      lastState: {}
  containerStatuses:
    - name: load-client
      image: docker.io/library/slotune:1
      imageID: docker.io/library/slotune@sha256:cccc
      ready: true
      restartCount: 0
      started: true
      state: {running: {startedAt: "2026-03-01T11:51:00Z"}}
      lastState: {}
"""


def job(**status: Any) -> Object:
    """A running Job; ``suspend`` and ``deleted`` go to their places, the rest into its status."""
    made: Object = yaml.safe_load(_JOB)
    made["spec"]["suspend"] = status.pop("suspend", False)
    if status.pop("deleted", False):
        made["metadata"]["deletionTimestamp"] = ago(1)
    made["status"] |= status
    return made


def failed_job(reason: str, message: str = "") -> Object:
    """A Job that gave up."""
    return job(
        active=0,
        failed=1,
        conditions=[
            {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": ago(5)}
            for kind in ("FailureTarget", "Failed")
        ],
    )


def pod(**changes: Any) -> Object:
    """A pod whose client measures; ``changes`` replace fields of its status, ``node=None`` takes it off its node."""
    made: Object = yaml.safe_load(_POD)
    if "node" in changes and changes.pop("node") is None:
        del made["spec"]["nodeName"]
    if changes.pop("deleted", False):
        made["metadata"]["deletionTimestamp"] = ago(1)
    for condition in changes.pop("conditions", ()):
        kept = [c for c in made["status"]["conditions"] if c["type"] != condition["type"]]
        made["status"]["conditions"] = [*kept, condition]
    made["status"] |= changes
    return made


def with_state(made: Object, name: str, state: Object, **more: Any) -> Object:
    """``made`` with another state of one container; ``more`` are fields of its status."""
    changed = copy.deepcopy(made)
    for status in [*changed["status"]["initContainerStatuses"], *changed["status"]["containerStatuses"]]:
        if status["name"] == name:
            status["state"] = state
            status["ready"] = status["started"] = "running" in state
            status.update(more)
    return changed


def waiting(reason: str, message: str = "") -> Object:
    """A container that does not run."""
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str = "", message: str = "", began: float = 89, finished: float = 9) -> Object:
    """A container that has ended ``finished`` seconds ago."""
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "message": message,
            "startedAt": ago(began),
            "finishedAt": ago(finished),
        }
    }


def crashing(code: int, reason: str = "Error", **more: Any) -> Object:
    """A pod whose server comes up again and again, before the client was started."""
    loop = waiting("CrashLoopBackOff", "back-off 10s restarting failed container=llama")
    made = with_state(
        pod(phase="Pending"), "llama", loop, restartCount=1, lastState=ended(code, reason, **more), started=False
    )
    return with_state(made, "load-client", waiting("PodInitializing"))


def event(kind: str, reason: str, message: str) -> Object:
    """As events.k8s.io/v1 has it."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "regarding": {"kind": kind, "name": "chat-0123456789"},
        "reason": reason,
        "note": message,
        "deprecatedLastTimestamp": ago(3),
    }
