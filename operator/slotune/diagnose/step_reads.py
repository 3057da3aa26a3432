"""What one token reads of the weights, and of the keys and values of its sequence.

Whatever is not known is left out or called rough, so that a bound that is made of it stays above the truth: an input
table is looked up and not read, a context counts as it was on average, and nowhere as it might be.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotune.diagnose.counting import counted
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.rules import settings
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.kv_types import BYTES_PER_ELEMENT
from slotune.llama.log_buffers import is_on_host
from slotune.llama.log_lines import LogFacts
from slotune.llama.model_facts import ModelFacts

__all__ = ["Weights", "kv_bytes", "kv_type_is_known", "logged_context", "mean_context", "size_words", "weights_of"]


@dataclass(frozen=True, slots=True)
class Weights:
    """What is read for one token."""

    taking_part: int
    """Bytes; of a mixture of experts at least."""
    parameters: float | None
    """Weights that each token of a prompt is multiplied with."""
    is_dense: bool | None
    """Whether all that may take part does, or what does is known; None: nobody says."""
    evidence: tuple[Evidence, ...]
    rough: bool = False
    """Whether a table that is not read could not be told from the rest, or only by its usual size."""
    draft_bytes: int = 0
    """What a draft model reads for one guess."""

    def step_bytes(self, kv: float, drafts_per_step: float) -> float:
        """What one step reads: these weights, ``kv`` bytes of keys and values, and what guesses for it read."""
        return self.taking_part + kv + self.draft_bytes * drafts_per_step


def weights_of(symptoms: Symptoms) -> Weights | None:
    """By the file, by the buffers on the GPU, by the server, by other buffers: whoever knows best."""
    log = symptoms.log
    said = LogFacts() if log is None else log.facts
    draft = sum(size for name, size in said.shape.draft_buffers.items() if not is_on_host(name))
    if (facts := symptoms.model) is not None:
        words = f"{size_words(facts.active_weights_bytes)} of {facts.quantization} weights take part in a token"
        evidence = (Evidence(Source.MODEL, words),)
        parameters = float(facts.prompt_parameters) or None
        return Weights(facts.active_weights_bytes, parameters, True, evidence, draft_bytes=draft)
    meta = None if symptoms.server is None else symptoms.server.model
    table = said.shape.vocabulary and said.shape.embedding and said.shape.vocabulary * said.shape.embedding
    parameters = said.parameters
    if meta is not None:
        table = table or (meta.vocabulary and meta.embedding and meta.vocabulary * meta.embedding)
        parameters = float(meta.parameters) if meta.parameters else parameters
    arithmetic = None if parameters is None else _without_tables(parameters, table or 0)
    if log is not None and said.model_bytes and _all_offloaded(said):
        on_gpu = sum(size for name, size in _own(said).items() if not is_on_host(name))
        return _taking_part(on_gpu, arithmetic, said, (_buffer_line(symptoms, on_gpu),), rough=False, draft=draft)
    if meta is not None and meta.size_bytes:
        read = meta.size_bytes
        if table and parameters and parameters > table:
            read = round(read * (parameters - table) / parameters)
        evidence = (Evidence(Source.MODEL, f"size {meta.size_bytes}, n_params {meta.parameters}"),)
        return _taking_part(read, arithmetic, said, evidence, rough=True, draft=draft)
    if log is None or not said.model_bytes:
        return None
    own = _own(said)
    # On a CPU, what is rearranged for vector units is a copy of part of what is mapped.
    read = sum(own.values()) if said.on_gpu else max(own.values())
    if table and parameters and parameters > table:
        read = round(read * (parameters - table) / parameters)
    return _taking_part(read, arithmetic, said, (_buffer_line(symptoms, read),), rough=True, draft=draft)


def _own(said: LogFacts) -> dict[str, int]:
    """Buffers of the model itself, without a draft model's."""
    draft = said.shape.draft_buffers
    return {name: max(0, size - draft.get(name, 0)) for name, size in said.model_buffers.items()}


def _all_offloaded(said: LogFacts) -> bool:
    """Whether all layers are on a GPU: then what is in host memory are tables of which a token reads a row."""
    return said.on_gpu and said.layers is not None and said.layers_offloaded == said.layers


def _without_tables(parameters: float, table: int) -> float:
    """Weights but for the input table and the output matrix, which has the same shape and may be the same."""
    return max(parameters - 2 * table, parameters / 4)


