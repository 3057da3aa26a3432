"""What would decide the rest is something that can be done in the way that the server is looked at."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import slotune.diagnose
from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.rules.settings import ITS_ARGUMENTS
from slotune.diagnose.symptoms import NodeFacts, PodFacts, ServerLook, Symptoms
from slotune.llama.log_stream import LogReader
from slotune.llama.server_answers import Metrics
from slotune.report.checkup_needs import means_of, still_needed

LOG = "1.00.000.000 I slot print_timing: id  0 | task 7 | n_decoded =   1081, tg =  12.93 t/s, tg_3s =  12.57 t/s\n"
POD = Symptoms("chat", pod=PodFacts("chat"))
LOOK = ServerLook("http://chat:8080", refused={"/props": "no"})
SHOWN = ServerLook("http://chat:8080", metrics=Metrics({"requests_processing": 1.0}))


def written() -> list[str]:
    """The words in which rules ask for more, with ``5`` for what they put in."""
    found: set[str] = set()
    for path in sorted(Path(slotune.diagnose.__path__[0]).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Undecided":
                found |= {words for one in call.args for words in in_it(one)}
    return sorted(found)


def in_it(part: ast.AST) -> list[str]:
    if isinstance(part, ast.Constant):
        return [str(part.value)]
    if isinstance(part, ast.JoinedStr):
        parts = [str(one.value) if isinstance(one, ast.Constant) else put_in(one) for one in part.values]
        return ["".join(parts)]
    return [words for child in ast.iter_child_nodes(part) for words in in_it(child)]


def put_in(part: ast.AST) -> str:
    return ITS_ARGUMENTS if "ITS_ARGUMENTS" in ast.unparse(part) else "5"


def log() -> Symptoms:
    reader = LogReader("chat")
    reader.feed(LOG.encode())
    (story,) = reader.finish()
    return Symptoms("chat", log=story)


def of_a_pod() -> list[Symptoms]:
    ways = [Symptoms("chat", pod=POD.pod, server=server) for server in (None, LOOK, SHOWN)]
    return [*ways, Symptoms("chat", pod=POD.pod, log=log().log, node=NodeFacts("n"))]


REFUSED = re.compile(r"--url|--log\b|--deployment")


@pytest.mark.parametrize("needs", written())
@pytest.mark.parametrize("symptoms", of_a_pod(), ids=["not running", "refusing", "answering", "with a log"])
def test_of_a_pod_nothing_is_wanted_that_cannot_stand_beside_deployment(needs, symptoms):
    for said in (still_needed(needs, symptoms), means_of(needs, symptoms)):
        assert not REFUSED.search(said), said
        assert said.strip() == said != ""
        assert not re.search(r"^[,;:]|: ?[,;:]|\(\)|  |\b(or|and)$", said), said


@pytest.mark.parametrize("symptoms", of_a_pod(), ids=["not running", "refusing", "answering", "with a log"])
def test_nor_by_any_rule_as_it_is(symptoms):
    asked = [one.needs for checked in check_up(symptoms, ALL_RULES).checked for one in checked.undecided]
    assert len(asked) > 5
    assert not [said for needs in asked if REFUSED.search(said := means_of(needs, symptoms))]


@pytest.mark.parametrize("needs", [one for one in written() if re.match(r"--probe|--watch", one)])
def test_of_a_log_nothing_is_asked_without_the_address_of_its_server(needs):
    assert means_of(needs, log()).startswith("--url URL --")


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ("--url while requests run: /slots shows them", "this command once more while the server is busy"),
        ("/slots of the busy server: --url", "this command once more while the server is busy"),
        ("/metrics of the busy server (--url; start it with --metrics)", "this command once more while the server is "),
        ("the build: --url, the image's tag, or a log", "the build: the image's tag, or a log"),
        ("--deployment: the memory limit of its pods", "the memory limit of its pods"),
        ("--deployment (restarts and exit codes), or a log", "restarts and exit codes, or a log"),
        ("the CPU limit of its container: --deployment NAME", "the CPU limit of its container"),
        ("--url: /props shows the chat template", "an answer of the server: /props shows the chat template"),
        (f"--probe, or {ITS_ARGUMENTS}", "--probe"),
    ],
)
def test_of_a_pod_the_same_is_said_in_its_own_words(needs, said):
    assert means_of(needs, POD).startswith(said)


def test_metrics_are_asked_for_where_there_are_none():
    need = "/metrics of the busy server (--url; start it with --metrics)"
    assert means_of(need, Symptoms("chat", pod=POD.pod, server=SHOWN)).endswith("is busy")
    assert means_of(need, Symptoms("chat", pod=POD.pod, server=LOOK)).endswith(", started with --metrics")
    assert means_of(need, Symptoms("chat", server=SHOWN)) == "--url once more while the server is busy"
