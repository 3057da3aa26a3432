"""Does what it computes come out? A step that fails ends its requests with an error, and the server goes on."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.finding import Clear, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import heard, said
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Topic

__all__ = ["COMPUTE_FAILS", "compute_fails", "goes_on"]

COMPUTE_FAILS: Final = Entry(
    id="SLT115",
    code="ComputeFails",
    item=Item.HEALTH,
    title="Steps fail, and it goes on as if it were well",
    cause="A step that the device can't compute ends all requests in it with error 500, and llama-server goes on: "
    "/health says ok, also where the device is lost and every later step fails too (ggml-org/llama.cpp#27309).",
    first="Restart it: a lost device does not come back within a process. Then read the lines before the first failure "
    "and the kernel's log (dmesg: Xid, a reset of the GPU): memory, the driver, or a step that took too long, for "
    "which a lower --ubatch-size helps.",
    avoid="Do not rely on a liveness probe of /health, and do not let clients retry at once: where the device is lost "
    "every retry fails too.",
    verify="The log has no line about a step that failed under the same traffic.",
    knobs=("uBatchSize", "image"),
)


def compute_fails(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether steps failed on a server that went on."""
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, which has a line for each step that failed")
    answered = 0 if log.requests is None else log.requests.requests
    count = log.count(Topic.COMPUTE_FAILED)
    if not count:
        if said(log) or answered:
            return Clear("no step failed")
        return Undecided("a log that holds the start or an answered request")
    if log.count(Topic.OUT_OF_MEMORY):
        return Clear("memory ran out, which is a finding of its own")
    if log.failure is not None and not goes_on(symptoms):
        return Clear("it ended with that, which is a finding of its own")
    lines = f"{count} lines say" if count > 1 else "a line says"
    served = counted(answered, "request")
    return Finding(
        COMPUTE_FAILS,
        f"{lines} that a step could not be computed, and the server went on; it answered {served}",
        heard(log, Topic.COMPUTE_FAILED),
        Severity.WARNING if answered > count else Severity.CRITICAL,
    )


def goes_on(symptoms: Symptoms) -> bool:
    """Whether a server whose log ends with a step that failed is there all the same."""
    log, server = symptoms.log, symptoms.server
    is_there = server is not None and (server.health_s is not None or server.props is not None)
    return is_there and log is not None and log.count(Topic.COMPUTE_FAILED) > 0
