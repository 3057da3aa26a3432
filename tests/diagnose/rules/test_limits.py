"""Limits of the rules, each met from both sides: what is just below it is another case than what has reached it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Finding, Undecided
from slotune.diagnose.host import HostFacts
from slotune.diagnose.symptoms import ServerLook, Symptoms
from slotune.llama.log_story import Line, Seen, Topic
from slotune.llama.server_answers import ModelMeta
from slotune.load.nvidia_smi import DeviceSnapshot
from slotune.load.process_memory import MemoryLook
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import SLOWEST, ask, log, metrics, of, pod, probe, queueing, server, timings

MIB = 2**20
CLEAR, UNDECIDED = "Clear", "Undecided"
INFO, WARNING, CRITICAL = "Info", "Warning", "Critical"
CERTAIN, LIKELY, POSSIBLE = ", certain", ", likely", ", possible"
ON_GPU: dict[str, Any] = {"model_buffers": {"CUDA0": 10**9}}
NFS = {"/models": "nfs"}
KILLED = ("OOMKilled", 137)
MOUNT = Evidence(Source.EVENT, "FailedMount: MountVolume.SetUp failed for volume models")


def outcome(identifier: str, symptoms: Symptoms) -> str:
    said = ask(ALL_RULES, identifier, symptoms)
    if isinstance(said, Finding):
        return f"{said.severity.value}, {said.confidence.value.lower()}"
    return UNDECIDED if isinstance(said, Undecided) else CLEAR


# Servers of which one number is given


def one_by_one(part: float) -> Symptoms:
    return of(log=log(requests=timings(40, most_busy_slots=1), seconds=120 / part))


def one_by_one_beside(busy: float) -> Symptoms:
    looked = server(metrics=metrics(n_busy_slots_per_decode=busy, n_decode_total=1000))
    return of(log=log(requests=timings(40, most_busy_slots=1), seconds=130.0), server=looked)


def connecting(part: float) -> Symptoms:
    """0.2 s of a request that takes so many times as long."""
    return of(probe=probe(connect_s=0.2, prefill_tokens_per_s=400 / (0.2 / part - 0.2)))


def small_pieces(saved: float) -> Symptoms:
    """Pieces of 256 tokens, of which larger ones save such a part."""
    facts = ON_GPU | {"ubatch_size": 256, "batch_size": 2048}
    return of(log=log(facts=facts), probe=probe(prefill_tokens_per_s=51_200 * saved, decode_step_s=0.01))


def stalled(tokens: int = 1600, seconds: float = 8.0, slowest: float = 4.0) -> Symptoms:
    example = Line(77, SLOWEST.format(ms=1e3 * seconds, tokens=tokens))
    speeds = (slowest, 45.0, 50.0)
    requests = timings(decode_tokens_per_s=speeds, example=example, example_beside=example)
    return of(log=log(requests=requests, facts={"batch_size": 2048}))


def crowded(tokens: float = 200, share: float = 0.5, cached: int = 0, prompt_tokens: int = 400) -> Symptoms:
    """40 prompts of so many tokens, a share of whose time is others' work, beside a probe at 200 tokens/s."""
    alone_ms = 1e3 * (40 * tokens / 200 + 40 * 0.02)
    requests = timings(
        40, long_prompt_tokens=round(40 * tokens), long_prompt_ms=alone_ms / (1 - share), cached_tokens=cached
    )
    return of(log=log(requests=requests), probe=probe(prompt_tokens=prompt_tokens))


def killed(ago_s: float) -> Symptoms:
    return of(pod=pod(last_exit=KILLED, last_exit_ago_s=ago_s, ready=True, restarts=1))


def guessing(drafted: int, accepted: int = 0, requests: int = 40) -> Symptoms:
    return of(log=log(requests=timings(requests, drafted_tokens=drafted, accepted_tokens=accepted)))


def one_refused(answered: int) -> Symptoms:
    return of(log=log({Topic.CONTEXT_EXCEEDED: 1}, timings(answered)))


def cached(tokens: int, computed: int = 8000) -> Symptoms:
    return of(log=log(requests=timings(40, prompt_tokens=computed, cached_tokens=tokens)))


def copying(total_ms: float, prompt_ms: float) -> Symptoms:
    """40 requests without cached tokens."""
    seen = Seen(40, Line(1, "a line"), Line(9, "prompt cache update took"), total_ms)
    topics: dict[Topic, int | Seen] = {Topic.CACHE_UPDATE: seen, Topic.IDLE_SLOT_SAVED: 40}
    return of(log=log(topics, timings(40, prompt_ms=40 * prompt_ms)))


