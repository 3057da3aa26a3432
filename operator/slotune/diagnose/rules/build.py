"""Is this build known to be slow? By its number, and only for whom the condition of the report holds."""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.kernels import kv_pair
from slotune.diagnose.rules.placement import (
    NEEDS_START,
    Backend,
    backend_of,
    build_of,
    fact,
    host_bytes,
    is_official_image,
    shown,
    stated,
    told_cpu,
)
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.build_defaults import NEWEST_KNOWN
from slotune.llama.slow_builds import (
    COMPILED_KV_PAIRS,
    SLOW_BUILDS,
    Condition,
    SlowBuild,
    Standing,
    is_kernel_missing,
)

__all__ = ["ENTRIES", "RULES"]

SLOW_ANSWER_S: Final = 1.0
"""An answer to /slots or /metrics that took longer than this waited for a decode."""
MOST_ON_CPU_SHARE: Final = 0.5
"""Of the weights beside a GPU: below it what lies in host memory may be the input table, which nobody computes with."""
_GRAVITON: Final = re.compile(r"^[a-z]+[78]g[a-z]*\.")
"""AWS instance types on Neoverse V1 and V2 (Graviton3 and 4): c7g.4xlarge, r8gd.large."""

SLOW_BUILD: Final = Entry(
    id="SLT090",
    code="SlowBuild",
    item=Item.BUILD,
    title="This build of llama.cpp is known to be slow here",
    cause="llama.cpp releases many builds a day, and some make one kind of server slower until somebody notices. The "
    "finding names the report (an issue of ggml-org/llama.cpp) and the build that is free of it.",
    first="Run the build that the finding names, pinned by its tag (server-b11434), not by a tag that moves.",
    avoid="Do not tune around it: what is best on a slow build need not be on the next.",
    verify="Measure the same prompt on both builds.",
    knobs=("image",),
)


def _slow_build(symptoms: Symptoms) -> Finding | Clear | Undecided:
    known = build_of(symptoms)
    if known is None:
        return Undecided("the build: --url, an image whose tag has it, or a log that holds the start")
    build, told = known
    questions: list[str] = []
    minor: Finding | None = None
    for slow in SLOW_BUILDS:
        standing = slow.standing(build)
        if standing is Standing.FREE:
            continue
        holds = _CHECKS[slow.condition](symptoms)
        if isinstance(holds, str):
            questions.append(holds)
        elif holds and standing is Standing.UNKNOWN:
            questions.append(
                f"whether b{build} is free of {slow.issues[0]} already: b{slow.fixed} is, b{slow.last} is not"
            )
        elif holds:
            finding = _found(slow, build, (told, *holds))
            if slow.costs_users:
                return finding
            minor = minor or finding
    if minor is not None:
        return minor
    if questions:
        return Undecided(questions[0])
    newer = f" (builds after b{NEWEST_KNOWN} were not looked at)" if build > NEWEST_KNOWN else ""
    return Clear(f"nothing known makes b{build} slow here{newer}", (told,))


def _found(slow: SlowBuild, build: int, evidence: tuple[Evidence, ...]) -> Finding:
    reports = f"ggml-org/llama.cpp{slow.issues[0]}"
    return Finding(
        SLOW_BUILD,
        f"b{build} {slow.what} ({reports})",
        evidence,
        Severity.WARNING if slow.costs_users else Severity.INFO,
        Confidence.LIKELY,
        first=slow.cure,
    )


Holds = tuple[Evidence, ...] | str
"""Why a condition holds, empty when it does not; or what would decide it."""


def _weights_on_cpu(symptoms: Symptoms) -> Holds:
    backend, log = backend_of(symptoms), symptoms.log
    settings = stated(symptoms)
    moved = next((settings[name] for name in ("-cmoe", "-ncmoe", "-ncffn") if name in settings), None)
    if moved is not None and moved.values[:1] != ("0",):
        return (shown(moved),)
    if backend is Backend.CPU:
        if log is not None and log.facts.model_buffers:
            return (fact(log, "model_buffers", "all model buffers lie in host memory"),)
        return (told_cpu(symptoms) or Evidence(Source.POD, "its image is built for CPUs"),)
    if backend is None or log is None or not log.facts.model_buffers:
        return NEEDS_START
    if host_bytes(log.facts.model_buffers) < MOST_ON_CPU_SHARE * log.facts.model_bytes:
        return ()
    return (fact(log, "model_buffers", "most of the model lies in host memory"),)


def _kv_pair_without_kernel(symptoms: Symptoms) -> Holds:
    backend, pair = backend_of(symptoms), kv_pair(symptoms)
    if (pair is not None and pair[0] in COMPILED_KV_PAIRS) or backend not in (None, Backend.CUDA, Backend.ROCM):
        return ()
    if pair is None or backend is None:
        return NEEDS_START
    known = build_of(symptoms)
    if known is None or not is_kernel_missing(known[0], pair[0]) or not is_official_image(symptoms):
        return f"whether the build has a kernel for K/V types {pair[0]} (GGML_CUDA_FA_ALL_QUANTS)"
    return (pair[1],)


def _watched(symptoms: Symptoms) -> Holds:
    server = symptoms.server
    if server is None:
        return ()  # nobody here was kept waiting
    waited = {"/slots": server.slots_s, "/metrics": server.metrics_s} | dict(server.silent_s)
    return tuple(
        Evidence(Source.SLOTS if path == "/slots" else Source.METRICS, f"{path} took {took:.1f} s")
        for path, took in waited.items()
        if took is not None and took >= SLOW_ANSWER_S and path in ("/slots", "/metrics")
    )


def _graviton(symptoms: Symptoms) -> Holds:
    kind = "" if symptoms.node is None else symptoms.node.labels.get("node.kubernetes.io/instance-type", "")
    log = symptoms.log
    if not _GRAVITON.match(kind) or backend_of(symptoms) is not Backend.CPU:
        return ()
    if log is None or log.facts.flash_attention is not True:
        return ()
    node = Evidence(Source.NODE, f"node.kubernetes.io/instance-type {kind}"[:LONGEST])
    return (node, fact(log, "flash_attention", "Flash Attention enabled"))


_CHECKS: Final = {
    Condition.WEIGHTS_ON_CPU: _weights_on_cpu,
    Condition.KV_PAIR_WITHOUT_KERNEL: _kv_pair_without_kernel,
    Condition.WATCHED: _watched,
    Condition.GRAVITON: _graviton,
}

ENTRIES: Final = (SLOW_BUILD,)

RULES: Final[tuple[Rule, ...]] = (Rule(SLOW_BUILD.id, Item.BUILD, _slow_build),)
