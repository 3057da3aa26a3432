"""Reads what a server answered, and keeps in words why an endpoint said nothing, or less than it should."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from slotune.gathering.asking import Answer, Cause, Silence
from slotune.llama.server_answers import Metrics, parse_metrics

__all__ = ["Notes"]

T = TypeVar("T")

_COUNTERS = (
    "requests_processing",
    "requests_deferred",
    "n_decode_total",
    "prompt_tokens_total",
    "prompt_seconds_total",
    "tokens_predicted_total",
    "tokens_predicted_seconds_total",
)
"""What a page of today has from the first moment on, each with a number."""

_OLD_GAUGE = "kv_cache_usage_ratio"
"""What a page of 2024 has, and none of today."""
_AT_MOST_SLOTS = ("requests_processing", "n_busy_slots_per_decode")
_LONGEST_VALUE = 20
_GATHERED = "its metrics have labels, as somebody writes who gathers those of several servers: ask the server itself"

_GONE = frozenset({Cause.NOTHING_LISTENS, Cause.HUNG_UP})
"""How a server that ends is met: its port is closed, or a connection that it had taken."""

_FLAGS = {"/metrics": "--metrics", "/slots": "--slots"}


@dataclass(slots=True)
class Notes:
    """Why endpoints said nothing."""

    refused: dict[str, str] = field(default_factory=dict)
    silent_s: dict[str, float] = field(default_factory=dict)

    def read(self, said: Answer | Silence, parse: Callable[[Answer], T]) -> T | None:
        """What ``parse`` makes of an answer; None, and a note, when there is nothing to parse."""
        path = said.path
        if isinstance(said, Silence):
            self.refused[path] = said.words
            if said.cause is Cause.SLOW:
                self.silent_s[path] = round(said.seconds, 3)
            return None
        if said.status != 200:
            self.refused[path] = _refusal(said)
            return None
        try:
            return parse(said)
        except orjson.JSONDecodeError:
            self.refused[path] = "its answer is no JSON"
        except ValueError:  # the error's own words may quote what was answered
            self.refused[path] = "its answer is not llama-server's"
        return None

    def metrics(self, said: Answer | Silence, slots: int | None) -> Metrics | None:
        """A page of metrics; with a note on what a page of today has more, and on what can't be true."""
        page = self.read(said, lambda answer: _possible(parse_metrics(answer.text), slots))
        if page is None:
            return None
        shown, known = set(page.values), {*_COUNTERS, _OLD_GAUGE}
        if odd := {name: value for name, value in page.unusable.items() if name in known}:
            self.refused["/metrics"] = _unusable(odd)
            if not shown & known:
                return None
        elif not shown & known:
            labelled = {name.partition("{")[0] for name in shown} & known
            self.refused["/metrics"] = _GATHERED if labelled else "a page without any of llama-server's metrics"
            return None
        if missing := [name for name in _COUNTERS if name not in shown and name not in odd]:
            words = f"an old or odd page: no number for {', '.join(missing)}"
            self.refused["/metrics"] = f"{self.refused['/metrics']}; {words}" if odd else words
        return page

    def read_again(self, said: Answer | Silence, parse: Callable[[Answer], T]) -> T | None:
        """What ``parse`` makes of an answer to the same question later; what came before it stays."""
        if not isinstance(said, Silence):
            try:
                return parse(said) if said.status == 200 else None
            except ValueError:
                return None
        if said.cause is Cause.SLOW:
            self.silent_s[said.path] = round(said.seconds, 3)
        words = "it ended meanwhile, or was started anew" if said.cause in _GONE else said.words
        self.refused.setdefault(said.path, f"later: {words}")
        return None

    def later(self, answers: Sequence[Answer | Silence], slots: int | None) -> tuple[tuple[Metrics, float], ...]:
        """(Page, when it came) of each look after the first; with a note on what was a number in the first alone."""
        pages = []
        for number, said in enumerate(answers, 2):
            page = self.read_again(said, lambda answer: _possible(parse_metrics(answer.text), slots))
            if page is None or isinstance(said, Silence):
                continue
            if odd := {name: page.unusable[name] for name in _COUNTERS if name in page.unusable}:
                which = "the second page" if number == 2 else f"page {number}"
                self.refused.setdefault("/metrics", f"{which}: {_unusable(odd)}")
            pages.append((page, said.at_s))
        return tuple(pages)


def _possible(page: Metrics, slots: int | None) -> Metrics:
    """Without more busy slots than there are."""
    if not slots:
        return page
    odd = {name: page.values[name] for name in _AT_MOST_SLOTS if page.values.get(name, 0) > slots}
    values = {name: value for name, value in page.values.items() if name not in odd}
    more = {name: f"{value:g} of {slots} slot{'' if slots == 1 else 's'}" for name, value in odd.items()}
    return Metrics(values, {**page.unusable, **more})


def _unusable(odd: Mapping[str, str]) -> str:
    said = ", ".join(f"{name} {value[:_LONGEST_VALUE]}" for name, value in odd.items())
    return f"left out what can't be true: {said}"


def _refusal(said: Answer) -> str:
    """An answer that is not 200, in words."""
    if said.status in {404, 501} and said.path in _FLAGS:
        return f"off: start it with {_FLAGS[said.path]}"
    if said.status in {401, 403}:
        return f"wants an API key ({said.status}): --api-key-file FILE"
    return f"answers {said.status}"
