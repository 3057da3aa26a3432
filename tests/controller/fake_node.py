"""What a cluster does with our Jobs and Deployments, at a time that a test decides: pods start, speak, end.

A Job's pod is a function of the Job's age and of what the test has in store for it, so looking twice changes nothing.
Results come from a world of :mod:`tests.search.worlds`, and travel over the pod's log and termination message as they
do from a real load client.
"""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from slotune.api.labels import LOAD_CLIENT, SURVEY_LABEL
from slotune.api.v1alpha1.trial import LlamaTrialSpec
from slotune.controller.cluster import Object
from slotune.controller.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, JOB, POD, SECRET
from slotune.llama.failures import FailureClass
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.quality.coarse import Likeliest
from slotune.quality.reference import Reference, Walk
from slotune.sandbox.job import TRIAL_SPEC_ANNOTATION
from slotune.sandbox.outcomes import invalid
from slotune.sandbox.protocol import Progress
from slotune.sandbox.report_stream import progress_line, record_frames, reference_frames, result_frames, summary_of
from slotune.sandbox.survey_report import SurveyError, survey_frames
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.trial_objects import trial_of
from tests.controller.fake_cluster import FakeCluster

LOGS = Path(__file__).parent.parent / "llama" / "logs"
FAILED_LOG = {
    FailureClass.OUT_OF_MEMORY_KV: "kv_too_big.log",
    FailureClass.OUT_OF_MEMORY_WEIGHTS: "weights_too_big.log",
    FailureClass.OUT_OF_MEMORY_COMPUTE: "compute_too_big.log",
}
BAD_FLAG_LOG = "error: invalid argument: --no-such-flag\n"
RECORD = gzip.compress(b'{"run": 1}\n', mtime=0)

SERVER_STARTS_S, CLIENT_STARTS_S = 1.0, 2.0


def tiny_model(name: str) -> ModelFacts:
    """A model whose cache is small enough for any test's memory."""
    return ModelFacts(
        path=f"/models/{name}.gguf",
        file_bytes=2_000_000,
        identity=f"identity-of-{name}",
        architecture="llama",
        quantization=name,
        context_length=8192,
        vocabulary=512,
        embedding=256,
        heads=4,
        layers=(LayerCache(256, 256),) * 2,
        weights_bytes=2_000_000,
        active_weights_bytes=2_000_000,
        bits_per_weight=16.0,
    )


def tiny_reference(token: int) -> Reference:
    """One step of one prompt."""
    likeliest = Likeliest((token, 1), (-0.5, -1.5))
    return Reference((Walk((1, 2, 3), (token,), (likeliest,)),), top=2, vocabulary=512, tokenizer="t")


