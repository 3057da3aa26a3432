"""A server whose steps fail says that it is well; only its log tells."""

from __future__ import annotations

import pytest

from slotune.diagnose.checkup import check_up
from slotune.diagnose.finding import Finding, Severity
from slotune.diagnose.rules.health import RULES
from slotune.diagnose.symptoms import ServerLook, Symptoms
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import NOTHING, ask, found, is_clear, is_undecided, of

START = """0.00.000.100 I build: 11434 (1af25fa1) with cc for x86_64-linux-gnu
0.00.001.000 I srv    load_model: loading model '/models/m.gguf'
0.00.002.000 I srv  llama_server: model loaded
"""
ANSWERED = """0.01.004.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0
0.01.990.000 I slot print_timing: id  0 | task 1 | prompt eval time =     700.00 ms /   100 tokens
0.01.990.001 I slot print_timing: id  0 | task 1 |        eval time =     290.00 ms /    20 tokens
0.01.990.002 I slot      release: id  0 | task 1 | stop processing: n_tokens = 119, truncated = 0
"""
FAILED = """0.02.004.000 I slot launch_slot_: id  0 | task 2 | processing task, is_child = 0
{}
0.02.100.300 E srv    send_error: task id = 2, error: Compute error.
0.02.100.401 I slot      release: id  0 | task 2 | stop processing: n_tokens = 0, truncated = 0
"""
COMPUTE = "0.02.100.300 E srv  update_slots: Compute error. i = 0, n_batch = 2048, ret = -3"


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


@pytest.mark.parametrize(
    "line",
    [
        COMPUTE,
        "0.02.100.200 E llama_decode: failed to decode, ret = -3",
        "0.02.100.200 E decode: failed to decode, ret = -3",
        "0.02.100.100 E process_ubatch: failed to compute graph, compute status: -1",
        "0.02.100.300 E srv  update_slots: Invalid input batch. i = 0, n_batch = 2048, ret = -1",
        "0.02.100.000 E ggml_vulkan: Device lost",
    ],
)
def test_steps_that_fail_on_a_server_that_goes_on_are_found(line: str) -> None:
    story = read(START + FAILED.format(line))
    got = found(RULES, "SLT115", of(log=story), Severity.CRITICAL)
    assert got.evidence[0].text in line
    assert is_clear(RULES, "SLT114", of(log=story)), "it did not end"


def test_a_step_that_failed_among_many_answers_is_no_emergency() -> None:
    found(RULES, "SLT115", of(log=read(START + 20 * ANSWERED + FAILED.format(COMPUTE) + ANSWERED)))


def test_a_lost_device_at_the_end_of_the_log_is_an_end_unless_the_server_answers() -> None:
    lost = (
        "0.02.004.000 E ggml_vulkan: Device lost\n"
        "terminate called after throwing an instance of 'vk::DeviceLostError'\n"
    )
    story = read(START + ANSWERED + lost)
    assert is_clear(RULES, "SLT115", of(log=story))
    found(RULES, "SLT114", of(log=story), Severity.CRITICAL)
    there = of(log=story, server=ServerLook("http://127.0.0.1:8080", health_s=0.002))
    found(RULES, "SLT115", there, Severity.CRITICAL)
    assert is_clear(RULES, "SLT114", there)


def test_memory_that_ran_out_is_told_as_such() -> None:
    full = "0.02.099.000 E ggml_vulkan: Device memory allocation of size 1073741824 failed."
    assert is_clear(RULES, "SLT115", of(log=read(START + FAILED.format(f"{full}\n{COMPUTE}"))))


def test_a_batch_that_is_tried_again_in_smaller_pieces_did_not_fail() -> None:
    again = (
        "0.02.100.000 W srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size,"
        " i = 0, n_batch = 1024, ret = 1"
    )
    assert is_clear(RULES, "SLT115", of(log=read(START + ANSWERED + again + "\n" + ANSWERED)))


def test_a_server_that_computes_is_clear_and_without_a_log_nobody_knows() -> None:
    assert is_clear(RULES, "SLT115", of(log=read(START)))
    assert is_clear(RULES, "SLT115", of(log=read(ANSWERED)))
    assert is_undecided(RULES, "SLT115", NOTHING)
    said = ask(RULES, "SLT115", Symptoms("a server", log=LogStory("empty", read(START).facts)))
    assert not isinstance(said, Finding)


def test_failing_steps_come_before_what_only_costs_time() -> None:
    (first, *_) = check_up(of(log=read(START + FAILED.format(COMPUTE))), RULES).findings
    assert first.id == "SLT115"
