"""Does it serve at all? A server that hangs says it is well, and one that restarts is well again when one looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules import computing, ending, refused, wedged
from slotune.diagnose.rules.placement import fact, heard, said, shown, stated
from slotune.diagnose.rules.settings import has_defaults
from slotune.diagnose.rules.told_failures import quoted_end
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.failure_words import in_flags
from slotune.llama.failures import FailureClass
from slotune.llama.flag_cures import DRAFT_MODELS
from slotune.llama.log_story import LogStory, Topic

__all__ = ["ENTRIES", "RULES", "SPECULATION_FAILED"]

WITH_A_TYPE: Final = (
    "State --spec-type beside the draft model (draft-simple for a small model of the same vocabulary), or take the "
    "draft model away: its memory is taken for nothing."
)
UNFIT: Final = "speculative decoding not supported by this context"

SPECULATION_FAILED: Final = Entry(
    id="SLT112",
    code="SpeculationFailed",
    item=Item.HEALTH,
    title="Speculative decoding was asked for, and cannot be had",
    cause="A draft model that cannot be loaded ends llama-server. Where only its context cannot be set up it logs one "
    "error and serves on without guessing: as slow as without it, with the draft's memory possibly taken.",
    first="Read the error that the finding quotes: a draft model of another vocabulary, too little memory, or a way of "
    "speculating that this model does not support. An n-gram kind takes no draft model.",
    avoid="Do not tune --spec-draft-n-max, slots or batches: nothing is drafted.",
    verify="The log says that the speculative decoding context was initialized, and answers have draft_n in their "
    "timings.",
    knobs=("speculation", "draft"),
)

CONFIG_FILE_BEHIND_FLAGS: Final = Entry(
    id="SLT113",
    code="ConfigFileBehindFlags",
    item=Item.HEALTH,
    title="An ini file sets what the arguments do not say",
    cause="llama-server reads /etc/llama.cpp/config.ini and ~/.config/llama.cpp/config.ini before its arguments, and "
    "ignores names that it does not know: settings there change the server without showing in any manifest.",
    first="State what the file sets as arguments, and take the file out of the image or the volume.",
    avoid="Do not compare this server with another by their arguments alone.",
    verify="The log has no line that says using config file.",
)


def _speculation_failed(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    failure = None if log is None else log.failure
    if log is not None and failure is not None and failure.failure_class is FailureClass.SPECULATION_UNAVAILABLE:
        sentence = in_flags(failure.sentence)
        return Finding(
            SPECULATION_FAILED, f"it ended: {sentence}", (quoted_end(failure, log.failure_line),), Severity.CRITICAL
        )
    if log is not None and _is_an_error(symptoms, log):
        words = log.facts.speculation_error or "speculative decoding failed"
        return Finding(
            SPECULATION_FAILED,
            "speculative decoding could not be set up, and the server guesses nothing",
            heard(log, Topic.SPECULATION_FAILED) or (fact(log, "speculation_error", words[:LONGEST]),),
        )
    slots = None if symptoms.server is None else symptoms.server.slots
    known = [slot.speculative for slot in slots or () if slot.speculative is not None]
    if any(known) or (not known and log is not None and log.facts.speculation):
        return Clear("speculative decoding is set up")
    return _unspeculating(symptoms, known)


def _is_an_error(symptoms: Symptoms, log: LogStory) -> bool:
    """Whether what the log says of speculation is an error: builds of early 2026 say at each start of a hybrid model
    that its context is not fit for it, whether anybody asked for it or not."""
    said_so = [line.text for line in heard(log, Topic.SPECULATION_FAILED)]
    said_so += [log.facts.speculation_error] if log.facts.speculation_error else []
    if all(UNFIT in text for text in said_so):
        return bool(said_so) and _speculation_asked(symptoms) is not None
    return True


def _unspeculating(symptoms: Symptoms, known: Sequence[bool]) -> Finding | Clear | Undecided:
    """Whether a server that does not speculate, as far as is known, was asked to."""
    log, asked = symptoms.log, _speculation_asked(symptoms)
    not_any = _not_speculating(symptoms, known)
    if asked is not None and not_any is not None:
        is_stated = "--spec-type" in stated(symptoms)
        return Finding(
            SPECULATION_FAILED,
            ("speculative decoding was asked for" if is_stated else "a draft model is there")
            + (f", and no slot of {len(known)} guesses with it" if known else ", and nothing guesses with it"),
            (asked, not_any),
            confidence=Confidence.LIKELY,
            first=None if is_stated else WITH_A_TYPE,
        )
    if asked is None and has_defaults(symptoms):
        return Clear("speculative decoding was not asked for")
    if asked is not None:
        return Undecided("whether it guesses: /slots (--url), or a log with -lv 3 that holds the start")
    if said(log) and log is not None and log.facts.ready:
        return Clear("the log names no draft model, and no error of one")
    return Undecided("a log that holds the start, or the server's arguments")


def _not_speculating(symptoms: Symptoms, known: Sequence[bool]) -> Evidence | None:
    """Who says that nothing is guessed: the slots, else the log."""
    log = symptoms.log
    if known:
        return Evidence(Source.SLOTS, "speculative false")
    if log is not None and log.facts.speculation is False:
        return fact(log, "speculation", "no implementations specified for speculative decoding")
    return None


def _speculation_asked(symptoms: Symptoms) -> Evidence | None:
    """The argument that asks for it; without one the log's line of a draft model, which nobody loads for nothing."""
    settings, log = stated(symptoms), symptoms.log
    kind = settings.get("--spec-type")
    if kind is not None:
        return None if kind.values[:1] == ("none",) else shown(kind)
    draft = next((settings[name] for name in DRAFT_MODELS if name in settings), None)
    if draft is not None:
        return shown(draft)
    return fact(log, "draft_loaded", "loading draft model") if log is not None and log.facts.draft_loaded else None


def _config_file(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is not None and (log.facts.config_files or log.count(Topic.CONFIG_FILE)):
        files = ", ".join(log.facts.config_files) or "an ini file"
        return Finding(
            CONFIG_FILE_BEHIND_FLAGS,
            f"{files} was read behind the arguments"[:LONGEST],
            heard(log, Topic.CONFIG_FILE) or (fact(log, "config_files", f"using config file: {files}"[:LONGEST]),),
            Severity.INFO,
        )
    return Clear("no ini file was read") if said(log) else Undecided("a log that holds the server's start")


ENTRIES: Final = (
    wedged.WEDGED,
    ending.RESTARTING,
    SPECULATION_FAILED,
    CONFIG_FILE_BEHIND_FLAGS,
    ending.ENDED,
    computing.COMPUTE_FAILS,
    refused.REQUESTS_REFUSED,
    ending.KILLED_BY_PROBE,
)

RULES: Final[tuple[Rule, ...]] = (
    Rule(wedged.WEDGED.id, Item.HEALTH, wedged.wedged),
    Rule(ending.RESTARTING.id, Item.HEALTH, ending.restarting),
    Rule(SPECULATION_FAILED.id, Item.HEALTH, _speculation_failed),
    Rule(CONFIG_FILE_BEHIND_FLAGS.id, Item.HEALTH, _config_file),
    Rule(ending.ENDED.id, Item.HEALTH, ending.ended),
    Rule(computing.COMPUTE_FAILS.id, Item.HEALTH, computing.compute_fails),
    Rule(refused.REQUESTS_REFUSED.id, Item.HEALTH, refused.requests_refused),
)
