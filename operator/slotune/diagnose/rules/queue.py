"""Requests that wait for a slot: because all are busy, or though some are not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import settings, turns, unfair, work
from slotune.diagnose.rules.more_slots import more_slots
from slotune.diagnose.rules.settings import Number
from slotune.diagnose.rules.waiting import BRIEF, Waiting, room_for_more, waiting
from slotune.diagnose.rules.work import Measured
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.server_answers import Slot

__all__ = ["ENTRIES", "HALF_IDLE", "RULES", "TWICE"]

TOO_FEW_SLOTS: Final = Entry(
    id="SLT050",
    code="TooFewSlots",
    item=Item.QUEUE,
    title="Requests wait for a slot, because all slots are busy",
    cause="All slots are busy, so new requests wait until one is free: there is no limit to this queue and no error "
    "(ggml-org/llama.cpp#4875). Where users have speed to spare, more requests could run beside each other.",
    first="Raise --parallel, and --ctx-size with it so that each slot keeps its context; a q8_0 KV cache makes room.",
    avoid="Do not quantize the weights first: requests wait for a slot, not for the GPU.",
    verify="requests_deferred stays at 0 under the same load, and tokens/s per user stays above what is owed.",
    knobs=("parallelSlots", "cacheTypeK", "cacheTypeV"),
    binds="TTFTQueue",
)

SLOTS_IDLE_WHILE_QUEUEING: Final = Entry(
    id="SLT051",
    code="SlotsIdleWhileQueueing",
    item=Item.QUEUE,
    title="Requests wait though slots are idle",
    cause="Something lets requests in one by one: static batching (-nocb), a slot that requests are pinned to "
    "(id_slot), too few HTTP threads, or a proxy or browser with few connections (ggml-org/llama.cpp#12013, #5827).",
    first="Take -nocb and id_slot out, raise --threads-http, and let the client open more connections.",
    avoid="Do not tune the GPU, and do not add slots: those that are there are not used.",
    verify="Busy slots follow the number of requests in flight.",
    knobs=("extraArgs",),
    binds="TTFTQueue",
)

SCATTERED_SLOTS: Final = Entry(
    id="SLT053",
    code="ScatteredSlots",
    item=Item.QUEUE,
    title="Few busy slots lie scattered among many, and each piece reads the weights again",
    cause="With a KV stream per slot (no --kv-unified) only neighbouring slots share a computation; with m of N slots "
    "busy the weights are read about m(N-m+1)/N times a step (ggml-org/llama.cpp#25840: 166 against 38 tokens/s).",
    first="Try --kv-unified, or lower --parallel to about the number of requests in flight.",
    avoid="Do not add slots: the same requests would lie scattered even wider.",
    verify="Tokens/s per user at the same number of requests in flight rises.",
    knobs=("kvUnified", "parallelSlots"),
    binds="TokensPerSecond",
)

STATIC_BATCH: Final = Entry(
    id="SLT057",
    code="StaticBatch",
    item=Item.QUEUE,
    title="A batch must finish before a new request gets in",
    cause="With continuous batching off (-nocb) a request that comes while others run waits until all of them are "
    "done, however many slots are free.",
    first="Take -nocb (--no-cont-batching, LLAMA_ARG_NO_CONT_BATCHING) out.",
    avoid="Do not add slots: they stay empty until the running batch is over.",
    verify="With one long answer running, a second request's first token comes at once.",
    knobs=("extraArgs",),
    binds="TTFTQueue",
)

ENTRIES: Final = (
    TOO_FEW_SLOTS,
    SLOTS_IDLE_WHILE_QUEUEING,
    unfair.UNFAIR_SLOTS,
    SCATTERED_SLOTS,
    STATIC_BATCH,
    turns.SERVED_OUT_OF_TURN,
)

HALF_IDLE: Final = 0.75
"""Slots are many for the requests when less than this part of them works."""
TWICE: Final = 1.5
"""From so many readings of the weights a step on, slots that share one would be faster."""
FAR_SLOWER: Final = 0.7
"""On a GPU a few requests in one step cost about what one does; less than this part of that speed has a cause."""
PRESSED: Final = 0.8
"""Slots that are at work for this part of a log's time leave newcomers waiting, unless clients wait for each other."""


