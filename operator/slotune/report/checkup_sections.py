"""What is told of a server beside its findings: how near it is to what its device allows, and what a request costs."""

from __future__ import annotations

from typing import Any

from slotune.diagnose.request_cost import RequestCost, request_cost_of
from slotune.diagnose.roofline import Bound, Roofline, roofline_of
from slotune.diagnose.roofline_many import Many
from slotune.diagnose.speeds import Speed, decode_speed, prefill_speed
from slotune.diagnose.symptoms import Symptoms
from slotune.report.checkup import Section
from slotune.report.figures import finite, sentence, speed
from slotune.report.request_cost_words import cost_sentences

__all__ = ["sections_of"]


def sections_of(symptoms: Symptoms) -> tuple[Section, ...]:
    """Both, each with what it would take where it is not known."""
    roofline, cost = roofline_of(symptoms), request_cost_of(symptoms)
    return (
        _unbounded(roofline, symptoms) if isinstance(roofline, str) else _roofline(roofline),
        _unknown("request_cost", "Cost of a request", cost) if isinstance(cost, str) else _cost(cost),
    )


def _unbounded(needs: str, symptoms: Symptoms) -> Section:
    """How fast it is, though not how fast it could be."""
    section = _unknown("roofline", "Roofline", needs)
    speeds = {"decode": decode_speed(symptoms), "prefill": prefill_speed(symptoms)}
    seen = _seen(speeds["decode"], speeds["prefill"])
    allowed = f"What its device allows is not known; it takes {needs}."
    lines = (seen, allowed) if seen else section.lines
    bounds = {key: _bound(Bound(None, speed, needs)) for key, speed in speeds.items()}
    brief = lines[:1] if seen else ()
    return Section(section.key, section.title, lines, {**section.document, **bounds}, brief, needs)


def _seen(decode: Speed | None, prefill: Speed | None) -> str:
    """How fast it was seen to be; empty when nobody saw it."""
    said = [
        f"{what} at {speed(found.tokens_per_s)} tokens/s {found.basis}".rstrip()
        for what, found in (("answers were written", decode), ("prompts were read", prefill))
        if found is not None
    ]
    return sentence(", ".join(said)) if said else ""


def _unknown(key: str, title: str, needs: str) -> Section:
    return Section(key, title, (f"Not known; it takes {needs}.",), {"known": False, "needs": needs}, (), needs)


def _roofline(roofline: Roofline) -> Section:
    devices, guesses = roofline.devices, roofline.speculating
    document = {
        "known": True,
        "needs": None,
        "device": roofline.device,
        "device_named_by": None if devices.named_by is None else str(devices.named_by.source),
        "devices": devices.count,
        "split": devices.split,
        "weights_bytes": roofline.weights_bytes,
        "weights_exact": bool(roofline.is_dense) and not roofline.weights.rough,
        "kv_bytes": roofline.kv_bytes,
        "context_tokens": roofline.context_tokens,
        "speculating": guesses.is_on,
        "tokens_per_step": finite(guesses.tokens_per_step),
        "step_bytes": finite(roofline.step_bytes),
        "decode": _bound(roofline.decode),
        "prefill": _bound(roofline.prefill),
        "several": None if roofline.several is None else _several(roofline.several),
        "sentences": list(roofline.sentences),
    }
    lines = tuple(sentence(words) for words in roofline.sentences)
    if roofline.decode.at_most is not None or roofline.prefill.at_most is not None:
        return Section("roofline", "Roofline", lines, document)
    seen = _seen(roofline.decode.seen, roofline.prefill.seen)
    return Section("roofline", "Roofline", lines, document, (seen,) if seen else (), roofline.decode.needs or "")


def _bound(bound: Bound) -> dict[str, Any]:
    return {
        "at_most_tokens_per_s": finite(bound.at_most),
        "seen_tokens_per_s": None if bound.seen is None else finite(bound.seen.tokens_per_s),
        "seen_alone": None if bound.seen is None else bound.seen.alone,
        "share": finite(bound.share),
        "needs": bound.needs,
    }


def _several(several: Many) -> dict[str, Any]:
    return {
        "users": finite(several.users),
        "users_at_most": several.is_most,
        "step_bytes": several.step_bytes,
        "at_most_each_tokens_per_s": finite(several.at_most_each),
        "at_most_together_tokens_per_s": finite(several.at_most_together),
        "seen_each_tokens_per_s": finite(several.seen_each),
        "seen_together_tokens_per_s": finite(several.seen_together),
    }


def _cost(cost: RequestCost) -> Section:
    sentences = cost_sentences(cost)
    document = {
        "known": True,
        "needs": None,
        "prompt_tokens": finite(cost.prompt_tokens),
        "cached_tokens": finite(cost.cached_tokens),
        "output_tokens": finite(cost.output_tokens),
        "device_s": finite(cost.total_s),
        "prefill_s": finite(cost.prefill_s),
        "decode_s": finite(cost.decode_s),
        "precision": cost.precision.value,
        "at_least_s": finite(cost.at_least_s),
        "basis": cost.basis,
        "sharing": finite(cost.sharing),
        "sharing_known": cost.sharing is not None,
        "saved_s": finite(cost.saved_s),
        "again_s": finite(cost.again_s),
        "again_tokens": None if cost.again is None else finite(cost.again.tokens),
        "again_precision": None if cost.again is None else cost.again_precision.value,
        "again_cause": None if cost.again is None else cost.again.cause,
        "per_thousand_cached_s": finite(cost.per_thousand_cached_s),
        "reading_precision": cost.reading.value,
        "gpus": cost.gpus,
        "price_per_hour": finite(cost.price_per_hour),
        "currency": None if cost.price_per_hour is None else cost.currency,
        "price_of_1000_requests": finite(cost.money(cost.total_s)),
        "price_of_1000_saved": finite(cost.money(cost.saved_s)),
        "price_of_1000_again": finite(cost.money(cost.again_s)),
        "sentences": list(sentences),
    }
    return Section("request_cost", "Cost of a request", tuple(sentence(words) for words in sentences), document)
