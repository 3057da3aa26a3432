"""When each request is sent and what it asks: drawn from a seed alone, so that every candidate gets the same.

Gaps are drawn at a rate of one and divided by the rate, so one seed means the same crowd at any rate. Within
a run all candidates see the same trace; other runs use other seeds, since repeats with one seed show only
how steady the machine is. A sample is never stretched to hit its rate exactly: that would remove the very
variance that a verdict is about.

Entry ``i`` is a function of (seed, i): a trace goes on beyond its window for as long as stragglers need
load, and shards of it are disjoint by construction instead of by luck.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from slotune.load.demand import Arrivals, Demand
from slotune.load.estimates import demand_identity
from slotune.load.lengths import DemandError, PromptLengths

__all__ = ["Trace", "TraceEntry", "build_trace"]

_BLOCK = 512
"""Entries drawn at once. Part of what a seed means: changing it changes every trace."""

_GAPS, _GROUPS, _LENGTHS, _NONCES, _ORDER = range(5)
"""Streams of randomness, apart so that a change of one property leaves the others as they were."""


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One request to send."""

    index: int
    unit_s: float
    """Time at a rate of one request per second; the same at every rate."""
    at_s: float
    """Seconds after the run's start."""
    prompt_id: int
    """Position in ``Demand.prompts``; the index itself for synthetic prompts."""
    prefix_group: int | None
    input_tokens: int | None
    """Length of a synthetic prompt, shared prefix included; None for real prompts."""
    max_tokens: int
    nonce: int
    """64 bits that make this prompt unlike any other of any run."""
    warmup: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """The head that is discarded, the window that is measured, and as much after it as it takes."""

    demand: Demand
    seed: int
    rate: float
    requests: int
    warmup_requests: int
    entries: tuple[TraceEntry, ...]
    """Warm-up and window; a shard holds only its own."""
    hash: str
    """Names the whole trace whatever its rate; equal for all shards."""
    window_start_s: float
    """Where the warm-up ends: the time of its last request, or 0."""
    window_end_s: float
    """The time of the last measured request, so the window holds ``requests`` gaps."""
    part: tuple[int, int] = (0, 1)
    """(number of this shard, shards)."""

    def continuation(self) -> Iterator[TraceEntry]:
        """Yield the same traffic after the window, without end: load for the stragglers."""
        return self._mine(itertools.islice(_draw(self.demand, self), self.warmup_requests + self.requests, None))

    def shard(self, number: int, shards: int) -> Trace:
        """Return the part of an unsharded trace that process ``number`` of ``shards`` sends."""
        if self.part != (0, 1) or not 0 <= number < shards:
            raise ValueError(f"shard {number} of {shards} of a trace that is part {self.part}: shard the whole once")
        mine = tuple(entry for entry in self.entries if entry.index % shards == number)
        return replace(self, entries=mine, part=(number, shards))

    @property
    def window_s(self) -> float:
        """Seconds of the measured window as planned."""
        return self.window_end_s - self.window_start_s

    def _mine(self, entries: Iterator[TraceEntry]) -> Iterator[TraceEntry]:
        number, shards = self.part
        return (entry for entry in entries if entry.index % shards == number)


def build_trace(demand: Demand, *, rate: float, seed: int, requests: int, warmup_requests: int = 0) -> Trace:
    """Draw the trace of one run.

    Args:
        demand: What arrives; its own ``peak_rate`` is not used.
        rate: Requests per second that this one server gets.
        seed: Selects gaps, prompts, lengths and nonces. Use another one for each run.
        requests: Measured requests, 1 or more.
        warmup_requests: Requests before them that are sent and forgotten.

    Raises:
        DemandError: the demand or an argument makes no traffic.
    """
    if seed < 0:
        raise DemandError(f"seed is {seed}: it must be 0 or above")
    _check(demand, rate, requests, warmup_requests)
    plan = _Plan(seed, rate, requests, warmup_requests)
    entries = tuple(itertools.islice(_draw(demand, plan), warmup_requests + requests))
    return Trace(
        demand=demand,
        seed=seed,
        rate=rate,
        requests=requests,
        warmup_requests=warmup_requests,
        entries=entries,
        hash=_hash(demand, entries),
        window_start_s=entries[warmup_requests - 1].at_s if warmup_requests else 0.0,
        window_end_s=entries[-1].at_s,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    seed: int
    rate: float
    requests: int
    warmup_requests: int


def _check(demand: Demand, rate: float, requests: int, warmup_requests: int) -> None:
    if not (math.isfinite(rate) and rate > 0):
        raise DemandError(f"rate is {rate}: it must be above 0 requests per second")
    if requests < 1 or warmup_requests < 0:
        raise DemandError(f"requests is {requests}, warmup_requests {warmup_requests}: measure at least 1 request")
    if (demand.synthetic is None) == (not demand.prompts):
        raise DemandError("a demand needs exactly one of synthetic and prompts")
    if demand.output_tokens < 1:
        raise DemandError(f"output_tokens is {demand.output_tokens}: ask for at least 1 token")
    arrivals = demand.arrivals
    if arrivals.process == "gamma" and not (math.isfinite(arrivals.burstiness) and arrivals.burstiness > 0):
        raise DemandError(f"burstiness is {arrivals.burstiness}: it must be above 0 (1 is Poisson, below 1 burstier)")
    if arrivals.process == "replay":
        count = len(arrivals.offsets_s)
        if count < 2 or arrivals.offsets_s[-1] <= arrivals.offsets_s[0]:
            raise DemandError(f"offsets_s holds {count} arrivals: a replay needs at least 2 at different times")
        for name, counts in (("input_tokens", arrivals.input_tokens), ("output_tokens", arrivals.output_tokens)):
            if counts and len(counts) != count:
                raise DemandError(f"{name} holds {len(counts)} values for {count} arrivals: one each, or none")


def _draw(demand: Demand, plan: _Plan | Trace) -> Iterator[TraceEntry]:
    """Yield the entries of a seed, without end."""
    gaps = _gaps(demand.arrivals, plan.seed)
    groups = _groups(demand, plan)
    lengths = _lengths(demand, plan.seed)
    prompt_ids = _prompt_ids(demand, plan.seed)
    replayed_in, replayed_out = _replayed(demand.arrivals, plan.seed)
    least = demand.synthetic.shared_prefix_tokens + 1 if demand.synthetic else 1
    unit = 0.0
    for index, nonce in enumerate(_blocks(plan.seed, _NONCES, _bits)):
        unit += next(gaps)
        prompt_id = next(prompt_ids) if prompt_ids else index
        length = None
        if lengths is not None:
            length = next(lengths)
            if replayed_in:
                length = max(least, next(replayed_in))
        wanted = next(replayed_out) if replayed_out else demand.output_tokens
        if prompt_ids:
            wanted = demand.prompts[prompt_id].max_tokens or wanted
        yield TraceEntry(
            index=index,
            unit_s=unit,
            at_s=unit / plan.rate,
            prompt_id=prompt_id,
            prefix_group=next(groups) if groups else None,
            input_tokens=length,
            max_tokens=wanted,
            nonce=int(nonce),
            warmup=index < plan.warmup_requests,
        )


def _blocks(seed: int, stream: int, draw: Callable[[np.random.Generator], NDArray[np.generic]]) -> Iterator[float]:
    for block in itertools.count():
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, block)))
        yield from draw(rng).tolist()


