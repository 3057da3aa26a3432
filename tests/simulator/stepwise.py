"""The scheduler again, one step at a time: slow, short, and with no arithmetic to get wrong.

It is what :mod:`tests.simulator.scheduler` is checked against, which takes all equal steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulator.prefix_cache import Slots
from tests.simulator.scheduler import Server

__all__ = ["Answer", "schedule_stepwise"]


@dataclass
class Answer:
    """One request."""

    started: float | None = None
    first: float | None = None
    last: float | None = None
    prompt: int = 0
    cached: int = 0
    longest_gap: float = 0.0
    left: int = 0
    made: int = 0
    wanted: int = 0


def schedule_stepwise(
    server: Server,
    arrivals: Sequence[float],
    prompts: Sequence[int],
    outputs: Sequence[int],
    groups: Sequence[int],
    prefix: int,
) -> list[Answer]:
    """Serve all requests. No pool exhaustion: every request must fit beside all others."""
    answers = [Answer() for _ in arrivals]
    slots = Slots(
        server.slots,
        reuse=server.reuse_prefix,
        host_tokens=server.host_cache_tokens,
        save_idle=server.save_idle_slots,
    )
    busy: dict[int, int] = {}  # slot -> request
    queue = list(range(len(arrivals)))
    now, stall = 0.0, 0.0
    while queue or busy:
        if not (server.static_batch and busy):
            while queue and slots.idle and arrivals[queue[0]] <= now:
                i = queue.pop(0)
                slot, cached = slots.take(groups[i], prompts[i], prefix)
                stall += slots.copied * server.host_token_s
                answers[i].started, answers[i].cached = now, cached
                answers[i].prompt, answers[i].left, answers[i].wanted = prompts[i], prompts[i] - cached, outputs[i]
                busy[slot] = i
        if not busy:
            now = arrivals[queue[0]]
            continue
        decoding, read, took = _step(server, {slot: answers[i] for slot, i in busy.items()})
        took += stall
        now, stall = now + took, 0.0
        for slot in decoding:
            answer = answers[busy[slot]]
            answer.made += 1
            answer.longest_gap = max(answer.longest_gap, took)
        for slot, tokens in read.items():
            answer = answers[busy[slot]]
            answer.left -= tokens
            if tokens and not answer.left:
                answer.first, answer.made = now, 1
        # Slots come free in slot order, decoding ones first, as in the model that is checked.
        for slot in [*decoding, *read]:
            answer = answers[busy[slot]]
            if answer.made >= answer.wanted and answer.left == 0:
                answer.last = now
                slots.release(slot, answer.prompt + answer.made - 1)
                del busy[slot]
    return answers


def _step(server: Server, busy: dict[int, Answer]) -> tuple[list[int], dict[int, int], float]:
    """(slots that decode, prompt tokens by slot, seconds) of the next step."""
    decoding = sorted(slot for slot, answer in busy.items() if answer.left == 0)
    room = max(1, server.batch - len(decoding))
    read: dict[int, int] = {}
    for slot in sorted(slot for slot, answer in busy.items() if answer.left):
        read[slot] = min(busy[slot].left, room - sum(read.values()))
    took = server.step_s + sum(read.values()) * server.prompt_token_s
    if decoding:
        evaluations = 1 if server.unified else sum(slot - 1 not in decoding for slot in decoding)
        context = sum(busy[slot].prompt + busy[slot].made - 1 for slot in decoding)
        took += evaluations * server.weights_s + context * server.context_token_s
    return decoding, read, took
