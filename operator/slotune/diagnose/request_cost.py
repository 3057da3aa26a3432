"""What one request costs: seconds of the accelerator, and money, without the time that it only waits.

Where no two requests ran at a time, the log's own times are it: what each took to read its prompt and to write its
answer, added up and divided by their number. Where several ran, each one's time has the others' work in it: 4 requests
of 10 s each, all at once, are 10 s of the accelerator and not 40. Then the times are divided by how many shared a step,
where the server counts that, and are no more than a bound where nobody does. Waiting in a queue costs users and no
accelerator; it is in none of these times.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from slotune.diagnose.computed_again import Again, computed_again
from slotune.diagnose.counting import counted
from slotune.diagnose.devices import accelerator_of
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.gpu_count import gpu_count
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory, RequestTimings

__all__ = ["Precision", "RequestCost", "request_cost_of"]

HOUR_S = 3600.0
STAMP_S = 1.0
"""Time stamps may be rounded to it."""


class Precision(enum.StrEnum):
    """What a figure is."""

    EXACT = "Exact"
    """The server measured it."""
    ABOUT = "About"
    AT_MOST = "AtMost"


@dataclass(frozen=True, slots=True)
class RequestCost:
    """Of a mean request: tokens, and seconds in which the accelerator works for it, or all of several do."""

    prompt_tokens: float
    """Computed, without those that came from a cache."""
    cached_tokens: float | None
    """None: nobody says."""
    output_tokens: float
    prefill_s: float
    decode_s: float
    precision: Precision
    """Of both."""
    at_least_s: float | None
    """Both together take no less; None: nobody says, or it is not a bound that they are."""
    basis: str
    """What both rest on, in words."""
    sharing: float | None
    """Requests in a batch, on average; None: nobody says."""
    per_thousand_cached_s: float
    """What 1,000 more prompt tokens from a cache would save."""
    reading: Precision
    """Of seconds a token, in that and in what follows: at most ``ABOUT``, since no two tokens cost the same."""
    again: Again | None
    """Tokens that had been computed before; None: nothing says that any had."""
    price_per_hour: float | None
    """Of one accelerator."""
    gpus: int
    """How many it has."""
    evidence: tuple[Evidence, ...]
    currency: str = "USD"

    @property
    def total_s(self) -> float:
        """Accelerator seconds."""
        return self.prefill_s + self.decode_s

    @property
    def saved_s(self) -> float | None:
        """What the cache saved already."""
        return None if self.cached_tokens is None else self.cached_tokens * self.per_thousand_cached_s / 1000

    @property
    def again_s(self) -> float | None:
        """Spent on tokens that had been computed before."""
        if self.again is None:
            return None
        return min(self.prefill_s, self.again.tokens * self.per_thousand_cached_s / 1000)

    @property
    def again_precision(self) -> Precision:
        """Of that."""
        is_bound = self.again is not None and self.again.is_bound
        return Precision.AT_MOST if is_bound else self.reading

    def money(self, seconds: float | None) -> float | None:
        """Price of accelerator seconds for 1,000 requests; None without a price."""
        if self.price_per_hour is None or seconds is None:
            return None
        return 1000 * seconds * self.gpus * self.price_per_hour / HOUR_S


def request_cost_of(symptoms: Symptoms) -> RequestCost | str:
    """The cost, or what it would take to know it."""
    log = symptoms.log
    requests = None if log is None else log.requests
    if log is None or requests is None or not requests.requests:
        return "how long requests are, and what each took: a log that holds some"
    count = requests.requests
    prefill_s, decode_s, precision, basis, sharing, seen = _work(symptoms, log, requests)
    per_token_s, reading = _reading(symptoms, requests, sharing)
    gpu = accelerator_of(symptoms)
    words = (
        f"{counted(count, 'request')}, {requests.prompt_tokens:,} prompt tokens computed in "
        f"{requests.prompt_ms / 1e3:,.4g} s, "
        f"{requests.predicted_tokens:,} answered in {requests.predicted_ms / 1e3:,.4g} s"
    )
    return RequestCost(
        prompt_tokens=requests.prompt_tokens / count,
        cached_tokens=None if requests.cached_tokens is None else requests.cached_tokens / count,
        output_tokens=requests.predicted_tokens / count,
        prefill_s=prefill_s,
        decode_s=decode_s,
        precision=precision,
        at_least_s=_at_least_s(requests, prefill_s + decode_s) if precision is Precision.AT_MOST else None,
        basis=basis,
        sharing=sharing,
        per_thousand_cached_s=1000 * per_token_s,
        reading=reading,
        again=computed_again(symptoms),
        price_per_hour=None if gpu is None else gpu.price_per_hour,
        gpus=gpu_count(symptoms),
        evidence=(Evidence(Source.LOG, words), *seen),
        currency="USD" if gpu is None else gpu.currency,
    )


_Work = tuple[float, float, Precision, str, float | None, tuple[Evidence, ...]]
"""Seconds to read and to write, what they are, what they rest on, requests in a batch, who says that."""


def _work(symptoms: Symptoms, log: LogStory, requests: RequestTimings) -> _Work:
    prefill_s, decode_s = (ms / 1e3 / requests.requests for ms in (requests.prompt_ms, requests.predicted_ms))
    if requests.most_busy_slots == 1:
        return prefill_s, decode_s, Precision.EXACT, "the log's own times; no two ran at a time", 1.0, ()
    shared = _shared(symptoms, requests.most_busy_slots)
    seen: tuple[Evidence, ...] = ()
    if shared is None:
        most = "the log's own times, with the work of whatever ran beside in them"
        bounds = [(prefill_s, decode_s, most), *_alone(symptoms, requests)]
        prefill_s, decode_s, basis = min(bounds, key=lambda bound: bound[0] + bound[1])
        precision = Precision.AT_MOST
    else:
        busy, evidence = shared
        prefill_s, decode_s = prefill_s / busy, decode_s / busy
        basis = f"the log's own times, divided among the {busy:.3g} that shared a step on average"
        precision, seen = Precision.ABOUT, (evidence,)
    if (most_s := _wall_s(log, requests.requests)) is not None and prefill_s + decode_s > most_s:
        scale = most_s / (prefill_s + decode_s)
        prefill_s, decode_s = prefill_s * scale, decode_s * scale
        precision, basis = Precision.AT_MOST, "the time that the whole log spans"
    return prefill_s, decode_s, precision, basis, None if shared is None else shared[0], seen


def _shared(symptoms: Symptoms, most: int | None) -> tuple[float, Evidence] | None:
    """Requests in a step on average, by the server's counters; no more than ever ran at a time by its log."""
    server, name = symptoms.server, "n_busy_slots_per_decode"
    for metrics in () if server is None else (server.metrics_later, server.metrics):
        busy = None if metrics is None else metrics.get(name)
        if busy is not None and math.isfinite(busy) and busy >= 1:
            return min(busy, most or math.inf), Evidence(Source.METRICS, f"{name} {busy:.3g}")
    return None


