"""Do all layers and the KV cache lie on the GPU, and who chose that they do not: an argument, or -fit?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import (
    NEEDS_START,
    Backend,
    backend_of,
    buffers,
    fact,
    gpu_given,
    heard,
    host_bytes,
    image_backend,
    offloaded,
    said,
    shown,
    stated,
    told_cpu,
)
from slotune.diagnose.rules.settings import has_defaults
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.flag_settings import Setting
from slotune.llama.log_story import LogStory, Topic

__all__ = ["FIT_SPILLED", "LAYERS_ON_CPU", "fit_spilled", "layers_on_cpu", "on_host", "spilled_layers"]

MIB: Final = 2**20

LAYERS_ON_CPU: Final = Entry(
    id="SLT002",
    code="LayersOnCPU",
    item=Item.GPU,
    title="Some layers or the KV cache lie in host memory",
    cause="Every step waits for the part that the CPU computes, and for the data that cross the bus: host memory is "
    "ten times slower or more, so a few layers there can cost half of the speed.",
    first="Make it fit: -ngl all with a smaller context, fewer slots or a q8_0 KV cache; else smaller weights.",
    avoid="Do not raise --threads first: the CPU's memory bandwidth is the limit, not its cores.",
    verify="The log at -lv 4 says that all layers are offloaded, and has no KV buffer on the CPU.",
    knobs=("gpuLayers", "cacheTypeK", "cacheTypeV", "variant", "gpuClass"),
    binds="TokensPerSecond",
)

FIT_SPILLED: Final = Entry(
    id="SLT003",
    code="FitSpilled",
    item=Item.GPU,
    title="-fit moved layers to the CPU, or could not make the model fit",
    cause="With -fit (the default) llama-server changes what is not stated until the model fits the free GPU memory "
    "less a margin: first the context, then the layers. It says so in its log only, and other programs on the GPU "
    "change the result from start to start (ggml-org/llama.cpp#23472, #18181).",
    first="State -ngl all -fit off and a context that fits: too little memory is then an error, not a slow server.",
    avoid="Do not lower the margin (-fitt) to nothing: buffers still grow while it serves (ggml-org/llama.cpp#13085).",
    verify="The log at -lv 4 says that all layers are offloaded, at every start.",
    knobs=("gpuLayers", "contextSizePerSlot", "cacheTypeK", "cacheTypeV", "variant"),
    binds="TokensPerSecond",
)


MORE_THAN_TABLES: Final = 0.4
"""Of the weights: more than the tables of inputs take, which always lie in host memory. Models with a table for each
layer, which take half, are small."""
LARGE_BYTES: Final = 12 * 2**30
"""Weights that no model with a table for each layer has: Gemma 3n E2B has 10 GB at 16 bits."""
FEWER_ON_HOST: Final = (
    "Keep as many experts on the GPU as fit: lower --n-cpu-moe, or narrow -ot, until its memory is full; for the rest "
    "take smaller weights or another GPU."
)
_FIT_IDLE: Final = re.compile(r"\w*fit\w* is not implemented for \w+")


def spilled_layers(log: LogStory) -> tuple[str, tuple[Evidence, ...]] | None:
    """What of a model on a GPU lies in host memory: a sentence and its lines; None when nothing does that should not.

    The input embeddings always stay in host memory, so buffers alone say nothing while all layers are offloaded.
    """
    facts = log.facts
    if not facts.on_gpu:
        return None
    parts: list[str] = []
    evidence: list[Evidence] = []
    if facts.layers_offloaded is not None and facts.layers and facts.layers_offloaded < facts.layers:
        parts.append(f"{facts.layers - facts.layers_offloaded} of {facts.layers} layers run on the CPU")
        evidence.append(offloaded(log))
    if kept := host_bytes(facts.kv_buffers):
        parts.append(f"{kept / MIB:,.0f} of {facts.kv_bytes / MIB:,.0f} MiB of the KV cache lie in host memory")
        evidence.append(fact(log, "kv_buffers", f"KV buffers in host memory: {kept / MIB:,.0f} MiB"))
    return (" and ".join(parts), tuple(evidence)) if parts else None


def layers_on_cpu(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether a model on a GPU is partly in host memory, by somebody's choice."""
    log = symptoms.log
    if log is None or not log.facts.on_gpu:
        return _unsplit(symptoms)
    spilled = spilled_layers(log)
    if spilled is not None:
        if _fit_did_it(symptoms, log):
            return Clear("what runs on the CPU was moved there by -fit, which is a finding of its own")
        return Finding(LAYERS_ON_CPU, *spilled, first=_first(symptoms, log))
    argued = None if log.facts.kv_buffers else _by_argument(symptoms)
    if (moved := _weights_on_cpu(symptoms, log) or argued) is not None:
        return moved
    if log.facts.layers_offloaded is None:
        return Undecided(NEEDS_START)
    return Clear("all layers and the KV cache lie on the GPU", (offloaded(log),))


