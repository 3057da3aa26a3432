"""Waits that are not the server's: a client with one connection, a proxy that holds answers back, new connections."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import reuse_slots, settings, work
from slotune.diagnose.rules.settings import Number
from slotune.diagnose.rules.work import Measured
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory, RequestTimings

__all__ = ["ENTRIES", "PROXY_BUFFERS", "RULES"]

FEW_CONNECTIONS: Final = Entry(
    id="SLT095",
    code="FewConnections",
    item=Item.CLIENT,
    title="The client sends one request at a time",
    cause="Requests come back to back and never two at once, though slots are free: a client or proxy with a single "
    "connection (or a browser with six) queues the others where the server can't see them "
    "(ggml-org/llama.cpp#12013, #5827).",
    first="Let the client and every proxy before the server open as many connections as there are slots.",
    avoid="Do not add slots or replicas: those that are there are not used.",
    verify="requests_processing goes above 1 while users wait.",
)

PROXY_BUFFERS: Final = Entry(
    id="SLT096",
    code="ProxyBuffers",
    item=Item.CLIENT,
    title="A proxy holds answers back until they are complete",
    cause="A proxy that buffers answers passes a stream on in one piece: the first token comes with the last one, "
    "however fast the server was.",
    first="Switch buffering off for the server's address in the proxy (nginx: proxy_buffering off), and compression "
    "with it.",
    avoid="Do not tune the server: its first token left in time.",
    verify="Stream an answer through the proxy and past it: the first token comes at about the same time.",
)

KEEP_ALIVE_RECONNECTS: Final = Entry(
    id="SLT097",
    code="KeepAliveReconnects",
    item=Item.CLIENT,
    title="Connecting takes a part of the wait that shows",
    cause="llama-server closes a connection after 5 seconds of silence or 100 requests, so clients connect again and "
    "again; far away, or with TLS, each time takes several round trips.",
    first="Put a proxy near the server that keeps connections to the clients open, or move the client closer.",
    avoid="Do not tune the GPU: nothing is computed while a connection is made.",
    verify="The time of a new connection, and TTFT of a short prompt, before and after.",
)

ENTRIES: Final = (FEW_CONNECTIONS, PROXY_BUFFERS, KEEP_ALIVE_RECONNECTS)

BACK_TO_BACK: Final = 0.5
"""One slot's part of a log's time, start-up in it: people who read what they get leave it far below."""
BESIDE: Final = 1.2
"""Mean busy slots from which requests do run beside each other."""
STREAM_S: Final = 0.2
"""An answer that took the server less than this can't be told from one that came in one piece."""
IN_ONE_PIECE: Final = 0.5
"""Tokens that come in less than half of the time that making them took were held back."""
FELT_S: Final = 0.1
"""A new connection within a data centre takes a few milliseconds, over a continent this long."""
LARGE_PART: Final = 0.2
"""Part of a probe's time to the first token from which connecting is worth a change."""


def _few_connections(symptoms: Symptoms) -> Finding | Clear | Undecided:
    count, log = settings.slots(symptoms), symptoms.log
    busy = None if symptoms.server is None else work.busy_slots(symptoms.server)
    requests = None if log is None else log.requests
    if count is not None and count.value == 1:
        return Clear("one slot takes one request at a time anyway", (count.evidence,))
    if busy is not None and busy.value >= BESIDE:
        return Clear("requests run beside each other", (busy.evidence,))
    if reuse_slots.is_pinned(symptoms):
        return Clear("requests name the slot that they want, which is a finding of its own")
    if log is None or requests is None or requests.most_busy_slots is None or count is None:
        return Undecided("a log of the server under load: --log FILE")
    return _one_by_one(log, requests, requests.most_busy_slots, count, busy)


def _one_by_one(
    log: LogStory, requests: RequestTimings, most: int, count: Number, busy: Measured | None
) -> Finding | Clear | Undecided:
    """Whether requests that never met came without a pause."""
    if most > 1:
        return Clear(f"up to {most} requests ran at once")
    share = work.pressed(log, 1)
    if requests.requests < work.MANY_REQUESTS or share is None:
        return Undecided("a longer log of the server under load, with time stamps")
    if share < BACK_TO_BACK:
        return Clear(f"requests come now and then: one runs {100 * share:.0f} % of the time")
    seen = Evidence(Source.LOG, f"{requests.requests} requests in {log.seconds:.0f} s, never two at once")
    return Finding(
        FEW_CONNECTIONS,
        f"{requests.requests} requests came one after the other, never two at once, though there are {count.value} "
        "slots: if more than one user is served, they queue before the server",
        (seen, count.evidence, *(() if busy is None else (busy.evidence,))),
        Severity.INFO,  # a single user who does not pause looks the same
        Confidence.POSSIBLE,
    )


def _proxy_buffers(symptoms: Symptoms) -> Finding | Clear | Undecided:
    probe = symptoms.probe
    reading_s = None if probe is None else work.reading_s(probe)
    if probe is None or reading_s is None or probe.stream_s is None or probe.stream_made_s is None:
        return Undecided("--probe, sent the way that users' requests go")
    came = Evidence(Source.PROBE, f"from the first token to the last: {probe.stream_s:.2f} s as they came in")
    made = Evidence(Source.PROBE, f"{probe.stream_made_s:.2f} s as the server made them")
    if probe.stream_s >= IN_ONE_PIECE * probe.stream_made_s:
        return Clear("tokens come in as they are made", (came, made))
    if probe.stream_made_s < STREAM_S:
        return Undecided("--probe of a longer answer: this one was over too soon to tell")
    held_s = min(probe.stream_made_s - probe.stream_s, probe.overhead_s)  # that is in what came before it, for a client
    first_token_s = probe.overhead_s + reading_s
    return Finding(
        PROXY_BUFFERS,
        f"an answer that took the server {probe.stream_made_s:.2f} s came in within {probe.stream_s:.2f} s: its first "
        f"tokens were held back for about {held_s:.2f} s",
        (came, made),
        confidence=Confidence.LIKELY,
        cost=Cost(held_s, held_s / first_token_s),
    )


def _reconnects(symptoms: Symptoms) -> Finding | Clear | Undecided:
    probe = symptoms.probe
    reading_s = None if probe is None else work.reading_s(probe)
    if probe is None or reading_s is None or probe.connect_s is None:
        return Undecided("--probe, sent the way that users' requests go")
    seen = Evidence(Source.PROBE, f"a new connection: {probe.connect_s:.3f} s")
    # Each request of a probe connects anew, so its overhead has that in it; both are medians, of different ones.
    first_token_s = max(probe.connect_s, probe.overhead_s) + reading_s
    share = probe.connect_s / first_token_s
    if probe.connect_s < FELT_S or share < LARGE_PART:
        return Clear(f"a new connection takes {1e3 * probe.connect_s:.0f} ms", (seen,))
    return Finding(
        KEEP_ALIVE_RECONNECTS,
        f"a new connection takes {probe.connect_s:.2f} s of the {first_token_s:.2f} s to the first token of a request "
        "that has to make one, and llama-server closes each after 5 s of silence or 100 requests",
        (seen,),
        confidence=Confidence.LIKELY,
        cost=Cost(probe.connect_s, share),
    )


RULES: Final = (
    Rule(FEW_CONNECTIONS.id, Item.CLIENT, _few_connections),
    Rule(PROXY_BUFFERS.id, Item.CLIENT, _proxy_buffers),
    Rule(KEEP_ALIVE_RECONNECTS.id, Item.CLIENT, _reconnects),
)
