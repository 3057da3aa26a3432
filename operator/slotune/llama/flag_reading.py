"""Turns a list of arguments and an environment into settings, the way llama-server does, and names what it refuses.

llama-server stops at the first argument it does not take. Here reading goes on, so that a person sees every problem at
once, each with its cure. Which order wins is llama-server's: environment, then arguments, the last of a repeated one.

A flag that slotune does not know is kept: a fork may know it, or a build that is newer than slotune. How many values it
has is not known either, so the words up to the next flag are taken for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from slotune.llama.flag_cures import (
    CONFLICTING,
    ELSEWHERE,
    MODEL_FLAGS,
    PRESETS,
    REMOVED,
    REMOVED_ENV,
    ROUTER,
    SECRET,
    closest_flag,
    looks_secret,
)
from slotune.llama.flag_history import (
    ADDED,
    FLASH_ATTENTION_VALUE,
    FORMER,
    REMOVED_FLAGS,
    is_missing,
    is_removed,
)
from slotune.llama.flag_table import BY_ENV, BY_NAME, ENV_PREFIX, FLAGS, Flag, canonical_spelling

__all__ = ["FALSE", "TRUE", "FlagProblem", "Reading", "Setting", "read"]

TRUE = frozenset({"on", "enabled", "true", "1"})
FALSE = frozenset({"off", "disabled", "false", "0"})

ACCUMULATING = "--spec-type"
"""The one flag of which every mention counts."""

_VARIABLES = frozenset({*BY_ENV, *(flag.negative_env for flag in FLAGS if flag.negative_env)})

_SERVICE_LINK = re.compile(r"_(PORT|SERVICE)(_|$)")


@dataclass(frozen=True, slots=True)
class FlagProblem:
    """One argument or variable that cannot stay as it is."""

    flag: str
    """As it was written."""
    what: str
    cure: str
    value: str | None = None

    def __str__(self) -> str:
        shown = self.flag if self.value is None else f"{self.flag} {self.value}"
        return f"{shown}: {self.what}; {self.cure}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One flag that was stated."""

    flag: Flag
    words: tuple[str, ...] = field(repr=False)
    """The arguments that state it, as they were written; may hold a secret."""
    values: tuple[str, ...] = field(default=(), repr=False)
    on: bool = True
    """False: the negation of a switch."""
    variable: str | None = None
    """Environment variable that states it; None: an argument does."""
    position: int | None = None
    """Index of its first word in the arguments; None: a variable states it."""

    @property
    def spelling(self) -> str:
        """As a person wrote it, without a value that stands in the same word."""
        return self.variable or self.words[0].partition("=")[0]

    @property
    def is_known(self) -> bool:
        """Whether it is a flag of today's llama-server."""
        return self.flag.name in BY_NAME

    @property
    def is_secret(self) -> bool:
        """Whether its value must never be stored or shown."""
        return self.flag.name in SECRET or (not self.is_known and looks_secret(self.spelling))


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was stated, in order of precedence: a later setting of a flag wins."""

    settings: tuple[Setting, ...]
    problems: tuple[FlagProblem, ...]
    notes: tuple[str, ...]


def read(args: Sequence[str], env: Mapping[str, str], build: int | None = None) -> Reading:
    """Read the arguments after the program's name, and llama-server's variables in ``env``.

    ``build`` is that of the server's image: it decides which flags exist. None is today's.
    """
    problems: list[FlagProblem] = []
    notes: list[str] = []
    stated = [*_arguments(list(args), build, problems, notes)]
    by_argument = {setting.flag.name for setting in stated}
    variables = [
        setting for setting in _variables(env, build, problems, notes) if setting.flag.name not in by_argument | SECRET
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
    if build is None or build >= FLASH_ATTENTION_VALUE.present:
        return False
    has_value = bool(following) and following[0] in TRUE | FALSE | {"auto", "-1"}
    return build <= FLASH_ATTENTION_VALUE.absent or not has_value


def _foreign(
    words: Sequence[str], place: int, build: int | None, problems: list[FlagProblem], notes: list[str]
) -> Setting | int:
    """A word that is no flag of today's llama-server: one of an earlier build, one to refuse, or one to keep."""
    word = words[place]
    name = canonical_spelling(word)
    values = _words_behind(words, place)
    if name in REMOVED_FLAGS and not is_removed(name, build):
        values = values[: REMOVED_FLAGS[name].values]
        notes.append(f"{word} is kept for b{build}; later builds of llama.cpp refuse it: {_successor(name)} there.")
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
    for separator, what in (("=", "llama-server takes no --flag=value"), (" ", "two arguments stand in one")):
        flag, found, value = word.partition(separator)
        if found and canonical_spelling(flag) in {*BY_NAME, *REMOVED, *ELSEWHERE}:
            if canonical_spelling(flag) not in BY_NAME:
                return _refusal(flag)
            hidden = "VALUE" if BY_NAME[canonical_spelling(flag)][0].name in SECRET else value.strip()
            return FlagProblem(flag, what, f'write two arguments: "{flag}", "{hidden}"')
    return None


