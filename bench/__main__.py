"""Runs benchmarks by name, each in a process of its own: what one leaves in memory must not count against the next."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from bench import NOT_RUN

ROOT = Path(__file__).resolve().parent.parent

BENCHES = {
    "startup": "how long the command line takes to answer",
    "log_reading": "how long a log of a gigabyte takes to read, and how much memory",
    "memory_prediction": "predicted against allocated memory, on a real engine",
    "search_space": "accelerator minutes that five searches spend on one simulated space",
    "recorded_grid": "minutes and regret of several searches on spaces that a real engine measured as a whole",
    "false_promotion": "how often a configuration that just misses the promise is promoted, and one with room is",
    "load_client": "how late the load client sees a token, at known times",
    "peers": "errors and costs of slotune's load client and of three others, on one server with known times",
    "repeatability": "whether the demo, tuned three times in a row, gets one answer",
    "diagnose_url": "how long a look at a running server takes, alone and while it works",
    "fleet": "how the operator carries a thousand LlamaDeployments on a real API server",
}


def run(name: str) -> int:
    """The exit status of one benchmark: 0 when each of its figures met its target."""
    entry = f"import sys; from bench.{name} import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", entry], cwd=ROOT, check=False).returncode


def main() -> int:
    """Runs the named benchmarks, or all, and tells at the end which missed a target."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run benchmarks and print their tables.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--list", action="store_true", help="list them and stop")
    arguments = parser.parse_args()
    if arguments.list:
        for name, what in BENCHES.items():
            print(f"{name:<18} {what}")
        return 0
    if unknown := [name for name in arguments.names if name not in BENCHES]:
        parser.error(f"no benchmark called {', '.join(unknown)}: there are {', '.join(BENCHES)}")
    missed = []
    for name in arguments.names or BENCHES:
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        started = time.perf_counter()
        status = run(name)
        outcome = {0: "every target met", NOT_RUN: "not run"}.get(status, "MISSED")
        print(f"== {name}: {outcome}, {time.perf_counter() - started:.0f} s")
        if status and (status != NOT_RUN or arguments.names):
            missed.append(name)
    if missed:
        print(f"\nmissed a target or failed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
