"""The load client of a trial's pod, as its container runs it: on a real llama.cpp, and when everything goes wrong."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from slotune.llama.engine import find_engine
from slotune.llama.flags import to_args
from slotune.quality.reference import Reference
from slotune.sandbox.process import HOST, LlamaProcess, new_alias
from slotune.sandbox.report_stream import ClientLog, parse_client_log, result_from_summary
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.pod_client import TrialFiles, measure_beside, measuring_limit_s, read_trial_files
from slotune.tuning.trial_objects import trial_of
from slotune.verdict.verdicts import Outcome
from tests.sandbox.fake_nvml import FakeDevice, FakeNvml
from tests.sandbox.test_reference_check import reference as recorded
from tests.sandbox.trials import SPEC, trial
from tests.tiny_models import write_tiny_model

LIMIT_S = 60.0
PROMPTS = b'{"text": "the secret words of a user"}\n{"text": "and of another one"}\n'


def write_trial(directory: Path, **spec: Any) -> Path:
    directory.mkdir()
    (directory / "trial.json").write_text(json.dumps(trial(**spec).spec.to_manifest()))
    return directory


@asynccontextmanager
async def server(tmp_path: Path) -> AsyncIterator[LlamaProcess]:
    """A real llama.cpp with a tiny model, as the sidecar would have it."""
    model = write_tiny_model(tmp_path / "m.gguf")
    alias = new_alias()
    asked = trial_of(trial().spec).candidate
    args = to_args(asked, model_path=str(model), host=HOST, port=0, alias=alias, threads=1)
    async with LlamaProcess(find_engine("embedded"), args, directory=tmp_path / "server", alias=alias) as process:
        yield process


async def client(directory: Path, port: int) -> asyncio.subprocess.Process:
    end = directory / "end"
    end.touch()
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "slotune.cli", "trial", "--directory", str(directory), "--port", str(port),
        "--termination-log", str(end),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def said(process: asyncio.subprocess.Process, directory: Path) -> tuple[ClientLog, str]:
    out, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    return parse_client_log(out.decode(), trial_of(read_trial_files(directory).spec)), out.decode()


def port_of(process: LlamaProcess) -> int:
    return int(process.base_url.rpartition(":")[2])


@pytest.mark.engine
async def test_a_real_server_is_measured_and_all_of_it_arrives(tmp_path):
    directory = write_trial(tmp_path / "slotune")
    async with server(tmp_path) as process:
        running = await client(directory, port_of(process))
        log, _ = await said(running, directory)
    assert running.returncode == 0
    assert log.result is not None
    # The gates judge this machine, which may be busy: what is tested is that a verdict on 24 requests arrives.
    assert log.result.verdict.requests or log.result.verdict.outcome is Outcome.INVALID
    assert log.result.probe is not None
    assert dict(log.result.effective)["parallelSlots"] == "2"
    assert log.progress is not None
    assert log.progress.stage == "stopping"
    assert log.record is not None
    assert len(gzip.decompress(log.record).splitlines()) >= 12
    summary = result_from_summary((directory / "end").read_bytes(), log.result.trial)
    assert summary is not None
    assert summary.verdict == log.result.verdict


@pytest.mark.engine
async def test_prompts_are_read_from_the_mounted_key_and_never_shown(tmp_path):
    workload = {
        "load": {"requestRate": "20"},
        "prompts": {"secretKeyRef": {"name": "prompts", "key": "p.jsonl"}},
        "output": {"tokens": 4},
    }
    directory = write_trial(tmp_path / "slotune", workload=workload)
    (directory / "prompts").write_bytes(PROMPTS)
    async with server(tmp_path) as process:
        log, text = await said(await client(directory, port_of(process)), directory)
    assert log.result is not None
    assert "secret words" not in text
    assert log.record is not None
    assert b"secret" not in gzip.decompress(log.record)


ANSWERS: dict[str, Any] = {
    "purpose": "Reference",
    "requestRate": "0",
    "measurement": SPEC["measurement"]
    | {"confidence": "0.9", "requestsPerRun": 30, "qualityPrompts": 2, "qualitySteps": 5},
    "workload": SPEC["workload"] | {"prompts": {"secretKeyRef": {"name": "prompts", "key": "p.jsonl"}}},
}


@pytest.mark.engine
async def test_answers_are_recorded_into_the_log_and_compared_by_the_next_pod(tmp_path):
    recording = write_trial(tmp_path / "records", **ANSWERS)
    (recording / "prompts").write_bytes(PROMPTS)
    async with server(tmp_path) as process:
        log, text = await said(await client(recording, port_of(process)), recording)
        assert log.result is not None
        assert log.reference is not None
        assert "secret words" not in text
        digest = log.result.reference
        assert (log.result.verdict.code, Reference.from_bytes(log.reference).digest) == ("ReferenceRecorded", digest)
        asked = ANSWERS | {"purpose": "Quality", "reference": {"configMap": "kept", "digest": digest}}
        comparing = write_trial(tmp_path / "compares", **asked)
        (comparing / "prompts").write_bytes(PROMPTS)
        (comparing / "reference").write_bytes(log.reference)
        found, _ = await said(await client(comparing, port_of(process)), comparing)
        (comparing / "reference").write_bytes(log.reference[:-1])
        changed, _ = await said(await client(comparing, port_of(process)), comparing)
        (comparing / "reference").unlink()
        gone, _ = await said(await client(comparing, port_of(process)), comparing)
    assert found.result is not None
    assert found.result.quality is not None
    assert found.result.quality.mean_kld < 1e-4
    assert found.result.quality.reference_digest == digest
    assert (found.result.quality.prompts, found.result.quality.positions) == (2, 10)
    assert found.result.quality.confidence == 0.9
    assert found.reference is None
    summary = result_from_summary((comparing / "end").read_bytes(), found.result.trial)
    assert summary is not None
    for log, code in ((changed, "ReferenceChanged"), (gone, "ReferenceMissing")):
        assert log.result is not None
        assert (log.result.verdict.outcome, log.result.verdict.code) == (Outcome.INVALID, code)


@pytest.mark.alone
@pytest.mark.engine
async def test_a_hot_gpu_that_the_pod_sees_is_on_record_and_faults_nobody_since_it_may_be_a_neighbours(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(FakeDevice(reasons=0x48, temperature=91)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # the client's own, which says nothing about the server
    # Seconds of load, so that the device is looked at.
    files = read_trial_files(write_trial(tmp_path / "slotune", requestRate="5"))
    async with server(tmp_path) as process:
        measured = await measure_beside(files, process.base_url, lambda _: None)
    result = measured.result
    assert result.verdict.outcome is not Outcome.INVALID
    assert result.device is not None
    assert not result.device.of_server
    assert result.device.uuids == ("GPU-11111111",)
    assert result.device.temperature_c is not None
    assert result.device.temperature_c.most == 91


@pytest.mark.engine
async def test_a_server_that_is_not_what_was_asked_for_is_not_measured(tmp_path):
    directory = write_trial(tmp_path / "slotune", candidate=SPEC["candidate"] | {"parallelSlots": 4})
    async with server(tmp_path) as process:
        log, _ = await said(await client(directory, port_of(process)), directory)
    assert log.result is not None
    assert log.result.verdict.code == "ConfigurationMismatch"
    assert "parallelSlots: asked for 4, the server has 2" in log.result.verdict.reason


@pytest.mark.engine
async def test_a_server_that_dies_in_the_middle_still_gets_a_result(tmp_path):
    directory = write_trial(tmp_path / "slotune", requestRate="1")
    async with server(tmp_path) as process:
        running = await client(directory, port_of(process))
        assert running.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            line = b""
            while b'"measuring"' not in line:
                line = await running.stdout.readline()
        await process.stop()
        log, _ = await said(running, directory)
    assert running.returncode == 0
    assert log.result is not None
    assert log.result.verdict.outcome is not Outcome.PASS


@pytest.mark.engine
async def test_sigterm_ends_it_with_a_word_and_without_a_result(tmp_path):
    directory = write_trial(tmp_path / "slotune", requestRate="1")
    async with server(tmp_path) as process:
        running = await client(directory, port_of(process))
        assert running.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            assert b'"probing"' in await running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        log, _ = await said(running, directory)
    assert running.returncode == 143
    assert (log.stopped, log.result) == ("SIGTERM", None)


async def test_no_server_at_all_is_invalid_and_still_reported(tmp_path):
    directory = write_trial(tmp_path / "slotune")
    running = await client(directory, 1)
    log, _ = await said(running, directory)
    assert running.returncode == 0
    assert log.result is not None
    assert (log.result.verdict.outcome, log.result.verdict.code) == (Outcome.INVALID, "ServerUnreachable")


async def test_without_a_trial_there_is_nothing_to_report(tmp_path):
    running = await client(tmp_path, 1)
    _, errors = await asyncio.wait_for(running.communicate(), LIMIT_S)
    assert running.returncode == 2
    assert b"trial.json" in errors


def quiet(_: object) -> None:
    """Nobody listens."""


SECRET_PROMPTS = SPEC["workload"] | {"prompts": {"secretKeyRef": {"name": "prompts", "key": "p.jsonl"}}}


NOT_MOUNTED = TrialFiles(trial(workload=SECRET_PROMPTS).spec)
BROKEN_LINE = TrialFiles(trial(workload=SECRET_PROMPTS).spec, b'{"text": "x"}\n{"te')
ANOTHER = TrialFiles(trial(workloadDigest="0" * 64).spec)


@pytest.mark.parametrize(
    ("files", "code", "word"),
    [
        pytest.param(NOT_MOUNTED, "WorkloadUnreadable", "not mounted", id="no prompts"),
        pytest.param(BROKEN_LINE, "WorkloadUnreadable", ":2:", id="a broken line"),
        pytest.param(ANOTHER, "WorkloadChanged", "changed", id="other prompts than it was made for"),
    ],
)
async def test_traffic_that_is_not_the_trials_own_is_never_sent(files, code, word):
    result = (await measure_beside(files, "http://127.0.0.1:1", quiet)).result
    assert (result.verdict.outcome, result.verdict.code) == (Outcome.INVALID, code)
    assert word in result.verdict.reason


def test_a_trial_of_a_newer_slotune_is_refused_with_the_cure(tmp_path):
    (tmp_path / "trial.json").write_text(json.dumps(trial().spec.to_manifest() | {"novelty": 1}))
    with pytest.raises(InvalidInputError, match="as new as the operator"):
        read_trial_files(tmp_path)


async def test_another_reference_than_the_trial_was_made_for_is_not_compared_with():
    asked = {"purpose": "Quality", "requestRate": "0", "reference": {"configMap": "kept", "digest": "0" * 64}}
    files = TrialFiles(trial(**asked).spec, reference=recorded().to_bytes())
    result = (await measure_beside(files, "http://127.0.0.1:1", quiet)).result
    assert (result.verdict.outcome, result.verdict.code) == (Outcome.INVALID, "ReferenceChanged")
    assert "is another one than was recorded" in result.verdict.reason


def test_a_look_at_answers_has_a_deadline_though_it_has_no_rate():
    asked = {"purpose": "Reference", "requestRate": "0"}
    assert 1800 < measuring_limit_s(trial(**asked).spec) < 7200
    assert measuring_limit_s(trial(timeLimit="60s", **asked).spec) < 120


def test_the_deadline_is_beyond_the_worst_case_and_bound_by_the_trials_own_limit():
    spec = trial(requestRate="0.1").spec
    assert measuring_limit_s(spec) > 2 * 14 / 0.1
    assert measuring_limit_s(trial(requestRate="0.1", timeLimit="60s").spec) < 120
