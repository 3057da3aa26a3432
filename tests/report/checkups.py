"""Servers that were looked at, made up so that every part of what is said about one is there."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.diagnose.checkup import Rule, check_up
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.symptoms import ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import LogStory
from slotune.llama.server_answers import Metrics
from slotune.report.checkup import Examined, Section

__all__ = ["busy", "clear", "examined", "found", "healthy", "of", "undecided"]

SLOTS = Entry(
    "SLT050",
    "TooFewSlots",
    Item.QUEUE,
    "Requests wait for a slot",
    "All slots are busy, so a new request waits until one is free (ggml-org/llama.cpp#4875).",
    "Raise --parallel.",
    "Do not quantize the weights first: requests wait for a slot, not for the GPU.",
    "requests_deferred stays at 0 under the same load.",
    ("parallelSlots",),
    "TTFTQueue",
)
INI = Entry(
    "SLT113",
    "ConfigFileBehindFlags",
    Item.HEALTH,
    "A configuration file was read behind the flags",
    "Cause.",
    "First.",
    "Avoid.",
    "Verify.",
)


def found(
    entry: Entry = SLOTS,
    sentence: str = "7 requests wait for the only slot",
    evidence: Sequence[Evidence] = (Evidence(Source.METRICS, "requests_deferred 7"),),
    *,
    severity: Severity = Severity.WARNING,
    cost: Cost | None = None,
    first: str | None = "raise --parallel from 1 to 8",
) -> Finding:
    return Finding(entry, sentence, tuple(evidence), severity, Confidence.CERTAIN, cost or Cost(), first)


def clear(item: Item, sentence: str) -> Rule:
    return Rule("SLT001", item, lambda _: Clear(sentence))


def undecided(item: Item, needs: str) -> Rule:
    return Rule("SLT001", item, lambda _: Undecided(needs))


def of(one: Finding) -> Rule:
    return Rule(one.id, one.entry.item, lambda _: one)


LOG = LogStory(
    "chat.log", LogFacts(build="b11549"), starts=1, verbosity=4, lines=12345, size_bytes=3 * 2**20, seconds=7200.0
)
LOOK = ServerLook(
    "http://127.0.0.1:8080",
    metrics=Metrics({"requests_deferred": 7.0}),
    metrics_later=Metrics({"requests_deferred": 7.0}),
    between_s=0.5,
    refused={"/slots": "off: start it with --slots"},
)
PROBE = ProbeFacts(4, 512, 0.02, 900.0, 0.02)
ROOFLINE = Section("roofline", "Roofline", ("A token reads 4.7 GB of weights.",), {"known": True, "share": 0.5})


def examined(symptoms: Symptoms, *rules: Rule, sections: Sequence[Section] = ()) -> Examined:
    return Examined(symptoms, check_up(symptoms, rules), tuple(sections))


def busy() -> Examined:
    """One finding to act on, one worth knowing, two items clear, the rest undecided."""
    waits = found(
        evidence=(
            Evidence(Source.METRICS, "requests_deferred 7"),
            Evidence(Source.LOG, "slot launch_slot_: id  0 | task 9 | processing task", 812),
        ),
        cost=Cost(ttft_s=2.4, ttft_share=0.83),
    )
    ini = found(INI, "/etc/llama.ini was read", severity=Severity.INFO)
    return examined(
        Symptoms("chat.log", log=LOG, server=LOOK, probe=PROBE),
        of(waits),
        of(ini),
        clear(Item.GPU, "33 of 33 layers are on CUDA0"),
        clear(Item.THREADS, "4 threads, the CPU limit is 4"),
        undecided(Item.KERNELS, "a log with -lv 4 that holds the start"),
        undecided(Item.MEMORY, "a log with -lv 4 that holds the start"),
        undecided(Item.DEVICE, "--nvidia-smi FILE"),
        sections=[ROOFLINE],
    )


def healthy() -> Examined:
    """Every item is clear."""
    return examined(Symptoms("chat.log", log=LOG), *(clear(item, "as it should be") for item in Item))
