"""``slotune crds`` prints, writes and checks; a check names the file, the line and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.api.documents import read_documents
from slotune.api.v1alpha1 import KINDS
from slotune.cli import main

FILES = [
    "slotune.dev_gpuclasses.yaml",
    "slotune.dev_llamadeployments.yaml",
    "slotune.dev_llamatrials.yaml",
    "slotune.dev_llamaworkloads.yaml",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert main(["crds", "--out", str(tmp_path / "made" / "crds")]) == 0
    return tmp_path / "made" / "crds"


def test_every_kind_is_printed_as_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds"]) == 0

    documents, problems = read_documents("stdout", capsys.readouterr().out.encode())
    assert problems == []
    assert [document.data["spec"]["names"]["kind"] for document in documents] == [kind.INFO.kind for kind in KINDS]


def test_each_kind_has_a_file(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == FILES


def test_what_was_written_passes_its_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", "--check", str(folder)]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_check_names_every_file_that_differs_and_changes_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, missing, strange = folder / FILES[0], folder / FILES[1], folder / "slotune.dev_llamas.yaml"
    changed.write_text(changed.read_text().replace("scope: Cluster", "scope: Namespaced"))
    missing.unlink()
    strange.touch()
    (folder / "README.md").touch()
    before = changed.read_text()
    line = 1 + before[: before.index("scope: Namespaced")].count("\n")

    assert main(["crds", "--check", str(folder)]) == 2

    said = capsys.readouterr().err
    assert f"{changed}:{line}: 'scope: Namespaced' should be 'scope: Cluster'" in said
    assert f"{missing}: is not there" in said
    assert f"{strange}: is of no kind" in said
    assert f"slotune crds --out {folder}" in said
    assert said.count("\n") == 4
    assert changed.read_text() == before
    assert not missing.exists()


def test_a_file_that_ends_early_differs_at_its_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = folder / FILES[0]
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))

    assert main(["crds", "--check", str(folder)]) == 2
    assert "the end of the file should be 'status: {}'" in capsys.readouterr().err


def test_a_place_that_is_no_folder_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()

    assert main(["crds", "--out", str(tmp_path / "file" / "crds")]) == 2
    assert "file" in capsys.readouterr().err
