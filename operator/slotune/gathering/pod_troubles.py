"""What a pod's status and the events about it say against it. Pure.

Every container counts, not only the server's: one that cannot be pulled, or an init container that fails, keeps the
server from being started, and one beside it keeps the pod from being ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from slotune.diagnose.evidence import Evidence, Source, shortened
from slotune.diagnose.trouble import Role, Trouble
from slotune.gathering.object_parts import Object, part
from slotune.sandbox.pod_facts import ContainerFacts, EventFacts
from slotune.sandbox.pod_facts import PodFacts as PodStatus

__all__ = ["MOST_EVENTS", "told", "troubles_of", "warnings_of"]

MOST_EVENTS: Final = 10
"""Warnings of one pod that are kept, the newest."""
_ON_THE_WAY: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons to wait that every pod has at its start."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


def troubles_of(status: PodStatus, name: str, unready: Iterable[str] = ()) -> Iterator[Trouble]:
    """Its own first, then those of the container ``name``, then of init containers, then of those beside it.

    Args:
        status: of the pod.
        name: of the container that is llama-server.
        unready: names of containers that run and are not ready.
    """
    scheduled = status.conditions.get("PodScheduled")
    if scheduled is not None and not scheduled.is_true:
        yield Trouble(scheduled.reason, _line(scheduled.message))
    if status.phase == "Failed" and status.reason:
        yield Trouble(status.reason, _line(status.message))
    gates = status.conditions.get("Ready")
    if gates is not None and not gates.is_true and gates.reason == "ReadinessGatesNotReady":
        yield Trouble(gates.reason, _line(gates.message))
    waiting = set(unready)
    of_server = waiting if name in waiting else set()  # one beside a server that is not ready may wait for it
    roles = list(Role)
    known = [(_role(one, name), one) for one in status.containers.values()]
    for role, one in sorted(known, key=lambda pair: roles.index(pair[0])):
        found = _trouble(one, role) or (
            Trouble("not ready", "", role, one.name)
            if role is Role.BESIDE and one.name in waiting - of_server
            else None
        )
        if found is not None:
            yield found


def _role(one: ContainerFacts, name: str) -> Role:
    if one.name == name:
        return Role.SERVER
    return Role.INIT if one.is_init and not one.is_sidecar else Role.BESIDE


def _trouble(one: ContainerFacts, role: Role) -> Trouble | None:
    """Of one container. How the server's own ended is a fact of its own."""
    if one.waiting_reason and one.waiting_reason not in _ON_THE_WAY:
        last = "" if one.previous is None or role is Role.SERVER else f" (exit code {one.previous.exit_code})"
        return Trouble(one.waiting_reason, _line(one.waiting_message) + last, role, one.name)
    ended = one.ended
    if ended is None or role is Role.SERVER or (role is Role.INIT and ended.exit_code == 0):
        return None
    return Trouble(ended.reason or "Error", _line(f"exit code {ended.exit_code}: {ended.message}"), role, one.name)


def told(trouble: Trouble) -> Evidence:
    """The line that is quoted."""
    if trouble.role is Role.POD:
        what = "failed" if trouble.reason in {"Evicted", "DeadlineExceeded", "NodeLost"} else "not ready"
        what = "not scheduled" if trouble.reason in {"Unschedulable", "SchedulingGated"} else what
    else:
        what = "waiting" if trouble.role is Role.SERVER else f"{trouble.role.value} {trouble.container}"
    return _evidence(Source.POD, f"{what}: {trouble.reason}", trouble.message)


def warnings_of(events: Iterable[Object], status: PodStatus, name: str) -> Iterator[Evidence]:
    """Warnings, and kills for a probe, which are none; the newest first. What was said of a pod that has been ready
    ever since was its start, and is over."""
    ready, own = status.conditions.get("Ready"), status.containers.get(name)
    began_well = ready is not None and ready.is_true and own is not None and own.restarts == 0
    since = ready.since if began_well and ready is not None else None
    found: dict[tuple[str, str], tuple[datetime, int]] = {}
    for event in events:
        facts = EventFacts.from_object(event)
        seen = facts.last_seen or _LONG_AGO
        if not _tells(event, facts) or (since is not None and seen <= since):
            continue
        key = (facts.reason + _whose(event, name), facts.message)
        before, count = found.get(key, (_LONG_AGO, 0))
        found[key] = (max(before, seen), count + _count(event))
    newest = sorted(found.items(), key=lambda one: one[1][0], reverse=True)
    for (reason, message), (_, count) in newest[:MOST_EVENTS]:
        yield _evidence(Source.EVENT, reason if count == 1 else f"{reason} × {count}", message)


def _tells(event: Object, facts: EventFacts) -> bool:
    """kubelet tells of a kill for a probe as of something normal: ``Container llama failed liveness probe``."""
    return event.get("type") == "Warning" or (facts.reason == "Killing" and " failed " in facts.message)


def _whose(event: Object, name: str) -> str:
    """Said of another container than the server's: ``spec.containers{proxy}``."""
    about = part(event, "involvedObject") or part(event, "regarding")
    _, brace, rest = str(about.get("fieldPath") or "").partition("{")
    other = rest.removesuffix("}")
    return f" ({other})" if brace and other and other != name else ""


def _count(event: Object) -> int:
    stated = part(event, "series").get("count") or event.get("count") or event.get("deprecatedCount")
    return stated if isinstance(stated, int) and stated > 0 else 1


def _evidence(source: Source, what: str, message: str) -> Evidence:
    return Evidence(source, shortened(_line(f"{what}: {message}")))


def _line(text: str) -> str:
    return " ".join(text.split()).removesuffix(":")
