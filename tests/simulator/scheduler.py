"""llama-server's scheduler as a discrete-event model.

One loop. Each step decodes one token of every generating slot and fills the batch up to ``n_batch`` with pending
prompt tokens, in slot-id order, and everybody waits for the whole step. Requests wait in one FIFO queue for a slot.
With split KV a decode of slots that are not neighbours takes one graph evaluation per run of neighbouring slots, each
of which reads the weights again; a unified pool takes one, but when the pool is full every active request dies.

Between two events all steps are alike but for the context that grows by one token per sequence, so the time of k
steps is a quadratic in k and they are taken at once. That is what makes it fast: a request costs about five events,
not 250 steps.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from slotune.load.records import RequestStatus
from tests.simulator.prefix_cache import Slots

__all__ = ["Served", "Server", "schedule"]

_NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Server:
    """A configuration on a machine, in seconds."""

    slots: int
    batch: int
    context: int
    """Tokens that one slot may use."""
    pool: int
    """Tokens of the whole KV cache."""
    unified: bool
    static_batch: bool
    reuse_prefix: bool
    host_cache_tokens: float
    save_idle_slots: bool
    step_s: float
    weights_s: float
    """Reading the weights once."""
    context_token_s: float
    """Reading one token of context."""
    prompt_token_s: float
    host_token_s: float
    """Copying one token of KV between device and host."""


@dataclass(slots=True)
class Served:
    """What became of each request, by position. Times are the server's."""

    started: list[float | None]
    first: list[float | None]
    last: list[float | None]
    computed: list[int]
    cached: list[int]
    generated: list[int]
    longest_gap: list[float]
    status: list[RequestStatus]
    busy_samples: list[tuple[float, int, int]] = field(default_factory=list)


