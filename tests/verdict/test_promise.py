"""A promise that can't be meant is refused when it is made."""

from __future__ import annotations

import pytest

from slotune.verdict.promise import Promise


@pytest.mark.parametrize(
    ("fields", "telling"),
    [
        ({"ttft_s": 0.0}, "ttft_s is 0.0: it must be above 0"),
        ({"ttft_s": 1.0, "tokens_per_second_per_user": 0.0}, "tokens_per_second_per_user is 0.0"),
        ({"ttft_s": 1.0, "violation_share": 5.0}, "violation_share is 5.0: it must lie between 0 and 1"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_limit(fields: dict[str, float], telling: str) -> None:
    with pytest.raises(ValueError, match=telling):
        Promise(**fields)
