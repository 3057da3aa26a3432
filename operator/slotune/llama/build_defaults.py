"""What a llama-server does where its arguments say nothing. Differs between builds, so it is a value.

Only what a baseline depends on. The newest values are those of build 11549 and, by its source, of 11434. For earlier
builds :data:`TURNS` has each default that changed. The release in which a pull request landed is not always known; then
a turn has the newest build that is known to be without it and the oldest that is known to have it, and a build between
them gets the newer default and a sentence that says so. Nothing is guessed silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

__all__ = ["BUILD_11549", "NEWEST_KNOWN", "OLDEST_KNOWN", "TURNS", "BuildDefaults", "Turn", "defaults_of"]

NEWEST_KNOWN: Final = 11549
OLDEST_KNOWN: Final = 5129
"""Of spring 2025. What earlier builds did was not looked up."""


@dataclass(frozen=True, slots=True)
class BuildDefaults:
    """Defaults of one build."""

    build: int | None = None
    """None: not known. The defaults are those of the newest known then, and a note says so."""
    host: str = "127.0.0.1"
    port: int = 8080
    """Announced to become 9931 (ggml-org/llama.cpp#26508)."""
    context: int = 0
    """``-c`` in tokens; 0 is the model's training context."""
    auto_slots: int = 4
    """Slots without ``-np``."""
    auto_unified: bool = True
    """Whether those share one cache. With ``-np`` it is split unless ``-kvu`` is stated."""
    one_slot_is_auto: bool = False
    """Whether ``-np 1`` without ``-kvu`` is taken for no ``-np`` at all (ggml-org/llama.cpp#17300)."""
    batch_size: int = 2048
    ubatch_size: int = 512
    flash_attention: str = "auto"
    flash_attention_takes_value: bool = True
    """False: ``-fa`` is a switch."""
    cache_type: str = "f16"
    cache_prompt: bool = True
    cache_ram_mib: int = 8192
    cache_idle_slots: bool = True
    """Only with a prompt cache in host memory."""
    cache_reuse: int = 0
    gpu_layers: str = "auto"
    fit: bool = True
    """Shrinks what is not stated until it fits the GPU, and says so in the log only."""
    unsure: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """A sentence for each flag (first spelling) whose default in this build is not known for certain."""
    notes: tuple[str, ...] = ()
    """What is assumed about the build as a whole."""


BUILD_11549: Final = BuildDefaults(NEWEST_KNOWN)


@dataclass(frozen=True, slots=True)
class Turn:
    """A default that changed."""

    absent: int
    """Newest build that is known to be without the change."""
    present: int
    """Oldest build that is known to have it."""
    source: str
    """Pull request of ggml-org/llama.cpp."""
    flags: tuple[str, ...]
    """First spellings of the flags whose default it is."""
    earlier: Mapping[str, Any]
    """Fields of :class:`BuildDefaults` as they were before."""

    def is_between(self, build: int) -> bool:
        """Whether it is not known if ``build`` has the change."""
        return self.absent < build < self.present


TURNS: Final = (
    # Saving idle slots came with a build between b8648 and b8664, on by default.
    Turn(8648, 8664, "#20993", ("--cache-idle-slots",), {"cache_idle_slots": False}),
    # Until -1 became the default of -np, an explicit 1 was the same as none. It was proposed when b7394 was out, and
    # b7433 has it.
    Turn(7394, 7433, "#17997", ("-np",), {"one_slot_is_auto": True}),
    # Merged after the review of 10 December 2025 (b7394 is of the 14th) and at work in b7539 (#18376). It fits what is
    # not stated, for which "not stated" had to become 0 and auto; before, -c was 4096 (#10136) and all layers went to
    # the GPU (#15434).
    Turn(7394, 7539, "#16653", ("-fit", "-c", "-ngl"), {"fit": False, "context": 4096, "gpu_layers": "all"}),
    # Proposed on 23 October 2025, after b6663, and at work in b7079 (#17300).
    Turn(
        6663, 7079, "#16736", ("-np",),
        {"auto_slots": 1, "auto_unified": False, "one_slot_is_auto": False},
    ),
    # Proposed on 2 October 2025, a day after b6663, and merged before #16736, which builds on it.
    Turn(6663, 7079, "#16391", ("-cram",), {"cache_ram_mib": 0}),
    # b6301 is of 28 August 2025; bindings had to follow the change with b6327.
    Turn(
        6301, 6327, "#15434", ("-fa", "-ngl"),
        {"flash_attention": "off", "flash_attention_takes_value": False, "gpu_layers": "0"},
    ),
)  # fmt: skip
"""Newest first: an earlier state of an earlier turn overrules that of a later one."""


_UNKNOWN: Final = (
    f"Nothing says which build of llama.cpp the image is of, so defaults and rules of b{NEWEST_KNOWN} are assumed: an "
    f"image whose tag has the build, such as server-b{NEWEST_KNOWN}, leaves nothing to assume."
)


def defaults_of(build: int | None) -> BuildDefaults:
    """Defaults of a build by its number; None: those of the newest known, as a note says."""
    if build is None:
        return replace(BUILD_11549, build=None, notes=(_UNKNOWN,))
    values: dict[str, Any] = {}
    unsure: dict[str, str] = {}
    for turn in TURNS:
        if build <= turn.absent:
            values |= turn.earlier
        elif turn.is_between(build):
            unsure |= dict.fromkeys(turn.flags, _unsure(turn, build))
    return replace(BUILD_11549, build=build, unsure=MappingProxyType(unsure), notes=_notes(build), **values)


def _unsure(turn: Turn, build: int) -> str:
    return (
        f"llama.cpp {turn.source} changed the default after b{turn.absent} and by b{turn.present}, so that of b{build} "
        "is not certain; the newer one is taken."
    )


def _notes(build: int) -> tuple[str, ...]:
    if build > NEWEST_KNOWN:
        return (f"slotune knows llama.cpp up to b{NEWEST_KNOWN} and takes its defaults for those of b{build}.",)
    if build < OLDEST_KNOWN:
        return (f"slotune knows llama.cpp from b{OLDEST_KNOWN} on and takes its defaults for those of b{build}.",)
    return ()
