"""One look at a new configuration: a few requests of slotune's own to the new pods, and what Prometheus says.

Probes ask what users ask, one after the other, so they add next to nothing to production's load. Each one is judged by
the promise, as in a trial. Three things would make that unfair, and are kept out: a probe that the operator itself
measured late, a prompt whose shared beginning no slot has seen yet, and a server that does not let slotune in. None of
them is a miss. No message has a word of a prompt or of an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from slotune.api.v1alpha1 import SLO, Verify
from slotune.controller.listening import Listening
from slotune.controller.pod_http import NotAskedError, any_certificate, ask_server
from slotune.controller.serving_pods import ServingPod
from slotune.llama.server_http import LlamaServer
from slotune.load.bodies import Bodies
from slotune.load.demand import Demand
from slotune.load.exchange import exchange_alone
from slotune.load.lengths import DemandError
from slotune.load.records import RequestRecord, RequestStatus
from slotune.load.target import Target, open_session
from slotune.load.trace import TraceEntry, build_trace
from slotune.production.looks import Look
from slotune.production.verification import LookResult, looks_needed, result_of
from slotune.production.watch import beside
from slotune.report.figures import plural, seconds
from slotune.verdict.promise import Promise
from slotune.verdict.violations import Violation, violation_of

__all__ = ["Seen", "from_prometheus", "probe_pods", "probes_due", "together"]

Outcome = Literal["Kept", "Missed", "Inconclusive"]

SENDING_S: Final = 30.0
"""No probe begins later in a look. With what is under way then, a look ends well before the operator counts as hung."""
LONGEST_PROBE_S: Final = 90.0
"""A probe is given up after this time; whether it would have kept a more patient promise is then unknown."""
MOST_TOKENS: Final = 64
"""Asked of a probe whose speed counts: enough steps for a mean, and few enough to hurt nobody."""
FEW_TOKENS: Final = 8
"""Asked of a probe of which only the first token counts."""
DECODING_S: Final = 30.0
"""Longest time in which the tokens come at the owed speed."""
SLACK_S: Final = 5.0
"""Beyond the time at which a probe has certainly broken the promise."""
TICK_S: Final = 0.05

_PRIMING_NONCE: Final = 0x9E3779B97F4A7C15
"""Makes the prompt that warms a slot another one than the prompt that is judged."""
_PREFIX_SEED: Final = 0
"""Shared beginnings of synthetic prompts are the same in every look, as users' own are."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one source showed."""

    outcome: Outcome
    message: str


def probes_due(verify: Verify, number: int) -> int:
    """Probes of look ``number`` (0 is the first): ``probeRequests`` spread evenly over the looks of the window.

    At least one while any are wanted: a look that asks nobody shows nothing, and would count as such.
    """
    if not verify.probe_requests:
        return 0
    looks = looks_needed(verify)
    place = number % looks
    share = (place + 1) * verify.probe_requests // looks - place * verify.probe_requests // looks
    return max(1, share)


def together(seen: Sequence[Seen]) -> Seen:
    """One miss is a miss. Otherwise one that shows the promise kept is enough: a source that shows nothing speaks
    neither for the new configuration nor against it."""
    if not seen:
        cure = "set rollout.verify.probeRequests above 0, or observe.prometheus"
        return Seen("Inconclusive", f"nobody is asked: {cure}")
    outcomes = {one.outcome for one in seen}
    outcome: Outcome = "Missed" if "Missed" in outcomes else "Kept" if "Kept" in outcomes else "Inconclusive"
    return Seen(outcome, "; ".join(one.message for one in seen))


def from_prometheus(look: Look, slo: SLO) -> Seen:
    """What Prometheus' numbers say."""
    outcomes: dict[LookResult, Outcome] = {LookResult.KEPT: "Kept", LookResult.MISSED: "Missed"}
    return Seen(outcomes.get(result_of(look, slo), "Inconclusive"), beside(look, slo, None))


async def probe_pods(
    pods: Sequence[ServingPod],
    listening: Listening,
    demand: Demand,
    promise: Promise,
    *,
    count: int,
    first: int,
    seed: int,
) -> Seen:
    """Send ``count`` probes to ``pods`` in turn and judge them. Nothing is raised.

    Args:
        pods: those that get requests.
        listening: how their servers are reached.
        demand: what users ask, as trials send it.
        promise: what is owed.
        count: probes, 1 or more.
        first: position of the pod that is asked first, so that looks with few probes reach all of them.
        seed: selects prompts; another one for each look, or a slot knows the whole prompt.
    """
    if not pods:
        return Seen("Inconclusive", "no probe was sent: no new pod takes requests")
    turns = [pods[(first + turn) % len(pods)] for turn in range(count)]
    doors, closed = await _doors(dict.fromkeys(turns), listening, demand)
    try:
        trace = await asyncio.to_thread(build_trace, demand, rate=1.0, seed=seed, requests=count)
        bodies = {
            pod: await asyncio.to_thread(
                Bodies, demand, seed=_PREFIX_SEED, vocabulary=door.vocabulary, model=door.target.model
            )
            for pod, door in doors.items()
        }
    except DemandError as error:
        return Seen("Inconclusive", f"no probe was sent: {error}")
    tokens, limit_s = _bounds(promise)
    judged: list[_Probe] = []
    ends = time.perf_counter() + SENDING_S
    async with _loop_lag() as lag:
        for pod, entry in zip(turns, trace.entries, strict=True):
            if time.perf_counter() >= ends:
                break
            if pod not in doors:
                if closed[pod].serves_nobody:
                    judged.append(_Probe(Violation.FAILED))
                continue
            short = replace(entry, max_tokens=min(tokens, entry.max_tokens))
            target = doors[pod].target
            if demand.reusable_tokens > 0:
                warming = replace(short, nonce=short.nonce ^ _PRIMING_NONCE, max_tokens=1)
                await _send(target, bodies[pod], warming, demand, limit_s)
            lag.worst_s = 0.0
            record = await _send(target, bodies[pod], short, demand, limit_s)
            if (probe := _judge(record, promise, lag.worst_s, limit_s)) is not None:
                judged.append(probe)
    return _told(judged, promise, tuple(closed.values()))


