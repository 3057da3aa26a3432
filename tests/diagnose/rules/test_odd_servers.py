"""Servers that are strange and well: no rule raises, and none finds more than is worth knowing."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.finding import Severity
from slotune.diagnose.rules.work import user_speed
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import COUNTERS, ask, metrics, of, pod, probe, server, slot

CPU_IMAGE = "ghcr.io/ggml-org/llama.cpp:server-b11434"
CUDA_IMAGE = "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434"


def started(slots: int = 4) -> str:
    return (
        "0.00.000.100 I build: 11434 (1af25fa1) with cc for x86_64-linux-gnu\n"
        "0.00.001.000 I srv    load_model: loading model '/models/m.gguf'\n"
        f"0.00.002.000 I srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = 512, kv_unified = 'true'\n"
        "0.00.003.000 I srv  llama_server: model loaded\n"
    )


def request(number: int, slot: int, tokens: int, prompt_ms: float, answer: int, ms: float, guessed: str = "") -> str:
    """One request that begins at second ``10 * number``; without an answer it has no times, as embeddings have none."""
    begin, end = 10 * number, 10 * number + int((prompt_ms + ms) / 1e3)
    at, of_it = f"{end // 60}.{end % 60:02}.990.000 I slot", f"id {slot:2d} | task {number} |"
    times = (
        f"{at} print_timing: {of_it} prompt eval time = {prompt_ms:.2f} ms / {tokens} tokens\n"
        f"{at} print_timing: {of_it}        eval time = {ms:.2f} ms / {answer} tokens\n"
    )
    return (
        f"{begin // 60}.{begin % 60:02}.003.000 I slot get_availabl: id {slot:2d} | task -1 | selected slot by LRU\n"
        f"{begin // 60}.{begin % 60:02}.004.000 I slot launch_slot_: {of_it} processing task, is_child = 0\n"
        + (times if answer else "")
        + (f"{at} print_timing: {of_it} draft acceptance rate = {guessed}\n" if guessed else "")
        + f"{at}      release: {of_it} stop processing: n_tokens = {max(tokens, tokens + answer - 1)}, truncated = 0\n"
    )


ACCEPTED = "0.68182 (  150 accepted /   220 generated)"
TEXTS = {
    "nothing but a start": started(),
    "one request": started() + request(1, 0, 100, 700.0, 20, 300.0),
    "one long prompt on a slow CPU": started() + request(1, 0, 6000, 60_000.0, 100, 9000.0),
    "embeddings": started() + "".join(request(n, n % 4, 300, 0.0, 0, 0.0) for n in range(1, 40)),
    "one person, one slot": started(1) + "".join(request(n, 0, 80, 600.0, 200, 9000.0) for n in range(1, 20)),
    "an agent that never pauses": started() + "".join(request(n, 0, 400, 1600.0, 200, 8000.0) for n in range(1, 25)),
    "guesses that are right": started()
    + "".join(request(n, 0, 40, 100.0, 200, 3000.0, ACCEPTED) for n in range(1, 25)),
    "no time at all": started() + "".join(request(n, n % 4, 1, 0.0, 1, 0.0) for n in range(1, 30)),
    "a page a prompt, none alike": started()
    + "".join(request(n, n % 4, 2000, 2000.0, 60, 1000.0) for n in range(1, 60)),
}


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


def alarms(symptoms: Symptoms) -> list[str]:
    found = check_up(symptoms, ALL_RULES).findings
    return [f"{one.id} {one.sentence}" for one in found if one.severity is not Severity.INFO]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"pod": pod(image=CPU_IMAGE, ready=True)},
        {"pod": pod(image=CUDA_IMAGE, gpus=1, ready=True)},
        {"pod": pod("--embedding", image=CPU_IMAGE, cpu_limit=1.0)},
        {"pod": pod("--rerank", "-t", "1", image=CPU_IMAGE, cpu_limit=1.0)},
    ],
    ids=["its log alone", "a CPU", "a GPU", "embeddings", "ranks, on one core"],
)
def test_the_log_of_a_strange_server_that_is_well_raises_no_alarm(text: str, more: dict[str, Any]) -> None:
    assert alarms(of(log=read(text), **more)) == []


NONE: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)
EMBEDS = NONE | {"requests_processing": 2, "n_decode_total": 100, "prompt_tokens_total": 50_000}


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (NONE, NONE),
        (NONE | {"prompt_tokens_total": 2500, "prompt_seconds_total": 3, "n_decode_total": 30}, None),
        (EMBEDS, EMBEDS | {"n_decode_total": 160, "prompt_tokens_total": 80_000}),
        (NONE | {"n_decode_total": 5000, "requests_processing": 1}, NONE | {"requests_processing": 1}),
        (dict.fromkeys(NONE, 1e300), dict.fromkeys(NONE, 0.0)),
        (NONE | {"tokens_predicted_total": 50, "tokens_predicted_seconds_total": 1e-258}, None),
    ],
    ids=["just started", "one request", "embeddings", "started again between the looks", "huge", "in no time"],
)
def test_the_metrics_of_a_strange_server_that_is_well_raise_no_alarm(
    first: dict[str, float], later: dict[str, float] | None
) -> None:
    looks: dict[str, Any] = {
        "metrics": metrics(**first),
        "metrics_later": metrics(**(first if later is None else later)),
    }
    idle = tuple(slot(number, False) for number in range(4))
    assert alarms(of(server=server(between_s=1.0, **looks))) == []
    assert alarms(of(server=server(between_s=1.0, **looks), promise=Promise(1.0, 1.0))) == []
    assert alarms(of(server=server(between_s=1.0, slots=idle, **looks))) == []


def test_prompts_of_which_no_text_is_made_are_not_missed_in_the_cache() -> None:
    uncached = metrics(prompt_tokens_total=50_000, prompt_tokens_cached_total=0)
    stated = of(server=server(metrics=uncached), flags=("--embedding",))
    for symptoms in (of(server=server(metrics=metrics(**EMBEDS))), stated):
        assert [one.id for one in check_up(symptoms, ALL_RULES).findings] == []


@pytest.mark.parametrize("nothing", [{"prefill_tokens_per_s": 0.0}, {"prompt_tokens": 0}, {"decode_step_s": 0.0}])
def test_a_probe_that_timed_nothing_decides_nothing(nothing: dict[str, Any]) -> None:
    told = {"overhead_s": 0.3, "connect_s": 0.2, "stream_s": 0.1, "stream_made_s": 0.15} | nothing
    assert alarms(of(probe=probe(**told, short_prompt_overhead_s=0.29))) == []


def test_a_similarity_that_is_no_number_is_nobodys_word() -> None:
    said = ask([rule for rule in ALL_RULES if rule.id == "SLT043"], "SLT043", of(pod=pod("-sps", "nan")))
    assert "nan" not in str(said).lower()


def test_a_speed_that_no_server_has_is_not_told() -> None:
    at_once = metrics(tokens_predicted_total=50, tokens_predicted_seconds_total=1e-258)
    assert user_speed(of(server=server(metrics=at_once))) is None
    told = user_speed(of(server=server(metrics=metrics(tokens_predicted_total=50, tokens_predicted_seconds_total=2))))
    assert told is not None
    assert told.value == 25
