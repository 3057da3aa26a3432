"""A recorded template has no key in it, and comes back whole from the one that runs."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from slotune.rollout.facts import template_digest
from slotune.rollout.last_good import LastGoodLostError, template_from_record, template_record
from tests.rollout.objects import owner

SECRETS = ("sk-first", "sk-second", "sk-third", "sk-fourth", "sk-fifth", "sk-sixth")


def pods() -> dict[str, Any]:
    headers = [{"name": "Authorization", "value": "Bearer sk-fourth"}]
    env = [
        {"name": "LLAMA_API_KEY", "value": "sk-first"},
        {"name": "OTHER", "value": "sk-fifth"},
        {"name": "SLOTS", "value": "4"},
        {"name": "LLAMA_ARG_UBATCH", "value": "512"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    args = ["-m", "/m.gguf", "--api-key", "sk-second", "-np", "$(SLOTS)", "-c", "512"]
    probe = {"httpGet": {"path": "/health", "port": 8080, "httpHeaders": headers}}
    server = {"name": "llama", "image": "llama:1", "args": args, "env": env, "livenessProbe": probe}
    script = {"name": "proxy", "command": ["sh", "-c", "run --password sk-sixth"], "args": ["--token=sk-third"]}
    return {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [server, script]}}


def candidate_of(before: dict[str, Any]) -> dict[str, Any]:
    """The template after a rollout, and after its user gave it another image."""
    after = copy.deepcopy(before)
    server = after["spec"]["containers"][0]
    server["image"] = "llama:2"
    server["args"] = ["-m", "/q4.gguf", *server["args"][2:6], "-fa", "on"]
    server["env"][2]["value"], server["env"][3]["value"] = "16", "1024"
    server["env"].append({"name": "LLAMA_ARG_N_PARALLEL", "value": "16"})
    return after


def test_no_key_is_written_down_and_the_template_comes_back_whole() -> None:
    before = pods()
    record = template_record(owner(), before)
    assert not [secret for secret in SECRETS if secret in json.dumps(record)]
    assert "llama:1" in json.dumps(record)
    assert template_from_record(record, "chat", template_digest(before), candidate_of(before)) == before


@pytest.mark.parametrize("change", ["another value", "no such variable", "no such flag"])
def test_a_key_that_somebody_changed_meanwhile_is_said_and_none_is_made_up(change: str) -> None:
    before = pods()
    running = candidate_of(before)
    server = running["spec"]["containers"][0]
    match change:
        case "another value":
            server["env"][0]["value"] = "sk-new"
        case "no such variable":
            del server["env"][0]
        case _:
            del server["args"][2:4]
    with pytest.raises(LastGoodLostError):
        template_from_record(template_record(owner(), before), "chat", template_digest(before), running)
