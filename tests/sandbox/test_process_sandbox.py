"""A trial on a real llama.cpp: what was asked is what ran, the parts add up, and every end is told apart."""

from __future__ import annotations

import asyncio
import contextlib
import stat
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.failures import FailureClass
from slotune.load.demand import SyntheticPrompts
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.sandbox.protocol import Measured, Progress
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial
from slotune.verdict.verdicts import Outcome
from tests.sandbox.worlds import candidate, problem
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.engine


async def measure(space: Problem, model: Path, home: Path, trial: Trial, **more: object) -> Measured:
    engine = more.pop("engine", "embedded")
    sandbox = ProcessSandbox(space, find_engine(str(engine)), {"only": model}, home, **more)  # type: ignore[arg-type]  # any of its options
    return await sandbox.measure(trial, lambda _: None)


async def test_a_sentinel_only_probes(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()
    trial = Trial(one, 2.0, purpose=Purpose.SENTINEL)
    measured = await measure(problem(model, one), model, tmp_path, trial)
    assert measured.runs == ()
    assert measured.result.probe is not None


async def test_progress_tells_the_stages_in_order(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()
    space = problem(model, one, rate=20.0)
    heard: list[Progress] = []
    sandbox = ProcessSandbox(space, find_engine("embedded"), {"only": model}, tmp_path)
    await sandbox.measure(Trial(one, 20.0, confidence=0.6), heard.append)
    stages = list(dict.fromkeys(progress.stage for progress in heard))
    assert stages == ["starting", "probing", "warming up", "measuring", "stopping"]
    assert max(p.requests_done for p in heard) >= 12
    left = [p.remaining_worst_s for p in heard if p.remaining_worst_s is not None]
    assert left[0] > left[-1] >= 0


async def test_time_that_runs_out_is_inconclusive_not_a_pass(tmp_path, monkeypatch):
    # The gates judge this machine, which may be busy; what is tested is the verdict when they have nothing to say.
    monkeypatch.setattr("slotune.load.client.check_run", lambda *_: [])
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()
    space = problem(model, one, rate=0.5)
    measured = await measure(space, model, tmp_path, Trial(one, 0.5, confidence=0.6, time_limit_s=6.0))
    assert measured.result.verdict.outcome is Outcome.INCONCLUSIVE
    assert measured.result.verdict.requests < measured.result.planned_requests
    assert measured.result.gpu_seconds < 20


async def test_a_time_out_of_ours_is_invalid_not_a_trial_whose_time_was_up(tmp_path, monkeypatch):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()

    async def broken(*_: object, **__: object) -> None:
        raise TimeoutError("connection timed out")

    monkeypatch.setattr("slotune.sandbox.process_sandbox.measure_server", broken)
    measured = await measure(problem(model, one), model, tmp_path, Trial(one, 2.0))
    assert (measured.result.verdict.outcome, measured.result.verdict.code) == (Outcome.INVALID, "SandboxBroken")


async def test_a_start_that_takes_longer_than_the_trial_may_is_inconclusive(tmp_path, monkeypatch):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()

    async def slow(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("slotune.sandbox.process_sandbox.measure_server", slow)
    monkeypatch.setattr("slotune.sandbox.process_sandbox.LIMIT_GRACE_S", 0.5)
    measured = await measure(problem(model, one), model, tmp_path, Trial(one, 2.0, time_limit_s=2.0))
    assert (measured.result.verdict.outcome, measured.result.verdict.code) == (Outcome.INCONCLUSIVE, "TimeLimit")


async def test_a_flag_that_the_engine_refuses_names_the_flag(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate(extra_args=("--mlock-everything",))
    measured = await measure(problem(model, one), model, tmp_path, Trial(one, 2.0))
    assert measured.result.failure is FailureClass.BAD_FLAG
    assert "--mlock-everything" in measured.result.verdict.reason


async def test_a_model_that_does_not_load_is_said_to_be_unreadable(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()
    space = problem(model, one)
    model.write_bytes(model.read_bytes()[:-5000])
    measured = await measure(space, model, tmp_path, Trial(one, 2.0))
    assert measured.result.failure is FailureClass.MODEL_UNREADABLE
    assert measured.result.log_tail


async def test_prompts_that_no_slot_can_hold_fail_the_candidate_with_the_reason(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()
    space = problem(model, one, prompts=SyntheticPrompts(600))
    measured = await measure(space, model, tmp_path, Trial(one, 2.0))
    assert (measured.result.verdict.outcome, measured.result.verdict.code) == (Outcome.FAIL, "ContextTooSmall")


async def test_cancelling_a_trial_stops_its_server(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate()
    space = problem(model, one, rate=1.0)
    measuring = asyncio.Event()
    sandbox = ProcessSandbox(space, find_engine("embedded"), {"only": model}, tmp_path)
    trial = Trial(one, 1.0, confidence=0.6)
    task = asyncio.create_task(
        sandbox.measure(trial, lambda progress: measuring.set() if progress.stage == "measuring" else None)
    )
    await asyncio.wait_for(measuring.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(str(model).encode() in words for words in _command_lines())


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield path.read_bytes()


WEDGED = '''
    #!{python}
    """Answers /health with 200 for ever, takes requests, and does nothing (ggml-org/llama.cpp#27388)."""
    import json, sys, threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    if "--version" in sys.argv:
        print("version: 1 (wedged)")
        sys.exit(0)
    alias = sys.argv[sys.argv.index("--alias") + 1]
    answers = {{
        "/health": {{"status": "ok"}},
        "/props": {{"total_slots": 2, "default_generation_settings": {{"n_ctx": 256}}, "build_info": "b1"}},
        "/slots": [{{"id": n, "n_ctx": 256, "is_processing": False}} for n in range(2)],
        "/v1/models": {{"data": [{{"id": alias, "meta": {{"n_vocab": 512}}}}]}},
    }}
    stuck = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_): pass
        def do_GET(self):
            if stuck.is_set() and self.path != "/health":
                threading.Event().wait(120)
            body = json.dumps(answers.get(self.path, {{}})).encode()
            self.send_response(200 if self.path in answers else 501)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def do_POST(self):
            stuck.set()
            threading.Event().wait(120)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.serve_forever()
'''


async def test_a_server_that_wedges_behind_a_healthy_health_is_given_up(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    script = tmp_path / "llama-server"
    script.write_text(textwrap.dedent(WEDGED.format(python=sys.executable)).lstrip())
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    one: Candidate = candidate()
    measured = await measure(
        problem(model, one), model, tmp_path, Trial(one, 2.0, confidence=0.6), engine=script, wedge_limit_s=3.0
    )
    assert measured.result.failure is FailureClass.WEDGED
    assert "no token" in measured.result.verdict.reason
    assert measured.result.gpu_seconds < 40
