"""How does the operator carry a thousand LlamaDeployments? They are on a real API server, and suspended.

It is started twice: first it has to write a finalizer and a status for each, the second time there is nothing to write.
Then it is left alone for a minute. Each of its requests is counted from the API server's audit log, a watch too, once,
when it begins.

    python -m bench fleet

Goals: all reconciled within 15 s of either start, under 200 MiB, under 5 requests/s when idle, and no write at all once
they have converged. Kubernetes is built for it once, which takes minutes.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.control_plane import ControlPlane, control_plane
from e2e.manifests import llama_deployment, server_template
from e2e.node.programs import MissingProgramsError, build_programs
from e2e.operator_process import OperatorProcess
from slotune.api.documents import read_documents
from slotune.api.v1alpha1.meta import API_VERSION

ROOT = Path(__file__).resolve().parent.parent

FLEET = 1000
NAMESPACES = 10
IDLE_S = 60.0
START_LIMIT_S = 15.0
MEMORY_LIMIT_MIB = 200.0
IDLE_LIMIT_PER_S = 5.0
GIVE_UP_S = 180.0
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the operator."""

    ready_s: float
    """From the start of the process until every LlamaDeployment was looked at and says so."""
    peak_mib: float
    """The most memory that it held at once (resident set)."""
    until_ready: Counter[str]
    """Requests in that time, by verb and resource."""
    idle: Counter[str]
    """Requests in the minute after that."""
    looks: int
    """Reconciles altogether."""
    cpu_s: float
    """Processor time of the operator until all was reconciled."""
    api_cpu_s: float
    """The API server's in that time."""


def main() -> int:
    """Prints the figures of both lives beside their goals; 1 when one is missed."""
    try:
        programs = build_programs()
    except MissingProgramsError as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="slotune-fleet-") as scratch, control_plane(programs, Path(scratch)) as at:
        make_fleet(at)
        first = live(at, Path(scratch))
        before = versions(at)
        second = live(at, Path(scratch))
        changed = sum(before[name] != version for name, version in versions(at).items())
    lives = (first, second)
    needless = [writes(first.idle), writes(second.until_ready) + writes(second.idle) + changed]
    goals: list[tuple[str, list[float], float]] = [
        ("all reconciled after, s", [life.ready_s for life in lives], START_LIMIT_S),
        ("most memory, MiB", [life.peak_mib for life in lives], MEMORY_LIMIT_MIB),
        ("requests/s when idle", [life.idle.total() / IDLE_S for life in lives], IDLE_LIMIT_PER_S),
        ("writes once converged", [float(count) for count in needless], 1),
    ]
    table = Table("", "first start", "restart", "goal", "")
    for what, figures, limit in goals:
        word = "ok" if max(figures) < limit else "MISSED"
        table.add_row(what, *(f"{figure:.3g}" for figure in figures), f"< {limit:g}", word)
    table.add_row("requests until reconciled", *(str(life.until_ready.total()) for life in lives), "", "")
    table.add_row("of them writes", *(str(writes(life.until_ready)) for life in lives), "", "")
    table.add_row("looks", *(str(life.looks) for life in lives), "", "")
    table.add_row("CPU of the operator, s", *(f"{life.cpu_s:.3g}" for life in lives), "", "")
    table.add_row("CPU of the API server, s", *(f"{life.api_cpu_s:.3g}" for life in lives), "", "")
    Console(width=100).print(table)
    for name, life in (("first start", first), ("restart", second)):
        print(f"requests of the {name}: {dict(life.until_ready)}; in {IDLE_S:g} s when idle: {dict(life.idle)}")
    print(f"load average of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0 if all(max(figures) < limit for _, figures, limit in goals) else 1


def make_fleet(at: ControlPlane) -> None:
    """A thousand LlamaDeployments as users write them, each with its own pod template, and suspended."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        definition = read_documents(path.name, path.read_bytes())[0][0].data
        at.apply(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}", definition
        )
    plurals = ("llamadeployments", "llamatrials", "llamaworkloads", "gpuclasses")
    served = [f"/apis/{API_VERSION}/{plural}" for plural in plurals]
    until(lambda: all(at.client.get(path).is_success for path in served), "the kinds are served")
    for number in range(NAMESPACES):
        name = f"team-{number}"
        at.apply(f"/api/v1/namespaces/{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    template = server_template("ghcr.io/ggml-org/llama.cpp:server")

    def make(number: int) -> None:
        namespace, name = f"team-{number % NAMESPACES}", f"chat-{number}"
        manifest = llama_deployment(name, "l4", template=template, suspend=True)
        manifest["metadata"]["namespace"] = namespace
        at.apply(f"/apis/{API_VERSION}/namespaces/{namespace}/llamadeployments/{name}", manifest)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(FLEET)))


def live(at: ControlPlane, folder: Path) -> Life:
    """Start the operator, wait until all is reconciled, leave it alone for a minute, and end it."""
    operator = OperatorProcess(at.kubeconfig, "slotune:bench", folder / "operator.log")
    asked_before, api_before = len(at.requests()), cpu_s(at.pid)
    began = time.monotonic()
    operator.start(wait=False)
    try:
        until(lambda: looks(operator) >= FLEET and all(map(is_reconciled, listed(at))), "all are reconciled", operator)
        ready_s, spent, api_spent = time.monotonic() - began, cpu_s(operator.pid), cpu_s(at.pid) - api_before
        until_ready = at.requests()[asked_before:]
        time.sleep(IDLE_S)
        idle = at.requests()[asked_before + len(until_ready) :]
        peak = operator.peak_memory_mib()
        return Life(ready_s, peak, Counter(until_ready), Counter(idle), looks(operator), spent, api_spent)
    finally:
        operator.terminate()


def cpu_s(pid: int) -> float:
    """Processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(check: Callable[[], bool], what: str, operator: OperatorProcess | None = None) -> None:
    """Wait for it, and look often: the time is what is measured."""
    deadline = time.monotonic() + GIVE_UP_S
    while not check():
        if time.monotonic() > deadline or (operator is not None and not operator.is_running()):
            log = "" if operator is None else operator.log.read_text()[-2000:]
            raise RuntimeError(f"not within {GIVE_UP_S:g} s: {what}. {log}")
        time.sleep(0.1)


def looks(operator: OperatorProcess) -> int:
    """Reconciles that ended well so far, as the operator's own metrics count them."""
    try:
        with _DIRECT.open(f"http://127.0.0.1:{operator.metrics_port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return 0
    found = re.search(r'^slotune_reconcile_total\{result="ok"\} (\S+)$', text, re.MULTILINE)
    return 0 if found is None else int(float(found[1]))


def listed(at: ControlPlane) -> list[dict[str, Any]]:
    """Every LlamaDeployment."""
    answer = at.client.get(f"/apis/{API_VERSION}/llamadeployments")
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def is_reconciled(deployment: dict[str, Any]) -> bool:
    """Whether the status says that it is suspended, for the generation that it has."""
    status = deployment.get("status", {})
    suspended = any(one["type"] == "Ready" and one["reason"] == "Suspended" for one in status.get("conditions", ()))
    return suspended and status["observedGeneration"] == deployment["metadata"]["generation"]


def versions(at: ControlPlane) -> dict[str, str]:
    """The resourceVersion of each: it changes with every write."""
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in listed(at)}


def writes(requests: Counter[str]) -> int:
    """How many of them change something."""
    return sum(count for what, count in requests.items() if what.split()[0] in WRITES)


if __name__ == "__main__":
    sys.exit(main())
