"""The server's command line in a script that a shell is given: ``sh -c "exec llama-server -m …"``, as if it were plain.

A diagnosis only reads, so it may follow a shell where tuning must not write into one. What a shell would do that is not
known here (a command's output, a variable of unknown value) stays as it is written, and where not exactly one command
of the script starts the server, nothing is concluded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from slotune.api.kubernetes_types import Container
from slotune.api.server_container import LAUNCHERS, SHELLS, is_program, program_at
from slotune.gathering.shell_words import ALL_ARGUMENTS, Command, UnreadableScriptError, commands_of

__all__ = ["without_shell"]

_LEADS: Final = frozenset({"exec", "command", "nohup", "time", "!", "{", "then", "do", "else", "if", "while", "until"})
"""Words before a command that are none of its own."""
_FORKS: Final = frozenset({"if", "then", "else", "elif", "case", "for", "while", "until"})
"""Whether what stands behind them is done is not known."""
_ASKS: Final = frozenset({"--version", "--help", "-h", "--usage", "--list-devices"})
"""Flags of a server that ends at once."""
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_TAKES_SCRIPT: Final = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")


def without_shell(container: Container) -> Container:
    """The container with the command line that its shell would run; as it is where there is none, or it is not clear.

    ``$NAME`` becomes ``$(NAME)``, which is what it would be without a shell.
    """
    words = [*(container.command or ()), *(container.args or ())]
    found = _script_in(words)
    if found is None:
        return container
    script, positional = found
    try:
        server = _server_in(script, _values(container), positional)
    except UnreadableScriptError:
        return container
    return container if server is None else container.model_copy(update={"command": server, "args": ()})


def _script_in(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """(The script, its arguments from $1 on) where a shell gets one."""
    here = next((place for place, word in enumerate(words) if PurePosixPath(word).name in SHELLS), None)
    if here is None or (here > 0 and PurePosixPath(words[0]).name not in LAUNCHERS | SHELLS):
        return None
    place, takes = here + 1, False
    while place < len(words) and (words[place][:1] in {"-", "+"} or words[place] in SHELLS):
        takes |= _TAKES_SCRIPT.fullmatch(words[place]) is not None
        place += 2 if re.fullmatch(r"[-+][a-zA-Z]*[oO]", words[place]) else 1
    return (words[place], tuple(words[place + 2 :])) if takes and place < len(words) else None


def _values(container: Container) -> dict[str, str | None]:
    """Variables that are stated; None: there is one, and its value is elsewhere. Under ``""`` None where others may be
    there too."""
    found: dict[str, str | None] = {one.name: one.value for one in container.env or ()}
    if (container.model_extra or {}).get("envFrom"):
        found[""] = None
    return found


def _server_in(script: str, values: Mapping[str, str | None], positional: tuple[str, ...]) -> tuple[str, ...] | None:
    """Words of the only command that starts llama-server, behind ``env`` with the variables that the script sets."""
    known, exported = dict(values), dict[str, str]()
    found: list[tuple[str, ...]] = []
    forked = False
    for command in commands_of(script, known):
        forked |= bool(_FORKS & set(command.bare))
        own, rest = _taken_apart(command)
        if not rest or rest[0] == "export":
            stated = own if not rest else dict(_pair(word) for word in rest[1:] if _ASSIGNMENT.fullmatch(word))
            known |= dict.fromkeys(stated, None) if forked else stated
            if rest and not forked:
                exported |= stated
            exported |= {name: text for name, text in stated.items() if name in exported and not forked}
            continue
        words = tuple(word for one in rest for word in (positional if one == ALL_ARGUMENTS else (one,)))
        if not words or not (is_program(words[0]) or PurePosixPath(words[0]).name in LAUNCHERS):
            continue
        if program_at(Container.model_construct(name="x", command=words, args=None)) is None or _ASKS & set(words):
            continue
        settings = tuple(f"{name}={text}" for name, text in (exported | own).items())
        found.append(("env", *settings, *words) if settings else words)
    return found[0] if len(found) == 1 else None


def _taken_apart(command: Command) -> tuple[dict[str, str], tuple[str, ...]]:
    """(What it sets before it, its words without what leads up to them)."""
    words = list(command.words)
    while words and words[0] in _LEADS:
        is_exec = words.pop(0) == "exec"
        if is_exec and words[:1] == ["-a"]:  # another name for it
            del words[:2]
    own: dict[str, str] = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        own[match[1]] = match[2]
        words.pop(0)
    return own, tuple(words)


def _pair(word: str) -> tuple[str, str]:
    name, _, text = word.partition("=")
    return name, text
