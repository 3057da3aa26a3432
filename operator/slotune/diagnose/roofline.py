"""What a server could do at best, and the share of it that was reached.

A decoded token reads every weight that takes part, and the sequence's keys and values, once: memory bandwidth over
these bytes bounds tokens/s of one user; with speculation a step may write several. A prompt token takes two operations
for each weight that takes part, and many tokens share one reading of the weights: operations/s bound prefill.
(Roofline: Williams, Waterman, Patterson, CACM 2009.)

Whatever is not known is left out of what a token costs, so that both bounds stay above the truth: attention's own
arithmetic, keys and values of contexts of unknown length, experts that may not have been asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.diagnose.accelerators import TIMES_AT_FP4, is_faster_at_fp4
from slotune.diagnose.devices import Devices, devices_of
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.roofline_doubts import EXPERTS, Doubts, doubts_of
from slotune.diagnose.roofline_many import Many, many_of
from slotune.diagnose.speculating import Speculating, speculating
from slotune.diagnose.speeds import Speed, decode_speed, mean_decode_speed, prefill_speed
from slotune.diagnose.step_reads import Weights, kv_bytes, logged_context, mean_context, size_words, weights_of
from slotune.diagnose.symptoms import Symptoms

__all__ = ["Bound", "Roofline", "roofline_of", "usual_step_s"]

TIMES_THE_FLOOR: Final = 2.0
"""Kernels reach half of the memory bandwidth at least."""
LAUNCH_S: Final = 200e-6
"""A layer and a token: what launching its kernels may take (seconds), whatever the bytes. An 8B model of 32 layers
needs 7 ms a token on an A100 or H100, of which the bytes explain 1.5 to 2.5."""
LAYERS_MOST: Final = 100
"""Where the number of layers is not known: the largest models have about so many."""

_BESIDE: Final = {True: "", False: ", with others in the batch", None: ", perhaps with others in the batch"}
_SOURCES: Final = {Source.LOG: "the log", Source.NODE: "its node", Source.DEVICE: "the device's own words"}


def usual_step_s(floor_s: float, layers: int | None) -> float:
    """Most seconds a token that a healthy GPU takes of which memory bandwidth explains ``floor_s``."""
    return TIMES_THE_FLOOR * floor_s + LAUNCH_S * (layers or LAYERS_MOST)


@dataclass(frozen=True, slots=True)
class Bound:
    """One of the two: tokens/s."""

    at_most: float | None
    """None: not known, or there is no bound; ``needs`` says why."""
    seen: Speed | None
    needs: str | None = None
    """What would have to be known so that what was seen can be held against it; None: it can be."""

    @property
    def is_least(self) -> bool:
        """Whether experts that sit idle would only raise it: what is far below it is as far below the true one."""
        return self.needs == EXPERTS

    @property
    def share(self) -> float | None:
        """Share of the bound that was reached; above 1 something is not as it was taken to be."""
        if self.at_most is None or self.seen is None:
            return None
        return self.seen.tokens_per_s / self.at_most


@dataclass(frozen=True, slots=True)
class Roofline:
    """Both bounds of one server."""

    device: str | None
    devices: Devices
    weights: Weights
    kv_bytes: int | None
    """Read at each step for one sequence of ``context_tokens``; None: not counted."""
    context_tokens: int | None
    """Of a sequence, on average; None: nobody says."""
    speculating: Speculating
    decode: Bound
    prefill: Bound
    several: Many | None
    """What those in one step get; None with one user, or where nobody says how many there were."""
    doubts: Doubts
    evidence: tuple[Evidence, ...]

    @property
    def weights_bytes(self) -> int:
        """Read at each step."""
        return self.weights.taking_part

    @property
    def is_dense(self) -> bool | None:
        """Whether every weight takes part in every token, or which do is known; None: nobody says."""
        return self.weights.is_dense

    @property
    def step_bytes(self) -> float:
        """Read for one step of one sequence, a draft model's guesses included."""
        return self.weights.step_bytes(self.kv_bytes or 0, self.speculating.drafts_per_step)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in plain words."""
        whose = self.device or "this device"
        said = [f"{self._reads}: {_words(self.decode, f'{whose} can write at most', 'tokens/s to one user')}"]
        if not (self.decode.at_most is None and self.prefill.at_most is None and self.devices.gpu is None):
            said.append(_words(self.prefill, f"{whose} can read at most", "prompt tokens/s"))
        elif self.prefill.seen is not None:
            said.append(f"{self.prefill.seen.tokens_per_s:,.4g} prompt tokens/s were seen {self.prefill.seen.basis}")
        if self.several is not None:
            said.append(self.several.sentence)
        known = (self.devices.sentence, self._named, self.devices.doubt, *self.doubts.sentences)
        return (*said, *(one for one in known if one is not None))

    @property
    def _reads(self) -> str:
        rough = "about " if self.weights.rough else ""
        least = "at least " if self.is_dense is False else rough if self.is_dense else "up to "
        step = f"a token reads {least}{size_words(self.weights_bytes)} of weights"
        tokens = self.speculating.tokens_per_step
        if tokens is not None and tokens > 1:
            step = step.replace("a token reads", f"a step, which writes {tokens:.3g} tokens with speculation, reads")
            if self.weights.draft_bytes:
                drafted = self.weights.draft_bytes * self.speculating.drafts_per_step
                step += f", {size_words(drafted)} of the draft model's"
        if self.kv_bytes:
            context = f"(a context of {self.context_tokens:,} tokens)"
            return f"{step} and {size_words(self.kv_bytes)} of keys and values {context}"
        if self.kv_bytes is None:
            return f"{step} (weights alone: how many keys and values, nobody says)"
        return step

    @property
    def _named(self) -> str | None:
        by, gpu = self.devices.named_by, self.devices.gpu
        if self.devices.unknown is not None and (gpu is None or not gpu.bandwidth_bytes_per_s):
            return f"there are no figures for {self.devices.unknown}: give its memory bandwidth with --bandwidth"
        if by is None or gpu is None:
            return None
        where = _SOURCES.get(by.source, str(by.source)) + ("" if by.line is None else f", line {by.line}")
        figures = "operations/s" if self.devices.declared else "figures"
        return f"the device's name is from {where} ({by.text}), its {figures} from its data sheet"


def roofline_of(symptoms: Symptoms) -> Roofline | str:
    """The bounds, or what it would take to know them."""
    weights = weights_of(symptoms)
    if weights is None or weights.taking_part <= 0:
        return "the size of the weights: --model FILE.gguf, a server's /v1/models, or a log with -lv 4"
    devices, guesses = devices_of(symptoms), speculating(symptoms)
    seen, context = decode_speed(symptoms), mean_context(symptoms)
    if guesses.tokens_per_step is not None and guesses.tokens_per_step > 1:
        # As many tokens a step as on average over the log's requests, so speed and context have to be theirs too.
        seen, context = mean_decode_speed(symptoms), logged_context(symptoms)
    kv = None if context is None else kv_bytes(symptoms, context[0])
    bandwidth = None if devices.gpu is None else devices.gpu.bandwidth_bytes_per_s
    decode = None
    if bandwidth and guesses.tokens_per_step is not None:
        step = weights.step_bytes(kv or 0, guesses.drafts_per_step)
        decode = bandwidth * devices.at_once * guesses.tokens_per_step / step
    operations = None if devices.gpu is None else devices.gpu.flops_per_s
    if operations and symptoms.model is not None and "FP4" in symptoms.model.quantization and _has_fp4(devices):
        operations *= TIMES_AT_FP4
    prefill = None
    if operations and weights.parameters:
        prefill = operations * devices.in_turn / (2 * weights.parameters)
    reading = prefill_speed(symptoms)
    doubts = doubts_of(
        symptoms,
        weights,
        devices,
        guesses,
        kv=kv,
        decode_share=_share(decode, seen),
        prefill_share=_share(prefill, reading),
    )
    return Roofline(
        device=None if devices.gpu is None else devices.gpu.name,
        devices=devices,
        weights=weights,
        kv_bytes=kv,
        context_tokens=None if kv is None or context is None else round(context[0]),
        speculating=guesses,
        decode=Bound(decode, seen, doubts.decode_needs),
        prefill=Bound(prefill, reading, doubts.prefill_needs),
        several=many_of(symptoms, weights, devices, guesses, prefill),
        doubts=doubts,
        evidence=(*weights.evidence, *(one for one in (guesses.evidence, devices.named_by) if one is not None)),
    )


def _has_fp4(devices: Devices) -> bool:
    return devices.gpu is not None and is_faster_at_fp4(devices.gpu.name)


def _share(at_most: float | None, seen: Speed | None) -> float | None:
    return None if at_most is None or seen is None else seen.tokens_per_s / at_most


def _words(bound: Bound, can: str, unit: str) -> str:
    seen = bound.seen
    beside = "" if seen is None else f" {seen.basis}{_BESIDE[seen.alone]}".rstrip()
    if bound.at_most is None:
        had = "" if seen is None else f"; {seen.tokens_per_s:,.4g} {unit} were seen{beside}"
        return f"how many {unit} it could do is not known ({bound.needs}){had}"
    if seen is None:
        return f"{can} {_count(bound.at_most)} {unit}; what it does was not seen"
    share = f"{100 * (bound.share or 0.0):.3g} %" if (bound.share or 0.0) <= 1 else "more than that"
    return f"{can} {_count(bound.at_most)} {unit}, {seen.tokens_per_s:,.4g} were seen{beside}: {share}"


def _count(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"
