"""Turns a list of arguments and an environment into settings, the way llama-server does, and names what it refuses.

llama-server stops at the first argument it does not take. Here reading goes on, so that a person sees every problem at
once, each with its cure. Which order wins is llama-server's: environment, then arguments, the last of a repeated one.

A flag that slotune does not know is kept: a fork may know it, or a build that is newer than slotune. How many values it
has is not known either, so the words up to the next flag are taken for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from slotune.llama.flag_cures import (
    CONFLICTING,
    ELSEWHERE,
    MODEL_FLAGS,
    PRESETS,
    REMOVED,
    ROUTER,
    SECRET,
    closest_flag,
)
from slotune.llama.flag_history import (
    ADDED,
    FLASH_ATTENTION_VALUE,
    FORMER,
    REMOVED_FLAGS,
    is_missing,
    is_removed,
)
from slotune.llama.flag_settings import FALSE, TRUE, FlagProblem, Setting
from slotune.llama.flag_table import BY_NAME, Flag, canonical_spelling
from slotune.llama.variable_reading import read_variables

__all__ = ["FALSE", "TRUE", "FlagProblem", "Reading", "Setting", "read"]

ACCUMULATING = "--spec-type"
"""The one flag of which every mention counts."""
REMEMBERED = 128
"""Readings that are kept."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was stated, in order of precedence: a later setting of a flag wins."""

    settings: tuple[Setting, ...]
    problems: tuple[FlagProblem, ...]
    notes: tuple[str, ...]


def read(args: Sequence[str], env: Mapping[str, str], build: int | None = None) -> Reading:
    """Read the arguments after the program's name, and llama-server's variables in ``env``.

    ``build`` is that of the server's image: it decides which flags exist. Of an unknown one (None) every form is taken
    that any build has, and a note says what others would do.
    """
    return _read(tuple(args), frozenset(env.items()), build)


# An operator asks the same of the same server a dozen times at each look.
@lru_cache(maxsize=REMEMBERED)
def _read(args: tuple[str, ...], pairs: frozenset[tuple[str, str]], build: int | None) -> Reading:
    env = dict(pairs)
    problems: list[FlagProblem] = []
    notes: list[str] = []
    stated = [*_arguments(args, build, problems, notes)]
    by_argument = {setting.flag.name for setting in stated}
    variables = [
        setting
        for setting in read_variables(env, build, problems, notes)
        if setting.flag.name not in by_argument | SECRET
    ]
    seen: set[str] = set()
    for setting in stated:
        name = setting.flag.name
        if name in seen and name != ACCUMULATING and setting.is_known:
            notes.append(f"{setting.spelling} is stated more than once; as in llama-server the last one counts.")
        seen.add(name)
    has_model = any(setting.flag.name in MODEL_FLAGS for setting in (*variables, *stated))
    for setting in (*variables, *stated):
        if setting.flag.name in ROUTER and has_model:
            continue  # then it is none, whatever is stated
        if setting.flag.name in CONFLICTING and setting.on:
            problems.append(FlagProblem(setting.spelling, "nothing could be measured", CONFLICTING[setting.flag.name]))
        if setting.flag.name in PRESETS:
            cure = f"write out what it stands for: {PRESETS[setting.flag.name]}"
            problems.append(FlagProblem(setting.spelling, "it hides settings that slotune tunes", cure))
    return Reading((*variables, *stated), tuple(problems), tuple(dict.fromkeys(notes)))


def _arguments(
    words: Sequence[str], build: int | None, problems: list[FlagProblem], notes: list[str]
) -> Iterator[Setting]:
    place = 1 if words and PurePosixPath(words[0]).name in {"llama-server", "llama-server.exe"} else 0
    while place < len(words):
        taken = _setting(words, place, build, problems, notes)
        if isinstance(taken, Setting):
            yield taken
            place += len(taken.words)
        else:
            place += taken


def _setting(
    words: Sequence[str], place: int, build: int | None, problems: list[FlagProblem], notes: list[str]
) -> Setting | int:
    """The setting that starts at ``place``, or how many words belong to what is refused there."""
    word = words[place]
    name = canonical_spelling(word)
    if name in FORMER and not is_removed(name, build):
        former = FORMER[name]
        notes += _kept(word, name, build, former.absent) if build is None else ()
        return Setting(BY_NAME[former.name][0], (word,), on=former.on, position=place)
    if name not in BY_NAME:
        return _foreign(words, place, build, problems, notes)
    flag, on = BY_NAME[name]
    missing_in = next(
        (one for one in (flag.name, *(flag.negations[:1] if not on else ())) if is_missing(one, build)), None
    )
    if missing_in is not None:
        cure = f"leave it out, or use an image from b{ADDED[missing_in].present} on"
        problems.append(FlagProblem(word, f"b{build}, which the image is of, does not know it yet", cure))
        return 1 + flag.values
    if flag.name == "-fa" and _is_switch(words[place + 1 : place + 2], build):
        if build is None:
            first = FLASH_ATTENTION_VALUE.present
            notes.append(
                f"{word} without a value is on in builds before b{first}; later ones refuse it: write {word} on."
            )
        return Setting(flag, (word,), ("on",), position=place)
    values = tuple(words[place + 1 : place + 1 + flag.values])
    if len(values) < flag.values or any(canonical_spelling(value) in BY_NAME for value in values):
        missing = f"expects {'a value' if flag.values == 1 else f'{flag.values} values'}"
        follows = f", {values[-1]!r} follows" if values else ", nothing follows"
        problems.append(FlagProblem(word, missing + follows, _missing_value_cure(flag)))
        return 1
    return Setting(flag, (word, *values), values, on, position=place)


