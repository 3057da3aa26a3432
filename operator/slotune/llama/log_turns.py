"""Who was served before whom, told from the numbers of tasks: a request gets its number as it comes, its slot later.

Two orders can go wrong. A request that waits for a slot may see that very slot given to requests that came after it:
builds until August 2025 put a waiting request behind newcomers each time a slot fell free (ggml-org/llama.cpp#15008,
#15395). And one that has its slot may see prompts read that came after it, in lower slots: prompts fill a step in the
order of slots (ggml-org/llama.cpp#6607).

What waits by its own choice is left out. A request that names its slot (``id_slot``) waits for that one alone, so only
what was served in the slot that it got counts. One that wants several answers (``n``) waits for as many free slots; it
is launched right behind its children, which have numbers of their own and are no requests.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from slotune.llama.log_pieces import seconds_since_start
from slotune.llama.log_story import Line, Turns
from slotune.llama.log_topics import quote

__all__ = ["TurnTotals"]

_OLD_TASK = re.compile(rb"\b(?:id_task|task_id)=(\d{1,15})\b|\[task id: (\d{1,15})\]")
_CHILD: Final = b"is_child = 1"
_SLOTS: Final = 1024
"""More than any server has: ids beyond are garbage."""
_KEPT: Final = 512
"""Launches of one slot that are remembered: a request that waits for more than those is counted with as many."""
_TWICE: Final = 2
"""Later requests in its slot, or pieces of a later prompt. One alone can be chance: numbers are handed out before tasks
are posted, and two slots that begin in one step are told of in the order of slots."""
_IN_A_ROW: Final = 64
"""Launches below the highest number: numbers that go on so were begun anew, by a process whose start was lost."""

_Launch = tuple[int, int, bytes]
"""The task, the number of the line that says it, and the line."""


class _Overtaken(NamedTuple):
    """By how many a request was overtaken, where its slot went to one of them, and where to the request itself."""

    by: int
    before: _Launch
    late: _Launch

    @property
    def waited_s(self) -> float | None:
        """Seconds between the two; None where lines have no time, less than 0 where another process wrote one."""
        since, until = seconds_since_start(self.before[2]), seconds_since_start(self.late[2])
        return None if since is None or until is None else until - since


class TurnTotals:
    """Of one server since its last start."""

    def __init__(self) -> None:
        self._requests, self._highest, self._below = 0, -1, 0
        self._behind_children = False
        self._overtaken = 0
        self._worst: _Overtaken | None = None
        self._begun = self._behind = self._passed = 0
        self._passed_line: Line | None = None
        self._passing_line: Line | None = None
        self._forget()

    def _forget(self) -> None:
        """What was said before is another process's."""
        self._launches: dict[bytes, list[_Launch]] = {}
        """Slot to what it was given, in the order of the tasks."""
        self._unsure: list[_Overtaken] = []
        """Of those since the highest number: sure when numbers go on from there."""
        self._pending: dict[bytes, _Launch] = {}
        """Slot to the request that has it and whose prompt was not begun."""
        self._pieces: dict[bytes, int] = {}
        """Slot to the pieces of later prompts in lower slots that were read before."""
        self._below = 0

    def launch(self, number: int, line: bytes, slot: bytes) -> None:
        """A slot was given to a request."""
        task = _task(line)
        launch = task, number, line
        launches = self._launches.get(slot)
        if task < 0 or (launches is None and len(self._launches) >= _SLOTS):
            return
        if _CHILD in line:
            self._behind_children = True
            return
        is_parent, self._behind_children = self._behind_children, False
        self._requests += 1
        if task > self._highest:
            self._highest, self._below = task, 0
            if self._unsure:
                self._settle()
        else:
            self._below += 1
            if self._below > _IN_A_ROW or (launches is not None and any(one[0] == task for one in launches)):
                self._forget()
                self._highest, launches = task, None
        self._pending[slot] = launch
        if launches is None:
            self._launches[slot] = [launch]
        elif task > launches[-1][0]:
            launches.append(launch)
            if len(launches) > _KEPT:
                del launches[: _KEPT // 2]
        else:
            self._fall_back(launches, launch, is_parent=is_parent)

    def _fall_back(self, launches: list[_Launch], launch: _Launch, *, is_parent: bool) -> None:
        """A request came before another that had this slot already."""
        place = _place(launches, launch[0])
        if len(launches) - place >= _TWICE and not is_parent:
            by = sum(len(of_slot) - _place(of_slot, launch[0]) for of_slot in self._launches.values())
            self._unsure.append(_Overtaken(by, launches[place], launch))
        launches.insert(place, launch)

    def _settle(self) -> None:
        """A higher number than any before: those that were overtaken until now are of the same process."""
        if sure := [one for one in self._unsure if one.waited_s is None or one.waited_s >= 0]:
            self._overtaken += len(sure)
            self._worst = max((*sure, *([self._worst] if self._worst else [])), key=lambda one: one.by)
        self._unsure = []

    def begin(self, slot: bytes) -> None:
        """A prompt's reading begins."""
        self._begun += 1
        own = self._pending.pop(slot, None)
        if self._pieces:
            self._pieces.pop(slot, None)
        if own is not None and self._pending:
            self._behind += any(True for _ in self._earlier_above(slot, own[0]))

    def read(self, number: int, line: bytes, slot: bytes) -> None:
        """A piece of a prompt was read."""
        if not self._pending or not self._begun:
            return
        for other, launch in self._earlier_above(slot, _task(line)):
            pieces = self._pieces[other] = self._pieces.get(other, 0) + 1
            if pieces == _TWICE:
                self._passed += 1
                self._passed_line, self._passing_line = _quoted(launch), Line(number, quote(line))

    def end(self, slot: bytes) -> None:
        """A request ended, begun or not."""
        if self._pending.pop(slot, None) is not None and self._pieces:
            self._pieces.pop(slot, None)

    def _earlier_above(self, slot: bytes, task: int) -> Iterator[tuple[bytes, _Launch]]:
        """What came before ``task`` and was not begun in a higher slot than its own."""
        number = _number(slot)
        for other, launch in self._pending.items():
            if launch[0] < task and _number(other) > number:
                yield other, launch

    def story(self) -> Turns | None:
        """What it comes to; None where no line tells of a request and its number."""
        if not self._requests:
            return None
        timed = [one for one in self._unsure if one.waited_s is not None and one.waited_s >= 0]
        worst = max((*timed, *([self._worst] if self._worst else [])), key=lambda one: one.by, default=None)
        return Turns(
            requests=self._requests,
            overtaken=self._overtaken + len(timed),
            most=0 if worst is None else worst.by,
            waited_s=None if worst is None else worst.waited_s,
            late=None if worst is None else _quoted(worst.late),
            before=None if worst is None else _quoted(worst.before),
            begun=self._begun,
            behind=self._behind,
            passed=self._passed,
            passed_line=self._passed_line,
            passing_line=self._passing_line,
        )


def _quoted(launch: _Launch) -> Line:
    return Line(launch[1], quote(launch[2]))


def _place(launches: Sequence[_Launch], task: int) -> int:
    """Of the first that came after ``task``."""
    return bisect_right(launches, task, key=itemgetter(0))


def _task(line: bytes) -> int:
    """The number of the task that a line is about; -1: none."""
    start = line.find(b" | task ") + 8
    if start > 7:
        digits = line[start : line.find(b" ", start)]
        return int(digits) if digits.isdigit() else -1
    old = _OLD_TASK.search(line)
    return -1 if old is None else int(old[1] or old[2])


def _number(slot: bytes) -> int:
    """Of a slot, as printed: two digits and a blank, or three digits."""
    digits = slot.strip()
    return int(digits) if digits.isdigit() else -1
