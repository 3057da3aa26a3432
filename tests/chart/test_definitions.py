"""There is one set of definitions: the chart carries copies of it, and the Kustomize base names it."""

from __future__ import annotations

import pytest
import yaml

from tests.chart.reading import CHART, ROOT

CRDS = sorted((ROOT / "crds").glob("*.yaml"))


def test_the_chart_has_the_same_definitions_and_no_others() -> None:
    ours = {path.name: path.read_text() for path in CRDS}
    copies = {path.name: path.read_text() for path in (CHART / "files" / "crds").iterdir()}
    assert len(ours) == 4
    assert copies == ours, "run: cp crds/*.yaml charts/slotune/files/crds/"


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_a_definition_leaves_room_for_the_annotation_that_keeps_it(path: object) -> None:
    # The chart writes annotations behind the first line that is "metadata:", so the file may have none of its own.
    text = (ROOT / "crds" / str(path)).read_text()
    assert text.count("\nmetadata:\n") == 1
    assert set(yaml.safe_load(text)["metadata"]) <= {"name", "labels"}


def test_the_base_lists_every_definition() -> None:
    listed = yaml.safe_load((ROOT / "kustomization.yaml").read_text())["resources"]
    assert listed == [f"crds/{path.name}" for path in CRDS] + ["config"]
