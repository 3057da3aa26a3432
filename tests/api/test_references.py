"""A LlamaDeployment comes with all that it refers to, and a missing reference is named at the field that refers."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from slotune.api.manifests import InvalidManifest, Manifests, Problem, Source, parse_every
from tests.api.pieces import deployment, gpu_class, target, workload


def parse(*documents: str) -> Manifests:
    content = "---\n".join(documents).encode()
    (found,) = parse_every([Source("a.yaml", content, Path("/manifests"))])
    return found


def problems(*documents: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidManifest) as caught:
        parse(*documents)
    return caught.value.problems


def test_everything_in_one_file() -> None:
    found = parse(deployment(), gpu_class())

    assert found.deployment.metadata.name == "chat"
    assert found.workload.load.request_rate == "6"
    assert list(found.gpu_classes) == ["l4"]
    assert found.container.args == ("-m", "/a.gguf")
    assert found.replicas == 1
    assert (found.prompts, found.trace) == (None, None)


def test_a_workload_is_found_by_name() -> None:
    found = parse(
        deployment(workload="ref: {name: peak}"),
        workload("file: {path: a.jsonl}", name="other"),
        workload("file: {path: b.jsonl}"),
        gpu_class(),
    )

    assert found.workload.prompts.file is not None
    assert found.workload.prompts.file.path == "b.jsonl"


def test_gpu_classes_come_in_the_order_of_the_deployment() -> None:
    text = deployment().replace("[{name: l4}]", "[{name: b}, {name: a}]")

    assert list(parse(gpu_class("a"), gpu_class("c"), text, gpu_class("b")).gpu_classes) == ["b", "a"]


def test_prompts_come_from_a_config_map() -> None:
    found = parse(
        deployment(workload="ref: {name: peak}"),
        workload("configMapKeyRef: {name: prompts, key: p.jsonl}"),
        gpu_class(),
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prompts}\ndata: {p.jsonl: "{\\"text\\": \\"grüß\\"}"}\n',
    )

    assert found.prompts == '{"text": "grüß"}'.encode()
    assert "grüß" not in repr(found)


@pytest.mark.parametrize("held", ["stringData: {p: hello}", f"data: {{p: {base64.b64encode(b'hello').decode()}}}"])
def test_prompts_come_from_a_secret(held: str) -> None:
    found = parse(
        deployment(workload="ref: {name: peak}"),
        workload("secretKeyRef: {name: prompts, key: p}"),
        gpu_class(),
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: prompts}}\n{held}\n",
    )

    assert found.prompts == b"hello"
    assert "hello" not in repr(found)


def test_a_trace_comes_from_the_binary_data_of_a_config_map() -> None:
    encoded = base64.b64encode(b'{"timestamp_s": 0}').decode()
    found = parse(
        deployment(workload="ref: {name: peak}"),
        workload("file: {path: a}", load="trace: {configMapKeyRef: {name: trace, key: t}}"),
        gpu_class(),
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: trace}}\nbinaryData: {{t: {encoded}}}\n",
    )

    assert found.trace == b'{"timestamp_s": 0}'
    assert found.workload.arrival_process == "Replay"


def test_a_target_says_what_runs_today() -> None:
    found = parse(
        deployment(server="targetRef: {name: chat}"), target("[{name: llama, args: [-np, '2']}]"), gpu_class()
    )

    assert found.replicas == 3
    assert found.container.args == ("-np", "2")


def test_the_container_is_told_by_what_it_starts_and_that_is_said() -> None:
    pod = "[{name: proxy, image: envoy}, {name: b, command: [/app/llama-server, -m, /a.gguf]}]"
    found = parse(deployment(server="targetRef: {name: chat}"), target(pod), gpu_class())

    assert found.container.name == "b"
    assert found.notes == ("container b is taken for llama-server; spec.container can name another",)


def test_the_container_is_chosen_by_name() -> None:
    server = "targetRef: {name: chat}\n  container: b"

    assert parse(deployment(server=server), target("[{name: a}, {name: b}]"), gpu_class()).container.name == "b"


def test_config_maps_are_there_for_the_server_s_environment() -> None:
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {ubatch: '256'}\n"
    broken = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: broken}\ndata: {ubatch: 256}\n"

    assert parse(deployment(), gpu_class(), settings, broken).config_maps == {"settings": {"ubatch": "256"}}


def test_a_namespace_that_is_left_open_fits_any() -> None:
    found = parse(deployment(workload="ref: {name: peak}", namespace="a"), workload("file: {path: x}"), gpu_class())

    assert found.workload.prompts.file is not None


def test_other_kinds_are_ignored_with_a_note() -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: chat}\n"
    values = "image: x\n"
    foreign = "apiVersion: example.com/v1\nkind: GPUClass\nmetadata: {name: x}\n"
    notes = parse(service, deployment(), gpu_class(), values, foreign).notes

    assert [note.partition(": ")[2] for note in notes] == [
        "ignored Service/chat of v1",
        "ignored a document without apiVersion and kind",
        "ignored GPUClass/x of example.com/v1 (slotune's own is slotune.dev/v1alpha1)",
    ]
    assert notes[0].startswith("a.yaml:1:")


def test_a_list_of_kubectl_is_read() -> None:
    items = (deployment(), gpu_class())
    indented = "".join("  - " + text.replace("\n", "\n    ").rstrip(" ") for text in items)

    assert list(parse(f"apiVersion: v1\nkind: List\nitems:\n{indented}").gpu_classes) == ["l4"]


@pytest.mark.parametrize(
    ("documents", "field", "telling"),
    [
        pytest.param([deployment()], "spec.gpuClasses[0].name", "no such GPUClass", id="gpu class"),
        pytest.param(
            [deployment(), gpu_class("l40")], "spec.gpuClasses[0].name", "did you mean l40?", id="gpu class, misspelled"
        ),
        pytest.param(
            [deployment(workload="ref: {name: peak}"), gpu_class()],
            "spec.workload.ref.name",
            "no such LlamaWorkload",
            id="workload",
        ),
        pytest.param(
            [
                deployment(workload="ref: {name: peak}", namespace="a"),
                workload("file: {path: x}", namespace="b"),
                gpu_class(),
            ],
            "spec.workload.ref.name",
            "no such LlamaWorkload",
            id="workload in another namespace",
        ),
        pytest.param(
            [deployment(server="targetRef: {name: chat}"), gpu_class()],
            "spec.targetRef.name",
            "no such Deployment",
            id="target",
        ),
        pytest.param(
            [
                deployment(workload="ref: {name: peak}"),
                workload("secretKeyRef: {name: prompts, key: p}"),
                gpu_class(),
            ],
            "spec.prompts.secretKeyRef.name",
            "no such Secret",
            id="secret",
        ),
        pytest.param(
            [
                deployment(workload="ref: {name: peak}"),
                workload("configMapKeyRef: {name: prompts, key: prompts.jsonl}"),
                gpu_class(),
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prompts}\ndata: {prompts.json: x}\n",
            ],
            "spec.prompts.configMapKeyRef.key",
            "did you mean prompts.json?",
            id="key",
        ),
        pytest.param(
            [deployment(server="targetRef: {name: chat}"), target("[{name: a}, {name: b}]"), gpu_class()],
            "spec.container",
            "one of a, b",
            id="container of the target",
        ),
        pytest.param(
            [deployment(server="targetRef: {name: chat}"), target(replicas="replicas: 0"), gpu_class()],
            "spec.replicas",
            "nothing runs",
            id="target without replicas",
        ),
        pytest.param(
            [deployment(server="targetRef: {name: chat}"), target("[]"), gpu_class()],
            "spec.template.spec.containers",
            "empty",
            id="target without containers",
        ),
        pytest.param(
            [
                deployment().replace("[{name: l4}]", "[{name: l4}, {name: a10}]"),
                gpu_class(),
                gpu_class("a10", currency="EUR"),
            ],
            "spec.gpuClasses[1].name",
            "one currency",
            id="two currencies",
        ),
        pytest.param(
            [deployment(), gpu_class(), gpu_class().replace("0.80", "0.90").replace("'1'", "'2'")],
            "metadata.name",
            "stands twice",
            id="same name, other content",
        ),
        pytest.param([gpu_class()], "", "no LlamaDeployment", id="no deployment"),
        pytest.param(["a: 1\n"], "", "ignored a document", id="nothing of slotune"),
    ],
)
def test_a_missing_reference_is_named_at_the_field_that_refers(documents: list[str], field: str, telling: str) -> None:
    (problem,) = problems(*documents)

    assert problem.field == field
    assert telling in problem.cure
    assert problem.line is None if not field else problem.line is not None


def test_a_secret_that_is_not_base64_is_refused_without_its_value() -> None:
    (problem,) = problems(
        deployment(workload="ref: {name: peak}"),
        workload("secretKeyRef: {name: prompts, key: p}"),
        gpu_class(),
        "apiVersion: v1\nkind: Secret\nmetadata: {name: prompts}\ndata: {p: hunter2!}\n",
    )

    assert problem.field == "data.p"
    assert "stringData" in problem.cure
    assert "hunter2" not in str(problem)


def test_a_referred_config_map_with_a_number_is_refused_without_its_value() -> None:
    (problem,) = problems(
        deployment(workload="ref: {name: peak}"),
        workload("configMapKeyRef: {name: prompts, key: p}"),
        gpu_class(),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prompts}\ndata: {p: 31337}\n",
    )

    assert problem.field == "data.p"
    assert "31337" not in str(problem)


def test_a_broken_workload_is_not_reported_as_missing_too() -> None:
    (problem,) = problems(deployment(workload="ref: {name: peak}"), workload(""), gpu_class())

    assert problem.field == "spec.prompts"
