"""A survey knows every model file before anything is measured, or says which one is wrong and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from kubernetes import client as kubernetes_client

from slotune.api.v1alpha1.sandbox import LoadClient, Sandbox
from slotune.cli import main
from slotune.llama.gguf_facts import read_facts
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.sandbox.job import ClientImage, TrialServer
from slotune.sandbox.judgement import Blocked, LogRequest, Retry, Waiting
from slotune.sandbox.kept_template import UnusableTemplateError
from slotune.sandbox.pod_facts import JobFacts, PodFacts
from slotune.sandbox.survey_job import survey_job
from slotune.sandbox.survey_outcome import (
    SURVEY_LOG,
    VERSION_LOG,
    Surveyed,
    judge_survey,
    needed_survey_logs,
)
from slotune.sandbox.survey_report import SurveyError, survey_frames, survey_from_log
from tests.sandbox.pods import NOW, ago, ended, job, pod, waiting
from tests.sandbox.templates import UNTIDY
from tests.sandbox.test_job import BARE, L4
from tests.tiny_models import write_tiny_model

Object = dict[str, Any]

OWNER = {
    "apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaDeployment", "name": "chat", "uid": "d-1",
    "controller": True, "blockOwnerDeletion": True,
}  # fmt: skip
FACTS = ModelFacts(
    "/models/m.gguf", 1000, "ab" * 32, "llama", "Q4_K_M", 8192, 32000, 576, 9,
    (LayerCache(192, 192), LayerCache(0, 0, 1024, 5)), 900, 800, 4.83, 1536,
)  # fmt: skip
MISSING = SurveyError("NotFound", "/models/x.gguf", "it is not there", ("m.gguf",))
FOUND: dict[str, ModelFacts | SurveyError] = {"q4": FACTS, "x": MISSING}


def log_of(found: dict[str, ModelFacts | SurveyError]) -> str:
    return b"".join(survey_frames(found)).decode()


def test_facts_and_errors_come_back_as_they_were():
    assert survey_from_log("noise\n" + log_of(FOUND) + "more noise") == FOUND


def test_a_log_that_is_not_whole_says_nothing():
    assert survey_from_log(log_of(FOUND)[:-30]) is None
    assert survey_from_log("") is None


def test_the_command_reads_a_real_header_and_names_what_lies_beside_a_missing_file(tmp_path, capfdbinary):
    model = write_tiny_model(tmp_path / "m.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:200])
    models = [("good", model), ("gone", tmp_path / "deeper" / "n.gguf"), ("cut", cut), ("inner", model)]
    arguments = [word for name, path in models for word in ("--model", f"{name}={path}")]
    assert main(["survey", *arguments, "--inside-image", "inner"]) == 0
    found = survey_from_log(capfdbinary.readouterr().out.decode())
    assert found is not None
    assert found["good"] == read_facts(model)
    gone, damaged, inner = found["gone"], found["cut"], found["inner"]
    assert isinstance(gone, SurveyError)
    assert (gone.code, gone.files) == ("NotFound", ("cut.gguf", "m.gguf"))
    assert "m.gguf" in gone.message
    assert isinstance(damaged, SurveyError)
    assert damaged.code == "Unreadable"
    assert isinstance(inner, SurveyError)
    assert "mount" in inner.message


def test_a_model_without_a_name_is_refused(capsys):
    assert main(["survey", "--model", "/models/m.gguf"]) == 2
    assert "NAME=PATH" in capsys.readouterr().err


SANDBOX = Sandbox()
MODELS = {"q4": "/models/m.gguf", "inner": "/app/m.gguf"}
SERVER = TrialServer("llama", (), ("/app/llama-server",), ({"name": "A", "value": "b"},))


def survey(
    template: Object = UNTIDY,
    sandbox: Sandbox = SANDBOX,
    server: TrialServer = SERVER,
    models: Mapping[str, str] | None = None,
) -> Object:
    return survey_job(
        "chat-survey-ab",
        OWNER,
        "models",
        template,
        server,
        models=MODELS if models is None else models,
        digest="ab",
        gpu_class=L4,
        sandbox=sandbox,
        client=ClientImage("slotune:1"),
    )


def test_a_large_file_has_the_time_to_be_read_whole():
    one, two = (survey(models=dict(list(MODELS.items())[:count])) for count in (1, 2))
    one_s, two_s = (job["spec"]["template"]["spec"]["activeDeadlineSeconds"] for job in (one, two))
    assert two_s - one_s >= 1000  # 100 GB from a volume that gives 100 MB/s


@pytest.mark.parametrize("template", [UNTIDY, BARE], ids=["untidy", "bare"])
def test_every_field_is_one_that_kubernetes_knows(template):
    api = kubernetes_client.ApiClient()
    read = api.deserialize(json.dumps(survey(template)), "V1Job", "application/json")
    assert api.sanitize_for_serialization(read) == survey(template)


def test_it_looks_through_the_servers_mounts_and_changes_nothing():
    spec = survey()["spec"]["template"]["spec"]
    reader, version = spec["containers"]
    assert reader["args"] == [
        "survey", "--model", "q4=/models/m.gguf", "--model", "inner=/app/m.gguf", "--inside-image", "inner",
    ]  # fmt: skip
    assert {mount["mountPath"] for mount in reader["volumeMounts"]} >= {"/models", "/fetched"}
    assert all(mount["readOnly"] for mount in reader["volumeMounts"])
    assert (version["command"], version["args"]) == (["/app/llama-server"], ["--version"])
    assert [c["name"] for c in spec["initContainers"]] == ["mesh", "fetch"]


def test_a_program_that_args_name_is_asked_for_its_version_too():
    server = TrialServer("llama", ("--", "/app/llama-server"), ("dumb-init",), ({"name": "A", "value": "b"},))
    _, version = survey(server=server)["spec"]["template"]["spec"]["containers"]
    assert (version["command"], version["args"]) == (["dumb-init"], ["--", "/app/llama-server", "--version"])


@pytest.mark.parametrize(("cpu", "asked"), [("1", "100m"), ("4", "100m"), ("50m", "50m")])
def test_it_finds_a_place_on_a_node_that_has_one_core_for_the_load_client(cpu: str, asked: str) -> None:
    sandbox = Sandbox(load_client=LoadClient(cpu=cpu, memory="256Mi"))
    for container in survey(sandbox=sandbox)["spec"]["template"]["spec"]["containers"]:
        assert container["resources"] == {
            "requests": {"cpu": asked, "memory": "256Mi"},
            "limits": {"cpu": cpu, "memory": "256Mi"},
        }


def test_it_takes_no_gpu_no_claim_and_no_node_from_a_trial():
    made = survey()
    assert 'nvidia.com/gpu":' not in json.dumps(made["spec"]["template"]["spec"]["containers"])
    assert "resourceClaims" not in made["spec"]["template"]["spec"]
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert "slotune.dev/trial" not in labels
    assert labels["slotune.dev/survey"] == "ab"
    assert labels["slotune.dev/sandbox"] == "survey"


def test_it_reads_as_the_user_that_the_server_runs_as():
    """A model file may be readable for nobody else."""
    assert survey()["spec"]["template"]["spec"]["containers"][0]["securityContext"]["runAsUser"] == 1000
    assert survey(BARE)["spec"]["template"]["spec"]["containers"][0]["securityContext"]["runAsUser"] == 65532


@pytest.mark.parametrize("name", ["survey", "version", "load-client"])
def test_a_container_that_is_called_like_ours_is_refused(name):
    template = {"spec": {**BARE["spec"], "initContainers": [{"name": name, "image": "x"}]}}
    with pytest.raises(UnusableTemplateError, match=name):
        survey(template)


def survey_pod(reader: Object, version: Object, **changes: Any) -> Object:
    made = pod(**changes)
    made["spec"]["initContainers"] = made["spec"]["initContainers"][:1]
    made["spec"]["containers"] = [{"name": "survey", "image": "slotune:1"}, {"name": "version", "image": "llama:1"}]
    made["status"]["containerStatuses"] = [
        {"name": "survey", "state": reader, "restartCount": 0},
        {"name": "version", "state": version, "restartCount": 0, "imageID": "llama@sha256:bb"},
    ]
    return made


def judge(made: Object | None, logs: dict[LogRequest, str] | None = None, **more: Any) -> Any:
    facts = None if made is None else PodFacts.from_object(made)
    return judge_survey(
        JobFacts.from_object(job()), facts, logs or {}, server="llama", capacity_timeout_s=1800.0, now=NOW, **more
    )


RUNNING = {"running": {"startedAt": ago(5)}}


def test_what_was_found_ends_it_also_when_the_version_could_not_be_had():
    logs = {SURVEY_LOG: log_of(FOUND), VERSION_LOG: "version: 5000 (abc1234)"}
    assert judge(survey_pod(ended(0), ended(0)), logs) == Surveyed(FOUND, 5000, "llama@sha256:bb")
    failed = survey_pod(ended(0), ended(127), phase="Failed")
    assert judge(failed, {SURVEY_LOG: log_of(FOUND)}) == Surveyed(FOUND, None, "llama@sha256:bb")


@pytest.mark.parametrize(
    ("said", "build"),
    [
        ("version: 5000 (abc1234)\nbuilt with gcc", 5000),
        ("ggml_cuda_init: no devices\nversion: 11434 (7e4c0a9)\n", 11434),
        ("version: 0.6.0-dev (build 11434, commit 7e4c0a91b)\nbuilt with GNU 13.3.0 for Linux x86_64", 11434),
        ("version: 2.0.0 (build 20001, commit 7e4c0a91b)", 20001),
        ("version: 0.0.0-dev (build 11549, commit 0000000)\n", 11549),
        ("version: 0.6.0-dev", None),
        ("version: 1 (7e4c0a9)", None),
        ("version: 0 (unknown)", None),
        ("version: 0.6.0-dev (build 1, commit unknown)", None),
        ("error while loading shared libraries: libcuda.so.1", None),
    ],
)
def test_the_build_is_the_number_that_any_form_of_version_has(said: str, build: int | None) -> None:
    logs = {SURVEY_LOG: log_of(FOUND), VERSION_LOG: said}
    assert judge(survey_pod(ended(0), ended(0)), logs) == Surveyed(FOUND, build, "llama@sha256:bb")


def test_a_version_that_takes_for_ever_is_not_waited_for():
    logs = {SURVEY_LOG: log_of(FOUND)}
    long_since = {"running": {"startedAt": ago(65)}}
    assert isinstance(judge(survey_pod(ended(0, finished=9), long_since), logs), Waiting)
    assert isinstance(judge(survey_pod(ended(0, finished=70), RUNNING), logs), Waiting)  # its image took its time
    assert judge(survey_pod(ended(0, finished=70), long_since), logs) == Surveyed(FOUND, None, "llama@sha256:bb")


def test_a_fetch_that_failed_blocks_and_names_the_container():
    made = survey_pod(waiting("PodInitializing"), waiting("PodInitializing"), phase="Failed")
    made["status"]["initContainerStatuses"][0]["state"] = ended(22)
    judgement = judge(made)
    assert isinstance(judgement, Blocked)
    assert judgement.reason == "InitContainerFailed"


def test_an_image_that_is_not_there_is_known_from_either_container():
    made = survey_pod(RUNNING, waiting("ImagePullBackOff", "not found"))
    judgement = judge(made)
    assert isinstance(judgement, Blocked)
    assert "llama:1" in judgement.message


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_a_server_image_that_cannot_be_had_blocks_although_the_files_were_read(reason):
    logs = {SURVEY_LOG: log_of(FOUND)}
    made = survey_pod(ended(0, finished=3000), waiting(reason, "not found"))
    judgement = judge(made, logs)
    assert isinstance(judgement, Blocked)
    assert judgement.reason == "ImagePullFailed"
    assert judgement.message.startswith("container llama: image llama:1 can't be had (not found)")
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(60)}
    made = survey_pod(ended(0, finished=50), waiting(reason, "not found"), conditions=[placed])
    stumbles = judge(made, logs)
    assert isinstance(stumbles, Waiting)
    assert stumbles.reason == reason


def test_a_server_image_that_is_still_fetched_is_waited_for_until_the_pods_deadline():
    logs = {SURVEY_LOG: log_of(FOUND)}
    fetched = survey_pod(ended(0, finished=500), waiting("ContainerCreating"))
    assert isinstance(judge(fetched, logs), Waiting)
    unknown = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}}
    for state in (waiting("ContainerCreating"), unknown):
        late = judge(survey_pod(ended(0), state, phase="Failed", reason="DeadlineExceeded"), logs)
        assert isinstance(late, Blocked)
        assert late.reason == "NotStartedInTime"
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "x"}
    lost = judge(survey_pod(ended(0), unknown, phase="Failed", conditions=[evicted]), logs)
    assert isinstance(lost, Retry)


@pytest.mark.parametrize(
    "state",
    [
        waiting("CreateContainerError", "no such device"),
        {"terminated": {"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z"}},
    ],
    ids=["device", "program"],
)
def test_a_server_that_only_lacks_what_a_gpu_brings_says_no_version_and_that_is_all(state):
    made = survey_pod(ended(0, finished=70), state)
    assert judge(made, {SURVEY_LOG: log_of(FOUND)}) == Surveyed(FOUND, None, "llama@sha256:bb")


def test_a_survey_that_broke_says_so_and_a_lost_one_is_run_again():
    broken = judge(survey_pod(ended(1), ended(0), phase="Failed"), {SURVEY_LOG: "slotune: no space\n"})
    assert isinstance(broken, Blocked)
    assert "no space" in broken.message
    assert isinstance(judge(survey_pod(ended(0), ended(0), phase="Succeeded")), Retry)
    assert isinstance(judge(survey_pod(RUNNING, RUNNING)), Waiting)
    assert isinstance(judge(None), Waiting)


def test_only_logs_of_containers_that_ended_are_read():
    made = PodFacts.from_object(survey_pod(ended(0), RUNNING))
    assert needed_survey_logs(made) == (SURVEY_LOG,)
    assert needed_survey_logs(None) == ()
