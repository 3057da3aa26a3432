"""The winner of a saved document becomes a patch, arguments or a docker line; a foreign document becomes an error."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from slotune.report.document import to_document
from slotune.report.export import (
    NoWinnerError,
    UnknownDocumentError,
    Winner,
    arguments,
    docker_run,
    kustomize_patch,
)
from tests.report.samples import ALL, Sample, infeasible, two_gpu_classes, worked_example


def saved(sample: Sample) -> dict[str, Any]:
    made = to_document(sample.problem, sample.decision, sample.results, flags=sample.flags)
    loaded: dict[str, Any] = json.loads(json.dumps(made))
    return loaded


def winner(sample: Sample) -> Winner:
    return Winner.from_document(saved(sample))


def test_a_patch_changes_the_arguments_and_nothing_else() -> None:
    text = kustomize_patch(winner(worked_example()))
    patch = yaml.safe_load(text)
    assert patch == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "support-chat"},
        "spec": {
            "template": {
                "spec": {"containers": [{"name": "llama-server", "args": list(worked_example().flags)}]},
            },
        },
    }
    assert all(isinstance(a, str) for a in patch["spec"]["template"]["spec"]["containers"][0]["args"])
    assert "# p95 TTFT 0.64 s at 6 requests/s a server. 1 × a100-40g, $1,460 a month." in text
    assert "# Replicas are left alone: 1 server was measured to be enough." in text


def test_replicas_and_names_are_set_when_asked_for() -> None:
    text = kustomize_patch(winner(two_gpu_classes()), deployment="llm", container="server", replicas=True)
    patch = yaml.safe_load(text)
    assert patch["metadata"]["name"] == "llm"
    assert patch["spec"]["replicas"] == 3
    assert patch["spec"]["template"]["spec"]["containers"][0]["name"] == "server"
    assert "left alone" not in text
    assert "move the node selector too" in text


def test_arguments_go_back_as_the_manifest_wrote_them() -> None:
    sample = replace(worked_example(), flags=("--chat-template", "$(NAME) on"))
    patch = yaml.safe_load(kustomize_patch(winner(sample)))
    assert patch["spec"]["template"]["spec"]["containers"][0]["args"][1] == "$(NAME) on"


def test_a_name_cannot_break_out_of_the_comment() -> None:
    sample = worked_example()
    sample = replace(sample, problem=replace(sample.problem, name="x\nkind: Secret"))
    assert yaml.safe_load(kustomize_patch(winner(sample)))["kind"] == "Deployment"


def test_arguments_are_one_flag_a_line_and_a_shell_reads_them_back() -> None:
    text = arguments(winner(worked_example()))
    assert "-np 16\n-c 131072\n-no-kvu\n" in text
    assert shlex.split(text) == list(worked_example().flags)


def test_a_docker_line_mounts_the_weights_and_is_reachable_from_this_machine_only() -> None:
    line = docker_run(winner(worked_example()), image="llama-server:mine")
    words = shlex.split(line.replace("\\\n", " "))
    assert words[:2] == ["docker", "run"]
    assert "/models:/models:ro" in words
    assert "127.0.0.1:8080:8080" in words
    assert words[words.index("llama-server:mine") + 1 :] == [
        *worked_example().flags,
        "--host",
        "0.0.0.0",
        "--port",
        "8080",
    ]
    assert "--gpus" not in docker_run(winner(worked_example()), gpus=False)
    assert "${LLAMA_SERVER_IMAGE:?" in docker_run(winner(worked_example()))


def test_the_weights_can_lie_elsewhere() -> None:
    moved = winner(worked_example()).with_model("/mnt/w.gguf")
    assert moved.flags[:2] == ("-m", "/mnt/w.gguf")
    assert len(moved.flags) == len(worked_example().flags)
    bare = winner(replace(worked_example(), flags=("-np", "4")))
    assert bare.with_model("/w.gguf").flags == ("-m", "/w.gguf", "-np", "4")


def test_a_replaced_secret_is_pointed_out() -> None:
    sample = worked_example()
    text = kustomize_patch(winner(replace(sample, flags=(*sample.flags, "--api-key", "s3cret"))))
    assert "s3cret" not in text
    assert "Put your secret where REDACTED stands" in text


@pytest.mark.parametrize("name", ["infeasible", "inconclusive", "invalid", "nothing_measured"])
def test_without_a_winner_there_is_nothing_to_export(name: str) -> None:
    sample = ALL[name]()
    with pytest.raises(NoWinnerError, match=sample.decision.kind.value):
        winner(sample)


def test_a_winner_without_flags_is_refused() -> None:
    with pytest.raises(NoWinnerError, match="flags is empty"):
        winner(replace(worked_example(), flags=()))


@pytest.mark.parametrize(
    "document",
    [{}, {"schema": "slotune.dev/report/v0"}, [], None, {"schema": "slotune.dev/report/v1"}],
    ids=["empty", "another version", "a list", "nothing", "cut short"],
)
def test_a_foreign_document_is_refused_with_the_cure(document: Any) -> None:
    with pytest.raises(UnknownDocumentError, match="slotune tune"):
        Winner.from_document(document)


@pytest.mark.parametrize("value", ["abc", None, []])
def test_a_garbled_amount_is_refused(value: Any) -> None:
    document = saved(worked_example())
    document["decision"]["choice"]["monthly_cost"] = value
    with pytest.raises(UnknownDocumentError):
        Winner.from_document(document)


def test_an_infeasible_document_can_still_be_read() -> None:
    assert saved(infeasible())["decision"]["choice"] is None
