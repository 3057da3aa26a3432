"""A request's price is its own work; what it waits for is nobody's cost, and a bound is called one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from slotune.diagnose.request_cost import Precision, RequestCost, request_cost_of
from slotune.diagnose.symptoms import GPUFacts, PodFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from slotune.llama.server_answers import Metrics
from slotune.report.request_cost_words import cost_sentences

START = """\
0.00.000.341 I srv          init: initializing ...
0.00.002.546 I srv          init: build_info: b11549-0123abc
0.00.005.273 I srv          init: loading model
0.00.462.826 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'false'
0.00.464.786 I srv          init: model loaded
"""
TWO_GPUS = """\
0.00.002.856 I cmn  common_param:   - CUDA0   : NVIDIA L4 (22565 MiB, 22317 MiB free)
0.00.002.857 I cmn  common_param:   - CUDA1   : NVIDIA L4 (22565 MiB, 22317 MiB free)
"""
L4 = GPUFacts("L4", price_per_hour=2.0)
PROBE = ProbeFacts(4, 4000, 0.0, prefill_tokens_per_s=10_000.0, decode_step_s=0.01)


@dataclass(frozen=True)
class Asked:
    """A request as the log tells it."""

    prompt: int
    prompt_ms: float
    answer: int
    answer_ms: float
    cached: int = 0
    held: float | None = None
    """Part of its prompt that its slot held; None: it got the one that was idle longest."""
    drafted: int = 0


def opened(number: int, one: Asked, slot: int) -> list[str]:
    held = "LRU, t_last = 7" if one.held is None else f"LCP similarity, f_sim_best = {one.held:.3f} (> 0.100 thold)"
    return [
        f"I slot get_availabl: id  {slot} | task -1 | selected slot by {held}",
        f"I slot launch_slot_: id  {slot} | task {number} | processing task, is_child = 0",
    ]


def closed(number: int, one: Asked, slot: int) -> list[str]:
    head = f"id  {slot} | task {number} |"
    timing, length = f"I slot print_timing: {head}", one.cached + one.prompt + one.answer - 1
    draft = f"{timing} draft acceptance = 0.60000 ( {one.drafted} accepted / {2 * one.drafted} generated)"
    return [
        f"{timing} prompt eval time = {took(one.prompt_ms, one.prompt)}",
        f"{timing}        eval time = {took(one.answer_ms, one.answer)}",
        *([draft] if one.drafted else []),
        f"I slot      release: {head} stop processing: n_tokens = {length}, truncated = 0",
    ]


def took(ms: float, tokens: int) -> str:
    speed = f"({ms / tokens:8.2f} ms per token, {1e3 * tokens / ms:8.2f} tokens per second)"
    return f"{ms:10.2f} ms / {tokens:5d} tokens {speed}"


def story(requests: Sequence[Asked], *, at_once: int = 1, every_ms: float = 100_000, start: str = START) -> LogStory:
    """What a server's log becomes that works on so many at a time, and begins such a group ever so often."""
    lines: list[tuple[float, str]] = []
    for first in range(0, len(requests), at_once):
        group = list(enumerate(requests[first : first + at_once], start=first))
        began = 1000 + first // at_once * every_ms
        lines += [(began, line) for number, one in group for line in opened(number, one, number - first)]
        lines += [(began + 1, line) for number, one in group for line in closed(number, one, number - first)]
    reader = LogReader("server.log")
    stamps = [f"{ms // 60_000:.0f}.{ms // 1000 % 60:02.0f}.{ms % 1000:03.0f}.000" for ms, _ in lines]
    stamped = [f"{stamp} {line}\n" for stamp, (_, line) in zip(stamps, lines, strict=True)]
    reader.feed((start + "".join(stamped)).encode())
    (told,) = reader.finish()
    return told


def cost(symptoms: Symptoms) -> RequestCost:
    found = request_cost_of(symptoms)
    assert isinstance(found, RequestCost)
    return found


def of(log: LogStory, **parts: object) -> Symptoms:
    return replace(Symptoms("a server", log=log), **parts)  # type: ignore[arg-type]  # a test's shorthand


def metrics(busy: float) -> ServerLook:
    return ServerLook("http://127.0.0.1:8080", metrics=Metrics({"n_busy_slots_per_decode": busy}))


def mixed(count: int = 50) -> list[Asked]:
    """Of 2,000 tokens and 200 of the answer: one in five at 3,000 and 110 tokens/s, the others at 900 and 40."""
    fast, slow = Asked(2000, 2000 / 3, 200, 199 / 0.110), Asked(2000, 2000 / 0.9, 200, 199 / 0.040)
    return [fast if number % 5 == 0 else slow for number in range(count)]


