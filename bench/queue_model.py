"""Trials of a llama-server as a discrete-event model: thousands of them on one core, and the truth beside them.

One server serves all runs of a trial one after the other, as in a sandbox: it starts with idle slots, each run brings
prefixes of its own that every slot is shown first, then a warm-up, then the window. Arrivals are the product's own
traces. The scheduler is the one that tests and ``bench.search_space`` use (``tests.simulator.scheduler``); 250 steps of
a request cost it a few microseconds. The truth about a rate is the share of violations on a server that runs for long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotune.llama.candidate import Candidate
from slotune.load.demand import Arrivals, Demand, SyntheticPrompts
from slotune.load.lengths import PromptLengths
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.trace import Trace, build_trace
from slotune.verdict.promise import Promise
from tests.simulator.machine import Machine
from tests.simulator.scheduler import Served, schedule
from tests.simulator.simulate import server_for
from tests.simulator.spaces import model_8b

__all__ = ["WORKLOADS", "Boundary", "Workload", "boundary", "runs_of_a_trial", "stationary_marks"]

MODEL = model_8b("Q4_K_M")
MACHINE = Machine(bandwidth_bytes_per_s=1.6e12, prefill_tokens_per_s=10_000, memory_bytes=1 << 50)
PROMISE = Promise(ttft_s=1.0, tokens_per_second_per_user=30)
OUTPUT_TOKENS = 250
PRIMING_TOKENS = 2

_PAUSE_S = 1e5
"""Between two runs: long enough for any queue to be served."""
_NEVER_S = 1e18
_SETTLING = 2000
"""Requests after which a server that began with idle slots is in its usual state."""
_QUANTILES = 4096
_AT_ONCE = 400_000
_BATCH = 2000
"""Requests of a batch whose means are taken as independent: tens of times longer than the longest clusters."""


@dataclass(frozen=True)
class Workload:
    """A demand and the server that it meets."""

    name: str
    candidate: Candidate
    demand: Demand
    guess: float
    """Requests/s from which the boundary is sought."""


def _candidate(slots: int, *, cache: bool) -> Candidate:
    return Candidate(
        variant="Q4_K_M",
        gpu_class="gpu",
        parallel_slots=slots,
        context_per_slot=8192,
        kv_unified=True,
        batch_size=2048,
        cache_type_k="q8_0",
        cache_type_v="q8_0",
        cache_prompt=cache,
    )


def _demand(prompts: SyntheticPrompts, arrivals: Arrivals | None = None) -> Demand:
    return Demand(
        peak_rate=1.0,
        output_tokens=OUTPUT_TOKENS,
        arrivals=arrivals or Arrivals(),
        synthetic=prompts,
        input_tokens_mean=prompts.input_tokens_mean,
        input_tokens_p95=prompts.input_tokens_mean,
        input_tokens_max=prompts.input_tokens_max or prompts.input_tokens_mean,
        reusable_tokens=prompts.shared_prefix_tokens,
        identity="queue-model",
    )


_SHARED = SyntheticPrompts(4000, shared_prefix_tokens=3000)

WORKLOADS = (
    Workload("no cache, low utilisation", _candidate(16, cache=False), _demand(SyntheticPrompts(4000)), 0.81),
    Workload("shared prefix, high utilisation", _candidate(8, cache=True), _demand(_SHARED), 2.85),
    Workload(
        "mixed prompt lengths",
        _candidate(16, cache=False),
        _demand(SyntheticPrompts(2500, input_tokens_stddev=1500, input_tokens_max=7000)),
        1.56,
    ),
    Workload("bursty arrivals", _candidate(8, cache=True), _demand(_SHARED, Arrivals("gamma", 0.5)), 2.08),
)
"""The bursty one is the second with gaps of twice the variance (gamma, shape 0.5)."""


def runs_of_a_trial(
    workload: Workload, rate: float, seeds: Sequence[int], *, requests: int, warmup: int
) -> list[RunResult]:
    """All runs of one trial on one server, a seed each, without any curtailment."""
    traces = [
        build_trace(workload.demand, rate=rate, seed=seed, requests=requests, warmup_requests=warmup) for seed in seeds
    ]
    arrivals = _Arrivals()
    begins = [arrivals.add(trace, number, workload) for number, trace in enumerate(traces)]
    served = arrivals.serve(workload)
    return [
        _run(trace, served, begin, arrivals.times[begin] - trace.entries[0].at_s)
        for trace, begin in zip(traces, begins, strict=True)
    ]


def stationary_marks(workload: Workload, rate: float, requests: int, seed: int) -> NDArray[np.bool_]:
    """Which of so many requests in a row broke the promise, once the server is in its usual state."""
    arrivals = _Arrivals()
    arrivals.draw(workload, rate, requests + _SETTLING, np.random.default_rng(seed))
    served = arrivals.serve(workload)
    begin = _SETTLING
    first = np.array(served.first[begin:], dtype=np.float64)
    last = np.array(served.last[begin:], dtype=np.float64)
    late = first - np.array(arrivals.times[begin:]) > PROMISE.ttft_s
    speed = PROMISE.tokens_per_second_per_user
    assert speed is not None
    return np.asarray(late | ((last - first) * speed > OUTPUT_TOKENS - 1))


@dataclass(frozen=True)
class Boundary:
    """The rate at which exactly the promised share of requests are violations."""

    rate: float
    standard_error: float
    """Of the rate, from ``share_error`` and the slope of the share."""
    share_error: float
    """Of the share of violations at that rate, from batch means."""


def boundary(workload: Workload, requests: int, seed: int = 1) -> Boundary:
    """Find it: roughly on a tenth of ``requests`` by steps in logarithms, then one last step on all of them."""
    target = math.log(PROMISE.violation_share)
    rate, step = workload.guess, 0.03
    few = max(_BATCH, requests // 10)

    def log_share(at: float) -> float:
        return math.log(max(1, int(stationary_marks(workload, at, few, seed).sum())) / few)

    here = log_share(rate)
    slope = (log_share(rate * (1 + step)) - here) / math.log1p(step)
    for _ in range(3):
        moved = rate * math.exp((target - here) / slope)
        if abs(moved / rate - 1) < 1e-3:
            break
        rate, here = moved, log_share(moved)
    batches = np.concatenate(
        [
            stationary_marks(workload, rate, size, seed + 1 + number).reshape(-1, _BATCH).mean(axis=1)
            for number, size in enumerate(_portions(requests // _BATCH * _BATCH))
        ]
    )
    share, error = float(batches.mean()), float(batches.std(ddof=1)) / math.sqrt(batches.size)
    rate *= math.exp((target - math.log(share)) / slope)
    return Boundary(rate, rate * error / share / slope, error)


def _portions(requests: int) -> list[int]:
    """So many at once that they stay in memory."""
    return [min(_AT_ONCE, requests - begun) for begun in range(0, requests, _AT_ONCE)]


class _Arrivals:
    """Everything that one server is sent, in order of time."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.prompts: list[int] = []
        self.outputs: list[int] = []
        self.groups: list[int] = []

    def add(self, trace: Trace, number: int, workload: Workload) -> int:
        """Append run ``number``, priming first; answers the position of its first request."""
        synthetic = workload.demand.synthetic
        assert synthetic is not None
        groups = synthetic.prefix_groups
        at = self.times[-1] + _PAUSE_S if self.times else 0.0
        if workload.candidate.cache_prompt and synthetic.shared_prefix_tokens:
            for slot, entry in zip(range(workload.candidate.parallel_slots), trace.continuation(), strict=False):
                del slot
                self._send(at, entry.input_tokens, PRIMING_TOKENS, number * groups + (entry.prefix_group or 0))
            at += _PAUSE_S
        begin = len(self.times)
        for entry in trace.entries:
            self._send(
                at + entry.at_s, entry.input_tokens, entry.max_tokens, number * groups + (entry.prefix_group or 0)
            )
        return begin

    def draw(self, workload: Workload, rate: float, requests: int, rng: np.random.Generator) -> None:
        """One long crowd of the demand, all at once: a trace is drawn entry by entry, nonces and all."""
        demand, synthetic = workload.demand, workload.demand.synthetic
        assert synthetic is not None
        shape = demand.arrivals.burstiness if demand.arrivals.process == "gamma" else 1.0
        lengths = PromptLengths.of(synthetic).at((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        weights = np.arange(1.0, synthetic.prefix_groups + 1) ** -synthetic.zipf_exponent
        self.times = np.cumsum(rng.gamma(shape, 1 / (shape * rate), requests)).tolist()
        self.prompts = lengths[rng.integers(_QUANTILES, size=requests)].tolist()
        self.outputs = [demand.output_tokens] * requests
        self.groups = rng.choice(synthetic.prefix_groups, requests, p=weights / weights.sum()).tolist()

    def serve(self, workload: Workload) -> Served:
        """What became of each, at the times of the server."""
        synthetic = workload.demand.synthetic
        assert synthetic is not None
        return schedule(
            server_for(workload.candidate, MODEL, MACHINE),
            [time + MACHINE.request_overhead_s for time in self.times],
            self.prompts,
            self.outputs,
            self.groups,
            synthetic.shared_prefix_tokens,
            sample_every_s=_NEVER_S,
        )

    def _send(self, at: float, prompt: int | None, output: int, group: int) -> None:
        assert prompt is not None
        self.times.append(at)
        self.prompts.append(prompt)
        self.outputs.append(output)
        self.groups.append(group)


def _run(trace: Trace, served: Served, begin: int, offset: float) -> RunResult:
    records = []
    for entry in trace.entries[trace.warmup_requests :]:
        first, last = served.first[begin + entry.index], served.last[begin + entry.index]
        assert first is not None
        assert last is not None
        records.append(
            RequestRecord(
                index=entry.index,
                prompt_id=entry.prompt_id,
                scheduled_s=entry.at_s,
                status=RequestStatus.OK,
                sent_s=entry.at_s,
                first_token_s=first - offset,
                last_token_s=last - offset,
                finished_s=last - offset,
                output_tokens=entry.max_tokens,
            )
        )
    return RunResult(
        seed=trace.seed,
        rate=trace.rate,
        records=records,
        trace_hash=trace.hash,
        warmup_requests=trace.warmup_requests,
        window_s=trace.window_s,
    )
