"""Predicted against allocated memory: what ``slotune.llama.memory`` says against the engine's own log.

A real llama.cpp starts once for each configuration of a real model and of generated ones, each with a cache of
another kind: grouped heads, heads per layer, sliding windows, compressed keys, a mixture of experts, convolutions.
The log rounds every buffer to 0.01 MiB, which is all that is left of the error of a small model.

The compute buffer is shown twice: as estimated before anything ran, and as predicted from the first start of the same
model, which is how a search learns it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.demo_model import demo_model
from slotune.llama.candidate import Candidate
from slotune.llama.engine import Engine, clean_environment, find_engine
from slotune.llama.flags import to_args
from slotune.llama.gguf_facts import read_facts
from slotune.llama.log_lines import LogFacts, parse_log
from slotune.llama.memory import NOTHING_LEARNED, LearnedCompute, MemoryEstimate, predict
from slotune.llama.model_facts import ModelFacts
from slotune.llama.requantize import requantize
from tests.tiny_models import write_tiny_model

TARGET = 0.02
"""Relative error of weights and KV together."""
START_LIMIT_S = 60.0
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration: what was predicted and what the engine allocated."""

    candidate: Candidate
    log: LogFacts
    estimate: MemoryEstimate
    learned: MemoryEstimate | None
    """Prediction after an earlier start of the same model; None for the first."""

    @property
    def error(self) -> float:
        """Of weights and KV against the log."""
        return _error(self.estimate.weights + self.estimate.kv, self.log.model_bytes + self.log.kv_bytes)

    @property
    def learned_compute_error(self) -> float | None:
        """Of the compute buffer once a start was seen."""
        return None if self.learned is None else _error(self.learned.compute, self.log.compute_bytes)


def _error(predicted: int, allocated: int) -> float:
    return abs(predicted - allocated) / allocated if allocated else float("inf")


def models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and file of each model: the demo's, a variant made of it, and generated ones."""
    demo = demo_model()
    yield "SmolLM2 Q4_1", demo
    yield "SmolLM2 Q4_0", requantize(demo, "Q4_0", folder)
    yield "grouped heads", write_tiny_model(folder / "grouped.gguf", layers=4, heads=8, kv_heads=2, context=8192)
    yield (
        "heads per layer",
        write_tiny_model(
            folder / "deci.gguf", architecture="deci", layers=4, kv_heads=[4, 2, 1, 1], quantization="Q8_0"
        ),
    )
    yield (
        "window, Gemma 3",
        write_tiny_model(
            folder / "gemma3.gguf", architecture="gemma3", layers=12, kv_heads=1, key_length=128, window=512
        ),
    )
    yield (
        "window, Gemma 2",
        write_tiny_model(
            folder / "gemma2.gguf", architecture="gemma2", layers=6, kv_heads=2, window=256, quantization="Q4_0"
        ),
    )
    yield (
        "latent attention",
        write_tiny_model(folder / "deepseek2.gguf", architecture="deepseek2", layers=3, kv_heads=1),
    )
    yield "experts", write_tiny_model(folder / "experts.gguf", layers=3, experts=8, experts_used=2)
    yield (
        "convolutions",
        write_tiny_model(
            folder / "lfm2.gguf", architecture="lfm2", layers=6, kv_heads=[0, 2, 0, 0, 2, 0], quantization="Q8_0"
        ),
    )
    yield "recurrent", write_tiny_model(folder / "mamba.gguf", architecture="mamba", layers=12)


def configurations(name: str, facts: ModelFacts) -> Iterator[Candidate]:
    """Slots, contexts, both layouts, batches and cache types; a model without attention has no cache to quantize."""

    def candidate(slots: int, context: int, unified: bool = False, ubatch: int = 512, kv: str = "f16") -> Candidate:
        return Candidate(
            name, "cpu", slots, context, unified, 2048, ubatch, kv, kv, gpu_layers="0", cache_ram_mib=0, threads=1
        )

    yield candidate(1, 2048)
    yield candidate(4, 1024, ubatch=256)
    yield candidate(3, 700, unified=True, ubatch=128)
    if any(layer.key_elements for layer in facts.layers):
        yield candidate(4, 1024, kv="q8_0")
        yield candidate(2, 2048, unified=True, kv="q4_0")


def measure(engine: Engine, model: Path, candidate: Candidate) -> LogFacts:
    """Start the engine with ``candidate``, wait until it has allocated everything, and stop it."""
    arguments = to_args(candidate, model_path=str(model), host="127.0.0.1", port=0, alias="bench")
    process = subprocess.Popen(
        [*engine.command(arguments), "--no-warmup"],
        env=clean_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    watchdog = threading.Timer(START_LIMIT_S, process.kill)
    watchdog.start()
    lines = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "model loaded" in line:
                break
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
    log = parse_log("".join(lines))
    if not log.ready:
        raise RuntimeError(f"{candidate} did not start:\n{''.join(lines[-20:])}")
    return log


def compare(engine: Engine, folder: Path) -> Iterator[Row]:
    """Every configuration of every model."""
    for name, model in models(folder):
        facts = read_facts(model)
        learned: LearnedCompute = NOTHING_LEARNED
        for candidate in configurations(name, facts):
            log = measure(engine, model, candidate)
            yield Row(
                candidate,
                log,
                estimate=predict(candidate, facts, on_gpu=False),
                learned=predict(candidate, facts, learned, on_gpu=False) if learned.scratch else None,
            )
            learned = learned.with_start(candidate, facts, log.compute_bytes, on_gpu=False)


def main() -> int:
    """Print the table; 0 when weights and KV of every configuration are within the target."""
    engine = find_engine("embedded")
    with tempfile.TemporaryDirectory(prefix="slotune-bench-") as folder:
        rows = list(compare(engine, Path(folder)))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(_table(rows))
    worst = max(row.error for row in rows)
    learned = [row.learned_compute_error for row in rows if row.learned_compute_error is not None]
    console.print(
        f"{len(rows)} configurations of {len({row.candidate.variant for row in rows})} models on {engine.describe()}: "
        f"weights + KV off by at most {worst:.2%} (target {TARGET:.0%}), "
        f"learned compute buffer by at most {max(learned):.1%}"
    )
    return 0 if worst <= TARGET else 1


def _table(rows: list[Row]) -> Table:
    table = Table(title="MiB, predicted / in the engine's log", title_justify="left")
    table.add_column("model")
    table.add_column("slots x context, KV, ubatch")
    for column in ("weights", "KV", "error", "compute", "compute, learned"):
        table.add_column(column, justify="right")
    model = ""
    for row in rows:
        c, log = row.candidate, row.log
        if c.variant != model and model:
            table.add_section()
        layout = "unified" if c.kv_unified else "split"
        table.add_row(
            c.variant if c.variant != model else "",
            f"{c.parallel_slots} x {c.context_per_slot} {layout}, {c.cache_type_k}, {c.ubatch_size}",
            _pair(row.estimate.weights, log.model_bytes),
            _pair(row.estimate.kv, log.kv_bytes),
            f"{row.error:.2%}",
            _pair(row.estimate.compute, log.compute_bytes),
            "" if row.learned is None else _pair(row.learned.compute, log.compute_bytes),
        )
        model = c.variant
    return table


def _pair(predicted: int, allocated: int) -> str:
    return f"{predicted / MIB:.2f} / {allocated / MIB:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