def _unsplit(symptoms: Symptoms) -> Finding | Clear | Undecided:
    backend = backend_of(symptoms)
    if backend is not None and not backend.is_gpu:
        return Clear("no GPU is in use, so nothing is split")
    if symptoms.pod is not None and gpu_given(symptoms) is None:
        return Clear("the pod asks for no GPU, so nothing is split")
    return _by_argument(symptoms) or Undecided(NEEDS_START)


def _by_argument(symptoms: Symptoms) -> Finding | None:
    """Arguments that keep a part in host memory whatever the GPU could hold, where no log shows what became of them."""
    given, settings, log = gpu_given(symptoms), stated(symptoms), symptoms.log
    if given is None or told_cpu(symptoms) is not None or image_backend(symptoms) is Backend.CPU:
        return None
    if log is not None and log.facts.no_usable_gpu:
        return None
    kept, layers = settings.get("-kvo"), settings.get("-ngl")
    parts: list[str] = []
    evidence: list[Evidence] = []
    if layers is not None and (few := _layers_left(symptoms, layers)) is not None:
        parts.append(few)
        evidence.append(shown(layers))
    if kept is not None and not kept.on:
        parts.append("the KV cache stays in host memory, and attention is computed there")
        evidence.append(shown(kept))
    if not parts:
        return None
    return Finding(
        LAYERS_ON_CPU,
        " and ".join(parts),
        (*evidence, given),
        confidence=Confidence.LIKELY,
        first=_first_words(settings),
    )


def _layers_left(symptoms: Symptoms, setting: Setting) -> str | None:
    """What ``-ngl`` leaves on the CPU of a model whose layers are known; the output counts as one more."""
    model, value = symptoms.model, setting.values[0] if setting.values else ""
    if model is None or not model.layers or not value.isdecimal() or not 0 < int(value) < len(model.layers):
        return None
    return f"{len(model.layers) - int(value)} of {len(model.layers)} layers run on the CPU"


def _weights_on_cpu(symptoms: Symptoms, log: LogStory) -> Finding | None:
    """Parts of layers that lie in host memory while the log counts their layers as offloaded: mostly experts."""
    facts, settings = log.facts, stated(symptoms)
    kept, usual = host_bytes(facts.model_buffers), 0 if symptoms.model is None else symptoms.model.host_weights_bytes
    argument = next((settings[name] for name in ("-cmoe", "-ncmoe", "-ncffn", "-ot") if name in settings), None)
    if kept <= usual or (argument is not None and argument.values[:1] == ("0",)):
        return None
    is_much = kept >= MORE_THAN_TABLES * facts.model_bytes
    is_known = argument is not None or bool(facts.experts) or facts.model_bytes >= LARGE_BYTES
    if not facts.kept_on_host and not (is_much and is_known):
        return None
    who = "an argument keeps" if argument is not None or facts.kept_on_host else "an argument or -fit keeps"
    evidence = [Evidence(Source.LOG, buffers(log))]
    if facts.kept_on_host:
        evidence.insert(0, fact(log, "kept_on_host", "buffer type overridden to CPU"))
    if argument is not None:
        evidence.insert(0, shown(argument))
    return Finding(
        LAYERS_ON_CPU,
        f"{who} {kept / MIB:,.0f} of {facts.model_bytes / MIB:,.0f} MiB of weights in host memory",
        tuple(evidence),
        confidence=Confidence.CERTAIN if facts.kept_on_host else Confidence.LIKELY,
        first=FEWER_ON_HOST,
    )


