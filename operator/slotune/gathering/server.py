"""A look at a running llama-server: what it says about itself and its work, read only, in under two seconds.

Nothing is computed for it and nothing changes, but for one thing that can't be helped: each /metrics begins a new
window of the gauges ``prompt_tokens_seconds`` and ``predicted_tokens_seconds``.

/health, /props and /v1/models are answered at once by a thread that does not compute. /slots and /metrics wait for the
running decode (ggml-org/llama.cpp#24866), and for ever on a server that hangs while /health says 200
(ggml-org/llama.cpp#27388): what does not come in time is noted, and the look goes on with what there is. Builds that
answer them during a decode show what they knew before it, so there only time tells a wedge: a look can be a watch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from slotune.diagnose.symptoms import ServerLook
from slotune.gathering.address import base_address, usable_key
from slotune.gathering.asking import Answer, Asker, Silence
from slotune.gathering.door import check_door, check_llama, check_tls, is_too_slow
from slotune.gathering.look_notes import Notes
from slotune.gathering.sampling import sampling_in_use
from slotune.gathering.watching import Watch, ask, ask_again, still_for
from slotune.llama.server_answers import Props, Slot, parse_model, parse_props, parse_slots

__all__ = ["BETWEEN_S", "LIMIT_S", "look_at"]

BETWEEN_S = 0.5
LIMIT_S = 10.0
"""Of a whole look, however stuck the server is; a watch adds to it."""

_DOOR_SHARE = 0.25
"""Of the limit, for /health, then for /props, and for both again if neither answers: they take milliseconds on a server
that has an HTTP thread to spare."""
_TLS_SHARE = 0.05
"""Of the limit, for a server of ``https://`` to refuse what is no TLS; nearly all do so at once."""
_QUEUE_SHARE = 0.5
"""Of the limit, for /slots and /metrics: a decode of 2,048 tokens takes seconds on a slow machine."""
_LEAST_SHARE = 0.05
"""Of the limit, for the second /metrics: a question with less time would make a silent server of one that works."""

_Answers = tuple[Answer | Silence, ...]


async def look_at(
    url: str, key: str | None, *, between_s: float = BETWEEN_S, limit_s: float = LIMIT_S, watch: Watch | None = None
) -> ServerLook:
    """Ask the server at ``url`` what it is and what it does: /health, /props, /v1/models, /slots, /metrics twice.

    Args:
        url: scheme, host and port, with a path if the server lives under one.
        key: the API key; None for none.
        between_s: from one /metrics to the other.
        limit_s: of the whole look; a server that works is done long before.
        watch: goes on with /slots and /metrics for so long; the last of them are what is then called later.

    Returns:
        What it showed. An endpoint that is off, slow or odd is in ``refused``; if too slow, in ``silent_s`` too.

    Raises:
        SilentServerError: connections come about, and nothing is answered, asked twice.
        InvalidInputError: no llama-server can be looked at there: not an address, nothing listens, another server, a
            key is missing or wrong, the model is still being loaded.
    """
    base = base_address(url)
    deadline = time.monotonic() + limit_s
    async with Asker(base, usable_key(key)) as asker:
        await check_tls(asker, _TLS_SHARE * limit_s)
        health, props_said, models_said = await _at_the_door(asker, _DOOR_SHARE * limit_s)
        notes = Notes()
        notes.read(health, lambda _: None)
        props = notes.read(props_said, lambda said: parse_props(said.json))
        model = notes.read(models_said, lambda said: parse_model(said.json))
        least_s = _LEAST_SHARE * limit_s
        queue_s = min(_QUEUE_SHARE * limit_s, max(least_s, deadline - time.monotonic() - least_s))
        if watch is not None:
            watch.begins()
            queue_s = max(queue_s, watch.limit_s)
        slots_said, first = await _what_it_does(asker, props, notes, queue_s, watch)
        slot_count = None if props is None or props.total_slots < 1 else props.total_slots
        metrics = notes.metrics(first, slot_count)
        later: _Answers = ()
        slots_later: _Answers = ()
        if watch is not None:
            later, slots_later = await asyncio.gather(
                ask_again(asker, first, between_s, watch), ask_again(asker, slots_said, between_s, watch)
            )
        elif metrics is not None and isinstance(first, Answer):
            later = await _metrics_again(asker, first.at_s + between_s, deadline, 0.5 * least_s)
    slots, still_s = _slots(notes, slots_said, slots_later)
    pages = () if metrics is None else notes.later(later, slot_count)
    known = [] if metrics is None else [metrics, *(page for page, _ in pages)]
    sampling, source, of_request = sampling_in_use(props, slots)
    return ServerLook(
        url=base,
        props=props,
        model=model,
        slots=slots,
        metrics=metrics,
        metrics_later=pages[-1][0] if pages else None,
        between_s=pages[-1][1] - first.at_s if pages and isinstance(first, Answer) else 0.0,
        looks_at_metrics=len(known),
        processing=tuple(one.processing for one in known if one.processing is not None),
        deferred=tuple(one.deferred for one in known if one.deferred is not None),
        slots_still_s=still_s,
        health_s=_took(health),
        slots_s=_took(slots_said) if slots is not None else None,
        metrics_s=_took(first) if metrics is not None else None,
        silent_s=notes.silent_s,
        refused=notes.refused,
        sampling=sampling,
        sampling_source=source,
        request_params_seen=of_request,
    )


