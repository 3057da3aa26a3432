"""What a request costs, in sentences. A figure that is no more than a bound is called one, each time it is told."""

from __future__ import annotations

from slotune.diagnose.request_cost import Precision, RequestCost
from slotune.report.figures import about_money, plural, seconds, significant

__all__ = ["cost_sentences"]

_WORDS = {Precision.EXACT: "", Precision.ABOUT: "about ", Precision.AT_MOST: "at most "}


def cost_sentences(cost: RequestCost) -> tuple[str, ...]:
    """Without full stops; the whole first, then what of it could be saved."""
    whose = "the device" if cost.gpus == 1 else f"the {cost.gpus} devices"
    read, written = round(cost.prompt_tokens), round(cost.output_tokens)
    sizes = f"{plural(read, 'computed prompt token')} and {plural(written, 'answered one')}"
    parts = f"{seconds(cost.prefill_s)} to read, {seconds(cost.decode_s)} to write"
    least = "" if cost.at_least_s is None else f", at least {seconds(cost.at_least_s)}"
    whole = f"{_WORDS[cost.precision]}{seconds(cost.total_s)} of {whose}{least}: {parts}"
    priced = _priced(cost, cost.total_s, _devices(cost))
    lines = [f"a request of {sizes} takes {whole}{priced} ({cost.basis})"]
    if cost.precision is Precision.AT_MOST and cost.sharing is None:
        lines.append("how many share a step would tell more: start it with --metrics and add --url, or --probe")
    if cost.again is not None and cost.again_s:
        because = "" if cost.again.cause is None else f" (see {cost.again.cause})"
        spent = f"{_WORDS[cost.again_precision]}{seconds(cost.again_s)} of that read"
        if cost.again.is_bound:
            again = "again what had been read before; how much these prompts share, nobody says"
        else:
            again = f"{_tokens(cost.again.tokens)} again that their slots held"
        lines.append(f"{spent} {again}{because}{_priced(cost, cost.again_s)}")
    if cost.saved_s and cost.cached_tokens is not None:
        lines.append(
            f"{_tokens(cost.cached_tokens)} a request came from the cache, which saved "
            f"{_WORDS[cost.reading]}{seconds(cost.saved_s)}{_priced(cost, cost.saved_s)}"
        )
    shareable = min(1000.0, cost.prompt_tokens)
    if shareable >= 1 and read > 1:
        saves = cost.per_thousand_cached_s * shareable / 1000
        lines.append(
            f"if {shareable:,.0f} of the computed prompt tokens were a shared prefix, a cache would save "
            f"{_WORDS[cost.reading]}{seconds(saves)} a request{_priced(cost, saves)}"
        )
    return tuple(lines)


def _tokens(amount: float) -> str:
    shown = significant(amount)
    return f"{shown} token" if shown == "1" else f"{shown} tokens"


def _devices(cost: RequestCost) -> str:
    return "" if cost.gpus == 1 else f" on {plural(cost.gpus, 'device')}"


def _priced(cost: RequestCost, of_s: float, more: str = "") -> str:
    money = cost.money(of_s)
    return "" if money is None else f", {about_money(money, cost.currency)} per 1,000 requests{more}"