def _missing_value_cure(flag: Flag) -> str:
    if flag.name == "-fa":
        return 'write "-fa", "on": since 2025 it takes on, off or auto'
    return "write its value after it, as an argument of its own"


def _is_flag(word: str) -> bool:
    """Whether ``word`` begins a new setting; a negative number does not."""
    return word.startswith("-") and re.fullmatch(r"-\d+(\.\d+)?", word) is None


def _variables(
    env: Mapping[str, str], build: int | None, problems: list[FlagProblem], notes: list[str]
) -> Iterator[Setting]:
    for name in sorted(env):
        if name.startswith(ENV_PREFIX) and name not in _VARIABLES:
            yield from _foreign_variable(name, env[name], build, problems, notes)
    for flag in FLAGS:
        if flag.negative_env and flag.negative_env in env:
            yield Setting(flag, (flag.negations[-1],), on=False, variable=flag.negative_env)
        elif flag.env and flag.env in env and is_missing(flag.name, build):
            notes.append(f"{flag.env} has no effect in b{build}, which the image is of.")
        elif flag.env and flag.env in env:
            yield from _variable(flag, flag.env, env[flag.env], problems)


def _foreign_variable(
    name: str, value: str, build: int | None, problems: list[FlagProblem], notes: list[str]
) -> Iterator[Setting]:
    """A variable that no flag of today's llama-server has; one of an earlier build counts there."""
    spelling = next((one for one, removed in REMOVED_FLAGS.items() if removed.env == name), None)
    if spelling is not None and not is_removed(spelling, build):
        values = (value,) if REMOVED_FLAGS[spelling].values else ()
        if values or value in TRUE or name.startswith(f"{ENV_PREFIX}NO_"):
            yield Setting(Flag((spelling,), values=len(values)), (spelling, *values), values, variable=name)
    elif name in {"LLAMA_ARG_DRAFT_MAX", "LLAMA_ARG_DRAFT_MIN"}:
        problems.append(FlagProblem(name, "llama-server removed it", f"use {REMOVED_ENV[name]}"))
    elif name in REMOVED_ENV:
        notes.append(f"{name} has no effect any more; {REMOVED_ENV[name]} has.")
    elif not _SERVICE_LINK.search(name):
        notes.append(f"{name} is no variable of llama-server and has no effect.")


def _variable(flag: Flag, name: str, value: str, problems: list[FlagProblem]) -> Iterator[Setting]:
    if flag.whole_number and value.startswith("tcp://"):
        cure = "set enableServiceLinks: false in the pod: Kubernetes made it from a Service called llama-arg"
        problems.append(FlagProblem(name, "is no number", cure, value))
    elif flag.values:
        yield Setting(flag, (flag.names[-1], value), (value,), variable=name)
    elif value in TRUE:
        yield Setting(flag, (flag.names[-1],), variable=name)
    elif flag.negations and value in FALSE:
        yield Setting(flag, (flag.negations[-1],), on=False, variable=name)
    elif flag.negations:
        problems.append(FlagProblem(name, "is neither on nor off", "write true or false", value))
