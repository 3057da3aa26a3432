"""Why a measurement says nothing about a candidate, as entries of the catalogue: one for each code of an Invalid.

None of them is a cause of slow prompts: they are about the machine and the client that measure. What is common to all
is said once: no setting of llama-server mends them, and the trial is repeated before anything rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.rules.client import PROXY_BUFFERS
from slotune.diagnose.rules.device import GPU_THROTTLED

__all__ = ["ENTRIES", "INVALID", "OTHER", "WITHDRAWN"]

_AVOID: Final = "Do not judge the configuration by this trial, and do not tune it: the measurement was at fault."
_VERIFY: Final = "The trial that repeats it ends as Pass, Fail or Inconclusive."


@dataclass(frozen=True, slots=True)
class _Fault:
    code: str
    title: str
    cause: str
    first: str
    item: Item = Item.HEALTH


_CLIENT_CPU: Final = "Give the load client more CPU (sandbox.loadClient), and measure where nothing else runs."

_FAULTS: Final[tuple[_Fault | str, ...]] = (
    _Fault(
        "ClientOutOfResources",
        "The load client could not send what it had to",
        "The client ran out of sockets, ports or file handles, so requests were never sent.",
        "Raise the limits of the process (ulimit -n, local ports), or measure at a lower rate.",
        Item.CLIENT,
    ),
    _Fault(
        "ClientLate",
        "The load client sent requests late",
        "Requests left after their time, so what users would have waited is not what was measured.",
        _CLIENT_CPU,
        Item.CLIENT,
    ),
    _Fault(
        "LagMadeViolations",
        "Requests broke the promise only because the client sent them late",
        "The wait counts from the planned time of a request, and without the client's own lag these were in time.",
        _CLIENT_CPU,
        Item.CLIENT,
    ),
    _Fault(
        "ClientLoopSlow",
        "The load client's event loop ran late",
        "Tokens were stamped after they arrived, because the client was busy or had no CPU.",
        _CLIENT_CPU,
        Item.CLIENT,
    ),
    _Fault(
        "ClientCPUFull",
        "The load client used all the CPU that it may",
        "A client at its limit stamps tokens late, and takes time from a server on the same cores.",
        _CLIENT_CPU,
        Item.CLIENT,
    ),
    _Fault(
        "RateOff",
        "Requests were not sent at the rate that was asked for",
        "The rate that was reached differs by more than is allowed, so the verdict would be about another load.",
        _CLIENT_CPU,
        Item.CLIENT,
    ),
    _Fault(
        "LittlesLaw",
        "Requests in flight do not add up",
        "Rate times time in the system must be the number in the system; where it is not, requests got lost.",
        "Look at what stands between client and server: a proxy that retries, drops or caches requests.",
        Item.CLIENT,
    ),
    _Fault(
        "ServerBusyBefore",
        "The server had work before the measurement began",
        "Somebody else's requests ran on it, so its figures are those of a shared server.",
        "Stop other clients, or measure a server of its own.",
        Item.LOAD,
    ),
    _Fault(
        "CountersDisagree",
        "Client and server counted different numbers of tokens",
        "The server computed for somebody else as well, or answers were lost on the way.",
        "Stop other clients; look at the proxy between.",
        Item.LOAD,
    ),
    _Fault(
        "NoTokenCounts",
        "The server does not say how many tokens it computed",
        "Without timings in the stream neither speed nor cache can be told.",
        "Take a build that sends timings, and no proxy that strips them.",
        Item.CLIENT,
    ),
    "StreamBuffered",
    "DeviceThrottled",
    _Fault(
        "MachineDrifted",
        "The machine changed between two looks at the idle baseline",
        "The same server on the same machine got faster or slower meanwhile: heat, clocks or neighbours.",
        "Measure where nothing else runs; pin clocks; raise measurement.driftPercent only if the promise has room.",
        Item.DEVICE,
    ),
    _Fault(
        "NothingSent",
        "No request was sent in the measured window",
        "The run was too short for its rate, or was stopped before it began.",
        "Raise measurement.requestsPerRun, or the rate.",
        Item.CLIENT,
    ),
    _Fault(
        "ServerUnreachable",
        "The server could not be reached",
        "Connections were refused or broke, and nothing says that the server itself ended.",
        "Look at network policies and at the address; try one request by hand.",
    ),
    _Fault(
        "SandboxBroken",
        "Something of slotune's own broke while measuring",
        "An error of this machine, such as a full disk or a missing program, ended the trial.",
        "Read the message, free the disk or install what is missing.",
    ),
    _Fault(
        "LoadProcessDied",
        "A process of the load client died",
        "One of several client processes ended, mostly for want of memory, so part of the load was missing.",
        "Raise the load client's memory, or measure at a lower rate.",
        Item.CLIENT,
    ),
    _Fault(
        "ImageMoved",
        "The image's tag names another image by now",
        "The trial's pod ran another build than the search is about.",
        "Name the image by its digest.",
    ),
    _Fault(
        "DeadlineExceeded",
        "The trial did not come to its end in time",
        "The Job's deadline passed while the load client was still at work.",
        "Look for a node that is overloaded; raise the measurement's timeouts.",
    ),
    _Fault(
        "LoadClientOutOfMemory",
        "The load client ran out of memory",
        "Its container reached its memory limit, and the kernel ended it.",
        "Raise sandbox.loadClient.memory.",
        Item.CLIENT,
    ),
    _Fault(
        "LoadClientFailed",
        "The load client failed",
        "It ended with an error of its own before there was a result.",
        "Read the message; see that its image is as new as the operator's.",
        Item.CLIENT,
    ),
    _Fault(
        "ResultLost",
        "The trial ended, and its result did not arrive",
        "The client's log was cut or rotated before the operator read it.",
        "Nothing: it is measured again. Where it happens often, look at the node's log rotation.",
    ),
    _Fault(
        "ReferenceTooLarge",
        "The recorded answers are larger than they may be",
        "A load client of another version recorded more than this operator takes.",
        "Use a load client as new as the operator.",
    ),
    _Fault(
        "NotComparable",
        "The answers cannot be compared",
        "The server does not say what a comparison needs, or its vocabulary is another.",
        "Read the message; compare models of one family, on a build that returns probabilities.",
    ),
    _Fault(
        "ReferenceMissing",
        "The reference's answers are gone",
        "What comparisons compare with was deleted meanwhile.",
        "Nothing: it is recorded again.",
    ),
    _Fault(
        "ReferenceChanged",
        "The reference's answers are others by now",
        "They were recorded again while this trial waited, so it would have compared with something else.",
        "Nothing: it is compared again.",
    ),
    _Fault(
        "ReferenceLost",
        "The ConfigMap or Secret with the reference's answers is gone or damaged",
        "Somebody deleted or edited it.",
        "Nothing: it is recorded again. Leave what belongs to trials to slotune.",
    ),
    _Fault(
        "WorkloadUnreadable",
        "The workload could not be read in the trial's pod",
        "The ConfigMap, Secret or file with the prompts is not there as it was declared.",
        "Read the message; put back what it names.",
    ),
    _Fault(
        "WorkloadChanged",
        "The workload changed while the trial waited",
        "The prompts are others than the search began with.",
        "Nothing: the search goes on with the new ones. Change prompts between searches.",
    ),
    _Fault(
        "NoiseFloorTooHigh",
        "Answers differ from themselves by more than the limit allows",
        "After a restart the reference answers otherwise, so a limit below that noise can be shown for nobody.",
        "Take a looser slo.quality, or find out why answers change (another GPU, batches of other shapes).",
    ),
    _Fault(
        "NotMeasured",
        "Nothing was measured",
        "The trial ended before the first look at its server.",
        "Read the message; it is measured again.",
    ),
    _Fault(
        "NotAsked",
        "Nobody asks about answers here",
        "A comparison was to run in a search without slo.quality.",
        "Nothing: it is left out.",
    ),
    _Fault(
        "NoOutcome",
        "The trial's status does not say how it ended",
        "Somebody edited the status of the LlamaTrial.",
        "Nothing: it is measured again. Leave the status of trials to slotune.",
    ),
    _Fault(
        "NotRecorded",
        "Nobody recorded an answer to this question",
        "A replay asked what was not measured when the search was recorded.",
        "Record the search again, or replay it with --no-hints.",
    ),
)
_FIRST: Final = 301
"""The first is SLT301. New ones come last, and one that is withdrawn keeps its place as a word: an identifier is never
given to another cause."""

OTHER: Final = Entry(
    id="SLT300",
    code="MeasurementAtFault",
    item=Item.HEALTH,
    title="The measurement was at fault",
    cause="Something that is not the configuration spoiled the trial; the message says what.",
    first="Read the message; it is measured again.",
    avoid=_AVOID,
    verify=_VERIFY,
)
"""For a code that another version of slotune gave."""

_FOUND_OF_SERVERS: Final[Mapping[str, Entry]] = {
    "StreamBuffered": PROXY_BUFFERS,
    "DeviceThrottled": GPU_THROTTLED,
}
"""Faults of a measurement that users have as well: under the identifier that a diagnosis of a server has for them."""

_OWN: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        fault.code: Entry(
            id=f"SLT{_FIRST + place}",
            code=fault.code,
            item=fault.item,
            title=fault.title,
            cause=fault.cause,
            first=fault.first,
            avoid=_AVOID,
            verify=_VERIFY,
        )
        for place, fault in enumerate(_FAULTS)
        if isinstance(fault, _Fault)
    }
)

WITHDRAWN: Final = frozenset(f"SLT{_FIRST + at}" for at, fault in enumerate(_FAULTS) if isinstance(fault, str))
"""Identifiers of faults that have another one; none of them is ever used again."""

INVALID: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        code: _OWN.get(code) or _FOUND_OF_SERVERS[code]
        for code in (fault if isinstance(fault, str) else fault.code for fault in _FAULTS)
    }
)
"""Code of a verdict to entry. ``ConfigurationMismatch`` is not here: it is a class of failure as well."""

ENTRIES: Final = (OTHER, *_OWN.values())
