"""One LlamaDeployment and all that belongs to it, as it comes to be: what tests wait for and look at."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from e2e.api_server import ApiServer
from e2e.cluster import Cluster, Object
from e2e.manifests import quick_deployment, server_template
from e2e.namespaces import new_namespace
from e2e.waiting import eventually

__all__ = ["Ground", "Story", "Witness"]

STEP_LIMIT_S = 150.0
"""From one thing to the next: a trial with its pod takes 15 s, and several times that on a busy machine."""
LOOK_S = 0.3


@dataclass(frozen=True, slots=True)
class Story:
    """A LlamaDeployment, by its name."""

    cluster: Cluster
    server: ApiServer
    namespace: str
    name: str

    def deployment(self) -> Object:
        """The LlamaDeployment; empty when it is gone."""
        return self._body(f"/apis/slotune.dev/v1alpha1/namespaces/{self.namespace}/llamadeployments/{self.name}")

    def status(self) -> Object:
        """What the operator says."""
        found: Object = self.deployment().get("status", {})
        return found

    def condition(self, kind: str) -> Object:
        """A condition of this generation; empty when it is not there or speaks of an older one."""
        seen = self.deployment()
        generation = seen.get("metadata", {}).get("generation")
        for one in seen.get("status", {}).get("conditions", ()):
            if one["type"] == kind and one.get("observedGeneration") == generation:
                found: Object = one
                return found
        return {}

    def wait_for(self, kind: str, status: str = "True", reason: str = "", timeout: float = STEP_LIMIT_S) -> Object:
        """The condition, once it has this status, and this reason where one is named."""

        def check() -> Object:
            said = self.condition(kind)
            assert said.get("status") == status, self.status()
            assert not reason or said["reason"] == reason, self.status()
            return said

        return eventually(check, timeout, f"{kind} of {self.name} is {status} {reason}")

    def trials(self) -> list[Object]:
        """LlamaTrials of this LlamaDeployment, the oldest first."""
        query = f"labelSelector=slotune.dev/deployment={self.name}"
        found = self._body(f"/apis/slotune.dev/v1alpha1/namespaces/{self.namespace}/llamatrials?{query}")["items"]
        return sorted(found, key=lambda trial: str(trial["metadata"]["creationTimestamp"]))

    def ended(self) -> dict[str, Object]:
        """Trials that ended, by name."""
        return {one["metadata"]["name"]: one for one in self.trials() if one.get("status", {}).get("outcome")}

    def jobs(self) -> list[Object]:
        """Jobs of trials and surveys."""
        return self._ours("/apis/batch/v1", "jobs")

    def pods(self) -> list[Object]:
        """Pods of trials and surveys, and those that serve."""
        return self._ours("/api/v1", "pods")

    def running_trial(self) -> Object:
        """The pod of a trial that runs; no such pod is a :class:`LookupError`."""
        running = [
            pod
            for pod in self.pods()
            if "slotune.dev/trial" in pod["metadata"]["labels"]
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return running[0]

    def production(self, name: str | None = None) -> Object:
        """The Deployment that serves; empty while there is none."""
        return self._body(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name or self.name}")

    def change(self, **spec: object) -> None:
        """Change fields of the spec, as ``kubectl patch`` does."""
        patch = json.dumps({"spec": spec})
        self.cluster.text(
            "patch", "llamadeployment", self.name, "--type=merge", f"--patch={patch}", namespace=self.namespace
        )

    def chat(self) -> Object:
        """What the Service answers, asked from a pod's point of view: at its cluster IP."""
        service = self._body(f"/api/v1/namespaces/{self.namespace}/services/{self.name}")
        address = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
        question = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        # trust_env: whatever proxy this machine has knows nothing of a cluster's addresses.
        answer = httpx.post(f"{address}/v1/chat/completions", json=question, timeout=30, trust_env=False)
        assert answer.status_code == 200, answer.text
        said: Object = answer.json()
        return said

    def _ours(self, group: str, plural: str) -> list[Object]:
        query = f"labelSelector=slotune.dev/deployment={self.name}"
        found: list[Object] = self._body(f"{group}/namespaces/{self.namespace}/{plural}?{query}")["items"]
        return found

    def _body(self, path: str) -> Object:
        answer = self.server.get(path)
        assert answer.status in {200, 404}, answer.message
        return answer.body if answer.accepted else {}


@dataclass(frozen=True, slots=True)
class Ground:
    """What a story takes: a cluster with the operator, an image of llama-server, weights and GPU classes."""

    cluster: Cluster
    server: ApiServer
    image: str
    """llama-server's."""
    weights: Path
    dear: str
    cheap: str
    """GPU classes of the same node at two prices, so that what is cheapest is no matter of speed."""
    stack: ExitStack
    """What is to be removed in the end, when evidence of a failure was taken."""

    def begin(self, *manifests: Object) -> Story:
        """A namespace with models and these objects; the story is that of the last one. It ends with this ground."""
        namespace = self.stack.enter_context(new_namespace(self.cluster, self.weights, wait=False))
        self.cluster.apply(manifests, namespace)
        return self.story(namespace, manifests[-1]["metadata"]["name"])

    def story(self, namespace: str, name: str) -> Story:
        """That of a LlamaDeployment which is there, or will be."""
        return Story(self.cluster, self.server, namespace, name)

    def owned(self, name: str = "chat", *gpus: str, **changes: Any) -> Object:
        """A LlamaDeployment that owns its server, Q8_0 with one slot, on the dear class."""
        template = server_template(self.image, model="Q8_0")
        return quick_deployment(name, *(gpus or (self.dear, self.cheap)), **({"template": template} | changes))


@dataclass(slots=True)
class Witness:
    """Looks all the time, for what is gone when everything is over."""

    story: Story
    stages: set[str] = field(default_factory=set)
    """Of trials that ran."""
    counted: set[int] = field(default_factory=set)
    """Requests that were decided, as trials said while they ran."""
    pods: dict[str, Object] = field(default_factory=dict)
    """Pods of trials, by their trial's name, as they ran."""
    most_at_once: int = 0
    """Trials' Jobs that were there together and had not ended."""
    phases: list[str] = field(default_factory=list)
    """Of the LlamaDeployment, in their order."""
    failure: Exception | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """It watches during the block.

        Raises:
            AssertionError: it could not look.
        """
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        assert self.failure is None, self.failure

    def _watch(self) -> None:
        try:
            while not self._over.wait(LOOK_S):
                self._look()
        except Exception as error:  # noqa: BLE001 - a witness that fell asleep must be heard of
            self.failure = error

    def _look(self) -> None:
        for trial in self.story.trials():
            progress = trial.get("status", {}).get("progress")
            if progress and trial["status"].get("phase") == "Running":
                self.stages.add(progress["stage"])
                self.counted.add(progress.get("requestsDone", 0))
        active = [
            job
            for job in self.story.jobs()
            if "slotune.dev/trial" in job["metadata"]["labels"] and job.get("status", {}).get("active")
        ]
        self.most_at_once = max(self.most_at_once, len(active))
        for pod in self.story.pods():
            if (trial_name := pod["metadata"]["labels"].get("slotune.dev/trial")) and pod["status"][
                "phase"
            ] == "Running":
                self.pods[trial_name] = pod
        phase = self.story.status().get("phase", "")
        if phase and self.phases[-1:] != [phase]:
            self.phases.append(phase)
