"""What is asked about answers: whose, how far they may move, and what a comparison does and does not depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotune.api.manifests import load_manifests
from slotune.quality.limits import BALANCED, STRICT, Limits
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial
from slotune.tuning.reading import read_problem
from tests.commands.manifests import manifest
from tests.tiny_models import write_tiny_model

INPUT = "workload__inline__prompts__synthetic__inputTokens__mean"
Read = Callable[..., Problem]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The problem of a manifest with two weights files, F16 (what runs today) and Q8_0, and ``changes``."""

    def _read(*, engine: str = "e1", seed: int | None = 1, **changes: Any) -> Problem:
        if seed is not None:  # else it stays as it is
            write_tiny_model(tmp_path / "q8_0.gguf", quantization="Q8_0", seed=seed)
        models = [{"name": "Q8_0", "path": "/models/q8_0.gguf"}, {"name": "F16", "path": "/models/f16.gguf"}]
        file = manifest(tmp_path, **({"models": models, "slo__quality": "Balanced"} | changes))
        return read_problem(load_manifests([file]), models_dir=tmp_path, engine=engine).problem

    return _read


@pytest.mark.parametrize(("word", "limits"), [("Strict", STRICT), ("Balanced", BALANCED)])
def test_a_preset_is_its_limits(read, word, limits):
    quality = read(slo__quality=word).quality
    assert quality is not None
    assert quality.limits == limits


def test_limits_of_ones_own_are_nats_and_percent(read):
    stated = {"meanKLD": "0.03", "top1Percent": "92"}
    quality = read(slo__quality="Custom", slo__qualityLimits=stated).quality
    assert quality is not None
    assert quality.limits == Limits("Custom", mean_kld_max=0.03, top1_min=0.92)


def test_off_asks_nothing(read):
    assert read(slo__quality="Off").quality is None


def test_a_manifest_that_says_nothing_of_quality_asks_nothing(read):
    assert read(slo__quality=None, models=[{"name": "F16", "path": "/models/f16.gguf"}]).quality is None


def test_the_reference_has_the_most_bits_unless_one_is_marked(read):
    quality = read().quality
    assert quality is not None
    assert quality.reference == "F16"
    marked = [
        {"name": "Q8_0", "path": "/models/q8_0.gguf", "reference": True},
        {"name": "F16", "path": "/models/f16.gguf"},
    ]
    quality = read(models=marked).quality
    assert quality is not None
    assert quality.reference == "Q8_0"


def test_the_measurement_says_how_much_is_compared_and_how_sure_the_bounds_are(read):
    stated = {"measurement__qualityPrompts": 200, "measurement__qualitySteps": 8}
    surer = {"measurement__confidence": "0.9", "measurement__requestsPerRun": 60}
    quality = read(**stated, **surer).quality
    assert quality is not None
    settings = quality.settings
    assert (settings.prompts, settings.steps, settings.confidence) == (200, 8, 0.9)


SAME = {
    "the promise": {"slo__ttftP95": "9s"},
    "the limits": {"slo__quality": "Strict"},
    "the rate": {"workload__inline__load__requestRate": "5"},
    "the length of answers": {"workload__inline__output__tokens": 9},
    "how often is measured": {"measurement__runs": 7},
}


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME)
def test_a_comparison_outlives_a_change_of(read, changes):
    before, after = read(), read(**changes)
    assert before.quality is not None
    assert after.quality is not None
    assert before.quality.context == after.quality.context
    assert before.context != after.context or changes == SAME["the limits"]


OTHER = {
    "how many prompts are compared": {"measurement__qualityPrompts": 65},
    "how many tokens of each answer": {"measurement__qualitySteps": 17},
    "how sure the bounds are": {"measurement__confidence": "0.9", "measurement__requestsPerRun": 60},
    "the prompts": {INPUT: 48},
    "the engine's build": {"engine": "e2"},
    "the reference": {
        "models": [
            {"name": "Q8_0", "path": "/models/q8_0.gguf", "reference": True},
            {"name": "F16", "path": "/models/f16.gguf"},
        ]
    },
}


@pytest.mark.parametrize("changes", OTHER.values(), ids=OTHER)
def test_a_comparison_is_made_anew_after_a_change_of(read, changes):
    before, after = read(), read(**changes)
    assert before.quality is not None
    assert after.quality is not None
    assert before.quality.context != after.quality.context


def test_a_file_with_one_damaged_byte_is_measured_and_compared_anew(read, tmp_path):
    before = read()
    weights = tmp_path / "q8_0.gguf"
    content = bytearray(weights.read_bytes())
    content[-len(content) // 3] ^= 1
    weights.write_bytes(content)
    after = read(seed=None)
    one = replace(before.baseline, variant="Q8_0")
    for trial in (Trial(one, 1.0), Trial(one, 0.0, purpose=Purpose.QUALITY)):
        assert before.key(trial) != after.key(trial)
    of_reference = Trial(replace(one, variant="F16"), 0.0, purpose=Purpose.QUALITY)
    assert before.key(of_reference) == after.key(of_reference)


def test_a_file_that_changes_is_compared_anew_and_no_other_one_is(read):
    before, after = read(), read(seed=2)
    shared = before.contexts & after.contexts
    assert len(before.contexts) == len(after.contexts) == 3  # of load, and of the answers of each file
    assert len(shared) == 1  # those of F16
