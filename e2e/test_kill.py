"""The operator is killed at its worst moments, and the search ends as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.api_server import ApiServer, api_server
from e2e.cluster import Cluster, Object
from e2e.conftest import Images
from e2e.manifests import gpu_class, llama_deployment, server_template
from e2e.operator_process import OperatorProcess, definitions, free_port, no_operator_inside, operating
from slotune.api.labels import TRIAL_LABEL
from slotune.rollout.facts import CANDIDATE_ANNOTATION

NAME = "chat"
LOOK_S = 0.01
"""Between two looks for the moment of a kill. The operator needs several times that from one write to the next."""
STEP_LIMIT_S = 150.0
"""From one moment to the next: a trial with its pod, on a busy machine."""
MOST_TRIALS = 6
END_LIMIT_S = 5.0
"""For SIGTERM: a fraction of a pod's usual 30 s."""

SPACE: Object = {
    "models": ["Q4_0"],
    "parallelSlots": [2],
    "contextSizePerSlot": [512],
    "kvUnified": [False],
    "batchSize": [256],
    "uBatchSize": [256],
    "cacheTypes": ["f16"],
    "cacheRAMMiB": [0],
    "cacheReuse": [0],
    "cacheIdleSlots": [False],
}


@pytest.fixture(scope="module", autouse=True)
def alone(cluster: Cluster) -> Iterator[None]:
    """The kinds are there, and no other operator is."""
    with no_operator_inside(cluster), definitions(cluster):
        yield


