"""Did the server that came up become the candidate that was asked for?

llama-server adjusts what it cannot do and goes on: it cuts the context, leaves layers on the CPU, converts the cache,
drops speculation. A number measured then belongs to another configuration. What is *known* to differ is reported; what
this build does not say is not held against it, and :func:`effective_values` shows only what was confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slotune.llama.candidate import Candidate
from slotune.llama.flag_cures import DRAFT_MODELS
from slotune.llama.flag_table import BY_NAME, canonical_spelling
from slotune.llama.kv_cells import context_flag, physical_batch, slot_cells
from slotune.llama.log_lines import LogFacts
from slotune.llama.server_answers import Props, Slot

__all__ = ["Mismatch", "check_effective", "check_log", "effective_values", "with_log"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One setting that is not what was asked for."""

    field: str
    """The API's name of the setting."""
    asked: str
    effective: str
    silent_fallback: bool = False
    """True: the server runs, but slowly, on the CPU or through a conversion. That is how this candidate behaves here,
    so it fails. False: something else was measured, so the measurement is void."""
    cannot_speculate: bool = False
    """True: the server goes on without the guesses that it was asked for, as it will for every candidate that has the
    same model and the same way to guess."""

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.field}: asked for {self.asked}, the server has {self.effective}"


def check_effective(
    candidate: Candidate, props: Props, slots: Sequence[Slot], log: LogFacts, gpu_expected: bool
) -> list[Mismatch]:
    """Every known difference between ``candidate`` and the server; empty when it is as asked.

    Args:
        candidate: what was asked for.
        props: /props.
        slots: /slots; empty when the server runs without it.
        log: facts of a log at ``-lv 4``, from the start of the process.
        gpu_expected: the trial holds a GPU, so work left on the CPU is a fallback.
    """
    return [*_shape(candidate, props, slots, log), *_logged(candidate, slots, log, gpu_expected)]


def check_log(candidate: Candidate, log: LogFacts, gpu_expected: bool) -> list[Mismatch]:
    """What :func:`check_effective` finds, as far as the log alone tells: for whoever cannot ask the server."""
    stated = [("parallelSlots", candidate.parallel_slots, log.slots)]
    return [
        *(Mismatch(field, str(asked), str(got)) for field, asked, got in stated if got is not None and got != asked),
        *_logged(candidate, (), log, gpu_expected),
    ]


def effective_values(props: Props, slots: Sequence[Slot], log: LogFacts) -> tuple[tuple[str, str], ...]:
    """(name, value) of every setting that the server itself confirms; names are the API's."""
    known: dict[str, object] = {
        "build": log.build or props.build or None,
        "parallelSlots": props.total_slots,
        "contextSizePerSlot": min((slot.context for slot in slots), default=props.context_per_slot),
        "contextSize": log.context_total,
        "kvUnified": log.kv_unified,
        "batchSize": log.batch_size,
        "uBatchSize": log.ubatch_size,
        "cacheTypeK": log.cache_type_k,
        "cacheTypeV": log.cache_type_v,
        "flashAttention": log.flash_attention,
        "cacheRAMMiB": log.cache_ram_mib,
        "cacheIdleSlots": log.cache_idle_slots,
        "layersOffloaded": None if log.layers_offloaded is None else f"{log.layers_offloaded}/{log.layers}",
        "threads": log.threads,
        "speculation": _speculating(slots, log),
        "backendSampling": log.backend_sampling,
    }
    return tuple((name, _text(value)) for name, value in known.items() if value is not None)


def with_log(values: tuple[tuple[str, str], ...], log: LogFacts) -> tuple[tuple[str, str], ...]:
    """``values``, from :func:`effective_values` of a server whose log was not at hand, with what ``log`` confirms.

    Of what both say the server's own word stands, but for the build, which it shortens.
    """
    nobody = Props(log.slots or 0, log.context_per_slot or 0, "", "", "", metrics_enabled=False, slots_enabled=False)
    logged = effective_values(nobody, (), log)
    unknown = {"parallelSlots": log.slots is None, "contextSizePerSlot": log.context_per_slot is None}
    told = dict(values)
    found = {name: value for name, value in logged if not unknown.get(name)}
    return tuple((found | told | {name: value for name, value in found.items() if name == "build"}).items())


def _logged(candidate: Candidate, slots: Sequence[Slot], log: LogFacts, gpu_expected: bool) -> Iterator[Mismatch]:
    if log.kv_unified is not None and log.kv_unified != candidate.kv_unified:
        yield Mismatch("kvUnified", _text(candidate.kv_unified), _text(log.kv_unified))
    for change in log.fit_changes:
        yield Mismatch("fit", "off", change)
    yield from _batches(candidate, log)
    yield from _attention(candidate, log)
    yield from _placement(candidate, log, gpu_expected)
    yield from _caches(candidate, log)
    yield from _speculation(candidate, slots, log)
    for path in log.config_files:
        yield Mismatch("configFile", "none", path)


def _shape(candidate: Candidate, props: Props, slots: Sequence[Slot], log: LogFacts) -> Iterator[Mismatch]:
    if props.total_slots != candidate.parallel_slots:
        yield Mismatch("parallelSlots", str(candidate.parallel_slots), str(props.total_slots))
    elif slots and len(slots) != candidate.parallel_slots:
        yield Mismatch("parallelSlots", str(candidate.parallel_slots), f"{len(slots)} in /slots")
    # Rounding up is llama-server's right; a unified pool is seen whole by each slot; less is never right.
    for context in sorted({props.context_per_slot, *(slot.context for slot in slots)}):
        if not candidate.context_per_slot <= context <= slot_cells(candidate):
            cap = f" (the model was trained for {log.context_trained_cap})" if log.context_trained_cap else ""
            yield Mismatch("contextSizePerSlot", str(candidate.context_per_slot), f"{context}{cap}")