async def _at_the_door(asker: Asker, limit_s: float) -> tuple[Answer | Silence, Answer | Silence, Answer | Silence]:
    """What comes to /health, /props and /v1/models, each within ``limit_s``; asked twice where nothing comes.

    Raises InvalidInputError where that is no llama-server that can be asked more.
    """
    health = await asker.get("/health", limit_s)
    check_door(asker, health)
    props, models = await asyncio.gather(asker.get("/props", limit_s), asker.get("/v1/models", limit_s))
    if is_too_slow(health, props, models):  # each stream holds an HTTP thread: a burst may be over by now
        health, props, models = await asyncio.gather(
            *(asker.get(path, limit_s) for path in ("/health", "/props", "/v1/models"))
        )
        check_door(asker, health)
    await check_llama(asker, health, props, models)
    return health, props, models


async def _what_it_does(
    asker: Asker, props: Props | None, notes: Notes, limit_s: float, watch: Watch | None
) -> tuple[Answer | Silence | None, Answer | Silence]:
    """(What comes to /slots, what comes to /metrics); None, with a note, where asking for slots would wake it up."""
    if props is not None and props.sleeping:
        notes.refused["/slots"] = "not asked: the server sleeps (--sleep-idle-seconds), and might wake up"
        return None, await ask(asker, "/metrics", limit_s, watch)
    return await asyncio.gather(ask(asker, "/slots", limit_s, watch), ask(asker, "/metrics", limit_s, watch))


async def _metrics_again(asker: Asker, moment: float, deadline: float, least_s: float) -> _Answers:
    """What comes to /metrics at a moment; nothing is asked where less than ``least_s`` would be left for the answer."""
    if max(moment, time.monotonic()) >= deadline - least_s:
        return ()
    await asyncio.sleep(moment - time.monotonic())
    return (await asker.get("/metrics", deadline - time.monotonic()),)


def _slots(
    notes: Notes, first: Answer | Silence | None, later: Sequence[Answer | Silence]
) -> tuple[tuple[Slot, ...] | None, float | None]:
    """(The slots when most of them were at work, seconds for which those at work stood still)."""
    if first is None:
        return None, None
    slots = notes.read(first, lambda said: parse_slots(said.json))
    if slots is None or isinstance(first, Silence):
        return None, None
    looks = [(first.at_s, slots)]
    for said in later:
        again = notes.read_again(said, lambda one: parse_slots(one.json))
        if again is not None and isinstance(said, Answer):
            looks.append((said.at_s, again))
    return max((one for _, one in looks), key=lambda one: sum(slot.processing for slot in one)), still_for(looks)


def _took(said: Answer | Silence | None) -> float | None:
    return said.seconds if isinstance(said, Answer) else None
