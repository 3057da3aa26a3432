"""Is there enough memory: for the context that requests need, for the caches, for the weights, on the GPU and the host?

That a context is smaller than somebody hoped costs nothing until a request does not fit, so it is told as information;
requests that were refused or cut are another matter.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.placement import (
    NEEDS_START,
    Backend,
    backend_of,
    build_of,
    fact,
    heard,
    host_bytes,
    knows_arguments,
    said,
    shown,
    stated,
    weights_bytes,
)
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.build_defaults import defaults_of
from slotune.llama.failures import FailureClass
from slotune.llama.log_story import LogStory, Topic

__all__ = ["ENTRIES", "RULES"]

MIB: Final = 2**20
RARE: Final = 0.01
"""Share of requests that do not fit: below it, it is a client's mistake now and then, not a context that is too small."""
CACHE_ROOM: Final = 0.9
"""Part of what is left of a memory limit that a cache may be given: the rest is for buffers that grow."""
STEP_MIB: Final = 256
"""Suggested sizes are multiples of this."""
KILLED: Final = 137
"""Exit code of a process that the kernel killed."""
_NETWORK: Final = frozenset({"nfs", "cephfs", "glusterfs", "azurefile", "cifs", "iscsi", "rbd", "gcsfuse", "s3"})
"""Kinds of volumes whose pages come over a network at the first touch."""
_LOCAL: Final = frozenset({"emptydir", "hostpath", "local", "configmap", "secret", "image", "projected", "downwardapi"})
_OVERSIZED: Final = re.compile(r"request \((\d+) tokens\) exceeds the available context size \((\d+) tokens\)")

CONTEXT_SHRUNK: Final = Entry(
    id="SLT030",
    code="ContextShrunk",
    item=Item.MEMORY,
    title="A slot has less context than was asked for",
    cause="The context is divided by the number of slots, capped at what the model was trained for, and shrunk by -fit "
    "when -c is not stated and memory is short (ggml-org/llama.cpp#11681, #17767).",
    first="State -c as the context per request times --parallel, and -fit off to hear an error when it does not fit.",
    avoid="Do not raise -c beyond the training context of the model: the slots are capped there.",
    verify="n_ctx of a slot in /slots is what a request needs.",
    knobs=("contextSizePerSlot", "parallelSlots"),
)

CONTEXT_TOO_SMALL: Final = Entry(
    id="SLT031",
    code="ContextTooSmall",
    item=Item.MEMORY,
    title="Requests do not fit into the context of a slot",
    cause="A prompt that is longer than its slot's context is refused with an error; one that fills it while it is "
    "answered is cut off, or loses its beginning where context shift is on.",
    first="Raise -c to the longest prompt and answer times --parallel, or lower --parallel; a q8_0 KV cache makes room.",
    avoid="Do not turn on --context-shift instead: answers then go on without the beginning of their prompt.",
    verify="The log has no refused or truncated request under the same traffic.",
    knobs=("contextSizePerSlot", "parallelSlots", "cacheTypeK", "cacheTypeV"),
)

KV_POOL_FULL: Final = Entry(
    id="SLT032",
    code="KVPoolFull",
    item=Item.MEMORY,
    title="The KV cache that all slots share ran full",
    cause="With one pool for all slots (--kv-unified, and the default without -np) each may use all of it, so together "
    "they may need more than there is: the batch is then halved again and again, and in the end all active requests "
    "fail together (ggml-org/llama.cpp#23652, lemonade-sdk/lemonade#3276).",
    first="Raise -c to the sum of what all slots need at once, lower --parallel, or cap a slot with "
    "--kv-unified-per-slot.",
    avoid="Do not let clients retry at once: the pool is as full as before.",
    verify="The log has no line about free space in the KV cache under the same traffic.",
    knobs=("contextSizePerSlot", "parallelSlots", "kvUnified", "cacheTypeK", "cacheTypeV"),
)

CACHE_RAM_BEYOND_LIMIT: Final = Entry(
    id="SLT033",
    code="CacheRAMBeyondLimit",
    item=Item.MEMORY,
    title="The host prompt cache may grow beyond the pod's memory limit",
    cause="--cache-ram is 8,192 MiB where nothing is stated, whatever the container may use: the cache grows with every "
    "prompt until the kernel kills the server (ggml-org/llama.cpp#22629, #27725; rwlove/home-ops#13936: every day and "
    "a half).",
    first="Set --cache-ram to what the limit leaves, or to 0 where prompts share nothing; or raise the memory limit.",
    avoid="Do not set it to -1: then it has no limit at all.",
    verify="The container's memory stays below its limit for days, and the pod has no OOMKilled.",
    knobs=("cacheRAMMiB",),
)

