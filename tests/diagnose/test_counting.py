"""One of a thing is said as one, wherever a log, a look or a pod has no more of it."""

from __future__ import annotations

import re

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.counting import counted, never_together
from slotune.diagnose.finding import Clear, Finding
from slotune.diagnose.symptoms import NodeFacts, PodFacts, Symptoms
from slotune.llama.log_stream import LogReader

LOG = """\
0.00.000.001 I cmn  common_param: common_params_print_info: build 11549 (0123abc)
0.00.000.009 I cmn  common_param: verbosity = 4
0.10.000.000 I srv          init: initializing slots, n_slots = 1
1.00.000.000 I slot launch_slot_: id  0 | task 7 | processing task, is_child = 0
2.00.000.000 I slot print_timing: id  0 | task 7 | prompt eval time =    1316.22 ms /    11 tokens (  119.66 ms per token,     8.36 tokens per second)
3.00.000.000 I slot print_timing: id  0 | task 7 |        eval time =   13369.13 ms /    23 tokens (  581.27 ms per token,     1.72 tokens per second)
3.00.000.001 I slot      release: id  0 | task 7 | stop processing: n_tokens = 33, truncated = 0
3.00.000.002 I srv  update_slots: all slots are idle
"""  # noqa: E501  (as it is logged)
SEVERAL = re.compile(r"(?<![\d.,])1 (threads|cores|slots|requests|users|prompts|pods|GPUs|lines|times|tokens)\b")


def words(symptoms: Symptoms) -> list[str]:
    found = []
    for checked in check_up(symptoms, ALL_RULES).checked:
        told: tuple[Finding | Clear, ...] = (*checked.findings, *checked.clear)
        found += [text for one in told for text in (one.sentence, *(str(seen.text) for seen in one.evidence))]
    return found


def test_a_server_of_one_thread_one_slot_and_one_request_has_one_of_each():
    reader = LogReader("chat")
    reader.feed(LOG.encode())
    (log,) = reader.finish()
    pod = PodFacts("chat", cpu_limit=1.0, ready=True)
    alone = Symptoms("chat", log=log, pod=pod, node=NodeFacts("n", cores=1.0), flags=("-t", "1", "-np", "1"))
    said = words(alone)
    assert any("one request alone" in text for text in said)
    assert not [text for text in said if SEVERAL.search(text)]


@pytest.mark.parametrize(
    ("amount", "said"),
    [(1, "1 slot"), (2, "2 slots"), (0, "0 slots"), (1200, "1,200 slots"), (1.0, "1 slot"), (0.5, "0.5 slots")],
)
def test_a_count_and_its_thing(amount, said):
    assert counted(amount, "slot") == said


def test_several_requests_never_met():
    assert never_together(3) == "no two of 3 requests ran at once"