def test_alone_a_request_costs_what_the_logs_times_add_up_to_and_not_what_the_fastest_would() -> None:
    requests = mixed()
    found = cost(of(story(requests)))
    assert found.precision is Precision.EXACT
    assert found.prefill_s == pytest.approx(sum(one.prompt_ms for one in requests) / 50e3, rel=1e-3)
    assert found.decode_s == pytest.approx(sum(one.answer_ms for one in requests) / 50e3, rel=1e-3)
    assert "200 answered ones takes 6.25 s of the device: 1.91 s to read, 4.34 s to write" in cost_sentences(found)[0]


def test_no_probe_overrules_times_that_the_log_measured_alone() -> None:
    assert cost(of(story(mixed()), probe=PROBE)).total_s == cost(of(story(mixed()))).total_s


def test_drafts_are_in_the_times_already() -> None:
    asked = Asked(2000, 1000, 200, 1500, drafted=120)
    assert cost(of(story([asked] * 4))).decode_s == pytest.approx(1.5)


def test_requests_that_shared_steps_share_their_times() -> None:
    shared = story([Asked(4000, 800, 251, 5200)] * 16, at_once=8)
    found = cost(of(shared, server=metrics(8.0)))
    assert (found.precision, found.sharing) == (Precision.ABOUT, 8.0)
    assert found.total_s == pytest.approx(6.0 / 8)
    first = cost_sentences(found)[0]
    assert "takes about 0.75 s of the device" in first
    assert "divided among the 8 that shared a step on average" in first


def test_no_more_share_a_step_than_ever_ran_at_a_time() -> None:
    shared = story([Asked(4000, 800, 251, 5200)] * 16, at_once=2)
    assert cost(of(shared, server=metrics(8.0))).total_s == pytest.approx(6.0 / 2)


def test_where_nobody_says_how_many_shared_a_step_the_cost_is_a_bound() -> None:
    found = cost(of(story([Asked(4000, 800, 251, 5200)] * 16, at_once=8)))
    assert (found.precision, found.sharing) == (Precision.AT_MOST, None)
    assert found.total_s == pytest.approx(6.0)
    first, second, *_ = cost_sentences(found)
    assert "takes at most 6 s of the device, at least 0.75 s" in first
    assert "--metrics" in second


def test_a_probe_that_ran_alone_lowers_the_bound() -> None:
    shared = story([Asked(4000, 800, 251, 5200)] * 16, at_once=8)
    found = cost(of(shared, probe=PROBE))
    assert found.precision is Precision.AT_MOST
    assert found.total_s == pytest.approx(0.4 + 2.5)
    busy = cost(of(shared, probe=replace(PROBE, was_idle=False)))
    assert busy.total_s == pytest.approx(6.0)


def test_no_request_takes_more_than_the_time_of_the_whole_log() -> None:
    shared = story([Asked(4000, 800, 251, 5200)] * 16, at_once=8, every_ms=6000)
    found = cost(of(shared))
    assert found.precision is Precision.AT_MOST
    assert found.total_s == pytest.approx((7.0 + 1) / 16, rel=0.01)


def test_what_a_cached_token_saves_is_told_by_long_prompts() -> None:
    """A prompt of which 5 tokens are left to compute takes a step, whose fixed cost says nothing about tokens."""
    requests = [Asked(1000, 500, 20, 200), *[Asked(5, 20, 20, 200, cached=995)] * 9]
    found = cost(of(story(requests)))
    assert found.cached_tokens == pytest.approx(895.5)
    assert found.saved_s == pytest.approx(0.448, rel=0.01)
    assert any("cache, which saved about 0.448 s" in one for one in cost_sentences(found))


def test_short_prompts_alone_bound_what_a_cached_token_saves() -> None:
    found = cost(of(story([Asked(5, 20, 20, 200, cached=100)] * 5)))
    assert found.reading is Precision.AT_MOST
    assert any("cache, which saved at most 0.4 s" in one for one in cost_sentences(found))


def test_one_token_is_not_called_several() -> None:
    sentences = " ".join(cost_sentences(cost(of(story([Asked(1, 20, 2, 20, cached=1)] * 5)))))
    assert "1 token a request came from the cache" in sentences
    assert "1 computed prompt token and 2 answered ones" in sentences
    assert "shared prefix" not in sentences, "of one token nobody shares a part"