@dataclass
class FakeNode:
    """Jobs and Deployments of a :class:`FakeCluster`, brought forward by :meth:`tick`."""

    cluster: FakeCluster
    measure: Callable[[Trial], TrialResult]
    files: dict[str, ModelFacts | None] = field(default_factory=dict)
    """Weights files by path; None is a file that is there and no model."""
    fate: Callable[[Trial, int], str] = lambda _trial, _number: "measured"
    """What becomes of the so manyth pod (from 1) of a trial: measured, disrupted, image pull, unschedulable."""
    survey_fate: str = "measured"
    """As of a trial, or server image pull: only llama-server's own image can't be had."""
    build: int = 11549
    """What llama-server says of itself."""
    image_id: str = ""
    """Of llama-server's image, as kubelet names it; empty: it says none."""
    recorded: Reference = field(default_factory=lambda: tiny_reference(4))
    """What a trial of the reference records."""
    refused: str = ""
    """Why the API server takes no pod of a Job; empty: it takes them."""
    deploys_s: float = 20.0
    sick: Callable[[Object], bool] = lambda _template: False
    """Whether pods of this template never answer."""
    unwell: int = 0
    """Pods of each Deployment that just don't answer."""
    trouble: str = ""
    """Why the pods of a Deployment can't be made; empty: they can."""
    pods_of: Counter[str] = field(default_factory=Counter)
    """Pods made, by trial."""
    measured: list[Trial] = field(default_factory=list)
    """Trials of which a load client came to its end, each as often as it did."""
    nodes: int = 1
    """Each takes one trial at a time, as the anti-affinity of trials asks."""
    most_at_once: int = 0
    most_placed_at_once: int = 0
    """Of the trials that had a node."""
    _results: dict[str, TrialResult] = field(default_factory=dict)
    _since: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    _placed: dict[str, datetime] = field(default_factory=dict)
    """When the pod of a trial's Job got the node, by the Job's uid."""

    def tick(self) -> None:
        """Everything that has happened by now."""
        for job in self.cluster.all_of(JOB):
            self._bring_forward(job)
        alive = [pod for pod in self.cluster.all_of(POD) if pod["status"]["phase"] in {"Pending", "Running"}]
        trials = [pod for pod in alive if "slotune.dev/trial" in pod["metadata"]["labels"]]
        self.most_at_once = max(self.most_at_once, len(trials))
        self.most_placed_at_once = max(self.most_placed_at_once, sum(self._is_placed(pod) for pod in trials))
        for deployment in self.cluster.all_of(DEPLOYMENT):
            self._deploy(deployment)

    def next_event(self) -> datetime | None:
        """When something happens next by itself."""
        now = self.cluster.now()
        moments: list[datetime] = []
        for job in self.cluster.all_of(JOB):
            made = self._placed.get(job["metadata"]["uid"]) or _time(job["metadata"]["creationTimestamp"])
            moments += [made + timedelta(seconds=age) for age in self._ages(job)]
        moments += [since + timedelta(seconds=self.deploys_s) for _, since in self._since.values()]
        return min((moment for moment in moments if moment > now), default=None)

    # ------------------------------------------------------------------ jobs

    def _ages(self, job: Object) -> Iterable[float]:
        yield from (SERVER_STARTS_S, CLIENT_STARTS_S)
        spec = _trial_spec(job)
        yield CLIENT_STARTS_S + 1 if spec is None else SERVER_STARTS_S + self._result(job, trial_of(spec)).gpu_seconds

    def _result(self, job: Object, trial: Trial) -> TrialResult:
        uid = job["metadata"]["uid"]
        if uid not in self._results:
            result = self._answered(job, self.measure(trial))
            self._results[uid] = replace(result, gpu_seconds=float(max(2, round(result.gpu_seconds))))
        return self._results[uid]

    def _answered(self, job: Object, result: TrialResult) -> TrialResult:
        """A look at answers is one at what the pod has mounted."""
        if result.reference:
            return replace(result, reference=self.recorded.digest)
        if result.quality is None:
            return result
        mounted = self._mounted_reference(job)
        if mounted is None:
            return invalid(replace(result, quality=None), "ReferenceMissing", "nothing was compared")
        digest = Reference.from_bytes(mounted).digest
        return replace(result, quality=replace(result.quality, reference_digest=digest), reference=digest)

    def _mounted_reference(self, job: Object) -> bytes | None:
        sources = job["spec"]["template"]["spec"]["volumes"][-1]["projected"]["sources"]
        for kind, word, data in ((CONFIG_MAP, "configMap", "binaryData"), (SECRET, "secret", "data")):
            for one in sources:
                if one.get(word, {}).get("optional"):
                    kept = self.cluster.find(kind, job["metadata"]["namespace"], one[word]["name"])
                    return None if kept is None else base64.b64decode(kept[data]["reference"])
        return None

    def _bring_forward(self, job: Object) -> None:
        if any(one["type"] in {"Complete", "Failed"} for one in (job.get("status") or {}).get("conditions") or ()):
            return
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        pod_name = f"{name}-{job['metadata']['uid']}"
        if job["spec"].get("suspend"):
            return
        if ("Pod", namespace, pod_name) not in self.cluster.objects:
            if self.refused:
                self._refuse_pod(namespace, name)
                return
            self.pods_of[name] += 1
            self.cluster.put(_pod(job, pod_name), "kubelet")
            stamp = _stamp(self.cluster.now())
            self.cluster.change(JOB, namespace, name, status={"active": 1, "startTime": stamp})
        made = _time(job["metadata"]["creationTimestamp"])
        age = (self.cluster.now() - made).total_seconds()
        if SURVEY_LABEL in job["metadata"]["labels"]:
            self._survey(job, pod_name, made, age)
        elif self._takes(job, pod_name, age):
            made = self._placed[job["metadata"]["uid"]]
            self._trial(job, pod_name, made, (self.cluster.now() - made).total_seconds())

    def _takes(self, job: Object, pod: str, age: float) -> bool:
        """Whether the trial's pod has a node."""
        uid = job["metadata"]["uid"]
        if uid in self._placed:
            return True
        spec = _trial_spec(job)
        assert spec is not None
        fate = self.fate(trial_of(spec), self.pods_of[job["metadata"]["name"]])
        alive = [pod for pod in self.cluster.all_of(POD) if pod["status"]["phase"] in {"Pending", "Running"}]
        taken = sum(self._is_placed(pod) for pod in alive) >= self.nodes
        if self._stuck(job, pod, "unschedulable" if taken and fate != "image pull" else fate, age):
            return False
        self._placed[uid] = self.cluster.now()
        return True

    def _is_placed(self, pod: Object) -> bool:
        return any(owner["uid"] in self._placed for owner in pod["metadata"]["ownerReferences"])

    def _refuse_pod(self, namespace: str, job: str) -> None:
        self.cluster.put(
            {
                "apiVersion": EVENT.api_version,
                "kind": "Event",
                "metadata": {"name": f"{job}.1", "namespace": namespace},
                "reason": "FailedCreate",
                "note": self.refused,
                "regarding": {"kind": "Job", "name": job},
            }
        )

    def _survey(self, job: Object, pod: str, made: datetime, age: float) -> None:
        namespace = job["metadata"]["namespace"]
        if self.survey_fate == "disrupted":
            target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "x"}
            self._pod_is(job, pod, "Failed", conditions=(target,))
            self._job_is(job, "Failed", "PodFailurePolicy")
            return
        if self._stuck(job, pod, self.survey_fate, age) or age < CLIENT_STARTS_S:
            return
        survey = job["spec"]["template"]["spec"]["containers"][0]
        wanted = dict(word.split("=", 1) for word in survey["args"] if "=" in word)
        found = {name: self._looked_at(path) for name, path in wanted.items()}
        self.cluster.container_logs[namespace, pod, "survey", False] = _text(survey_frames(found))
        at = made + timedelta(seconds=CLIENT_STARTS_S)
        if self.survey_fate == "server image pull":
            waiting = {"name": "version", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
            self._pod_is(job, pod, "Running", containerStatuses=[_ended("survey", 0, at, at), waiting])
            return
        self.cluster.container_logs[namespace, pod, "version", False] = f"version: {self.build} (abc1234)\n"
        ended = [_ended(name, 0, at, at) for name in ("survey", "version")]
        self._pod_is(job, pod, "Succeeded", containerStatuses=ended)
        self._job_is(job, "Complete", "CompletionsReached")

    def _looked_at(self, path: str) -> ModelFacts | SurveyError:
        if path not in self.files:
            return SurveyError(
                "NotFound", path, f"there is no such file; beside it lie {', '.join(sorted(self.files))}"
            )
        found = self.files[path]
        return found or SurveyError("Unreadable", path, "it is no GGUF file: fetch it again")

    def _trial(self, job: Object, pod: str, made: datetime, age: float) -> None:
        spec = _trial_spec(job)
        assert spec is not None
        asked = trial_of(spec)
        fate = self.fate(asked, self.pods_of[job["metadata"]["name"]])
        if self._stuck(job, pod, fate, age) or age < SERVER_STARTS_S:
            return
        namespace = job["metadata"]["namespace"]
        (server,) = [
            one["name"] for one in job["spec"]["template"]["spec"]["initContainers"] if one.get("restartPolicy")
        ]
        result = self._result(job, asked)
        began = made + timedelta(seconds=SERVER_STARTS_S)
        if result.failure is not None:
            self._server_fails(job, pod, server, result.failure, began)
            return
        self.cluster.container_logs[namespace, pod, server, False] = server_log(asked)
        up = _running(server, began) | {"started": True}
        if age < SERVER_STARTS_S + result.gpu_seconds:
            self._says(job, pod, progress_line(Progress("measuring", 1, 2, int(age), 100)).decode())
            client = _running(LOAD_CLIENT, made + timedelta(seconds=CLIENT_STARTS_S))
            self._pod_is(job, pod, "Running", initContainerStatuses=[up], containerStatuses=[client])
            return
        if fate == "disrupted":
            target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "x"}
            self._pod_is(job, pod, "Failed", initContainerStatuses=[up], conditions=(target,))
            self._job_is(job, "Failed", "PodFailurePolicy")
            return
        ended_at = began + timedelta(seconds=result.gpu_seconds)
        kept = record_frames(RECORD) if asked.purpose.puts_load else ()
        if asked.purpose is Purpose.REFERENCE and result.passed:
            kept = reference_frames(self.recorded.to_bytes())
        said = _text([*kept, *result_frames(result)])
        self._says(job, pod, said)
        message = summary_of(result).decode()
        client = _ended(LOAD_CLIENT, 0, began, ended_at, message)
        down = _ended(server, 143, began, ended_at)
        self.measured.append(asked)
        self._pod_is(job, pod, "Succeeded", initContainerStatuses=[down], containerStatuses=[client])
        self._job_is(job, "Complete", "CompletionsReached")

    def _server_fails(self, job: Object, pod: str, server: str, failure: FailureClass, began: datetime) -> None:
        namespace = job["metadata"]["namespace"]
        file = FAILED_LOG.get(failure)
        text = BAD_FLAG_LOG if file is None else (LOGS / file).read_text()
        self.cluster.container_logs[namespace, pod, server, True] = text
        exit_ = {"exitCode": 1, "reason": "Error", "startedAt": _stamp(began), "finishedAt": _stamp(began)}
        status = {
            "name": server,
            "restartCount": 1,
            "lastState": {"terminated": exit_},
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }
        self._pod_is(job, pod, "Pending", initContainerStatuses=[status])

    def _stuck(self, job: Object, pod: str, fate: str, age: float) -> bool:
        """Whether the pod never starts; then its status says why."""
        if fate == "unschedulable":
            why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no GPU"}
            self.cluster.change(
                POD, job["metadata"]["namespace"], pod, spec={"nodeName": None}, status={"conditions": [why]}
            )
            return True
        if fate == "image pull":
            name = job["spec"]["template"]["spec"]["containers"][0]["name"]
            waiting = {"name": name, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
            self._pod_is(job, pod, "Pending", containerStatuses=[waiting])
            return True
        return False

    def _says(self, job: Object, pod: str, text: str) -> None:
        self.cluster.container_logs[job["metadata"]["namespace"], pod, LOAD_CLIENT, False] = text

    def _pod_is(self, job: Object, pod: str, phase: str, *, conditions: tuple[Object, ...] = (), **more: Any) -> None:
        uid, made = job["metadata"]["uid"], job["metadata"]["creationTimestamp"]
        made = _stamp(self._placed[uid]) if uid in self._placed else made
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": made}
        for one in [status for statuses in more.values() for status in statuses] if self.image_id else []:
            one["imageID"] = self.image_id
        status = {"phase": phase, "startTime": made, "conditions": [placed, *conditions], **more}
        spec = {"nodeName": "node-1"}
        self.cluster.change(POD, job["metadata"]["namespace"], pod, spec=spec, status=status)

    def _job_is(self, job: Object, kind: str, reason: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason, "message": reason}
        count = {"succeeded": 1} if kind == "Complete" else {"failed": 1}
        self.cluster.change(
            JOB,
            job["metadata"]["namespace"],
            job["metadata"]["name"],
            status={"active": None, "conditions": [condition], **count},
        )

    # ------------------------------------------------------------------ deployments

    def _deploy(self, deployment: Object) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        now, uid, generation = self.cluster.now(), metadata["uid"], metadata["generation"]
        if self._since.get(uid, (0, now))[0] != generation:
            self._since[uid] = (generation, now)
        since, wanted = self._since[uid][1], spec.get("replicas", 1)
        answers = (now - since).total_seconds() >= self.deploys_s and not self.sick(spec["template"])
        late = (now - since).total_seconds() >= spec.get("progressDeadlineSeconds", 600) and not answers
        progressing = {"type": "Progressing", "reason": "ProgressDeadlineExceeded" if late else "ReplicaSetUpdated"}
        available = max(0, wanted - self.unwell) if answers else 0
        failure = [{"type": "ReplicaFailure", "status": "True", "message": self.trouble}] if self.trouble else []
        status = {
            "observedGeneration": generation,
            "replicas": wanted,
            "updatedReplicas": wanted,
            "availableReplicas": available,
            "unavailableReplicas": wanted - available,
            "conditions": [progressing, *failure],
        }
        self.cluster.change(DEPLOYMENT, metadata["namespace"], metadata["name"], status=status)


def server_log(trial: Trial) -> str:
    """How llama-server says that it came up as it was asked to."""
    candidate = trial.candidate
    unified = "true" if candidate.kv_unified else "false"
    return (
        "0.00.002.546 I srv          init: build_info: b11549-abc1234\n"
        f"0.00.462.826 I srv    load_model: initializing, n_slots = {candidate.parallel_slots}, "
        f"n_ctx_slot = {candidate.context_per_slot}, kv_unified = '{unified}'\n"
        "0.00.470.000 I srv          init: model loaded\n"
    )


def _pod(job: Object, name: str) -> Object:
    template, metadata = job["spec"]["template"], job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": template["metadata"]["labels"],
            "ownerReferences": [owner],
        },
        "spec": {**template["spec"], "nodeName": "node-1"},
        "status": {"phase": "Pending"},
    }


def _trial_spec(job: Object) -> LlamaTrialSpec | None:
    text = job["spec"]["template"]["metadata"]["annotations"].get(TRIAL_SPEC_ANNOTATION)
    return None if text is None else LlamaTrialSpec.model_validate_json(text)


def _running(name: str, since: datetime) -> Object:
    return {"name": name, "state": {"running": {"startedAt": _stamp(since)}}}


def _ended(name: str, code: int, began: datetime, ended: datetime, message: str = "") -> Object:
    terminated = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "message": message,
        "startedAt": _stamp(began),
        "finishedAt": _stamp(ended),
    }
    return {"name": name, "state": {"terminated": terminated}}


def _text(lines: Iterable[bytes]) -> str:
    return b"".join(lines).decode()


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
