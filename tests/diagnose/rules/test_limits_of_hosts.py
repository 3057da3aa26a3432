"""Limits of the rules on memory, storage, devices and pods, each met from both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.host import HostFacts
from slotune.diagnose.symptoms import ServerLook, Symptoms
from slotune.llama.log_story import Topic
from slotune.llama.server_answers import ModelMeta
from slotune.load.nvidia_smi import DeviceSnapshot
from slotune.load.process_memory import MemoryLook
from tests.diagnose.rules.building import log, metrics, of, pod, probe, server, timings
from tests.diagnose.rules.limits import (
    CERTAIN,
    CLEAR,
    CRITICAL,
    INFO,
    LIKELY,
    POSSIBLE,
    UNDECIDED,
    WARNING,
    Limit,
    named,
    on_both_sides,
)

MIB = 2**20
NFS = {"/models": "nfs"}
KILLED = ("OOMKilled", 137)
MOUNT = Evidence(Source.EVENT, "FailedMount: MountVolume.SetUp failed for volume models")


# Servers of which one number is given


def killed(ago_s: float) -> Symptoms:
    return of(pod=pod(last_exit=KILLED, last_exit_ago_s=ago_s, ready=True, restarts=1))


def one_refused(answered: int) -> Symptoms:
    return of(log=log({Topic.CONTEXT_EXCEEDED: 1}, timings(answered)))


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


LIMITS: tuple[Limit, ...] = (
    ("a kill within the day", "SLT034", killed, (86_000, CRITICAL + CERTAIN), (86_400, WARNING + CERTAIN)),
    ("a kill within the week", "SLT034", killed, (604_000, WARNING + CERTAIN), (604_800, INFO + CERTAIN)),
    (
        "one request of a hundred refused",
        "SLT031",
        lambda x: one_refused(round(x)),
        (99, WARNING + CERTAIN),
        (100, INFO + CERTAIN),
    ),
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
)


@pytest.mark.parametrize("limit", LIMITS, ids=named)
def test_what_has_reached_a_limit_is_another_case(limit: Limit) -> None:
    *_, (_, below), (_, reached) = limit
    assert on_both_sides(limit) == (below, reached)
