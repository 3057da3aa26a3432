"""The sampling parameters of a request as llama-server shows them, without a word of what was asked.

A grammar, a schema or a stop word may quote its user, so texts are kept as their length only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["NUMBERS", "SIZES", "WORDS", "sampling_values"]

NUMBERS: Final = frozenset((
    "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma",
    "xtc_probability", "xtc_threshold", "typical_p", "tfs_z", "repeat_last_n", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "penalize_nl", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
    "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "max_tokens", "n_predict",
    "n_keep", "n_discard", "ignore_eos", "stream", "n_probs", "min_keep", "cache_prompt", "timings_per_token",
    "post_sampling_probs", "backend_sampling", "grammar_lazy", "speculative.n_max", "speculative.n_min",
    "speculative.p_min",
))  # fmt: skip
"""Kept as they are: numbers and switches."""

SIZES: Final = frozenset((
    "grammar", "json_schema", "grammar_triggers", "logit_bias", "dry_sequence_breakers", "stop", "preserved_tokens",
    "lora",
))  # fmt: skip
"""Kept as a number: characters of a text, entries of a list; 0 when there is none."""

WORDS: Final = frozenset({"chat_format", "reasoning_format", "speculative.type", "speculative.types"})
"""Kept as they are, being names that the server gave."""

_NAME = re.compile(r"[\w .+-]{1,40}", re.ASCII)
_MOST_SAMPLERS = 32


def sampling_values(params: Mapping[str, Any]) -> dict[str, object]:
    """What ``params`` of /slots or /props says about sampling, by the server's own names.

    Returns:
        Numbers and switches as they are, texts and lists as their size (``grammar``: characters), ``samplers`` as a
        tuple of names in their order. Names that are not known here are left out, and so are values of another type.
    """
    kept: dict[str, object] = {}
    for name, value in params.items():
        if name in NUMBERS and isinstance(value, bool | int | float):
            kept[name] = value
        elif name in SIZES and isinstance(value, str | list | dict):
            kept[name] = len(value)
        elif name in SIZES and value is None:
            kept[name] = 0
        elif name in WORDS and isinstance(value, str) and _NAME.fullmatch(value):
            kept[name] = value
        elif name == "samplers" and isinstance(value, list):
            names = [one for one in value[:_MOST_SAMPLERS] if isinstance(one, str) and _NAME.fullmatch(one)]
            kept[name] = tuple(names)
    return kept
