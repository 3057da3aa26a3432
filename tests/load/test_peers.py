"""How load generators are compared: what counts as the best of them, and what a whole tree of processes takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench import NOT_RUN, peers
from bench.peer_tools import OURS, PEERS, Reported, Run, Tool
from bench.peers import Row, Spent, ToolFailedError, judge, run_measured
from tests.sandbox.processes import running, until

GUIDELLM, AIPERF, INFERENCE_PERF = PEERS


def row(tool: Tool, p95: float, p99: float, cpu_s: float, *, answers: int = 2000, sent: float = 100.0) -> Row:
    run = Run("http://127.0.0.1:1", 100.0, 20.0, Path(), Path())
    return Row(
        tool,
        run,
        Reported(p95, p99, answers),
        Spent(cpu_s, 100.0),
        {"requests_per_s": sent, "first_ms": {"p95": 200.0, "p99": 200.0}},
    )


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param(
            [row(OURS, 203, 205, 10), row(AIPERF, 210, 216, 21), row(GUIDELLM, 900, 990, 5)],
            True,
            id="a third of the best peer's error and half its CPU is enough, whatever a worse one costs",
        ),
        pytest.param(
            [row(OURS, 203, 205, 10), row(AIPERF, 208, 216, 21)], False, id="each percentile has to reach the goal"
        ),
        pytest.param([row(OURS, 203, 205, 11), row(AIPERF, 210, 216, 21)], False, id="the CPU has to reach it too"),
        pytest.param(
            [row(OURS, 203, 205, 10), row(AIPERF, 210, 216, 21), row(GUIDELLM, 201, 201, 30, sent=60)],
            True,
            id="a peer that sent less than it was asked to is not the best",
        ),
        pytest.param(
            [row(OURS, 203, 205, 10, answers=900), row(AIPERF, 210, 216, 21)], False, id="nor do we pass with less"
        ),
        pytest.param(
            [row(OURS, 197, 195, 10), row(AIPERF, 190, 184, 21)], True, id="too small a time is as wrong as too large"
        ),
        pytest.param([row(OURS, 203, 205, 10)], False, id="without a peer there is nothing to pass against"),
    ],
)
def test_the_best_peer_is_who_has_to_be_beaten(rows: list[Row], want: bool) -> None:
    assert judge(rows) is want


PARENT_WITH_CHILD = """
import subprocess, sys, time
def burn(seconds):
    held = bytearray(64 * 2**20)
    while time.process_time() < seconds: pass
if len(sys.argv) > 1: burn(1.0)
else:
    child = subprocess.Popen([sys.executable, sys.argv[0], "child"], start_new_session=False)
    burn(0.3)
    child.wait()
"""


def test_children_count_in_the_cpu_and_the_memory_of_a_tool(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT_WITH_CHILD)

    spent = run_measured([sys.executable, "parent.py"], tmp_path, dict(os.environ), limit_s=30)

    assert 1.25 < spent.cpu_s < 2.5
    assert spent.mib > 128


def test_a_tool_that_fails_says_how_with_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(ToolFailedError, match=r"ended with 2\. no such tokenizer"):
        run_measured(
            [sys.executable, "-c", "import sys; print('no such tokenizer'); sys.exit(2)"], tmp_path, {}, limit_s=30
        )


def test_a_tool_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = "import pathlib, os, time; pathlib.Path('child').write_text(str(os.getpid())); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"

    with pytest.raises(ToolFailedError, match="not done after 3 s"):
        run_measured([sys.executable, "-c", parent], tmp_path, {}, limit_s=3)

    child_pid = int((tmp_path / "child").read_text())
    until(lambda: not running(child_pid))


def test_without_the_tools_it_says_how_to_get_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["peers", "--venvs", str(tmp_path)])

    assert peers.main() == NOT_RUN

    told = capsys.readouterr().out
    assert f"uv venv --python 3.12 {tmp_path}/inference-perf" in told
    for tool in PEERS:
        assert f"uv pip install --python {tmp_path}/{tool.name}/bin/python {tool.name}=={tool.version}" in told
