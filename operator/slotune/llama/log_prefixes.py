"""Learns what a keeper of logs puts in front of each line: times, levels and names, in whatever order it has them.

The first lines are taken apart piece by piece until what is left begins as a line of llama-server does. The pieces that
most of them have make the pattern for all. So the form of a prefix need not be known, and no part of a line of llama-
server's own, such as its ``0.01.234.567 I``, is ever taken for one: what is left must begin with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from slotune.llama.log_prefix_pieces import (
    BORDER,
    GROUPS,
    KINDS,
    LOOKED_INTO,
    Piece,
    is_marked,
    taken_apart,
    unquoted,
)
from slotune.llama.log_seams import Apart, Seams

__all__ = ["Prefixes"]

_LABEL = re.compile(rb'\b(?:pod|pod_name|container|container_name)="([^"]*)"')
_BORDER_BEHIND = re.compile(rb"[ \t]*" + BORDER + rb"[ \t]*\Z")

_VOTES: Final = 200
"""Lines of llama-server's, wrapped or not, that decide for the rest of the log."""
_SEARCHED: Final = 40_000
"""Lines of others among which its lines are looked for."""
_FORMS: Final = 3
"""Forms that one prefix has, such as with and without a name."""
_SURE: Final = 0.8
"""Share of its lines that must have the same kind of prefix before the names in it tell servers apart."""
_SOME: Final = 0.1
"""Share from which on a prefix is taken off the lines that have it."""
_NAMES: Final = 1024
_OTHERS: Final = 4
"""The last of those looked at that have another prefix, from which on it has changed."""
_CHANGES: Final = 8
"""After so many, no further change is looked for: that each piece teaches nothing would take long."""


@dataclass(frozen=True, slots=True)
class _Form:
    """What finds a prefix of one form."""

    pattern: re.Pattern[bytes]
    seams: Seams
    """The same of many lines at once, with the same groups."""
    time: int
    """Number of its group; 0: there is none."""
    names: tuple[int, ...]
    """Numbers of the groups, a process before its host; empty: the names do not tell servers apart."""
    quoted: bool
    bar: bool
    """Whether it has a bar, so that one may end the line."""

    def within(self, text: bytes) -> bytes:
        """``text``, which is behind a prefix, without what else is around it."""
        if self.bar:
            text = _BORDER_BEHIND.sub(b"", text)
        return unquoted(text) if self.quoted else text


