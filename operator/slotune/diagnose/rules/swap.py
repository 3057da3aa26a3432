"""Does part of the server's memory lie in swap, and does it wait for it?"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.host import HostFacts
from slotune.diagnose.rules.waiting_process import fetched, needs_look, waits_for
from slotune.diagnose.symptoms import Symptoms

__all__ = ["HOST_SWAP", "LITTLE_BYTES", "host_swap"]

MIB: Final = 2**20
LITTLE: Final = 0.05
"""Part of a server's own memory that may lie in swap unnoticed: what a start leaves behind is never used again."""
LITTLE_BYTES: Final = 64 * MIB

HOST_SWAP: Final = Entry(
    id="SLT037",
    code="HostSwap",
    item=Item.MEMORY,
    title="Part of the server's memory lies in swap",
    cause="The kernel put pages of the KV cache, the prompt cache or unmapped weights out to disk because others "
    "needed the memory. A step that touches one waits for the disk, so tokens/s fall to a fraction, and the first "
    "request after a pause takes seconds.",
    first="Free memory where it runs: stop what else needs it, lower --cache-ram or the context, or raise the memory "
    "limit. Then restart the server: pages come back one by one.",
    avoid="Do not lock the weights (mlock) where memory is short: something else is then put out instead, or killed.",
    verify="VmSwap in /proc/PID/status stays near 0 kB under the same traffic.",
    knobs=("cacheRAMMiB", "contextSizePerSlot", "variant"),
)


def host_swap(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether memory of the server lies in swap, and whether it waits for it."""
    host, node = symptoms.host, symptoms.node
    if host is None or host.last.swapped_bytes is None:
        if node is not None and node.swap_bytes == 0:
            return Clear(f"the node {node.name} has no swap", (Evidence(Source.NODE, "nodeInfo.swap.capacity 0"),))
        return Undecided(needs_look(symptoms))
    last, swapped = host.last, host.last.swapped_bytes
    told = Evidence(Source.PROC, f"VmSwap {swapped // 1024} kB")
    if not swapped:
        return Clear("nothing of the server lies in swap", (told,))
    amount = f"{swapped / MIB:,.0f} MiB of the server's memory"
    if swapped < max(LITTLE_BYTES, LITTLE * (swapped + (last.anonymous_bytes or 0))):
        return Clear(f"only {amount} lie in swap", (told,))
    return _in_swap(host, amount, told)


def _in_swap(host: HostFacts, amount: str, told: Evidence) -> Finding:
    """Of much that lies in swap: whether the server waits for it."""
    waits = waits_for(host)
    if waits:
        return Finding(HOST_SWAP, f"{amount} lie in swap, and {waits}", (told, fetched(host)))
    if waits is not None and host.was_at_work:
        return Finding(
            HOST_SWAP,
            f"{amount} lie in swap; while it worked it needed none of that",
            (told, fetched(host)),
            Severity.INFO,
        )
    return Finding(HOST_SWAP, f"{amount} lie in swap", (told,), confidence=Confidence.LIKELY)
