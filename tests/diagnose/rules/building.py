"""Symptoms of made servers: each test states only what its rule looks at, all else is a server in good health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotune.diagnose.checkup import Rule
from slotune.diagnose.finding import Clear, Finding, Severity, Undecided
from slotune.diagnose.symptoms import PodFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import Line, LogStory, RequestTimings, Seen, Topic
from slotune.llama.server_answers import Metrics, Props, Slot

COUNTERS = (
    "requests_processing",
    "requests_deferred",
    "n_decode_total",
    "n_busy_slots_per_decode",
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "prompt_seconds_total",
    "tokens_predicted_total",
    "tokens_predicted_seconds_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
)
"""What rules read of a page of metrics."""

SLOWEST = "slot print_timing: id  0 | task 7 | prompt eval time = {ms:.2f} ms / {tokens} tokens (1.00 ms per token)"


def ask(rules: Sequence[Rule], identifier: str, symptoms: Symptoms) -> Finding | Clear | Undecided:
    """What the rule for ``identifier`` says."""
    (rule,) = (one for one in rules if one.id == identifier)
    return rule.check(symptoms)


def found(
    rules: Sequence[Rule],
    identifier: str,
    symptoms: Symptoms,
    severity: Severity = Severity.WARNING,
    *,
    entry: str | None = None,
) -> Finding:
    """The finding of that rule: of this severity, with evidence, in a sentence as they are written. Under the rule's
    own identifier, unless it is of a server that ended by a more precise cause (``entry``)."""
    said = ask(rules, identifier, symptoms)
    assert isinstance(said, Finding), said
    assert said.id == (entry or identifier)
    assert said.severity is severity, said
    assert said.evidence
    assert said.sentence[0] == said.sentence[0].lower()
    assert not said.sentence.endswith(".")
    return said


def is_clear(rules: Sequence[Rule], identifier: str, symptoms: Symptoms) -> bool:
    """Whether the rule rules it out."""
    return isinstance(ask(rules, identifier, symptoms), Clear)


def is_undecided(rules: Sequence[Rule], identifier: str, symptoms: Symptoms) -> bool:
    """Whether the rule says what would decide it."""
    said = ask(rules, identifier, symptoms)
    return isinstance(said, Undecided) and bool(said.needs)


def timings(requests: int = 40, **more: Any) -> RequestTimings:
    """Of a server that answers 40 requests of 200 prompt tokens and 100 of the answer each."""
    usual: dict[str, Any] = {
        "prompt_tokens": 200 * requests,
        "prompt_ms": 1000.0 * requests,
        "predicted_tokens": 100 * requests,
        "predicted_ms": 2000.0 * requests,
        "cached_tokens": 0,
        "prefill_tokens_per_s": (190.0, 200.0, 210.0),
        "decode_tokens_per_s": (45.0, 50.0, 55.0),
        "prompt_ms_spread": ((1000.0, requests),),
        "prompt_tokens_spread": ((200.0, requests),),
        "most_busy_slots": 2,
        "example": Line(90, SLOWEST.format(ms=1200, tokens=240)),
    }
    return RequestTimings(requests, **{**usual, **more})


def log(
    seen: Mapping[Topic, int | Seen] | None = None,
    requests: RequestTimings | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    **more: Any,
) -> LogStory:
    """A log at ``-lv 4`` with its start; a number in ``seen`` is how often a topic came up."""
    topics = {
        topic: one if isinstance(one, Seen) else Seen(one, Line(100, f"a line of {topic}"), Line(200, f"last {topic}"))
        for topic, one in (seen or {}).items()
    }
    usual: dict[str, Any] = {"starts": 1, "verbosity": 4, "lines": 1000, "seconds": 600.0}
    return LogStory(
        "server.log",
        LogFacts(**{"slots": 4, "kv_unified": True, **(facts or {})}),
        seen=topics,
        requests=requests,
        **{**usual, **more},
    )


def metrics(**values: float) -> Metrics:
    """An answer of /metrics."""
    return Metrics(values)


def slot(number: int, processing: bool = True, **more: Any) -> Slot:
    """An entry of /slots."""
    return Slot(number, 4096, processing, **more)


def server(count: int = 4, **more: Any) -> ServerLook:
    """A look at a server with so many slots."""
    props = Props(count, 4096, "m.gguf", "m", "b11549", True, True)
    return ServerLook("http://127.0.0.1:8080", **{"props": props, **more})


def queueing(*waiting: int, busy: int, slots: int = 4, **counters: float) -> ServerLook:
    """A server in whose looks so many requests wait, and so many are at work."""
    looks = [metrics(requests_deferred=one, requests_processing=busy, **counters) for one in waiting]
    return server(
        slots,
        metrics=looks[0],
        metrics_later=looks[1] if len(looks) > 1 else None,
        between_s=1.0 if len(looks) > 1 else 0.0,
        deferred=waiting,
    )


def probe(**more: Any) -> ProbeFacts:
    """Of an idle server near by: 400 prompt tokens at 200 tokens/s, 50 tokens/s of an answer."""
    usual: dict[str, Any] = {
        "requests": 3,
        "prompt_tokens": 400,
        "overhead_s": 0.008,
        "prefill_tokens_per_s": 200.0,
        "decode_step_s": 0.02,
        "short_prompt_overhead_s": 0.004,
        "cached_tokens_again": 396,
        "connect_s": 0.001,
    }
    return ProbeFacts(**{**usual, **more})


def pod(*args: str, **more: Any) -> PodFacts:
    """A pod whose container was given these arguments besides its model."""
    return PodFacts("llama-0", args=("-m", "/models/m.gguf", *args), **more)


def of(**parts: Any) -> Symptoms:
    """All that is known of one server."""
    return Symptoms("a server", **parts)


NOTHING = of()
