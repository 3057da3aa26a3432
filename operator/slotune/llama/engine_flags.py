"""The closed set of llama-server flags that the embedded engine takes, and what each one sets.

Whoever runs a candidate must not care whether the embedded engine or a real llama-server runs it, so the spellings,
the defaults and the refusals are llama-server's. The set is closed on purpose: a flag that was taken and then
ignored would be measured as if it had done something.

``parse_arguments`` is pure and needs no engine; ``apply_settings`` writes the result into ``xllamacpp.CommonParams``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

__all__ = ["ENGINE_FLAGS", "EngineFlag", "EngineFlagError", "apply_settings", "parse_arguments"]

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""Types that llama-server takes for ``-ctk`` and ``-ctv`` (build 11549)."""

PARALLEL_MAX = 256
"""LLAMA_MAX_SEQ: llama.cpp keeps one bit per sequence in every KV cell."""

GPU_LAYERS = {"auto": -1, "all": -2}
ON_OFF = dict.fromkeys(("on", "enabled", "true", "1"), True) | dict.fromkeys(("off", "disabled", "false", "0"), False)
FLASH_ATTENTION = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


class EngineFlagError(ValueError):
    """An argument list that the embedded engine refuses; the message is llama-server's, the flag is named."""

    def __init__(self, flag: str, message: str) -> None:
        super().__init__(message)
        self.flag = flag


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """One flag: every spelling, and the attribute of ``CommonParams`` that it sets."""

    attribute: str
    """Dotted path below ``xllamacpp.CommonParams``."""
    names: tuple[str, ...]
    negations: tuple[str, ...] = ()
    """Spellings that set False; only for switches."""
    read: Callable[[str], Any] | None = None
    """Turns the value's text into a plain value; None for a switch, which takes no value."""


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"invalid number: {text!r}") from None


def _parallel(text: str) -> int:
    slots = _number(text)
    if slots < -1 or slots == 0 or slots > PARALLEL_MAX:
        raise ValueError(f"error: invalid value for n_parallel: {slots} (-1 for auto, or 1 to {PARALLEL_MAX})")
    return slots


def _threads(text: str) -> int:
    threads = _number(text)
    return threads if threads > 0 else (os.cpu_count() or 1)


def _gpu_layers(text: str) -> int:
    return GPU_LAYERS[text] if text in GPU_LAYERS else _number(text)


