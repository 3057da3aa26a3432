"""The words that users write mean what the documentation says, and what means nothing is refused."""

from __future__ import annotations

import pytest

from slotune.quality.limits import BALANCED, PRESETS, STRICT, Limits, QualitySettings, limits_of


def test_the_presets_are_what_users_are_told() -> None:
    assert (STRICT.mean_kld_max, STRICT.top1_min) == (0.01, 0.95)
    assert (BALANCED.mean_kld_max, BALANCED.top1_min) == (0.05, 0.90)
    assert dict(PRESETS) == {"Strict": STRICT, "Balanced": BALANCED}


def test_the_defaults_look_at_a_thousand_positions() -> None:
    settings = QualitySettings()
    assert (settings.prompts, settings.steps, settings.top, settings.confidence) == (64, 16, 64, 0.95)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(lambda: Limits("Custom", 0.0, 0.9), "mean_kld_max is 0.0", id="no divergence allowed"),
        pytest.param(lambda: Limits("Custom", float("nan"), 0.9), "mean_kld_max is nan", id="no number"),
        pytest.param(lambda: Limits("Custom", 0.03, 92.0), "top1_min is 92.0", id="percent for a share"),
        pytest.param(lambda: QualitySettings(prompts=1), "prompts is 1", id="one prompt"),
        pytest.param(lambda: QualitySettings(steps=0), "steps is 0", id="no steps"),
        pytest.param(lambda: QualitySettings(top=1), "top is 1", id="one token"),
        pytest.param(lambda: QualitySettings(confidence=95), "confidence is 95", id="percent for a confidence"),
        pytest.param(lambda: QualitySettings(request_timeout_s=0), "request_timeout_s is 0", id="no time"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: object, want: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=want):
        make()


def test_words_become_limits() -> None:
    assert limits_of("Strict") == STRICT
    assert limits_of("Balanced") == BALANCED
    assert limits_of("Off") is None
    assert limits_of("Custom", 0.03, 0.92) == Limits("Custom", 0.03, 0.92)


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(("strict",), "use Strict, Balanced, Custom or Off", id="another word"),
        pytest.param(("Custom", 0.03), "needs both limits", id="half of the limits"),
        pytest.param(("Strict", 0.03, 0.9), "need quality Custom", id="numbers beside a preset"),
        pytest.param(("Off", None, 0.9), "need quality Custom", id="a number beside Off"),
    ],
)
def test_words_and_numbers_that_contradict_each_other_are_refused(arguments: tuple[str], want: str) -> None:
    with pytest.raises(ValueError, match=want):
        limits_of(*arguments)
