"""The saved document is plain data that says what the decision says and nothing that it should not."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest
import yaml

from slotune.load.demand import Prompt
from slotune.report.document import SCHEMA, to_document
from slotune.search.decision import Decision
from slotune.search.trial import TrialResult
from tests.report.samples import ALL, Sample, infeasible, worked_example


def document(sample: Sample) -> dict[str, Any]:
    return to_document(
        sample.problem,
        sample.decision,
        sample.results,
        flags=sample.flags,
        findings=sample.findings,
        generated_at="2026-02-03T11:42:00Z",
        version="1.2.3",
    )


@pytest.mark.parametrize("name", ALL)
def test_it_survives_json_and_yaml(name: str) -> None:
    made = document(ALL[name]())
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert yaml.safe_load(yaml.safe_dump(made, sort_keys=False)) == made


@pytest.mark.parametrize("name", ALL)
def test_every_ending_has_the_same_keys_in_the_same_order(name: str) -> None:
    made, other = document(ALL[name]()), document(worked_example())
    assert list(made) == list(other)
    assert list(made["decision"]) == list(other["decision"])
    for trial in made["trials"]:
        assert list(trial) == list(other["trials"][0])


def test_it_states_its_version_and_the_decision() -> None:
    made = document(worked_example())
    assert made["schema"] == SCHEMA == "slotune.dev/report/v1"
    assert made["decision"]["kind"] == "Found"
    choice = made["decision"]["choice"]
    assert Decimal(choice["monthly_cost"]) == Decimal(1460)
    assert choice["replicas"] == 1
    assert choice["candidate"]["label"] == "16 slots, prefix cache, Q8_0, KV q8_0"
    assert choice["candidate"]["parallel_slots"] == 16
    assert [step["monthly_cost"] for step in made["decision"]["steps"]] == ["7300.00", "5840.00", "2920.00", "1460.00"]
    assert made["hardware"]["a100-40g"]["price_per_hour"] == "2.00"
    assert len(made["decision"]["rejections"]) == len(worked_example().decision.rejections)


def test_a_trial_stands_once_and_is_named_by_its_key() -> None:
    sample = worked_example()
    made = document(sample)
    keys = [trial["key"] for trial in made["trials"]]
    assert len(keys) == len(set(keys))
    named = [made["decision"]["choice"]["trial"], made["decision"]["baseline_trial"]]
    named += [step["trial"] for step in made["decision"]["steps"]]
    assert set(named) <= set(keys)
    first = made["trials"][0]
    assert first["verdict"]["outcome"] == "Fail"
    assert first["findings"][0].startswith("The queue is 1.4 s")


def test_a_trial_that_only_the_decision_knows_is_there_too() -> None:
    sample = infeasible()
    made = document(replace(sample, results=()))
    assert made["decision"]["nearest_trial"] in [trial["key"] for trial in made["trials"]]


def test_flags_without_a_choice_are_not_saved() -> None:
    assert document(replace(infeasible(), flags=("-np", "4")))["flags"] == []


def test_no_prompt_no_log_no_secret_and_no_path_gets_in() -> None:
    sample = worked_example()
    demand = replace(
        sample.problem.demand, synthetic=None, prompts=(Prompt("my private prompt", ({"content": "my chat"},)),)
    )
    text = json.dumps(document(replace(sample, problem=replace(sample.problem, demand=demand))))
    for secret in ("private prompt", "my chat", "a log line", "secret-place"):
        assert secret not in text
    assert json.loads(text)["demand"]["recorded_prompts"] == 1
    hostile = ALL["hostile"]()
    assert "top-secret" not in json.dumps(document(replace(hostile, flags=("--api-key=top-secret",))))


def test_every_fact_of_a_decision_and_of_a_trial_is_saved() -> None:
    made = document(worked_example())
    renamed = {"baseline_result": "baseline_trial", "nearest": "nearest_trial"}
    assert {renamed.get(f.name, f.name) for f in fields(Decision)} == set(made["decision"])
    left_out = {"trial", "log_tail", "noticed"}  # what was noticed is among its findings
    assert {f.name for f in fields(TrialResult)} - left_out <= set(made["trials"][0])
