"""How lucky the crowd was: part of a violation share's noise is known, since we drew the arrivals ourselves.

Whether five or nine of a hundred requests are late depends above all on how they happened to come. So the very
arrivals of the runs, warm-up included, are sent through a virtual queue: one server, first come first served, with
work in proportion to the prompt. Its speed is set so that it is late as often as the real server was on these
arrivals; how late it is on thousands of other crowds of the same demand is then what the real one would have shown
with a crowd as it is on average. The virtual queue need not be right: over more and more runs its own luck vanishes
and the plain share is left. It need only be late at the same moments, and where it is not (blocks of requests
correlate less than :data:`LEAST_CORRELATION`), nothing is taken from it.

A control variate, e.g. Law, *Simulation Modeling and Analysis*, 5th ed. (2015), §11.4; in place of a linear
coefficient the speed is fitted. The queue is Lindley's recursion (1952), the error a jackknife over runs
(Tukey 1958). Pure: the other crowds are drawn from a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from slotune.load.demand import Arrivals, Demand, SyntheticPrompts
from slotune.load.lengths import PromptLengths
from slotune.load.records import RunResult
from slotune.load.trace import build_trace
from slotune.verdict.promise import Promise

__all__ = ["Averaged", "average_crowd"]

LEAST_CORRELATION = 0.5
"""Below it the difference of two equally noisy shares is noisier than either alone."""
BLOCK = 25
"""Requests of a block: a crowded moment and a quiet one hold some tens."""
FEWEST_BLOCKS = 20
FEWEST_RUNS = 4
"""Fewer runs leave the jackknife without a meaning; small trials are judged by their plain share."""
CROWDS = 10_000
"""Other crowds: the mean of their shares is known to a hundredth of its own size near saturation."""

_SERVICES = np.geomspace(1.5, 0.02, 32)
"""Mean service times that are tried, in parts of the promised TTFT, slowest first."""
_QUANTILES = 1024

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Averaged:
    """What the runs would have shown with a crowd as it is on average."""

    share: float
    """Violations over requests, above 0 and below 1."""
    standard_error: float
    """Above 0."""
    run_shares: tuple[float, ...]
    """One value per run whose mean has that error (pseudo-values of the jackknife; some may lie below 0)."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What all runs of a trial have in common."""

    rate: float
    warmup: int
    requests: int
    """Measured ones of a run."""


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """Crowds side by side: axis 0 is the request, axis 1 the crowd."""

    gaps: Floats
    """Seconds since the request before."""
    work: Floats
    """Around 1."""