def scattered(busy: float) -> Symptoms:
    looked = server(8, metrics=metrics(n_busy_slots_per_decode=busy, n_decode_total=1000))
    return of(server=looked, log=log(facts={"kv_unified": False, "slots": 8}))


def queue(waiting: int) -> Symptoms:
    return of(server=queueing(waiting, waiting, busy=100, slots=100))


def served(speed: float) -> Symptoms:
    full = queueing(6, 6, busy=4, tokens_predicted_total=1000, tokens_predicted_seconds_total=1000 / speed)
    return of(server=full, promise=Promise(1.0, 10.0))


def penalized(speed: float) -> Symptoms:
    counters = metrics(tokens_predicted_total=1000, tokens_predicted_seconds_total=1000 / speed)
    return of(
        server=server(
            model=ModelMeta("m", vocabulary=128_000),
            metrics=counters,
            sampling={"repeat_penalty": 1.3},
            request_params_seen=True,
        )
    )


def unready(**more: Any) -> Symptoms:
    return of(pod=pod(ready=False, **{"phase": "Running", **more}))


def swapped(mib: float, own_mib: float = 0) -> Symptoms:
    look = MemoryLook(at_s=1000.0, swapped_bytes=round(mib * MIB), anonymous_bytes=round(own_mib * MIB))
    return of(host=HostFacts(look))


def in_swap(*, faults: int = 0, read_mib: float = 0.0, cpu_s: float = 9.0) -> Symptoms:
    """What happened within ten seconds."""
    swap = 500 * MIB
    first = MemoryLook(at_s=1000.0, swapped_bytes=swap, major_faults=0, read_bytes=0, cpu_s=0.0)
    last = MemoryLook(
        at_s=1010.0, swapped_bytes=swap, major_faults=faults, read_bytes=round(read_mib * MIB), cpu_s=cpu_s
    )
    return of(host=HostFacts(first, last))


def template(extra_s: float = 0.1, reading_s: float = 0.1) -> Symptoms:
    return of(probe=probe(overhead_s=0.1 + extra_s, short_prompt_overhead_s=0.1, prefill_tokens_per_s=400 / reading_s))


def loaded(size: float) -> Symptoms:
    return of(log=log(loaded_s=100.0), server=server(model=ModelMeta("m", size_bytes=round(size))))


def first_prompt(first_s: float, usual_s: float) -> Symptoms:
    spread = (900 / usual_s, 1000 / usual_s, 1100 / usual_s)
    requests = timings(first_prompt=(1000, 1e3 * first_s), prefill_tokens_per_s=spread)
    return of(log=log(requests=requests), pod=pod("--no-warmup", volumes=NFS))


def still(between_s: float, speed: float | None = 200.0) -> Symptoms:
    page = metrics(requests_processing=2, n_decode_total=100)
    look: ServerLook = server(metrics=page, metrics_later=page, between_s=between_s)
    return of(server=look, probe=None if speed is None else probe(prefill_tokens_per_s=speed))


def silent(seconds: float) -> Symptoms:
    look = server(health_s=0.003, silent_s={"/slots": seconds, "/metrics": seconds})
    return of(server=look, log=log(build=11549))


def scraped(seconds: float) -> Symptoms:
    """By somebody who waited so long for /metrics of a build that answers between two decodes."""
    return of(server=server(metrics_s=seconds), log=log(build=10428))


def kept_on_cpu(share: float) -> Symptoms:
    """Of the weights beside a GPU, with a build that is slow with weights on the CPU."""
    facts = {"model_buffers": {"CUDA0": round(4e9 * (1 - share)), "CPU_Mapped": round(4e9 * share)}}
    return of(log=log(facts=facts, build=10430))


def moved_experts(share: float) -> Symptoms:
    whole = 20_000 * MIB
    buffers = {"CUDA0": round(whole * (1 - share)), "CPU_Mapped": round(whole * share)}
    facts = {"model_buffers": buffers, "kv_buffers": {"CUDA0": MIB}, "layers_offloaded": 33, "layers": 33}
    return of(log=log(facts=facts | {"experts": 64}))


def held_by_gpu(mib: float, weights_mib: int = 4000) -> Symptoms:
    model = ModelMeta("m", size_bytes=weights_mib * MIB)
    device = DeviceSnapshot("NVIDIA L4", 1, memory_used_bytes=round(mib * MIB))
    return of(server=server(model=model), device=device)


