"""Which flags and variables came and went with which build: what an image's own llama-server takes.

As in :mod:`slotune.llama.build_defaults` a change has two builds, the newest known before it and the oldest known after
it. Between them a user's own server is believed: it runs with the flag, or it doesn't.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "ADDED",
    "FLASH_ATTENTION_VALUE",
    "FORMER",
    "FORMER_VARIABLES",
    "REMOVED_FLAGS",
    "SPECULATION_NUMBERS",
    "SWITCH_WORDS",
    "Added",
    "Former",
    "FormerVariable",
    "Removed",
    "is_missing",
    "is_removed",
]


@dataclass(frozen=True, slots=True)
class Removed:
    """A flag that llama-server has no more."""

    cure: str
    """Its successor (a flag, with its value where that is needed), or what to do."""
    present: int
    """Newest build that is known to take it."""
    absent: int
    """Oldest build that is known to refuse it."""
    values: int = 0
    """Arguments that followed."""
    env: str | None = None
    """Its variable, without which nothing is known of one."""


@dataclass(frozen=True, slots=True)
class Former:
    """An earlier spelling of a flag that still exists."""

    name: str
    """First spelling of the flag today."""
    on: bool
    absent: int
    """Oldest build that is known to refuse the earlier spelling."""


@dataclass(frozen=True, slots=True)
class FormerVariable:
    """An earlier variable of a flag that still exists; later builds ignore it."""

    name: str
    """First spelling of the flag today."""
    present: int
    """Newest build that is known to read it."""
    absent: int
    """Oldest build that is known not to."""


@dataclass(frozen=True, slots=True)
class Added:
    """A flag, or a rule, that earlier builds do not have."""

    absent: int
    present: int


_LOAD_MODE: Final = (10114, 10875)
"""ggml-org/llama.cpp#20834 brought -lm, with which b10114 still took the old ones and warned (#26110); #28334 removed
them with b10875."""
_DRAFT: Final = (8953, 9016)
"""ggml-org/llama.cpp#22397 of April 2026; a binding saw the parameters move after b8953 and the flags gone by b9016."""
_DRAFT_VARIABLE: Final = (8953, 8955)
"""Their variables were renamed with them: another program that starts llama-server sets those of before b8955, too."""
_DRAFT_CONTEXT: Final = (9106, 9134)
"""A binding saw them refused after b9106 and by b9134."""

REMOVED_FLAGS: Final = {
    "--mlock": Removed("-lm mlock", *_LOAD_MODE, env="LLAMA_ARG_MLOCK"),
    "--mmap": Removed("-lm mmap", *_LOAD_MODE, env="LLAMA_ARG_MMAP"),
    "--no-mmap": Removed("-lm none", *_LOAD_MODE, env="LLAMA_ARG_NO_MMAP"),
    "-dio": Removed("-lm dio", *_LOAD_MODE, env="LLAMA_ARG_DIO"),
    "--direct-io": Removed("-lm dio", *_LOAD_MODE),
    "--no-direct-io": Removed("-lm mmap", *_LOAD_MODE),
    "-ndio": Removed("-lm mmap", *_LOAD_MODE),
    "--draft": Removed("--spec-draft-n-max", *_DRAFT, values=1),
    "--draft-n": Removed("--spec-draft-n-max", *_DRAFT, values=1),
    "--draft-max": Removed("--spec-draft-n-max", *_DRAFT, values=1, env="LLAMA_ARG_DRAFT_MAX"),
    "--draft-min": Removed("--spec-draft-n-min", *_DRAFT, values=1, env="LLAMA_ARG_DRAFT_MIN"),
    "--draft-n-min": Removed("--spec-draft-n-min", *_DRAFT, values=1),
    "--spec-ngram-size-n": Removed("--spec-ngram-simple-size-n, or --spec-ngram-mod-n-match", *_DRAFT, values=1),
    "--spec-ngram-size-m": Removed("--spec-ngram-simple-size-m", *_DRAFT, values=1),
    "--spec-ngram-min-hits": Removed("--spec-ngram-simple-min-hits", *_DRAFT, values=1),
    "-cd": Removed("leave it out: the draft's context follows that of the model", *_DRAFT_CONTEXT, values=1),
    "--ctx-size-draft": Removed(
        "leave it out: the draft's context follows that of the model",
        *_DRAFT_CONTEXT,
        values=1,
        env="LLAMA_ARG_CTX_SIZE_DRAFT",
    ),
    "--spec-draft-ctx-size": Removed(
        "leave it out: the draft's context follows that of the model", *_DRAFT_CONTEXT, values=1
    ),
    "--spec-replace": Removed("leave it out: it has no successor", *_DRAFT_CONTEXT, values=2),
    "--spec-draft-replace": Removed("leave it out: it has no successor", *_DRAFT_CONTEXT, values=2),
}
"""Flags of earlier builds, by spelling."""