@dataclass(frozen=True, slots=True)
class _Door:
    """A server that lets slotune in."""

    target: Target
    vocabulary: int | None


@dataclass(frozen=True, slots=True)
class _Probe:
    violation: Violation | None
    ttft_s: float | None = None


@dataclass(slots=True)
class _Lag:
    worst_s: float = 0.0
    """How late the operator's own loop ran at worst since this was set to 0."""


async def _doors(
    pods: dict[ServingPod, None], listening: Listening, demand: Demand
) -> tuple[dict[ServingPod, _Door], dict[ServingPod, NotAskedError]]:
    """What has to be known of each server before it is probed, or why it is not."""

    async def knock(pod: ServingPod) -> _Door:
        async def facts(server: LlamaServer) -> _Door:
            alias = (await server.props()).model_alias
            vocabulary = None if demand.synthetic is None else (await server.model()).vocabulary
            # With /v1, which a target takes away: what is before it stays, and may itself end like that.
            return _Door(Target(f"{pod.url(listening)}/v1", alias, tls=any_certificate()), vocabulary)

        return await ask_server(pod, listening, facts, path="/props", cure="is this a llama-server?")

    found = await asyncio.gather(*(knock(pod) for pod in pods), return_exceptions=True)
    doors: dict[ServingPod, _Door] = {}
    closed: dict[ServingPod, NotAskedError] = {}
    for pod, one in zip(pods, found, strict=True):
        if isinstance(one, _Door):
            doors[pod] = one
        elif isinstance(one, NotAskedError):
            closed[pod] = one
        else:
            raise one
    return doors, closed


def _bounds(promise: Promise) -> tuple[int, float]:
    """(tokens, seconds) of a probe: after that time it has broken the promise, or is not worth waiting for."""
    owed = promise.tokens_per_second_per_user
    tokens = FEW_TOKENS if owed is None else max(2, min(MOST_TOKENS, int(DECODING_S * owed)))
    decoding_s = DECODING_S if owed is None else tokens / owed
    return tokens, min(LONGEST_PROBE_S, promise.ttft_s + decoding_s + SLACK_S)


async def _send(target: Target, bodies: Bodies, entry: TraceEntry, demand: Demand, limit_s: float) -> RequestRecord:
    async with open_session(target) as session:
        return await exchange_alone(session, target, bodies(entry), entry, demand=demand, timeout_s=limit_s)


def _judge(record: RequestRecord, promise: Promise, lag_s: float, limit_s: float) -> _Probe | None:
    """None where the fault is, or may be, not the server's."""
    if record.status is RequestStatus.HTTP_ERROR and (record.error or "").startswith(("HTTP 401", "HTTP 403")):
        return None
    violation = violation_of(record, promise)
    owed = promise.tokens_per_second_per_user
    match violation:
        case Violation.LATE if record.ttft_s is not None and record.ttft_s - lag_s <= promise.ttft_s:
            return None
        case Violation.TOO_SLOW if owed is not None and record.tpot_s is not None:
            if record.tpot_s - lag_s / max(1, (record.output_tokens or 0) - 1) <= 1 / owed:
                return None
        case Violation.UNFINISHED if lag_s >= SLACK_S or (limit_s >= LONGEST_PROBE_S and not _is_late(record, promise)):
            return None
    return _Probe(violation, record.ttft_s)


def _is_late(record: RequestRecord, promise: Promise) -> bool:
    """Whether a request that was given up had broken its first target by then."""
    return promise.ttft_s < LONGEST_PROBE_S and (record.ttft_s is None or record.ttft_s > promise.ttft_s)


def _told(judged: Sequence[_Probe], promise: Promise, closed: Sequence[NotAskedError]) -> Seen:
    beside_them = "" if not closed else f"; {closed[0]}"
    if len(closed) > 1:
        beside_them += f" (and {plural(len(closed) - 1, 'other pod')} likewise)"
    if not judged:
        why = beside_them or "; the server refused them, or the operator was too busy to measure"
        return Seen("Inconclusive", f"no probe could be judged{why}")
    kinds = Counter(probe.violation for probe in judged if probe.violation is not None)
    broken = kinds.total()
    asked = plural(len(judged), "probe")
    if not broken:
        words = f"none of {asked} broke the promise" if len(judged) > 1 else "1 probe kept the promise"
    else:
        told = ", ".join(f"{number} {kind.words}" for kind, number in sorted(kinds.items()))
        words = f"{broken} of {asked} broke the promise ({told})"
    slowest = max((probe.ttft_s for probe in judged if probe.ttft_s is not None), default=None)
    if slowest is not None:
        words += f", the slowest first token came after {seconds(slowest)}"
    missed = broken > promise.violation_share * len(judged)
    return Seen("Missed" if missed else "Kept", words + beside_them)


@contextlib.asynccontextmanager
async def _loop_lag() -> AsyncIterator[_Lag]:
    """Watch how late this process wakes up: what it stamps is late by as much."""
    lag = _Lag()

    async def watch() -> None:
        while True:
            planned = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            lag.worst_s = max(lag.worst_s, time.perf_counter() - planned)

    watching = asyncio.create_task(watch())
    try:
        yield lag
    finally:
        watching.cancel()
        await asyncio.wait({watching})
