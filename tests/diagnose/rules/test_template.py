"""What comes before the first prompt token."""

from __future__ import annotations

import pytest

from slotune.diagnose.rules.template import RULES
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, probe, timings


def test_a_template_that_takes_a_part_that_shows_is_found() -> None:
    slow = probe(overhead_s=0.6, short_prompt_overhead_s=0.1, prefill_tokens_per_s=400.0, tokenize_s=0.2)
    said = found(RULES, "SLT075", of(probe=slow))
    assert "take 0.50 s of the 1.60 s" in said.sentence
    assert said.cost.ttft_s == pytest.approx(0.5)
    assert said.cost.ttft_share == pytest.approx(0.5 / 1.6)
    assert any("/tokenize: 0.200 s" in str(one) for one in said.evidence)


@pytest.mark.parametrize(
    ("overhead_s", "short_s"),
    [(0.008, 0.004), (0.3, 0.29), (0.2, 0.1)],
    ids=["near by", "far away", "a small part of a long prompt"],
)
def test_little_more_than_a_short_prompt_takes_is_clear(overhead_s: float, short_s: float) -> None:
    assert is_clear(RULES, "SLT075", of(probe=probe(overhead_s=overhead_s, short_prompt_overhead_s=short_s)))


def test_the_template_is_undecided_without_a_probe_of_an_idle_server() -> None:
    assert is_undecided(RULES, "SLT075", NOTHING)
    assert is_undecided(RULES, "SLT075", of(log=log(requests=timings())))
    assert is_undecided(RULES, "SLT075", of(probe=probe(overhead_s=0.6, short_prompt_overhead_s=None)))
    assert is_undecided(RULES, "SLT075", of(probe=probe(overhead_s=0.6, was_idle=False)))
    assert is_undecided(RULES, "SLT075", of(probe=probe(overhead_s=0.6, prefill_tokens_per_s=0.0)))
