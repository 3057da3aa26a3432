"""Looks and promises that tests differ from."""

from __future__ import annotations

from slotune.api.v1alpha1 import SLO
from slotune.production.looks import Look
from slotune.production.readings import Reading, Value

PROMISE = SLO(ttft_p95="1s", tokens_per_second_per_user="30")


def look(ttft: Reading | float | None = 0.7, speed: Reading | float | None = 44, **more: bool | Reading) -> Look:
    """A look at production that keeps :data:`PROMISE`, unless told otherwise; numbers are values."""
    return Look(_reading(ttft), _reading(speed), **more)  # type: ignore[arg-type]  # the test's own keywords


def _reading(number: Reading | float | None) -> Reading | None:
    return Value(float(number)) if isinstance(number, int | float) else number