def _is_switch(following: Sequence[str], build: int | None) -> bool:
    """Whether ``-fa`` stands without a value here, as early builds have it."""
    if build is not None and build >= FLASH_ATTENTION_VALUE.present:
        return False
    has_value = bool(following) and not _is_flag(following[0])
    return (build is not None and build <= FLASH_ATTENTION_VALUE.absent) or not has_value


def _foreign(
    words: Sequence[str], place: int, build: int | None, problems: list[FlagProblem], notes: list[str]
) -> Setting | int:
    """A word that is no flag of today's llama-server: one of an earlier build, one to refuse, or one to keep."""
    word = words[place]
    name = canonical_spelling(word)
    values = _words_behind(words, place)
    if name in REMOVED_FLAGS and not is_removed(name, build):
        values = values[: REMOVED_FLAGS[name].values]
        notes += _kept(word, name, build, REMOVED_FLAGS[name].absent)
        return Setting(Flag((name,), values=len(values)), (word, *values), values, position=place)
    problem = _refusal(word)
    if problem is not None:
        problems.append(problem)
        return 1 + len(values) if word.startswith("-") else 1
    setting = Setting(Flag((name.partition("=")[0],), values=len(values)), (word, *values), values, position=place)
    close = closest_flag(setting.flag.name)
    meant = f" Did you mean {close}?" if close else ""
    behind = f" with the word{'s' if len(values) > 1 else ''} after it" if values else ""
    notes.append(
        f"{setting.spelling} is no flag of llama-server that slotune knows: it is kept as it is{behind}, and not tuned."
        + meant
    )
    return setting


def _kept(word: str, name: str, build: int | None, absent: int) -> tuple[str, ...]:
    """What is said of a flag of earlier builds that stays."""
    if build is not None:
        return (f"{word} is kept for b{build}; later builds of llama.cpp refuse it: {_successor(name)} there.",)
    known = "nothing says which build the image is of"
    return (f"{word} is kept, for {known}; from b{absent} on llama.cpp refuses it: {_successor(name)} there.",)


def _words_behind(words: Sequence[str], place: int) -> tuple[str, ...]:
    """What was meant as the values of an unknown flag: all words up to the next flag."""
    end = place + 1
    while end < len(words) and not _is_flag(words[end]):
        end += 1
    return tuple(words[place + 1 : end])


def _successor(name: str) -> str:
    cure = REMOVED[name]
    return f"use {cure}" if cure.startswith("-") else cure


def _refusal(word: str) -> FlagProblem | None:
    """Why llama-server surely does not take ``word`` where a flag is expected; None when a fork may."""
    name = canonical_spelling(word)
    unknown = "llama-server does not know it"
    if not _is_flag(word) or not word.strip("-"):
        return FlagProblem(word, "stands where a flag is expected", "remove it, or put its flag before it")
    if name in REMOVED:
        return FlagProblem(word, "llama-server removed it", _successor(name))
    if name in ELSEWHERE:
        cure = ELSEWHERE[name]
        return FlagProblem(word, unknown, f"use {cure}" if cure.startswith("-") else cure)
    return _joined(word)


def _joined(word: str) -> FlagProblem | None:
    """What is against a word that has a flag and more; None when it has not."""
    for separator, what in (("=", "llama-server takes no --flag=value"), (" ", "two arguments stand in one")):
        flag, found, value = word.partition(separator)
        if found and canonical_spelling(flag) in {*BY_NAME, *REMOVED, *ELSEWHERE}:
            if canonical_spelling(flag) not in BY_NAME:
                return _refusal(flag)
            if separator == " " and any(canonical_spelling(one) in BY_NAME for one in value.split()):
                shown = ", ".join(f'"{one}"' for one in _shown(word.split()))
                return FlagProblem(flag, "several arguments stand in one", f"write each as one of its own: {shown}")
            hidden = "VALUE" if BY_NAME[canonical_spelling(flag)][0].name in SECRET else value.strip()
            return FlagProblem(flag, what, f'write two arguments: "{flag}", "{hidden}"')
    return None


def _shown(words: Sequence[str]) -> Iterator[str]:
    """``words`` without the values of secret flags."""
    is_secret = False
    for word in words:
        yield "VALUE" if is_secret else word
        flag = BY_NAME.get(canonical_spelling(word))
        is_secret = flag is not None and flag[0].name in SECRET


def _missing_value_cure(flag: Flag) -> str:
    if flag.name == "-fa":
        return 'write "-fa", "on": since 2025 it takes on, off or auto'
    return "write its value after it, as an argument of its own"


def _is_flag(word: str) -> bool:
    """Whether ``word`` begins a new setting; a negative number does not."""
    return word.startswith("-") and re.fullmatch(r"-\d+(\.\d+)?", word) is None
