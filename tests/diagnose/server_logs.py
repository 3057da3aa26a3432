"""Logs as llama-server prints them (b11434, ``-lv 4``), put together from what a test is about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader

LLAMA_8B = """\
load_tensors: offloading output layer to GPU
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
"""
"""Q4_K_M: 4,617 MB on the GPU, 295 MB of input table in host memory."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests that are all alike."""

    prompt: int
    answer: int
    tokens_per_s: float
    count: int = 20
    cached: int = 0
    prompt_tokens_per_s: float = 5000.0
    accepted: int = 0
    drafted: int = 0
    at_once: int = 1


def log_of(
    *,
    devices: Sequence[str] = ("NVIDIA GeForce RTX 4090",),
    model: str = LLAMA_8B,
    experts: str = "0",
    context: int = 131072,
    caches: str | None = None,
    more: str = "",
    slots: int = 4,
    asked: Sequence[Asked] = (),
) -> LogStory:
    """What is read from such a log."""
    if caches is None:
        size = context * 131072 / 2**20  # 128 KiB a token: 32 layers, 8 heads of 128, K and V, f16
        caches = (
            f"llama_kv_cache:      CUDA0 KV buffer size = {size:8.2f} MiB\n"
            f"llama_kv_cache: size = {size:.2f} MiB ({context:6} cells,  32 layers,  {slots}/1 seqs), "
            f"K (f16): {size / 2:.2f} MiB, V (f16): {size / 2:.2f} MiB\n"
        )
    found = [f"ggml_cuda_init: found {len(devices)} CUDA devices (Total VRAM: 24000 MiB):"] if devices else []
    found += [
        f"  Device {index}: {name}, compute capability 8.9, VMM: yes, VRAM: 24000 MiB"
        for index, name in enumerate(devices)
    ]
    initialized = f"initializing, n_slots = {slots}, n_ctx_slot = {context}, kv_unified = 'true'"
    lines = [
        *found,
        "0.00.221.040 I srv          init: build_info: b11434-7e4c0a9",
        "0.00.226.771 I srv    load_model: loading model '/models/model.gguf'",
        "0.00.300.000 I print_info: n_embd                = 4096",
        "0.00.300.001 I print_info: n_swa                 = 0",
        f"0.00.300.002 I print_info: n_expert              = {experts}",
        *(["0.00.300.003 I print_info: n_expert_used         = 4"] if experts != "0" else []),
        "0.00.300.004 I print_info: model params          = 8.03 B",
        "0.00.300.005 I print_info: n_vocab               = 128256",
        *(f"0.01.000.000 I {line}" for line in model.splitlines()),
        "0.02.004.118 I llama_context: constructing llama_context",
        f"0.02.004.120 I llama_context: n_ctx                 = {context}",
        *(f"0.02.010.000 I {line}" for line in caches.splitlines()),
        *(f"0.02.100.000 I {line}" for line in more.splitlines()),
        f"0.02.300.118 I srv    load_model: {initialized}",
        "0.02.301.500 I srv          init: model loaded",
    ]
    task = 0
    for one in asked:
        for first in range(0, one.count, one.at_once):
            group = range(min(one.at_once, one.count - first))
            lines += [
                f"0.03.000.000 I slot launch_slot_: id  {slot} | task {task + slot} | processing task, is_child = 0"
                for slot in group
            ]
            for slot in group:
                lines += _ended(one, slot, task + slot)
            task += len(group)
    reader = LogReader("server.log")
    reader.feed("".join(f"{_stamped(line, number)}\n" for number, line in enumerate(lines)).encode())
    (story,) = reader.finish()
    return story


def _stamped(line: str, number: int) -> str:
    """With a time of its own, later than that of the line before."""
    return re.sub(r"^0\.\d\d\.\d{3}\.\d{3} ", f"{number // 600}.{number // 10 % 60:02}.{number % 10}00.000 ", line)


def _ended(one: Asked, slot: int, task: int) -> list[str]:
    begin = f"0.04.000.000 I slot print_timing: id  {slot} | task {task} |"
    prompt_ms = 1000 * one.prompt / one.prompt_tokens_per_s
    ms = 1000 * (one.answer - 1) / one.tokens_per_s
    length = one.prompt + one.cached + one.answer - 1
    speeds = "(    0.20 ms per token,  5000.00 tokens per second)"
    guessed = f"({one.accepted:5} accepted / {one.drafted:5} generated)"
    drafted = [f"{begin} draft acceptance = {one.accepted / one.drafted:.5f} {guessed}"] if one.drafted else []
    release = f"0.04.000.001 I slot      release: id  {slot} | task {task} |"
    return [
        f"{begin} prompt eval time = {prompt_ms:10.2f} ms / {one.prompt:5} tokens {speeds}",
        f"{begin}        eval time = {ms:10.2f} ms / {one.answer:5} tokens {speeds}",
        f"{begin}       total time = {prompt_ms + ms:10.2f} ms / {one.prompt + one.answer:5} tokens",
        *drafted,
        f"{release} stop processing: n_tokens = {length}, truncated = 0",
    ]
