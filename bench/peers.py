"""How wrong are load generators, and what do they cost? All of them report on one server whose times are known.

The mock sends its first token 200 ms after a request and 64 tokens 20 ms apart, and notes when it really did: what a
tool reports is held against that, so the mock's own lateness is nobody's error. At each rate slotune's client and its
peers run one after the other, each in processes of its own that are measured alike: CPU seconds and memory of the
whole tree. Goal at 100 requests/s: at most a third of the best peer's error, with half of that peer's CPU.

    python -m bench peers
    python -m bench.peers [--seconds 20] [--rates 20,50,100] [--venvs FOLDER]

Without the peers' virtual environments it says how to make them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import NOT_RUN
from bench.load_client import FIRST_S, mock
from bench.peer_tools import OURS, PEERS, TOKENS, Reported, Run, Tool, command, write_inputs
from e2e.node.places import cache_folder

GOAL_RATE = 100.0
GOAL_ERROR = 1 / 3
GOAL_CPU = 1 / 2
CARRIED = 0.9
"""A peer that reports or sends a smaller share than this had an easier task: it cannot be the best."""
SAMPLE_S = 0.25
STARTING_S = 180.0
"""Most seconds that a tool may take beside the load itself."""

HEADER = "| requests/s | client | error of p95, p99 TTFT, ms | beside 200 ms | answers | sent/s | CPU s | MiB |"


class ToolFailedError(Exception):
    """A tool ended without a report."""


@dataclass(frozen=True)
class Spent:
    """What a process and all its children took."""

    cpu_s: float
    mib: float


@dataclass(frozen=True)
class Row:
    """What one tool gave at one rate."""

    tool: Tool
    run: Run
    reported: Reported
    spent: Spent
    server: Mapping[str, Any]
    """The mock's own account."""

    @property
    def errors_ms(self) -> tuple[float, float]:
        """How far its p95 and p99 are from what the mock did."""
        did = self.server["first_ms"]
        return abs(self.reported.ttft_p95_ms - did["p95"]), abs(self.reported.ttft_p99_ms - did["p99"])

    @property
    def beside_ms(self) -> tuple[float, float]:
        """The same beside the mock's nominal 200 ms, its own lateness included."""
        return abs(self.reported.ttft_p95_ms - FIRST_S * 1e3), abs(self.reported.ttft_p99_ms - FIRST_S * 1e3)

    @property
    def carried(self) -> bool:
        """Whether it sent what it was asked to send and reports on it."""
        sent: float = self.server["requests_per_s"]
        return min(self.reported.answers / self.run.requests, sent / self.run.rate) >= CARRIED

    def __str__(self) -> str:
        cells = [f"{self.run.rate:g}", f"{self.tool.name} {self.tool.version}".strip()]
        cells += [f"{p95:.1f}, {p99:.1f}" for p95, p99 in (self.errors_ms, self.beside_ms)]
        cells += [f"{self.reported.answers:,} of {self.run.requests:,}", f"{self.server['requests_per_s']:.1f}"]
        return f"| {' | '.join([*cells, f'{self.spent.cpu_s:.1f}', f'{self.spent.mib:.0f}'])} |"


