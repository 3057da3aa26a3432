"""From look to look: since when production keeps or misses its promise, and when that calls for a new search.

A breach begins with one look that shows the SLO missed and ends with two looks in a row that show it kept, so that a
value that wavers at the target is one breach and not ten. Looks without a number change neither, and prove neither:
the time that a breach has lasted counts only while looks keep showing it, so an hour without data between two misses
starts the count anew. Pure: the last status, one look and the time in, a new status out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from slotune.api.quantities import format_duration, parse_duration
from slotune.api.v1alpha1 import SLO, Measured, Production, Retune
from slotune.production.looks import Look, Shown, what_it_shows
from slotune.production.readings import (
    NoData,
    NotANumber,
    Reading,
    SeveralSeries,
    Unreachable,
    Value,
    describe,
)
from slotune.report.figures import seconds, speed

__all__ = ["beside", "breach_calls_for_search", "next_look", "observe", "worth_saving"]

REFRESH: Final = timedelta(minutes=10)
"""A status that says the same is written again after this time, to show that somebody still looks."""
NOTICEABLE: Final = 0.05
"""Share by which a number must differ to be written before that."""

LONGEST_MESSAGE: Final = 2048
"""Characters."""

State = Literal["Value", "NoData", "NotANumber", "SeveralSeries", "Unreachable"]
_STATES: Final[dict[type, State]] = {
    NoData: "NoData",
    NotANumber: "NotANumber",
    SeveralSeries: "SeveralSeries",
    Unreachable: "Unreachable",
}

NO_TTFT: Final = (
    "p95 TTFT is not looked at: llama-server counts no latencies, so a query of what stands in front of it is needed"
    " (observe.prometheus.ttftQuery)"
)


def observe(
    look: Look,
    slo: SLO,
    previous: Production | None,
    *,
    now: datetime,
    interval_s: float,
    measured: Measured | None = None,
) -> Production:
    """The status after ``look``. ``previous`` is the one before it, None at the first; ``measured`` is what the
    running configuration showed in its trial, None when it had none."""
    shown = what_it_shows(look, slo)
    kept_since, breached_since, last_breach = _spans(shown, previous, now, interval_s)
    return Production(
        observed_at=_stamp(now),
        state=_state(look, slo),
        ttft_p95=None if (ttft := _number(look.ttft_p95)) is None else format_duration(ttft),
        tokens_per_second=_text(look.tokens_per_second),
        requests_processing=_text(look.requests_processing),
        requests_deferred=_text(look.requests_deferred),
        prompt_tokens_per_second=_text(look.prompt_tokens_per_second),
        kept_since=kept_since,
        breached_since=breached_since,
        last_breach_time=last_breach,
        message=beside(look, slo, measured)[:LONGEST_MESSAGE],
    )


def next_look(previous: Production | None, interval_s: float, *, now: datetime) -> datetime:
    """When the next look is due: at once for the first, and when the last one lies in the future of this clock."""
    if previous is None or (last := _time(previous.observed_at)) > now:
        return now
    return last + timedelta(seconds=interval_s)


def breach_calls_for_search(production: Production, retune: Retune) -> bool:
    """Whether SLOBreach fires: the last look showed the SLO missed, as looks have for ``breachFor``."""
    since, last = production.breached_since, production.last_breach_time
    if "SLOBreach" not in retune.triggers or since is None or last is None:
        return False
    if last != production.observed_at:
        return False
    return (_time(last) - _time(since)).total_seconds() >= parse_duration(retune.breach_for)


def worth_saving(saved: Production | None, current: Production) -> bool:
    """Whether a status differs so much from the saved one that a write is due.

    Nobody reads a new third digit every minute, and a thousand deployments would write it a thousand times.
    """
    if saved is None or saved.state != current.state:
        return True
    if (saved.kept_since, saved.breached_since) != (current.kept_since, current.breached_since):
        return True
    if abs(_time(current.observed_at) - _time(saved.observed_at)) >= REFRESH:
        return True
    return any(
        _differ(before, after)
        for before, after in (
            (_length(saved.ttft_p95), _length(current.ttft_p95)),
            (_float(saved.tokens_per_second), _float(current.tokens_per_second)),
        )
    )


def beside(look: Look, slo: SLO, measured: Measured | None) -> str:
    """One line: what production delivers, what was measured, what is owed where it is missed, or why nothing is
    known, such as ``production p95 TTFT 0.71 s, measured 0.62 s``."""
    parts = [_ttft_words(look, slo, measured), _speed_words(look, slo, measured), _load_words(look)]
    warnings = dict.fromkeys(
        describe(reading) for reading in (look.ttft_p95, look.tokens_per_second) if isinstance(reading, Value)
    )
    return "; ".join(part for part in (*parts, *warnings) if part)


def _spans(
    shown: Shown, previous: Production | None, now: datetime, interval_s: float
) -> tuple[str | None, str | None, str | None]:
    """kept_since, breached_since, last_breach_time."""
    kept = previous.kept_since if previous else None
    breached = previous.breached_since if previous else None
    last = previous.last_breach_time if previous else None
    match shown:
        case Shown.MISSED:
            # Statuses are saved every REFRESH or interval at least, so a breach that goes on is never older than this.
            longest = max(1.5 * REFRESH, timedelta(seconds=3 * interval_s))
            goes_on = breached is not None and last is not None and abs(now - _time(last)) <= longest
            return None, breached if goes_on else _stamp(now), _stamp(now)
        case Shown.KEPT | Shown.PARTLY_KEPT:
            if kept is not None:
                return kept, None, None
            return _stamp(now), breached, last
        case Shown.UNKNOWN:
            return kept, breached, last


def _state(look: Look, slo: SLO) -> State:
    """Value only if all that the promise is judged by is one; else what the first other reading is."""
    judged = [look.ttft_p95]
    if slo.tokens_per_second is not None or look.ttft_p95 is None:
        judged.append(look.tokens_per_second)
    return next((_STATES[type(one)] for one in judged if one is not None and not isinstance(one, Value)), "Value")


def _ttft_words(look: Look, slo: SLO, measured: Measured | None) -> str:
    if look.ttft_p95 is None:
        return NO_TTFT
    value = _number(look.ttft_p95)
    if value is None:
        return f"production p95 TTFT unknown: {describe(look.ttft_p95)}"
    in_trial = _length(measured.ttft_p95) if measured else None
    owed = float(slo.ttft_p95_seconds)
    return (
        f"production p95 TTFT {seconds(value)}"
        + (f", measured {seconds(in_trial)}" if in_trial is not None else "")
        + (f", owed {seconds(owed)}" if value > owed else "")
    )


def _speed_words(look: Look, slo: SLO, measured: Measured | None) -> str:
    if look.tokens_per_second is None:
        return ""
    value = _number(look.tokens_per_second)
    if value is None:
        why = describe(look.tokens_per_second)
        # One cause for both is said once.
        return "" if look.tokens_per_second == look.ttft_p95 else f"production tok/s unknown: {why}"
    in_trial = _float(measured.tokens_per_second_p5) if measured else None
    owed = slo.tokens_per_second
    return (
        f"{speed(value)} tok/s per user"
        + (" on average" if look.speed_is_mean else "")
        + (f", measured {speed(in_trial)}" if in_trial is not None else "")
        + (" for 95 % of users" if in_trial is not None and look.speed_is_mean else "")
        + (f", owed {speed(float(owed))}" if owed is not None and value < owed else "")
    )


def _load_words(look: Look) -> str:
    working, waiting = _number(look.requests_processing), _number(look.requests_deferred)
    if working is None or waiting is None:
        return ""
    return f"on average {speed(working)} requests at work and {speed(waiting)} waiting"


def _number(reading: Reading | None) -> float | None:
    return reading.value if isinstance(reading, Value) else None


def _text(reading: Reading | None) -> str | None:
    value = _number(reading)
    return None if value is None else f"{value:.4g}"


def _length(text: str | None) -> float | None:
    return None if text is None else float(parse_duration(text))


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def _differ(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > NOTICEABLE * max(abs(before), abs(after))


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)
