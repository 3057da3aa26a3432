"""What it costs that a model forgot a prompt's beginning: the tokens that its slot had in common with it.

The line that says so also comes for prompts that share no more than their template's first words. So what counts is
how much they shared, where the log says that; else whether the slot was picked for what it held.
"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.evidence import Evidence
from slotune.diagnose.finding import Confidence, Cost, Finding, Severity
from slotune.diagnose.rules import work
from slotune.diagnose.rules.reuse_causes import SLIDING_WINDOW
from slotune.diagnose.rules.reuse_habits import OFTEN, SEVERAL
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Forgotten, LogStory, Topic

__all__ = ["forgotten"]

LARGE_TOKENS: Final = 4096
"""That are read twice: a second even on a GPU that reads some thousand tokens in one, and once is enough."""


def forgotten(symptoms: Symptoms, log: LogStory, count: int, picked: int) -> Finding:
    """Of ``count`` prompts that were read from the start, where ``picked`` got a slot for what it holds."""
    known, requests = log.forgotten, max(count, 0 if log.requests is None else log.requests.requests)
    words = f"{count} of {requests} prompts were read from the start, because the model had forgotten their beginning"
    if known is not None and known.prompts:
        return _counted(symptoms, log, known, words)
    evidence = (work.quoted(log.seen[Topic.FULL_REPROCESSING]), *work.line_of(log))
    lost = min(count, picked)
    share = lost / requests
    if lost or known is None or known.erased_line is None:
        return Finding(
            SLIDING_WINDOW,
            words,
            evidence,
            Severity.WARNING if share >= OFTEN and lost >= SEVERAL else Severity.INFO,
            # How much of them was in the slot is not said: at most these requests lost all their prefill.
            cost=Cost(ttft_share=share if lost else None),
        )
    # A slot that was taken for being idle longest held somebody else's prompt, of which this one lost nothing.
    is_large = known.erased_tokens >= LARGE_TOKENS and not log.count(Topic.SLOT_BY_LRU)
    return Finding(
        SLIDING_WINDOW,
        f"{words}, and a checkpoint of {known.erased_tokens:,} tokens was thrown away: up to so much was read twice",
        (Evidence.of_line(known.erased_line), *evidence),
        Severity.WARNING if is_large else Severity.INFO,
        Confidence.POSSIBLE,
        Cost(ttft_s=work.read_again_s(symptoms, known.erased_tokens)) if is_large else Cost(),
    )


def _counted(symptoms: Symptoms, log: LogStory, known: Forgotten, words: str) -> Finding:
    """Where the log says what they had in common with their slot."""
    computed = 0 if log.requests is None else log.requests.prompt_tokens
    share = min(1.0, known.tokens / computed) if computed else None
    is_habit = known.prompts >= SEVERAL and share is not None and share >= OFTEN
    of = "it was" if known.prompts == 1 else "them were"
    return Finding(
        SLIDING_WINDOW,
        f"{words}; {known.tokens:,} tokens of {of} in the slot and read again",
        (
            *(() if known.line is None else (Evidence.of_line(known.line),)),
            work.quoted(log.seen[Topic.FULL_REPROCESSING]),
        ),
        Severity.WARNING if is_habit or known.most_tokens >= LARGE_TOKENS else Severity.INFO,
        cost=Cost(ttft_s=work.read_again_s(symptoms, known.tokens / known.prompts), ttft_share=share),
    )
