"""What a trial's prompt cache served, could have served, and to whom, in lines for a person."""

from __future__ import annotations

from slotune.diagnose.cache import cache_shortfall, falls_short, served_words
from slotune.load.cache_facts import CacheFacts
from slotune.report.figures import percent, plural, seconds, sentence
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult

__all__ = ["cache_lines"]


def cache_lines(problem: Problem, result: TrialResult) -> list[str]:
    """``cold 310 ms / warm 90 ms alone on the server, reuse 61 % of 64 % possible``, and what was found.

    Empty where nothing was shared and nobody looked. A cause is only said of a server whose settings are known: one of
    ``slotune bench`` states few of them.
    """
    facts = result.cache
    if facts is None:
        return []
    lines = [line] if (line := _numbers(facts)) else []
    if problem.models:
        found = cache_shortfall(result, problem.models.get(result.trial.candidate.variant))
        lines += [sentence(found.sentence)] if found is not None else []
    elif falls_short(facts):
        lines.append(sentence(f"{served_words(facts)}: why is not known from outside"))
    if facts.canaries:
        own = facts.canaries - facts.foreign
        lines.append(f"{own} of {plural(facts.canaries, 'canary prompt')} answered from their own context.")
    return lines


def _numbers(facts: CacheFacts) -> str:
    """The line of numbers; empty where nothing is shared."""
    parts = []
    if facts.cold_ttft_s is not None:
        warm = f" / warm {seconds(facts.warm_ttft_s)}" if facts.warm_ttft_s is not None else ""
        parts.append(f"cold {seconds(facts.cold_ttft_s)}{warm} alone on the server")
    if facts.theoretical_reuse is not None and facts.measured_reuse is not None:
        parts.append(f"reuse {percent(facts.measured_reuse)} of {percent(facts.theoretical_reuse)} possible")
    return ", ".join(parts)
