"""What is embedded or ranked is refused where it is longer than a physical batch (ggml-org/llama.cpp#12295, #25293)."""

from __future__ import annotations

from slotune.diagnose.rules import batch, memory
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, timings

START = "srv    load_model: loading model 'bge-m3.gguf'\nllama_context: n_ubatch      = 512\nmain: model loaded\n"
TOO_LONG = "srv    send_error: task id = {task}, error: input ({tokens} tokens) is too large to process. "
TOO_LONG += "increase the physical batch size (current batch size: 512)\n"
UNCOUNTED = "srv    send_error: task id = 7, error: input is too large to process. increase the physical batch size\n"


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed((START + text).encode())
    (story,) = reader.finish()
    return story


def test_inputs_that_were_refused_are_found_with_the_batch_that_they_need() -> None:
    story = read(TOO_LONG.format(task=3, tokens=574) + TOO_LONG.format(task=9, tokens=2793))
    said = found(batch.RULES, "SLT025", of(log=story))
    assert said.sentence == "2 inputs were refused: longer than a physical batch of 512 tokens"
    assert said.first == "Set -ub 2816 and -b 2816 or more: an input of 2,793 tokens was refused."
    assert len(said.evidence) == 2


def test_a_build_that_does_not_say_how_long_an_input_was_is_read_too() -> None:
    said = found(batch.RULES, "SLT025", of(log=read(UNCOUNTED)))
    assert said.sentence.startswith("1 input was refused")
    assert said.first is None


def test_no_refused_input_is_clear_in_a_log_that_would_tell() -> None:
    assert is_clear(batch.RULES, "SLT025", of(log=log(requests=timings())))
    assert is_undecided(batch.RULES, "SLT025", of(log=log(starts=0)))
    assert is_undecided(batch.RULES, "SLT025", NOTHING)


def test_an_input_that_is_longer_than_its_slot_is_a_context_too_small() -> None:
    line = (
        "srv    send_error: task id = 3, error: input (9000 tokens) is larger than the max context size (8192 tokens)"
    )
    said = found(memory.RULES, "SLT031", of(log=read(f"{line}. skipping\n")))
    assert said.first == "Set -c 11264: a prompt of 9,000 tokens was refused."
