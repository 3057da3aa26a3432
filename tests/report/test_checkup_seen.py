"""A log tells how fast its server was, and is not asked for again, whatever else is not known."""

from __future__ import annotations

from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_stream import LogReader
from slotune.report.checkup_needs import means_of
from slotune.report.checkup_sections import sections_of

SLOT = "1.00.000.000 I slot print_timing: id  0 | task 7 | "
READING = SLOT + "prompt processing, n_tokens =  18388, progress = 0.36, t =  55.96 s / 328.57 tokens per second\n"
WRITING = SLOT + "n_decoded =   1081, tg =  12.93 t/s, tg_3s =  12.57 t/s\n"
LATER = SLOT + "n_gen =    158, tg =  18.88 t/s, tg_3s =  18.62 t/s\n"
SHORT = (
    SLOT + "prompt eval time =    1316.22 ms /    11 tokens (  119.66 ms per token,     8.36 tokens per second)\n"
    f"{SLOT}       eval time =   13369.13 ms /    23 tokens (  581.27 ms per token,     1.72 tokens per second)\n"
)


def symptoms(log: str) -> Symptoms:
    reader = LogReader("server.log")
    reader.feed(log.encode())
    (story,) = reader.finish()
    return Symptoms(name="server.log", log=story)


def roofline(log: str) -> tuple[str, dict[str, object]]:
    section = sections_of(symptoms(log))[0]
    return section.lines[0], dict(section.document)


def test_what_was_seen_is_told_although_the_weights_are_not_known() -> None:
    words, document = roofline(SHORT)

    assert words == "Answers were written at 1.65 tokens/s by the fastest tenth in the log."
    assert document["known"] is False
    assert round(document["decode"]["seen_tokens_per_s"], 2) == 1.65  # type: ignore[index]  # a JSON object


def test_requests_that_have_not_finished_tell_their_speed() -> None:
    words = roofline(READING + WRITING)[0]
    assert "Answers were written at 12.9 tokens/s by one request so far" in words
    assert "prompts were read at 329 tokens/s by one request so far." in words
    assert roofline(LATER)[0] == "Answers were written at 18.9 tokens/s by one request so far."


def test_one_that_finished_is_worth_more_than_one_that_runs() -> None:
    assert roofline(WRITING + SHORT)[0] == "Answers were written at 1.65 tokens/s by the fastest tenth in the log."


def test_an_old_build_is_not_asked_for_a_verbosity_that_it_does_not_have() -> None:
    need = "a log with -lv 4 that holds the start"
    old = "build: 6019 (8ad7b3e6) with cc for x86_64\nsrv  update_slots: all slots are idle\n"
    new = "0.00.000.500 I cmn  common_param: common_params_print_info: build 11549 (0123abc)\n" + SHORT

    assert means_of(need, symptoms(old)) == "a log that holds the start"
    assert means_of(need, symptoms(new)) == need
