"""From files to one LlamaDeployment, or to every problem of every file at once."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slotune.api.manifests import InvalidManifest, Source, load_every, load_manifests, parse_every
from tests.api.pieces import deployment, gpu_class, workload


def test_all_problems_of_all_files_come_at_once() -> None:
    sources = [
        Source("b.yaml", gpu_class().replace('"0.80"', "0").encode(), Path()),
        Source("a.yaml", deployment().replace("1s", "1").encode(), Path()),
        Source("c.yaml", b"kind: [\n", Path()),
    ]
    with pytest.raises(InvalidManifest) as caught:
        parse_every(sources)

    assert [problem.file for problem in caught.value.problems] == ["a.yaml", "b.yaml", "c.yaml"]
    assert str(caught.value).startswith("3 problems:\na.yaml:5: LlamaDeployment/chat: spec.slo.ttftP95 is 1: ")


def test_one_of_several_deployments_is_chosen_by_name(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("---\n".join([deployment("a"), deployment("b"), gpu_class()]))

    assert load_manifests([tmp_path / "all.yaml"], name="b").deployment.metadata.name == "b"
    assert len(load_every([tmp_path / "all.yaml"])) == 2
    with pytest.raises(InvalidManifest, match="choose one of a, b"):
        load_manifests([tmp_path / "all.yaml"])
    with pytest.raises(InvalidManifest, match="there is only a, b"):
        load_manifests([tmp_path / "all.yaml"], name="support-chat")


def test_a_folder_is_its_yaml_and_json_files(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(deployment())
    (tmp_path / "a.json").write_text(
        '{"apiVersion": "slotune.dev/v1alpha1", "kind": "GPUClass", "metadata": {"name": "l4"},'
        ' "spec": {"pricePerHour": "0.80"}}'
    )
    (tmp_path / "notes.txt").write_text("- not a manifest\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.yaml").write_text("kind: [")

    found = load_manifests([tmp_path])

    assert found.directory == tmp_path


def test_relative_paths_start_where_the_workload_is_written(tmp_path: Path) -> None:
    (tmp_path / "traffic").mkdir()
    (tmp_path / "traffic" / "peak.yaml").write_text(workload("file: {path: prompts.jsonl}"))
    (tmp_path / "chat.yaml").write_text(deployment(workload="ref: {name: peak}") + "---\n" + gpu_class())

    found = load_manifests([tmp_path / "chat.yaml", tmp_path / "traffic"])

    assert found.directory == tmp_path / "traffic"


def test_standard_input_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO((deployment() + "---\n" + gpu_class()).encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=content))

    assert load_manifests(["-"]).deployment.metadata.name == "chat"


def test_files_that_can_t_be_read_are_problems_like_others(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes("kind: Grüße\n".encode("latin-1"))
    with pytest.raises(InvalidManifest) as caught:
        load_manifests([tmp_path / "missing.yaml", tmp_path / "empty", tmp_path / "latin.yaml"])

    assert [(Path(problem.file).name, problem.cure.partition(" (")[0]) for problem in caught.value.problems] == [
        ("empty", "there is no .yaml, .yml or .json file in this folder"),
        ("latin.yaml", "is not UTF-8"),
        ("missing.yaml", "there is no such file"),
    ]


def test_nothing_to_read_is_a_problem() -> None:
    with pytest.raises(InvalidManifest, match="no LlamaDeployment"):
        load_manifests([])
