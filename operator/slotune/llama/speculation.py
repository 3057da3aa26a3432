"""How llama-server guesses tokens ahead, and what each way of it can be told.

A guess costs no answer: the model itself checks every guessed token, in one step for all of them, and takes what it
would have said anyway. What differs is where guesses come from (the text so far, or a small draft model), how much text
must repeat before one is made, and how long it may be. Source: llama.cpp's ``common/arg.cpp`` and
``common/speculative.cpp`` at build 11549; the names of the flags are those since ggml-org/llama.cpp#22397.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slotune.llama.candidate import Candidate

__all__ = [
    "DRAFT_MODEL",
    "KINDS",
    "MOD_LEAST",
    "SPECULATION_FLAGS",
    "SpeculationKind",
    "draft_layers",
    "speculation_statements",
]

DRAFT_MODEL: Final = "draft-simple"
"""``--spec-type`` of a draft model that shares the model's vocabulary."""

MOD_LEAST: Final = 48
"""``--spec-ngram-mod-n-min`` by default: a guess that is shorter is thrown away, so a lower limit lowers it, too."""


@dataclass(frozen=True, slots=True)
class SpeculationKind:
    """One value of ``--spec-type``. Flags are first spellings; None: it has no such setting."""

    tokens: str | None = None
    """Most tokens that are guessed at a time."""
    match: str | None = None
    """Tokens of text that must repeat before anything is guessed."""
    least: str | None = None
    """Fewest tokens that make a guess."""


KINDS: Final[Mapping[str, SpeculationKind]] = MappingProxyType(
    {
        "none": SpeculationKind(),
        # Guesses up to 8 tokens, from one to four that repeat; neither can be set.
        "ngram-cache": SpeculationKind(),
        **{
            kind: SpeculationKind(tokens=f"--spec-{kind}-size-m", match=f"--spec-{kind}-size-n")
            for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
        },
        "ngram-mod": SpeculationKind(
            tokens="--spec-ngram-mod-n-max", match="--spec-ngram-mod-n-match", least="--spec-ngram-mod-n-min"
        ),
        DRAFT_MODEL: SpeculationKind(tokens="--spec-draft-n-max"),
    }
)
"""The ways that slotune tries; a user's own server may have others, or several at once."""

SPECULATION_FLAGS: Final = tuple(
    flag for kind in KINDS.values() for flag in (kind.tokens, kind.match, kind.least) if flag is not None
)
"""Flags (first spellings) that :func:`speculation_statements` writes besides ``--spec-type`` and the draft model's."""


def draft_layers(gpu_layers: str) -> str:
    """``-ngld`` for a model with ``-ngl gpu_layers``: all, or none where the model has none on a GPU.

    Words mean the same to both. A draft that ran on the CPU could be slower than the model that it saves steps of.
    """
    return gpu_layers if gpu_layers in {"auto", "all", "0"} else "all"


def speculation_statements(candidate: Candidate, draft_path: str | None = None) -> Iterator[tuple[str, ...]]:
    """Each flag of ``candidate``'s speculation with its value; nothing where it has none.

    Raises:
        ValueError: it has a draft model, and nobody says where that lies.
    """
    if candidate.speculation == "none":
        return
    yield "--spec-type", candidate.speculation
    kind = KINDS.get(candidate.speculation, SpeculationKind())
    if candidate.draft is not None:
        if draft_path is None:
            raise ValueError(f"draft {candidate.draft}: where its file lies is needed")
        yield "--spec-draft-model", draft_path
        yield "--spec-draft-ngl", draft_layers(candidate.gpu_layers)
    if candidate.speculation_match is not None and kind.match is not None:
        yield kind.match, str(candidate.speculation_match)
    if candidate.speculation_tokens is not None and kind.tokens is not None:
        yield kind.tokens, str(candidate.speculation_tokens)
        if kind.least is not None and candidate.speculation_tokens < MOD_LEAST:
            yield kind.least, str(candidate.speculation_tokens)