def _too_few_slots(symptoms: Symptoms) -> Finding | Clear | Undecided:
    found = waiting(symptoms)
    if isinstance(found, Undecided):
        return _by_log(symptoms, found)
    if isinstance(found, Clear):
        return found
    if found.busy < found.slots:
        return Clear("requests wait, but not for want of slots", found.evidence)
    room = room_for_more(symptoms)
    if room is not None and not room[0]:
        return Clear(f"more slots would not help: {room[1]}", found.evidence)
    told = "whether speed is left for more slots can't be told without what is owed" if room is None else room[1]
    measured = () if room is None or room[2] is None else (room[2],)
    return Finding(
        TOO_FEW_SLOTS,
        f"{_who_waits(found.deferred[-1])} for {counted(found.slots, 'slot')}, all busy; {told}",
        (*found.evidence, *measured),
        Severity.WARNING if found.rounds >= BRIEF else Severity.INFO,
        Confidence.POSSIBLE if room is None else Confidence.LIKELY,
        found.cost(symptoms),
        more_slots(symptoms, found.slots, found.slots + max(found.deferred)),
    )


def _by_log(symptoms: Symptoms, unseen: Undecided) -> Finding | Clear | Undecided:
    """What a log says about waiting: that nobody could have waited, or that somebody may have."""
    log, count = symptoms.log, settings.slots(symptoms)
    requests = None if log is None else log.requests
    if log is None or requests is None or requests.most_busy_slots is None or count is None:
        return unseen
    most = requests.most_busy_slots
    seen = Evidence(
        Source.LOG,
        f"at most {most} of {counted(count.value, 'slot')} at work in {counted(requests.requests, 'request')}",
    )
    if most < count.value:
        return Clear(f"a slot was always free: at most {most} of {count.value} were at work", (seen,))
    share = work.pressed(log, count.value)
    if share is None or share < PRESSED or requests.requests < work.MANY_REQUESTS:
        return unseen
    return Finding(
        TOO_FEW_SLOTS,
        f"{counted(count.value, 'slot')} at work {100 * min(share, 1):.0f} % of the time: who comes meanwhile waits, "
        "which a log does not show",
        (seen,),
        Severity.INFO,
        Confidence.POSSIBLE,
    )


def _idle_while_queueing(symptoms: Symptoms) -> Finding | Clear | Undecided:
    found = waiting(symptoms)
    if not isinstance(found, Waiting):
        return found
    if found.busy >= found.slots:
        return Clear("no slot is idle while requests wait", found.evidence)
    if len(found.deferred) < 2:
        return Undecided("--watch 60: it tells a slot that just became free from one that nobody is let into")
    return Finding(
        SLOTS_IDLE_WHILE_QUEUEING,
        f"{_who_waits(found.deferred[-1])} though only {found.busy} of {counted(found.slots, 'slot')} are busy",
        found.evidence,
        confidence=Confidence.LIKELY,
        cost=found.cost(symptoms),
    )


def _scattered(symptoms: Symptoms) -> Finding | Clear | Undecided:
    unified, count, server = settings.is_unified(symptoms), settings.slots(symptoms), symptoms.server
    if count is not None and count.value <= 2:
        return Clear(f"{counted(count.value, 'slot')} can't lie scattered")
    if unified:
        return Clear("the slots share one KV cache")
    if unified is None or count is None:
        return Undecided(f"the log's start, which says whether the slots share a cache, or {settings.ITS_ARGUMENTS}")
    busy = None if server is None else work.busy_slots(server)
    if server is None or busy is None:
        return Undecided("/metrics of the busy server (--url; start it with --metrics)")
    # Runs of neighbours among m busy of N slots placed at random: m(N-m+1)/N; at this moment they can be counted.
    runs = _runs(server.slots) or busy.value * (count.value - busy.value + 1) / count.value
    if runs < TWICE or not TWICE <= busy.value < HALF_IDLE * count.value:
        words = f"{busy.value:.1f} of {count.value} slots work in a step, and hardly any lie scattered"
        return Clear(words, (busy.evidence,))
    return _far_apart(symptoms, busy, count, runs)