@pytest.fixture
def operator(cluster: Cluster, namespace: str, images: Images, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator for the test's namespace."""
    with operating(cluster, images.product, namespace, tmp_path / "operator.log") as process:
        yield process


@pytest.fixture
def classes(cluster: Cluster, namespace: str, models: str) -> Iterator[list[str]]:
    """A dear class of GPU, which the baseline runs on, and a cheap one: what the search finds is no matter of speed."""
    assert cluster.node is not None, "the moment of a kill needs a node of the tests' own"
    cluster.set_gpus(3)
    names = [f"dear-{namespace}", f"cheap-{namespace}"]
    cluster.apply([gpu_class(names[0], price="0.80"), gpu_class(names[1], price="0.40")])
    yield names
    for name in names:
        cluster.delete("gpuclass", name)
    cluster.set_gpus(1)


@dataclass(slots=True)
class Eye:
    """Looks at one LlamaDeployment and what belongs to it, without kubectl in between."""

    server: ApiServer
    namespace: str

    def deployment(self) -> Object:
        """The LlamaDeployment."""
        return self._body(f"/apis/slotune.dev/v1alpha1/namespaces/{self.namespace}/llamadeployments/{NAME}")

    def trials(self) -> list[Object]:
        """LlamaTrials in the order in which they were asked."""
        found = self._body(f"/apis/slotune.dev/v1alpha1/namespaces/{self.namespace}/llamatrials")["items"]
        return sorted(found, key=lambda trial: str(trial["metadata"]["creationTimestamp"]))

    def in_phase(self, phase: str) -> set[str]:
        """Names of the trials that stand there."""
        return {one["metadata"]["name"] for one in self.trials() if one.get("status", {}).get("phase") == phase}

    def jobs(self) -> list[Object]:
        """Jobs of trials."""
        found = self._body(f"/apis/batch/v1/namespaces/{self.namespace}/jobs")["items"]
        return [job for job in found if TRIAL_LABEL in job["metadata"]["labels"]]

    def production(self) -> Object:
        """The Deployment that serves; empty while there is none."""
        return self._body(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{NAME}")

    def condition(self, kind: str) -> str:
        """A condition's status; empty while it was never said."""
        said = self.deployment().get("status", {}).get("conditions", ())
        return next((one["status"] for one in said if one["type"] == kind), "")

    def stage(self) -> str:
        """Where the rollout stands."""
        return str(self.deployment().get("status", {}).get("rollout", {}).get("stage", ""))

    def _body(self, path: str) -> Object:
        answer = self.server.get(path)
        assert answer.status in {200, 404}, answer.message
        return answer.body if answer.accepted else {}


@dataclass(slots=True)
class Witness:
    """What must never be so, looked for all the time."""

    eye: Eye
    jobs: dict[str, set[str]] = field(default_factory=dict)
    """Uids of the Jobs of each trial."""
    most_at_once: int = 0
    """Trials that ran at the same time."""
    least_available: int | None = None
    """Serving pods, since the first was there."""
    failure: Exception | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until told that it is over."""
        try:
            while not self._over.wait(0.1):
                self._look()
        except Exception as error:  # noqa: BLE001 - a witness that fell asleep must be heard of
            self.failure = error

    def _look(self) -> None:
        jobs = self.eye.jobs()
        for job in jobs:
            self.jobs.setdefault(job["metadata"]["name"], set()).add(job["metadata"]["uid"])
        self.most_at_once = max(self.most_at_once, sum(map(is_active, jobs)))
        available = self.eye.production().get("status", {}).get("availableReplicas", 0)
        if available or self.least_available is not None:
            self.least_available = min(available, available if self.least_available is None else self.least_available)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """It watches during the block."""
        thread = threading.Thread(target=self.watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def as_soon_as(check: Callable[[], object], what: str, timeout: float = STEP_LIMIT_S) -> None:
    """Return the moment that it is so; ``eventually`` would be late for a kill."""
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(LOOK_S)


def test_a_search_ends_the_same_however_often_the_operator_is_killed(
    cluster: Cluster, namespace: str, images: Images, classes: list[str], operator: OperatorProcess
) -> None:
    dear, cheap = classes
    wanted = llama_deployment(
        NAME,
        dear,
        template=server_template(images.engine, model="Q4_0"),
        gpuClasses=[{"name": name, "maxReplicas": 1} for name in classes],
        slo={"ttftP95": "20s", "quality": "Off"},
    )
    wanted["spec"]["search"]["space"] = SPACE
    wanted["spec"]["workload"]["inline"]["load"]["requestRate"] = "4"
    wanted["spec"]["rollout"] = {
        "mode": "Auto",
        "drain": {"timeout": "10s"},
        "verify": {"window": "4s", "interval": "2s", "probeRequests": 2, "failureLimit": 5, "inconclusiveLimit": 20},
    }
    with api_server(cluster.kubeconfig) as server, api_server(cluster.kubeconfig) as another:
        eye, witness = Eye(server, namespace), Witness(Eye(another, namespace))
        with witness.watching():
            cluster.apply(wanted, namespace)
            between = kill_around_each_trial(eye, operator)
            as_soon_as(lambda: CANDIDATE_ANNOTATION in annotations_of(eye.production()), "the candidate is applied")
            operator.kill()
            assert eye.condition("RolledOut") != "True"
            operator.start()
            as_soon_as(lambda: eye.stage() == "Verifying", "the candidate is watched")
            operator.kill()
            operator.start()
            as_soon_as(lambda: eye.condition("RolledOut") == "True", "it is rolled out")
        deployment, trials, production = eye.deployment(), eye.trials(), eye.production()

    found = deployment["status"]["recommendation"]
    assert (found["candidate"]["gpuClass"], found["candidate"]["model"], found["replicas"]) == (cheap, "Q4_0", 1)
    assert annotations_of(production)[CANDIDATE_ANNOTATION] == found["candidateHash"]
    assert deployment["status"]["phase"] == "Tuned"
    assert [trial["spec"]["purpose"] for trial in trials] == ["Baseline", "Search", "Confirm", "Partial"]
    assert {trial["status"].get("interruptions", 0) for trial in trials} == {0}
    assert all(between), "a kill came late: what follows from the end of a trial was there already"
    assert witness.failure is None
    assert {name: len(uids) for name, uids in witness.jobs.items()} == {
        trial["metadata"]["name"]: 1 for trial in trials
    }, "a trial was measured twice"
    assert witness.most_at_once == 1
    assert witness.least_available == 1


def kill_around_each_trial(eye: Eye, operator: OperatorProcess) -> list[bool]:
    """Kill the operator while the first two trials run, coming back after the second one's end, and at the end of
    every trial. For each of these whether nothing had followed from it yet."""
    between: list[bool] = []
    for number in range(1, MOST_TRIALS + 1):
        as_soon_as(
            lambda: eye.condition("SearchCompleted") == "True" or eye.in_phase("Running"), f"trial {number} runs"
        )
        if not eye.in_phase("Running"):
            return between
        if number <= 2:
            operator.kill()
            if number == 2:
                as_soon_as(lambda: not any(map(is_active, eye.jobs())), "the Job has ended")
            operator.start()
        as_soon_as(lambda: len(eye.in_phase("Complete")) == number, f"trial {number} has ended")  # noqa: B023 - now
        operator.kill()
        between.append(len(eye.trials()) == number and eye.condition("SearchCompleted") != "True")
        operator.start()
    raise AssertionError(f"the search asks more than {MOST_TRIALS} trials: {eye.trials()}")


def test_an_operator_that_is_asked_to_end_ends_at_once_and_cleanly(operator: OperatorProcess) -> None:
    status, seconds = operator.terminate()
    assert (status, seconds < END_LIMIT_S) == (0, True), (seconds, operator.log.read_text())
    assert "Traceback" not in operator.log.read_text()


def test_an_operator_without_an_api_server_says_so_on_one_line(
    cluster: Cluster, images: Images, tmp_path: Path
) -> None:
    nowhere = tmp_path / "kubeconfig"
    known = cluster.kubectl("config", "view", "--raw", "--minify", "--flatten")
    known["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    nowhere.write_text(json.dumps(known))
    process = OperatorProcess(nowhere, images.product, tmp_path / "operator.log")
    done = subprocess.run(
        process.command(), env=process.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "the API server does not answer" in done.stderr


def is_active(job: Object) -> bool:
    """Whether a Job has a pod that has not ended."""
    return bool(job.get("status", {}).get("active"))


def annotations_of(deployment: Object) -> Object:
    """Of a Deployment itself and of its pods."""
    template = deployment.get("spec", {}).get("template", {})
    found: Object = deployment.get("metadata", {}).get("annotations", {}) | template.get("metadata", {}).get(
        "annotations", {}
    )
    return found
