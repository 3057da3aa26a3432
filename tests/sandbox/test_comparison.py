"""Answers of a real llama.cpp are recorded, found again after a restart, and told from those of other weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slotune.llama.engine import find_engine
from slotune.llama.gguf_facts import read_facts
from slotune.load.demand import SyntheticPrompts
from slotune.quality.limits import BALANCED, QualitySettings
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.sandbox.protocol import Measured, Progress
from slotune.search.answers import judged
from slotune.search.pairs import comparison_candidate, pair_of
from slotune.search.problem import Problem, QualityQuestion
from slotune.search.trial import Purpose, Trial
from slotune.verdict.verdicts import Outcome
from tests.sandbox.worlds import candidate, problem
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.engine

SETTINGS = QualitySettings(prompts=4, steps=3)


class Two:
    """The reference and other weights of the same shape."""

    def __init__(self, tmp_path: Path, **changes: object) -> None:
        self.paths = {"only": tmp_path / "only.gguf", "other": tmp_path / "other.gguf"}
        for seed, path in enumerate(self.paths.values()):
            write_tiny_model(path, seed=seed)
        one = candidate()
        asked = QualityQuestion(BALANCED, "only", SETTINGS, "of-answers")
        space = problem(self.paths["only"], one, prompts=SyntheticPrompts(24))
        self.space: Problem = replace(
            space,
            models={name: read_facts(path) for name, path in self.paths.items()},
            candidates=(one, replace(one, variant="other")),
            **({"quality": asked} | changes),  # type: ignore[arg-type]  # a test's shorthand
        )
        self.home = tmp_path / "servers"
        self.heard: list[Progress] = []

    async def look(self, purpose: Purpose, variant: str = "only") -> Measured:
        """What a sandbox that was just made says: nothing is remembered but what lies on disk."""
        one = comparison_candidate(self.space, pair_of(candidate(variant=variant)), "cpu")
        sandbox = ProcessSandbox(self.space, find_engine("embedded"), self.paths, self.home)
        return await sandbox.measure(Trial(one, 0.0, purpose=purpose), self.heard.append)


async def test_the_reference_is_found_again_after_a_restart_and_other_weights_differ(tmp_path: Path):
    two = Two(tmp_path)
    recorded = await two.look(Purpose.REFERENCE)
    assert recorded.reference is not None
    assert recorded.result.verdict.outcome is Outcome.PASS
    assert recorded.result.reference == recorded.reference.digest
    assert recorded.reference.positions == 12
    itself = await two.look(Purpose.QUALITY)
    other = await two.look(Purpose.QUALITY, "other")
    assert itself.result.quality is not None
    assert itself.result.quality.mean_kld < 1e-4
    assert itself.result.quality.reference_digest == recorded.result.reference
    found = judged(two.space, [recorded.result, itself.result, other.result])
    assert [result.verdict.code for result in found] == ["ReferenceRecorded", "NoiseFloorLow", "QualityTooLow"]
    assert all(result.gpu_seconds > 0 and result.started_at for result in found)


async def test_progress_tells_how_many_steps_are_compared(tmp_path: Path):
    two = Two(tmp_path)
    await two.look(Purpose.REFERENCE)
    assert list(dict.fromkeys(one.stage for one in two.heard)) == ["starting", "comparing", "stopping"]
    assert max(one.requests_done for one in two.heard) == 12


async def test_without_a_reference_nothing_is_compared_and_nobody_is_blamed(tmp_path: Path):
    compared = await Two(tmp_path).look(Purpose.QUALITY, "other")
    verdict = compared.result.verdict
    assert (verdict.outcome, verdict.code) == (Outcome.INVALID, "ReferenceMissing")


async def test_time_that_runs_out_says_nothing_about_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    two = Two(tmp_path)
    monkeypatch.setattr("slotune.sandbox.process_sandbox.LIMIT_GRACE_S", 0.0)
    one = comparison_candidate(two.space, pair_of(candidate()), "cpu")
    sandbox = ProcessSandbox(two.space, find_engine("embedded"), two.paths, two.home)
    trial = Trial(one, 0.0, purpose=Purpose.REFERENCE, time_limit_s=0.05)
    result = (await sandbox.measure(trial, lambda _: None)).result
    assert (result.verdict.outcome, result.verdict.code, result.reference) == (Outcome.INCONCLUSIVE, "TimeLimit", "")


async def test_another_vocabulary_is_no_quantization_of_the_same_model(tmp_path: Path):
    two = Two(tmp_path)
    await two.look(Purpose.REFERENCE)
    write_tiny_model(two.paths["other"], words=640)
    verdict = (await two.look(Purpose.QUALITY, "other")).result.verdict
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "OtherModel")
    assert "another model" in verdict.reason
