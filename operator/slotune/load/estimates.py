"""What a demand amounts to before any server has seen it: tokens in, tokens that could be reused, its digest.

For synthetic prompts the numbers are exact. For real ones they count four bytes of text as a token, which
is about right for most languages and vocabularies; a server's tokenizer has the last word.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, replace

import orjson

from slotune.load.demand import Demand
from slotune.load.lengths import PromptLengths
from slotune.load.sharing import prompt_bytes, shared_lengths

__all__ = ["BYTES_PER_TOKEN", "demand_identity", "with_estimates"]

BYTES_PER_TOKEN = 4.0
"""Bytes of UTF-8 text in one token, about."""

_DERIVED = (
    "identity",
    "input_tokens_mean",
    "input_tokens_p95",
    "input_tokens_max",
    "reusable_tokens",
    "asked_tokens_mean",
    "asked_tokens_max",
)


def demand_identity(demand: Demand) -> str:
    """Return the digest of all that is declared, prompts included; the stored one when there is one."""
    if demand.identity:
        return demand.identity
    declared = {name: value for name, value in asdict(demand).items() if name not in _DERIVED}
    return hashlib.sha256(orjson.dumps(declared, option=orjson.OPT_SORT_KEYS)).hexdigest()


def with_estimates(demand: Demand) -> Demand:
    """Return ``demand`` with its identity and its token counts filled in.

    Raises:
        DemandError: the prompt lengths contradict each other.
    """
    demand = _with_answers(replace(demand, identity=demand_identity(demand)))
    recorded = demand.arrivals.input_tokens
    if demand.synthetic is not None:
        least = demand.synthetic.shared_prefix_tokens + 1
        if recorded:
            return _counted(demand, [max(least, count) for count in recorded], least - 1)
        lengths = PromptLengths.of(demand.synthetic)
        return replace(
            demand,
            input_tokens_mean=float(demand.synthetic.input_tokens_mean),
            input_tokens_p95=float(lengths.quantile(0.95)),
            input_tokens_max=lengths.most,
            reusable_tokens=float(demand.synthetic.shared_prefix_tokens),
        )
    shared = zip(demand.prompts, shared_lengths(demand.prompts), strict=True)
    shared_bytes = sum(prompt_bytes(prompt, common) for prompt, common in shared)
    reusable = shared_bytes / max(1, len(demand.prompts)) / BYTES_PER_TOKEN
    return _counted(demand, [math.ceil(prompt_bytes(prompt) / BYTES_PER_TOKEN) for prompt in demand.prompts], reusable)


def _with_answers(demand: Demand) -> Demand:
    """What is asked of each request: a prompt's own limit, else the recording's length, else the workload's."""
    recorded = demand.arrivals.output_tokens or (demand.output_tokens,)
    asked = [prompt.max_tokens for prompt in demand.prompts if prompt.max_tokens is not None]
    unstated = len(demand.prompts) - len(asked) if demand.prompts else 1
    mean = sum(recorded) / len(recorded)
    return replace(
        demand,
        asked_tokens_mean=(sum(asked) + unstated * mean) / (len(asked) + unstated),
        asked_tokens_max=max([*asked, *(recorded if unstated else ())]),
    )


def _counted(demand: Demand, counts: list[int], reusable: float) -> Demand:
    counts = sorted(counts) or [0]
    return replace(
        demand,
        input_tokens_mean=sum(counts) / len(counts),
        input_tokens_p95=float(counts[math.ceil(0.95 * len(counts)) - 1]),
        input_tokens_max=counts[-1],
        reusable_tokens=reusable,
    )
