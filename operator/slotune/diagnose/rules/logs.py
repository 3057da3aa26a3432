"""Logging at debug level: lines for every token, made on the thread that computes."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Cost, Finding, Severity, Undecided
from slotune.diagnose.request_cost import Precision, request_cost_of
from slotune.diagnose.rules import settings
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory, Topic

__all__ = ["ENTRIES", "RULES"]

DEBUG_LOGGING: Final = Entry(
    id="SLT080",
    code="DebugLogging",
    item=Item.LOGGING,
    title="The server logs at debug level",
    cause="From -lv 5 on, and with -v, the server writes some twenty lines for every token of a streamed answer, made "
    "on the thread that computes, and prompts among them, so that the log holds what users wrote.",
    first="Start with -lv 4, which still shows layers, buffers and kernels at the start, or with the default of 3.",
    avoid="Do not send the lines to a faster disk: making them is what costs, and they hold prompts.",
    verify="Tokens/s of one request on the idle server before and after.",
    knobs=("extraArgs",),
)

ENTRIES: Final = (DEBUG_LOGGING,)

DEBUG: Final = 5
"""``-lv`` from which lines are written for every token."""
DEFAULT: Final = 3
LINE_S: Final = 20e-6
"""Seconds of CPU time for one line, writing it included: build 11549, 22 lines for each token of a streamed answer."""
MOST_LINES: Final = 30
"""For each token. What goes beyond was written while loading, or for requests whose times the log does not have."""


def _debug(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is not None and (log.count(Topic.DEBUG_LINE) or (log.verbosity or 0) >= DEBUG):
        severity = Severity.INFO if _is_remnant(log) else Severity.WARNING
        return Finding(DEBUG_LOGGING, _said(log), (_shown(log),), severity, cost=_cost(symptoms, log))
    if log is not None and log.verbosity is not None:
        return Clear(f"the log has no line that only -lv {DEBUG} would print")
    verbose, level = settings.stated(symptoms, "-v"), settings.number(symptoms, "-lv", DEFAULT)
    if verbose is not None:
        return Finding(DEBUG_LOGGING, "all messages are printed", (settings.said(verbose),))
    if level is None:
        return Undecided(f"--log FILE, or {settings.ITS_ARGUMENTS}")
    words = f"messages are printed up to level {level.value}"
    return Finding(DEBUG_LOGGING, words, (level.evidence,)) if level.value >= DEBUG else Clear(words, (level.evidence,))


def _is_remnant(log: LogStory) -> bool:
    """Whether there are fewer such lines than tokens of answers: -lv 5 prints many for each, so most of the log is of
    another level."""
    return log.requests is not None and 0 < log.count(Topic.DEBUG_LINE) < log.requests.predicted_tokens


def _said(log: LogStory) -> str:
    debug = log.count(Topic.DEBUG_LINE)
    share = f" of {log.lines:,}" if log.lines else ""
    words = f"{debug:,}{share} lines are ones that only debugging prints" if debug else "the log is one of -lv 5"
    if log.requests is not None and log.requests.predicted_tokens and debug:
        words += f", {debug / log.requests.predicted_tokens:.1f} for each token of an answer"
    return words


def _cost(symptoms: Symptoms, log: LogStory) -> Cost:
    """About what the lines took of the time in which the server was at work.

    Requests that share a step share its time: the sum of theirs is more than that. Without a word on how many shared
    one there is only a bound on it, and nothing is counted.
    """
    request, requests = request_cost_of(symptoms), log.requests
    if requests is None or isinstance(request, str) or request.precision is Precision.AT_MOST:
        return Cost()
    worked_s = request.total_s * requests.requests
    lines = min(log.count(Topic.DEBUG_LINE), MOST_LINES * requests.predicted_tokens)
    return Cost(speed_share=LINE_S * lines / worked_s if LINE_S * lines < worked_s else None)


def _shown(log: LogStory) -> Evidence:
    """Where the first of them stands; never the line itself, which may hold a prompt."""
    seen = log.seen.get(Topic.DEBUG_LINE)
    if seen is None:
        return Evidence(Source.LOG, f"verbosity {log.verbosity}")
    return Evidence(Source.LOG, f"{seen.count:,} lines at debug level", seen.first.number)


RULES: Final = (Rule(DEBUG_LOGGING.id, Item.LOGGING, _debug),)
