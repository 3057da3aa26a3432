"""Turns a list of arguments and an environment into settings, the way llama-server does, and names what it refuses.

llama-server stops at the first argument it does not take. Here reading goes on, so that a person sees every problem at
once, each with its cure. Which order wins is llama-server's: environment, then arguments, the last of a repeated one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from slotune.llama.flag_cures import (
    CONFLICTING,
    ELSEWHERE,
    PRESETS,
    REMOVED,
    REMOVED_ENV,
    SECRET,
    cure_for_unknown,
)
from slotune.llama.flag_table import BY_ENV, BY_NAME, ENV_PREFIX, FLAGS, Flag, canonical_spelling

__all__ = ["FALSE", "TRUE", "FlagProblem", "Reading", "Setting", "read"]

TRUE = frozenset({"on", "enabled", "true", "1"})
FALSE = frozenset({"off", "disabled", "false", "0"})

ACCUMULATING = "--spec-type"
"""The one flag of which every mention counts."""

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

    @property
    def spelling(self) -> str:
        """As a person wrote it."""
        return self.variable or self.words[0]


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was stated, in order of precedence: a later setting of a flag wins."""

    settings: tuple[Setting, ...]
    problems: tuple[FlagProblem, ...]
    notes: tuple[str, ...]


def read(args: Sequence[str], env: Mapping[str, str]) -> Reading:
    """Read the arguments after the program's name, and llama-server's variables in ``env``."""
    problems: list[FlagProblem] = []
    notes: list[str] = []
    stated = [*_arguments(list(args), problems)]
    by_argument = {setting.flag.name for setting in stated}
    variables = [
        setting for setting in _variables(env, problems, notes) if setting.flag.name not in by_argument | SECRET
    ]
    seen: set[str] = set()
    for setting in stated:
        name = setting.flag.name
        if name in seen and name != ACCUMULATING:
            notes.append(f"{setting.spelling} is stated more than once; as in llama-server the last one counts.")
        seen.add(name)
    for setting in (*variables, *stated):
        if setting.flag.name in CONFLICTING and setting.on:
            problems.append(FlagProblem(setting.spelling, "nothing could be measured", CONFLICTING[setting.flag.name]))
        if setting.flag.name in PRESETS:
            cure = f"write out what it stands for: {PRESETS[setting.flag.name]}"
            problems.append(FlagProblem(setting.spelling, "it hides settings that slotune tunes", cure))
    return Reading((*variables, *stated), tuple(problems), tuple(dict.fromkeys(notes)))


def _arguments(words: list[str], problems: list[FlagProblem]) -> Iterator[Setting]:
    if words and PurePosixPath(words[0]).name in {"llama-server", "llama-server.exe"}:
        del words[0]
    while words:
        word = words.pop(0)
        name = canonical_spelling(word)
        if name not in BY_NAME:
            problems.append(_refusal(word))
            if word.startswith("-"):
                while words and not _is_flag(words[0]):  # what was meant as its value
                    del words[0]
            continue
        flag, on = BY_NAME[name]
        values = tuple(words[: flag.values])
        if len(values) < flag.values or any(canonical_spelling(value) in BY_NAME for value in values):
            missing = f"expects {'a value' if flag.values == 1 else f'{flag.values} values'}"
            follows = f", {values[-1]!r} follows" if values else ", nothing follows"
            problems.append(FlagProblem(word, missing + follows, _missing_value_cure(flag)))
            continue
        del words[: flag.values]
        yield Setting(flag, (word, *values), values, on)


def _refusal(word: str) -> FlagProblem:
    """Why llama-server does not take ``word`` where a flag is expected."""
    name = canonical_spelling(word)
    unknown = "llama-server does not know it"
    if not word.startswith("-"):
        return FlagProblem(word, "stands where a flag is expected", "remove it, or put its flag before it")
    if name in REMOVED:
        return FlagProblem(word, "llama-server removed it", f"use {REMOVED[name]}")
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
    return FlagProblem(word.partition("=")[0], unknown, cure_for_unknown(name.partition("=")[0]))


def _missing_value_cure(flag: Flag) -> str:
    if flag.name == "-fa":
        return 'write "-fa", "on": since 2025 it takes on, off or auto'
    return "write its value after it, as an argument of its own"


def _is_flag(word: str) -> bool:
    """Whether ``word`` begins a new setting; a negative number does not."""
    return word.startswith("-") and re.fullmatch(r"-\d+(\.\d+)?", word) is None


def _variables(env: Mapping[str, str], problems: list[FlagProblem], notes: list[str]) -> Iterator[Setting]:
    known = {*BY_ENV, *(flag.negative_env for flag in FLAGS if flag.negative_env)}
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX) or name in known:
            continue
        if name in {"LLAMA_ARG_DRAFT_MAX", "LLAMA_ARG_DRAFT_MIN"}:
            problems.append(FlagProblem(name, "llama-server removed it", f"use {REMOVED_ENV[name]}"))
        elif name in REMOVED_ENV:
            notes.append(f"{name} has no effect any more; {REMOVED_ENV[name]} has.")
        elif not _SERVICE_LINK.search(name):
            notes.append(f"{name} is no variable of llama-server and has no effect.")
    for flag in FLAGS:
        if flag.negative_env and flag.negative_env in env:
            yield Setting(flag, (flag.negations[-1],), on=False, variable=flag.negative_env)
        elif flag.env and flag.env in env:
            yield from _variable(flag, flag.env, env[flag.env], problems)


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
