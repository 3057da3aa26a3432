"""How did it end: by itself, and was it started again? A server that restarts is well again when one looks."""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.counting import times
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.before_serving import CORRECT_COMMAND
from slotune.diagnose.rules.computing import goes_on
from slotune.diagnose.rules.probes import FailedProbe, cure_of_probe, probe_that_killed
from slotune.diagnose.rules.told_failures import cure_of, quoted_end
from slotune.diagnose.symptoms import PodFacts, Symptoms
from slotune.diagnose.trouble import Role
from slotune.llama.failure_words import in_flags
from slotune.llama.failures import Failure, FailureClass
from slotune.llama.log_story import LogStory

__all__ = ["ENDED", "KILLED_BY_PROBE", "RESTARTING", "ended", "restarting"]

OFTEN: Final = 3
"""Restarts that are no roll-out any more."""
NEVER_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of an end before the first instruction: there is no log."""
_TELLS: Final = re.compile(r": (?:check|download|lower|try|take|remove|set|report|pip install|raise)\b[^:]*$")
"""A sentence whose last part is what to do."""

RESTARTING: Final = Entry(
    id="SLT111",
    code="Restarting",
    item=Item.HEALTH,
    title="It ends and is started again",
    cause="Each restart loads the weights anew, drops all requests that ran and empties every cache, so the first "
    "prompts after it are computed whole.",
    first="Read what it said last: the end of the log before each start, or kubectl logs --previous in a cluster.",
    avoid="Do not raise a restart limit or the patience of probes before the reason is known.",
    verify="The number of starts in its log, or the pod's restart count, stays the same for a day.",
    knobs=("extraArgs",),
)

ENDED: Final = Entry(
    id="SLT114",
    code="Ended",
    item=Item.HEALTH,
    title="It ended by itself",
    cause="A server that is stopped on purpose says that it cleans up before it exits; this one's log ends with an "
    "error, an exception or an assertion instead.",
    first="Read the line that the finding quotes and those before it. If it names no setting, try the newest build, "
    "and report it with the log.",
    avoid="Do not only start it again: the same request, or the same setting, ends it in the same place.",
    verify="It serves the same requests for a day, and its log holds one start.",
    knobs=("extraArgs",),
)

KILLED_BY_PROBE: Final = Entry(
    id="SLT117",
    code="KilledByProbe",
    item=Item.HEALTH,
    title="Kubernetes kills it for a probe that fails",
    cause="A liveness or startup probe that asks the wrong place, or has less patience than loading the weights takes, "
    "kills a server that has nothing wrong: /health answers 503 until they are loaded, and the next start begins anew.",
    first="Give it a startupProbe of /health whose failureThreshold × periodSeconds is longer than loading takes.",
    avoid="Do not look for the reason in its log: it is stopped from outside, in the middle of its work.",
    verify="kubectl describe pod tells of no failed liveness or startup probe any more, and the restart count stays "
    "the same for a day.",
)


def restarting(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether it was started more than once, as its pod or its log says."""
    log, pod = symptoms.log, symptoms.pod
    failure = None if log is None else log.failure
    is_memory = failure is not None and failure.failure_class.is_memory
    if pod is not None and (pod.restarts or pod.last_exit is not None):
        killed_for = probe_that_killed(symptoms)
        return _restarted(pod, log) if killed_for is None else _killed(symptoms, pod, killed_for)
    if log is not None and failure is not None and not is_memory and log.starts > 1:
        return Finding(
            RESTARTING,
            f"it was started {log.starts} times in this log, and it ended: {in_flags(failure.sentence)}",
            (quoted_end(failure, log.failure_line),),
            Severity.WARNING if log.facts.ready else Severity.CRITICAL,
            first=_cure(failure),
        )
    if log is not None and log.starts > 1:
        return _started_again(log, is_memory=is_memory)
    if pod is not None:
        return Clear("its container was never restarted", (Evidence(Source.POD, "restarts 0"),))
    if log is not None and log.starts == 1:
        return Clear("one start in the log" + (", and no end" if failure is None else ""))
    return Undecided("--deployment (restarts and exit codes), or a log that holds the start")


