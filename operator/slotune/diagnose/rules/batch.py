"""Prompts are read in pieces: how large a piece is (``-ub``), and how long a step keeps the others waiting (``-b``)."""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import settings, work
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Line, RequestTimings, Topic

__all__ = ["ENTRIES", "RULES"]

PREFILL_IN_SMALL_PIECES: Final = Entry(
    id="SLT020",
    code="PrefillInSmallPieces",
    item=Item.BATCH,
    title="Prompts are read in small pieces",
    cause="A prompt is computed in pieces of --ubatch-size tokens, never more than --batch-size, and every piece reads "
    "all the weights once: with small ones the time goes into reading weights (ggml-org/llama.cpp#26391).",
    first="Raise --ubatch-size to 512 or more, and --batch-size to at least the same.",
    avoid="Do not lower the context or quantize the weights for this: both leave the number of pieces as it is.",
    verify="Send one prompt of 1,000 tokens or more to the idle server before and after: its prompt eval time falls.",
    knobs=("uBatchSize", "batchSize"),
    binds="TTFTPrefill",
)

NEIGHBOURS_STALL: Final = Entry(
    id="SLT021",
    code="NeighboursStall",
    item=Item.BATCH,
    title="Answers pause while a neighbour's prompt is read",
    cause="Each step computes up to --batch-size prompt tokens, and every running answer waits for the whole step "
    "(ggml-org/llama.cpp#4216): one long prompt shows as a gap in all the others.",
    first="Lower --batch-size to 512, so that running answers get a token four times as often as with 2,048.",
    avoid="Do not raise --batch-size, and do not add slots: both let more prompt tokens into one step.",
    verify="Send a long prompt beside a running stream: the longest gap between two of its tokens falls.",
    knobs=("batchSize",),
)

CONTENTION: Final = Entry(
    id="SLT022",
    code="Contention",
    item=Item.BATCH,
    title="Prompts wait for other prompts in the same batch",
    cause="Prompts that arrive together share the batch, so each is read at a part of the speed that it has alone "
    "(ggml-org/llama.cpp#4875).",
    first="Raise --ubatch-size, so that the prompts of a step are read faster; then try fewer slots.",
    avoid="Do not add slots: more prompts would then share the same step.",
    verify="Measure at the same rate: prompt_ms of a request comes near to what the same prompt takes alone.",
    knobs=("uBatchSize", "parallelSlots", "replicas"),
    binds="TTFTContention",
)

PREFILL_BOUND: Final = Entry(
    id="SLT023",
    code="PrefillBound",
    item=Item.BATCH,
    title="Reading the prompt takes most of the wait",
    cause="Most of the time to the first token goes into computing prompt tokens that no cache could have saved.",
    first="Raise --ubatch-size and keep flash attention on; then shorter prompts, or a GPU that computes faster.",
    avoid="Do not quantize the KV cache for this: reading a prompt is arithmetic, and a quantized cache adds to it.",
    verify="Send the same prompt to the idle server before and after: prompt_ms falls.",
    knobs=("uBatchSize", "flashAttention", "gpuClass"),
    binds="TTFTPrefill",
)

PROMPT_ALONE_TOO_SLOW: Final = Entry(
    id="SLT024",
    code="PromptAloneTooSlow",
    item=Item.BATCH,
    title="Even alone on the server a prompt takes longer than is owed",
    cause="At the speed of the idle server the prompt's own tokens take longer than the promised time to the first "
    "token, so no rate is low enough and no number of replicas helps.",
    first="Try a faster GPU or smaller weights, or shorten the prompts; or promise what this server can do.",
    avoid="Do not search slots, caches or replicas: all of them only take waiting away, and here nobody waits.",
    verify="Probe the idle server: prompt tokens divided by prefill speed must be under the promised time.",
    knobs=("gpuClass", "variant"),
    binds="TTFTPrefill",
)

ENTRIES: Final = (PREFILL_IN_SMALL_PIECES, NEIGHBOURS_STALL, CONTENTION, PREFILL_BOUND, PROMPT_ALONE_TOO_SLOW)

USUAL_PIECE: Final = 512
"""llama-server's default of --ubatch-size: pieces of this size or more are nobody's mistake."""
WORTH_SAVING: Final = 0.25
"""Part of a prompt's time that larger pieces would save at best; a smaller one is within what machines differ."""
FINER_STEP: Final = 512
"""--batch-size that gives running answers a token four times as often as the default does."""
LONG_PAUSE_S: Final = 1.0
"""A reader notices when an answer stands still for a second."""
HALVED: Final = 0.5
"""The slowest tenth of answers at less than this part of the fastest tenth's speed was held up by something."""
CROWDED: Final = 0.3
"""Part of a prompt's time that goes to other prompts, from which trials call it contention."""

