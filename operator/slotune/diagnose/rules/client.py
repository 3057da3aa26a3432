"""Waits that are not the server's: a client with one connection, a proxy that holds answers back, new connections."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

__all__ = ["ENTRIES", "RULES"]

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

RULES: Final[tuple[Rule, ...]] = ()
