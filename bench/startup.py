"""How long the command line takes to answer, as a person waits for it: whole processes, start to end.

Imports are most of it. A module that is imported before it is needed shows here and nowhere else.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "examples" / "demo" / "slotune.yaml"
SLOTUNE = Path(sys.executable).with_name("slotune")

RUNS = 7
HELP_LIMIT_S = 0.5
PLAN_LIMIT_S = 2.0
PLAN_CANDIDATES = 2000
SPACE = {
    "parallelSlots": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32],
    "contextSizePerSlot": [512],
    "kvUnified": [False, True],
    "batchSize": [256, 512, 1024, 2048],
    "uBatchSize": [128, 256],
    "cacheTypes": ["f16", "q8_0", "q4_0"],
    "cacheRAMMiB": [0, 256],
    "cacheReuse": [0],
    "cacheIdleSlots": [False],
}
"""10 x 2 x 4 x 2 x 3 x 2 = 960 settings for each of three weights files."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock seconds of one command over several runs."""

    what: str
    seconds: tuple[float, ...]
    limit_s: float

    @property
    def median_s(self) -> float:
        """The run in the middle: one that was disturbed does not move it."""
        return statistics.median(self.seconds)


def time_command(what: str, arguments: Sequence[str], limit_s: float) -> Timing:
    """Runs ``slotune`` with these arguments, once unmeasured (bytecode, page cache) and then `RUNS` times."""
    seconds = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run([SLOTUNE, *arguments], stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - started)
    return Timing(what, tuple(seconds[1:]), limit_s)


def write_tiny_model(path: Path, name: str, file_type: gguf.LlamaFileType) -> None:
    """A llama of two layers with weights of zero: enough for its facts to be read, nothing to run."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_file_type(file_type)
    writer.add_block_count(2)
    writer.add_context_length(8192)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(256)
    for tensor, shape in {"token_embd": (256, 64), "blk.0.attn_k": (32, 64), "blk.1.attn_k": (32, 64)}.items():
        writer.add_tensor(f"{tensor}.weight", np.zeros(shape, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wide_manifest(folder: Path) -> Path:
    """The demo's manifest with a space of more than 2,000 candidates, and tiny weights files beside it."""
    documents = list(yaml.safe_load_all(DEMO.read_text()))
    (deployment,) = (document for document in documents if document["kind"] == "LlamaDeployment")
    deployment["spec"]["search"]["space"] = SPACE
    for variant in deployment["spec"]["models"]:
        write_tiny_model(folder / Path(variant["path"]).name, variant["name"], gguf.LlamaFileType.MOSTLY_F16)
    path = folder / "wide.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def count_candidates(arguments: Sequence[str]) -> int:
    """How many candidates a plan lists, pruned ones included."""
    plan = subprocess.run([SLOTUNE, *arguments, "-o", "json"], stdout=subprocess.PIPE, check=True)
    return len(json.loads(plan.stdout)["candidates"])


def main() -> int:
    """Prints both timings beside their limits; 1 when one is missed."""
    with tempfile.TemporaryDirectory() as scratch:
        plan = ["plan", "-f", str(write_wide_manifest(Path(scratch))), "--models-dir", scratch]
        candidates = count_candidates(plan)
        if candidates < PLAN_CANDIDATES:
            print(f"the space has {candidates} candidates, {PLAN_CANDIDATES} are wanted: widen SPACE", file=sys.stderr)
            return 1
        timings = [
            time_command("slotune --help", ["--help"], HELP_LIMIT_S),
            time_command(f"slotune plan, {candidates:,} candidates", plan, PLAN_LIMIT_S),
        ]
    table = Table("command", "median", "fastest", "slowest", "limit", "")
    for timing in timings:
        fast, slow = min(timing.seconds), max(timing.seconds)
        mark = "ok" if timing.median_s <= timing.limit_s else "MISSED"
        figures = [f"{value:.2f} s" for value in (timing.median_s, fast, slow, timing.limit_s)]
        table.add_row(timing.what, *figures, mark)
    Console(width=100).print(table)
    return 0 if all(timing.median_s <= timing.limit_s for timing in timings) else 1


if __name__ == "__main__":
    sys.exit(main())