def main() -> int:
    """Print a row for each tool and rate; return 0 when the goals were met."""
    parser = argparse.ArgumentParser(description="load generators against a server with known times")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rates", default="20,50,100")
    default = Path(os.environ.get("SLOTUNE_PEERS") or cache_folder() / "peers")
    parser.add_argument("--venvs", type=Path, default=default, help="folder of the peers' virtual environments")
    options = parser.parse_args()
    if missing := [tool for tool in PEERS if not tool.program(options.venvs).exists()]:
        print(f"Not installed in {options.venvs}: {', '.join(tool.name for tool in missing)}. Get them with\n")
        print("\n".join(f"    {line}" for tool in missing for line in tool.installation(options.venvs)))
        return NOT_RUN
    print(f"{HEADER}\n{'|---' * 8}|")
    rows, failures = [], []
    with tempfile.TemporaryDirectory(prefix="slotune-peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_inputs(folder)
        for turn, rate in enumerate(float(rate) for rate in options.rates.split(",")):
            tools = (OURS, *PEERS)
            for tool in (*tools[turn:], *tools[:turn]):  # nobody is always the first
                try:
                    rows.append(measure(tool, rate, options.seconds, folder, options.venvs))
                    print(rows[-1], flush=True)
                except ToolFailedError as error:
                    failures.append(str(error))
                    print(f"| {rate:g} | {tool.name} | failed |", flush=True)
    print()
    for row in rows:
        print(f"{row.tool.name} at {row.run.rate:g}/s: the mock was late by {json.dumps(row.server['late_ms'])} ms")
    print(f"\nload average of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", *failures, sep="\n")
    return 0 if judge([row for row in rows if row.run.rate == GOAL_RATE]) and not failures else 1


def judge(rows: Sequence[Row]) -> bool:
    """Say how ours compares at the goal's rate; true when it met the goals. Each percentile has its best peer."""
    ours = next((row for row in rows if row.tool is OURS), None)
    peers = [row for row in rows if row.tool is not OURS and row.carried]
    if ours is None or not peers:
        print(f"nothing to compare at {GOAL_RATE:g} requests/s")
        return False
    met = ours.carried
    for which, name in enumerate(("p95", "p99")):
        best = min(peers, key=lambda row: row.errors_ms[which])
        errors, cpus = (ours.errors_ms[which], best.errors_ms[which]), (ours.spent.cpu_s, best.spent.cpu_s)
        reached = errors[0] <= GOAL_ERROR * errors[1] and cpus[0] <= GOAL_CPU * cpus[1]
        print(
            f"{name}: error {errors[0]:.1f} ms, of {best.tool.name} {errors[1]:.1f} ms: {errors[0] / errors[1]:.2f} "
            f"(goal {GOAL_ERROR:.2f}); CPU {cpus[0]:.1f} s against {cpus[1]:.1f} s: {cpus[0] / cpus[1]:.2f} "
            f"(goal {GOAL_CPU:.2f}){'' if reached else ': MISSED'}"
        )
        met = met and reached
    return met


def measure(tool: Tool, rate: float, seconds: float, inputs: Path, venvs: Path) -> Row:
    """Run one tool against a fresh mock.

    Raises:
        ToolFailedError: it failed, took too long, or left no report that can be read.
    """
    folder = inputs / f"{tool.name}-{rate:g}"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    private = ("HOME", "TMPDIR", "HF_HOME", "XDG_CACHE_HOME")  # what they leave behind goes with the folder
    environment |= {**dict.fromkeys(private, str(folder)), "PYTHONPATH": str(inputs / "no_collector")}
    environment |= {"DO_NOT_TRACK": "1", **tool.environment}
    with mock("--tokens", str(TOKENS), "--skip", str(round(rate))) as (url, server):
        run = Run(url, rate, seconds, inputs, folder)
        spent = run_measured(command(tool, run, venvs), folder, environment, seconds + STARTING_S)
    try:
        return Row(tool, run, tool.read(folder), spent, server)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ToolFailedError(f"{tool.name} left no report ({error!r}). {tail(folder)}") from error


def run_measured(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float) -> Spent:
    """Run a command and add up what its session of processes takes.

    CPU time is what the kernel counted for children that were waited for, or what was seen of them all while they
    ran, if that is more. Memory that processes share is counted once.

    Raises:
        ToolFailedError: another exit status than 0, or not done within ``limit_s``.
    """
    deadline = time.monotonic() + limit_s
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen_cpu_s: dict[int, float] = {}
    peak = 0.0
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            while process.poll() is None and time.monotonic() < deadline:
                peak = max(peak, sample(process.pid, seen_cpu_s))
                time.sleep(SAMPLE_S)  # between two samples; it waits for nothing
            ended = process.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if ended != 0:
        how = f"is not done after {limit_s:g} s" if ended is None else f"ended with {ended}"
        raise ToolFailedError(f"{Path(arguments[0]).name} {how}. {tail(folder)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited_for = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(max(waited_for, sum(seen_cpu_s.values())), peak)


def sample(session: int, cpu_s: dict[int, float]) -> float:
    """Note the CPU seconds of each process of a session; return their memory in MiB."""
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    own, shared = 0, [0]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            resident, mapped = map(int, (folder / "statm").read_text().split()[1:3])
        except (FileNotFoundError, ProcessLookupError):
            continue
        cpu_s[int(folder.name)] = (int(fields[11]) + int(fields[12])) / tick
        own += resident - mapped
        shared.append(mapped)
    return (own + max(shared)) * page / 2**20


def tail(folder: Path) -> str:
    """The end of what a tool printed."""
    return (folder / "output.txt").read_text(errors="replace")[-500:].strip()


if __name__ == "__main__":
    sys.exit(main())
