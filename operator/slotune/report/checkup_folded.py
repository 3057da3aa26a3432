"""What was not looked at, folded for people: which single thing to bring next, and how many checks it may decide.

Each check says in its own words what it needs, often with alternatives, and most of them name the same few things.
So what most of the open checks can use comes first, with all of these; then what most of the others can use; and so
on. A check that needs two things stands with the first of them. The words of each check are in ``--all``, and as data.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slotune.diagnose.checkup import Checkup
from slotune.diagnose.symptoms import Symptoms
from slotune.report.checkup_needs import still_needed

__all__ = ["NEEDS_LOAD", "Open", "Thing", "fold"]

NEEDS_LOAD: Final = "slotune bench -f MANIFEST --url URL (it takes a measurement under load)"
"""What decides an item that no look can decide."""


class Thing(enum.Enum):
    """What a person can bring, by how a need names it; of two that decide as much the first is the easier one."""

    PROBE = r"--probe\b"
    WATCH = r"--watch\b"
    LOOK = (
        r"--url\b(?! URL --(?:probe|watch))|/slots|/metrics|/props|\blooks?\b|this command once more"
        r"|an answer of the server"
    )
    LOG = r"\blogs?\b|--log\b"
    DEVICE = r"--gpu-class|--bandwidth"
    MODEL = r"--model\b"
    DEPLOYMENT = r"--deployment\b|\barguments\b|CPU limit of its container"
    NVIDIA_SMI = r"--nvidia-smi"
    PROC = r"--proc\b"


_PATTERNS: Final = {thing: re.compile(thing.value) for thing in Thing}


@dataclass(frozen=True, slots=True)
class Open:
    """Something that is not decided."""

    whose: str
    """The item of the checklist, or the name of a section."""
    needs: str
    is_check: bool = True
    """False for what is told beside the checklist."""


def fold(checkup: Checkup, symptoms: Symptoms, beside: Sequence[Open] = ()) -> list[tuple[str, tuple[Open, ...]]]:
    """(What to bring, in words; what it may decide), the most useful first. Nothing is in two of them."""
    rest = [
        Open(checked.item.value[0], still_needed(one.needs, symptoms))
        for checked in checkup.checked
        for one in checked.open
    ]
    rest += [Open(one.whose, still_needed(one.needs, symptoms), one.is_check) for one in beside]
    folded: list[tuple[str, tuple[Open, ...]]] = []
    while rest:
        able = {thing: [one for one in rest if pattern.search(one.needs)] for thing, pattern in _PATTERNS.items()}
        best = max(Thing, key=lambda thing: sum(one.is_check for one in able[thing]) + 0.5 * len(able[thing]))
        if not able[best]:
            break
        folded.append((_words(best, able[best], symptoms), tuple(able[best])))
        rest = [one for one in rest if one not in able[best]]
    rest += [Open(checked.item.value[0], NEEDS_LOAD) for checked in checkup.checked if not checked.checks]
    alike: dict[str, list[Open]] = {}
    for one in rest:
        alike.setdefault(one.needs, []).append(one)
    folded += [(needs, tuple(same)) for needs, same in alike.items()]
    return sorted(folded, key=lambda one: -sum(what.is_check for what in one[1]))


def _words(thing: Thing, what: Sequence[Open], symptoms: Symptoms) -> str:
    in_pod, server = symptoms.pod is not None, symptoms.server
    if thing is Thing.LOG:
        return _log(what, symptoms)
    if thing in (Thing.PROBE, Thing.WATCH):
        asked = "--watch 60" if thing is Thing.WATCH else "--probe"
        again = " once more, while nobody else uses it" if asked == "--probe" and symptoms.probe is not None else ""
        return f"{asked}{again}" if in_pod or server is not None else f"--url URL {asked}"
    if thing is Thing.LOOK:
        if server is None and not in_pod:
            return "--url URL, while it is busy"
        shows = server is not None and server.metrics is not None
        again = "this command once more" if in_pod else "--url once more"
        return f"{again}, while it is busy" + ("" if shows else " (started with --metrics)")
    return {
        Thing.DEVICE: "--gpu-class NAME (or --bandwidth BYTES)",
        Thing.MODEL: "--model FILE, the weights",
        Thing.DEPLOYMENT: "its arguments and limits" if in_pod else "--deployment NAME, of one in a cluster",
        Thing.NVIDIA_SMI: "--nvidia-smi FILE, of nvidia-smi -q while it works",
        Thing.PROC: "--proc FILE, of its process",
    }[thing]


def _log(what: Sequence[Open], symptoms: Symptoms) -> str:
    needs = " ".join(one.needs for one in what)
    wanted = [
        words
        for pattern, words in (
            (r"\bstart\b", "from its start on"),
            (r"-lv 4", "-lv 4"),
            (r"under load|request|busy|has a line", "with requests in it"),
        )
        if re.search(pattern, needs)
    ]
    name = "--log FILE" if symptoms.log is None and symptoms.pod is None else "a log"
    return f"{name} ({', '.join(wanted)})" if wanted else name
