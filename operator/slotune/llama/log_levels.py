"""Which verbosity prints a line, as builds of 2026 count it: by its letter where it has one, else by its words."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DEBUG", "LETTERS", "level_of"]

DEBUG: Final = 5
"""The verbosity that prints everything, prompts included."""

LETTERS: Final = {b"D": DEBUG, b"T": 4, b"I": 3, b"W": 2, b"E": 1}

_TRACE = re.compile(
    rb"^(?:llama_(?:context|kv_cache|model_loader|memory_recurrent|new_context|init_from_model)\w*|llm_load_\w+"
    rb"|load_tensors|load|print_info|sched_reserve"
    rb"|resolve_fused_ops|graph_reserve|common_memory_breakdown_print|common_params_fit_impl|create_memory): "
    rb"|new slot, n_ctx|all slots are idle|new prompt, n_ctx_slot|init sampler, took|prompt cache (?:is|update)"
    rb"|cached n_tokens = |updating prompt cache|prompt processing done|done request: "
    rb"|created context checkpoint|saving idle slot"
)
"""What a build of 2026 prints at ``-lv 4`` and not at 3."""
_PLAIN = re.compile(
    rb"initializing,? (?:slots, )?n_slots|prompt eval time|stop processing: |\| processing task|model loaded"
    rb"|selected slot by|build_info: |loading model|listening on"
)
"""What ``-lv 3``, the default, prints."""


def level_of(letter: bytes | None, message: bytes) -> int:
    """Least ``-lv`` that prints ``message``, which has this letter in front, if it has one; 0 where nothing tells."""
    if letter in (b"W", b"E"):
        return LETTERS[letter]
    if _TRACE.search(message):
        return 4
    return 3 if letter or _PLAIN.search(message) else 0
