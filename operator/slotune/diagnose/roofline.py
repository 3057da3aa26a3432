"""What a server could do at best, and the share of it that was reached.

A decoded token reads every weight that takes part, and the sequence's keys and values, once: memory bandwidth over
these bytes bounds tokens/s of one user. A prompt token takes two operations for each weight that takes part, and many
tokens share one reading of the weights: operations/s bound prefill. (Roofline: Williams, Waterman, Patterson, CACM
2009.)
Attention itself is left out of the second bound, so a long prompt reaches less of it. In a mixture of experts only some
of the weights take part: at least the share of the experts that do, which keeps both bounds above the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.diagnose.accelerators import known_accelerator
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.speeds import Speed, decode_speed, prefill_speed
from slotune.diagnose.symptoms import GPUFacts, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.model_facts import ModelFacts

__all__ = ["Bound", "Roofline", "accelerator_of", "roofline_of", "usual_step_s"]

TIMES_THE_FLOOR: Final = 2.0
"""Kernels reach half of the memory bandwidth at least."""
LAUNCH_S: Final = 200e-6
"""A layer and a token: what launching its kernels may take (seconds), whatever the bytes. An 8B model of 32 layers
needs 7 ms a token on an A100 or H100, of which the bytes explain 1.5 to 2.5."""
LAYERS_MOST: Final = 100
"""Where the number of layers is not known: the largest models have about so many."""


def usual_step_s(floor_s: float, layers: int | None) -> float:
    """Most seconds a token that a healthy GPU takes of which memory bandwidth explains ``floor_s``."""
    return TIMES_THE_FLOOR * floor_s + LAUNCH_S * (layers or LAYERS_MOST)


@dataclass(frozen=True, slots=True)
class Bound:
    """One of the two: tokens/s."""

    at_most: float | None
    """None: what the device can do is not known."""
    seen: Speed | None

    @property
    def share(self) -> float | None:
        """Share of the bound that was reached; above 1 the declared device is not the real one."""
        if self.at_most is None or self.seen is None:
            return None
        return self.seen.tokens_per_s / self.at_most


@dataclass(frozen=True, slots=True)
class Roofline:
    """Both bounds of one server."""

    device: str | None
    weights_bytes: int
    """Read at each step."""
    kv_bytes: int
    """Read at each step for one sequence of ``context_tokens``."""
    context_tokens: int
    decode: Bound
    prefill: Bound
    evidence: tuple[Evidence, ...]
    is_dense: bool | None = False
    """Whether every weight takes part in every token; None: nobody says."""

    @property
    def is_sure(self) -> bool:
        """Whether the bounds hold: the weights that take part are known, and the device is not slower than it is."""
        shares = [one.share for one in (self.decode, self.prefill) if one.share is not None]
        return self.is_dense is not None and all(share <= 1 for share in shares)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in plain words."""
        least = "at least " if self.is_dense is False else "" if self.is_dense else "up to "
        step = f"a token reads {least}{_bytes(self.weights_bytes)} of weights"
        if self.kv_bytes:
            step += f" and {_bytes(self.kv_bytes)} of keys and values (a context of {self.context_tokens:,} tokens)"
        whose = self.device or "this device"
        decode = _words(self.decode, f"{whose} can write at most", "tokens/s to one user", "memory bandwidth")
        prefill = _words(self.prefill, f"{whose} can read at most", "prompt tokens/s", "operations/s")
        more = () if self.is_sure else (self._doubt,)
        return (f"{step}: {decode}", prefill, *more)

    @property
    def _doubt(self) -> str:
        if self.is_dense is None:
            return (
                "a mixture of experts reads only some of its weights for a token, and can do more than that: --model, "
                "or a log with -lv 4, says which it is"
            )
        return "more than all of it was seen, so the device is faster than was declared, or another one"


def roofline_of(symptoms: Symptoms) -> Roofline | str:
    """The bounds, or what it would take to know them."""
    read = _weights(symptoms)
    if read is None:
        return "the size of the weights: --model FILE.gguf, a server's /v1/models, or a log with -lv 4"
    gpu = accelerator_of(symptoms)
    kv_bytes, tokens = _kv(symptoms)
    decode = None
    if gpu is not None and gpu.bandwidth_bytes_per_s:
        decode = gpu.bandwidth_bytes_per_s / (read.taking_part + kv_bytes)
    prefill = None
    if gpu is not None and gpu.flops_per_s and read.parameters:
        prefill = gpu.flops_per_s / (2 * read.parameters)
    return Roofline(
        None if gpu is None else gpu.name,
        read.taking_part,
        kv_bytes,
        tokens,
        Bound(decode, decode_speed(symptoms)),
        Bound(prefill, prefill_speed(symptoms)),
        read.evidence,
        read.is_dense,
    )


