"""Argo CD shows a LlamaDeployment as people would call it. The script runs in the Lua that Argo CD follows, 5.1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from e2e.node.places import CHECKOUT

SCRIPT = CHECKOUT / "docs" / "argocd-health.lua"

HARNESS = """
string = nil  -- Argo CD's Lua has none
obj = {object}
local found = dofile({script})
print(found.status)
print(found.message)
"""


@pytest.fixture(scope="module")
def lua() -> str:
    """The interpreter. Nobody may skip this in CI, where CI is set."""
    if found := shutil.which("lua5.1"):
        return found
    reason = "there is no Lua 5.1, so no health was looked at: install it (on Debian: apt-get install lua5.1)"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def table(value: Any) -> str:
    """A value as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{table(key)}] = {table(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(table(held) for held in value) + "}"
    return json.dumps(value)


def condition(kind: str, status: str, reason: str = "Because") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": f"{kind} says so"}


def deployment(
    *conditions: dict[str, Any], generation: int = 2, observed: int = 2, suspend: bool | None = None
) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "spec": {} if suspend is None else {"suspend": suspend},
        "status": {"observedGeneration": observed, "conditions": list(conditions)},
    }


READY = condition("Ready", "True")
NOT_READY = condition("Ready", "False")


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param({"metadata": {"generation": 1}, "spec": {}}, "Progressing", id="just applied"),
        pytest.param(deployment(READY), "Healthy", id="ready"),
        pytest.param(deployment(READY, suspend=False), "Healthy", id="ready and told not to be suspended"),
        pytest.param(deployment(READY, generation=3), "Progressing", id="ready, for an older spec"),
        pytest.param(deployment(READY, suspend=True), "Suspended", id="suspended"),
        pytest.param(
            deployment(condition("Stalled", "True"), NOT_READY, generation=3), "Progressing", id="being cured"
        ),
        pytest.param(deployment(NOT_READY, condition("Stalled", "True")), "Degraded", id="infeasible"),
        pytest.param(deployment(NOT_READY, condition("Reconciling", "True")), "Progressing", id="searching"),
        pytest.param(deployment(READY, condition("Stalled", "False")), "Healthy", id="a condition that is not so"),
        pytest.param(deployment(condition("Ready", "False", "AwaitingApproval")), "Suspended", id="awaits approval"),
        pytest.param(deployment(condition("Ready", "Unknown", "Pending")), "Progressing", id="pending"),
        pytest.param(deployment(condition("SLOMet", "True")), "Progressing", id="no word on readiness"),
    ],
)
def test_health_is_what_a_person_would_call_it(lua: str, obj: dict[str, Any], want: str) -> None:
    program = HARNESS.format(object=table(obj), script=json.dumps(str(SCRIPT)))
    ran = subprocess.run([lua, "-"], input=program, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    status, message = ran.stdout.splitlines()
    assert status == want
    assert message != "nil"
