"""Is the prompt read as fast as the GPU can compute? The question that people ask first, put beside its bound."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.durations import seconds
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Undecided
from slotune.diagnose.roofline import Roofline, roofline_of
from slotune.diagnose.rules import work
from slotune.diagnose.rules.contention import USUAL_PIECE
from slotune.diagnose.rules.layers import on_host
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.rules.reached import times_the_usual
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_speeds import MIN_PROMPT

__all__ = ["ENTRIES", "RULES", "time_lost"]

PREFILL_FAR_BELOW: Final = Entry(
    id="SLT013",
    code="PrefillFarBelowRoofline",
    item=Item.KERNELS,
    title="Prompts are read far slower than the GPU can compute",
    cause="A prompt is arithmetic, and this one takes many times what the GPU's operations/s allow: some of it runs "
    "elsewhere (layers, experts or attention on the CPU), with a kernel that was not made for this, or in pieces that "
    "are too small to fill the GPU.",
    first="Read the log's start at -lv 4: all layers must be on the GPU, flash attention on, no line about a missing "
    "kernel; then try --ubatch-size 512 or more.",
    avoid="Do not quantize further: fewer bytes do not make arithmetic faster. Do not buy a larger GPU for this one's "
    "unused part.",
    verify="Send one prompt of 1,000 tokens or more to the idle server (--probe): prompt tokens/s rise.",
    knobs=("gpuLayers", "flashAttention", "uBatchSize"),
    binds="TTFTPrefill",
)

TIMES_THE_FLOOR: Final = 40
"""Kernels for quantized weights reach a twentieth to a third of the data sheet's 8-bit operations/s; a fortieth has a
cause."""
BESIDE_S: Final = 0.1
"""Launches, the first pass, small pieces: what a short prompt takes beside its arithmetic."""
FEW: Final = 4
"""Prompts: of fewer, the best may be the first, which pays for kernels that are compiled and memory that is taken."""


def _far_below(symptoms: Symptoms) -> Finding | Clear | Undecided:
    said = _measured(symptoms)
    cause = on_host(symptoms) if isinstance(said, Finding) else None
    if cause is None or not isinstance(said, Finding):
        return said
    return Clear(f"a prompt takes longer than the GPU needs for it: {cause.id} says why", said.evidence)


def time_lost(symptoms: Symptoms) -> Cost:
    """What a prompt takes longer than is usual for its GPU, whatever the cause."""
    said = _measured(symptoms)
    return said.cost if isinstance(said, Finding) else Cost()


def _measured(symptoms: Symptoms) -> Finding | Clear | Undecided:
    if backend_of(symptoms) is Backend.CPU:
        return Clear("no GPU is in use, so no GPU's arithmetic bounds it")
    roofline = roofline_of(symptoms)
    said = Undecided(roofline) if isinstance(roofline, str) else _held_against(roofline, symptoms)
    return (_slower_than_writing(symptoms) or said) if isinstance(said, Undecided) else said


def _slower_than_writing(symptoms: Symptoms) -> Finding | None:
    """Where nobody knows what the GPU can do: tokens of a prompt are computed together, so reading one takes a small
    part of what writing one takes. Where it takes as long, they might as well be read one by one."""
    requests = None if symptoms.log is None else symptoms.log.requests
    read, written = work.prefill_alone(symptoms), work.decode_alone(symptoms)
    if read is None or written is None or not (read.alone and written.alone) or read.value > written.value:
        return None
    if requests is None or requests.drafted_tokens:
        return None  # guessed tokens are written several at a time
    if sum(count for tokens, count in requests.prompt_tokens_spread if tokens >= MIN_PROMPT) < FEW:
        return None
    share = 1 - read.value / written.value
    return Finding(
        PREFILL_FAR_BELOW,
        f"prompts of {MIN_PROMPT} tokens and more are read at {read.value:,.3g} tokens/s at best, and answers are "
        f"written at {written.value:,.3g}: reading tokens together is no faster than one by one",
        (read.evidence, written.evidence),
        confidence=Confidence.LIKELY,
        cost=Cost(share * requests.prompt_ms / requests.requests / 1e3, share),
    )


def _held_against(roofline: Roofline, symptoms: Symptoms) -> Finding | Clear | Undecided:
    seen, at_most = roofline.prefill.seen, roofline.prefill.at_most
    if at_most is None or (roofline.prefill.needs is not None and not roofline.prefill.is_least):
        return Undecided(roofline.prefill.needs or "--probe: how fast one prompt is read alone")
    if roofline.is_dense is False:
        return Undecided("--model FILE.gguf: how many of the weights of this mixture of experts take part in a token")
    if seen is None or not seen.alone or seen.is_mean or seen.tokens_per_s <= 0:
        return Undecided("--probe: how fast one prompt is read alone")
    tokens = _tokens(symptoms)
    # GPUs that take turns read a short prompt one after the other.
    slowest = at_most / (roofline.devices.in_turn * roofline.devices.slower_computing)
    took, floor = _taken_s(tokens / seen.tokens_per_s, symptoms), tokens / slowest
    usual = TIMES_THE_FLOOR * times_the_usual(symptoms, roofline) * floor + BESIDE_S
    if took <= usual and roofline.prefill.needs is not None:
        return Undecided(roofline.prefill.needs)
    if took <= usual:
        return Clear(f"{tokens:,} tokens alone take {seconds(took)}, the arithmetic {seconds(floor)}", (seen.evidence,))
    before_s = 0.0 if symptoms.probe is None else max(0.0, symptoms.probe.overhead_s)
    return Finding(
        PREFILL_FAR_BELOW,
        f"{tokens:,} tokens alone take {seconds(took)} to read, {roofline.device or 'the GPU'} can compute them in "
        f"{seconds(floor)}, and up to {seconds(usual)} would be usual",
        (seen.evidence, *roofline.evidence),
        confidence=Confidence.POSSIBLE if roofline.prefill.is_least else Confidence.LIKELY,
        cost=Cost(took - usual, (took - usual) / (took + before_s)),
    )


def _tokens(symptoms: Symptoms) -> int:
    """Of a prompt: the probe's, else of a mean one in the log, else as many as fill a piece."""
    if symptoms.probe is not None:
        return symptoms.probe.prompt_tokens
    requests = None if symptoms.log is None else symptoms.log.requests
    return USUAL_PIECE if requests is None else round(requests.prompt_tokens / max(1, requests.requests))


def _taken_s(mean_s: float, symptoms: Symptoms) -> float:
    """A mean prompt's time, where only a log tells the speed: no longer than its longest prompt took."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if symptoms.probe is not None or requests is None or not requests.prompt_ms_spread:
        return mean_s
    return min(mean_s, requests.prompt_ms_spread[-1][0] / 1e3)


ENTRIES: Final = (PREFILL_FAR_BELOW,)

RULES: Final = (Rule(PREFILL_FAR_BELOW.id, Item.KERNELS, _far_below),)