FORMER: Final = {
    # ggml-org/llama.cpp#21741; a binding saw the new name after b8841 and by b8854.
    "--clear-idle": Former("--cache-idle-slots", on=True, absent=8854),
    "--no-clear-idle": Former("--cache-idle-slots", on=False, absent=8854),
}
"""Spellings of earlier builds for flags that slotune tunes."""

FORMER_VARIABLES: Final = {
    name: FormerVariable(flag, *_DRAFT_VARIABLE)
    for name, flag in {
        "LLAMA_ARG_MODEL_DRAFT": "--spec-draft-model",
        "LLAMA_ARG_HFD_REPO": "--spec-draft-hf",
        "LLAMA_ARG_DRAFT_P_MIN": "--spec-draft-p-min",
        "LLAMA_ARG_DRAFT_P_SPLIT": "--spec-draft-p-split",
        "LLAMA_ARG_CACHE_TYPE_K_DRAFT": "--spec-draft-type-k",
        "LLAMA_ARG_CACHE_TYPE_V_DRAFT": "--spec-draft-type-v",
        "LLAMA_ARG_CPU_MOE_DRAFT": "--spec-draft-cpu-moe",
        "LLAMA_ARG_N_CPU_MOE_DRAFT": "--spec-draft-n-cpu-moe",
    }.items()
}
"""By the variable."""

ADDED: Final = {
    "-kvu": Added(5912, 5913),  # ggml-org/llama.cpp#14363, at work in b5913 (#14847)
    "-cram": Added(6663, 7079),  # ggml-org/llama.cpp#16391
    "-fit": Added(7394, 7539),  # ggml-org/llama.cpp#16653
    "-no-kvu": Added(7394, 8664),  # the help that #17997 wrote has no negation; a binding had one with b8664
    "--cache-idle-slots": Added(8841, 8854),  # ggml-org/llama.cpp#21741
    # Under review in January 2026, and another server had taken it over by 10 February (ggml-org/llama.cpp#18471).
    "--spec-type": Added(7539, 8648),
    "-bs": Added(7539, 8648),  # ggml-org/llama.cpp#17004, on since January 2026 by #21210
    "draft-simple": Added(9016, 9713),  # the value's name: ggml-org/llama.cpp#22964 of May 2026; a binding had it then
    "--reasoning-preserve": Added(9829, 9839),  # by the notes of a binding
    "-lm": Added(9840, 10114),  # ggml-org/llama.cpp#20834, which was not in a binding's notes up to b9840
    "--reasoning-effort": Added(10433, 10434),  # ggml-org/llama.cpp#26941
}
"""By the spelling, or the flag's first one (``draft-simple`` is a value): those of which the build is known."""

SPECULATION_NUMBERS: Final = Added(*_DRAFT)
"""From when each way of speculation has numbers of its own (``--spec-ngram-mod-n-max``); before, all shared some."""

FLASH_ATTENTION_VALUE: Final = Added(6301, 6327)
"""From when ``-fa`` has a value (ggml-org/llama.cpp#15434). Before it was a switch."""

SWITCH_WORDS: Final = Added(7079, 7403)
"""From when the variable of a switch turns it off, too, takes ``on`` and ``enabled``, and its ``LLAMA_ARG_NO_...``
counts whatever it holds (ggml-org/llama.cpp#17919 of 10 December 2025, at work in b7403 by #18038). Before, every such
variable was one of its own, which acted with ``1`` or ``true`` and had no effect with anything else."""


def is_removed(spelling: str, build: int | None) -> bool:
    """Whether the build is known to refuse a flag that earlier ones took; of an unknown build nothing is known."""
    removed = REMOVED_FLAGS.get(spelling)
    former = FORMER.get(spelling)
    gone = removed.absent if removed is not None else former.absent if former is not None else None
    return gone is not None and build is not None and build >= gone


def is_missing(spelling: str, build: int | None) -> bool:
    """Whether the build is known to be too old for a flag, by the flag's first spelling or by that of its negation."""
    added = ADDED.get(spelling)
    return added is not None and build is not None and build <= added.absent
