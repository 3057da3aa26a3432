"""What several users get who are served by the same steps: the weights are read once for all of them.

Each step writes a token for each, and reads each one's own keys and values, so together they get nearly as many times
more tokens as there are of them, until keys and values, or arithmetic, are what takes the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.devices import Devices
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.speculating import Speculating
from slotune.diagnose.speeds import counted_decode_speed
from slotune.diagnose.step_reads import Weights, kv_bytes, logged_context, size_words
from slotune.diagnose.symptoms import Symptoms

__all__ = ["Many", "many_of"]

LEAST_USERS: Final = 1.05
"""In a step on average: below, it is one user's speed."""


@dataclass(frozen=True, slots=True)
class Many:
    """Of one step that serves several; tokens/s."""

    users: float
    """In a step, on average, or at most where ``is_most``."""
    is_most: bool
    """Whether ``users`` is the most that there were: then fewer got more each, and all together not more."""
    step_bytes: int
    at_most_each: float | None
    """None: what the device can do is not known, or how many tokens a step writes."""
    at_most_together: float | None
    seen_each: float | None
    """On average; None: nobody says."""
    seen_together: float | None
    evidence: Evidence

    @property
    def sentence(self) -> str:
        """In plain words."""
        count = counted(self.users, "user")
        who = f"with up to {count} in a step" if self.is_most else f"with {count} in a step on average"
        reads = f"{who}, which reads {size_words(self.step_bytes)}"
        if self.at_most_each is None or self.at_most_together is None:
            can = f"{reads}, how many tokens/s there could be is not known"
        else:
            can = f"{reads}, at most {self.at_most_each:,.4g} tokens/s each, {self.at_most_together:,.4g} together"
        seen = []
        if self.seen_each is not None:
            seen.append(f"{self.seen_each:,.4g} each")
        if self.seen_together is not None:
            over = " over all its time" if self.is_most else ""
            seen.append(f"{self.seen_together:,.4g} together{over}")
        if not seen:
            return can
        share = ""
        if self.seen_together is not None and self.at_most_together and self.seen_together <= self.at_most_together:
            share = f" ({100 * self.seen_together / self.at_most_together:.3g} %)"
        whose = "by its log" if self.evidence.source is Source.LOG else "on average since the start"
        return f"{can}; seen {whose}: {', '.join(seen)}{share}"


def many_of(
    symptoms: Symptoms,
    weights: Weights,
    devices: Devices,
    guesses: Speculating,
    prefill_at_most: float | None,
) -> Many | None:
    """By the server's counters, else by its log; None with one user in a step, or where nobody says.

    Args:
        symptoms: of the server.
        weights: read once a step.
        devices: that read them.
        guesses: how many tokens a step writes for each.
        prefill_at_most: tokens/s that arithmetic alone allows; None: not known.
    """
    found = _users(symptoms)
    if found is None or found[0] < LEAST_USERS:
        return None
    users, is_most, seen_each, seen_together, evidence = found
    step = weights.step_bytes(users * _each_kv(symptoms), guesses.drafts_per_step)
    bandwidth = None if devices.gpu is None else devices.gpu.bandwidth_bytes_per_s
    each = together = None
    if bandwidth and guesses.tokens_per_step is not None:
        each = bandwidth * devices.at_once * guesses.tokens_per_step / step
        if prefill_at_most is not None:
            each = min(each, prefill_at_most / users)
        together = users * each
    return Many(users, is_most, round(step), each, together, seen_each, seen_together, evidence)


def _each_kv(symptoms: Symptoms) -> int:
    """Of the log's requests; where it does not say how long they are, what any sequence reads: a recurrent state."""
    context = logged_context(symptoms)
    return kv_bytes(symptoms, 0 if context is None else context[0]) or 0


def _users(symptoms: Symptoms) -> tuple[float, bool, float | None, float | None, Evidence] | None:
    """(users, whether at most, tokens/s of each, of all, who says so)."""
    metrics = None if symptoms.server is None else symptoms.server.metrics_later or symptoms.server.metrics
    busy = None if metrics is None else metrics.get("n_busy_slots_per_decode")
    if busy is not None and busy >= 1:
        speed = counted_decode_speed(symptoms)
        each = None if speed is None else speed.tokens_per_s
        evidence = Evidence(Source.METRICS, f"n_busy_slots_per_decode {busy:.3g}")
        return busy, False, each, None if each is None else busy * each, evidence
    log = symptoms.log
    requests = None if log is None else log.requests
    if log is None or requests is None or requests.most_busy_slots is None:
        return None
    written = requests.predicted_tokens - requests.requests
    each = 1e3 * written / requests.predicted_ms if requests.predicted_ms > 0 and written > 0 else None
    together = requests.predicted_tokens / log.seconds if log.seconds else None
    words = f"{counted(requests.most_busy_slots, 'request')} at work at one time at most"
    return float(requests.most_busy_slots), True, each, together, Evidence(Source.LOG, words)
