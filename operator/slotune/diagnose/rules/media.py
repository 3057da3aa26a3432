"""Pictures and sound: what the model's own encoder for them takes before the first token of their prompt is read."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence
from slotune.diagnose.finding import Clear, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import work
from slotune.diagnose.rules.placement import heard
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Topic

__all__ = ["MEDIA_TAKES_LONG", "media_takes_long"]

MEDIA_TAKES_LONG: Final = Entry(
    id="SLT026",
    code="MediaTakesLong",
    item=Item.BATCH,
    title="Encoding pictures or sound takes a large part of the wait",
    cause="Each picture first goes through an encoder of its own (--mmproj). Where that computes on the CPU, where the "
    "GPU's back end lacks an operation that it needs, or where pictures are large, one takes seconds to minutes "
    "(ggml-org/llama.cpp#22582, #24272).",
    first="Let the encoder compute on the GPU (no --no-mmproj-offload), send smaller pictures, or cap them with "
    "--image-max-tokens.",
    avoid="Do not raise --ubatch-size or add slots: the encoder uses neither, and takes one picture after the other.",
    verify="The milliseconds of 'encoded in' fall for the same picture.",
    knobs=("extraArgs", "gpuClass"),
)

LARGE_PART: Final = 0.25
"""Of the time that prompts take; a smaller one is not what makes them slow."""
SLOW_MS: Final = 1000.0
"""Of a picture. On GPUs that people have at home one takes 0.1 to 1.7 s (ggml-org/llama.cpp#16837)."""
LONG_MS: Final = 3000.0
"""Longer than any of these."""
ON_CPU: Final = "CLIP using CPU backend"
_SMALLER: Final = "else send smaller pictures, or cap them with --image-max-tokens."
_BY_CAUSE: Final = {
    True: f"Let the encoder compute on the GPU: no --no-mmproj-offload, and a build for the GPU; {_SMALLER}",
    False: "Read which operations the lines behind that name: another --flash-attn, a newer build or another back end "
    f"may have them; {_SMALLER}",
}


def media_takes_long(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """What encoding took of the time before a first token."""
    log = symptoms.log
    if log is None or log.requests is None:
        return Undecided("a log of answered requests: --log FILE")
    media, requests = log.media, log.requests
    if media is None:
        return Clear("the log tells of no picture and no sound")
    slowest = (Evidence.of_line(media.slowest), *work.line_of(log))
    each_ms, share = media.ms / media.pieces, min(1.0, media.ms / requests.prompt_ms) if requests.prompt_ms else 0.0
    what = "recording" if "audio" in media.slowest.text else "picture"
    words = f"encoding {counted(media.pieces, what)} took {each_ms / 1e3:.3g} s{' each' if media.pieces > 1 else ''}"
    if share < LARGE_PART or each_ms < SLOW_MS:
        return Clear(f"{words}, {100 * share:.0f} % of the time that prompts take", slowest)
    fallback = heard(log, Topic.MEDIA_FALLBACK)
    on_cpu = any(ON_CPU in line.text for line in fallback)
    why = "" if not fallback else ", on the CPU" if on_cpu else ", with operations that the GPU's back end lacks"
    return Finding(
        MEDIA_TAKES_LONG,
        f"{words}{why}: {100 * share:.0f} % of the time that prompts take",
        (*slowest, *fallback[:1]),
        Severity.WARNING if each_ms >= LONG_MS else Severity.INFO,
        cost=Cost(media.ms / requests.requests / 1e3, share),
        first=_BY_CAUSE[on_cpu] if fallback else None,
    )
