"""How much evidence a verdict takes."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field

from slotune.api import quantities
from slotune.api.forms import Form
from slotune.api.model import Model
from slotune.api.rules import Rule, holds
from slotune.api.texts import Percent, PositiveDuration

__all__ = ["Measurement"]

VIOLATION_SHARE = 0.05
"""Share of requests that may be violations: the SLO speaks of 95 % of them."""

Confidence = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        'a number from 0.5 to 0.999 is needed, in quotes, such as "0.95"',
        6,
        accepts=lambda text: 0.5 <= float(text) <= 0.999,
        cel="double(self) >= 0.5 && double(self) <= 0.999",
        refusal="must be from 0.5 to 0.999",
    ),
]


def _can_pass(measurement: Any) -> bool:
    """Whether a trial without any violation would be a Pass: (1 - share)^n <= 1 - confidence (Clopper-Pearson)."""
    requests = measurement.requests_per_run * measurement.runs
    chance: float = (1 - VIOLATION_SHARE) ** requests
    return chance <= (1 - float(measurement.confidence)) * (1 + 1e-9)


class Measurement(Model):
    """How much evidence a verdict takes. The defaults are what a decision about production deserves; lower ones are for
    demonstrations, and every report says that they were lowered."""

    confidence: Confidence = "0.95"
    """How sure a Pass or Fail must be."""
    requests_per_run: Annotated[int, Field(ge=10, le=100_000)] = 200
    """Requests of one run that count."""
    runs: Annotated[int, Field(ge=2, le=50)] = 5
    """Runs per trial, each with seeds of its own; at least 2, or nothing could be said about how runs differ."""
    warmup_requests: Annotated[int, Field(ge=0, le=10_000)] = 50
    """Requests at the start of each run, at the same rate, that do not count."""
    extensions: Annotated[int, Field(ge=0, le=5)] = 1
    """How often a trial that shows neither Pass nor Fail may add as many runs again."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 7
    """Where all seeds come from: the same seed sends the same requests at the same times."""
    request_timeout: PositiveDuration = "5m"
    """When a request that has not ended counts as unfinished."""
    startup_timeout: PositiveDuration = "10m"
    """How long a server may take to load its model."""
    drift_percent: Percent = "3"
    """How far an idle server's speed may move before the trials since the last look at its machine are invalid."""
    sentinel_every: Annotated[int, Field(ge=0, le=1000)] = 5
    """Trials on a GPU class between two looks at the speed of an idle server of it; 0 never looks."""
    probe_requests: Annotated[int, Field(ge=1, le=100)] = 5
    """Requests, one at a time, that measure a server's speed when idle."""
    quality_prompts: Annotated[int, Field(ge=2, le=1024)] = 64
    """Of how many of the workload's prompts answers are compared; fewer where it has fewer, or where their recorded
    answers would take more than 1 MB."""
    quality_steps: Annotated[int, Field(ge=1, le=128)] = 16
    """How many tokens of each of these answers."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            _can_pass,
            "so few requests can never show a Pass at this confidence, even when every one is fine: "
            "raise requestsPerRun or runs (in all, "
            + ", ".join(
                f'"{level}" takes {math.ceil(math.log(1 - level) / math.log(1 - VIOLATION_SHARE))}'
                for level in (0.8, 0.9, 0.95, 0.99)
            )
            + ")",
            ("confidence", "requests_per_run", "runs"),
            None,  # a logarithm, which CEL does not have
            at="requestsPerRun",
        ),
    )
