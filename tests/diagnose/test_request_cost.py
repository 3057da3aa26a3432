"""A request's price is its own work; what it waits for is nobody's cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.diagnose.request_cost import RequestCost, request_cost_of
from slotune.diagnose.symptoms import GPUFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import Line, LogStory, RequestTimings, Seen, Topic
from slotune.llama.server_answers import Metrics

WORKED = Symptoms(
    "worked example",
    log=LogStory("log", LogFacts(), requests=RequestTimings(100, 400_000, 0.0, 25_000, 0.0, cached_tokens=0)),
    server=ServerLook("http://127.0.0.1:8080", metrics=Metrics({"n_busy_slots_per_decode": 8.0})),
    probe=ProbeFacts(4, 4000, 0.0, prefill_tokens_per_s=10_000.0, decode_step_s=0.0102),
    gpu=GPUFacts("L4", price_per_hour=2.0),
)


def cost(symptoms: Symptoms) -> RequestCost:
    found = request_cost_of(symptoms)
    assert isinstance(found, RequestCost)
    return found


def test_the_worked_examples_request_takes_0_72_seconds_of_the_gpu():
    found = cost(WORKED)
    assert found.prefill_s == pytest.approx(0.4)
    assert found.decode_s == pytest.approx(0.32, abs=0.005)
    assert found.total_s == pytest.approx(0.72, abs=0.005)
    assert found.money(found.total_s) == pytest.approx(1000 * 0.7175 * 2 / 3600, rel=0.01)
    assert "$0.4 per 1,000 requests in all" in found.sentences[0]


def test_a_thousand_shared_tokens_would_save_a_tenth_of_a_second():
    assert "cache would save 100 ms a request" in cost(WORKED).sentences[-1]


def test_what_the_cache_saved_is_counted():
    requests = RequestTimings(100, 100_000, 0.0, 25_000, 0.0, cached_tokens=300_000)
    found = cost(replace(WORKED, log=LogStory("log", LogFacts(), requests=requests)))
    assert found.saved_s == pytest.approx(0.3)
    assert any("came from the cache, which saved 300 ms" in one for one in found.sentences)


def test_without_a_word_about_sharing_the_cost_is_an_upper_bound():
    found = cost(replace(WORKED, server=None))
    assert not found.sharing_known
    assert "at most 2.54 s to write" in found.sentences[0]


def test_a_log_without_two_requests_at_a_time_is_exact():
    requests = RequestTimings(100, 400_000, 0.0, 25_000, 0.0, most_busy_slots=1)
    found = cost(replace(WORKED, server=None, log=LogStory("log", LogFacts(), requests=requests)))
    assert found.sharing_known


def test_without_a_price_nothing_is_said_about_money():
    found = cost(replace(WORKED, gpu=None))
    assert found.money(1.0) is None
    assert not any("$" in one for one in found.sentences)


@pytest.mark.parametrize(
    ("symptoms", "words"),
    [
        (replace(WORKED, log=None), "how long requests are"),
        (replace(WORKED, probe=None), "how fast it reads and writes"),
        (Symptoms("nothing"), "--probe"),
    ],
)
def test_what_is_missing_is_named(symptoms: Symptoms, words: str):
    assert words in str(request_cost_of(symptoms))


def test_prompts_that_were_begun_anew_are_priced_as_what_they_cost_at_most():
    line = Line(7, "forcing full prompt re-processing due to lack of cache data")
    assert WORKED.log is not None
    log = replace(WORKED.log, seen={Topic.FULL_REPROCESSING: Seen(25, line, line)})
    found = cost(replace(WORKED, log=log))
    assert found.again_s == pytest.approx(0.1)
    assert "up to 100 ms of that read tokens again" in found.sentences[1]
    assert "$0.056 per 1,000 requests" in found.sentences[1]


def test_a_price_keeps_the_currency_that_it_was_declared_in():
    found = cost(replace(WORKED, gpu=GPUFacts("L4", price_per_hour=2.0, currency="EUR")))
    assert "(EUR 0.4 per 1,000 requests in all)" in found.sentences[0]
