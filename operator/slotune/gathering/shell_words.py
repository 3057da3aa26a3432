"""Commands of a POSIX shell script as words, with quotes and escapes taken off and known variables put in. Pure.

Not a shell: what only running it could tell (a command's output, arithmetic, a variable of unknown value) stays as it
is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ALL_ARGUMENTS", "Command", "UnreadableScriptError", "commands_of"]

ALL_ARGUMENTS: Final = "$@"
"""A word that stands for all arguments of the script."""

_NAMED: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^{}$`\"']*))?\})")
"""``$NAME``, ``${NAME}``, ``${NAME:-text}``."""
_KUBELETS: Final = re.compile(r"\$\([A-Za-z_][A-Za-z0-9_.-]*\)")
_ENDS: Final = ";&|()\n"


class UnreadableScriptError(ValueError):
    """A quote or a bracket that is not closed, or a document in the script."""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command, with what leads up to it (``then``, ``exec``)."""

    words: tuple[str, ...]
    bare: tuple[str, ...]
    """Those of them that are written without quotes, which reserved words are."""


def commands_of(script: str, values: Mapping[str, str | None]) -> Iterator[Command]:
    """The commands one after the other; redirections are left out.

    Args:
        script: text.
        values: of variables, looked up when the command that uses them is read; None: not known; a name that is not
            in it is not set, unless it has the name ``""``.

    Raises:
        UnreadableScriptError: see there.
    """
    reader = _Reader(script, values)
    while not reader.is_done:
        if (command := reader.command()).words:
            yield command


class _Reader:
    def __init__(self, text: str, values: Mapping[str, str | None]) -> None:
        self._text, self._values = text, values
        self._place = 0

    @property
    def is_done(self) -> bool:
        return self._place >= len(self._text)

    def command(self) -> Command:
        """Up to what ends it."""
        words: list[str] = []
        bare: list[str] = []
        while not self.is_done:
            char = self._text[self._place]
            if self._text.startswith("\\\n", self._place):
                self._place += 2
            elif char in "<>" or self._text.startswith("&>", self._place):
                self._redirection()
            elif char in _ENDS:
                self._place += 1
                break
            elif char.isspace():
                self._place += 1
            elif char == "#":
                end = self._text.find("\n", self._place)
                self._place = len(self._text) if end < 0 else end
            else:
                begun = self._place
                found, is_bare = self._word()
                if (
                    found
                    and found[0].isdecimal()
                    and is_bare
                    and self._text[self._place : self._place + 1] in {"<", ">"}
                ):
                    continue  # the number of what is redirected
                words += found
                bare += [self._text[begun : self._place]] if is_bare else []
        return Command(tuple(words), tuple(bare))

    def _redirection(self) -> None:
        operator = re.compile(r"[<>&|]+").match(self._text, self._place)
        assert operator is not None
        if operator[0].startswith("<<") and operator[0] != "<<<":
            raise UnreadableScriptError("a document")
        self._place = operator.end()
        while self._text[self._place : self._place + 1] in {" ", "\t"}:
            self._place += 1
        self._word()

    def _word(self) -> tuple[list[str], bool]:
        """(The word, which a variable without quotes may make none or several of; whether nothing of it is quoted)."""
        parts: list[str] = [""]
        is_bare, is_there = True, False
        while not self.is_done:
            char = self._text[self._place]
            if char.isspace() or char in _ENDS or char in "<>":
                break
            if char == "\\":
                parts[-1] += self._text[self._place + 1 : self._place + 2].replace("\n", "")
                self._place += 2
                is_bare, is_there = False, True
            elif char == "'":
                parts[-1] += self._until("'")
                is_bare, is_there = False, True
            elif char == '"':
                self._place += 1
                parts[-1] += self._double_quoted()
                is_bare, is_there = False, True
            elif char in "$`":
                text, is_known = self._expanded()
                fields = text.split() if is_known else [text]
                parts[-1] += fields[0] if fields else ""
                parts += fields[1:]
            else:
                parts[-1] += char
                self._place += 1
        return ([one for one in parts if one] if not is_there else parts), is_bare

    def _until(self, mark: str) -> str:
        """What stands up to the next mark, behind which reading goes on."""
        end = self._text.find(mark, self._place + 1)
        if end < 0:
            raise UnreadableScriptError("a quote that is not closed")
        found = self._text[self._place + 1 : end]
        self._place = end + 1
        return found

    def _double_quoted(self) -> str:
        found = ""
        while not self.is_done:
            char = self._text[self._place]
            if char == '"':
                self._place += 1
                return found
            if char == "\\" and self._text[self._place + 1 : self._place + 2] in {"$", "`", '"', "\\", "\n"}:
                found += self._text[self._place + 1].replace("\n", "")
                self._place += 2
            elif char in "$`":
                found += self._expanded()[0]
            else:
                found += char
                self._place += 1
        raise UnreadableScriptError("a quote that is not closed")

    def _expanded(self) -> tuple[str, bool]:
        """(What stands for an expansion, whether that is its value)."""
        begun = self._place
        if self._text[begun] == "`":
            return f"`{self._until('`')}`", False
        if (kept := _KUBELETS.match(self._text, begun)) is not None:
            self._place = kept.end()
            return kept[0], False
        if self._text.startswith(("$(", "${"), begun) and (match := _NAMED.match(self._text, begun)) is None:
            self._place = _closed(self._text, begun + 1)
            return self._text[begun : self._place], False
        match = _NAMED.match(self._text, begun)
        if match is None:
            self._place += 2 if self._text[begun + 1 : begun + 2] in {"@", "*", "#", "?", "$", "!"} else 1
            return self._text[begun : self._place].replace("*", "@"), False
        self._place = match.end()
        name = match[1] or match[2]
        value = self._values.get(name)
        if value is None and match[3] is not None and name not in self._values and "" not in self._values:
            value = match[3]
        return (
            (f"$({name})", False)
            if value is None and match[3] is None
            else ((match[0], False) if value is None else (value, True))
        )


def _closed(text: str, place: int) -> int:
    """Behind the bracket that closes the one at ``place``."""
    opens, closes = text[place], {"(": ")", "{": "}"}[text[place]]
    depth = 0
    for here in range(place, len(text)):
        depth += (text[here] == opens) - (text[here] == closes)
        if depth == 0:
            return here + 1
    raise UnreadableScriptError("a bracket that is not closed")