def schedule(  # noqa: C901, PLR0912  # one loop whose parts share a dozen counters; calls would cost half of its speed
    server: Server,
    arrivals: Sequence[float],
    prompts: Sequence[int],
    outputs: Sequence[int],
    groups: Sequence[int],
    prefix: int,
    sample_every_s: float = 1.0,
) -> Served:
    """Serve all requests to the end. ``arrivals`` ascend; ``prefix`` is the tokens that prompts of a group share."""
    n = len(arrivals)
    served = Served([None] * n, [None] * n, [None] * n, [0] * n, [0] * n, [0] * n, [0.0] * n, [RequestStatus.OK] * n)
    started, first, last = served.started, served.first, served.last
    slots = Slots(
        server.slots,
        reuse=server.reuse_prefix,
        host_tokens=server.host_cache_tokens,
        save_idle=server.save_idle_slots,
    )
    idle = slots.idle
    request = [-1] * server.slots  # which request a slot works on
    left = [0] * server.slots  # prompt tokens still to compute
    since = [0] * server.slots  # step in which its first token came
    generating = [False] * (server.slots + 1)  # one more, so that slot -1 reads False
    pending: list[int] = []  # slots with prompt tokens left, ascending
    ends: list[tuple[int, int]] = []  # (step after which it has its last token, slot)
    gap_steps: list[int] = []  # steps whose duration no later step exceeds, and
    gap_times: list[float] = []  # those durations: the longest since any step is one bisection away
    head = 0  # next request in the queue
    now, step, active, context, stall, next_sample = 0.0, 0, 0, 0, 0.0, 0.0
    runs = 1 if server.unified else 0  # graph evaluations that a decode takes
    step_s, weights_s, context_s, prompt_s = (
        server.step_s,
        server.weights_s,
        server.context_token_s,
        server.prompt_token_s,
    )
    may_exhaust = server.unified and server.slots * (max(prompts, default=0) + max(outputs, default=0)) > server.pool
    while True:
        while head < n and idle and arrivals[head] <= now and not (server.static_batch and (active or pending)):
            # A static batch is filled from the queue at once, and then closed.
            took = []
            while head < n and idle and arrivals[head] <= now:
                i, head = head, head + 1
                if prompts[i] >= server.context:
                    served.status[i] = RequestStatus.HTTP_ERROR
                    last[i] = now
                    continue
                slot, cached = slots.take(groups[i], prompts[i], prefix)
                stall += slots.copied * server.host_token_s
                request[slot], left[slot] = i, prompts[i] - cached
                served.cached[i], served.computed[i] = cached, prompts[i] - cached
                started[i] = now
                took.append(slot)
            for slot in took:
                insort(pending, slot)
        if not active and not pending:
            if head >= n:
                break
            while next_sample < arrivals[head]:
                served.busy_samples.append((next_sample, 0, 0))
                next_sample += sample_every_s
            now = max(now, arrivals[head])
            continue

        # How many equal steps until something happens, and what the first of them takes.
        first_step = step_s + context * context_s + (runs * weights_s if active else 0.0)
        growth = active * context_s
        count = ends[0][0] - step if ends else _NEVER
        tokens = 0
        if pending:
            room = max(1, server.batch - active)
            lead = left[pending[0]]
            if lead >= room:
                tokens = room
                count = min(count, lead // room)
            else:
                count = 1
                for slot in pending:
                    tokens += min(left[slot], room - tokens)
            first_step += tokens * prompt_s
        if head < n and idle and not server.static_batch:
            wait = arrivals[head] - now - stall
            if wait < count * first_step + growth * count * (count - 1) / 2:
                count = min(count, _steps_to(wait, first_step, growth))
        if may_exhaust:
            used = context + sum(prompts[request[s]] - left[s] for s in pending)
            held = sum(slots.held[s] for s in idle)
            if used + held + active + tokens > server.pool:
                slots.forget_idle()
            fits = (server.pool - used) // max(1, active + tokens)
            if fits < 1:
                for slot in [*pending, *(s for _, s in ends)]:
                    i = request[slot]
                    served.status[i] = RequestStatus.HTTP_ERROR if first[i] is None else RequestStatus.STREAM_ERROR
                    served.generated[i] = 0 if first[i] is None else step - since[slot] + 1
                    last[i] = now
                    generating[slot] = False
                    slots.release(slot, 0, lost=True)
                pending.clear()
                ends.clear()
                active = context = 0
                continue
            count = min(count, fits)

        # Take them.
        busy = server.slots - len(idle)
        now += stall + count * first_step + growth * count * (count - 1) / 2
        longest = first_step + max(stall, growth * (count - 1))
        stall = 0.0
        step += count
        context += active * count
        while next_sample <= now:
            served.busy_samples.append((next_sample, busy, max(0, bisect_right(arrivals, next_sample) - head)))
            next_sample += sample_every_s
        while gap_times and gap_times[-1] <= longest:
            gap_times.pop()
            gap_steps.pop()
        gap_times.append(longest)
        gap_steps.append(step)

        # Who has a first token now, and who has the last.
        while ends and ends[0][0] <= step:
            _, slot = heapq.heappop(ends)
            i = request[slot]
            length = prompts[i] + served.generated[i] - 1
            last[i] = now
            served.longest_gap[i] = gap_times[bisect_right(gap_steps, since[slot])]
            active -= 1
            context -= length
            generating[slot] = False
            if not server.unified:
                runs -= 1 - generating[slot - 1] - generating[slot + 1]
            slots.release(slot, length)
        given = tokens * count
        while given and pending:
            slot = pending[0]
            part = min(left[slot], given)
            left[slot] -= part
            given -= part
            if left[slot]:
                break
            pending.pop(0)
            i = request[slot]
            first[i] = now
            wanted = min(outputs[i], server.context - prompts[i])
            if wanted < outputs[i]:
                served.status[i] = RequestStatus.TRUNCATED
            served.generated[i] = wanted
            since[slot] = step
            if wanted <= 1:
                last[i] = now
                slots.release(slot, prompts[i])
                continue
            heapq.heappush(ends, (step + wanted - 1, slot))
            active += 1
            context += prompts[i]
            if not server.unified:
                runs += 1 - generating[slot - 1] - generating[slot + 1]
            generating[slot] = True
    return served


def _steps_to(wait: float, first_step: float, growth: float) -> int:
    """Fewest steps that take at least ``wait``: the root of k·first + growth·k(k−1)/2 = wait, rounded up."""
    if wait <= first_step:
        return 1
    if growth <= 1e-12 * first_step:
        return math.ceil(wait / first_step)
    half = first_step / growth - 0.5
    return max(1, math.ceil(math.sqrt(half * half + 2 * wait / growth) - half))