HOST_MEMORY_PRESSURE: Final = Entry(
    id="SLT034",
    code="HostMemoryPressure",
    item=Item.MEMORY,
    title="Host memory runs out",
    cause="Weights on the CPU, the host prompt cache, context checkpoints and buffers count against the container's "
    "limit. Beyond it the kernel kills the server; before that, mapped weights are dropped and read from disk again "
    "at every step.",
    first="Raise the memory limit to the weights that stay on the host, plus --cache-ram, plus 2 GiB; or lower "
    "--cache-ram.",
    avoid="Do not take the limit away on a node that others use: then the node picks its victim.",
    verify="The pod has no OOMKilled, and the node no MemoryPressure.",
    knobs=("cacheRAMMiB", "variant"),
)

WEIGHTS_FROM_SLOW_STORAGE: Final = Entry(
    id="SLT035",
    code="WeightsFromSlowStorage",
    item=Item.MEMORY,
    title="The weights are read over a network when they are touched first",
    cause="A mapped file is read page by page when a page is used for the first time, so the first requests after a "
    "start wait for the network, although the server says that it is ready.",
    first="Keep the file on the node (a local volume, or an image volume), or read it whole before serving: "
    "--load-mode none.",
    avoid="Do not judge the server by its first requests, and do not let it serve users before them.",
    verify="The first long prompt after a restart takes as long as the tenth.",
    knobs=("extraArgs",),
)

GPU_MEMORY_FULL: Final = Entry(
    id="SLT036",
    code="GPUMemoryFull",
    item=Item.MEMORY,
    title="GPU memory ran out",
    cause="Weights, KV cache and compute buffers must fit together with what others hold; buffers also grow while it "
    "serves, so a server that started may still fail at its first long prompt (ggml-org/llama.cpp#13085).",
    first="Lower what the log names: the context or slots for the KV cache, --ubatch-size for the compute buffer, a "
    "smaller quantization for the weights.",
    avoid="Do not start it again with the same settings: it ends in the same place.",
    verify="It answers the longest prompt on every slot at once.",
    knobs=("contextSizePerSlot", "parallelSlots", "uBatchSize", "cacheTypeK", "cacheTypeV", "variant"),
)


