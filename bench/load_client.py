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
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
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


def main() -> None:
    """Print one row for each rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rates", default="50,100,200")
    parser.add_argument("--chat", action="store_true", help="chat messages instead of token ids")
    options = parser.parse_args()
    columns = [
        "requests/s",
        "chunks/s",
        "TTFT error p50",
        "p95",
        "p99 ms",
        "TPOT error p95 ms",
        "lag p99 ms",
        "CPU s",
        "MiB",
        "gates",
    ]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    notes = []
    for rate in (float(rate) for rate in options.rates.split(",")):
        with mock() as (url, report):
            # A process for each rate, so that each has its own peak of memory.
            context = multiprocessing.get_context("spawn")
            with context.Pool(1) as pool:
                row = pool.apply(measure, (url, rate, options.seconds, options.chat))
        print(row)
        notes.append(f"mock at {rate:g}/s: {json.dumps(report)}")
    print("\n" + "\n".join(notes))


@contextlib.contextmanager
def mock() -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the mock in its own process; its report is filled in at the end."""
    command = [sys.executable, str(Path(__file__).with_name("mock_server.py"))]
    command += ["--first-ms", str(FIRST_S * 1e3), "--gap-ms", str(GAP_S * 1e3)]
    report: dict[str, Any] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}", report
        finally:
            process.stdin.close()
            report.update(json.loads(process.stdout.readline()))


def measure(url: str, rate: float, seconds: float, chat: bool) -> str:
    """Run the client for ``seconds`` at ``rate`` and return its row."""
    if chat:
        prompt = Prompt(messages=({"role": "user", "content": "word " * PROMPT_TOKENS},))
        demand = Demand(peak_rate=rate, output_tokens=TOKENS, prompts=(prompt,))
    else:
        demand = Demand(peak_rate=rate, output_tokens=TOKENS, synthetic=SyntheticPrompts(PROMPT_TOKENS))
    trace = build_trace(demand, rate=rate, seed=7, requests=round(rate * seconds), warmup_requests=round(rate))
    cpu = time.process_time()
    result = uvloop.run(run_load(Target(url), trace, demand, vocabulary=VOCABULARY, deadline_s=1.0))
    cpu = time.process_time() - cpu

    def quantiles(values: list[float]) -> list[str]:
        return [f"{value * 1e3:.1f}" for value in np.quantile(values, [0.5, 0.95, 0.99])]

    ttft = quantiles([abs(record.ttft_s - FIRST_S) for record in result.records if record.ttft_s is not None])
    tpot = quantiles([abs(record.tpot_s - GAP_S) for record in result.records if record.tpot_s is not None])
    lag = quantiles([record.sent_s - record.scheduled_s for record in result.records if record.sent_s is not None])
    events = result.window_token_events / result.window_s
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    missed = ", ".join(code for code, _ in result.invalid_reasons) or "all passed"
    return (
        f"| {rate:g} | {events:,.0f} | {ttft[0]} | {ttft[1]} | {ttft[2]} | {tpot[1]} | {lag[2]} | {cpu:.1f} | "
        f"{memory:.0f} | {missed} |"
    )


if __name__ == "__main__":
    main()
