"""llama-server's variables as settings, by the rules of its build.

Variables are never refused for being unknown: llama-server ignores what it has no flag for. So one that slotune can't
be sure about stays in the environment as it is, in trials too, and whatever the build does with it, it does there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from slotune.llama.build_arguments import READ_SINCE
from slotune.llama.build_defaults import NEWEST_KNOWN
from slotune.llama.flag_cures import REMOVED_ENV
from slotune.llama.flag_history import (
    FLASH_ATTENTION_VALUE,
    FORMER_VARIABLES,
    REMOVED_FLAGS,
    SWITCH_WORDS,
    is_missing,
    is_removed,
)
from slotune.llama.flag_settings import FALSE, TRUE, FlagProblem, Setting
from slotune.llama.flag_table import BY_ENV, BY_NAME, ENV_PREFIX, FLAGS, Flag

__all__ = ["is_flag_variable", "read_variables"]

_EARLY_TRUE: Final = frozenset({"1", "true"})
"""What turned a switch on before :data:`~slotune.llama.flag_history.SWITCH_WORDS`."""

_VARIABLES: Final = frozenset({*BY_ENV, *(flag.negative_env for flag in FLAGS if flag.negative_env)})
_REFUSED: Final = frozenset({"LLAMA_ARG_DRAFT_MAX", "LLAMA_ARG_DRAFT_MIN"})
"""Of the variables that are gone, those with which today's llama-server does not start."""

_BY_REMOVED_ENV: Final = {removed.env: name for name, removed in REMOVED_FLAGS.items() if removed.env}

_SERVICE_LINK: Final = re.compile(r"_(PORT|SERVICE)(_|$)")


def is_flag_variable(name: str) -> bool:
    """Whether a variable is read as a setting, whatever the build: an argument then says the same."""
    return name in _VARIABLES or name == "LLAMA_ARG_KV_SPLIT"


