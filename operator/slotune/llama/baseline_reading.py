"""From stated settings to the candidate that a llama-server really runs: defaults, clamps and interactions.

The order of rules is llama-server's (tools/server/server.cpp and llama-context.cpp at b11434): slots first, then the
pool, then its division, then batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from slotune.llama.build_defaults import BuildDefaults
from slotune.llama.candidate import KV_TYPES, Candidate
from slotune.llama.flag_cures import DRAFT_MODELS
from slotune.llama.flag_history import ADDED
from slotune.llama.flag_reading import FALSE, TRUE, FlagProblem, Setting
from slotune.llama.kv_cells import padded
from slotune.llama.kv_types import BYTES_PER_ELEMENT
from slotune.llama.speculation import DRAFT_MODEL, KINDS, MOD_LEAST, draft_layers

__all__ = ["BaselineReader"]

PARALLEL_MAX = 256
"""LLAMA_MAX_SEQ."""
NUMBER_MAX = 2**31 - 1

_WHOLE = re.compile(r"[+-]?\d+")


class BaselineReader:
    """Reads one server's settings. Problems and notes add up in it; a problem leaves a default in its place."""

    def __init__(
        self,
        stated: Mapping[str, Sequence[Setting]],
        defaults: BuildDefaults,
        training_context: int | None,
        drafts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.stated = stated
        """By the flag's first spelling, the one that counts last."""
        self.defaults = defaults
        self.training_context = training_context
        self.drafts = drafts
        """Names of model variants, by path."""
        self.taken: set[str] = set()
        """Flags of speculation (first spellings) that became settings of the candidate."""
        self.problems: list[FlagProblem] = []
        self.notes: list[str] = []
        self.extra_threads: tuple[str, ...] = ()
        """``-tb`` where it differs from ``-t``: a candidate has one number for both."""

    def candidate(self, variant: str, gpu_class: str) -> Candidate:
        """The baseline; worth something only when ``problems`` stayed empty."""
        slots, unified = self._slots()
        context = self._context(slots, unified)
        batch, ubatch = self._batches()
        flash_attention = self._flash_attention()
        type_k, type_v = self._cache_types(flash_attention)
        ram, idle = self._host_cache()
        self._fit()
        self._build()
        return Candidate(
            variant=variant,
            gpu_class=gpu_class,
            parallel_slots=slots,
            context_per_slot=context,
            kv_unified=unified,
            batch_size=batch,
            ubatch_size=ubatch,
            cache_type_k=type_k,
            cache_type_v=type_v,
            flash_attention=flash_attention,
            cache_prompt=self.switch("--cache-prompt", self.defaults.cache_prompt),
            cache_ram_mib=ram,
            cache_idle_slots=idle,
            cache_reuse=self.number("--cache-reuse", self.defaults.cache_reuse, 0),
            gpu_layers=self._gpu_layers(),
            threads=self._threads(),
            **self._speculation(),
            backend_sampling=self.switch("-bs", default=False),
        )

    def setting(self, name: str) -> Setting | None:
        """What counts for a flag, or None when nothing is stated."""
        settings = self.stated.get(name)
        return settings[-1] if settings else None

    def text(self, name: str) -> str | None:
        """The value of a flag, or None."""
        setting = self.setting(name)
        return setting.values[0] if setting else None

    def switch(self, name: str, default: bool) -> bool:
        """Whether a switch is on."""
        setting = self.setting(name)
        return default if setting is None else setting.on

    def number(self, name: str, default: int, least: int = -NUMBER_MAX, most: int = NUMBER_MAX) -> int:
        """The whole number that a flag states, between ``least`` and ``most``."""
        setting = self.setting(name)
        if setting is None:
            return default
        (value,) = setting.values
        if not _WHOLE.fullmatch(value.strip()):
            leading = re.match(r"\s*[+-]?\d+", value)
            what = f"is no whole number: llama-server reads {leading[0].strip()}" if leading else "is no whole number"
            self._refuse(setting, what, "write it in digits")
            return default
        number = int(value)
        if not least <= number <= most:
            bounds = f"at least {least}" if most == NUMBER_MAX else f"from {least} to {most}"
            self._refuse(setting, "is out of range", f"write a number {bounds}")
            return default
        return number

    def _refuse(self, setting: Setting, what: str, cure: str) -> None:
        value = setting.values[0] if setting.values else None
        self.problems.append(FlagProblem(setting.spelling, what, cure, value))

    def _slots(self) -> tuple[int, bool]:
        """Slots, and whether they share one cache: they do when their number is left to llama-server."""
        stated = self.number("-np", -1, -NUMBER_MAX, PARALLEL_MAX)
        unified = self.switch("-kvu", default=False)
        setting = self.setting("-np")
        if stated == 0 and setting is not None:
            self._refuse(setting, "is no number of slots", f"write 1 to {PARALLEL_MAX}")
            return 1, unified
        taken_for_none = stated == 1 and not unified and self.defaults.one_slot_is_auto
        if stated > 0 and not taken_for_none:
            return stated, unified
        slots = self.defaults.auto_slots
        if not self.defaults.auto_unified:
            return slots, unified
        why = f"{setting.spelling} 1 is as good as not set" if taken_for_none and setting else "-np is not set"
        overruled = " whatever -no-kvu says" if self.setting("-kvu") and not unified else ""
        self.notes.append(f"{why}: llama-server runs {slots} slots on one unified KV cache{overruled}.")
        return slots, True

    def _context(self, slots: int, unified: bool) -> int:
        """Tokens per slot. Split caches are rounded up as llama.cpp does; a unified pool is shared out evenly."""
        pool = self.number("-c", self.defaults.context, 0)
        per_slot = self.number("--kv-unified-per-slot", 0, 0)
        if per_slot > 0 and self.setting("-c") is None:
            pool = slots * per_slot
        if pool == 0:
            pool = self._trained_pool(slots, unified)
        if unified:
            context = pool // slots if pool % slots == 0 else padded(pool) // slots
        else:
            context = padded(padded(pool) // slots)
            if context * slots != pool:
                self.notes.append(f"-c {pool} over {slots} slots is rounded up to {context} tokens for each.")
        if self.training_context is not None and context > self.training_context:
            self.notes.append(
                f"{context} tokens for each slot are more than the model's training context, where llama-server caps "
                f"them. slotune measures with {self.training_context}."
            )
            return self.training_context
        return context

    def _trained_pool(self, slots: int, unified: bool) -> int:
        setting = self.setting("-c")
        what = "-c is not set" if setting is None else "-c is 0"
        if self.training_context is None:
            spelling = "-c" if setting is None else setting.spelling
            what = f"{what.removeprefix('-c ')}, so it is the model's training context, which is not known here"
            self.problems.append(FlagProblem(spelling, what, "state -c, or give the model's file"))
            return slots * padded(1)
        how = "shared by" if unified else "divided among"
        self.notes.append(
            f"{what}: the whole KV cache has the model's training context, {self.training_context:,} tokens, "
            f"{how} {slots} slot{'s' if slots > 1 else ''}."
        )
        return self.training_context

    def _batches(self) -> tuple[int, int]:
        batch = self.number("-b", self.defaults.batch_size, 1)
        ubatch = self.number("-ub", self.defaults.ubatch_size, 0) or batch
        if ubatch > batch:
            self.notes.append(f"A ubatch of {ubatch} above the batch is clamped to {batch} by llama-server.")
        return batch, min(batch, ubatch)

    def _flash_attention(self) -> Literal["on", "off", "auto"]:
        setting = self.setting("-fa")
        value = setting.values[0] if setting else self.defaults.flash_attention
        if value in TRUE:
            return "on"
        if value in FALSE:
            return "off"
        if value not in {"auto", "-1"} and setting is not None:
            self._refuse(setting, "is no mode", "write on, off or auto")
        return "auto"

    def _cache_types(self, flash_attention: str) -> tuple[str, str]:
        types = []
        for name in ("-ctk", "-ctv"):
            setting = self.setting(name)
            kind = setting.values[0] if setting else self.defaults.cache_type
            if setting is not None and kind not in BYTES_PER_ELEMENT:
                self._refuse(setting, "is no type of a KV cache", f"write one of {', '.join(BYTES_PER_ELEMENT)}")
                kind = self.defaults.cache_type
            types.append(kind)
        type_k, type_v = types
        setting = self.setting("-ctv")
        if flash_attention == "off" and BYTES_PER_ELEMENT[type_v] < BYTES_PER_ELEMENT["f16"] and setting is not None:
            self._refuse(setting, "needs flash attention, the server would not start", "write -fa on")
        if type_k != type_v or type_k not in {*KV_TYPES, "bf16"}:
            self.notes.append(
                f"K {type_k} with V {type_v}: stock CUDA builds have no flash-attention kernel for this pair and "
                "convert or fall back to the CPU."
            )
        return type_k, type_v

    def _host_cache(self) -> tuple[int, bool]:
        """MiB of the prompt cache in host memory, and whether idle slots are saved to it."""
        ram = self.number("-cram", self.defaults.cache_ram_mib, -1)
        idle = self.switch("--cache-idle-slots", self.defaults.cache_idle_slots)
        setting = self.setting("--cache-idle-slots")
        if idle and ram == 0 and setting is not None:
            self.notes.append(f"{setting.spelling} has no effect: the prompt cache is off (--cache-ram 0).")
        return ram, idle and ram != 0

    def _build(self) -> None:
        """Notes which defaults of the build are not certain, where the server leaves something to them."""
        self.notes += self.defaults.notes
        self.notes += [
            f"{flag} is not set, and {sentence}"
            for flag, sentence in self.defaults.unsure.items()
            if self.setting(flag) is None
        ]

    def _gpu_layers(self) -> str:
        setting = self.setting("-ngl")
        value = setting.values[0] if setting else self.defaults.gpu_layers
        if value in {"auto", "all"} or setting is None:
            return value
        number = self.number("-ngl", -1)
        if number < 0:
            return self.defaults.gpu_layers if number == -1 else "all"
        return str(number)

    def _threads(self) -> int | None:
        """``-t``; None leaves it to the sandbox. A ``-tb`` of its own goes to ``extra_threads``."""
        threads = self.number("-t", 0)
        batch_threads = self.number("-tb", threads)
        if batch_threads != threads and batch_threads > 0:
            self.extra_threads = ("-tb", str(batch_threads))
        setting = self.setting("-t")
        if threads <= 0 and setting is not None:
            value = setting.values[0]
            self.notes.append(
                f"{setting.spelling} {value} is all cores of the host, whatever the container's CPU limit."
            )
        return threads if threads > 0 else None

    def _speculation(self) -> dict[str, Any]:
        """Every mention of ``--spec-type`` adds to the others."""
        kinds = [
            kind.strip() for setting in self.stated.get("--spec-type", ()) for kind in setting.values[0].split(",")
        ]
        if self.setting("--spec-default") is not None:
            kinds.append("ngram-mod")
            self.notes.append("--spec-default is --spec-type ngram-mod.")
        kinds = [kind for kind in dict.fromkeys(kinds) if kind and kind != "none"]
        draft = next((found for name in DRAFT_MODELS if (found := self.setting(name)) is not None), None)
        named = self._draft(draft) if kinds in ([], [DRAFT_MODEL]) else None
        if named is not None:
            kinds = [DRAFT_MODEL]
        elif draft is not None and not kinds:
            self.notes.append(
                f"{draft.spelling} brings a draft model: it stays as it is, in every candidate, and how the server "
                "speculates with it is not tuned."
            )
        said = ",".join(kinds) or "none"
        return {"speculation": said, "draft": named, **self._guesses(said)}

    def _draft(self, setting: Setting | None) -> str | None:
        """Name of the model variant that drafts; None where it is none, or the build spells all that otherwise."""
        build = self.defaults.build
        if setting is None or (build is not None and build < ADDED[DRAFT_MODEL].present):
            return None
        name = self.drafts.get(setting.values[0]) if setting.flag.name == "--spec-draft-model" else None
        if name is None:
            return None
        self.taken.add(setting.flag.name)
        layers = self.setting("--spec-draft-ngl")
        if layers is not None and layers.values[0] == draft_layers(self._gpu_layers()):
            self.taken.add(layers.flag.name)
        return name

    def _guesses(self, way: str) -> dict[str, int]:
        """The numbers of a way to guess, as far as they are stated; what belongs to another one is passed through."""
        kind = KINDS.get(way)
        if kind is None:
            return {}
        found = {}
        for name, flag in (("speculation_tokens", kind.tokens), ("speculation_match", kind.match)):
            if flag is not None and self.setting(flag) is not None:
                found[name] = self.number(flag, 0, 0)
                self.taken.add(flag)
        tokens = found.get("speculation_tokens", MOD_LEAST)
        if kind.least is not None and tokens < MOD_LEAST and self.text(kind.least) == str(tokens):
            self.taken.add(kind.least)
        return found

    def _fit(self) -> None:
        """Notes what fit may do to production and what slotune does instead."""
        setting = self.setting("-fit")
        value = setting.values[0] if setting else ("on" if self.defaults.fit else "off")
        if value not in TRUE | FALSE and setting is not None:
            self._refuse(setting, "is neither on nor off", "write on or off")
        unset = [name for name in ("-c", "-ngl") if self.setting(name) is None]
        if value in TRUE and unset:
            self.notes.append(
                f"-fit is on while {' and '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set: llama-server "
                "may shrink the context or leave layers on the CPU, and only its log says so. slotune measures with "
                "-fit off."
            )
