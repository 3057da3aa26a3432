"""What is embedded or ranked has to fit one physical batch whole; a prompt of a chat is read in as many as it takes."""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.finding import Clear, Finding, Undecided
from slotune.diagnose.rules.placement import heard, said
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory, Topic

__all__ = ["INPUT_LARGER_THAN_BATCH", "input_larger_than_batch"]

INPUT_LARGER_THAN_BATCH: Final = Entry(
    id="SLT025",
    code="InputLargerThanBatch",
    item=Item.BATCH,
    title="Inputs for embedding or ranking are refused, being longer than a physical batch",
    cause="An input that is pooled, as for embeddings and reranking, is never split: one of more than --ubatch-size "
    "tokens gets error 500, however large the context is (ggml-org/llama.cpp#12295, #25293).",
    first="Raise --ubatch-size, and --batch-size to at least the same, to the longest input that may come.",
    avoid="Do not raise -c for this, nor let clients retry: the same input is refused each time.",
    verify="The log has no line 'is too large to process' under the same traffic.",
    knobs=("uBatchSize", "batchSize"),
)

_REFUSED: Final = re.compile(r"input \((\d+) tokens\) is too large")
_BLOCK: Final = 256
"""Tokens to which a size is rounded up."""


def input_larger_than_batch(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether inputs were refused for their length."""
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, which has a line for every input that was refused")
    count = log.count(Topic.INPUT_TOO_LARGE)
    if not count:
        if said(log) or log.requests is not None:
            return Clear("no input was refused for being longer than a physical batch")
        return Undecided("a log that holds the start or an answered request")
    size = log.facts.ubatch_size
    batch = "" if size is None else f" of {size:,} tokens"
    verb = "were" if count > 1 else "was"
    return Finding(
        INPUT_LARGER_THAN_BATCH,
        f"{counted(count, 'input')} {verb} refused: longer than a physical batch{batch}",
        heard(log, Topic.INPUT_TOO_LARGE),
        first=_larger_batch(log),
    )


def _larger_batch(log: LogStory) -> str | None:
    """The batch that the longest input that is quoted would have needed; None: builds until 2025 do not say."""
    seen = log.seen[Topic.INPUT_TOO_LARGE]
    sizes = [int(match[1]) for line in (seen.first, seen.last) if (match := _REFUSED.search(line.text))]
    if not sizes:
        return None
    size = -(-max(sizes) // _BLOCK) * _BLOCK
    return f"Set -ub {size} and -b {size} or more: an input of {max(sizes):,} tokens was refused."
