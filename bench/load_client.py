"""How wrong is the load client? It reports on a server whose times are known.

The mock sends its first token 200 ms after a request and 64 tokens 20 ms apart, from a process of its own.
The client runs in one process, at each rate for 20 s. Goals: p95 TTFT error at most 5 ms at 50 requests/s (3,200
chunks/s) and 15 ms at 200 requests/s (13,000 chunks/s), under 150 MiB.

    python bench/load_client.py [--seconds 20] [--rates 50,100,200] [--chat]

Errors contain the mock's own lateness, which is printed below the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from slotune.load.client import Target, run_load
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.trace import build_trace

FIRST_S = 0.200
GAP_S = 0.020
TOKENS = 64
PROMPT_TOKENS = 500
VOCABULARY = 49152


HEADER = (
    "| requests/s | chunks/s | TTFT error p50 | p95 | p99 ms | TPOT error p95 ms | lag p99 ms | CPU s | MiB | gates |"
)

GOALS_MS = {50.0: 5.0, 200.0: 15.0}
"""Most p95 TTFT error at a rate."""
GOAL_MIB = 150


@dataclass(frozen=True)
class Row:
    """What one rate gave: milliseconds, seconds of CPU, MiB."""

    rate: float
    events_per_s: float
    ttft_error_ms: tuple[float, float, float]
    tpot_error_p95_ms: float
    lag_p99_ms: float
    cpu_s: float
    mib: float
    missed_gates: tuple[str, ...]

    @property
    def met(self) -> bool:
        """Whether the goals of this rate were met."""
        return self.ttft_error_ms[1] <= GOALS_MS.get(self.rate, float("inf")) and self.mib < GOAL_MIB

    def __str__(self) -> str:
        p50, p95, p99 = self.ttft_error_ms
        cells = [f"{self.rate:g}", f"{self.events_per_s:,.0f}", f"{p50:.1f}", f"{p95:.1f}", f"{p99:.1f}"]
        cells += [f"{self.tpot_error_p95_ms:.1f}", f"{self.lag_p99_ms:.1f}", f"{self.cpu_s:.1f}", f"{self.mib:.0f}"]
        return f"| {' | '.join([*cells, ', '.join(self.missed_gates) or 'all passed'])} |"


def main() -> int:
    """Print one row for each rate; return 0 when every goal was met."""
    parser = argparse.ArgumentParser(description="the load client against a server with known times")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rates", default="50,100,200")
    parser.add_argument("--chat", action="store_true", help="chat messages instead of token ids")
    options = parser.parse_args()
    print(HEADER + "\n" + "|---" * 10 + "|")
    rows, notes = [], []
    for rate in (float(rate) for rate in options.rates.split(",")):
        # A process for each rate, so that each has its own peak of memory.
        with mock() as (url, report), multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measure, (url, rate, options.seconds, options.chat)))
        print(rows[-1], flush=True)
        load = f"load average of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        notes.append(f"at {rate:g}/s the mock itself was late by {json.dumps(report)}; {load}")
    print("\n" + "\n".join(notes))
    return 0 if all(row.met for row in rows) else 1


@contextlib.contextmanager
def mock(*more: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the mock in its own process, with ``more`` options; its report is filled in at the end."""
    command = [sys.executable, str(Path(__file__).with_name("mock_server.py"))]
    command += ["--first-ms", str(FIRST_S * 1e3), "--gap-ms", str(GAP_S * 1e3), *more]
    report: dict[str, Any] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}", report
        finally:
            process.stdin.close()
            report.update(json.loads(process.stdout.readline()))


def measure(url: str, rate: float, seconds: float, chat: bool) -> Row:
    """Run the client for ``seconds`` at ``rate``."""
    if chat:
        prompt = Prompt(messages=({"role": "user", "content": "word " * PROMPT_TOKENS},))
        demand = Demand(peak_rate=rate, output_tokens=TOKENS, prompts=(prompt,))
    else:
        demand = Demand(peak_rate=rate, output_tokens=TOKENS, synthetic=SyntheticPrompts(PROMPT_TOKENS))
    trace = build_trace(demand, rate=rate, seed=7, requests=round(rate * seconds), warmup_requests=round(rate))
    cpu = time.process_time()
    result = uvloop.run(run_load(Target(url), trace, demand, vocabulary=VOCABULARY, deadline_s=1.0))
    cpu = time.process_time() - cpu

    def quantiles_ms(values: Iterable[float]) -> tuple[float, float, float]:
        p50, p95, p99 = np.quantile(list(values), [0.5, 0.95, 0.99]) * 1e3
        return float(p50), float(p95), float(p99)

    records = result.records
    return Row(
        rate=rate,
        events_per_s=result.window_token_events / result.window_s,
        ttft_error_ms=quantiles_ms(abs(one.ttft_s - FIRST_S) for one in records if one.ttft_s is not None),
        tpot_error_p95_ms=quantiles_ms(abs(one.tpot_s - GAP_S) for one in records if one.tpot_s is not None)[1],
        lag_p99_ms=quantiles_ms(one.sent_s - one.scheduled_s for one in records if one.sent_s is not None)[2],
        cpu_s=cpu,
        mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        missed_gates=tuple(code for code, _ in result.invalid_reasons),
    )


if __name__ == "__main__":
    sys.exit(main())
