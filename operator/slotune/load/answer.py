"""One streamed answer: which events carry tokens, how it ended, and what the server says about it.

Each rule here is a way in which a known benchmark reported a wrong number (the tests name them):

* A role-only delta and a ``prompt_progress`` chunk are not tokens; reasoning and tool calls are.
* The number of tokens comes from ``timings.predicted_n`` or ``usage``, never from counting chunks.
* An error under HTTP 200 is an error; a stream without a token has no TTFT, not a TTFT of 0.

The caller stamps a read before it comes here, so parsing costs no latency.
"""

from __future__ import annotations

from typing import Any

import orjson

from slotune.load.records import RequestRecord, RequestStatus
from slotune.load.sse import EventSplitter, EventTooLongError

__all__ = ["Answer", "describe_error"]

_DONE = b"[DONE]"


class Answer:
    """Reads one answer into a :class:`RequestRecord`. Times are seconds since the run's start."""

    __slots__ = ("_asked", "_exact", "_final", "_hit_limit", "_now", "_record", "_splitter", "_truncated", "done")

    def __init__(self, record: RequestRecord, *, asked_tokens: int, exact: bool) -> None:
        """``exact``: the request set ``ignore_eos``, so fewer tokens than asked means that the context ran out."""
        self._record = record
        self._asked = asked_tokens
        self._exact = exact
        self._splitter = EventSplitter()
        self._final = False
        self._hit_limit = False
        self._truncated = False
        self._now = 0.0
        self.done = False
        """Nothing that follows can matter: the stream ended, or an error came."""

    def feed(self, read: bytes, now: float) -> int:
        """Take bytes that arrived at ``now``; return how many events with tokens they completed."""
        before = self._record.token_events
        self._now = now
        try:
            events = self._splitter.feed(read)
        except EventTooLongError as error:
            self._fail(str(error))
            return 0
        for name, data in events:
            if self.done:
                break
            self._event(name, data, now)
        return self._record.token_events - before

    def end(self) -> None:
        """Judge an answer whose stream ended."""
        record = self._record
        if not self.done:  # an event without its closing blank line arrived with the last read
            for name, data in self._splitter.end():
                self._event(name, data, self._now)
        if record.status is RequestStatus.STREAM_ERROR:
            return
        if record.first_token_s is None:
            record.status = RequestStatus.NO_TOKENS
            record.error = record.error or "the stream ended without a generated token"
        elif not self._final:
            record.status = RequestStatus.STREAM_ERROR
            record.error = "the stream ended without its last event"
        elif self._truncated or (self._below_asked() and (self._exact or self._hit_limit)):
            # "length" alone is what was asked for; with fewer tokens than asked it was the context.
            record.status = RequestStatus.TRUNCATED
            record.error = f"{record.output_tokens} of {self._asked} tokens: the context ran out"
        else:
            record.status = RequestStatus.OK

    def _below_asked(self) -> bool:
        count = self._record.output_tokens
        return count is not None and count < self._asked

    def _event(self, name: bytes, data: bytes, now: float) -> None:
        if data == _DONE:
            self._final = self.done = True
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            self._fail("an error event" if name == b"error" else "an event that is no JSON")
            return
        if name == b"error" or (isinstance(event, dict) and event.get("error")):
            self._fail(describe_error(event))
            return
        if isinstance(event, dict):
            content, other = _carries_token(event)
            if content or other:
                self._token(now, content=content)
            self._facts(event)

    def _token(self, now: float, *, content: bool) -> None:
        record = self._record
        if record.first_token_s is None:
            record.first_token_s = now
        elif record.last_token_s is not None and now - record.last_token_s > record.longest_gap_s:
            record.longest_gap_s = now - record.last_token_s
        if content and record.first_content_s is None:
            record.first_content_s = now
        record.last_token_s = now
        record.token_events += 1

    def _facts(self, event: dict[str, Any]) -> None:
        record = self._record
        timings = event.get("timings")
        if isinstance(timings, dict):
            record.prompt_tokens = _count(timings.get("prompt_n"))
            record.cached_tokens = _count(timings.get("cache_n"))
            record.prompt_ms = _number(timings.get("prompt_ms"))
            record.output_tokens = _count(timings.get("predicted_n"))
            record.predicted_ms = _number(timings.get("predicted_ms"))
            record.drafted_tokens = _count(timings.get("draft_n"))
            record.accepted_tokens = _count(timings.get("draft_n_accepted"))
        usage = event.get("usage")
        if isinstance(usage, dict) and record.output_tokens is None:
            record.output_tokens = _count(usage.get("completion_tokens"))
        if event.get("stop") is True:  # the last event of /completion
            self._final = self.done = True
            self._truncated = event.get("truncated") is True
            self._hit_limit = event.get("stop_type") == "limit"
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            reason = choices[0].get("finish_reason")
            if reason is not None:
                self._final = True
                self._hit_limit = reason == "length"

    def _fail(self, error: str) -> None:
        self._record.status = RequestStatus.STREAM_ERROR
        self._record.error = error
        self.done = True


def describe_error(event: object) -> str:
    """Name an error by its type and numbers only: a message may quote the prompt."""
    body = event.get("error", event) if isinstance(event, dict) else None
    if not isinstance(body, dict):
        return "an error event"
    parts = [str(body[key]) for key in ("code", "type") if _is_word(body.get(key))]
    parts += [f"{key}={body[key]}" for key in ("n_prompt_tokens", "n_ctx") if isinstance(body.get(key), int)]
    return " ".join(parts) or "an error event"


def _carries_token(event: dict[str, Any]) -> tuple[bool, bool]:
    """Whether the event has generated content, and whether it has any other generated token."""
    choices = event.get("choices")
    if choices is None:  # /completion
        return bool(event.get("content")) or bool(event.get("tokens")), False
    content = other = False
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict):
            content = content or bool(delta.get("content"))
            other = other or bool(delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls"))
        elif isinstance(choice, dict):  # /v1/completions
            content = content or bool(choice.get("text"))
    return content, other


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _is_word(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.replace("_", "").isalnum() and len(value) < 60)