def average_crowd(
    runs: Sequence[RunResult], marks: Sequence[Sequence[bool]], demand: Demand, promise: Promise
) -> Averaged | None:
    """The share of violations without the luck of the crowd.

    ``marks`` say for each request of each run whether it was a violation. None where nothing can be said: arrivals
    that are recorded or constant, runs that were cut short or sent another trace than ``demand`` and their seed
    make, too few of them, no violation, or violations at other moments than the virtual queue's.
    """
    if demand.arrivals.process not in ("poisson", "gamma") or len(runs) < FEWEST_RUNS:
        return None
    shapes = {_Shape(run.rate, run.warmup_requests, len(one)) for run, one in zip(runs, marks, strict=True)}
    if len(shapes) > 1 or any(run.stopped_early for run in runs) or not any(map(any, marks)):
        return None
    [shape] = shapes
    real = np.array(marks, dtype=np.float64).T
    if len(runs) * (shape.requests // BLOCK) < FEWEST_BLOCKS:
        return None
    arrivals = _arrivals_of(runs, demand, shape)
    if arrivals is None:
        return None
    late = _late(arrivals, shape.warmup, promise.ttft_s)
    expected = _expected(demand.arrivals, demand.synthetic, shape, promise.ttft_s)
    shares, virtual = real.mean(axis=0), late.mean(axis=1)
    nearest = int(np.argmin(np.abs(virtual.mean(axis=1) - shares.mean())))
    if _correlation(real, late[nearest]) < LEAST_CORRELATION:
        return None
    return _jackknife(shares, virtual, expected)


def _arrivals_of(runs: Sequence[RunResult], demand: Demand, shape: _Shape) -> _Arrivals | None:
    """What was sent, drawn again; None when a run says that it sent something else."""
    mean, prefix = _mean_work(demand.synthetic)
    gaps, work = [], []
    for run in runs:
        trace = build_trace(
            demand, rate=shape.rate, seed=run.seed, requests=shape.requests, warmup_requests=shape.warmup
        )
        if trace.hash != run.trace_hash:
            return None
        gaps.append(np.diff([entry.at_s for entry in trace.entries], prepend=0.0))
        lengths = [mean + prefix if entry.input_tokens is None else entry.input_tokens for entry in trace.entries]
        work.append((np.array(lengths, dtype=np.float64) - prefix) / mean)
    return _Arrivals(np.array(gaps).T, np.array(work).T)


def _mean_work(synthetic: SyntheticPrompts | None) -> tuple[float, int]:
    """(mean of the tokens that differ between prompts, tokens of the prefix); prompts of unknown length count alike."""
    if synthetic is None:
        return 1.0, 0
    return float(synthetic.input_tokens_mean - synthetic.shared_prefix_tokens), synthetic.shared_prefix_tokens


def _late(arrivals: _Arrivals, warmup: int, ttft_s: float) -> NDArray[np.bool_]:
    """Whether the virtual queue is late: axes are service time, request behind the warm-up, crowd."""
    gaps, service = arrivals.gaps, (ttft_s * _SERVICES)[:, None]
    late = np.empty((_SERVICES.size, gaps.shape[0] - warmup, gaps.shape[1]), dtype=bool)
    backlog = np.zeros((_SERVICES.size, gaps.shape[1]))
    for i, gap in enumerate(gaps):
        backlog -= gap
        np.maximum(backlog, 0.0, out=backlog)
        backlog += service * arrivals.work[i]
        if i >= warmup:
            np.greater(backlog, ttft_s, out=late[:, i - warmup])
    return late


@lru_cache(maxsize=16)
def _expected(arrivals: Arrivals, synthetic: SyntheticPrompts | None, shape: _Shape, ttft_s: float) -> Floats:
    """Share of late requests for each service time, over many crowds of this demand."""
    rng = np.random.default_rng(0)
    length = shape.warmup + shape.requests
    burstiness = arrivals.burstiness if arrivals.process == "gamma" else 1.0
    counts = np.zeros(_SERVICES.size)
    mean, prefix = _mean_work(synthetic)
    table = np.ones(1)
    if synthetic is not None:
        lengths = PromptLengths.of(synthetic).at((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        table = (lengths.astype(np.float64) - prefix) / mean
    at_once = 500
    for _ in range(CROWDS // at_once):
        gaps = rng.gamma(burstiness, 1 / (burstiness * shape.rate), size=(length, at_once))
        work = table[rng.integers(table.size, size=(length, at_once))]
        counts += _late(_Arrivals(gaps, work), shape.warmup, ttft_s).sum(axis=(1, 2))
    return counts / (CROWDS * shape.requests)


def _correlation(real: Floats, late: NDArray[np.bool_]) -> float:
    """Of blocks of requests, over all runs: -1..1; 0 when the virtual queue was never or always late."""
    blocks = real.shape[0] // BLOCK
    pairs = [
        side[: blocks * BLOCK].reshape(blocks, BLOCK, -1).sum(axis=1).ravel()
        for side in (real, late.astype(np.float64))
    ]
    if any(side.std() == 0 for side in pairs):
        return 0.0
    return float(np.corrcoef(*pairs)[0, 1])


def _jackknife(shares: Floats, virtual: Floats, expected: Floats) -> Averaged | None:
    """``shares`` by run; ``virtual`` by service time and run; ``expected`` by service time."""
    runs = shares.size
    whole = _matched(float(shares.mean()), virtual.mean(axis=1), expected)
    values = []
    for left_out in range(runs):
        others = np.arange(runs) != left_out
        without = _matched(float(shares[others].mean()), virtual[:, others].mean(axis=1), expected)
        values.append(runs * whole - (runs - 1) * without)
    error = stdev(values) / math.sqrt(runs)
    if error <= 0 or not 0 < whole < 1:
        return None
    return Averaged(whole, error, tuple(value - fmean(values) + whole for value in values))


def _matched(share: float, virtual: Floats, expected: Floats) -> float:
    """The expected share at the service time with which the virtual queue is late as often as was seen."""
    return float(np.interp(share, virtual[::-1], expected[::-1]))