class Prefixes:
    """Finds out which prefix the lines have, and takes it off."""

    def __init__(self) -> None:
        self._votes: Counter[tuple[Piece, ...]] = Counter()
        self._blanks: dict[tuple[Piece, ...], set[int]] = {}
        """How many blanks end a prefix; lines of llama-server's begin with some, too."""
        self._looked = 0
        self._forms: tuple[_Form, ...] = ()
        self._before: tuple[_Form, ...] = ()
        """What there was before it changed."""
        self._changes = 0
        self._last = ""
        self._names: dict[tuple[bytes, ...], str] = {}

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._forms)

    def look(self, lines: Iterable[bytes]) -> None:
        """Learn from lines; does nothing once enough were seen."""
        total = self._votes.total()
        if total >= _VOTES or self._looked >= _SEARCHED:
            return
        before = total
        for line in lines:
            self._looked += 1
            if not line or line[:2] == b'{"':
                continue
            found = taken_apart(line[:LOOKED_INTO])
            if found is not None:
                pieces, blanks = found
                if not pieces and line[:1] in (b" ", b"\t"):
                    continue  # as it is printed, or indented like the others: it does not tell
                self._votes[pieces] += 1
                self._blanks.setdefault(pieces, set()).add(blanks)
                total += 1
            if total >= _VOTES or self._looked >= _SEARCHED:
                break
        if total != before:
            self._decide(total)

    def other_from(self, lines: Iterable[bytes]) -> int | None:
        """From which of some lines, taken from all over a piece, on all have another prefix; None: from none."""
        if self._changes >= _CHANGES:
            return None
        others: list[int] = []
        for place, line in enumerate(lines):
            if not line:
                continue
            if line[:2] == b'{"' or any(form.pattern.match(line) for form in self._forms):
                others = []
            elif (found := taken_apart(line[:LOOKED_INTO])) is not None:
                others = [*others, place] if is_marked(found[0]) else []
        return others[0] if len(others) >= _OTHERS else None

    def look_anew(self, lines: Iterable[bytes]) -> None:
        """Learn again, from lines whose prefix is another than before. Those of before may come back."""
        self._before = self._forms
        self._changes += 1
        self._votes.clear()
        self._blanks.clear()
        self._looked = 0
        self.look(lines)

    def _decide(self, total: int) -> None:
        seen = [(pieces, votes) for pieces, votes in self._votes.most_common(_FORMS + 1) if pieces]
        kept = [
            (pieces, votes)
            for pieces, votes in seen
            if votes >= (_SOME if is_marked(pieces) else _SURE) * total and (votes > 1 or is_marked(pieces))
        ]
        named = sum(votes for _, votes in kept) >= _SURE * total
        if self._changes and not any(form.names for form in self._before):
            named = False  # it is the same server, whose lines had no name before
        forms = (_form(pieces, self._blanks[pieces], named=named) for pieces, _ in kept)
        self._forms = (*forms, *self._before[:_FORMS])

    def take_off(self, lines: list[bytes], names: list[str], times: list[float | bytes | None]) -> None:
        """Leave of ``lines`` what is behind their prefixes, and put down the times, and names where there are none.

        A line without a prefix is of the server whose line was before it.
        """
        if not lines:
            return
        form = self._forms[0]
        if len(self._forms) == 1 and (found := form.seams.take_all(lines)) is not None:
            self._take_all_off(form, found, lines, names, times)
            return
        for index, line in enumerate(lines):
            for form in self._forms:
                if match := form.pattern.match(line):
                    break
            else:
                names[index] = names[index] or self._last
                continue
            lines[index] = form.within(line[match.end() :])
            if form.time:
                times[index] = match[form.time]
            if form.names:
                self._last = self._name(match.group(0, *form.names)[1:])
                names[index] = names[index] or self._last

    def _take_all_off(
        self, form: _Form, found: Apart, lines: list[bytes], names: list[str], times: list[float | bytes | None]
    ) -> None:
        lines[:] = list(map(form.within, found.texts)) if form.bar or form.quoted else found.texts
        if form.time:
            times[:] = found.groups[form.time - 1]
        if form.names:
            keys = list(zip(*(found.groups[group - 1] for group in form.names), strict=True))
            said = {key: self._name(key) for key in set(keys)}
            self._last = said[keys[-1]]
            if len(said) == 1 and not any(names):
                names[:] = [self._last] * len(names)
            else:
                names[:] = [name or of for name, of in zip(names, map(said.__getitem__, keys), strict=True)]

    def _name(self, key: tuple[bytes, ...]) -> str:
        if (known := self._names.get(key)) is not None:
            return known
        name = b"/".join(filter(None, map(_named, key))).decode(errors="replace")
        if len(self._names) < _NAMES:
            self._names[key] = name
        return name


def _named(text: bytes) -> bytes:
    """A name, or that of the pod and the container among labels."""
    return b"/".join(_LABEL.findall(text)) if text[:1] == b"{" else text


def _form(pieces: Sequence[Piece], blanks: set[int], *, named: bool) -> _Form:
    pattern = b""
    times: list[int] = []
    names: list[tuple[bool, int]] = []
    groups = 0
    for index, piece in enumerate(pieces):
        kind = GROUPS.get(piece.kind) or b"(?:" + KINDS.get(piece.kind, b"") + b")"
        if piece.kind in GROUPS:
            groups += 1
            if piece.kind == "time":
                times.append(groups)
            elif piece.kind != "indent":
                names.append((piece.kind != "process", groups))
        separator = _any_blanks(piece.separator)
        if index == len(pieces) - 1 and piece.separator[-1:] in (b" ", b"\t"):
            separator = _any_blanks(piece.separator[:-1]) + _last_blanks(blanks)
        pattern += _any_blanks(piece.before) + kind + _any_blanks(piece.after) + separator
    order = tuple(group for _, group in sorted(names)) if named else ()
    bar = any(piece.kind == "bar" for piece in pieces)
    return _Form(re.compile(pattern), Seams(pattern), times[0] if times else 0, order, pieces[-1].kind == "quote", bar)


def _any_blanks(text: bytes) -> bytes:
    return b"[ \\t]+".join(map(re.escape, text.split(b" ")))


def _last_blanks(blanks: set[int]) -> bytes:
    """One if all have one, so that what is left may begin with more, or any number; an empty line may have none."""
    return rb"(?:[ \t]|$)" if blanks == {1} else rb"(?:[ \t]+|$)"