def embeddings_on_host(share: float) -> Symptoms:
    buffers = {"CUDA0": round(4e9 * (1 - share)), "CPU_Mapped": round(4e9 * share)}
    return of(log=log(facts={"model_buffers": buffers, "layers_offloaded": 33, "layers": 33}))


def mapped(
    resident: float = 0.0, stalled: float | None = None, refault_mib: float = 0.0, room: float = 0.0
) -> Symptoms:
    """4,000 MiB of mapped weights, of which a share is in memory; ten seconds in which it waited for pages."""
    weights = 4000 * MIB
    first = MemoryLook(at_s=1000.0, major_faults=0, cpu_s=0.0, refault_bytes=0, mapped_weights_bytes=weights)
    if resident:
        return of(host=HostFacts(replace(first, resident_weights_bytes=round(resident * weights))))
    later = replace(
        first,
        at_s=1010.0,
        major_faults=5000,
        cpu_s=9.0,
        refault_bytes=round(10 * refault_mib * MIB),
        stalled_percent=stalled,
        limit_bytes=round(weights / room) if room else None,
    )
    return of(host=HostFacts(first, later))


def late(count: int, requests: int) -> Symptoms:
    """So many prompts that took longer than the second that is owed, one at a time."""
    spread = ((500.0, requests - count), (2000.0, count))
    story = log(requests=timings(requests, most_busy_slots=1, prompt_ms_spread=spread))
    return of(log=story, promise=Promise(1.0, None))


def over(excess: float) -> Symptoms:
    """Prompts that took so much longer than the second that is owed."""
    spread = ((1000.0 * (1 + excess), 40),)
    story = log(requests=timings(40, most_busy_slots=1, prompt_ms_spread=spread))
    return of(log=story, promise=Promise(1.0, None))


