"""What a server could do at best, and the share of it that was reached.

A decoded token reads every weight that takes part, and the sequence's keys and values, once: memory bandwidth over
these bytes bounds tokens/s of one user. A prompt token takes two operations for each weight that takes part, and many
tokens share one reading of the weights: operations/s bound prefill. (Roofline: Williams, Waterman, Patterson, CACM
2009.)
Attention itself is left out of the second bound, so a long prompt reaches less of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotune.diagnose.accelerators import known_accelerator
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.speeds import Speed, decode_speed, prefill_speed
from slotune.diagnose.symptoms import GPUFacts, Symptoms
from slotune.llama.model_facts import ModelFacts

__all__ = ["Bound", "Roofline", "accelerator_of", "bytes_per_step", "roofline_of"]


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

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in plain words."""
        step = f"a token reads {_bytes(self.weights_bytes)} of weights"
        if self.kv_bytes:
            step += f" and {_bytes(self.kv_bytes)} of keys and values (a context of {self.context_tokens:,} tokens)"
        whose = self.device or "this device"
        return (
            f"{step}: {_words(self.decode, f'{whose} can write at most', 'tokens/s to one user')}",
            _words(self.prefill, f"{whose} can read at most", "prompt tokens/s"),
        )


def roofline_of(symptoms: Symptoms) -> Roofline | str:
    """The bounds, or what it would take to know them."""
    weights, parameters, evidence = _weights(symptoms)
    if weights is None:
        return "the size of the weights: --model FILE.gguf, a server's /v1/models, or a log with -lv 4"
    gpu = accelerator_of(symptoms)
    kv_bytes, tokens = _kv(symptoms)
    decode = None
    if gpu is not None and gpu.bandwidth_bytes_per_s:
        decode = gpu.bandwidth_bytes_per_s / (weights + kv_bytes)
    prefill = None
    if gpu is not None and gpu.flops_per_s and parameters:
        prefill = gpu.flops_per_s / (2 * parameters)
    return Roofline(
        None if gpu is None else gpu.name,
        weights,
        kv_bytes,
        tokens,
        Bound(decode, decode_speed(symptoms)),
        Bound(prefill, prefill_speed(symptoms)),
        evidence,
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


def bytes_per_step(symptoms: Symptoms) -> int | None:
    """Bytes that one token of one sequence reads; None when the weights are not known."""
    weights, _, _ = _weights(symptoms)
    return None if weights is None else weights + _kv(symptoms)[0]


def _weights(symptoms: Symptoms) -> tuple[int | None, float | None, tuple[Evidence, ...]]:
    """(bytes, parameters) that take part in a token, and who says so."""
    if (facts := symptoms.model) is not None:
        parameters = facts.active_weights_bytes * 8 / facts.bits_per_weight if facts.bits_per_weight > 0 else None
        words = f"{_bytes(facts.active_weights_bytes)} of {facts.quantization} weights take part in a token"
        return facts.active_weights_bytes, parameters, (Evidence(Source.MODEL, words),)
    meta = None if symptoms.server is None else symptoms.server.model
    if meta is not None and meta.size_bytes:
        said = Evidence(Source.MODEL, f"size {meta.size_bytes}, n_params {meta.parameters}")
        return meta.size_bytes, None if meta.parameters is None else float(meta.parameters), (said,)
    log = symptoms.log
    if log is not None and log.facts.model_bytes:
        line = log.fact_lines.get("model_buffers")
        text = f"model buffers of {_bytes(log.facts.model_bytes)}" if line is None else line.text
        return log.facts.model_bytes, None, (Evidence(Source.LOG, text, None if line is None else line.number),)
    return None, None, ()


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


def _words(bound: Bound, can: str, unit: str) -> str:
    seen = bound.seen
    if bound.at_most is None:
        had = "" if seen is None else f"; {seen.tokens_per_s:,.4g} {unit} were seen"
        return f"what the device could do is not known (its memory bandwidth and operations/s){had}"
    if seen is None:
        return f"{can} {bound.at_most:,.0f} {unit}; what it does was not seen"
    beside = "" if seen.alone else ", with others in the batch"
    share = 100 * (bound.share or 0.0)
    more = "; the device is faster than was declared" if share > 100 else ""
    return f"{can} {bound.at_most:,.0f} {unit}, {seen.tokens_per_s:,.4g} were seen{beside}: {share:.3g} %{more}"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
