"""Why a llama-server could not be measured, and the setting that each cause names.

Exit code 1 stands for a typing error as well as for a full GPU, so the log's last lines decide: which buffer could not
be allocated tells which setting to lower. The rules are a list; the first that matches wins, so memory comes before
"the model could not be loaded", which llama-server logs after either.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from slotune.llama.failure_class import FailureClass
from slotune.llama.failure_rules import HOST_CURE, KV_CURE, RULES

__all__ = ["Failure", "FailureClass", "classify_failure"]


@dataclass(frozen=True, slots=True)
class Failure:
    """One diagnosed failure."""

    failure_class: FailureClass
    knob: str | None
    """The setting to lower or change first, as the API spells it, or the refused flag; None when none would help."""
    sentence: str
    """Cause, value and cure, for people. Has no prompt text."""


EVIDENCE_LENGTH = 300
"""Characters of a log line that a sentence repeats."""

_FLAG_KNOBS = {
    "-np": "parallelSlots",
    "-c": "contextSizePerSlot",
    "-b": "batchSize",
    "-ub": "uBatchSize",
    "-fa": "flashAttention",
    "-ctk": "cacheTypeK",
    "-ctv": "cacheTypeV",
    "--cache-ram": "cacheRAMMiB",
}

_REFUSED_FLAG = re.compile(
    r"error: (?:invalid|unknown) argument: (?P<unknown>\S+)|error: invalid parameter for argument: (?P<unfit>\S+)"
    r'|error while handling argument "(?P<flag>[^"]+)": (?P<why>[^\n]+)'
    r'|error while handling environment variable "(?P<variable>[^"]+)": (?P<value>[^\n]+)'
)

_NUMBER_READER = re.compile(r"sto(?:i|l|ll|ul|ull|f|d|ld)(?:: .*)?")
"""Of the standard library of C++."""

_DRAFT_LOAD = re.compile(
    r"loading draft model '([^'\n]*)'(?:(?!model loaded\s*$|initializing, n_slots)[\s\S])*"
    r"(?:failed to load draft model|failed to create draft context|exiting due to model loading error)"
    r"(?:(?!model loaded\s*$)[\s\S])*",
    re.MULTILINE,
)
"""A start that got as far as the draft model, and no further."""

_AMOUNT = re.compile(
    r"allocating (?P<mib>[\d.]+) MiB on device|failed to allocate buffer of size (?P<bytes>\d+)"
    r"|Device memory allocation of size (?P<device>\d+) failed"
    r"|failed to allocate \S+ buffer of size (?P<more>\d+)|attempted to allocate (?P<mb>[\d.]+) MB"
)


def classify_failure(
    exit_code: int | None,
    log_tail: str,
    *,
    timed_out: bool = False,
    wedged: bool = False,
    limit_s: float | None = None,
) -> Failure:
    """Diagnose a server that could not be measured.

    Args:
        exit_code: as a shell (137) or as Python (-9) gives it; None while it runs.
        log_tail: the end of its log, enough to hold the first error.
        timed_out: it was stopped because it was not ready within ``limit_s``.
        wedged: it was stopped because it made no progress for ``limit_s``.
        limit_s: the limit that was missed, in seconds, for the sentence.
    """
    within = f" within {limit_s:g} s" if limit_s is not None else ""
    if wedged:
        return Failure(
            FailureClass.WEDGED,
            None,
            f"llama-server held requests but made no progress{within}, whatever /health said: report it with its log",
        )
    if timed_out:
        return Failure(
            FailureClass.STARTUP_TIMEOUT,
            "startupTimeout",
            f"llama-server was not ready{within}: raise the start-up limit, or take a smaller or closer model file",
        )
    if refused := _REFUSED_FLAG.search(log_tail):
        return _refused(refused)
    amount = _amount(log_tail)
    if drafting := _DRAFT_LOAD.search(log_tail):
        return _draft_failed(drafting[1], drafting[0], amount)
    for rule in RULES:
        if match := rule.pattern.search(log_tail):
            sentence = rule.sentence(match, amount)
            return Failure(rule.failure_class, rule.knob, sentence[: 2 * EVIDENCE_LENGTH])
    return _by_exit_code(exit_code, log_tail)


def _draft_failed(path: str, log: str, amount: str) -> Failure:
    """The model was loaded, and then its draft model was not: memory is what candidates without one need less of."""
    rule, match = next(((rule, found) for rule in RULES if (found := rule.pattern.search(log))), (None, None))
    if rule is not None and match is not None and rule.failure_class.is_memory:
        return Failure(
            rule.failure_class,
            "draft",
            f"memory ran out for the draft model {path}{amount}: take a smaller one, or none; {KV_CURE}"[
                : 2 * EVIDENCE_LENGTH
            ],
        )
    why = "" if rule is None or match is None else f": {rule.sentence(match, amount)}"
    return Failure(
        FailureClass.SPECULATION_UNAVAILABLE,
        "draft",
        f"the draft model {path} could not be loaded{why}"[: 2 * EVIDENCE_LENGTH],
    )


def _refused(match: re.Match[str]) -> Failure:
    if unknown := match["unknown"]:
        return Failure(
            FailureClass.BAD_FLAG,
            unknown,
            f"llama-server does not know the flag {unknown}: it is misspelt, or of another build: remove {unknown}",
        )
    if variable := match["variable"]:
        return Failure(
            FailureClass.BAD_FLAG,
            variable,
            f"llama-server refused the environment variable {variable}: {_in_words(match['value'])}",
        )
    if unfit := match["unfit"]:
        return Failure(
            FailureClass.BAD_FLAG, _FLAG_KNOBS.get(unfit, unfit), f"llama-server refused the value of {unfit}"
        )
    flag = match["flag"]
    knob = _FLAG_KNOBS.get(flag, flag)
    return Failure(FailureClass.BAD_FLAG, knob, f"llama-server refused {flag}: {_in_words(match['why'])}")


def _in_words(why: str) -> str:
    """What a flag is refused for; where a value is not read as a number only the name of what reads it is printed."""
    if reader := _NUMBER_READER.fullmatch(why.strip()):
        return f"its value is no number that it can take ({reader[0]})"
    return why[:EVIDENCE_LENGTH]


def _amount(log_tail: str) -> str:
    match = _AMOUNT.search(log_tail)
    if match is None:
        return ""
    if size := match["bytes"] or match["more"] or match["device"]:
        return f" ({int(size) / 2**20:.0f} MiB were refused)"
    return f" ({float(match['mib'] or match['mb']):.0f} MiB were refused)"


def _by_exit_code(exit_code: int | None, log_tail: str) -> Failure:
    if exit_code is None:
        return Failure(FailureClass.CRASHED, None, "llama-server could not be measured, and its log does not say why")
    number = -exit_code if exit_code < 0 else exit_code - 128 if exit_code > 128 else 0
    if number == signal.SIGKILL:
        return Failure(
            FailureClass.OUT_OF_MEMORY_HOST,
            "cacheRAMMiB",
            f"llama-server was killed (exit code 137), as the kernel does when host memory runs out: {HOST_CURE}",
        )
    if number == signal.SIGILL:
        return Failure(
            FailureClass.CRASHED,
            "--engine",
            "llama-server uses instructions that this processor lacks (SIGILL): take a build for this processor",
        )
    how = f"exit code {exit_code}"
    if number:
        try:
            how = signal.Signals(number).name
        except ValueError:
            how = f"signal {number}"
    last = next((line.strip() for line in reversed(log_tail.splitlines()) if line.strip()), "it logged nothing")
    return Failure(
        FailureClass.CRASHED, None, f"llama-server ended with {how}; its last line: {last[:EVIDENCE_LENGTH]}"
    )
