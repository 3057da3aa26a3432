"""Are requests served in the order in which they came? A log tells by the numbers of tasks, whatever its level."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import build_of
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Turns

__all__ = ["SERVED_OUT_OF_TURN", "served_out_of_turn"]

SERVED_OUT_OF_TURN: Final = Entry(
    id="SLT059",
    code="ServedOutOfTurn",
    item=Item.QUEUE,
    title="Requests that wait for a slot are overtaken by those that come later",
    cause="Builds until August 2025 put a request that waits for a slot behind newcomers each time a slot falls free, "
    "so that under steady load some wait until the load ends (ggml-org/llama.cpp#15008). Those of 2026 keep the order, "
    "but for requests that name their slot (id_slot).",
    first="Run a build of 2026. If it is one, look for what sends id_slot.",
    avoid="Do not raise the client's time-out: the request would wait on while others are served.",
    verify="In its log the task numbers of '| processing task' lines rise, or fall back by a few.",
    knobs=("image", "parallelSlots"),
)

OUT_OF_ORDER: Final = 6056
"""Newest build that is known to do so (ggml-org/llama.cpp#15008); what mends it was proposed that month (#15395)."""


def served_out_of_turn(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether the slot that a request got was given to later ones before it."""
    requests = None if symptoms.log is None else symptoms.log.requests
    turns = None if requests is None else requests.turns
    if requests is None or turns is None:
        return Undecided("a log of answered requests at -lv 3, the default, or above: --log FILE")
    if turns.overtaken and turns.late is not None and turns.before is not None:
        return _found(symptoms, turns)
    return Clear(f"of {counted(turns.requests, 'request')} none saw its slot given to two that came later")


def _found(symptoms: Symptoms, turns: Turns) -> Finding:
    known = build_of(symptoms)
    is_old = known is not None and known[0] <= OUT_OF_ORDER
    waited = "" if turns.waited_s is None else f", and waited {turns.waited_s:,.3g} s longer than one of them"
    lines = (turns.before, turns.late)
    evidence = tuple(Evidence(Source.LOG, line.text, line.number) for line in lines if line is not None)
    return Finding(
        SERVED_OUT_OF_TURN,
        f"{turns.overtaken:,} of {counted(turns.requests, 'request')} saw their slot given to later ones; one was "
        f"served after {turns.most:,} that came later{waited}",
        evidence if known is None else (*evidence, known[1]),
        Severity.WARNING if is_old else Severity.INFO,
        Confidence.LIKELY if is_old else Confidence.POSSIBLE,
        Cost(ttft_s=turns.waited_s),
        "Run a build of 2026: they give slots in the order of arrival." if is_old else None,
    )
