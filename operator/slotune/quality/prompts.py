"""Which of the workload's prompts answers are compared on. Pure: token ids come later, from the reference's server.

Real prompts are drawn without repeating one, and kept in the workload's order, so that prompts that begin alike stand
together and share a prefix in the cache. Synthetic ones are those that a trial with this seed would send; a model's
answers to random tokens show the arithmetic of the weights, not what users read, and docs/quality.md says so.
"""

from __future__ import annotations

import random

import orjson

from slotune.load.bodies import Bodies
from slotune.load.demand import Demand, Prompt
from slotune.load.trace import build_trace
from slotune.quality.errors import TooFewPromptsError
from slotune.quality.limits import QualitySettings

__all__ = ["LEAST_PROMPTS", "QualityPrompt", "quality_prompts"]

QualityPrompt = Prompt | tuple[int, ...]
"""A real prompt, or token ids."""

LEAST_PROMPTS = 2
"""One prompt can't show how much prompts differ."""


def quality_prompts(
    demand: Demand, settings: QualitySettings, vocabulary: int | None = None
) -> tuple[QualityPrompt, ...]:
    """At most ``settings.prompts`` prompts of the workload, equal for equal arguments.

    ``vocabulary``: tokens of the model; only synthetic prompts need it.

    Raises:
        TooFewPromptsError: the workload has a single prompt.
        DemandError: the vocabulary is missing, or the lengths contradict each other.
    """
    if demand.synthetic is not None:
        bodies = Bodies(demand, seed=settings.seed, vocabulary=vocabulary)
        trace = build_trace(demand, rate=1.0, seed=settings.seed, requests=settings.prompts, warmup_requests=0)
        return tuple(tuple(orjson.loads(bodies(entry)[1])["prompt"]) for entry in trace.entries)
    distinct = list({orjson.dumps((prompt.text, prompt.messages)): prompt for prompt in demand.prompts}.values())
    if len(distinct) < LEAST_PROMPTS:
        raise TooFewPromptsError(
            f"the workload has {len(distinct)} prompt: quality needs at least {LEAST_PROMPTS} different ones; "
            'add prompts, or set quality to "Off"'
        )
    draw = random.Random(settings.seed)  # noqa: S311  (a sample, no secret)
    chosen = sorted(draw.sample(range(len(distinct)), min(settings.prompts, len(distinct))))
    return tuple(distinct[number] for number in chosen)
