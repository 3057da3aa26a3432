"""How long it takes to look at a running llama-server: alone, while it works, and as the whole command.

A real engine with the demo's model runs meanwhile. At work it reads one long prompt after another and answers, so that
/slots and /metrics wait for decodes as in production; on a machine with few cores the look competes with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from bench.demo_model import demo_model
from slotune.gathering.server import look_at
from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.flags import to_args
from slotune.sandbox.process import HOST, LlamaProcess, new_alias

SLOTUNE = Path(sys.executable).with_name("slotune")
RUNS = 7
LIMIT_S = 2.0
PROMPT_TOKENS = 1500
VOCABULARY = 49152
"""Of SmolLM2."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock seconds of one thing over several runs."""

    what: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The run in the middle: one that was disturbed does not move it."""
        return statistics.median(self.seconds)


async def time_looks(what: str, url: str) -> Timing:
    """Time :func:`look_at`, once unmeasured and then `RUNS` times."""
    seconds = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        look = await look_at(url, None)
        seconds.append(time.perf_counter() - began)
        if look.refused:
            raise RuntimeError(f"the server did not show everything: {dict(look.refused)}")
    return Timing(what, tuple(seconds[1:]))


async def time_command(what: str, url: str) -> Timing:
    """Time the whole ``slotune diagnose --url``, start to end, once unmeasured and then `RUNS` times."""
    seconds = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            SLOTUNE, "diagnose", "--url", url, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _, said = await process.communicate()
        seconds.append(time.perf_counter() - began)
        if process.returncode != 0:
            raise RuntimeError(f"slotune diagnose ended with {process.returncode}: {said.decode(errors='replace')}")
    return Timing(what, tuple(seconds[1:]))


@asynccontextmanager
async def at_work(url: str) -> AsyncIterator[None]:
    """One request after another runs on the server meanwhile."""

    async def work() -> None:
        number = 0
        async with aiohttp.ClientSession() as session:
            while True:
                number += 1
                ids = [
                    (number * 7919 + place * 104729) % (VOCABULARY // 2) + VOCABULARY // 4
                    for place in range(PROMPT_TOKENS)
                ]
                body = {"prompt": ids, "n_predict": 64, "ignore_eos": True}
                async with session.post(f"{url}/completion", json=body) as response:
                    await response.read()

    task = asyncio.create_task(work())
    try:
        await asyncio.sleep(0.2)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def measure(folder: Path) -> list[Timing]:
    """All timings, on a server that is started for them."""
    candidate = Candidate(
        "demo", "cpu", parallel_slots=2, context_per_slot=2048, batch_size=512, ubatch_size=256, threads=1
    )
    alias = new_alias()
    arguments = to_args(candidate, model_path=str(demo_model()), host=HOST, port=0, alias=alias)
    async with LlamaProcess(find_engine("embedded"), arguments, directory=folder, alias=alias) as process:
        url = process.base_url
        timings = [await time_looks("a look, server idle", url)]
        timings.append(await time_command("slotune diagnose --url, server idle", url))
        async with at_work(url):
            timings.append(await time_looks("a look, server at work", url))
            timings.append(await time_command("slotune diagnose --url, server at work", url))
    return timings


def main() -> int:
    """Print the table; 0 when every median is within the limit."""
    with tempfile.TemporaryDirectory(prefix="slotune-bench-") as folder:
        timings = uvloop.run(measure(Path(folder)))
    table = Table("what", "median", "fastest", "slowest", "limit", "")
    for timing in timings:
        figures = (timing.median_s, min(timing.seconds), max(timing.seconds), LIMIT_S)
        mark = "ok" if timing.median_s <= LIMIT_S else "MISSED"
        table.add_row(timing.what, *(f"{value:.2f} s" for value in figures), mark)
    Console(width=100).print(table)
    return 0 if all(timing.median_s <= LIMIT_S for timing in timings) else 1


if __name__ == "__main__":
    raise SystemExit(main())
