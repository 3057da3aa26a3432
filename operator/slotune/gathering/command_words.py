"""A server's command line and variables as they may be shown: everything that tunes it, and no key.

A diagnosis is pasted into tickets and chats. So a value that may be a key is replaced here, at the border, and no rule
or report has to think of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from slotune.api.kubernetes_types import Container
from slotune.api.server_container import program_at
from slotune.llama.flag_cures import SECRET, looks_secret
from slotune.llama.flag_reading import read
from slotune.llama.flag_table import BY_NAME, canonical_spelling
from slotune.tuning.pod_reading import PodReading, Variable

__all__ = ["HIDDEN", "server_flags", "shown_environment", "shown_words"]

HIDDEN: Final = "(not shown)"
"""Stands for a value that may be a key."""

_PREFIXES: Final = (
    "LLAMA_", "GGML_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "ONEAPI_", "SYCL_", "ZE_", "OMP_", "GOMP_", "KMP_",
)  # fmt: skip
"""Variables that llama.cpp or what it computes with reads."""


def shown_words(words: Iterable[str]) -> Iterator[str]:
    """The words with :data:`HIDDEN` for each value that may be a key."""
    is_value = False
    for word in words:
        flag, equals, _ = word.partition("=")
        if is_value or _is_script_with_key(word):
            yield HIDDEN
        elif equals and _names_key(flag):
            yield f"{flag}={HIDDEN}"
        else:
            yield word
        is_value = not is_value and not equals and word.startswith("-") and _names_key(word)


def shown_environment(variables: Iterable[Variable]) -> dict[str, str]:
    """What llama.cpp reads, by name. Of a key it says where it comes from; another value that is not known is left
    out, for nothing may be concluded from it."""
    found = {}
    for variable in sorted(variables, key=lambda one: one.name):
        if not variable.name.startswith(_PREFIXES):
            continue
        if looks_secret(variable.name):
            origin = variable.origin
            found[variable.name] = f"({origin.place} {origin.source})" if origin.source else HIDDEN
        elif variable.value is not None:
            found[variable.name] = variable.value
    return found


def server_flags(container: Container, reading: PodReading) -> tuple[str, ...]:
    """The arguments that say how the server was started: first its variables, as the arguments that they stand for,
    since of several the last one counts. Empty when a shell or a script may start it, whose words are not its own."""
    by_image = not container.command and (not reading.words or reading.words[0].text.startswith("-"))
    if program_at(container) is None and not by_image:
        return ()
    settings = read(reading.arguments, reading.environment).settings
    stated = [word for one in settings if one.variable is not None and not one.is_secret for word in one.words]
    return (*stated, *shown_words(reading.arguments))


def _is_script_with_key(word: str) -> bool:
    """Whether a word holds several, one of which may be a key or name one: ``sh -c "llama-server --api-key …"``."""
    parts = word.split()
    return len(parts) > 1 and any(_names_key(part.partition("=")[0]) for part in parts)


def _names_key(word: str) -> bool:
    flag = BY_NAME.get(canonical_spelling(word))
    return (flag is not None and flag[0].name in SECRET) or (flag is None and looks_secret(word))
