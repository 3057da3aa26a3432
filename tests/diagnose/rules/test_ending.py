"""One crash is no restart, and what is said of it is what its reader can do: flags, not the API's names of settings."""

from __future__ import annotations

import re

import pytest

from slotune.diagnose.finding import Finding, Severity
from slotune.diagnose.rules import health, memory
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import NOTHING, ask, found, is_clear, is_undecided, of, pod

START = """build: 6397 (cd08fc3e) with cc for x86_64-linux-gnu
main: loading model
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
"""
UP = START + "main: model loaded\nslot launch_slot_: id  0 | task 0 | processing task\n"
ASSERTED = "/src/llama-context.cpp:1234: GGML_ASSERT(n_tokens > 0) failed\n"
ENDS = {
    "assertion": UP + ASSERTED,
    "lost device": UP + "terminate called after throwing an instance of 'vk::DeviceLostError'\n",
    "quantized V": START + "llama_init_from_model: quantized V cache requires Flash Attention\n",
    "odd heads": START
    + "llama_init_from_model: K cache type q8_0 with block size 32 does not divide n_embd_head_k=80\n",
    "weights": START + "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
    "KV": START + "llama_init_from_model: failed to initialize: failed to allocate buffer for kv cache\n",
    "compute": START + "llama_init_from_model: failed to allocate compute pp buffers\n",
    "under load": UP + "CUDA error: out of memory\n",
    "host": UP + "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
}
NAMES = r"uBatchSize|batchSize|contextSizePerSlot|parallelSlots|cacheType|flashAttention|cacheRAM|variant|GPU class"


def read(text: str) -> LogStory:
    """As a log with this text is read."""
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


def findings(symptoms: Symptoms) -> list[Finding]:
    said = [rule.check(symptoms) for rule in (*health.RULES, *memory.RULES)]
    return [one for one in said if isinstance(one, Finding)]


def test_a_log_that_ends_in_a_crash_is_no_restart() -> None:
    symptoms = of(log=read(ENDS["assertion"]))
    got = found(health.RULES, "SLT114", symptoms, Severity.CRITICAL)
    assert got.sentence.startswith("it ended: llama-server stopped itself")
    assert got.evidence[0].line == 6
    assert is_clear(health.RULES, "SLT111", symptoms)
    told = " ".join((got.entry.title, got.entry.cause, got.first or got.entry.first, got.entry.verify))
    assert not re.search(r"kubectl|restart|which the finding names", told)


def test_a_crash_that_names_its_setting_says_the_flag() -> None:
    refused = found(health.RULES, "SLT114", of(log=read(ENDS["quantized V"])), Severity.CRITICAL, entry="SLT201")
    assert "-fa" in (refused.first or "")
    assert "-ub" in (found(health.RULES, "SLT114", of(log=read(ENDS["lost device"])), Severity.CRITICAL).first or "")


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("error: invalid argument: --no-such-flag", "Remove --no-such-flag."),
        ('error while handling argument "-ctk": Unsupported cache type: q9_0', None),
        ("llama_model_load: error loading model: missing tensor 'token_embd.weight'", None),
    ],
)
def test_an_error_that_is_repeated_is_no_advice(line: str, first: str | None) -> None:
    text = line if line.startswith("error") else START + line
    said = ask(health.RULES, "SLT114", of(log=read(text + "\n")))
    assert isinstance(said, Finding)
    assert said.first == first


def test_a_log_of_a_crash_and_the_start_after_it_is_a_restart() -> None:
    symptoms = of(log=read(ENDS["assertion"] + UP + ASSERTED))
    got = found(health.RULES, "SLT111", symptoms, Severity.WARNING)
    assert "2 times" in got.sentence
    assert "GGML_ASSERT" in got.sentence
    assert is_clear(health.RULES, "SLT114", symptoms)


def test_a_server_that_came_up_again_says_what_ended_the_one_before() -> None:
    got = found(health.RULES, "SLT111", of(log=read(ENDS["assertion"] + UP)), Severity.WARNING)
    assert "the last time after it ended: llama-server stopped itself: GGML_ASSERT" in got.sentence
    assert got.evidence[0].line == 6
    full = found(health.RULES, "SLT111", of(log=read(ENDS["under load"] + UP)), Severity.WARNING)
    assert "-ub" in (full.first or "")


def test_an_end_that_was_followed_by_starts_without_one_is_not_called_the_last() -> None:
    got = found(health.RULES, "SLT111", of(log=read(ENDS["assertion"] + 3 * UP)), Severity.INFO)
    assert "it was started 4 times in this log, and start 1 ended: llama-server stopped itself" in got.sentence
    assert got.evidence[0].line == 6


def test_a_pod_that_was_restarted_has_one_finding_for_it() -> None:
    symptoms = of(log=read(ENDS["assertion"]), pod=pod(restarts=1, last_exit=("Error", 134), ready=True))
    assert [one.id for one in findings(symptoms) if one.id in ("SLT111", "SLT114")] == ["SLT111"]


def test_a_log_that_does_not_end_in_an_error_is_clear() -> None:
    assert is_clear(health.RULES, "SLT114", of(log=read(UP)))
    assert is_undecided(health.RULES, "SLT114", NOTHING)


@pytest.mark.parametrize("end", ENDS)
def test_every_end_is_told_once_in_flags_as_they_are_typed(end: str) -> None:
    got = findings(of(log=read(ENDS[end])))
    assert len(got) == 1, [one.code for one in got]
    told = " ".join((got[0].sentence, got[0].first or got[0].entry.first))
    assert not re.search(NAMES, told), told
    assert len(set(got[0].evidence)) == len(got[0].evidence)


def test_a_full_gpu_says_which_flag_to_lower() -> None:
    full = found(memory.RULES, "SLT036", of(log=read(ENDS["compute"])), Severity.CRITICAL, entry="SLT205")
    assert "-ub" in (full.first or "")
    weights = ask(memory.RULES, "SLT036", of(log=read(ENDS["weights"])))
    assert isinstance(weights, Finding)
    assert "smaller weights" in (weights.first or "")