def _bits(rng: np.random.Generator) -> NDArray[np.generic]:
    return rng.integers(0, 2**63, size=_BLOCK)


def _gaps(arrivals: Arrivals, seed: int) -> Iterator[float]:
    """Yield gaps with a mean of 1."""
    if arrivals.process == "constant":
        return itertools.repeat(1.0)
    if arrivals.process == "replay":
        offsets = arrivals.offsets_s
        mean = (offsets[-1] - offsets[0]) / (len(offsets) - 1)
        # Round and round: from the last arrival back to the first it takes one mean gap.
        recorded = [mean, *(later - earlier for earlier, later in itertools.pairwise(offsets))]
        return _circle([gap / mean for gap in recorded], seed)
    shape = arrivals.burstiness if arrivals.process == "gamma" else 1.0

    def draw(rng: np.random.Generator) -> NDArray[np.generic]:
        return rng.exponential(size=_BLOCK) if shape == 1 else rng.gamma(shape, 1 / shape, size=_BLOCK)

    return _blocks(seed, _GAPS, draw)


def _replayed(arrivals: Arrivals, seed: int) -> tuple[Iterator[int] | None, Iterator[int] | None]:
    if arrivals.process != "replay":
        return None, None
    return (
        _circle(arrivals.input_tokens, seed) if arrivals.input_tokens else None,
        _circle(arrivals.output_tokens, seed) if arrivals.output_tokens else None,
    )


def _circle(recorded: Sequence[_T], seed: int) -> Iterator[_T]:
    """Yield a recording from a place that the seed selects, round and round: runs differ, order is kept."""
    start = int(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_GAPS,))).integers(len(recorded)))
    return itertools.cycle(itertools.chain(recorded[start:], recorded[:start]))


def _groups(demand: Demand, plan: _Plan | Trace) -> Iterator[int] | None:
    """Yield prefix groups by popularity; the warm-up meets each group once before it meets any twice."""
    synthetic = demand.synthetic
    if synthetic is None or not synthetic.shared_prefix_tokens:
        return None
    if synthetic.prefix_groups < 1:
        raise DemandError(f"prefix_groups is {synthetic.prefix_groups}: it must be at least 1")
    weights = np.arange(1, synthetic.prefix_groups + 1, dtype=np.float64) ** -synthetic.zipf_exponent
    limits = np.cumsum(weights) / weights.sum()

    def popular() -> Iterator[int]:
        def draw(rng: np.random.Generator) -> NDArray[np.generic]:
            chosen = np.searchsorted(limits, rng.random(_BLOCK), side="right")
            return np.minimum(chosen, synthetic.prefix_groups - 1)

        return (int(group) for group in _blocks(plan.seed, _GROUPS, draw))

    # The most popular ones first: where the warm-up is shorter than the list, the rare ones stay cold.
    covered = min(plan.warmup_requests, synthetic.prefix_groups)
    return itertools.chain(range(covered), itertools.islice(popular(), covered, None))


def _lengths(demand: Demand, seed: int) -> Iterator[int] | None:
    if demand.synthetic is None:
        return None
    lengths = PromptLengths.of(demand.synthetic)
    return (int(length) for length in _blocks(seed, _LENGTHS, lambda rng: lengths.at(rng.random(_BLOCK))))


def _prompt_ids(demand: Demand, seed: int) -> Iterator[int] | None:
    """Yield every prompt once in random order, then again in another order."""
    count = len(demand.prompts)
    if not count:
        return None

    def rounds() -> Iterator[int]:
        for number in itertools.count():
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_ORDER, number)))
            yield from rng.permutation(count).tolist()

    return rounds()


def _hash(demand: Demand, entries: tuple[TraceEntry, ...]) -> str:
    digest = hashlib.sha256(demand_identity(demand).encode())
    for entry in entries:
        digest.update(
            f"{entry.unit_s.hex()} {entry.prompt_id} {entry.prefix_group} {entry.input_tokens} "
            f"{entry.max_tokens} {entry.nonce} {entry.warmup}\n".encode()
        )
    return digest.hexdigest()[:16]
