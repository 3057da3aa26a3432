"""Bad input is a condition with the field and the cure: production stays as it is, and nothing is tried in a storm."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.controller.cluster import Object
from slotune.controller.kinds import CONFIG_MAP, DEPLOYMENT, GPU_CLASS, JOB, LLAMA_WORKLOAD, SECRET
from tests.controller.manifests import NAMESPACE, TEMPLATE, config_map, owned, target, targeting, workload
from tests.controller.simulation import Simulation, assert_good_statuses, world

HOUR = 3600.0
CONTAINERS = "template__spec__containers"
ARGS = f"{CONTAINERS}__0__args"
PROMPTS = "workload__inline__prompts"
(SERVER,) = TEMPLATE["spec"]["containers"]
LOGGER = {"name": "logger", "image": "fluent/fluent-bit:4"}
FROM_MAP = {"configMapKeyRef": {"name": "prompts", "key": "p.jsonl"}}
KEPT = {"secretKeyRef": {"name": "slots", "key": "n"}}
BROKEN = '{"text": "a secret question"}\n{"text": \n'


def served(**changes: Any) -> list[Object]:
    """In owned mode."""
    return [owned(**changes)]


def targeted(changes: dict[str, Any] | None = None, **spec: Any) -> list[Object]:
    """With a Deployment that is there; ``changes`` are its own."""
    return [target(**(changes or {})), targeting(**spec)]


ROWS: dict[str, tuple[list[Object], str, list[str]]] = {
    "no container that is llama-server": (
        served(**{CONTAINERS: [LOGGER, {**LOGGER, "name": "other"}]}),
        "InvalidSpec",
        ["spec.container", "llama-server"],
    ),
    "a container that is not there": (served(container="engine"), "InvalidSpec", ["spec.container", "engine", "llama"]),
    "two containers with one name": (
        served(**{CONTAINERS: [SERVER, SERVER], "container": "llama"}),
        "InvalidSpec",
        ["containers", "llama"],
    ),
    "two llama-servers without a name": (
        targeted({CONTAINERS: [SERVER, {**SERVER, "name": "second"}]}),
        "ReferenceNotFound",
        ["spec.container", "second"],
    ),
    "a target that is not there": ([targeting()], "ReferenceNotFound", ["spec.targetRef.name", "web"]),
    "a workload that is not there": (
        served(workload__inline=None, workload__ref={"name": "traffic"}),
        "ReferenceNotFound",
        ["spec.workload.ref.name", "traffic"],
    ),
    "prompts that are not there": (
        served(**{PROMPTS: FROM_MAP}),
        "ReferenceNotFound",
        ["prompts.configMapKeyRef", "prompts"],
    ),
    "a key that the ConfigMap lacks": (
        [config_map("prompts", other="x"), *served(**{PROMPTS: FROM_MAP})],
        "ReferenceNotFound",
        ["prompts.configMapKeyRef", "p.jsonl"],
    ),
    "prompts with a broken line": (
        [config_map("prompts", **{"p.jsonl": BROKEN}), *served(**{PROMPTS: FROM_MAP})],
        "InvalidWorkload",
        ["p.jsonl", "2"],
    ),
    "prompts in a file of the user's machine": (
        served(**{PROMPTS: {"file": {"path": "prompts.jsonl"}}}),
        "ReferenceNotFound",
        ["prompts.file", "ConfigMap"],
    ),
    "prompts that fit no model": (
        served(**{PROMPTS: {"synthetic": {"inputTokens": {"mean": 9000}}}}),
        "Refused",
        ["9016", "8192"],
    ),
    "a GPU class that is not there": (
        served(gpuClasses=[{"name": "h100"}]),
        "ReferenceNotFound",
        ["spec.gpuClasses", "h100"],
    ),
    "a model file that is not there": (
        served(**{"models__0__path": "/models/nope.gguf", f"{ARGS}": ["-m", "/models/nope.gguf", "-np", "1"]}),
        "ModelUnreadable",
        ["spec.models[0].path", "/models/nope.gguf", "/models/f16.gguf"],
    ),
    "a flag that the build has removed": (
        served(**{ARGS: ["-m", "/models/f16.gguf", "--no-mmap"]}),
        "Refused",
        ["container llama args", "--no-mmap", "-lm none"],
    ),
    "a shell that hides the flags": (
        served(**{f"{CONTAINERS}__0__command": ["sh", "-c", "llama-server -m x"]}),
        "Refused",
        ["command", "shell"],
    ),
    "an image that is not llama-server": (
        served(**{f"{CONTAINERS}__0__image": "vllm/vllm-openai:latest", "container": "llama"}),
        "Refused",
        ["image", "vLLM"],
    ),
    "a command that is not llama-server": (
        targeted({f"{CONTAINERS}__0__command": ["httpd", "-f"]}, container="llama"),
        "Refused",
        ["command", "httpd", "llama-server"],
    ),
    "a router": (served(**{ARGS: ["--models-dir", "/models"]}), "Refused", ["container llama args", "router", "-m"]),
    "no model at all": (served(**{ARGS: ["-np", "1"]}), "Refused", ["container llama args", "-m"]),
    "a server of embeddings": (served(**{ARGS: [*SERVER["args"], "--embedding"]}), "Refused", ["--embedding"]),
    "slots that a Secret keeps": (
        served(**{f"{CONTAINERS}__0__env": [{"name": "LLAMA_ARG_N_PARALLEL", "valueFrom": KEPT}], ARGS: ["-m", "x"]}),
        "Refused",
        ["LLAMA_ARG_N_PARALLEL", "Secret"],
    ),
    "a Deployment that is scaled to zero": (
        [target(replicas=0), targeting()],
        "ReferenceNotFound",
        ["spec.replicas", "0"],
    ),
    "an image that does not say its build, and a shell": (
        served(**{f"{CONTAINERS}__0__image": "llama.cpp:server", f"{CONTAINERS}__0__command": ["sh", "-c", "x"]}),
        "Refused",
        ["command", "shell"],
    ),
    "an image that does not say its build, and a flag without its value": (
        served(**{f"{CONTAINERS}__0__image": "llama.cpp:server", ARGS: [*SERVER["args"], "-b"]}),
        "Refused",
        ["container llama args", "-b", "value"],
    ),
    "a container that is called like the load client": (
        served(**{f"{CONTAINERS}__0__name": "load-client"}),
        "Refused",
        ["container", "load-client"],
    ),
    "a model that is none of the variants": (
        served(**{ARGS: ["-m", "/models/x.gguf"]}),
        "Refused",
        ["/models/x.gguf", "spec.models"],
    ),
    "more replicas than allowed": (
        served(replicas=5, gpuClasses=[{"name": "cpu", "maxReplicas": 2}]),
        "Refused",
        ["spec.gpuClasses[0].maxReplicas is 2", "5 pods", "(spec.replicas)"],
    ),
    "too few requests to ever pass": (
        served(measurement__confidence="0.99"),
        "InvalidSpec",
        ["requestsPerRun"],
    ),
}


OF_THE_WEIGHTS = {"prompts that fit no model", "a model file that is not there"}
"""Which only a survey finds out. For all else its pod would be waste, and where it waits for a node nothing is said."""


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_bad_input_is_a_condition_with_the_field_and_the_cure(row):
    manifests, reason, words = ROWS[row]
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.node.survey_fate = "measured" if row in OF_THE_WEIGHTS else "unschedulable"
    simulation.apply(*manifests)
    before = simulation.cluster.find(DEPLOYMENT, NAMESPACE, "web")
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    assert simulation.says("Stalled") == ("True", reason), simulation.condition("Stalled")
    assert simulation.says("TargetResolved") == ("False", reason)
    assert simulation.status()["phase"] == "Failed"
    message = simulation.condition("Stalled")["message"]
    assert all(word in message for word in words), message
    assert "Traceback" not in message
    assert "secret" not in message
    assert "/nonexistent" not in message
    mark, looks = len(simulation.cluster.requests), len(simulation.requeues)
    await simulation.run(most_s=4 * HOUR)
    assert simulation.says("Stalled") == ("True", reason)
    assert len(simulation.requeues) - looks <= 130
    assert len(simulation.cluster.requests) - mark <= 800
    writes = [one for one in simulation.cluster.requests[mark:] if one.is_write]
    assert {one.kind for one in writes} <= {"Job", "NetworkPolicy", "LlamaDeployment"}
    surveys = [one for one in simulation.cluster.writes if one.kind == JOB.name]
    assert (surveys != []) == (row in OF_THE_WEIGHTS)
    assert simulation.trials() == []
    after = simulation.cluster.find(DEPLOYMENT, NAMESPACE, "web")
    assert (before and before["spec"]) == (after and after["spec"])
    assert_good_statuses(simulation)


@pytest.mark.parametrize(("build", "refused"), [(6000, False), (11549, True)])
async def test_a_flag_that_only_some_builds_take_is_judged_once_the_image_has_said_which_it_is(build, refused):
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.node.build = build
    image = {f"{CONTAINERS}__0__image": "llama.cpp:server", ARGS: [*SERVER["args"][:8], "--no-mmap"]}
    simulation.apply(owned(**image))
    await simulation.run(
        lambda: "True" in {simulation.says(one)[0] for one in ("Stalled", "TargetResolved")}, most_s=60
    )
    assert [one for one in simulation.cluster.writes if one.kind == JOB.name] != []
    assert simulation.says("Stalled") == (("True", "Refused") if refused else ("", ""))


@pytest.mark.parametrize(
    ("manifests", "cure"),
    [
        (served(workload__inline=None, workload__ref={"name": "traffic"}), workload()),
        (served(**{PROMPTS: FROM_MAP}), config_map("prompts", **{"p.jsonl": '{"text": "hello there"}\n' * 30})),
        ([targeting()], target()),
        (
            served(gpuClasses=[{"name": "h100"}]),
            {
                "apiVersion": "slotune.dev/v1alpha1",
                "kind": "GPUClass",
                "metadata": {"name": "h100"},
                "spec": {"pricePerHour": "1"},
            },
        ),
    ],
    ids=["workload", "prompts", "target", "class"],
)
async def test_what_was_missing_and_comes_is_found_by_itself(manifests, cure):
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(*manifests)
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    simulation.apply(cure)
    at = simulation.now
    await simulation.run(lambda: simulation.says("Stalled") == ("", ""), most_s=HOUR)
    watched = cure["kind"] != "ConfigMap"
    assert (simulation.now - at).total_seconds() <= (5 if watched else 121)
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert_good_statuses(simulation)


GOOD_PROMPTS = config_map("prompts", **{"p.jsonl": '{"text": "hello there"}\n' * 30})
FROM_SETTINGS = [{"name": "LLAMA_ARG_N_PARALLEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "n"}}}]
ALL_SETTINGS = [{"configMapRef": {"name": "settings"}}]


@pytest.mark.parametrize(
    ("broken", "manifests", "cure"),
    [
        (config_map("prompts", **{"p.jsonl": BROKEN}), served(**{PROMPTS: FROM_MAP}), GOOD_PROMPTS),
        (config_map("prompts", other="x"), served(**{PROMPTS: FROM_MAP}), GOOD_PROMPTS),
        (
            config_map("settings", LLAMA_ARG_EMBEDDINGS="1"),
            targeted({f"{CONTAINERS}__0__envFrom": ALL_SETTINGS}),
            config_map("settings", LLAMA_ARG_N_PARALLEL="1"),
        ),
        (
            config_map("settings", n="many"),
            served(**{f"{CONTAINERS}__0__env": FROM_SETTINGS, ARGS: [*SERVER["args"][:2], *SERVER["args"][4:]]}),
            config_map("settings", n="1"),
        ),
    ],
    ids=["a broken line", "a key that is not there", "a setting that is refused", "a number that is none"],
)
async def test_a_config_map_that_was_wrong_and_is_corrected_is_seen_within_two_minutes(broken, manifests, cure):
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(broken, *manifests)
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    assert simulation.says("Stalled")[0] == "True"
    await simulation.run(most_s=HOUR)
    simulation.apply(cure)
    at = simulation.now
    await simulation.run(lambda: simulation.says("Stalled") == ("", ""), most_s=HOUR)
    assert (simulation.now - at).total_seconds() <= 121
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")


async def test_a_model_file_that_was_missing_is_found_at_the_next_try():
    simulation = Simulation(world(seconds=lambda _: 2.0))
    (file,) = simulation.node.files
    model = simulation.node.files.pop(file)
    simulation.apply(owned())
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    assert simulation.says("Stalled") == ("True", "ModelUnreadable")
    simulation.node.files[file] = model
    await simulation.run(lambda: simulation.says("TargetResolved")[0] == "True", most_s=HOUR)
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")


async def test_a_file_that_is_no_model_is_told_with_its_field():
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.node.files["/models/f16.gguf"] = None
    simulation.apply(owned())
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    assert simulation.says("Stalled") == ("True", "ModelUnreadable")
    assert "spec.models[0].path is /models/f16.gguf" in simulation.condition("Stalled")["message"]


async def test_a_secret_that_may_not_be_read_names_the_right_and_another_way():
    reference = {"secretKeyRef": {"name": "prompts", "key": "p.jsonl"}}
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.cluster.forbidden = {("get", SECRET.name)}
    simulation.apply(owned(**{PROMPTS: reference}))
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    message = simulation.condition("Stalled")["message"]
    assert "prompts.secretKeyRef.name is prompts" in message
    assert "role" in message
    assert "ConfigMap" in message


async def test_a_search_whose_workload_vanishes_ends_its_trial_and_keeps_what_it_knows():
    manifests = (workload(), owned(workload__inline=None, workload__ref={"name": "traffic"}))
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(*manifests)
    await simulation.run(lambda: len(simulation.node.measured) >= 2 and simulation.flying() != [], most_s=HOUR)
    measured = {trial.key() for trial in simulation.node.measured}
    simulation.cluster.remove(LLAMA_WORKLOAD, NAMESPACE, "traffic")
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=5)
    await simulation.run(most_s=60)
    assert simulation.jobs() == []
    simulation.apply(workload())
    await simulation.until_decided()
    keys = [trial.key() for trial in simulation.node.measured]
    assert len(keys) == len(set(keys)) >= len(measured)
    assert_good_statuses(simulation)


async def test_a_deployment_of_the_same_name_that_slotune_did_not_make_is_left_alone():
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(target("chat"), owned())
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    assert simulation.says("Stalled") == ("True", "TargetConflict")
    assert "spec.targetRef" in simulation.condition("Stalled")["message"]
    await simulation.run(most_s=HOUR)
    assert not [one for one in simulation.cluster.writes if one.kind in {"Deployment", "Service"}]
    assert simulation.cluster.find(CONFIG_MAP, NAMESPACE, "chat-recommendation") is None
    assert simulation.cluster.find(GPU_CLASS, None, "cpu") is not None


async def test_a_flag_that_slotune_does_not_know_is_kept_and_said_to_be_untuned():
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(owned(**{ARGS: [*SERVER["args"], "--paralell", "4"]}))
    await simulation.until_decided()
    assert "Did you mean --parallel? " in simulation.condition("TargetResolved")["message"]
    args = simulation.status()["recommendation"]["args"]
    assert args[args.index("--paralell") + 1] == "4"
    for trial in simulation.trials():
        assert trial["spec"]["candidate"]["extraArgs"] == ["--paralell", "4"]


async def test_a_spec_that_was_corrected_is_tried_at_once():
    row = {"models__0__path": "/models/nope.gguf", ARGS: ["-m", "/models/nope.gguf", *SERVER["args"][2:]]}
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(owned(**row))
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    await simulation.run(most_s=2 * HOUR)  # tries are rare by now
    simulation.apply(owned())
    at = simulation.now
    await simulation.run(lambda: simulation.says("TargetResolved")[0] == "True", most_s=HOUR)
    assert (simulation.now - at).total_seconds() < 20
    await simulation.until_decided()
    assert_good_statuses(simulation)