def _batches(candidate: Candidate, log: LogFacts) -> Iterator[Mismatch]:
    # llama.cpp clamps the batch to the context and the physical batch to the batch: no larger one could ever be filled.
    batch = min(candidate.batch_size, context_flag(candidate))
    if log.batch_size is not None and log.batch_size != batch:
        yield Mismatch("batchSize", str(candidate.batch_size), str(log.batch_size))
    if log.ubatch_size is not None and log.ubatch_size != physical_batch(candidate):
        yield Mismatch("uBatchSize", str(candidate.ubatch_size), str(log.ubatch_size))
    if candidate.threads is not None:
        for field, threads in (("threads", log.threads), ("threadsBatch", log.threads_batch)):
            if threads is not None and threads != candidate.threads:
                yield Mismatch(field, str(candidate.threads), str(threads))


def _attention(candidate: Candidate, log: LogFacts) -> Iterator[Mismatch]:
    for field, asked, got in (
        ("cacheTypeK", candidate.cache_type_k, log.cache_type_k),
        ("cacheTypeV", candidate.cache_type_v, log.cache_type_v),
    ):
        if got is not None and got != asked:
            yield Mismatch(field, asked, got)
    # `auto` may resolve to off and still run on the GPU; forced on without a kernel, attention runs on the CPU.
    if candidate.flash_attention == "on" and log.flash_attention_fallback:
        yield Mismatch("flashAttention", "on", log.flash_attention_fallback, silent_fallback=True)
    elif candidate.flash_attention != "auto" and log.flash_attention is not None:
        asked_on = candidate.flash_attention == "on"
        if log.flash_attention != asked_on:
            yield Mismatch("flashAttention", candidate.flash_attention, "on" if log.flash_attention else "off")
    if log.kernel_fallback:
        pair = f"{candidate.cache_type_k}/{candidate.cache_type_v}"
        yield Mismatch("cacheTypeK", pair, "no kernel, converted to f16 at every step", silent_fallback=True)


def _placement(candidate: Candidate, log: LogFacts, gpu_expected: bool) -> Iterator[Mismatch]:
    if log.no_usable_gpu and gpu_expected:
        yield Mismatch("gpuLayers", candidate.gpu_layers, "0: no usable GPU found", silent_fallback=True)
        return
    # Where the weights lie decides: without a GPU a CPU build logs no line about layers, and a GPU build logs that all
    # were offloaded (seen on a Vulkan build: 31 of 31, into "CPU_Mapped").
    if gpu_expected and log.model_buffers and not log.on_gpu and candidate.gpu_layers != "0":
        yield Mismatch("gpuLayers", candidate.gpu_layers, "0: all weights are in host memory", silent_fallback=True)
        return
    if log.layers_offloaded is None or log.layers is None or candidate.gpu_layers == "auto" or not log.on_gpu:
        return
    # A number beyond the model's layers means all of them, to llama-server as well.
    wanted = log.layers if candidate.gpu_layers == "all" else min(int(candidate.gpu_layers), log.layers)
    if log.layers_offloaded != wanted:
        yield Mismatch(
            "gpuLayers",
            candidate.gpu_layers,
            f"{log.layers_offloaded} of {log.layers} layers",
            silent_fallback=log.layers_offloaded < wanted,
        )


def _caches(candidate: Candidate, log: LogFacts) -> Iterator[Mismatch]:
    if log.cache_ram_mib is not None and log.cache_ram_mib != candidate.cache_ram_mib:
        yield Mismatch("cacheRAMMiB", str(candidate.cache_ram_mib), str(log.cache_ram_mib))
    if log.cache_idle_slots is not None and log.cache_idle_slots != candidate.cache_idle_slots:
        yield Mismatch("cacheIdleSlots", _text(candidate.cache_idle_slots), _text(log.cache_idle_slots))
    if log.cache_reuse_unsupported and candidate.cache_reuse > 0:
        yield Mismatch("cacheReuse", str(candidate.cache_reuse), "0: this model's cache cannot be shifted")


def _speculation(candidate: Candidate, slots: Sequence[Slot], log: LogFacts) -> Iterator[Mismatch]:
    wanted = candidate.speculation != "none"
    speculating = _speculating(slots, log)
    if wanted and log.speculation_error:
        yield Mismatch("speculation", candidate.speculation, f"none: {log.speculation_error}", cannot_speculate=True)
    elif speculating is not None and speculating != wanted and not (speculating and _brings_a_draft(candidate)):
        yield Mismatch("speculation", candidate.speculation, "on" if speculating else "none", cannot_speculate=wanted)
    if candidate.backend_sampling and log.backend_sampling_error:
        yield Mismatch("backendSampling", "true", f"false: {log.backend_sampling_error}")
    elif log.backend_sampling and not candidate.backend_sampling:
        yield Mismatch("backendSampling", "false", "true")


def _brings_a_draft(candidate: Candidate) -> bool:
    """Whether what is passed through as it is has a draft model, with which a server speculates unasked."""
    known = (BY_NAME.get(canonical_spelling(word)) for word in candidate.extra_args)
    return any(flag is not None and flag[0].name in DRAFT_MODELS for flag in known)


def _speculating(slots: Sequence[Slot], log: LogFacts) -> bool | None:
    stated = [slot.speculative for slot in slots if slot.speculative is not None]
    return any(stated) if stated else log.speculation


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