def _one_of(choices: Mapping[str, Any] | Sequence[str], what: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{what}: {text} (one of {', '.join(choices)})")
        return text

    return read


def _on_off(text: str) -> bool:
    if text not in ON_OFF:
        raise ValueError(f"error: unknown value: '{text}' (on or off)")
    return ON_OFF[text]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


ENGINE_FLAGS: tuple[EngineFlag, ...] = (
    EngineFlag("model.path", ("-m", "--model"), read=str),
    EngineFlag("model_alias", ("-a", "--alias"), read=_list),
    EngineFlag("hostnames", ("--host",), read=_list),
    EngineFlag("port", ("--port",), read=_number),
    EngineFlag("n_gpu_layers", ("-ngl", "--gpu-layers", "--n-gpu-layers"), read=_gpu_layers),
    EngineFlag("fit_params", ("-fit", "--fit"), read=_on_off),
    EngineFlag("n_parallel", ("-np", "--parallel"), read=_parallel),
    EngineFlag("n_ctx", ("-c", "--ctx-size"), read=_number),
    EngineFlag("kv_unified", ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified")),
    EngineFlag("n_batch", ("-b", "--batch-size"), read=_number),
    EngineFlag("n_ubatch", ("-ub", "--ubatch-size"), read=_number),
    EngineFlag("flash_attn_type", ("-fa", "--flash-attn"), read=_one_of(FLASH_ATTENTION, "error: unknown value")),
    EngineFlag("cache_type_k", ("-ctk", "--cache-type-k"), read=_one_of(CACHE_TYPES, "Unsupported cache type")),
    EngineFlag("cache_type_v", ("-ctv", "--cache-type-v"), read=_one_of(CACHE_TYPES, "Unsupported cache type")),
    EngineFlag("cpuparams.n_threads", ("-t", "--threads"), read=_threads),
    EngineFlag("cpuparams_batch.n_threads", ("-tb", "--threads-batch"), read=_threads),
    EngineFlag("cache_prompt", ("--cache-prompt",), ("--no-cache-prompt",)),
    EngineFlag("cache_ram_mib", ("-cram", "--cache-ram"), read=_number),
    EngineFlag("cache_idle_slots", ("--cache-idle-slots",), ("--no-cache-idle-slots",)),
    EngineFlag("n_cache_reuse", ("--cache-reuse",), read=_number),
    EngineFlag("endpoint_metrics", ("--metrics",)),
    EngineFlag("endpoint_slots", ("--slots",), ("--no-slots",)),
    EngineFlag("speculative.types", ("--spec-type",), read=_list),
    EngineFlag("speculative.draft.mparams.path", ("--spec-draft-model", "-md", "--model-draft"), read=str),
    EngineFlag(
        "speculative.draft.n_gpu_layers",
        ("--spec-draft-ngl", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
        read=_gpu_layers,
    ),
    EngineFlag("speculative.draft.n_max", ("--spec-draft-n-max",), read=_number),
    EngineFlag("speculative.ngram_mod.n_max", ("--spec-ngram-mod-n-max",), read=_number),
    EngineFlag("speculative.ngram_mod.n_min", ("--spec-ngram-mod-n-min",), read=_number),
    EngineFlag("speculative.ngram_mod.n_match", ("--spec-ngram-mod-n-match",), read=_number),
    *(
        EngineFlag(f"speculative.{kind.replace('-', '_')}.size_{size}", (f"--spec-{kind}-size-{size}",), read=_number)
        for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
        for size in ("n", "m")
    ),
    EngineFlag("sampling.backend_sampling", ("-bs", "--backend-sampling")),
    EngineFlag("ctx_shift", ("--context-shift",), ("--no-context-shift",)),
    EngineFlag("warmup", ("--warmup",), ("--no-warmup",)),
    EngineFlag("ui", ("--ui", "--webui"), ("--no-ui", "--no-webui")),
    EngineFlag("verbosity", ("-lv", "--verbosity", "--log-verbosity"), read=_number),
)

_BY_NAME = {name: (flag, True) for flag in ENGINE_FLAGS for name in flag.names} | {
    name: (flag, False) for flag in ENGINE_FLAGS for name in flag.negations
}

_SERVER_DEFAULTS: dict[str, Any] = {"n_parallel": -1, "port": 8080}
"""Where llama-server's own default differs from that of ``CommonParams``."""


def parse_arguments(argv: Sequence[str]) -> dict[str, Any]:
    """Attribute paths and plain values of ``argv``, llama-server's defaults filled in where they differ.

    As in llama-server ``--a_b`` is ``--a-b`` and the last of a repeated flag wins.

    Raises:
        EngineFlagError: an unknown flag, a value that is missing or that the flag does not take, or no model.
    """
    settings = dict(_SERVER_DEFAULTS)
    rest = list(argv)
    while rest:
        name = rest.pop(0)
        if name.startswith("--"):
            name = name.replace("_", "-")
        if name not in _BY_NAME:
            raise EngineFlagError(name, f"error: invalid argument: {name}")
        flag, positive = _BY_NAME[name]
        if flag.read is None:
            settings[flag.attribute] = positive
            continue
        if not rest:
            raise EngineFlagError(name, f'error while handling argument "{name}": expected value for argument')
        try:
            settings[flag.attribute] = flag.read(rest.pop(0))
        except ValueError as error:
            raise EngineFlagError(name, f'error while handling argument "{name}": {error}') from error
    if not settings.get("model.path"):
        raise EngineFlagError("-m", "error: --model is required")
    return settings


def apply_settings(settings: Mapping[str, Any], params: Any, xllamacpp: ModuleType) -> None:
    """Write parsed settings into ``params``, an ``xllamacpp.CommonParams``.

    Raises:
        EngineFlagError: a speculation type that this build does not know, or a number beyond 32 bits.
    """
    for attribute, value in settings.items():
        *owners, leaf = attribute.split(".")
        target = params
        for owner in owners:
            target = getattr(target, owner)
        try:
            setattr(target, leaf, _native(attribute, value, xllamacpp))
        except (OverflowError, AttributeError) as error:
            flag = next(flag for flag in ENGINE_FLAGS if flag.attribute == attribute)
            name = flag.names[0]
            raise EngineFlagError(name, f'error while handling argument "{name}": {value!r}: {error}') from error
    if settings.get("n_ctx") == 0:
        # An explicit `-c 0` asks for the model's whole context: llama-server then keeps fit from shrinking it by
        # raising fit's floor to UINT32_MAX, which is -1 in the wheel's signed attribute.
        params.fit_params_min_ctx = -1


def _native(attribute: str, value: Any, xllamacpp: ModuleType) -> Any:
    match attribute:
        case "flash_attn_type":
            return getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{FLASH_ATTENTION[value]}")
        case "cache_type_k" | "cache_type_v":
            return getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}")
        case "speculative.types":
            names = (f"COMMON_SPECULATIVE_TYPE_{kind.upper().replace('-', '_')}" for kind in value)
            return [getattr(xllamacpp.common_speculative_type, name) for name in names]
        case "model_alias":
            return set(value)
        case "hostnames":
            return list(value)
        case _:
            return value
