"""How much of a trace's prompts a cache could have served, to hold the server's own count against.

The perfect cache forgets nothing: a prompt reuses the longest beginning that it shares with any prompt sent before it,
priming and warm-up and earlier runs included, as if each had been read by then. No server can serve more, so what the
server served is a share of this. Beside it stands what the slots alone could keep, each holding the last prompt that it
read: where the count comes out like that, slots were too few for the prefixes.

For synthetic prompts both are exact: a group's prefix or nothing. Real prompts share beginnings in characters and are
counted in bytes of text, in which the share is about the same as in tokens; a chat's template is not counted as shared,
so the estimate lies on the low side. Pure.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.priming import priming_entries
from slotune.load.records import RequestRecord, RunResult
from slotune.load.sharing import Beginnings, prompt_bytes
from slotune.load.trace import Trace, TraceEntry

__all__ = ["Reuse", "measured_reuse", "reuse_of"]


@dataclass(frozen=True, slots=True)
class Reuse:
    """Shares of the prompt tokens of all measured requests whose answers count tokens."""

    theoretical: float
    by_slots: float
    measured: float
    prefixes: int
    prefix_share: float | None
    """See :class:`slotune.load.cache_facts.CacheFacts`."""


def reuse_of(demand: Demand, runs: Sequence[tuple[Trace, RunResult]], slots: int) -> Reuse | None:
    """What could be reused, and what was, over the runs of one server in their order.

    Args:
        demand: The workload.
        runs: Each whole trace with what came of it.
        slots: Slots that keep a cache, each primed before each run; 0 if none does.

    Returns:
        None when no answer counts its tokens.
    """
    kind = _Groups if demand.synthetic is not None else _Texts
    perfect, by_slots = kind(demand), _Slots(kind(demand), slots)
    whole = saved = saved_by_slots = 0.0
    shares: list[float] = []
    prefixes = 0
    for number, (trace, result) in enumerate(runs):
        counted = {record.index for record in result.records if _says(record)}
        arrived: set[object] = set()
        for entry in (*priming_entries(trace, demand, slots), *trace.entries):
            own = perfect.prefix(number, entry)
            could, _ = perfect.best(number, entry)
            kept = by_slots.read(number, entry)
            perfect.hold(None, number, entry)
            if entry.warmup or entry.index not in counted:
                continue  # a priming entry's index lies behind the window, so it is never counted
            length = perfect.length(entry)
            whole += length
            saved += could
            saved_by_slots += kept
            if own is not None:
                arrived.add(own)
            if could:
                shares.append(could / length)
        prefixes = max(prefixes, len(arrived))
    measured = measured_reuse([record for _, result in runs for record in result.records])
    if not whole or measured is None:
        return None
    return Reuse(saved / whole, saved_by_slots / whole, measured, prefixes, fmean(shares) if shares else None)


def measured_reuse(records: Sequence[RequestRecord]) -> float | None:
    """Cached over all prompt tokens, as the server says. One that never said is None, not "nothing was cached"."""
    said = [record for record in records if _says(record)]
    cached = sum(record.cached_tokens or 0 for record in said)
    total = cached + sum(record.prompt_tokens or 0 for record in said)
    return cached / total if total else None


def _says(record: RequestRecord) -> bool:
    return record.cached_tokens is not None and record.prompt_tokens is not None


class _Held(Protocol):
    """Prompts that are kept somewhere."""

    def length(self, entry: TraceEntry) -> float: ...

    def prefix(self, run: int, entry: TraceEntry) -> object: ...

    def best(self, run: int, entry: TraceEntry) -> tuple[float, int | None]:
        """(most of ``entry`` that a kept prompt begins with, which holder keeps it)."""
        ...

    def hold(self, holder: int | None, run: int, entry: TraceEntry) -> None:
        """Keep ``entry``, instead of what ``holder`` kept; a holder None keeps everything."""
        ...


class _Groups:
    """Synthetic prompts: those of one group and one run begin alike, others have nothing in common. Tokens."""

    def __init__(self, demand: Demand) -> None:
        assert demand.synthetic is not None
        self._synthetic: SyntheticPrompts = demand.synthetic
        self._holders: dict[tuple[int, int], set[int | None]] = {}
        self._kept: dict[int, tuple[int, int]] = {}

    def length(self, entry: TraceEntry) -> float:
        return float(entry.input_tokens or self._synthetic.input_tokens_mean)

    def prefix(self, run: int, entry: TraceEntry) -> object:
        return None if entry.prefix_group is None else (run, entry.prefix_group)

    def best(self, run: int, entry: TraceEntry) -> tuple[float, int | None]:
        if entry.prefix_group is None:
            return 0.0, None
        holders = self._holders.get((run, entry.prefix_group))
        return (float(self._synthetic.shared_prefix_tokens), next(iter(holders))) if holders else (0.0, None)

    def hold(self, holder: int | None, run: int, entry: TraceEntry) -> None:
        if holder is not None and (before := self._kept.pop(holder, None)) is not None:
            self._holders[before].discard(holder)
        if entry.prefix_group is not None:
            key = (run, entry.prefix_group)
            self._holders.setdefault(key, set()).add(holder)
            if holder is not None:
                self._kept[holder] = key


class _Texts:
    """Real prompts, in bytes. Sorted, the longest common beginning is always with a neighbour."""

    def __init__(self, demand: Demand) -> None:
        self._prompts = demand.prompts
        self._beginnings = Beginnings(demand.prompts)
        self._kept: list[tuple[int, int]] = []
        """(place in sorted order, holder; -1 for the one that keeps everything), ascending."""
        self._places: dict[int, int] = {}

    def length(self, entry: TraceEntry) -> float:
        return float(max(1, prompt_bytes(self._prompts[entry.prompt_id])))

    def prefix(self, run: int, entry: TraceEntry) -> object:
        return self._beginnings.shared_text(entry.prompt_id) or None

    def best(self, run: int, entry: TraceEntry) -> tuple[float, int | None]:
        place = self._beginnings.places[entry.prompt_id]
        at = bisect.bisect_left(self._kept, (place, -1))
        best, holder = 0, None
        for near in (at - 1, at):
            if 0 <= near < len(self._kept):
                kept_place, kept_holder = self._kept[near]
                common = self._beginnings.common(place, kept_place)
                if common > best:
                    best, holder = common, kept_holder
        if not best:
            return 0.0, None
        return float(prompt_bytes(self._prompts[entry.prompt_id], best)), holder

    def hold(self, holder: int | None, run: int, entry: TraceEntry) -> None:
        number = -1 if holder is None else holder
        place = self._beginnings.places[entry.prompt_id]
        if holder is not None and (before := self._places.get(holder)) is not None:
            del self._kept[bisect.bisect_left(self._kept, (before, holder))]
        at = bisect.bisect_left(self._kept, (place, number))
        if at == len(self._kept) or self._kept[at] != (place, number):
            self._kept.insert(at, (place, number))
        if holder is not None:
            self._places[holder] = place


class _Slots:
    """Slots that each keep the last prompt they read: the best one takes a request, else the one unused for longest."""

    def __init__(self, held: _Held, slots: int) -> None:
        self._held = held
        self._oldest_first = list(range(slots))

    def read(self, run: int, entry: TraceEntry) -> float:
        """Take ``entry`` in; return how much of it was there."""
        if not self._oldest_first:
            return 0.0
        saved, holder = self._held.best(run, entry)
        chosen = self._oldest_first[0] if holder is None else holder
        self._oldest_first.remove(chosen)
        self._oldest_first.append(chosen)
        self._held.hold(chosen, run, entry)
        return saved