Made = Callable[[float], Symptoms]
LIMITS: tuple[tuple[str, str, Made, tuple[float, str], tuple[float, str]], ...] = (
    ("one slot at work for half of the time", "SLT095", one_by_one, (0.49, CLEAR), (0.5, INFO + POSSIBLE)),
    ("requests beside each other", "SLT095", one_by_one_beside, (1.19, INFO + POSSIBLE), (1.2, CLEAR)),
    (
        "an answer long enough to tell",
        "SLT096",
        lambda x: of(probe=probe(stream_s=0.0, stream_made_s=x)),
        (0.195, UNDECIDED),
        (0.2, WARNING + LIKELY),
    ),
    (
        "tokens that come in half of their time",
        "SLT096",
        lambda x: of(probe=probe(stream_s=x, stream_made_s=2.0)),
        (0.98, WARNING + LIKELY),
        (1.0, CLEAR),
    ),
    (
        "a connection that is felt",
        "SLT097",
        lambda x: of(probe=probe(connect_s=x, prefill_tokens_per_s=4000.0)),
        (0.098, CLEAR),
        (0.1, WARNING + LIKELY),
    ),
    ("a connection that is a fifth of the wait", "SLT097", connecting, (0.196, CLEAR), (0.201, WARNING + LIKELY)),
    ("pieces that waste a quarter", "SLT020", small_pieces, (0.245, CLEAR), (0.251, WARNING + LIKELY)),
    ("a pause of a second", "SLT021", lambda x: stalled(seconds=x), (0.98, CLEAR), (1.0, WARNING + LIKELY)),
    (
        "a prompt of two small steps",
        "SLT021",
        lambda x: stalled(tokens=round(x)),
        (1023, CLEAR),
        (1024, WARNING + LIKELY),
    ),
    (
        "answers below four fifths of a share",
        "SLT021",
        lambda x: stalled(slowest=x),
        (19.8, WARNING + LIKELY),
        (20.0, INFO + POSSIBLE),
    ),
    (
        "others' work in a third of the time",
        "SLT022",
        lambda x: crowded(share=x),
        (0.295, CLEAR),
        (0.301, INFO + POSSIBLE),
    ),
    ("prompts half as long as the probe's", "SLT022", crowded, (199, UNDECIDED), (200, INFO + POSSIBLE)),
    (
        "prompts of half a piece",
        "SLT022",
        lambda x: crowded(x, prompt_tokens=1000),
        (255.5, UNDECIDED),
        (256, INFO + POSSIBLE),
    ),
    (
        "context four times a probe's prompt",
        "SLT022",
        lambda x: crowded(cached=round(x)),
        (60_000, INFO + POSSIBLE),
        (60_400, UNDECIDED),
    ),
    ("a kill within the day", "SLT034", killed, (86_000, CRITICAL + CERTAIN), (86_400, WARNING + CERTAIN)),
    ("a kill within the week", "SLT034", killed, (604_000, WARNING + CERTAIN), (604_800, INFO + CERTAIN)),
    (
        "a fifth of the guesses accepted",
        "SLT103",
        lambda x: guessing(2000, round(x)),
        (395, WARNING + LIKELY),
        (400, CLEAR),
    ),
    (
        "guesses for three of ten tokens",
        "SLT103",
        lambda x: guessing(round(x)),
        (1190, CLEAR),
        (1200, WARNING + LIKELY),
    ),
    (
        "enough guesses to tell",
        "SLT103",
        lambda x: guessing(round(x), requests=4),
        (199, UNDECIDED),
        (200, WARNING + LIKELY),
    ),
    (
        "one request of a hundred refused",
        "SLT031",
        lambda x: one_refused(round(x)),
        (99, WARNING + CERTAIN),
        (100, INFO + CERTAIN),
    ),
    ("half of the tokens cached", "SLT040", lambda x: cached(round(x)), (7900, UNDECIDED), (8000, CLEAR)),
    ("a tenth of the tokens cached", "SLT040", lambda x: cached(round(x)), (880, INFO + POSSIBLE), (889, UNDECIDED)),
    ("prompts worth a word", "SLT040", lambda x: cached(0, round(x)), (2559, UNDECIDED), (2560, INFO + POSSIBLE)),
    ("copies of a tenth of reading", "SLT056", lambda x: copying(x, 1000), (4420, CLEAR), (4445, WARNING + CERTAIN)),
    ("copies that are felt", "SLT056", lambda x: copying(x, 100), (3990, INFO + CERTAIN), (4000, WARNING + CERTAIN)),
    ("slots that are three quarters busy", "SLT053", scattered, (5.9, INFO + POSSIBLE), (6.0, CLEAR)),
    ("weights read one and a half times", "SLT053", scattered, (1.61, CLEAR), (1.64, INFO + POSSIBLE)),
    (
        "a queue of half a request per slot",
        "SLT050",
        lambda x: queue(round(x)),
        (49, INFO + POSSIBLE),
        (50, WARNING + POSSIBLE),
    ),
    ("three tenths of speed to spare", "SLT100", served, (12.9, WARNING + LIKELY), (13.0, CLEAR)),
    ("a sampler that takes a twentieth", "SLT070", penalized, (48.0, INFO + LIKELY), (49.0, WARNING + LIKELY)),
    (
        "a container of a minute",
        "SLT116",
        lambda x: unready(running_s=x),
        (59.0, INFO + CERTAIN),
        (60.0, CRITICAL + POSSIBLE),
    ),
    (
        "a pod of two minutes",
        "SLT116",
        lambda x: unready(phase="Pending", age_s=x),
        (119.0, INFO + POSSIBLE),
        (120.0, WARNING + POSSIBLE),
    ),
    (
        "a volume not mounted for a minute",
        "SLT116",
        lambda x: unready(phase="Pending", age_s=x, events=(MOUNT,)),
        (60.0, INFO + POSSIBLE),
        (60.5, CRITICAL + CERTAIN),
    ),
    (
        "an end of ten minutes ago",
        "SLT116",
        lambda x: unready(running_s=700.0, last_exit=("Error", 1), last_exit_ago_s=x),
        (595.0, CLEAR),
        (600.0, CRITICAL + POSSIBLE),
    ),
    ("some memory in swap", "SLT037", swapped, (63.5, CLEAR), (64.0, WARNING + LIKELY)),
    ("a twentieth of its memory in swap", "SLT037", lambda x: swapped(x, 9500), (495, CLEAR), (500, WARNING + LIKELY)),
    (
        "twenty pages a second",
        "SLT037",
        lambda x: in_swap(faults=round(x)),
        (198, INFO + CERTAIN),
        (200, WARNING + CERTAIN),
    ),
    (
        "four megabytes a second",
        "SLT037",
        lambda x: in_swap(read_mib=x),
        (39.5, INFO + CERTAIN),
        (40.0, WARNING + CERTAIN),
    ),
    ("a fifth of a core", "SLT037", lambda x: in_swap(cpu_s=x), (1.95, WARNING + LIKELY), (2.0, INFO + CERTAIN)),
    ("a template that is felt", "SLT075", template, (0.049, CLEAR), (0.051, WARNING + LIKELY)),
    (
        "a template of a tenth of the wait",
        "SLT075",
        lambda x: template(0.1, x),
        (0.79, WARNING + LIKELY),
        (0.82, CLEAR),
    ),
    (
        "a start of half a minute",
        "SLT035",
        lambda x: of(pod=pod(volumes=NFS, ready_after_s=x)),
        (30.0, CLEAR),
        (30.5, INFO + CERTAIN),
    ),
    ("weights as fast as from a disk", "SLT035", loaded, (29.7e9, INFO + POSSIBLE), (30e9, CLEAR)),
    (
        "a first prompt three times as long",
        "SLT035",
        lambda x: first_prompt(x, 5.0),
        (14.8, INFO + LIKELY),
        (15.0, WARNING + LIKELY),
    ),
    (
        "a first prompt two seconds late",
        "SLT035",
        lambda x: first_prompt(x, 0.9),
        (2.88, INFO + LIKELY),
        (2.91, WARNING + LIKELY),
    ),
    ("a minute without a decode", "SLT110", still, (59.5, UNDECIDED), (60.0, CRITICAL + LIKELY)),
    (
        "two batches without a decode",
        "SLT110",
        lambda x: still(x, 40.0),
        (102.0, UNDECIDED),
        (102.5, CRITICAL + LIKELY),
    ),
    (
        "ten minutes at an unknown speed",
        "SLT110",
        lambda x: still(x, None),
        (599.0, UNDECIDED),
        (600.0, CRITICAL + LIKELY),
    ),
    ("three seconds of silence", "SLT110", silent, (2.95, UNDECIDED), (3.0, CRITICAL + LIKELY)),
    ("a scrape that waited a second", "SLT090", scraped, (0.98, UNDECIDED), (1.0, INFO + LIKELY)),
    ("half of the weights on the CPU", "SLT090", kept_on_cpu, (0.49, UNDECIDED), (0.5, WARNING + LIKELY)),
    ("two fifths of the experts on the host", "SLT002", moved_experts, (0.39, CLEAR), (0.401, WARNING + LIKELY)),
    ("a GPU that holds a tenth of the weights", "SLT001", held_by_gpu, (395, CRITICAL + LIKELY), (400, UNDECIDED)),
    ("a GPU that holds a program", "SLT001", lambda x: held_by_gpu(x, 100), (63.5, CRITICAL + LIKELY), (64, UNDECIDED)),
    (
        "three restarts that ended well",
        "SLT111",
        lambda x: of(pod=pod(restarts=round(x))),
        (2, INFO + CERTAIN),
        (3, WARNING + CERTAIN),
    ),
    ("more on the host than embeddings", "SLT038", embeddings_on_host, (0.149, CLEAR), (0.152, UNDECIDED)),
    ("weights that are all in memory", "SLT038", lambda x: mapped(resident=x), (0.94, UNDECIDED), (0.951, CLEAR)),
    ("a stall of a twentieth", "SLT038", lambda x: mapped(stalled=x), (4.9, INFO + POSSIBLE), (5.0, WARNING + CERTAIN)),
    (
        "a megabyte a second read again",
        "SLT038",
        lambda x: mapped(refault_mib=x),
        (0.99, INFO + POSSIBLE),
        (1.0, WARNING + CERTAIN),
    ),
    (
        "weights that fill their room",
        "SLT038",
        lambda x: mapped(room=x),
        (0.945, INFO + POSSIBLE),
        (0.955, WARNING + CERTAIN),
    ),
    ("late prompts that are no chance", "SLT024", lambda x: late(round(x), 2), (1, UNDECIDED), (2, WARNING + LIKELY)),
    ("a time that is over for sure", "SLT024", over, (0.0049, CLEAR), (0.0051, WARNING + LIKELY)),
    ("debug lines", "SLT080", lambda x: of(pod=pod("-lv", f"{x:.0f}")), (4, CLEAR), (5, WARNING + CERTAIN)),
)


@pytest.mark.parametrize(
    ("identifier", "made", "below", "reached"),
    [pytest.param(*row[1:], id=f"{row[1]} {row[0]}") for row in LIMITS],
)
def test_what_has_reached_a_limit_is_another_case(
    identifier: str, made: Made, below: tuple[float, str], reached: tuple[float, str]
) -> None:
    assert outcome(identifier, made(below[0])) == below[1]
    assert outcome(identifier, made(reached[0])) == reached[1]
