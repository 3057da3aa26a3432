"""A search in which answers were compared: one pair holds, one does not, one could not be told, one was not needed."""

from __future__ import annotations

from dataclasses import replace

from slotune.load.demand import Prompt
from slotune.search.pairs import pair_of
from slotune.search.trial import Purpose, Trial
from slotune.verdict.verdicts import Outcome
from tests.report.building import Sample
from tests.search.worlds import QUALITY, World, candidate, live, problem

TODAY = candidate("F16", slots=8)
HOLDS = candidate("Q8_0", slots=8)
DIFFERS = candidate("Q4_0", slots=8)
UNTOLD = replace(DIFFERS, cache_type_k="q8_0", cache_type_v="q8_0")
UNNEEDED = replace(HOLDS, cache_type_k="q4_0", cache_type_v="q4_0")


def answers_compared() -> Sample:
    """Balanced against F16: five servers of F16 today, two of Q8_0 tomorrow."""
    carries = {TODAY: 1.3, HOLDS: 3.5, DIFFERS: 9.0, UNTOLD: 9.0, UNNEEDED: 0.4}
    truth = {pair_of(HOLDS): 0.0031, pair_of(DIFFERS): 0.1873, pair_of(UNTOLD): 0.06}

    def unsure(trial: Trial) -> Outcome | None:
        return (
            Outcome.INCONCLUSIVE if (trial.purpose, trial.candidate.cache_type_k) == (Purpose.QUALITY, "q8_0") else None
        )

    space = problem([TODAY, HOLDS, DIFFERS, UNTOLD, UNNEEDED], replicas_today=5, quality=QUALITY, context="answers")
    prompts = tuple(Prompt(f"prompt {number}") for number in range(64))
    space = replace(space, demand=replace(space.demand, synthetic=None, prompts=prompts))
    decision, results = live(space, World(carries, divergences=truth, verdicts=unsure))
    return Sample(space, decision, tuple(results), flags=("llama-server", "-m", "/models/Q8_0.gguf"))