def _context_shrunk(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is not None:
        fitted = heard(log, Topic.FIT_REDUCED_CONTEXT)
        words = next((change for change in log.facts.fit_changes if change.startswith("context size reduced")), None)
        if fitted or words:
            what = words or "the context was reduced"
            return _shrunk(f"-fit: {what}", fitted or (fact(log, "fit_changes", what[:LONGEST]),))
        cap = log.facts.context_trained_cap
        if cap is not None or log.count(Topic.CONTEXT_CAPPED):
            to = "" if cap is None else f" to {cap:,} tokens"
            lines = heard(log, Topic.CONTEXT_CAPPED) or (fact(log, "context_trained_cap", f"capping to {cap}"),)
            return _shrunk(f"the context of a slot was capped{to}, which is what the model was trained for", lines)
    divided = _divided(symptoms)
    if divided is not None:
        return divided
    settings = stated(symptoms)
    if said(log, details=True):
        return Clear("the context is as it was asked for")
    if "-c" in settings and _slot_context(symptoms) is not None:
        return Clear("a slot has the context that was stated", (shown(settings["-c"]),))
    return Undecided(NEEDS_START)


def _shrunk(sentence: str, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(CONTEXT_SHRUNK, sentence, evidence, Severity.INFO)


def _slot_context(symptoms: Symptoms) -> tuple[int, int, Evidence] | None:
    """(tokens of a slot, slots, who says so)."""
    server, log = symptoms.server, symptoms.log
    if server is not None and server.props is not None:
        props = server.props
        told = Evidence(Source.PROPS, f"n_ctx {props.context_per_slot}, total_slots {props.total_slots}")
        return props.context_per_slot, props.total_slots, told
    if log is not None and log.facts.context_per_slot and log.facts.slots:
        words = f"n_slots = {log.facts.slots}, n_ctx_slot = {log.facts.context_per_slot}"
        return log.facts.context_per_slot, log.facts.slots, fact(log, "context_per_slot", words)
    return None


def _divided(symptoms: Symptoms) -> Finding | None:
    """``-c`` is for all slots together, which many find out by a refused prompt."""
    context, known = stated(symptoms).get("-c"), _slot_context(symptoms)
    if context is None or known is None or not context.values or not context.values[0].isdecimal():
        return None
    asked, (per_slot, slots, told) = int(context.values[0]), known
    if slots < 2 or per_slot > asked // 2:
        return None
    return _shrunk(f"each of {slots} slots has {per_slot:,} tokens of the {asked:,} that were stated", (shown(context), told))


def _context_too_small(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, which has a line for every request that did not fit")
    refused, cut = log.count(Topic.CONTEXT_EXCEEDED), log.count(Topic.TRUNCATED)
    shifted = log.count(Topic.CONTEXT_SHIFTED)
    if not refused + cut + shifted:
        if said(log) or log.requests is not None:
            return Clear("every request fitted into its slot")
        return Undecided("a log that holds the start or an answered request")
    parts = [
        f"{count} {words}"
        for count, words in (
            (refused, "requests were refused" if refused > 1 else "request was refused"),
            (cut, "answers were cut off" if cut > 1 else "answer was cut off"),
            (shifted, "times the beginning of a prompt was dropped" if shifted > 1 else "time a beginning was dropped"),
        )
        if count
    ]
    known = _slot_context(symptoms)
    room = "" if known is None else f": a slot has {known[0]:,} tokens"
    answered = 0 if log.requests is None else log.requests.requests
    share = (refused + cut + shifted) / max(1, answered + refused)
    lines = tuple(
        line
        for topic in (Topic.CONTEXT_EXCEEDED, Topic.TRUNCATED, Topic.CONTEXT_SHIFTED)
        for line in heard(log, topic)[:1]
    )
    return Finding(
        CONTEXT_TOO_SMALL,
        f"{' and '.join(parts)}{room}",
        lines,
        Severity.INFO if share < RARE else Severity.WARNING,
        first=_larger_context(log, known),
    )


def _larger_context(log: LogStory, known: tuple[int, int, Evidence] | None) -> str | None:
    """The context that the largest refused prompt that is quoted would have needed."""
    seen = log.seen.get(Topic.CONTEXT_EXCEEDED)
    sizes = [int(match[1]) for line in ((seen.first, seen.last) if seen else ()) if (match := _OVERSIZED.search(line.text))]
    if not sizes:
        return None
    per_slot = -(-max(sizes) * 5 // 4 // 256) * 256  # a fourth more, for the answer, in llama.cpp's blocks
    slots = 1 if known is None or log.facts.kv_unified else known[1]
    beside = "" if slots == 1 else f" ({per_slot:,} for each of {slots} slots)"
    return f"Set -c {per_slot * slots}{beside}: a prompt of {max(sizes):,} tokens was refused."


def _kv_pool_full(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, which has a line each time that the KV cache is full")
    count = log.count(Topic.KV_FULL)
    if count:
        facts = log.facts
        pool = "" if facts.context_total is None else f" of {facts.context_total:,} tokens"
        slots = "" if facts.slots is None else f", which {facts.slots} slots share"
        times = "once" if count == 1 else f"{count:,} times"
        return Finding(KV_POOL_FULL, f"the KV cache{pool}{slots} was full {times}", heard(log, Topic.KV_FULL))
    if said(log) or log.requests is not None:
        return Clear("the KV cache was never full")
    return Undecided("a log that holds the start or an answered request")


def _cache_ram_beyond_limit(symptoms: Symptoms) -> Finding | Clear | Undecided:
    pod, cache = symptoms.pod, _cache_ram(symptoms)
    if cache is not None and cache[0] == 0:
        return Clear("there is no host prompt cache", (cache[1],))
    if pod is None:
        return Undecided("--deployment: the memory limit of its pods")
    if pod.memory_limit_bytes is None:
        return Clear("the pod has no memory limit")
    if cache is None:
        return Undecided(NEEDS_START)
    size, told = cache
    taken = _host_taken(symptoms)
    if taken is None:
        return Undecided("the size of the weights: --url, --model FILE, or a log with -lv 4")
    left = max(0, pod.memory_limit_bytes - taken)
    limit = Evidence(Source.POD, f"limits.memory {pod.memory_limit_bytes / MIB:,.0f} MiB")
    if 0 < size * MIB <= left:
        return Clear(f"a cache of {size:,} MiB fits into the memory limit", (told, limit))
    rest = "" if not taken else f", of which the model takes {taken / MIB:,.0f}"
    grows = "without limit" if size < 0 else f"to {size:,} MiB"
    fitting = int(CACHE_ROOM * left / MIB) // STEP_MIB * STEP_MIB
    return Finding(
        CACHE_RAM_BEYOND_LIMIT,
        f"the host prompt cache may grow {grows}, the pod may use {pod.memory_limit_bytes / MIB:,.0f} MiB{rest}",
        (told, limit),
        confidence=Confidence.LIKELY,
        first=f"Set --cache-ram {fitting}, or raise the memory limit"
        + (f" by {size - left / MIB:,.0f} MiB." if size > 0 else "."),
    )


def _cache_ram(symptoms: Symptoms) -> tuple[int, Evidence] | None:
    """(MiB, who says so); -1 has no limit. The default counts only where the arguments are known."""
    log = symptoms.log
    if log is not None and log.facts.cache_ram_mib is not None:
        size = log.facts.cache_ram_mib
        words = "prompt cache is disabled" if size == 0 else f"prompt cache is enabled, size limit: {size} MiB"
        return size, fact(log, "cache_ram_mib", words)
    setting = stated(symptoms).get("-cram")
    if setting is not None and setting.values and re.fullmatch(r"-?\d+", setting.values[0]):
        return int(setting.values[0]), shown(setting)
    build = build_of(symptoms)
    if not knows_arguments(symptoms) or build is None:
        return None
    defaults = defaults_of(build[0])
    if "-cram" in defaults.unsure:
        return None
    return defaults.cache_ram_mib, Evidence(Source.FLAGS, f"no --cache-ram: {defaults.cache_ram_mib} MiB by default")


def _host_taken(symptoms: Symptoms) -> int | None:
    """Bytes of host memory that the model takes for good; None when nobody knows where it lies, or how large it is."""
    log = symptoms.log
    if log is not None and log.facts.model_buffers:
        facts = log.facts
        return sum(host_bytes(one) for one in (facts.model_buffers, facts.kv_buffers, facts.compute_buffers))
    backend = backend_of(symptoms)
    if backend is None:
        return None
    return 0 if backend.is_gpu else weights_bytes(symptoms)


def _host_memory_pressure(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, pod, node = symptoms.log, symptoms.pod, symptoms.node
    if log is not None and log.failure is not None and log.failure.failure_class is FailureClass.OUT_OF_MEMORY_HOST:
        line = log.failure_line
        words = log.failure.sentence if line is None else line.text
        told = Evidence(Source.LOG, words[:LONGEST], None if line is None else line.number)
        return Finding(HOST_MEMORY_PRESSURE, log.failure.sentence, (told,), Severity.CRITICAL)
    if pod is not None and pod.last_exit is not None and (pod.last_exit[0] == "OOMKilled" or pod.last_exit[1] == KILLED):
        reason, code = pod.last_exit
        is_oom = reason == "OOMKilled"
        limit = "" if pod.memory_limit_bytes is None else f", its limit is {pod.memory_limit_bytes / MIB:,.0f} MiB"
        return Finding(
            HOST_MEMORY_PRESSURE,
            f"its container was killed with {reason} (exit code {code}){limit}",
            (Evidence(Source.POD, f"last exit {reason} {code}"), *_memory_events(symptoms)),
            Severity.CRITICAL if is_oom else Severity.WARNING,
            # A probe that failed, and an eviction, end in the same code.
            Confidence.CERTAIN if is_oom else Confidence.POSSIBLE,
        )
    if node is not None and "MemoryPressure" in node.pressures:
        return Finding(
            HOST_MEMORY_PRESSURE,
            f"the node {node.name} is short of memory",
            (Evidence(Source.NODE, f"{node.name} MemoryPressure"), *_memory_events(symptoms)),
        )
    if (thrashing := _beyond_limit(symptoms)) is not None:
        return thrashing
    if events := _memory_events(symptoms):
        return Finding(HOST_MEMORY_PRESSURE, "events tell of too little memory", events, confidence=Confidence.LIKELY)
    if pod is None or node is None:
        return Undecided("--deployment: exit codes of its containers, and the state of the node")
    return Clear(f"nothing was killed for memory, and {node.name} has enough")


def _memory_events(symptoms: Symptoms) -> tuple[Evidence, ...]:
    events = () if symptoms.pod is None else symptoms.pod.events
    return tuple(one for one in events if re.search(r"OOM|[Mm]emory(?: was low|Pressure)|low on resource: memory", one.text))


def _beyond_limit(symptoms: Symptoms) -> Finding | None:
    """Mapped weights that the CPU reads at every step, and that the limit has no room for."""
    pod, weights = symptoms.pod, weights_bytes(symptoms)
    limit = None if pod is None else pod.memory_limit_bytes
    if limit is None or weights is None or weights <= limit or backend_of(symptoms) is not Backend.CPU:
        return None
    return Finding(
        HOST_MEMORY_PRESSURE,
        f"the weights take {weights / MIB:,.0f} MiB, the pod may use {limit / MIB:,.0f}: the rest is read from its file "
        "again at every step",
        (Evidence(Source.POD, f"limits.memory {limit / MIB:,.0f} MiB"),),
        confidence=Confidence.LIKELY,
        first=f"Raise the memory limit to {(weights / MIB + 2048):,.0f} MiB or more, or take smaller weights.",
    )


def _weights_from_slow_storage(symptoms: Symptoms) -> Finding | Clear | Undecided:
    pod = symptoms.pod
    if pod is None:
        return Undecided("--deployment: the volumes of its pods")
    setting = stated(symptoms).get("-m")
    props = None if symptoms.server is None else symptoms.server.props
    path = setting.values[0] if setting is not None and setting.values else (props.model_path if props else "")
    if not path.startswith("/"):
        return Undecided("where the model file lies: -m PATH in the arguments")
    mounts = [mount for mount in pod.volumes if PurePosixPath(path).is_relative_to(mount)]
    if not mounts:
        return Clear("the model file is part of the image, or of the container")
    mount = max(mounts, key=len)
    kind = pod.volumes[mount]
    told = Evidence(Source.POD, f"{mount} is of {kind}"[:LONGEST])
    if kind.lower() in _LOCAL:
        return Clear("the model file lies on the node", (told,))
    if kind.lower() not in _NETWORK:
        return Undecided(f"what kind of storage is behind {mount} ({kind})")
    mode = stated(symptoms).get("-lm")
    if mode is not None and mode.values[:1] in (("none",), ("dio",)):
        return Clear("the file is read whole before it serves", (shown(mode), told))
    return Finding(
        WEIGHTS_FROM_SLOW_STORAGE,
        f"the weights are mapped from {kind}, so the first requests after a start wait for the network",
        (told,),
        Severity.INFO,
        Confidence.LIKELY,
    )


def _gpu_memory_full(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is None:
        return Undecided("the server's log")
    failure = log.failure
    if failure is not None and failure.failure_class.is_memory:
        if failure.failure_class is FailureClass.OUT_OF_MEMORY_HOST:
            return Clear("it was host memory that ran out")
        line = log.failure_line
        words = failure.sentence if line is None else line.text
        told = Evidence(Source.LOG, words[:LONGEST], None if line is None else line.number)
        on_cpu = backend_of(symptoms) is Backend.CPU
        where = "memory" if on_cpu else "GPU memory"
        return Finding(
            GPU_MEMORY_FULL,
            f"{where} ran out: {failure.sentence}",
            (told, *heard(log, Topic.OUT_OF_MEMORY)[:1]),
            Severity.CRITICAL,
        )
    if count := log.count(Topic.OUT_OF_MEMORY):
        times = "once" if count == 1 else f"{count:,} times"
        return Finding(GPU_MEMORY_FULL, f"an allocation failed {times}", heard(log, Topic.OUT_OF_MEMORY))
    if said(log):
        return Clear("every buffer was allocated")
    return Undecided("a log that holds the server's start")


ENTRIES: Final = (
    CONTEXT_SHRUNK,
    CONTEXT_TOO_SMALL,
    KV_POOL_FULL,
    CACHE_RAM_BEYOND_LIMIT,
    HOST_MEMORY_PRESSURE,
    WEIGHTS_FROM_SLOW_STORAGE,
    GPU_MEMORY_FULL,
)

RULES: Final[tuple[Rule, ...]] = (
    Rule(CONTEXT_SHRUNK.id, Item.MEMORY, _context_shrunk),
    Rule(CONTEXT_TOO_SMALL.id, Item.MEMORY, _context_too_small),
    Rule(KV_POOL_FULL.id, Item.MEMORY, _kv_pool_full),
    Rule(CACHE_RAM_BEYOND_LIMIT.id, Item.MEMORY, _cache_ram_beyond_limit),
    Rule(HOST_MEMORY_PRESSURE.id, Item.MEMORY, _host_memory_pressure),
    Rule(WEIGHTS_FROM_SLOW_STORAGE.id, Item.MEMORY, _weights_from_slow_storage),
    Rule(GPU_MEMORY_FULL.id, Item.MEMORY, _gpu_memory_full),
)
