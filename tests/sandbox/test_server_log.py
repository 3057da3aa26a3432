"""What a trial's server logs becomes findings of the trial, as a diagnosis of that log has them: bounded, and no
prompt among them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotune.cli import main
from slotune.diagnose.findings import trial_findings
from slotune.llama.engine import find_engine
from slotune.load.demand import SyntheticPrompts
from slotune.sandbox.judgement import Ended
from slotune.sandbox.pod_case import CLIENT_END, server_head, server_tail
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.sandbox.report_stream import result_frames
from slotune.sandbox.server_log import read_story, story_of
from slotune.search.trial import Trial
from slotune.tuning.trial_objects import completed_status
from slotune.verdict.verdicts import Outcome
from tests.sandbox.pods import ended, job, pod, with_state
from tests.sandbox.test_pod_outcome import AS_READY, PASSED, READY, judge
from tests.sandbox.worlds import candidate, problem
from tests.tiny_models import write_tiny_model

LOGS = Path(__file__).parent.parent / "llama" / "logs"
REQUESTS = (LOGS / "served_four.log").read_text()
WHEN = "2026-01-31T12:00:00Z"


@pytest.mark.engine
async def test_a_trial_names_what_a_diagnosis_of_its_log_names(tmp_path, capsys):
    """Prompts that are longer than a slot: the client only sees errors, and the log says why."""
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate(context_per_slot=256)
    space = problem(model, one, rate=10.0, prompts=SyntheticPrompts(700))
    sandbox = ProcessSandbox(space, find_engine("embedded"), {"only": model}, tmp_path)
    result = (await sandbox.measure(Trial(one, 10.0, confidence=0.6), lambda _: None)).result
    status = completed_status(result, completed_at=WHEN, findings=trial_findings(space, result))
    said = {finding.id: finding for finding in status.findings}
    [log] = tmp_path.rglob("server.log")
    main(["diagnose", "--log", str(log), "-o", "json"])
    [server] = json.loads(capsys.readouterr().out)["servers"]
    diagnosed = {one["id"]: one for one in server["findings"] if one["severity"] != "Info"}
    assert "SLT031" in said, (result.verdict, status.findings)
    assert set(diagnosed) == {one.id for one in result.noticed}
    assert said["SLT031"].message == diagnosed["SLT031"]["sentence"]
    assert said["SLT031"].evidence.startswith("log:")


@pytest.mark.engine
async def test_a_healthy_trial_has_nothing_noticed(tmp_path):
    model = write_tiny_model(tmp_path / "m.gguf")
    one = candidate(cache_ram_mib=64, cache_idle_slots=True)
    space = problem(model, one, rate=10.0, prompts=SyntheticPrompts(96, shared_prefix_tokens=64))
    sandbox = ProcessSandbox(space, find_engine("embedded"), {"only": model}, tmp_path)
    result = (await sandbox.measure(Trial(one, 10.0, confidence=0.6), lambda _: None)).result
    assert result.noticed == ()


def served(server: dict[str, Any], text: str = READY, **more: Any) -> Ended:
    """A trial in a pod that came to a result, on a container with these parts of a spec."""
    done = with_state(pod(), "load-client", ended(0))
    next(one for one in done["spec"]["initContainers"] if one["name"] == "llama").update(server)
    result = replace(PASSED, trial=AS_READY)
    logs = {
        CLIENT_END: b"".join(result_frames(result)).decode(),
        server_head("llama", previous=False): text,
        server_tail("llama", previous=False): text[-2000:],
    }
    judged = judge(done, job(), logs, AS_READY, **more)
    assert isinstance(judged, Ended)
    return judged


def ids(judged: Ended) -> list[str]:
    return [one.id for one in judged.result.noticed]


def test_a_pods_limits_are_held_against_its_servers_arguments():
    args = ["-m", "/m.gguf", "-np", "3", "-t", "16", "-tb", "16", "-cram", "8192", "-lv", "4"]
    small = {"command": ["/app/llama-server"], "args": args, "resources": {"limits": {"cpu": "2", "memory": "4Gi"}}}
    without_threads = "\n".join(line for line in READY.splitlines() if "n_threads" not in line)
    assert "SLT060" in ids(served(small, without_threads))
    roomy = small | {"resources": {"limits": {"cpu": "32", "memory": "64Gi"}}}
    assert ids(served(roomy, without_threads)) == []
    assert ids(served({"resources": {"limits": {"cpu": "what", "memory": "?"}}})) == []


def test_a_healthy_pod_has_nothing_noticed_and_one_that_refused_requests_has():
    assert ids(served({})) == []
    refused = served({}, READY + REQUESTS[REQUESTS.index("listening") :])
    assert ids(refused) == ["SLT031"]
    assert refused.result.verdict.outcome is Outcome.PASS, "what is noticed changes no verdict"


def test_no_secret_of_a_pod_is_told():
    keys = {
        "args": ["-t", "64", "--api-key", "tops3cret"],
        "env": [{"name": "LLAMA_API_KEY", "value": "tops3cret"}, {"name": "LLAMA_ARG_THREADS", "value": "64"}],
        "resources": {"limits": {"cpu": "1"}},
    }
    judged = served(keys)
    assert "tops3cret" not in repr(judged.result.noticed)
    assert "tops3cret" not in repr(judged)


def test_a_long_log_is_read_at_both_ends(tmp_path):
    path = tmp_path / "server.log"
    filler = "0.01.609.283 I slot print_timing: id  1 | task 1 |    graphs reused =          7\n" * 3000
    path.write_text(READY + filler + REQUESTS[REQUESTS.index("listening") :])
    whole, ends = read_story(path), read_story(path, most=64 * 1024)
    assert whole is not None
    assert ends is not None
    assert whole.lines > 3000 > ends.lines
    assert ends.facts.slots == whole.facts.slots is not None
    assert ends.seen.keys() == whole.seen.keys()


def test_a_log_that_is_gone_or_empty_tells_nothing(tmp_path):
    assert read_story(tmp_path / "server.log") is None
    (tmp_path / "server.log").write_bytes(b"")
    assert read_story(tmp_path / "server.log") is None
    assert story_of([]) is None
