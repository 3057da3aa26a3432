"""Whether an answer that was found is looked for again now, and when it is next.

A change of the LlamaDeployment itself always counts, and so does one that leaves every measurement valid (a price): it
costs nothing. Any other change counts where ``retune.triggers`` names it, and no sooner than ``retune.cooldown`` after
the last search. Until then the old answer stays. A search that begins for nothing but time or users' complaints asks
the same question, so it gets an epoch of its own: without that, what was measured before would answer it at once.

Pure: the status as it is stored, what was looked at and the time in, a verdict out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from slotune.api.cron import parse_cron
from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import LlamaDeploymentStatus, Production, Progress, Question, Retune
from slotune.controller.conditions import timestamp
from slotune.production.watch import breach_calls_for_search
from slotune.rollout.windows import time_zone

__all__ = ["Asked", "Verdict", "changes", "judge", "next_scheduled"]

Trigger = Literal["ImageChange", "ModelChange", "WorkloadChange", "HardwareChange"]

_WORDS: Final[dict[Trigger, str]] = {
    "ImageChange": "the server",
    "ModelChange": "a weights file",
    "WorkloadChange": "the workload",
    "HardwareChange": "the hardware",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The question of now."""

    inputs: str
    """Digest of all that the answer depends on."""
    context: str
    """Digest within which measurements stay valid."""
    question: Question


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the answer."""

    stays: str = ""
    """Why the old answer stays although something has changed, in words; empty: nothing has, or it counts."""
    is_stale: bool = False
    """Whether what stays is looked for again later: it is not brought to production any more."""
    begins: str = ""
    """Why the same question is asked again now, in words; empty: it is not."""
    due: datetime | None = None
    """When the next search is due, as far as is known."""


def judge(
    status: LlamaDeploymentStatus, retune: Retune, asked: Asked, production: Production | None, now: datetime
) -> Verdict:
    """What becomes of the answer that the status holds. While there is none, any question may be asked.

    Raises :class:`~slotune.rollout.windows.UnknownTimeZoneError` for a time zone of the schedule that nobody knows.
    """
    before, completed = status.progress, status.condition("SearchCompleted")
    if before is None or completed is None or completed.status != "True" or status.last_search_time is None:
        return Verdict()
    free = datetime.fromisoformat(status.last_search_time) + timedelta(seconds=float(parse_duration(retune.cooldown)))
    scheduled = next_scheduled(status, retune, now)
    if scheduled is not None and scheduled <= now:
        return Verdict(begins=f"retune.schedule ({retune.schedule}) asks for it")
    if free <= now and production is not None and breach_calls_for_search(production, retune):
        return Verdict(begins=f"production has missed the SLO for {retune.breach_for}")
    changed = frozenset[Trigger]() if before.question is None else changes(before.question, asked.question)
    wanted = changed & set(retune.triggers)
    is_same, is_free = before.inputs == asked.inputs, bool(wanted) and free <= now
    if is_same:  # what else has changed is in no digest: the nodes' GPUs and their drivers
        begins = "the GPUs or their drivers are others" if is_free else ""
        return Verdict(begins=begins, due=None if begins else _first(free if wanted else None, scheduled))
    if is_free or _counts(before, asked):
        return Verdict()
    return _held(changed, free if wanted else None, scheduled)


def changes(before: Question, now: Question) -> frozenset[Trigger]:
    """What has changed beside the spec.

    Nodes come and go, and drivers are renewed node by node: devices are others once none of the old ones is left.
    """
    found: set[Trigger] = set()
    if before.server != now.server:
        found.add("ImageChange")
    if before.models != now.models:
        found.add("ModelChange")
    if before.workload != now.workload:
        found.add("WorkloadChange")
    are_others = before.devices and now.devices and not set(before.devices) & set(now.devices)
    if before.hardware != now.hardware or are_others:
        found.add("HardwareChange")
    return frozenset(found)


def next_scheduled(status: LlamaDeploymentStatus, retune: Retune, now: datetime) -> datetime | None:
    """When the schedule is due; in the past when it is now. None without a schedule, and for one that never comes.

    Only what was announced is due: a schedule that is new or was changed does not begin with what it has missed.
    """
    if retune.schedule is None:
        return None
    cron, zone = parse_cron(retune.schedule), time_zone(retune.time_zone, "spec.retune.timeZone")
    announced = None if status.next_search_time is None else datetime.fromisoformat(status.next_search_time)
    if announced is not None and announced <= now and cron.is_due_at(announced, zone):
        return announced
    return cron.next_after(now, zone)


def _counts(before: Progress, asked: Asked) -> bool:
    """Whether a change counts whatever the triggers say: one of the spec, one that somebody asked for, one that leaves
    what was measured valid, or one of which nobody knows what it is."""
    known, now = before.question, asked.question
    if known is None or known.spec != now.spec or known.epoch != now.epoch or before.search == asked.context:
        return True
    return not changes(known, now)


def _held(changed: frozenset[Trigger], free: datetime | None, scheduled: datetime | None) -> Verdict:
    what = " and ".join(_WORDS[one] for one in sorted(changed))
    known = f"{what[0].upper()}{what[1:]} {'has' if len(changed) == 1 else 'have'} changed since the answer was found"
    due = _first(free, scheduled)
    if due is None:
        names = " and ".join(sorted(changed))
        return Verdict(f"{known}, and retune.triggers does not name {names}: the answer stays")
    why = "retune.schedule" if due == scheduled else "retune.cooldown"
    words = f"{known}: it stays until it is looked for again at {timestamp(due)} ({why})"
    return Verdict(words, is_stale=free is not None, due=due)


def _first(*moments: datetime | None) -> datetime | None:
    return min((one for one in moments if one is not None), default=None)
