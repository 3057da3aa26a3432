"""What ``slotune diagnose`` says, word for word at 80 columns, and as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from slotune.diagnose.checkup import Outcome
from slotune.diagnose.entry import PAGE, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Cost
from slotune.diagnose.symptoms import UNNAMED, GPUFacts, PodFacts, ServerLook, Symptoms
from slotune.report.checkup import Examined, checkup_text, cost_words
from slotune.report.checkup_document import checkup_document
from slotune.report.checkup_sections import sections_of
from slotune.report.text import plain
from slotune.verdict.promise import Promise
from tests.report.checkups import LOG, LOOK, PROBE, busy, clear, examined, found, healthy, of, undecided

BUSY_80 = """\
chat.log      log of 12,345 lines (3 MiB), 1 start, -lv 4, 2 h · build b11549 ·
              /metrics twice in 0.5 s · not /slots (off: start it with --slots)
              · probe of 4 long prompts

1 finding

1  SLT050 TooFewSlots (warning): Requests wait for a slot
   What       7 requests wait for the only slot.
   Evidence   /metrics  requests_deferred 7
              log:812  slot launch_slot_: id  0 | task 9 | processing task
   Explains   2.4 s of the time to the first token (83 %)
   Confidence certain
   Cause      All slots are busy, so a new request waits until one is free
              (ggml-org/llama.cpp#4875).
   Try first  Raise --parallel from 1 to 8.
   Don't      Do not quantize the weights first: requests wait for a slot, not
              for the GPU.
   Verify     requests_deferred stays at 0 under the same load.
   More       docs/diagnosis.md#slt050

Worth knowing
   SLT113 ConfigFileBehindFlags: /etc/llama.ini was read (--explain SLT113)

Roofline                 A token reads 4.7 GB of weights.

Checklist
clear      GPU        33 of 33 layers are on CUDA0
undecided  Kernels    do attention and the KV cache run on fast kernels?
undecided  Batch      are prompts read in pieces of the right size?
undecided  Memory     is there enough memory for the context, the caches and the
                      weights?
undecided  Reuse      is a shared prefix computed once, or again and again?
found      Queue      SLT050 TooFewSlots
clear      Threads    4 threads, the CPU limit is 4
undecided  Sampling   what does choosing the next token cost?
undecided  Template   what do the chat template and tokenizing cost?
undecided  Logging    does logging slow the server down?
undecided  Device     is the GPU slowed down, or shared with somebody?
undecided  Build      is this build known to be slow?
undecided  Client     does the client or a proxy hold requests back?
undecided  Load       is it more work than the server can do?
found      Health     SLT113 ConfigFileBehindFlags

What would decide the rest
   slotune bench -f MANIFEST --url URL (it takes a measurement under load):
   Batch, Reuse, Sampling, Template, Logging, Build, Client, Load
   a log with -lv 4 that holds the start: Kernels, Memory
   --nvidia-smi FILE, with what nvidia-smi -q prints while it works: Device
"""


FOLDED_80 = """
Checklist (--all shows each check)
   found          Queue (SLT050), Health (SLT113)
   clear          GPU, Threads
   not looked at  Kernels, Batch, Memory, Reuse, Sampling, Template, Logging,
                  Device, Build, Client, Load

What would decide more
   slotune bench -f MANIFEST --url URL (it takes a measurement under load): up
   to 8 checks of Batch, Reuse, Sampling, Template, Logging, Build, Client, Load
   a log (from its start on, -lv 4): up to 2 checks of Kernels, Memory
   --nvidia-smi FILE, of nvidia-smi -q while it works: up to 1 check of Device
"""


def said(*servers: Examined, width: int = 80, notes: tuple[str, ...] = (), everything: bool = False) -> str:
    return plain(checkup_text(servers, width=width, notes=notes, everything=everything))


def wanted(one: Examined) -> str:
    """What would decide the rest, by each check."""
    return said(one, everything=True).partition("What would decide the rest\n")[2]


def test_a_busy_server_at_80_columns() -> None:
    assert said(busy(), everything=True) == BUSY_80


def test_its_checklist_is_folded_unless_everything_is_wanted() -> None:
    findings = BUSY_80.partition("\nChecklist\n")[0]
    assert said(busy()) == findings + FOLDED_80


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    name = "a-very-long-name-of-a-pod-" * 4
    long = found(evidence=[Evidence(Source.LOG, "x" * 300, 1), Evidence(Source.PROPS, "word " * 60)])
    one = examined(Symptoms(name, log=replace(LOG, source=name), server=LOOK), of(long))
    for everything in (False, True):
        text = said(one, busy(), width=width, notes=("word " * 50,), everything=everything)
        assert max(len(line) for line in text.splitlines()) <= width


def test_what_a_restart_leaves_out_is_said_where_the_log_is_counted() -> None:
    log = replace(LOG, starts=2, last_start_line=1347, requests_before=12)
    text = " ".join(said(examined(Symptoms("chat.log", log=log))).split())
    assert "2 starts" in text
    assert "judged since the last start (line 1,347); 12 requests before it left out" in text
    none = said(examined(Symptoms("chat.log", log=replace(log, requests_before=0))), width=200)
    assert "judged since the last start (line 1,347) ·" in none
    assert "judged since" not in said(examined(Symptoms("chat.log", log=LOG)))


def test_a_healthy_server_has_nothing_to_change() -> None:
    text = said(healthy())
    assert "nothing to change: 15 of 15 questions looked at, 15 of 15 checks made\n" in text
    assert "What would decide" not in text + said(healthy(), everything=True)


def test_what_is_only_worth_knowing_leaves_nothing_to_change_and_is_told_briefly() -> None:
    info = busy().checkup.findings[1]
    text = said(examined(Symptoms("chat.log", log=LOG), of(info), clear(Item.GPU, "on the GPU")))
    assert "nothing to change" in text
    assert "SLT113 ConfigFileBehindFlags: /etc/llama.ini was read (--explain SLT113)" in " ".join(text.split())
    assert "Try first" not in text


def test_a_router_says_that_it_is_one_and_asks_for_nothing() -> None:
    router = replace(LOG, router="it is llama-server's router, and its child has a block of its own: port 41000")
    told = examined(Symptoms("chat.log", log=router), clear(Item.BUILD, "it is new"), undecided(Item.GPU, "-lv 4"))
    text = " ".join(said(told).split())
    assert "but it is llama-server's router, and its child has a block of its own: port 41000" in text
    assert "-lv 4, with" not in text
    assert "What would decide" not in text


def test_a_server_of_which_nothing_is_known_is_not_called_healthy() -> None:
    text = said(examined(Symptoms("chat.log", log=LOG)))
    assert "nothing to change" not in text
    assert "nothing found, but nothing could be decided from this either\n" in text


def test_of_a_server_that_was_not_seen_to_serve_nothing_is_said_but_that_nothing_was_found() -> None:
    text = " ".join(said(examined(Symptoms("chat", pod=PodFacts("chat", ready=False)), clear(Item.GPU, "x"))).split())
    assert "nothing found in what was looked at (1 of 15 questions, 1 of 1 check), but its pod is not ready" in text
    assert "to change" not in text


def test_a_server_of_which_little_could_be_looked_at_is_not_called_healthy_either() -> None:
    others = [undecided(item, "--probe") for item in (Item.BATCH, Item.BATCH, Item.REUSE, Item.CLIENT)]
    few = examined(Symptoms("chat.log", log=LOG), clear(Item.GPU, "x"), *others)
    text = " ".join(said(few).split())
    assert (
        "nothing to change in what was looked at (1 of 15 questions, 1 of 5 checks), but that is less than half, so it "
        "is not called healthy" in text
    )
    assert "nothing to change:" not in text
    document = checkup_document([few, healthy()])
    assert (document["healthy"], document["servers"][0]["healthy"]) == (None, None)
    assert document["servers"][0]["doubt"] == "that is less than half"
    assert (document["servers"][0]["questions_looked_at"], document["servers"][1]["doubt"]) == (1, None)
    assert checkup_document([few, busy()])["healthy"] is False
    assert checkup_document([healthy()])["healthy"] is True


def test_a_probe_beside_other_requests_is_told_as_such() -> None:
    assert "while others used it" in said(examined(Symptoms("a", probe=replace(PROBE, was_idle=False))))


def test_figures_without_a_name_are_no_class_of_gpu() -> None:
    text = said(examined(Symptoms("a", gpu=GPUFacts(UNNAMED, 50e9))))
    assert "figures given for the device" in text
    assert "GPU class" not in text


def test_an_item_that_is_undecided_says_how_far_it_was_looked_at() -> None:
    one = examined(Symptoms("pod", log=LOG), clear(Item.GPU, "on the GPU"), undecided(Item.GPU, "--probe"))
    assert "nothing to change: 1 of 15 questions looked at, 1 of 2 checks made\n" in said(one)
    assert "   clear so far   GPU 1 of 2 checks\n" in said(one)
    assert "is the GPU used, and for all layers? (1 of 2 checks clear)" in " ".join(said(one, everything=True).split())


def test_what_keeps_several_pages_away_is_said_once() -> None:
    why = dict.fromkeys(("/health", "/props", "/slots", "/metrics"), "not asked: no right to get pods/proxy")
    look = ServerLook("http://chat:8080", refused=why | {"/slots": "off: start it with --slots"})
    shown = " ".join(said(examined(Symptoms("chat", server=look))).split())

    assert shown.count("no right to get pods/proxy") == 1
    assert "not /health, /props, /metrics (not asked: no right to get pods/proxy) · not /slots (off" in shown


def test_what_would_decide_most_is_named_first_with_what_it_decides() -> None:
    one = examined(
        Symptoms("chat.log", log=LOG),
        undecided(Item.HEALTH, "something that nobody else needs"),
        undecided(Item.TEMPLATE, "--probe"),
        undecided(Item.CLIENT, "--probe, sent the way that users' requests go"),
    )
    assert "   --url URL --probe: Template, Client\n   something that nobody else needs: Health\n" in wanted(one)
    assert (
        "   --url URL --probe: up to 2 checks of Template, Client\n"
        "   something that nobody else needs: up to 1 check of Health\n" in said(one)
    )


def test_an_item_is_named_once_for_what_two_of_its_checks_need() -> None:
    one = examined(
        Symptoms("chat.log", log=LOG),
        undecided(Item.REUSE, "--probe: it sends one prompt twice"),
        undecided(Item.REUSE, "--probe, or its arguments: --deployment NAME shows them"),
    )
    assert "   --url URL --probe: Reuse\n" in wanted(one)
    assert "   --url URL --probe: up to 2 checks of Reuse\n" in said(one)


@pytest.mark.parametrize(
    ("needs", "want"),
    [
        ("--probe, and a log of the server under load: --log FILE", "a log of the server under load, best with -lv 4"),
        ("--probe, or its arguments: --deployment NAME shows them", "--deployment NAME"),
        (
            "the build: --url, the image's tag, or a log that holds the start",
            "the build: the image's tag, or a log that",
        ),
        ("--url while requests run: /slots shows what they ask for", "--url once more while the server is busy:"),
    ],
)
def test_what_was_given_already_is_not_asked_for_again(needs: str, want: str) -> None:
    one = examined(Symptoms("pod", server=LOOK, probe=PROBE), undecided(Item.BATCH, needs))
    text = " ".join(wanted(one).split())
    assert want in text
    assert "--probe" not in text
    assert "--url," not in json.dumps(checkup_document([one]))


def test_no_item_is_left_without_what_would_decide_it() -> None:
    one = busy()
    open_items = [item.item.value[0] for item in one.checkup.checked if item.outcome is Outcome.UNDECIDED]
    for needs in (wanted(one), said(one).partition("What would decide more\n")[2]):
        assert [name for name in open_items if name not in needs] == []


def test_each_server_has_a_block_and_what_could_not_be_read_is_said_once() -> None:
    text = said(busy(), healthy(), notes=("the logs can't be seen",))
    assert text.count("Checklist") == 2
    assert text.startswith("Note          the logs can't be seen\n\nchat.log")


def test_a_line_of_a_log_can_move_no_cursor_and_hold_no_secret_and_no_prompt() -> None:
    evidence = [
        Evidence(Source.LOG, "\x1b[2Jcleared", 1),
        Evidence(Source.FLAGS, "--api-key hunter2 -np 1"),
        Evidence(Source.LOG, 'request: {"prompt": "my secret question"}', 3),
    ]
    one = examined(Symptoms("\x1b]0;evil\x07.log", log=LOG), of(found(evidence=evidence)))
    shown = said(one) + json.dumps(checkup_document([one]))
    assert "\x1b" not in shown
    assert "hunter2" not in shown
    assert "my secret question" not in shown


@pytest.mark.parametrize(
    ("cost", "want"),
    [
        (Cost(), "not counted: its evidence does not say how much"),
        (Cost(ttft_s=2.4), "2.4 s of the time to the first token"),
        (Cost(ttft_s=2.4, ttft_share=0.83), "2.4 s of the time to the first token (83 %)"),
        (Cost(ttft_share=0.5), "50 % of the time to the first token"),
        (Cost(speed_share=0.75), "75 % of tokens/s"),
        (Cost(ttft_s=0.045, speed_share=0.2), "45 ms of the time to the first token, 20 % of tokens/s"),
        (Cost(refused_share=0.67), "67 % of requests, which fail"),
        (Cost(ttft_s=float("nan"), speed_share=float("inf")), "not counted: its evidence does not say how much"),
    ],
)
def test_a_cost_is_said_as_far_as_it_is_known(cost: Cost, want: str) -> None:
    assert cost_words(cost) == want


def test_the_first_thing_to_try_is_that_of_this_server_or_else_the_general_one() -> None:
    assert "Raise --parallel from 1 to 8." in said(busy())
    general = examined(Symptoms("chat.log", log=LOG), of(found(first=None)))
    assert "Raise --parallel.\n" in said(general)


def test_the_document_has_each_finding_with_its_evidence() -> None:
    document = checkup_document([busy()], notes=("a note",), generated_at="2026-12-01", version="0.1.0")
    assert document["schema"] == "slotune.dev/diagnosis/v1"
    assert (document["healthy"], document["notes"]) == (False, ["a note"])
    (server,) = document["servers"]
    assert (server["name"], server["questions"], server["questions_decided"]) == ("chat.log", 15, 4)
    assert (server["checks"], server["checks_decided"]) == (7, 4)
    first = server["findings"][0]
    assert (first["id"], first["code"], first["item"]) == ("SLT050", "TooFewSlots", "Queue")
    assert (first["severity"], first["confidence"]) == ("Warning", "Certain")
    assert first["evidence"] == [
        {"source": "/metrics", "line": None, "text": "requests_deferred 7"},
        {"source": "log", "line": 812, "text": "slot launch_slot_: id  0 | task 9 | processing task"},
    ]
    assert first["cost"] == {"ttft_s": 2.4, "ttft_share": 0.83, "speed_share": None, "refused_share": None}
    assert first["try_first"] == "raise --parallel from 1 to 8"
    assert first["link"] == "docs/diagnosis.md#slt050"
    assert server["sections"] == {"roofline": {"known": True, "share": 0.5}}


def test_the_document_has_the_whole_checklist() -> None:
    items = {item["item"]: item for item in checkup_document([busy()])["servers"][0]["checklist"]}
    assert list(items) == [item.value[0] for item in Item]
    assert items["GPU"]["outcome"] == "Clear"
    assert items["GPU"]["clear"] == ["33 of 33 layers are on CUDA0"]
    assert (items["Queue"]["outcome"], items["Queue"]["findings"]) == ("Found", ["SLT050"])
    assert (items["Device"]["outcome"], items["Device"]["needs"]) == ("Undecided", ["--nvidia-smi FILE"])


def test_the_document_is_strict_json_whatever_the_numbers_are() -> None:
    nan = float("nan")
    symptoms = Symptoms(
        "chat.log",
        log=replace(LOG, seconds=nan),
        server=replace(LOOK, between_s=nan),
        probe=replace(PROBE, overhead_s=nan, prefill_tokens_per_s=float("inf")),
    )
    document = checkup_document([examined(symptoms, of(found(cost=Cost(nan, nan, nan))))])
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_every_key_is_there_for_a_server_of_which_little_is_known() -> None:
    little, much = checkup_document([examined(Symptoms("pod")), busy()])["servers"]
    assert little.keys() == much.keys()
    assert little["looked_at"].keys() == much["looked_at"].keys()
    assert set(little["looked_at"].values()) == {None}


def keys(value: object) -> set[str]:
    """Of every object in a document, but for those whose keys are the server's endpoints."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    return {key for key in value if not key.startswith("/")}.union(*map(keys, value.values()))


def test_the_page_has_every_key_of_the_document() -> None:
    one = busy()
    symptoms = replace(
        one.symptoms,
        pod=PodFacts("chat-1"),
        promise=Promise(1.0, 10.0),
        gpu=GPUFacts("L4", bandwidth_bytes_per_s=3e11, price_per_hour=1.0),
    )
    document = checkup_document([replace(one, symptoms=symptoms, sections=sections_of(symptoms))])
    page = (Path(__file__).resolve().parents[2] / PAGE).read_text().partition("## As data")[2].partition("\n## ")[0]
    assert [
        key
        for key in sorted(keys(document))
        if f"`{key}`" not in page and f"`.{key}`" not in page and f"{key}[]`" not in page
    ] == []


def test_a_pod_that_is_not_ready_is_not_called_healthy_and_its_reasons_are_in_the_document() -> None:
    waits = Evidence(Source.POD, "waiting: ImagePullBackOff: Back-off pulling image")
    words = Evidence(Source.LOG, "before the restart: error")
    pod = PodFacts("chat-0", image="i", ready=False, phase="Pending", restarts=2, events=(waits, words))
    one = examined(Symptoms("chat-0", pod=pod, log=LOG), clear(Item.GPU, "on the GPU"))
    text = " ".join(said(one).split())
    assert "looked at (1 of 15 questions, 1 of 1 check), but its pod is not ready, so it is not called healthy" in text
    document = checkup_document([one])["servers"][0]
    assert document["healthy"] is None
    assert document["looked_at"]["pod"] == {
        "name": "chat-0", "image": "i", "phase": "Pending", "ready": False, "restarts": 2, "reasons": [waits.text],
    }  # fmt: skip