def accelerator_of(symptoms: Symptoms) -> GPUFacts | None:
    """What is known of the device: as declared, else by its name in a driver's or a node's words."""
    declared = symptoms.gpu
    names = [declared.name] if declared is not None else []
    if symptoms.device is not None:
        names.append(symptoms.device.name)
    if symptoms.node is not None and (product := symptoms.node.labels.get("nvidia.com/gpu.product")):
        names.append(product)
    known = next(((name, found) for name in names if (found := known_accelerator(name)) is not None), None)
    if declared is None:
        return None if known is None else GPUFacts(known[0], *known[1])
    bandwidth, operations = (None, None) if known is None else known[1]
    return GPUFacts(
        declared.name,
        declared.bandwidth_bytes_per_s or bandwidth,
        declared.flops_per_s or operations,
        declared.price_per_hour,
        declared.currency,
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """What is read for one token."""

    taking_part: int
    """Bytes; of a mixture of experts at least."""
    parameters: float | None
    """Of them."""
    is_dense: bool | None
    evidence: tuple[Evidence, ...]


def _weights(symptoms: Symptoms) -> _Weights | None:
    """By the file, by the server, by its log: whoever knows best."""
    if (facts := symptoms.model) is not None:
        parameters = facts.active_weights_bytes * 8 / facts.bits_per_weight if facts.bits_per_weight > 0 else None
        words = f"{_bytes(facts.active_weights_bytes)} of {facts.quantization} weights take part in a token"
        return _Weights(facts.active_weights_bytes, parameters, True, (Evidence(Source.MODEL, words),))
    log = symptoms.log
    said = LogFacts() if log is None else log.facts
    meta = None if symptoms.server is None else symptoms.server.model
    if meta is not None and meta.size_bytes:
        known = float(meta.parameters) if meta.parameters else said.parameters
        evidence = (Evidence(Source.MODEL, f"size {meta.size_bytes}, n_params {meta.parameters}"),)
        return _taking_part(meta.size_bytes, known, said, evidence)
    if log is None or not said.model_bytes:
        return None
    line = log.fact_lines.get("model_buffers")
    text = f"model buffers of {_bytes(said.model_bytes)}" if line is None else line.text
    evidence = (Evidence(Source.LOG, text, None if line is None else line.number),)
    return _taking_part(said.model_bytes, said.parameters, said, evidence)


def _taking_part(size: int, parameters: float | None, said: LogFacts, evidence: tuple[Evidence, ...]) -> _Weights:
    """All of a dense model; of a mixture of experts at least the part of the experts that a token asks."""
    if not said.experts:
        return _Weights(size, parameters, True if said.experts == 0 else None, evidence)
    share = min(1.0, (said.experts_used or 1) / said.experts)
    asked = Evidence(Source.LOG, f"n_expert = {said.experts}, n_expert_used = {said.experts_used}")
    part = None if parameters is None else parameters * share
    return _Weights(round(size * share), part, False, (*evidence, asked))


def _kv(symptoms: Symptoms) -> tuple[int, int]:
    """(bytes, tokens) of a sequence that fills half of its slot: where it is on average, if it may fill it."""
    log = symptoms.log
    if log is not None and log.facts.kv_bytes and log.facts.context_total:
        tokens = (log.facts.context_per_slot or log.facts.context_total) // 2
        return round(log.facts.kv_bytes / log.facts.context_total * tokens), tokens
    server = symptoms.server
    if symptoms.model is not None and server is not None and server.props is not None:
        tokens = server.props.context_per_slot // 2
        return _kv_of(symptoms.model, tokens), tokens
    return 0, 0


def _kv_of(facts: ModelFacts, tokens: int) -> int:
    """With f16 keys and values, the default."""
    return sum(
        2 * (layer.key_elements + layer.value_elements) * min(tokens, layer.window or tokens) for layer in facts.layers
    )


def _words(bound: Bound, can: str, unit: str, lacking: str) -> str:
    seen = bound.seen
    beside = "" if seen is None or seen.alone else ", with others in the batch"
    if bound.at_most is None:
        had = "" if seen is None else f"; {seen.tokens_per_s:,.4g} {unit} were seen{beside}"
        return f"what the device could do is not known (its {lacking}){had}"
    if seen is None:
        return f"{can} {_count(bound.at_most)} {unit}; what it does was not seen"
    share = f"{100 * (bound.share or 0.0):.3g} %" if (bound.share or 0.0) <= 1 else "more than that"
    return f"{can} {_count(bound.at_most)} {unit}, {seen.tokens_per_s:,.4g} were seen{beside}: {share}"


def _count(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
