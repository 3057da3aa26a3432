"""Prompts are read in pieces: how large a piece is (``-ub``), and how long a step keeps the others waiting (``-b``)."""

from __future__ import annotations

import math
import re
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.counting import never_together
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import contention, settings, work
from slotune.diagnose.rules.contention import CONTENTION, PROMPT_ALONE_TOO_SLOW, USUAL_PIECE
from slotune.diagnose.rules.media import MEDIA_TAKES_LONG, media_takes_long
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.rules.whole_inputs import INPUT_LARGER_THAN_BATCH, input_larger_than_batch
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.build_defaults import defaults_of
from slotune.llama.log_story import Line, RequestTimings, Topic

__all__ = ["CONTENTION", "ENTRIES", "PROMPT_ALONE_TOO_SLOW", "RULES"]

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

ENTRIES: Final = (
    PREFILL_IN_SMALL_PIECES,
    NEIGHBOURS_STALL,
    PREFILL_BOUND,
    *contention.ENTRIES,
    INPUT_LARGER_THAN_BATCH,
    MEDIA_TAKES_LONG,
)

WORTH_SAVING: Final = 0.25
"""Part of a prompt's time that larger pieces would save at best; a smaller one is within what machines differ."""
FINER_STEP: Final = 512
"""--batch-size that gives running answers a token four times as often as the default does."""
LONG_PAUSE_S: Final = 1.0
"""A reader notices when an answer stands still for a second."""
WORTH_HALVING: Final = 0.5
"""Smaller steps whose pauses are longer than this part of what they are help little."""
BEYOND_SHARING: Final = 0.8
"""Answers that take turns share the speed of one, and those in a batch lose less: below this part of such a share
something else held them up."""
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
    fixed = min(1.0, step_s / piece_s)
    saved = (1 - piece.value / USUAL_PIECE) * fixed
    tokens = work.prompt_tokens(symptoms)
    if tokens is not None and tokens > piece.value:
        now, larger = math.ceil(tokens / piece.value), math.ceil(tokens / USUAL_PIECE)
        saved = (now - larger) * fixed / (now * fixed + tokens / piece.value * (1 - fixed))
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
    is_known = is_gpu and prefill.alone and decode.alone
    at_most = f", so larger ones save at most {100 * saved:.0f} % of reading them" if is_known else ""
    return Finding(
        PREFILL_IN_SMALL_PIECES,
        f"prompts are read in pieces of {piece.value} tokens:{pieces} each takes {1e3 * piece_s:.0f} ms, of which "
        f"reading the weights is up to {1e3 * min(step_s, piece_s):.0f} ms{at_most}",
        evidence,
        Severity.WARNING if is_gpu else Severity.INFO,
        Confidence.LIKELY if is_known else Confidence.POSSIBLE,
        Cost(ttft_share=saved * _reading_share(symptoms, tokens, prefill.value) if is_known else None),
        first=f"raise --ubatch-size from {piece.value} to {USUAL_PIECE}, and --batch-size to at least the same",
    )


def _neighbours_stall(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    requests = None if log is None else log.requests
    slowest = None if requests is None else _slowest_prompt(requests)
    if log is None or requests is None or requests.most_busy_slots is None or slowest is None:
        return Undecided("a log of the server under load: --log FILE")
    if requests.most_busy_slots < 2:
        return Clear(never_together(requests.requests))
    took_s, tokens = slowest
    batch = settings.batch_size(symptoms)
    batch = batch if batch is not None and batch.value > 0 else None
    step = min(defaults_of(log.build).batch_size if batch is None else batch.value, tokens)
    pause_s, finer_s = took_s * step / tokens, took_s * min(FINER_STEP, tokens) / tokens
    longest_s = took_s if batch is None else pause_s
    if longest_s < LONG_PAUSE_S:
        return Clear(f"a step of the slowest prompt keeps others waiting for {longest_s:.2f} s", _line(requests))
    if finer_s > WORTH_HALVING * longest_s:
        return Clear(f"the slowest prompt has {tokens:,} tokens: smaller steps would be no shorter", _line(requests))
    slowed = _held_up(requests)
    if batch is None and (slowed is None or pause_s < LONG_PAUSE_S or finer_s > WORTH_HALVING * pause_s):
        return Undecided(f"--batch-size: a log with -lv 4 that holds the start, or {settings.ITS_ARGUMENTS}")
    felt = "" if slowed is None else f", and {slowed}"
    default = "" if batch is not None or tokens <= step else " at the default --batch-size"
    known = () if batch is None else (batch.evidence,)
    slow = log.seen.get(Topic.SLOW_PROMPT)
    beside = requests.example_beside is not None  # else the long prompt may well have been alone
    return Finding(
        NEIGHBOURS_STALL,
        f"a prompt of {tokens:,} tokens took {took_s:.1f} s, and up to {step:,} of them are one step{default}, for "
        f"which all other answers wait {pause_s:.1f} s{felt}",
        (*_line(requests), *known, *(() if slow is None else (work.quoted(slow),))),
        Severity.INFO if slowed is None or not beside else Severity.WARNING,
        Confidence.LIKELY if slowed is not None and batch is not None and beside else Confidence.POSSIBLE,
        # Not counted: the log does not say which answers stood still, and smaller steps compute the prompt too.
        first=f"start with --batch-size {FINER_STEP}: the pause falls to about {finer_s:.1f} s",
    )


def _example(requests: RequestTimings) -> Line | None:
    return requests.example_beside or requests.example


def _line(requests: RequestTimings) -> tuple[Evidence, ...]:
    example = _example(requests)
    return () if example is None else (Evidence.of_line(example),)


def _held_up(requests: RequestTimings) -> str | None:
    """How much slower some answers were than sharing steps makes them; None: that may be all there is to it."""
    spread, most = requests.decode_tokens_per_s, requests.most_busy_slots or 1
    if spread is None or spread[0] >= BEYOND_SHARING * spread[2] / most:
        return None
    return (
        f"the slowest tenth of answers ran at {spread[0]:.3g} tokens/s, the fastest at {spread[2]:.3g}: more than "
        f"sharing steps among {most} explains"
    )


def _reading_share(symptoms: Symptoms, tokens: float | None, tokens_per_s: float) -> float:
    """Part of the time to the first token that goes into reading the prompt, by a probe of what comes before."""
    probe = symptoms.probe
    if probe is None:
        return 1.0
    reading_s = (probe.prompt_tokens if tokens is None else tokens) / tokens_per_s
    return reading_s / (reading_s + max(0.0, probe.overhead_s)) if reading_s > 0 else 0.0


def _slowest_prompt(requests: RequestTimings) -> tuple[float, int] | None:
    """(Seconds, tokens computed) of the slowest prompt that others ran beside; of any where that is not known."""
    example = _example(requests)
    match = None if example is None else _TIMINGS.search(example.text)
    return (float(match[1]) / 1e3, int(match[2])) if match is not None and int(match[2]) > 0 else None


RULES: Final = (
    Rule(PREFILL_IN_SMALL_PIECES.id, Item.BATCH, _small_pieces),
    Rule(NEIGHBOURS_STALL.id, Item.BATCH, _neighbours_stall),
    *contention.RULES,
    Rule(INPUT_LARGER_THAN_BATCH.id, Item.BATCH, input_larger_than_batch),
    Rule(MEDIA_TAKES_LONG.id, Item.BATCH, media_takes_long),
)
