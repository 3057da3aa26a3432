"""What one request costs: seconds of the accelerator, and money, without the time that it only waits.

A request's own work is its prompt tokens at the speed at which they are read, and its answer's steps, shared with those
who are in the same batch. So 4,000 prompt tokens at 10,000/s and 250 steps of 10.2 ms in a batch of 8 are 0.4 s and
0.32 s. Waiting in a queue costs users and no accelerator, so it is not in here.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.roofline import accelerator_of
from slotune.diagnose.speeds import decode_speed, prefill_speed
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Topic

__all__ = ["RequestCost", "request_cost_of"]

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class RequestCost:
    """Of a mean request; tokens and accelerator seconds."""

    prompt_tokens: float
    """Computed, without those that came from a cache."""
    cached_tokens: float | None
    """None: nobody says."""
    output_tokens: float
    prefill_s: float
    decode_s: float
    """Its share of the steps that it took part in."""
    sharing: float
    """Requests in a batch, on average."""
    sharing_known: bool
    """False: counted as if it had been alone, so ``decode_s`` is at most that."""
    saved_s: float | None
    """What the cache saved already."""
    again_s: float | None
    """Spent at most on tokens that had been computed before, where the server says that it began prompts anew."""
    per_thousand_cached_s: float
    """What 1,000 more prompt tokens from a cache would save."""
    price_per_hour: float | None
    evidence: tuple[Evidence, ...]
    currency: str = "USD"

    @property
    def total_s(self) -> float:
        """Accelerator seconds."""
        return self.prefill_s + self.decode_s

    def money(self, seconds: float) -> float | None:
        """Price of accelerator seconds for 1,000 requests; None without a price."""
        return None if self.price_per_hour is None else 1000 * seconds * self.price_per_hour / HOUR_S

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in plain words."""
        most = "" if self.sharing_known else "at most "
        lines = [
            (
                f"a request of {self.prompt_tokens:,.0f} computed prompt tokens and {self.output_tokens:,.0f} answered "
                f"ones takes {most}{_s(self.total_s)} of the device: {_s(self.prefill_s)} to read, "
                f"{most}{_s(self.decode_s)} to write{self._priced(self.total_s, ' in all')}"
            )
        ]
        if self.again_s:
            lines.append(
                f"up to {_s(self.again_s)} of that read tokens again that had been read before"
                f"{self._priced(self.again_s)}"
            )
        if self.saved_s:
            lines.append(
                f"{self.cached_tokens:,.0f} tokens a request came from the cache, which saved {_s(self.saved_s)}"
                f"{self._priced(self.saved_s)}"
            )
        shareable = min(1000.0, self.prompt_tokens)
        if shareable >= 1:
            saves = self.per_thousand_cached_s * shareable / 1000
            lines.append(
                f"if {shareable:,.0f} of the computed prompt tokens were a shared prefix, a cache would save "
                f"{_s(saves)} a request{self._priced(saves)}"
            )
        return tuple(lines)

    def _priced(self, seconds: float, more: str = "") -> str:
        money = self.money(seconds)
        if money is None:
            return ""
        sign = "$" if self.currency == "USD" else f"{self.currency} "
        return f" ({sign}{money:,.2g} per 1,000 requests{more})"


def request_cost_of(symptoms: Symptoms) -> RequestCost | str:
    """The cost, or what it would take to know it."""
    reading, writing = prefill_speed(symptoms), decode_speed(symptoms)
    if reading is None or writing is None:
        return "how fast it reads and writes: a log of requests, --probe, or a server that has worked (with --metrics)"
    sizes = _sizes(symptoms)
    if sizes is None:
        return "how long requests are: a log that holds some"
    prompt, cached, output, evidence = sizes
    sharing = _sharing(symptoms)
    steps = max(0.0, output - 1)  # the first token comes out of the prompt's own pass
    gpu = accelerator_of(symptoms)
    return RequestCost(
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        prefill_s=prompt / reading.tokens_per_s,
        decode_s=steps / writing.tokens_per_s / (sharing or 1.0),
        sharing=sharing or 1.0,
        sharing_known=sharing is not None,
        saved_s=None if cached is None else cached / reading.tokens_per_s,
        again_s=_again(symptoms, prompt / reading.tokens_per_s),
        per_thousand_cached_s=1000 / reading.tokens_per_s,
        price_per_hour=None if gpu is None else gpu.price_per_hour,
        evidence=(evidence, reading.evidence, writing.evidence),
        currency="USD" if gpu is None else gpu.currency,
    )


def _sizes(symptoms: Symptoms) -> tuple[float, float | None, float, Evidence] | None:
    """(computed prompt tokens, cached ones, answered ones, who says so) of a mean request."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is None or not requests.requests:
        return None
    count = requests.requests
    words = (
        f"{count:,} requests, {requests.prompt_tokens:,} prompt tokens computed, {requests.predicted_tokens:,} answered"
    )
    cached = None if requests.cached_tokens is None else requests.cached_tokens / count
    return requests.prompt_tokens / count, cached, requests.predicted_tokens / count, Evidence(Source.LOG, words)


def _again(symptoms: Symptoms, prefill_s: float) -> float | None:
    """A prompt that was begun anew would, at best, have read nothing."""
    log = symptoms.log
    if log is None or log.requests is None or not log.count(Topic.FULL_REPROCESSING):
        return None
    return prefill_s * min(1.0, log.count(Topic.FULL_REPROCESSING) / log.requests.requests)


def _sharing(symptoms: Symptoms) -> float | None:
    """Requests in a batch: by the server's counters, or one where the log saw no two at a time."""
    metrics = None if symptoms.server is None else symptoms.server.metrics_later or symptoms.server.metrics
    if metrics is not None and (busy := metrics.get("n_busy_slots_per_decode")) is not None and busy >= 1:
        return busy
    requests = None if symptoms.log is None else symptoms.log.requests
    return 1.0 if requests is not None and requests.most_busy_slots == 1 else None


def _s(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{1000 * seconds:,.3g} ms"
