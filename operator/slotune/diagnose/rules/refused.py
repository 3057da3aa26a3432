"""Requests that get an error before anything is computed, for what they ask for."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.finding import Clear, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import heard, said
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory, Topic

__all__ = ["REQUESTS_REFUSED", "requests_refused"]

REQUESTS_REFUSED: Final = Entry(
    id="SLT118",
    code="RequestsRefused",
    item=Item.HEALTH,
    title="Requests get an error for what they ask for",
    cause="A request that asks for what this server or its model can't do gets an error, and nothing is computed: a "
    "grammar that can't be made of its tools or its JSON schema (ggml-org/llama.cpp#26596, #25895), an embedding that "
    "was not set up, a picture that can't be read.",
    first="Read the words that the finding quotes: the client gets the same, and they name what to change.",
    avoid="Do not let clients retry at once, and do not tune the server for it: the same request fails each time.",
    verify="The log has no line 'send_error' under the same traffic.",
)

RARE: Final = 0.01
"""Share of requests: below it, it is a client's mistake now and then."""
SHOWN: Final = 120
"""Characters of the server's words; what comes behind may be of a request."""
OF_GRAMMARS: Final = (
    "Send fewer tools, or smaller schemas: without a large maxLength or maxItems, and without patterns. One grammar is "
    "made of all tools of a request, and it may only grow so far."
)


def requests_refused(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether requests failed that no other rule explains."""
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, which has a line for every request that gets an error")
    count = log.count(Topic.REQUEST_REFUSED)
    answered = 0 if log.requests is None else log.requests.requests
    if not count:
        if said(log) or answered:
            return Clear("no request got an error for what it asked for")
        return Undecided("a log that holds the start or an answered request")
    share = count / (answered + count)
    words = _words(log)
    return Finding(
        REQUESTS_REFUSED,
        f"{counted(count, 'request')} got an error beside {counted(answered, 'answer')}: {'; '.join(words)}",
        heard(log, Topic.REQUEST_REFUSED),
        Severity.INFO if share < RARE else Severity.WARNING,
        cost=Cost(refused_share=share if answered else None),
        first=OF_GRAMMARS if any("grammar" in one for one in words) else None,
    )


def _words(log: LogStory) -> tuple[str, ...]:
    """What the server said, each once, as far as it is known."""
    seen = log.seen[Topic.REQUEST_REFUSED]
    lines = (line.text.partition(", error: ")[2][:SHOWN].rstrip(" .") for line in (seen.last, seen.first))
    return tuple(dict.fromkeys(lines))