def _far_apart(symptoms: Symptoms, busy: Measured, count: Number, runs: float) -> Finding:
    speed, alone, owed = work.user_speed(symptoms), work.decode_alone(symptoms), work.owed_speed(symptoms)
    is_broken = speed is not None and owed is not None and speed.value < owed
    # A CPU is slower with every request in a step, however they lie; only a GPU's loss must have this cause.
    is_slow = speed is not None and alone is not None and speed.value < FAR_SLOWER * alone.value and _on_gpu(symptoms)
    numbers = tuple(one.evidence for one in (speed, alone) if one is not None)
    return Finding(
        SCATTERED_SLOTS,
        f"{busy.value:.1f} of {count.value} slots busy, each with a cache of its own: the weights are read about "
        f"{runs:.1f} times a step" + ("" if speed is None else f", {speed.value:.0f} tok/s per user"),
        (busy.evidence, count.evidence, *numbers),
        Severity.WARNING if is_broken or is_slow else Severity.INFO,
        Confidence.LIKELY if is_slow else Confidence.POSSIBLE,
        Cost(speed_share=1 - 1 / runs if is_slow else None),
        f"try --kv-unified, or lower --parallel from {count.value} to about {max(1, math.ceil(busy.value))}",
    )


def _static_batch(symptoms: Symptoms) -> Finding | Clear | Undecided:
    count = settings.slots(symptoms)
    setting = settings.stated(symptoms, "-cb")
    if setting is None or setting.on:
        if setting is not None or settings.has_defaults(symptoms):
            return Clear("continuous batching is on")
        return Undecided(settings.ITS_ARGUMENTS)
    if count is not None and count.value == 1:
        return Clear("continuous batching is off, which makes no difference to one slot")
    together = _most_at_once(symptoms)
    return Finding(
        STATIC_BATCH,
        "continuous batching is off: a request that comes while others run waits until all of them are done"
        + ("" if together is None else f", and up to {together} are in flight here"),
        (settings.said(setting),),
        Severity.WARNING if together is not None and together > 1 else Severity.INFO,
    )


def _most_at_once(symptoms: Symptoms) -> int | None:
    """Most requests that were seen in flight at one moment."""
    seen = []
    if symptoms.log is not None and symptoms.log.requests is not None:
        seen.append(symptoms.log.requests.most_busy_slots)
    if symptoms.server is not None:
        looks = (symptoms.server.metrics, symptoms.server.metrics_later)
        seen += [(one.processing or 0) + (one.deferred or 0) for one in looks if one is not None]
    return max((one for one in seen if one is not None), default=None)


def _runs(slots: Sequence[Slot] | None) -> int:
    """Groups of neighbouring slots that are at work; 0: not enough of them to tell."""
    busy = sorted(slot.id for slot in slots or () if slot.processing)
    if len(busy) < 2:
        return 0
    return 1 + sum(after - before > 1 for before, after in itertools.pairwise(busy))


def _on_gpu(symptoms: Symptoms) -> bool:
    if symptoms.log is not None and symptoms.log.facts.model_buffers:
        return symptoms.log.facts.on_gpu
    return symptoms.device is not None or (symptoms.pod is not None and symptoms.pod.gpus > 0)


def _who_waits(count: int) -> str:
    return f"{counted(count, 'request')} wait{'s' * (count == 1)}"


RULES: Final = (
    Rule(TOO_FEW_SLOTS.id, Item.QUEUE, _too_few_slots),
    Rule(SLOTS_IDLE_WHILE_QUEUEING.id, Item.QUEUE, _idle_while_queueing),
    Rule(unfair.UNFAIR_SLOTS.id, Item.QUEUE, unfair.unfair),
    Rule(SCATTERED_SLOTS.id, Item.QUEUE, _scattered),
    Rule(STATIC_BATCH.id, Item.QUEUE, _static_batch),
    Rule(turns.SERVED_OUT_OF_TURN.id, Item.QUEUE, turns.served_out_of_turn),
)
