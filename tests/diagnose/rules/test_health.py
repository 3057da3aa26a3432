"""/health is always well; a wedge shows in what does not move, a restart in what was counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Confidence, Severity, Undecided
from slotune.diagnose.rules.health import RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.failures import Failure, FailureClass
from slotune.llama.log_story import Line, LogStory, Topic
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import (
    NOTHING,
    ask,
    found,
    is_clear,
    is_undecided,
    log,
    metrics,
    of,
    pod,
    server,
    slot,
    timings,
)

# SLT110


def looks(first: dict[str, float], later: dict[str, float], between_s: float) -> Symptoms:
    counted = {
        "requests_processing": 2.0,
        "n_decode_total": 500.0,
        "prompt_tokens_total": 9000.0,
        "prompt_seconds_total": 90.0,
    }
    return of(
        server=server(metrics=metrics(**counted | first), metrics_later=metrics(**counted | later), between_s=between_s)
    )


def test_requests_that_are_processed_for_a_minute_without_a_decode_are_a_wedge() -> None:
    got = found(RULES, "SLT110", looks({}, {}, 75.0), Severity.CRITICAL)
    assert got.confidence is Confidence.LIKELY
    assert got.sentence == "2 requests are being processed, and not one decode was counted in 75 s"


@pytest.mark.parametrize("moved", ["n_decode_total", "prompt_tokens_total"])
def test_a_counter_that_grows_is_life(moved: str) -> None:
    assert is_clear(RULES, "SLT110", looks({}, {moved: 9001.0}, 75.0))


def test_a_server_that_holds_no_request_may_stand_still() -> None:
    assert is_clear(RULES, "SLT110", looks({"requests_processing": 0}, {"requests_processing": 0}, 75.0))
    assert is_clear(RULES, "SLT110", of(server=server(slots=(slot(0, processing=False),))))


def test_half_a_second_without_a_decode_is_one_long_step() -> None:
    assert is_undecided(RULES, "SLT110", looks({}, {}, 0.5))


def needs(symptoms: Symptoms) -> str:
    said = ask(RULES, "SLT110", symptoms)
    assert isinstance(said, Undecided), said
    return said.needs


def test_what_tells_a_wedge_from_a_long_step_is_named_with_its_seconds() -> None:
    assert needs(looks({}, {}, 0.5)).startswith("--watch 60: ")
    silent = server(health_s=0.003, silent_s={"/slots": 5.0, "/metrics": 5.0})
    assert needs(of(server=silent, log=log(build=10400, requests=timings()))).startswith("--watch 60: ")
    assert needs(of(server=silent, log=log(build=10400))).startswith("--watch 600: "), "nobody knows its speed"


def test_a_slow_server_has_the_time_that_a_whole_batch_takes_it() -> None:
    """2,048 tokens at 20 tokens/s are 102 s in which nothing moves."""
    slow = {"prompt_seconds_total": 450.0}
    assert needs(looks(slow, slow, 75.0)).startswith("--watch 205: ")
    assert found(RULES, "SLT110", looks(slow, slow, 206.0), Severity.CRITICAL)
    fresh = {"prompt_tokens_total": 0.0, "prompt_seconds_total": 0.0}
    assert needs(looks(fresh, fresh, 75.0)).startswith("--watch 600: ")


def test_a_server_that_held_no_request_in_between_does_not_stand_still() -> None:
    seen = looks({}, {}, 75.0).server
    assert seen is not None
    assert is_clear(RULES, "SLT110", of(server=replace(seen, processing=(2, 0, 2))))


def test_slots_tell_a_wedge_where_there_are_no_metrics() -> None:
    slots = (slot(0, task=3, decoded=7, prompt_tokens_processed=20), slot(1, processing=False))
    quick = log(requests=timings())

    def watched(still_s: float | None) -> Symptoms:
        return of(server=server(slots=slots, slots_still_s=still_s), log=quick)

    got = found(RULES, "SLT110", watched(75.0), Severity.CRITICAL)
    assert got.sentence == "every slot that is at work stands at the same token for 75 s"
    assert got.confidence is Confidence.LIKELY
    assert is_clear(RULES, "SLT110", watched(0.0))
    assert needs(watched(None)).startswith("--watch 60: ")
    assert needs(watched(30.0)).startswith("--watch 60: ")


def test_a_build_that_answers_while_it_decodes_and_does_not_answer_is_a_wedge() -> None:
    silent = {"/slots": 5.0, "/metrics": 5.0}
    new = server(health_s=0.003, silent_s=silent)
    got = found(RULES, "SLT110", of(server=new, log=log(build=11549)), Severity.CRITICAL)
    assert got.sentence == "/metrics and /slots gave no answer for 5 s, while /health answers in 3 ms"
    old = of(server=new, log=log(build=10400))
    assert is_undecided(RULES, "SLT110", old), "there they wait for the decode"


def test_a_server_that_answers_nothing_at_all_is_not_called_wedged() -> None:
    assert is_undecided(RULES, "SLT110", of(server=server(silent_s={"/health": 5.0, "/slots": 5.0})))


def test_a_server_that_was_ended_for_it_was_wedged_for_certain() -> None:
    said = found(RULES, "SLT110", of(log=log(**failed(FailureClass.WEDGED))), Severity.CRITICAL)
    assert said.confidence is Confidence.CERTAIN


def test_a_log_alone_cannot_tell_a_server_that_hangs_from_one_that_is_idle() -> None:
    assert is_undecided(RULES, "SLT110", NOTHING)
    assert is_undecided(RULES, "SLT110", of(log=log()))


# SLT111


def failed(failure_class: FailureClass = FailureClass.CRASHED) -> dict[str, Any]:
    return {
        "failure": Failure(failure_class, None, "llama-server stopped itself: GGML_ASSERT(n_tokens > 0)"),
        "failure_line": Line(300, "GGML_ASSERT(n_tokens > 0) failed"),
    }


def test_memory_that_ran_out_has_a_finding_of_its_own() -> None:
    assert is_undecided(RULES, "SLT111", of(log=log(starts=0, **failed(FailureClass.OUT_OF_MEMORY_KV))))


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ({"restarts": 9, "last_exit": ("Error", 1), "ready": False}, Severity.CRITICAL),
        ({"restarts": 1, "last_exit": ("Error", 134), "ready": True}, Severity.WARNING),
        ({"restarts": 5, "ready": True}, Severity.WARNING),
        ({"restarts": 1, "last_exit": ("Completed", 0), "ready": True}, Severity.INFO),
    ],
    ids=["it does not come up", "it crashed once", "again and again", "it was asked to end"],
)
def test_restarts_weigh_as_much_as_their_end(more: dict[str, Any], severity: Severity) -> None:
    got = found(RULES, "SLT111", of(pod=pod(**more)), severity)
    assert got.evidence[0].text == f"restarts {more['restarts']}"


def test_the_reason_in_the_log_goes_with_the_restarts_of_the_pod() -> None:
    got = found(RULES, "SLT111", of(pod=pod(restarts=1, last_exit=("Error", 134), ready=True), log=log(**failed())))
    assert "GGML_ASSERT" in got.sentence


def test_several_starts_in_a_log_may_be_somebodys_doing() -> None:
    assert found(RULES, "SLT111", of(log=log(starts=3)), Severity.INFO).confidence is Confidence.POSSIBLE


def test_several_starts_for_want_of_memory_are_nobodys_doing() -> None:
    found(RULES, "SLT111", of(log=log(starts=3, **failed(FailureClass.OUT_OF_MEMORY_KV))))


def test_a_start_that_failed_again_is_critical_until_one_came_up() -> None:
    found(RULES, "SLT111", of(log=log(starts=3, **failed())), Severity.CRITICAL)
    found(RULES, "SLT111", of(log=log(starts=3, facts={"ready": True}, **failed())))


def test_one_start_and_no_restart_is_healthy() -> None:
    assert is_clear(RULES, "SLT111", of(pod=pod()))
    assert is_clear(RULES, "SLT111", of(log=log()))
    assert is_undecided(RULES, "SLT111", NOTHING)
    assert is_undecided(RULES, "SLT111", of(log=log(starts=0)))


# SLT112


def test_a_server_that_ended_for_its_draft_model_does_not_serve() -> None:
    said = found(RULES, "SLT112", of(log=log(**failed(FailureClass.SPECULATION_UNAVAILABLE))), Severity.CRITICAL)
    assert said.sentence.startswith("it ended: ")


ERROR = "failed to initialize speculative decoding context: draft vocab does not match"


def test_speculation_that_failed_is_found_by_its_error() -> None:
    got = found(RULES, "SLT112", of(log=log(facts={"speculation_error": ERROR})))
    assert got.evidence == (Evidence(Source.LOG, ERROR),)
    found(RULES, "SLT112", of(log=log({Topic.SPECULATION_FAILED: 1})))


def test_slots_that_do_not_speculate_though_they_were_asked_to() -> None:
    slots = (slot(0, speculative=False), slot(1, speculative=False))
    symptoms = of(server=server(slots=slots), flags=("-m", "x", "--spec-type", "ngram-mod"))
    assert found(RULES, "SLT112", symptoms).confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "symptoms",
    [
        of(log=log(facts={"speculation": True, "ready": True})),
        of(log=log(facts={"ready": True})),
        of(pod=pod("-np", "2")),
        of(pod=pod("--spec-type", "none")),
        of(server=server(slots=(slot(0, speculative=True),)), flags=("-m", "x", "-md", "d.gguf")),
    ],
    ids=["set up", "no error", "not asked for", "asked not to", "slots speculate"],
)
def test_speculation_that_works_or_was_never_wanted_is_clear(symptoms: Symptoms) -> None:
    assert is_clear(RULES, "SLT112", symptoms)


def test_speculation_is_undecided_without_arguments_and_start() -> None:
    assert is_undecided(RULES, "SLT112", NOTHING)
    assert is_undecided(RULES, "SLT112", of(log=log(starts=0)))


START = """0.00.000.100 I srv  llama_server: build_info: b11549-1a2b3c4
0.00.310.100 I srv    load_model: loading draft model 'tiny.gguf'
0.00.462.826 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 4096, kv_unified = 'true'
0.00.462.883 I spec common_specu: {said}
0.00.464.000 I srv  llama_server: model loaded
"""
NOT_USED = "no implementations specified for speculative decoding"


def read(text: str) -> LogStory:
    """What a log says of its only server."""
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


def test_a_draft_model_that_is_loaded_and_not_used_is_found() -> None:
    silent = tuple(slot(number, speculative=False) for number in range(2))
    by_log = found(RULES, "SLT112", of(log=read(START.format(said=NOT_USED))))
    by_slots = found(
        RULES, "SLT112", of(log=read(START.format(said="a line of another kind")), server=server(slots=silent))
    )
    for got in (by_log, by_slots):
        assert "loading draft model 'tiny.gguf'" in got.evidence[0].text
        assert got.first is not None
        assert "--spec-type" in got.first
    assert is_undecided(RULES, "SLT112", of(log=read(START.format(said="a line of another kind"))))
    by_argument = found(RULES, "SLT112", of(server=server(slots=silent), flags=("-m", "x", "-md", "tiny.gguf")))
    assert by_argument.evidence == (
        Evidence(Source.FLAGS, "-md tiny.gguf"),
        Evidence(Source.SLOTS, "speculative false"),
    )


def test_a_draft_model_that_is_used_is_clear() -> None:
    assert is_clear(RULES, "SLT112", of(log=read(START.format(said="speculative decoding context initialized"))))


def test_a_kind_of_speculation_that_the_log_does_not_have_is_found() -> None:
    asked = ("-m", "x", "--spec-type", "ngram-mod")
    assert found(RULES, "SLT112", of(log=log(facts={"speculation": False, "ready": True}), flags=asked)).first is None


def test_slots_that_do_not_speculate_may_have_been_asked_to_by_arguments_that_nobody_showed() -> None:
    silent = server(slots=(slot(0, speculative=False),))
    assert is_undecided(RULES, "SLT112", of(server=silent))
    assert is_clear(RULES, "SLT112", of(server=silent, log=log(facts={"ready": True})))


# SLT113


def test_an_ini_file_behind_the_arguments_is_worth_knowing() -> None:
    got = found(RULES, "SLT113", of(log=log(facts={"config_files": ("/etc/llama.cpp/config.ini",)})), Severity.INFO)
    assert "/etc/llama.cpp/config.ini" in got.sentence


def test_a_start_without_one_is_clear() -> None:
    assert is_clear(RULES, "SLT113", of(log=log()))
    assert is_undecided(RULES, "SLT113", NOTHING)
    assert is_undecided(RULES, "SLT113", of(log=log(starts=0)))


def test_a_crash_before_the_start_that_came_up_is_no_longer_critical() -> None:
    found(RULES, "SLT111", of(log=log(starts=2, facts={"ready": True}, **failed())))


UNFIT = """\
0.00.221.040 I srv          init: build_info: b8148-7e4c0a9
0.00.226.771 I srv    load_model: loading model '/models/model.gguf'
{more}0.02.100.000 W common_speculative_is_compat: the target context does not support partial sequence removal
0.02.100.001 W srv    load_model: speculative decoding not supported by this context
0.02.301.500 I srv          init: model loaded
"""
DRAFT = "0.02.000.000 I srv    load_model: loading draft model '/models/draft.gguf'\n"


def test_a_context_that_is_unfit_for_what_nobody_asked_for_is_no_failure() -> None:
    assert is_clear(RULES, "SLT112", of(log=read(UNFIT.format(more=""))))
    assert is_clear(RULES, "SLT112", of(log=read(UNFIT.format(more="")), flags=("-m", "x")))
    said = found(RULES, "SLT112", of(log=read(UNFIT.format(more="")), flags=("-m", "x", "--spec-type", "ngram-simple")))
    assert said.confidence is Confidence.CERTAIN
    assert found(RULES, "SLT112", of(log=read(UNFIT.format(more=DRAFT))))


def test_a_build_that_counts_no_decodes_is_judged_by_its_slots() -> None:
    held = {"requests_processing": 2.0, "prompt_tokens_total": 9000.0, "prompt_seconds_total": 90.0}
    look = server(metrics=metrics(**held), metrics_later=metrics(**held), between_s=75.0)
    assert "--no-slots" in needs(of(server=look))
    at_work = (slot(0, decoded=7), slot(1, decoded=9))
    found(RULES, "SLT110", of(server=replace(look, slots=at_work, slots_still_s=75.0)), Severity.CRITICAL)
    assert is_clear(RULES, "SLT110", of(server=replace(look, slots=at_work, slots_still_s=0.0)))