def _fit_did_it(symptoms: Symptoms, log: LogStory) -> bool:
    """Whether -fit chose where layers lie: it is on and they were not stated, or it said that it could not."""
    settings = stated(symptoms)
    if "-ngl" in settings or ("-kvo" in settings and not settings["-kvo"].on):
        return False
    if "-fit" in settings and settings["-fit"].values[:1] == ("off",):
        return False
    heard_of = log.facts.fit_changes or log.count(Topic.FIT_FAILED) or log.count(Topic.FIT_REDUCED_CONTEXT)
    return bool(heard_of) or has_defaults(symptoms)


def _first(symptoms: Symptoms, log: LogStory) -> str | None:
    """With the number that the person wrote, or the memory that is missing."""
    if (words := _first_words(stated(symptoms))) is not None:
        return words
    done, layers = log.facts.layers_offloaded, log.facts.layers
    if done is not None and layers and done < layers:
        return (
            f"Set -ngl all: {done} of {layers} layers are on the GPU. If the rest does not fit, make room with a "
            "smaller context, fewer slots, or a q8_0 KV cache."
        )
    if missing := host_bytes(log.facts.kv_buffers):
        return f"Make {missing / MIB:,.0f} MiB of room on the GPU: a smaller context, fewer slots, or a q8_0 KV cache."
    return None


def _first_words(settings: Mapping[str, Setting]) -> str | None:
    """The same, of what was stated alone."""
    if "-kvo" in settings and not settings["-kvo"].on:
        return "Take --no-kv-offload out: the KV cache then lies where attention is computed."
    if "-ngl" in settings and settings["-ngl"].values[:1] not in ((), ("all",)):
        return f"Set -ngl all in place of {settings['-ngl'].values[0]}, with a context and slots that fit."
    return None


def fit_spilled(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether -fit moved layers, or could not leave its margin."""
    log, settings = symptoms.log, stated(symptoms)
    if "-fit" in settings and settings["-fit"].values[:1] == ("off",):
        return Clear("-fit is off", (shown(settings["-fit"]),))
    if log is None:
        return Undecided(NEEDS_START)
    return _fit_by_log(symptoms, log)


def _fit_by_log(symptoms: Symptoms, log: LogStory) -> Finding | Clear | Undecided:
    failed, spilled = _failed_to_fit(log), spilled_layers(log)
    if spilled is not None:
        if not _fit_did_it(symptoms, log):
            return Clear("what runs on the CPU was stated, or nothing says that -fit chose it")
        sentence, evidence = spilled
        return Finding(FIT_SPILLED, f"-fit chose that {sentence}", (*evidence, *failed))
    if failed:
        return _gave_up(failed)
    if not said(log, details=True):
        return Undecided(NEEDS_START)
    is_told = log.facts.on_gpu and _weights_on_cpu(symptoms, log) is not None
    return Clear(f"what lies in host memory is told as {LAYERS_ON_CPU.id}" if is_told else "-fit moved no layers")


def on_host(symptoms: Symptoms) -> Finding | None:
    """What is found of a model on a GPU that is partly in host memory: why it is slower than the GPU."""
    for check in (layers_on_cpu, fit_spilled):
        found = check(symptoms)
        if isinstance(found, Finding) and found.severity is not Severity.INFO:
            return found
    return None


def _gave_up(failed: tuple[Evidence, ...]) -> Finding:
    """While nothing lies in host memory that should not."""
    idle = next((match[0] for one in failed if (match := _FIT_IDLE.search(one.text))), None)
    return Finding(
        FIT_SPILLED,
        "-fit could not leave its margin of free memory, and the server went on as it was told"
        if idle is None
        else f"-fit did nothing: {idle}; whether the model leaves a margin of free memory, nobody looked",
        failed,
        Severity.INFO,
    )


def _failed_to_fit(log: LogStory) -> tuple[Evidence, ...]:
    if lines := heard(log, Topic.FIT_FAILED):
        return lines
    words = next((change for change in log.facts.fit_changes if change.startswith("failed to fit")), None)
    return () if words is None else (Evidence(Source.LOG, words[:LONGEST]),)
