"""Logs of llama-server for tests, from files and made, and the stories that they are read as."""

from __future__ import annotations

from pathlib import Path

from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader

LOGS = Path(__file__).parent / "logs"
ALL = sorted(path.stem for path in LOGS.glob("*.log"))
SERVED = ["served_three", "served_four", "served_five"]


def content(name: str) -> bytes:
    return (LOGS / f"{name}.log").read_bytes()


def read(*chunks: bytes, block: int = 1 << 20) -> tuple[LogStory, ...]:
    reader = LogReader("server.log", block=block)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def only(*chunks: bytes) -> LogStory:
    (story,) = read(*chunks)
    return story


def request(task: int, *, slot: int = 0, prompt: int = 100, cached: int = 0, predicted: int = 11) -> str:
    """The lines of one request as build 11549 prints them: 1 ms for each prompt token, 10 ms for each other."""
    head = f"id  {slot} | task {task} | "
    timing = f"0.01.000.000 I slot print_timing: {head}"
    ms, gen_ms, length = float(prompt), 10.0 * (predicted - 1), prompt + cached + predicted - 1
    speed, gen_speed = "1.00 ms per token,  1000.00 tokens per second", "10.00 ms per token,   100.00 tokens per second"
    return (
        f"0.01.000.000 I slot launch_slot_: {head}processing task, is_child = 0\n"
        f"{timing}prompt eval time = {ms:10.2f} ms / {prompt:5d} tokens (    {speed})\n"
        f"{timing}       eval time = {gen_ms:10.2f} ms / {predicted:5d} tokens (   {gen_speed})\n"
        f"{timing}      total time = {ms + gen_ms:10.2f} ms / {prompt + predicted:5d} tokens\n"
        f"{timing}   graphs reused = {predicted:10d}\n"
        f"0.01.000.000 I slot      release: {head}stop processing: n_tokens = {length}, truncated = 0\n"
    )
