"""Pictures are encoded before they are read, and the time for that is in the prompt's (ggml-org/llama.cpp#22582)."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Severity
from slotune.diagnose.rules.batch import RULES
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, timings

START = "srv    load_model: loading model 'm.gguf'\n{clip}main: model loaded\n"
ON_CPU = "clip_ctx: CLIP using CPU backend\n"
UNSUPPORTED = "warmup: WARNING: the CLIP graph uses unsupported operators by the backend\n"
ENCODED = "{kind} slice encoded in {ms} ms\n"
PROCESSED = "srv  process_chun: {kind} processed in {ms} ms\n"
ANSWERED = """slot print_timing: id  3 | task {task} |
prompt eval time = {ms:10.2f} ms /  1179 tokens (   20.99 ms per token,    47.64 tokens per second)
       eval time =    2000.00 ms /   101 tokens (   20.00 ms per token,    50.00 tokens per second)
slot      release: id  3 | task {task} | stop processing: n_tokens = 1279, truncated = 0
"""


def asked(ms: int, prompt_ms: float, *, kind: str = "image", task: int = 0, slices: int = 1) -> str:
    """One request with a picture, as builds of 2025 and 2026 print it."""
    return (
        f"slot launch_slot_: id  3 | task {task} | processing task\n"
        + slices * ENCODED.format(kind=kind, ms=ms)
        + PROCESSED.format(kind=kind, ms=slices * ms + 900)
        + ANSWERED.format(task=task, ms=prompt_ms)
    )


def read(*texts: str, clip: str = "") -> LogStory:
    reader = LogReader("server.log")
    reader.feed((START.format(clip=clip) + "".join(texts)).encode())
    (story,) = reader.finish()
    return story


def test_pictures_whose_encoding_takes_most_of_a_prompt_are_found() -> None:
    said = found(RULES, "SLT026", of(log=read(asked(21944, 24747.4))))
    assert said.sentence == "encoding 1 picture took 21.9 s: 89 % of the time that prompts take"
    assert said.cost.ttft_s == pytest.approx(21.944)
    assert said.evidence[0].text == "image slice encoded in 21944 ms"


def test_slices_of_a_picture_add_up_and_requests_without_one_count() -> None:
    story = read(asked(2000, 9000, slices=4), ANSWERED.format(task=1, ms=1000.0))
    said = found(RULES, "SLT026", of(log=story))
    assert said.sentence == "encoding 1 picture took 8 s: 80 % of the time that prompts take"
    assert said.cost.ttft_s == pytest.approx(4)


@pytest.mark.parametrize(
    ("clip", "words", "cure"),
    [(ON_CPU, "on the CPU", "--no-mmproj-offload"), (UNSUPPORTED, "that the GPU's back end lacks", "newer build")],
)
def test_where_the_encoder_computes_is_said_when_the_log_says_it(clip: str, words: str, cure: str) -> None:
    said = found(RULES, "SLT026", of(log=read(asked(21944, 24747.4), clip=clip)))
    assert words in said.sentence
    assert cure in (said.first or "")


def test_a_build_that_says_only_what_the_whole_took_is_read_too() -> None:
    text = PROCESSED.format(kind="image", ms=5000) + ANSWERED.format(task=0, ms=6000.0)
    assert "took 5 s: 83 %" in found(RULES, "SLT026", of(log=read(text))).sentence


def test_sound_is_called_by_its_name() -> None:
    assert "2 recordings took 4 s each" in (
        found(RULES, "SLT026", of(log=read(*(asked(4000, 6000, kind="audio", task=task) for task in (0, 1))))).sentence
    )


def test_pictures_that_are_encoded_as_fast_as_a_gpu_does_are_no_alarm() -> None:
    assert is_clear(RULES, "SLT026", of(log=read(asked(700, 1200))))
    assert is_clear(RULES, "SLT026", of(log=read(asked(5000, 60000))))
    found(RULES, "SLT026", of(log=read(asked(1600, 2600))), Severity.INFO)


def test_no_picture_is_clear_and_no_request_undecided() -> None:
    assert is_clear(RULES, "SLT026", of(log=log(requests=timings())))
    assert is_undecided(RULES, "SLT026", of(log=log()))
    assert is_undecided(RULES, "SLT026", NOTHING)


def test_a_prompt_with_a_picture_is_no_measure_of_how_fast_tokens_are_read() -> None:
    with_one = read(asked(21944, 24747.4)).requests
    beside = read(asked(21944, 24747.4), ANSWERED.format(task=1, ms=589.5)).requests
    assert with_one is not None
    assert beside is not None
    assert with_one.prefill_tokens_per_s is None
    assert beside.prefill_tokens_per_s == pytest.approx((2000, 2000, 2000), rel=0.01)
    assert beside.first_prompt == (1179, 589.5)