_TIMINGS = re.compile(r"prompt eval time = +([\d.]+) ms / +(\d+) tokens")


def _small_pieces(symptoms: Symptoms) -> Finding | Clear | Undecided:
    ubatch, batch = settings.ubatch_size(symptoms), settings.batch_size(symptoms)
    known = [one for one in (ubatch, batch) if one is not None and one.value > 0]
    piece = min(known, key=lambda one: one.value, default=None)
    if piece is None or (piece.value >= USUAL_PIECE and len(known) < 2):
        return Undecided(f"a log with -lv 4 that holds the start, or {settings.ITS_ARGUMENTS}")
    if piece.value >= USUAL_PIECE:
        return Clear(f"prompts are read in pieces of {piece.value:,} tokens", (piece.evidence,))
    prefill, decode = work.prefill_alone(symptoms), work.decode_alone(symptoms)
    if prefill is None or decode is None:
        return Undecided(f"--probe: pieces of {piece.value} tokens are small, and their speed says whether that costs")
    piece_s, step_s = piece.value / prefill.value, 1 / decode.value
    # A step of one token reads all the weights and computes next to nothing: what each piece would not need again.
    saved = (1 - piece.value / USUAL_PIECE) * min(1.0, step_s / piece_s)
    tokens = _prompt_tokens(symptoms)
    evidence = (piece.evidence, prefill.evidence, decode.evidence)
    if saved < WORTH_SAVING:
        times = piece_s / step_s
        words = f"a piece of {piece.value} tokens takes as long as {times:.0f} steps of one: that is work, not weights"
        return Clear(words, evidence)
    if tokens is not None and tokens <= piece.value:
        return Clear(f"prompts of {tokens:,.0f} tokens fit one piece of {piece.value}", evidence)
    pieces = "" if tokens is None else f" {tokens:,.0f} tokens in about {tokens / piece.value:.0f} pieces:"
    # Elsewhere a step of one token is computing and overhead too, so what larger pieces would save is not known.
    is_gpu = backend_of(symptoms) not in {None, Backend.CPU}
    return Finding(
        PREFILL_IN_SMALL_PIECES,
        f"prompts are read in pieces of {piece.value} tokens:{pieces} each takes {1e3 * piece_s:.0f} ms, of which "
        f"reading the weights is up to {1e3 * min(step_s, piece_s):.0f} ms",
        evidence,
        Severity.WARNING if is_gpu else Severity.INFO,
        Confidence.LIKELY if is_gpu else Confidence.POSSIBLE,
        Cost(ttft_share=saved if is_gpu else None),
        first=f"raise --ubatch-size from {piece.value} to {USUAL_PIECE}, and --batch-size to at least the same",
    )


