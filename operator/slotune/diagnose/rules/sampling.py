"""What choosing the next token costs: samplers run on the CPU, once per token and request."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

__all__ = ["ENTRIES", "RULES"]

EXPENSIVE_SAMPLING: Final = Entry(
    id="SLT070",
    code="ExpensiveSampling",
    item=Item.SAMPLING,
    title="Requests ask for samplers that cost time at every token",
    cause="Penalties, DRY, Mirostat, grammars and token probabilities run on the CPU over the vocabulary for every "
    "token of every request; penalties alone cost 25 to 33 % of tokens/s (ggml-org/llama.cpp#23708).",
    first="Leave out what the answers do not need: repeat_penalty 1, presence_penalty 0, frequency_penalty 0, "
    "dry_multiplier 0, mirostat 0, no n_probs.",
    avoid="Do not compare with llama-bench, which samples nothing: measure with the sampling of production.",
    verify="Tokens/s of one request with and without the parameter, on the idle server.",
    knobs=("backendSampling",),
)

ENTRIES: Final = (EXPENSIVE_SAMPLING,)

RULES: Final[tuple[Rule, ...]] = ()
