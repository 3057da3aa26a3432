"""What ``env`` does to the environment, where it stands before the program: ``env -u A B=1 llama-server``.

Its words are those of GNU coreutils, of which BusyBox has a part. kubelet replaces ``$(NAME)`` before ``env`` sees it,
so what is set here is never part of another word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

__all__ = ["EnvWords", "env_words"]

_WITH_VALUE: Final = {"--unset": "u", "--chdir": "C", "--argv0": "a", "--split-string": "S"}
_LONG: Final = {"--ignore-environment": "i"}
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True)
class EnvWords:
    """All calls of ``env`` before a program, in their order."""

    clears: bool = False
    """Whether nothing of the container's environment is left, but for what is set here."""
    unset: frozenset[str] = frozenset()
    assigned: tuple[tuple[int, str], ...] = ()
    """(place, name) of each word that sets a variable."""
    directory: str | None = None
    """Where the program starts, when that is changed."""
    splits: bool = False
    """Whether the command line stands in one string (``-S``), which is not read."""


def env_words(words: Sequence[str]) -> EnvWords:
    """Read the words before a program, supervisors and all."""
    clears, splits, directory = False, False, None
    unset: set[str] = set()
    assigned: list[tuple[int, str]] = []
    for start, word in enumerate(words):
        if PurePosixPath(word).name != "env":
            continue
        place = start + 1
        for option, value, after in _options(words, place):
            place = after
            clears |= option == "i"
            splits |= option == "S"
            directory = value if option == "C" else directory
            unset |= {value} if option == "u" else set()
        if clears:
            assigned.clear()
        while place < len(words) and _ASSIGNMENT.match(words[place]):
            assigned.append((place, words[place].partition("=")[0]))
            place += 1
    return EnvWords(clears, frozenset(unset), tuple(assigned), directory, splits)


def _options(words: Sequence[str], place: int) -> Iterator[tuple[str, str, int]]:
    """(letter, value, place behind it) of each option; a letter without meaning here is empty."""
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        following = words[place] if place < len(words) else ""
        yield "", "", place
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            letter = _WITH_VALUE.get(name) or _LONG.get(name, "")
            place += name in _WITH_VALUE and not equals
            yield letter, value if equals else following, place
            continue
        letters = word[1:]
        taker = next((at for at, letter in enumerate(letters) if letter in _WITH_VALUE.values()), len(letters))
        for letter in letters[:taker]:
            yield letter if letter == "i" else "", "", place
        if taker < len(letters):
            value = letters[taker + 1 :]
            place += not value
            yield letters[taker], value or following, place
    if place < len(words) and words[place] == "-":
        yield "i", "", place + 1
