"""Exit codes tell a script every end apart, without reading the text."""

from __future__ import annotations

import json

import pytest
import yaml

from slotune.cli import main
from slotune.commands.outcomes import exit_code_of
from slotune.search.decision import Decision, DecisionKind
from slotune.verdict.verdicts import Outcome
from tests.commands.manifests import manifest


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (DecisionKind.FOUND, 0),
        (DecisionKind.INFEASIBLE, 3),
        (DecisionKind.BUDGET_EXHAUSTED, 4),
        (DecisionKind.INCONCLUSIVE, 4),
        (DecisionKind.INVALID, 5),
        (Outcome.PASS, 0),
        (Outcome.FAIL, 3),
        (Outcome.INCONCLUSIVE, 4),
        (Outcome.INVALID, 5),
    ],
)
def test_every_end_has_its_code(end, code):
    assert exit_code_of(Decision(end, "") if isinstance(end, DecisionKind) else end) == code


@pytest.mark.engine
def test_a_budget_that_ends_without_an_answer_is_code_4(tmp_path, capsys):
    file = manifest(tmp_path, search__budget={"gpuMinutes": 1, "trials": 1})
    code = main(
        ["tune", "-f", str(file), "--models-dir", str(tmp_path), "--engine", "embedded", "--out", str(tmp_path / "out")]
    )
    assert code == 4, capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "decision.json").read_text())["decision"]["kind"] == "BudgetExhausted"


def test_a_plan_lists_every_candidate_in_every_form(tmp_path, capsys):
    command = ["plan", "-f", str(manifest(tmp_path)), "--models-dir", str(tmp_path)]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert "baseline (what runs today)" in table
    assert "2 slots" in table
    assert main([*command, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main([*command, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == document
    assert {row["candidate"]["parallel_slots"] for row in document["candidates"]} == {1, 2}
    assert all(row["memory_bytes"] > 0 and row["replicas_lower_bound"] >= 1 for row in document["candidates"])


def test_a_valid_manifest_is_said_to_be_valid_by_name(tmp_path, capsys):
    assert main(["validate", "-f", str(manifest(tmp_path, model=False))]) == 0
    assert capsys.readouterr().out == "tiny: valid\n"


ARGS = "template__spec__containers__0__args"
IMAGE = "template__spec__containers__0__image"


def test_a_manifest_is_checked_down_to_the_flags_of_its_server(tmp_path, capsys):
    kept = manifest(tmp_path, model=False, **{ARGS: ["-m", "/models/f16.gguf", "--fork-flag", "1"]})
    assert main(["validate", "-f", str(kept)]) == 0
    assert "--fork-flag is no flag of llama-server that slotune knows: it is kept" in capsys.readouterr().err

    removed = {ARGS: ["-m", "/models/f16.gguf", "--mlock"]}
    tagged = manifest(tmp_path, model=False, **removed, **{IMAGE: "ghcr.io/ggml-org/llama.cpp:server-b11434"})
    assert main(["validate", "-f", str(tagged)]) == 2
    assert "use -lm mlock" in capsys.readouterr().err

    silent = manifest(tmp_path, model=False, **removed, **{IMAGE: "ghcr.io/ggml-org/llama.cpp@sha256:0ab1"})
    assert main(["validate", "-f", str(silent)]) == 0
    assert "Nothing says which build of llama.cpp the image is of. --mlock is known up to" in capsys.readouterr().err

    router = manifest(tmp_path, model=False, **{ARGS: ["--models-dir", "/models"]})
    assert main(["validate", "-f", str(router)]) == 2
    assert "makes llama-server a router" in capsys.readouterr().err


def test_variants_are_made_once_and_printed(demo_model, tmp_path, capsys):
    command = ["engine", "requantize", str(demo_model), "--to", "Q8_0", "--out", str(tmp_path)]
    assert main(command) == 0
    (made,) = tmp_path.glob("*.gguf")
    assert capsys.readouterr().out == f"{made}\n"
    before = made.stat().st_mtime_ns
    assert main(command) == 0
    assert made.stat().st_mtime_ns == before
    assert main(["engine", "requantize", str(demo_model), "--to", "Q3_K", "--out", str(tmp_path)]) == 2
    assert "F16, Q8_0, Q4_0" in capsys.readouterr().err


def test_a_file_that_slotune_did_not_make_is_never_replaced(demo_model, tmp_path, capsys):
    command = ["engine", "requantize", str(demo_model), "--to", "Q8_0", "--out", str(tmp_path)]
    assert main(command) == 0
    (made,) = tmp_path.glob("*.gguf")
    made.write_bytes(demo_model.read_bytes())
    capsys.readouterr()
    assert main(command) == 2
    assert made.name in capsys.readouterr().err
    assert made.stat().st_size == demo_model.stat().st_size


@pytest.mark.engine
def test_the_engine_that_would_run_is_named(capsys):
    assert main(["engine", "describe", "--engine", "embedded"]) == 0
    assert "xllamacpp" in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["engine"]])
def test_without_a_command_the_help_is_shown(command, capsys):
    assert main(command) == 2
    assert "usage: slotune" in capsys.readouterr().out
