"""A look at a running llama-server: what it says about itself and its work, read only, in under two seconds.

Nothing is computed for it and nothing changes, but for one thing that can't be helped: each /metrics begins a new
window of the gauges ``prompt_tokens_seconds`` and ``predicted_tokens_seconds``.

/health, /props and /v1/models are answered at once by a thread that does not compute. /slots and /metrics wait for the
running decode (ggml-org/llama.cpp#24866), and for ever on a server that hangs while /health says 200
(ggml-org/llama.cpp#27388): what does not come in time is noted, and the look goes on with what there is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from slotune.diagnose.symptoms import ServerLook
from slotune.gathering.address import base_address, usable_key
from slotune.gathering.asking import Answer, Asker, Cause, Silence
from slotune.gathering.foreign import is_llama_model_list, is_router, who_answers
from slotune.gathering.sampling import sampling_in_use
from slotune.llama.server_answers import Metrics, parse_metrics, parse_model, parse_props, parse_slots
from slotune.tuning.errors import InvalidInputError

__all__ = ["BETWEEN_S", "LIMIT_S", "look_at"]

T = TypeVar("T")

BETWEEN_S = 0.5
LIMIT_S = 10.0
"""Of a whole look, however stuck the server is."""

_DOOR_SHARE = 0.25
"""Of the limit, for /health and then for /props: both take milliseconds on a server that works."""
_TLS_SHARE = 0.05
"""Of the limit, for a server of ``https://`` to refuse what is no TLS; nearly all do so at once."""
_PLAIN = frozenset({200, 401, 403, 404, 503})
"""What only a server without TLS answers to plain HTTP; others hang up, say 400 or redirect."""
_QUEUE_SHARE = 0.5
"""Of the limit, for /slots and /metrics: a decode of 2,048 tokens takes seconds on a slow machine."""
_ROOT_S = 2.0
"""For the page at ``/``, which is only asked for to name what is not llama-server."""

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

_FLAGS = {"/metrics": "--metrics", "/slots": "--slots"}


async def look_at(url: str, key: str | None, *, between_s: float = BETWEEN_S, limit_s: float = LIMIT_S) -> ServerLook:
    """Ask the server at ``url`` what it is and what it does: /health, /props, /v1/models, /slots, /metrics twice.

    Args:
        url: scheme, host and port, with a path if the server lives under one.
        key: the API key; None for none.
        between_s: from one /metrics to the other.
        limit_s: of the whole look; a server that works is done long before.

    Returns:
        What it showed. An endpoint that is off, slow or odd is in ``refused``; if too slow, in ``silent_s`` too.

    Raises:
        InvalidInputError: no llama-server can be looked at there: not an address, nothing listens, another server, a
            key is missing or wrong, the model is still being loaded.
    """
    base = base_address(url)
    deadline = time.monotonic() + limit_s
    async with Asker(base, usable_key(key)) as asker:
        await _check_tls(asker, _TLS_SHARE * limit_s)
        health = await asker.get("/health", _DOOR_SHARE * limit_s)
        _check_door(asker, health)
        door_s = _DOOR_SHARE * limit_s
        props_said, models_said = await asyncio.gather(asker.get("/props", door_s), asker.get("/v1/models", door_s))
        await _check_llama(asker, health, props_said, models_said)
        notes = _Notes()
        notes.read(health, lambda _: None)
        props = notes.read(props_said, lambda said: parse_props(said.json))
        model = notes.read(models_said, lambda said: parse_model(said.json))
        queue_s = _QUEUE_SHARE * limit_s
        slots_said: Answer | Silence | None = None
        if props is not None and props.sleeping:
            notes.refused["/slots"] = "not asked: the server sleeps (--sleep-idle-seconds), and might wake up"
            first = await asker.get("/metrics", queue_s)
        else:
            slots_said, first = await asyncio.gather(asker.get("/slots", queue_s), asker.get("/metrics", queue_s))
        slots = None if slots_said is None else notes.read(slots_said, lambda said: parse_slots(said.json))
        slot_count = None if props is None else props.total_slots
        metrics = notes.metrics(first, slot_count)
        later: Metrics | None = None
        apart_s = 0.0
        if metrics is not None and isinstance(first, Answer) and first.at_s + between_s < deadline:
            await asyncio.sleep(first.at_s + between_s - time.monotonic())
            second = await asker.get("/metrics", deadline - time.monotonic())
            later, apart_s = notes.later(second, first, slot_count)
    sampling, source, of_request = sampling_in_use(props, slots)
    return ServerLook(
        url=base,
        props=props,
        model=model,
        slots=slots,
        metrics=metrics,
        metrics_later=later,
        between_s=apart_s,
        deferred=tuple(one.deferred for one in (metrics, later) if one is not None and one.deferred is not None),
        health_s=_took(health),
        slots_s=_took(slots_said) if slots is not None else None,
        metrics_s=_took(first) if metrics is not None else None,
        silent_s=notes.silent_s,
        refused=notes.refused,
        sampling=sampling,
        sampling_source=source,
        request_params_seen=of_request,
        chat_template=None if props is None or props.template is None else props.template.sentence,
    )


