"""Does a prompt in a low slot keep those in higher slots waiting?"""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.counting import counted, never_together
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules import settings
from slotune.diagnose.symptoms import Symptoms

__all__ = ["UNFAIR_SLOTS", "unfair"]

UNFAIR_SLOTS: Final = Entry(
    id="SLT052",
    code="UnfairSlots",
    item=Item.QUEUE,
    title="A prompt in a low slot keeps those in higher slots waiting",
    cause="Prompts fill a step's batch in the order of slot numbers, not of arrival, so a long prompt in a low slot "
    "can take every step whole while one in a higher slot makes no progress (ggml-org/llama.cpp#6607).",
    first="Keep the number of slots near the number of requests in flight, and raise --ubatch-size so that a long "
    "prompt is over sooner.",
    avoid="Do not add slots: more prompts would then stand in the same line.",
    verify="In two looks at /slots while prompts are read, every slot's n_prompt_tokens_processed has grown.",
    knobs=("parallelSlots", "uBatchSize", "replicas"),
)

TWO: Final = 2
"""Requests at once, of which one can wait for the other."""
_READ: Final = re.compile(r"prompt eval time = .* / +(\d+) tokens")


def unfair(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether a later prompt in a lower slot is read first."""
    seen, read = _by_slots(symptoms), _by_log(symptoms)
    if isinstance(seen, Finding) or not isinstance(read, Finding):
        known = seen if isinstance(seen, Finding | Clear) else read
        return known or _none_waits(symptoms) or seen
    return read


def _by_slots(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """What is read at the moment of a look."""
    slots = None if symptoms.server is None else symptoms.server.slots
    if slots is None:
        return Undecided("/slots of the busy server: --url, or a log at -lv 4")
    if len(slots) < 2:
        return Clear("one slot has nobody to be unfair to")
    reading = [
        slot
        for slot in sorted(slots, key=lambda one: one.id)
        if slot.processing and not slot.decoded and slot.task is not None and slot.prompt_tokens_processed is not None
    ]
    for place, low in enumerate(reading):
        for high in reading[place + 1 :]:
            if low.prompt_tokens_processed and not high.prompt_tokens_processed and (low.task or 0) > (high.task or 0):
                return Finding(
                    UNFAIR_SLOTS,
                    f"slot {low.id} has read {low.prompt_tokens_processed:,} tokens of a prompt that came after the "
                    f"one in slot {high.id}, of which none is read yet",
                    (
                        Evidence(Source.SLOTS, f"id {low.id}: id_task {low.task}, {low.prompt_tokens_processed} read"),
                        Evidence(Source.SLOTS, f"id {high.id}: id_task {high.task}, 0 read"),
                    ),
                    Severity.INFO,  # one moment; a prompt behind others is read after all
                    Confidence.POSSIBLE,
                )
    if len(reading) < 2:
        return Undecided(
            "--url while several prompts are read at once, or a log with -lv 4 that holds the start and these requests"
        )
    return Clear(f"{len(reading)} prompts are read at once, none before an earlier one")


def _by_log(symptoms: Symptoms) -> Finding | Clear | None:
    """In what order prompts were begun, as a log at ``-lv 4`` tells; None: it does not, or a step may hold both."""
    requests = None if symptoms.log is None else symptoms.log.requests
    turns = None if requests is None else requests.turns
    if turns is None or turns.begun < TWO:
        return None
    if turns.passed and turns.passed_line is not None and turns.passing_line is not None:
        lines = (turns.passed_line, turns.passing_line)
        return Finding(
            UNFAIR_SLOTS,
            f"{turns.passed:,} of {counted(turns.begun, 'prompt')} had a slot and were not begun while a prompt that "
            "came later was read in a lower slot",
            tuple(map(Evidence.of_line, lines)),
            Severity.INFO,  # it is read after all; how long it waits is in the lines
            Confidence.LIKELY,
        )
    if turns.behind:
        return None
    return Clear(f"each of {counted(turns.begun, 'prompt')} was begun before those that came after it")


def _none_waits(symptoms: Symptoms) -> Clear | None:
    """Whether the log says that no prompt can have kept another waiting: for that it must fill steps whole."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is None or requests.most_busy_slots is None:
        return None
    most, batch, example = requests.most_busy_slots, settings.batch_size(symptoms), requests.example
    if most < TWO:
        return Clear(never_together(requests.requests))
    read = None if example is None else _READ.search(example.text)
    if batch is None or example is None or read is None or most * int(read[1]) > batch.value:
        return None
    return Clear(
        f"{most} prompts like the slowest ({int(read[1]):,} tokens) go into one step of {batch.value:,}: none fills it",
        (Evidence(Source.LOG, example.text, example.number), batch.evidence),
    )