def _at_least_s(requests: RequestTimings, at_most_s: float) -> float | None:
    """As if as many as ever ran at a time had shared all of it."""
    if requests.most_busy_slots is None:
        return None
    whole_s = (requests.prompt_ms + requests.predicted_ms) / 1e3 / requests.requests
    return min(at_most_s, whole_s / requests.most_busy_slots)


def _alone(symptoms: Symptoms, requests: RequestTimings) -> list[tuple[float, float, str]]:
    """What a mean request would take with nothing beside it: in a batch its share of the steps is no more."""
    probe = symptoms.probe
    if probe is None or not probe.was_idle or not _is_positive(probe.prefill_tokens_per_s, probe.decode_step_s):
        return []
    steps = max(0.0, requests.predicted_tokens / requests.requests - 1)  # the first comes out of the prompt's own pass
    prompt = requests.prompt_tokens / requests.requests
    basis = "its tokens at the speeds of a probe that ran alone; a batch shares its steps"
    return [(prompt / probe.prefill_tokens_per_s, steps * probe.decode_step_s, basis)]


def _wall_s(log: LogStory, count: int) -> float | None:
    """No request can have taken more on average than all of the time, of a log that holds all of it."""
    if not log.starts or log.seconds is None or not _is_positive(log.seconds):
        return None
    return (log.seconds + STAMP_S) / count


def _reading(symptoms: Symptoms, requests: RequestTimings, sharing: float | None) -> tuple[float, Precision]:
    """Seconds of the accelerator for one more prompt token.

    Short prompts say little of it: most of their time is a step's fixed cost.
    """
    probe = symptoms.probe
    if probe is not None and probe.was_idle and _is_positive(probe.prefill_tokens_per_s):
        return 1 / probe.prefill_tokens_per_s, Precision.ABOUT
    tokens, ms = requests.long_prompt_tokens, requests.long_prompt_ms
    is_long = tokens > 0 and ms > 0
    if not is_long:
        tokens, ms = requests.prompt_tokens, requests.prompt_ms
    per_token_s = ms / 1e3 / tokens / (sharing or 1.0) if tokens else 0.0
    return per_token_s, Precision.ABOUT if is_long and sharing is not None else Precision.AT_MOST


def _is_positive(*values: float) -> bool:
    return all(math.isfinite(value) and value > 0 for value in values)