@dataclass(slots=True)
class _Notes:
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
            self.refused["/metrics"] = "a page without any of llama-server's metrics"
            return None
        if missing := [name for name in _COUNTERS if name not in shown and name not in odd]:
            words = f"an old or odd page: no number for {', '.join(missing)}"
            self.refused["/metrics"] = f"{self.refused['/metrics']}; {words}" if odd else words
        return page

    def later(self, said: Answer | Silence, first: Answer, slots: int | None) -> tuple[Metrics | None, float]:
        """The second page, and seconds since the first; with a note on what was a number in the first alone."""
        if isinstance(said, Silence) or said.status != 200:
            return None, 0.0
        page = _possible(parse_metrics(said.text), slots)
        if odd := {name: page.unusable[name] for name in _COUNTERS if name in page.unusable}:
            self.refused.setdefault("/metrics", f"the second page: {_unusable(odd)}")
        return page, said.at_s - first.at_s


def _possible(page: Metrics, slots: int | None) -> Metrics:
    """Without more busy slots than there are."""
    if not slots:
        return page
    odd = {name: page.values[name] for name in _AT_MOST_SLOTS if page.values.get(name, 0) > slots}
    values = {name: value for name, value in page.values.items() if name not in odd}
    more = {name: f"{value:g} of {slots} slots" for name, value in odd.items()}
    return Metrics(values, {**page.unusable, **more})


def _unusable(odd: Mapping[str, str]) -> str:
    said = ", ".join(f"{name} {value[:_LONGEST_VALUE]}" for name, value in odd.items())
    return f"left out what can't be true: {said}"


async def _check_tls(asker: Asker, limit_s: float) -> None:
    """Whether ``https://`` is right: a plain server would wait for the rest of what TLS begins with, and say nothing.

    Raises InvalidInputError.
    """
    if asker.base.startswith("https://"):
        async with Asker(asker.base.replace("https://", "http://", 1)) as plain:  # and without the key
            said = await plain.get("/health", limit_s)
        if isinstance(said, Answer) and said.status in _PLAIN:
            raise InvalidInputError("--url", asker.base, Cause.NO_TLS.value)


def _check_door(asker: Asker, health: Answer | Silence) -> None:
    """Whether anything is there that could be asked more. Raises InvalidInputError."""
    if isinstance(health, Silence):
        if health.cause is not Cause.SLOW:
            raise InvalidInputError("--url", asker.base, health.words)
        return
    _check_redirect(asker, health)
    _check_loading(asker, health)
    if health.status == 400 and b"https" in health.body[:1000].lower() and asker.base.startswith("http://"):
        raise InvalidInputError("--url", asker.base, "it speaks TLS there: try https:// in place of http://")
    if health.status in {502, 503, 504}:
        cure = f"/health answers {health.status}: a proxy that reaches no server behind it, or a server that failed"
        raise InvalidInputError("--url", asker.base, cure)


async def _check_llama(
    asker: Asker, health: Answer | Silence, props: Answer | Silence, models: Answer | Silence
) -> None:
    """Whether it is a llama-server that lets itself be asked. Raises InvalidInputError."""
    if isinstance(props, Answer):
        _check_redirect(asker, props)
        _check_loading(asker, props)
        if props.status in {401, 403}:
            raise _key_error(asker, props.status)
    if is_router(props):
        cure = "this is llama-server's router: give the address of the server that it started for the model"
        raise InvalidInputError("--url", asker.base, cure)
    if is_llama_model_list(models) or _parses_as_props(props):
        return
    if isinstance(models, Answer) and models.status in {401, 403}:
        raise _key_error(asker, models.status)
    if isinstance(props, Silence) and isinstance(models, Silence):
        if isinstance(health, Answer) and health.json_or_none == {"status": "ok"}:
            return  # llama-server's own words, and a state worth a diagnosis: nothing but /health answers
        words = f"it takes connections and says nothing: {props.words}"
        raise InvalidInputError("--url", asker.base, words)
    root = await asker.get("/", _ROOT_S)
    who = who_answers(props, models, root)
    raise InvalidInputError("--url", asker.base, f"no llama-server but {who}: only llama-server can be diagnosed")


def _check_redirect(asker: Asker, said: Answer) -> None:
    if 300 <= said.status < 400:
        raise InvalidInputError("--url", asker.base, f"it redirects{_place(said)}: give the address behind it")


def _check_loading(asker: Asker, said: Answer) -> None:
    if said.status == 503 and b"loading" in said.body[:1000].lower() and not said.is_page:
        cure = "it is still loading its model: ask again when /health says ok (--log FILE shows how far it is)"
        raise InvalidInputError("--url", asker.base, cure)


def _key_error(asker: Asker, status: int) -> InvalidInputError:
    if asker.has_key:
        return InvalidInputError("--api-key-file", None, f"{asker.base} does not accept the key in it ({status})")
    cure = f"it wants an API key ({status}): name a file that holds it with --api-key-file FILE"
    return InvalidInputError("--url", asker.base, cure)


def _parses_as_props(said: Answer | Silence) -> bool:
    if isinstance(said, Silence) or said.status != 200:
        return False
    try:
        parse_props(said.json)
    except ValueError:
        return False
    return True


def _refusal(said: Answer) -> str:
    """An answer that is not 200, in words."""
    if said.status in {404, 501} and said.path in _FLAGS:
        return f"off: start it with {_FLAGS[said.path]}"
    if said.status in {401, 403}:
        return f"wants an API key ({said.status}): --api-key-file FILE"
    return f"answers {said.status}"


def _took(said: Answer | Silence | None) -> float | None:
    return said.seconds if isinstance(said, Answer) else None


def _place(said: Answer) -> str:
    """Where a redirect leads, without what may be secret in it."""
    place = said.headers.get("location", "").partition("?")[0]
    return f" to {place[:200]}" if place.isprintable() and place and "@" not in place else ""
