"""Do attention and the KV cache run on fast kernels? A GPU for which a kernel is missing gives the work away, or
converts it at every step.

On a CPU the same lines mean nothing bad: it has a kernel for every type, and is often faster without flash attention.
"""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import (
    NEEDS_START,
    Backend,
    backend_of,
    backend_of_device,
    build_of,
    fact,
    heard,
    is_official_image,
    said,
    shown,
    stated,
)
from slotune.diagnose.rules.settings import has_defaults
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.build_defaults import defaults_of
from slotune.llama.flag_settings import FALSE, Setting
from slotune.llama.log_story import LogStory, Topic
from slotune.llama.slow_builds import COMPILED_KV_PAIRS, KV_PAIRS_CONVERTED, is_kernel_missing

__all__ = [
    "ENTRIES",
    "FLASH_ATTENTION_OFF",
    "KV_TYPE_WITHOUT_KERNEL",
    "RULES",
    "kv_pair",
]

QUANTIZED_KV: Final = frozenset({"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"})
"""Of the types of a KV cache those in blocks."""
_OF_A_LAYER: Final = re.compile(r"is assigned to device (\w+) but ")
_OF_A_LAYER_ON_CPU: Final = re.compile(r"is assigned to device CPU but ")
"""Then no kernel is missing: the layer itself is not on the GPU."""

KV_TYPE_WITHOUT_KERNEL: Final = Entry(
    id="SLT010",
    code="KVTypeWithoutKernel",
    item=Item.KERNELS,
    title="The KV cache has types that no GPU kernel was compiled for",
    cause="Default builds for CUDA and ROCm have attention kernels for f16, bf16, q8_0 and q4_0 only, and only with K "
    "and V of one type (some also for K q8_0 with V q4_0). Others are converted to f16 at every step; builds up to "
    "b10819 computed attention on the CPU without a word (ggml-org/llama.cpp#28455: 1511 against 197 prompt tokens/s; "
    "#27109).",
    first="Set -ctk and -ctv to the same type: q8_0, q4_0, or f16.",
    avoid="Do not quantize the cache further to make it faster: a type without a kernel is slower than f16.",
    verify="The warning is gone from the log, and prompts are read as fast as with f16.",
    knobs=("cacheTypeK", "cacheTypeV"),
    binds="TTFTPrefill",
)

FLASH_ATTENTION_OFF: Final = Entry(
    id="SLT011",
    code="FlashAttentionOff",
    item=Item.KERNELS,
    title="Flash attention is off, or runs on another device than its layers",
    cause="Where the GPU has no kernel for a head size, a mask or a KV type, llama.cpp turns flash attention off or "
    "lets the CPU compute it (ggml-org/llama.cpp#12352, #12989): prompts are then read slower the longer they are. "
    "With a quantized V cache and flash attention off the model can't be loaded at all.",
    first="Set -fa on, with -ctk and -ctv f16, and see whether the warning stays; if it does, a newer build or another "
    "backend may have the kernel.",
    avoid="Do not turn it off for a CPU server's sake without measuring: on some processors off is the faster one "
    "(ggml-org/llama.cpp#27086), on GPUs it rarely is.",
    verify="The log at -lv 4 says that flash attention is enabled, and has no line of a layer on another device.",
    knobs=("flashAttention", "cacheTypeK", "cacheTypeV"),
    binds="TTFTPrefill",
)


def kv_pair(symptoms: Symptoms) -> tuple[str, Evidence] | None:
    """``q8_0-q8_0`` and who says so: the log, else the arguments; None when nobody does."""
    log = symptoms.log
    if log is not None and log.facts.cache_type_k and log.facts.cache_type_v:
        pair = f"{log.facts.cache_type_k}-{log.facts.cache_type_v}"
        return pair, fact(log, "cache_type_k", f"K ({log.facts.cache_type_k}), V ({log.facts.cache_type_v})")
    if not has_defaults(symptoms):
        return None
    settings = stated(symptoms)
    named = [settings[name] for name in ("-ctk", "-ctv") if name in settings and settings[name].values]
    types = [
        settings[name].values[0] if name in settings and settings[name].values else "f16" for name in ("-ctk", "-ctv")
    ]
    text = " ".join(shown(setting).text for setting in named) or "no -ctk and no -ctv: f16"
    return "-".join(types), Evidence(Source.FLAGS, text[:LONGEST])