def _started_again(log: LogStory, *, is_memory: bool) -> Finding:
    """Several starts in a log; by somebody's hand, unless the process before the last one says how it ended."""
    starts = Evidence(Source.LOG, f"{log.starts} starts in {log.lines:,} lines")
    earlier = log.earlier_failure
    if earlier is None or is_memory:
        return Finding(
            RESTARTING,
            f"it was started {log.starts} times in this log",
            (starts,),
            Severity.WARNING if is_memory else Severity.INFO,
            Confidence.POSSIBLE,
        )
    sentence, number = in_flags(earlier.sentence), log.earlier_failure_start
    is_last = number is None or number >= log.starts - 1
    when = "the last time after it ended" if is_last else f"and start {number} ended"
    return Finding(
        RESTARTING,
        f"it was started {log.starts} times in this log, {when}: {sentence}",
        (quoted_end(earlier, log.earlier_failure_line), starts),
        # What came behind it went on without that, and says nothing of how it ended.
        Severity.WARNING if is_last else Severity.INFO,
        first=_cure(earlier),
    )


def _cure(failure: Failure) -> str | None:
    """What its sentence says to do; None where it only repeats an error."""
    sentence = in_flags(failure.sentence)
    return cure_of(sentence) if _TELLS.search(sentence) else None


def ended(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """One process, and how its log ends, under the entry of why; restarts and memory have findings of their own."""
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, or its end")
    failure = log.failure
    if failure is None:
        return Clear("the log holds no error that ended it") if log.lines else Undecided("the server's log, or its end")
    if (elsewhere := _told_elsewhere(symptoms, failure.failure_class)) is not None:
        return Clear(f"{elsewhere}, which is a finding of its own")
    entry = OF_FAILURES.get(failure.failure_class, ENDED)
    return Finding(
        entry,
        f"it ended: {in_flags(failure.sentence)}",
        (quoted_end(failure, log.failure_line),),
        Severity.CRITICAL,
        first=_cure(failure),
    )


def _told_elsewhere(symptoms: Symptoms, failure: FailureClass) -> str | None:
    """What another rule finds of an end."""
    log, pod = symptoms.log, symptoms.pod
    if goes_on(symptoms):
        return "it goes on all the same"
    if failure.is_memory:
        return "memory ran out"
    if failure is FailureClass.SPECULATION_UNAVAILABLE:
        return "it could not guess as it was asked to"
    is_again = log is not None and log.starts > 1
    if is_again or (pod is not None and (pod.restarts or pod.last_exit is not None)):
        return "it was started again"
    return None


def _restarted(pod: PodFacts, log: LogStory | None) -> Finding:
    why, first = "", None
    evidence = [Evidence(Source.POD, f"restarts {pod.restarts}")]
    if pod.last_exit is not None:
        reason, code = pod.last_exit
        why = f", the last time with {reason} (exit code {code})"
        evidence.append(Evidence(Source.POD, f"last exit {reason} {code}"))
        if reason in NEVER_STARTED:
            why += f": {pod.last_exit_message[:LONGEST]}".removesuffix(": ").rstrip(".")
            first = CORRECT_COMMAND
    if log is not None and log.failure is not None:
        why += f": {in_flags(log.failure.sentence)}"
        evidence.append(quoted_end(log.failure, log.failure_line))
        first = _cure(log.failure)
    return Finding(
        RESTARTING,
        f"its container was restarted {times(pod.restarts)}{why}",
        (*evidence, *pod.events[:3]),
        _gravity(pod),
        first=first,
    )


def _killed(symptoms: Symptoms, pod: PodFacts, probe: FailedProbe) -> Finding:
    """Not by itself: the reason is the probe, whatever the log says."""
    code = "" if pod.last_exit is None else f" (exit code {pod.last_exit[1]})"
    return Finding(
        KILLED_BY_PROBE,
        f"its container was restarted {times(pod.restarts)}, the last time{code} because {probe.words}",
        (*probe.evidence, Evidence(Source.POD, f"restarts {pod.restarts}")),
        Severity.CRITICAL if pod.ready is False else Severity.WARNING,
        first=cure_of_probe(probe, symptoms),
    )


def _gravity(pod: PodFacts) -> Severity:
    """Of restarts. One that waits to be started again does not serve, also where each end looks like a good one."""
    ended_well = pod.last_exit is not None and pod.last_exit[1] == 0
    waits = any(one.role is Role.SERVER for one in pod.troubles)
    if pod.ready is False and (waits or not ended_well):
        return Severity.CRITICAL
    if pod.restarts >= OFTEN or (pod.last_exit is not None and not ended_well):
        return Severity.WARNING
    return Severity.INFO