def read_variables(
    env: Mapping[str, str], build: int | None, problems: list[FlagProblem], notes: list[str]
) -> Iterator[Setting]:
    """The settings in ``env``, with what is against them and what would surprise; arguments win over them."""
    return _Reader(build, problems, notes).settings(env)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads by the rules of one build; what there is to say adds up in the lists."""

    build: int | None
    problems: list[FlagProblem]
    notes: list[str]

    def settings(self, env: Mapping[str, str]) -> Iterator[Setting]:
        for name in sorted(env):
            if name.startswith(ENV_PREFIX) and name not in _VARIABLES:
                yield from self._foreign(name, env[name])
        for flag in FLAGS:
            negative = flag.negative_env
            if negative is not None and negative in env and self._negates(negative, env[negative]):
                yield Setting(flag, (flag.negations[-1],), on=False, variable=negative)
            elif flag.env and flag.env in env and is_missing(flag.name, self.build):
                self.notes.append(f"{flag.env} has no effect in b{self.build}, which the image is of.")
            elif flag.env and flag.env in env:
                yield from self._known(flag, flag.env, env[flag.env])

    def _foreign(self, name: str, value: str) -> Iterator[Setting]:
        """A variable that no flag of today's llama-server has; one of an earlier build counts there."""
        build = self.build
        removed, former = _BY_REMOVED_ENV.get(name), FORMER_VARIABLES.get(name)
        if removed is None and former is None:
            self.notes.extend(_unknown(name, build))
        elif build is None:
            self.notes.append(_undecided(name))
        elif removed is not None and not is_removed(removed, build):
            yield from self._early(Flag((removed,), values=REMOVED_FLAGS[removed].values), name, value)
        elif former is not None and build < former.absent:
            yield from self._early(BY_NAME[former.name][0], name, value)
        elif name in _REFUSED:
            self.problems.append(FlagProblem(name, "llama-server removed it", f"use {REMOVED_ENV[name]}"))
        else:
            self.notes.append(_no_effect(name))

    def _early(self, flag: Flag, name: str, value: str) -> Iterator[Setting]:
        """A variable of an earlier build in such a build, under the spelling that it knows."""
        if flag.values:
            yield Setting(flag, (flag.names[-1], value), (value,), variable=name)
            return
        is_negative = name.startswith(f"{ENV_PREFIX}NO_")
        if self._negates(name, value) if is_negative else self._turns_on(name, value):
            yield Setting(flag, (flag.names[-1],), variable=name)

    def _known(self, flag: Flag, name: str, value: str) -> Iterator[Setting]:
        if flag.whole_number and value.startswith("tcp://"):
            cure = "set enableServiceLinks: false in the pod: Kubernetes made it from a Service called llama-arg"
            self.problems.append(FlagProblem(name, "is no number", cure, value))
        elif flag.name == "-fa" and self.build is not None and self.build <= FLASH_ATTENTION_VALUE.absent:
            if self._turns_on(name, value):
                yield Setting(flag, (flag.names[-1],), ("on",), variable=name)
        elif flag.values:
            yield Setting(flag, (flag.names[-1], value), (value,), variable=name)
        else:
            yield from self._switch(flag, name, value)

    def _switch(self, flag: Flag, name: str, value: str) -> Iterator[Setting]:
        if self._is_early:
            if self._turns_on(name, value):
                yield Setting(flag, (flag.names[-1],), variable=name)
            return
        if value not in _EARLY_TRUE and (value in TRUE or flag.negations):
            self._say_as_today(name)
        if value in TRUE:
            yield Setting(flag, (flag.names[-1],), variable=name)
        elif flag.negations and value in FALSE:
            yield Setting(flag, (flag.negations[-1],), on=False, variable=name)
        elif flag.negations:
            self.problems.append(FlagProblem(name, "is neither on nor off", "write true or false", value))

    @property
    def _is_early(self) -> bool:
        """Whether the build is known to be from before :data:`~slotune.llama.flag_history.SWITCH_WORDS`."""
        return self.build is not None and self.build <= SWITCH_WORDS.absent

    def _negates(self, name: str, value: str) -> bool:
        """Whether a ``LLAMA_ARG_NO_...`` turns off: today by being there."""
        if value not in _EARLY_TRUE and not self._is_early:
            self._say_as_today(name)
        return not self._is_early or self._turns_on(name, value)

    def _turns_on(self, name: str, value: str) -> bool:
        if value in _EARLY_TRUE or (value in TRUE and not self._is_early):
            return True
        self.notes.append(f"{name} has no effect in b{self.build}: only 1 and true have one there.")
        return False

    def _say_as_today(self, name: str) -> None:
        """What is assumed where the rule of the build is not known for certain."""
        if self.build is None or self.build < SWITCH_WORDS.present:
            first, last = SWITCH_WORDS.present, SWITCH_WORDS.absent
            self.notes.append(
                f"{name} is taken as llama.cpp takes it from b{first} on; up to b{last} only 1 and true have an effect."
            )


def _unknown(name: str, build: int | None) -> Iterator[str]:
    if name in REMOVED_ENV:
        yield _no_effect(name)
    elif _SERVICE_LINK.search(name):
        return
    elif build is not None and READ_SINCE <= build <= NEWEST_KNOWN:
        yield f"{name} is no variable of llama-server and has no effect."
    else:
        yield f"{name} is no variable that slotune knows: it stays as it is, in trials too, and is not tuned."


def _no_effect(name: str) -> str:
    successor = f"; {REMOVED_ENV[name]} has" if name in REMOVED_ENV else ""
    return f"{name} has no effect any more{successor}."


def _undecided(name: str) -> str:
    gone = FORMER_VARIABLES[name].absent if name in FORMER_VARIABLES else REMOVED_FLAGS[_BY_REMOVED_ENV[name]].absent
    instead = f" ({REMOVED_ENV[name]} has its place)" if name in REMOVED_ENV else ""
    does = "refuses" if name in _REFUSED else "ignores"
    return (
        f"{name} stays as it is, in trials too: from b{gone} on llama.cpp {does} it{instead}, and nothing says which "
        "build the image is of."
    )