def _kv_type_without_kernel(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, backend = symptoms.log, backend_of(symptoms)
    if log is not None and (log.facts.kernel_fallback or log.count(Topic.KERNEL_FALLBACK)):
        types = log.facts.kernel_fallback
        named = f"K/V types {types}" if types else "these K/V types"
        return Finding(
            KV_TYPE_WITHOUT_KERNEL,
            f"no attention kernel was compiled for {named}: both are converted to f16 at every step",
            heard(log, Topic.KERNEL_FALLBACK) or (fact(log, "kernel_fallback", f"no kernel for {named}"),),
        )
    known = kv_pair(symptoms)
    if known is not None and known[0] in COMPILED_KV_PAIRS:
        return Clear(f"K/V types {known[0]} have a kernel of their own", (known[1],))
    if backend is Backend.CPU:
        return Clear("the CPU has kernels for every KV type")
    if known is not None and backend in (Backend.CUDA, Backend.ROCM):
        return _uncompiled(symptoms, *known)
    if known is not None and backend is not None and log is not None and said(log) and not _left_device(log):
        return Clear(f"attention on {known[0]} stayed on its device", (known[1],))
    return Undecided(NEEDS_START)


def _uncompiled(symptoms: Symptoms, pair: str, named: Evidence) -> Finding | Clear | Undecided:
    """A pair that default builds have no kernel for, on a GPU where that matters, and no line about it."""
    log, build = symptoms.log, build_of(symptoms)
    if "iq4_nl" in pair.split("-"):
        return Finding(
            KV_TYPE_WITHOUT_KERNEL,
            f"no build has a GPU kernel for K/V types {pair}: attention runs on the CPU",
            (named,),
            confidence=Confidence.LIKELY,
        )
    if build is None:
        return Undecided("the build: --url, the image's tag, or a log that holds the start")
    number, told = build
    if number >= KV_PAIRS_CONVERTED:
        # It would have said so at the first token, at every level.
        if said(log) and log is not None and log.requests is not None:
            return Clear(f"this build has a kernel for K/V types {pair}: it did not say that it converts", (named,))
        return Undecided("a log that holds the start and an answered request")
    if is_kernel_missing(number, pair) and is_official_image(symptoms):
        return Finding(
            KV_TYPE_WITHOUT_KERNEL,
            f"b{number} has no GPU kernel for K/V types {pair} and computes attention on the CPU without saying so",
            (named, told),
            confidence=Confidence.LIKELY,
        )
    return Undecided(
        f"a log of b{KV_PAIRS_CONVERTED} or later that holds the start and an answered request: b{number} does not say "
        f"whether it was built with kernels for {pair} (GGML_CUDA_FA_ALL_QUANTS); or q8_0 for -ctk and -ctv"
    )


def _left_device(log: LogStory) -> bool:
    return log.facts.flash_attention_fallback is not None or log.count(Topic.FLASH_ATTENTION_FALLBACK) > 0


def _flash_attention_off(symptoms: Symptoms) -> Finding | Clear | Undecided:
    return _quantized_v_without(symptoms) or _fallen_back(symptoms)


def _fallen_back(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, backend = symptoms.log, backend_of(symptoms)
    if backend is None and log is not None:
        backend = _device_of_a_layer(log)
    if backend is Backend.CPU:
        return Clear("on a CPU flash attention is no matter of kernels")
    if backend is None:
        return Undecided(NEEDS_START)
    if log is not None and _left_device(log):
        lines = heard(log, Topic.FLASH_ATTENTION_FALLBACK) or (
            fact(log, "flash_attention_fallback", (log.facts.flash_attention_fallback or "")[:LONGEST]),
        )
        if any(_OF_A_LAYER_ON_CPU.search(line.text) for line in lines):
            return Finding(
                FLASH_ATTENTION_OFF,
                "flash attention is off because some layers lie on the CPU",
                lines,
                Severity.INFO,
                first="Put all layers on the GPU first: flash attention then comes back by itself.",
            )
        return Finding(
            FLASH_ATTENTION_OFF,
            f"there is no flash attention kernel for {backend} and this model's heads, or its K/V types",
            lines,
        )
    if log is not None and log.facts.flash_attention:
        return Clear("flash attention is in effect", (fact(log, "flash_attention", "Flash Attention enabled"),))
    return _turned_off(symptoms, backend)


def _device_of_a_layer(log: LogStory) -> Backend | None:
    """What computes a layer whose attention is left to another device, as the line about it says."""
    said_of = [line.text for line in heard(log, Topic.FLASH_ATTENTION_FALLBACK)]
    matches = (_OF_A_LAYER.search(text) for text in (*said_of, log.facts.flash_attention_fallback or ""))
    return next((backend_of_device(match[1]) for match in matches if match is not None), None)


def _quantized_v_without(symptoms: Symptoms) -> Finding | None:
    """Arguments with which llama.cpp refuses to make a context, on every device: it only goes by what was asked for."""
    log, settings = symptoms.log, stated(symptoms)
    kind, off = settings.get("-ctv"), _stated_off(symptoms)
    if kind is None or not kind.values or kind.values[0] not in QUANTIZED_KV or off is None:
        return None
    is_up = symptoms.server is not None or (symptoms.pod is not None and symptoms.pod.ready is True)
    if is_up or (log is not None and (log.facts.ready or log.failure is not None)):
        return None  # it came up, so these are not what it runs with; or its log says how it ended, a finding too
    return Finding(
        FLASH_ATTENTION_OFF,
        f"a V cache of {kind.values[0]} needs flash attention, which is off: the model can't be loaded",
        (shown(kind), off),
        Severity.CRITICAL,
        Confidence.LIKELY,
        first="Set -fa on, or -ctv f16: a quantized V cache needs flash attention.",
    )


def _stated_off(symptoms: Symptoms) -> Evidence | None:
    """Who turned it off: an argument, or the default of a build that had it off."""
    setting, build = stated(symptoms).get("-fa"), build_of(symptoms)
    if setting is not None:
        return shown(setting) if _is_off(setting) else None
    if build is None or not has_defaults(symptoms) or (defaults := defaults_of(build[0])).flash_attention != "off":
        return None
    if "-fa" in defaults.unsure:
        return None
    return Evidence(Source.FLAGS, f"no -fa: off by default in b{build[0]}")


def _is_off(setting: Setting) -> bool:
    return bool(setting.values) and setting.values[0] in FALSE


def _turned_off(symptoms: Symptoms, backend: Backend) -> Finding | Clear | Undecided:
    """Whether it is off on a GPU, and who did that."""
    log, setting = symptoms.log, stated(symptoms).get("-fa")
    stated_off = setting if setting is not None and _is_off(setting) else None
    is_off = log is not None and log.facts.flash_attention is False
    if not is_off and stated_off is None:
        return Undecided(NEEDS_START)
    if backend not in (Backend.CUDA, Backend.ROCM):
        return Clear(f"flash attention is off, which {backend} may be faster with (ggml-org/llama.cpp#17715)")
    evidence = (shown(stated_off),) if stated_off is not None else ()
    if is_off and log is not None:
        evidence = (fact(log, "flash_attention", "flash attention is off"), *evidence)
    by_itself = stated_off is None and has_defaults(symptoms)
    return Finding(
        FLASH_ATTENTION_OFF,
        "flash attention was turned off by llama.cpp itself" if by_itself else "flash attention is off",
        evidence,
        # Who turned it off may have measured it; llama.cpp only does where it has no kernel.
        Severity.WARNING if by_itself else Severity.INFO,
        Confidence.LIKELY,
    )


ENTRIES: Final = (KV_TYPE_WITHOUT_KERNEL, FLASH_ATTENTION_OFF)

RULES: Final[tuple[Rule, ...]] = (
    Rule(KV_TYPE_WITHOUT_KERNEL.id, Item.KERNELS, _kv_type_without_kernel),
    Rule(FLASH_ATTENTION_OFF.id, Item.KERNELS, _flash_attention_off),
)
