"""What the rules for servers say of a trial's server: its log, its arguments and its limits tell what numbers can't.

A trial is no server with users, so not every rule holds for it: what is left out stands in :data:`NOT_OF_TRIALS`, with
the reason. Of the rest only warnings are kept, and of what is merely worth knowing what decided the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from slotune.diagnose import failure_entries
from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import Rule, check_up
from slotune.diagnose.entry import Item
from slotune.diagnose.failed_trials import entry_of
from slotune.diagnose.finding import Confidence, Finding, Severity
from slotune.diagnose.symptoms import PodFacts, Symptoms
from slotune.llama.failures import FailureClass
from slotune.llama.log_story import LogStory
from slotune.llama.model_facts import ModelFacts
from slotune.search.noticed import Noticed
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["NOT_OF_TRIALS", "RULES", "notice"]

MOST: Final = 12
"""Findings of one server: with the table's they have to fit a status."""

_MEASURED: Final = "the table on trials measures it under load, where a log only hints at it"
_PREFIXES: Final = "what prompts share is known of a trial's traffic, and the table holds the cache against that"
_CLIENT: Final = "the client is slotune's own, over loopback"
_END: Final = "how a trial's server ended is known from its exit, and is a finding already"

NOT_OF_TRIALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SLT012": _MEASURED,
        "SLT013": "prompts that are read beside others say nothing about what the GPU could do",
        "SLT020": "how large pieces are is what a search varies, and the table says what reading costs",
        "SLT021": _MEASURED,
        "SLT022": _MEASURED,
        "SLT024": _MEASURED,
        "SLT040": _PREFIXES,
        "SLT041": _PREFIXES,
        "SLT042": _PREFIXES,
        "SLT043": _PREFIXES,
        "SLT044": "slotune itself names slots, for canaries and warm prefixes",
        "SLT046": _PREFIXES,
        "SLT047": _PREFIXES,
        "SLT048": _PREFIXES,
        "SLT050": _MEASURED,
        "SLT051": _MEASURED,
        "SLT052": "which slot is starved shows in looks at /slots over minutes, of users who come back",
        "SLT053": _MEASURED,
        "SLT057": _MEASURED,
        "SLT075": "it takes a short prompt beside a long one, and the overhead of all is in every trial's TTFT",
        "SLT095": _CLIENT,
        "SLT096": _CLIENT,
        "SLT097": _CLIENT,
        "SLT100": _MEASURED,
        "SLT101": _MEASURED,
        "SLT102": _MEASURED,
        "SLT110": _END,
        "SLT111": "a trial's server runs once, and one that is started again has failed",
        "SLT114": _END,
        "SLT116": "a trial's server that gets no requests has failed its trial, whose end says why",
    }
)
"""Identifier of a rule to why it is not asked about a trial."""

RULES: Final[tuple[Rule, ...]] = tuple(rule for rule in ALL_RULES if rule.id not in NOT_OF_TRIALS)
"""Those that are."""

_DECIDE: Final = frozenset({"SLT003", "SLT030", "SLT113"})
"""Worth knowing, and the reason where a server does not run as it was asked to: -fit, a cap, a file."""
_ENDS: Final = frozenset(entry.id for entry in failure_entries.ENTRIES)
"""Of ends only the trial's own is told."""
_OF_TEXT: Final = frozenset({"SLT103"})
"""What depends on what prompts say: of generated ones it is only possible."""


def notice(
    result: TrialResult,
    log: LogStory | None,
    *,
    is_gpu: bool,
    is_generated: bool,
    flags: tuple[str, ...] = (),
    pod: PodFacts | None = None,
    model: ModelFacts | None = None,
) -> tuple[Noticed, ...]:
    """What is found of the server of a trial that has ended, the gravest first.

    Args:
        result: what came of the trial. Where its measurement was at fault nothing is said about the server, unless that
            it did not run as asked is the fault.
        log: of the server; None where it could not be read.
        is_gpu: whether it is meant to compute on a GPU.
        is_generated: whether prompts were made up.
        flags: arguments that it was started with, where ``pod`` does not have them.
        pod: its limits.
        model: of its weights file.
    """
    mismatched = result.verdict.code == FailureClass.CONFIGURATION_MISMATCH
    if result.verdict.outcome is Outcome.INVALID and not mismatched:
        return ()
    if log is not None and result.failure is None:
        log = replace(log, failure=None, failure_line=None)  # it was stopped, so whatever it said then is no end
    device = result.device if result.device is not None and result.device.of_server else None
    symptoms = Symptoms("the trial's server", log, pod=pod, device=device, model=model, flags=flags)
    asked = [rule for rule in RULES if is_gpu or rule.item not in (Item.GPU, Item.DEVICE)]
    found = check_up(symptoms, asked).findings
    own = None if result.failure is None else entry_of(result.failure, result.failure_knob, result.verdict.reason).id
    return tuple(_kept(found, own, is_generated=is_generated, mismatched=mismatched))[:MOST]


def _kept(found: tuple[Finding, ...], own: str | None, *, is_generated: bool, mismatched: bool) -> Iterator[Noticed]:
    said = {own, *_ENDS}
    for one in found:
        decides = mismatched and one.id in _DECIDE
        if one.id in said or (one.severity is Severity.INFO and not decides):
            continue
        said.add(one.id)
        unsure = is_generated and one.id in _OF_TEXT
        confidence = Confidence.POSSIBLE if unsure else one.confidence
        yield Noticed(one.id, one.severity.value, confidence.value, one.sentence, str(one.evidence[0]))