def _buffer_line(symptoms: Symptoms, size: int) -> Evidence:
    line = None if symptoms.log is None else symptoms.log.fact_lines.get("model_buffers")
    text = f"model buffers of {size_words(size)}" if line is None else line.text
    return Evidence(Source.LOG, text, None if line is None else line.number)


def _taking_part(
    size: int, parameters: float | None, said: LogFacts, evidence: tuple[Evidence, ...], *, rough: bool, draft: int
) -> Weights:
    """All of a dense model; of a mixture of experts at least the part of the experts that a token asks."""
    if not said.experts:
        is_dense = True if said.experts == 0 else None
        return Weights(size, parameters, is_dense, evidence, rough=rough, draft_bytes=draft)
    share = min(1.0, (said.experts_used or 1) / said.experts)
    asked = Evidence(Source.LOG, f"n_expert = {said.experts}, n_expert_used = {said.experts_used}")
    part = None if parameters is None else parameters * share
    return Weights(round(size * share), part, False, (*evidence, asked), rough=rough, draft_bytes=draft)


def mean_context(symptoms: Symptoms) -> tuple[float, Evidence] | None:
    """Tokens in the context of a mean token that was written: its prompt, cached tokens too, and half of the answer.

    Of whoever says how fast tokens were written; None where that is nobody who knows how long requests were.
    """
    if (probe := symptoms.probe) is not None and probe.decode_step_s > 0:
        return float(probe.prompt_tokens), Evidence(Source.PROBE, f"prompts of {probe.prompt_tokens:,} tokens")
    return logged_context(symptoms)


def logged_context(symptoms: Symptoms) -> tuple[float, Evidence] | None:
    """The same of the requests in the log."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is None or not requests.requests or requests.decode_tokens_per_s is None:
        return None
    prompt = (requests.prompt_tokens + (requests.cached_tokens or 0)) / requests.requests
    answer = requests.predicted_tokens / requests.requests
    several = counted(requests.requests, "request")
    words = f"{several} of {prompt:,.0f} prompt tokens and {answer:,.0f} answered ones on average"
    return prompt + answer / 2, Evidence(Source.LOG, words)


def kv_bytes(symptoms: Symptoms, tokens: float) -> int | None:
    """Bytes that one sequence with ``tokens`` in its context reads at each step: as allocated, else as the file says.

    None: nobody says how large a token's keys and values are.
    """
    log = symptoms.log
    if log is not None and log.facts.shape.caches:
        return round(_allocated(log.facts, tokens))
    if symptoms.model is not None:
        return round(_by_layers(symptoms, symptoms.model, tokens))
    if log is not None and log.facts.kv_bytes and log.facts.context_total and not log.facts.draft_loaded:
        return round(log.facts.kv_bytes / log.facts.context_total * min(tokens, log.facts.context_total))
    return None


def _allocated(facts: LogFacts, tokens: float) -> float:
    total = 0.0
    for cache in facts.shape.caches:
        if cache.recurrent:
            total += cache.size_bytes / cache.cells
        else:
            # A window whose width nobody says is left out.
            reach = min(tokens, facts.shape.window or 0) if cache.sliding else tokens
            total += cache.size_bytes / cache.cells * min(reach, cache.cells)
    return total


def _by_layers(symptoms: Symptoms, model: ModelFacts, tokens: float) -> float:
    key, value = (BYTES_PER_ELEMENT[kv_type or "f16"] for kv_type in _kv_types(symptoms))
    return sum(
        layer.state_bytes
        + (layer.key_elements * key + layer.value_elements * value) * min(tokens, layer.window or tokens)
        for layer in model.layers
    )


def kv_type_is_known(symptoms: Symptoms) -> bool:
    """Whether somebody says of what types keys and values are; else they count as f16, the default."""
    log = symptoms.log
    if log is not None and (log.facts.shape.caches or log.facts.kv_bytes):
        return True
    return all(_kv_types(symptoms)) or settings.has_defaults(symptoms)


def _kv_types(symptoms: Symptoms) -> tuple[str | None, str | None]:
    """(of K, of V), as the log or the arguments state them."""
    facts = LogFacts() if symptoms.log is None else symptoms.log.facts

    def stated(flag: str) -> str | None:
        setting = settings.stated(symptoms, flag)
        value = setting.values[0] if setting is not None and setting.values else ""
        return value if value in BYTES_PER_ELEMENT else None

    return facts.cache_type_k or stated("-ctk"), facts.cache_type_v or stated("-ctv")


def size_words(count: float) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