def _neighbours_stall(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    requests = None if log is None else log.requests
    slowest = None if requests is None else _slowest_prompt(requests)
    if log is None or requests is None or requests.most_busy_slots is None or slowest is None:
        return Undecided("a log of the server under load: --log FILE")
    if requests.most_busy_slots < 2:
        return Clear(f"no two of {requests.requests} requests ran at once")
    took_s, tokens = slowest
    batch = settings.batch_size(symptoms)
    step = tokens if batch is None else min(batch.value, tokens)
    pause_s, finer_s = took_s * step / tokens, took_s * min(FINER_STEP, tokens) / tokens
    if pause_s < LONG_PAUSE_S:
        return Clear(f"a step of the slowest prompt keeps others waiting for {pause_s:.2f} s", _line(requests))
    if finer_s > HALVED * pause_s:
        return Clear(f"the slowest prompt has {tokens:,} tokens: smaller steps would be no shorter", _line(requests))
    lost = _held_up(requests)
    if batch is None and lost is None:
        return Undecided(f"--batch-size: a log with -lv 4 that holds the start, or {settings.ITS_ARGUMENTS}")
    felt = "" if lost is None else f", and the slowest tenth of answers lost {100 * lost:.0f} % of their speed"
    known = () if batch is None else (batch.evidence,)
    slow = log.seen.get(Topic.SLOW_PROMPT)
    beside = requests.example_beside is not None  # else the long prompt may well have been alone
    return Finding(
        NEIGHBOURS_STALL,
        f"a prompt of {tokens:,} tokens took {took_s:.1f} s, and up to {step:,} of them are one step, for which all "
        f"other answers wait {pause_s:.1f} s{felt}",
        (*_line(requests), *known, *(() if slow is None else (work.quoted(slow),))),
        Severity.INFO if lost is None or not beside else Severity.WARNING,
        Confidence.LIKELY if lost is not None and batch is not None and beside else Confidence.POSSIBLE,
        Cost(speed_share=lost),
        f"start with --batch-size {FINER_STEP}: the pause falls to about {finer_s:.1f} s",
    )


def _example(requests: RequestTimings) -> Line | None:
    return requests.example_beside or requests.example


def _line(requests: RequestTimings) -> tuple[Evidence, ...]:
    example = _example(requests)
    return () if example is None else (Evidence(Source.LOG, example.text, example.number),)


def _held_up(requests: RequestTimings) -> float | None:
    """Part of their speed that the slowest tenth of answers lost; None: all run at about one speed."""
    spread = requests.decode_tokens_per_s
    return None if spread is None or spread[0] >= HALVED * spread[2] else 1 - spread[0] / spread[2]


def _contention(symptoms: Symptoms) -> Finding | Clear | Undecided:
    probe, log = symptoms.probe, symptoms.log
    requests = None if log is None else log.requests
    if probe is None or requests is None or requests.prefill_tokens_per_s is None or probe.prefill_tokens_per_s <= 0:
        return Undecided("--probe, and a log of the server under load: --log FILE")
    if not probe.was_idle:
        return Undecided("--probe while nobody else uses the server")
    usual, alone = requests.prefill_tokens_per_s[1], probe.prefill_tokens_per_s
    share = 1 - usual / alone
    evidence = (
        Evidence(Source.LOG, f"median of {requests.requests} prompts: {usual:,.0f} tokens/s"),
        Evidence(Source.PROBE, f"prompts alone: {alone:,.0f} tokens/s"),
    )
    if requests.most_busy_slots is not None and requests.most_busy_slots < 2:
        return Clear("prompts have the server for themselves", evidence)
    if share < CROWDED:
        return Clear(f"prompts are read at {usual:,.0f} tokens/s, {alone:,.0f} alone", evidence)
    promise = symptoms.promise
    is_late = promise is not None and requests.prompt_ms / max(1, requests.requests) / 1e3 > promise.ttft_s
    return Finding(
        CONTENTION,
        f"prompts are read at {usual:,.0f} tokens/s beside others and at {alone:,.0f} alone: {100 * share:.0f} % of "
        "their time is other requests' work",
        evidence,
        Severity.WARNING if is_late else Severity.INFO,  # a server that is used well has some of this
        Confidence.POSSIBLE,
        Cost(ttft_share=share),
    )


def _prompt_alone_too_slow(symptoms: Symptoms) -> Finding | Clear | Undecided:
    promise, prefill, tokens = symptoms.promise, work.prefill_alone(symptoms), _prompt_tokens(symptoms)
    if promise is None:
        return Clear("no time to the first token is owed")
    if prefill is None or tokens is None:
        return Undecided("a log of answered requests, better with --probe")
    alone_s = tokens / prefill.value
    if alone_s <= promise.ttft_s:
        words = f"{tokens:,.0f} tokens alone take {alone_s:.2f} s, {promise.ttft_s:g} s are owed"
        return Clear(words, (prefill.evidence,))
    return Finding(
        PROMPT_ALONE_TOO_SLOW,
        f"reading {tokens:,.0f} tokens alone takes {alone_s:.1f} s here ({prefill.value:,.0f} tokens/s), "
        f"{promise.ttft_s:g} s are owed",
        (prefill.evidence,),
        confidence=Confidence.LIKELY,
        cost=Cost(alone_s, 1.0),
    )


def _prompt_tokens(symptoms: Symptoms) -> float | None:
    """Mean tokens that a prompt leaves to compute; None: no request was logged."""
    requests = None if symptoms.log is None else symptoms.log.requests
    return requests.prompt_tokens / requests.requests if requests is not None and requests.requests else None


def _slowest_prompt(requests: RequestTimings) -> tuple[float, int] | None:
    """(Seconds, tokens computed) of the slowest prompt that others ran beside; of any where that is not known."""
    example = _example(requests)
    match = None if example is None else _TIMINGS.search(example.text)
    return (float(match[1]) / 1e3, int(match[2])) if match is not None and int(match[2]) > 0 else None


RULES: Final = (
    Rule(PREFILL_IN_SMALL_PIECES.id, Item.BATCH, _small_pieces),
    Rule(NEIGHBOURS_STALL.id, Item.BATCH, _neighbours_stall),
    Rule(CONTENTION.id, Item.BATCH, _contention),
    Rule(PROMPT_ALONE_TOO_SLOW.id, Item.BATCH, _prompt_alone_too_slow),
)