def test_a_thousand_shared_tokens_would_save_what_reading_them_takes() -> None:
    found = cost(of(story([Asked(4000, 400, 20, 200)] * 5)))
    assert "cache would save about 0.1 s a request" in cost_sentences(found)[-1]


def test_prompts_that_a_slot_held_and_that_were_read_again_are_priced() -> None:
    """``--no-cache-prompt``: one prompt, 15 times."""
    again = Asked(1000, 500, 20, 200, held=1.0)
    found = cost(of(story([Asked(1000, 500, 20, 200), *[again] * 14]), gpu=L4))
    assert found.again is not None
    assert not found.again.is_bound
    assert found.again.tokens == pytest.approx(14 / 15 * 999, rel=2e-3)
    assert found.again_s == pytest.approx(14 / 15 * 0.5, rel=3e-3)
    (words,) = (one for one in cost_sentences(found) if "again" in one)
    assert words.startswith("about 0.466 s of that read 932 tokens again that their slots held (see SLT040)")
    assert "$0.259 per 1,000 requests" in words


def test_what_the_cache_did_serve_was_not_read_again() -> None:
    found = cost(of(story([Asked(100, 50, 20, 200, cached=900, held=0.9)] * 10)))
    assert found.again is not None
    assert found.again.tokens == 0
    assert not any("again" in one for one in cost_sentences(found))


def test_a_part_of_a_prompt_that_its_slot_held_counts_as_that_part() -> None:
    found = cost(of(story([Asked(900, 450, 20, 200, cached=100, held=0.6)] * 10)))
    assert found.again is not None
    assert found.again.tokens == pytest.approx(500, abs=2)


def test_prompts_that_began_anew_without_a_word_on_what_the_slot_held_are_a_bound() -> None:
    said = "forcing full prompt re-processing due to lack of cache data"
    anew = f"1.00.000.000 W slot   operator(): id  0 | task 7 | {said}\n"
    told = story([Asked(1000, 500, 20, 200)] * 20, start=START + 5 * anew)
    found = cost(of(told))
    assert found.again is not None
    assert (found.again.is_bound, found.again.cause) == (True, "SLT041")
    assert found.again_s == pytest.approx(0.125)
    assert any(
        one.startswith("at most 0.125 s of that read again") and "SLT041" in one for one in cost_sentences(found)
    )


def test_a_cache_that_is_off_may_cost_all_of_the_reading() -> None:
    found = cost(of(story([Asked(1000, 500, 20, 200)] * 20), flags=("llama-server", "--no-cache-prompt")))
    assert found.again is not None
    assert (found.again.is_bound, found.again.cause) == (True, "SLT047")
    assert found.again_s == pytest.approx(found.prefill_s)


@pytest.mark.parametrize(
    ("parts", "start", "gpus"),
    [
        ({}, START, 1),
        ({"pod": PodFacts("llama-0", gpus=2)}, START, 2),
        ({}, START.replace("0.00.005", TWO_GPUS + "0.00.005", 1), 2),
        ({"pod": PodFacts("llama-0", gpus=4)}, START.replace("0.00.005", TWO_GPUS + "0.00.005", 1), 4),
    ],
)
def test_a_price_counts_for_each_gpu(parts: dict[str, object], start: str, gpus: int) -> None:
    found = cost(of(story([Asked(1000, 500, 20, 500)] * 5, start=start), gpu=L4, **parts))
    assert found.gpus == gpus
    assert found.money(found.total_s) == pytest.approx(1000 * 1.0 * gpus * 2.0 / 3600)


@pytest.mark.parametrize(
    ("price", "currency", "words"),
    [
        (0.0005, "USD", "$0.000139 per 1,000"),
        (5.76, "USD", "$1.6 per 1,000"),
        (950.4, "EUR", "€264 per 1,000"),
        (44_280.0, "CHF", "12,300 CHF per 1,000"),
    ],
)
def test_money_has_three_digits_and_its_currency(price: float, currency: str, words: str) -> None:
    priced = of(story([Asked(1000, 500, 20, 500)] * 5), gpu=GPUFacts("L4", price_per_hour=price, currency=currency))
    assert words in cost_sentences(cost(priced))[0]


def test_without_a_price_nothing_is_said_about_money() -> None:
    found = cost(of(story(mixed())))
    assert found.money(1.0) is None
    assert not any("$" in one for one in cost_sentences(found))


def test_without_requests_it_says_what_it_takes() -> None:
    assert "a log that holds some" in str(request_cost_of(Symptoms("nothing", probe=PROBE)))
