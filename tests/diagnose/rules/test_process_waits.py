"""A server that waits for its own memory is told by the kernel's counters; one that has all it needs is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.host import HostFacts
from slotune.diagnose.rules.memory import RULES
from slotune.diagnose.symptoms import NodeFacts, Symptoms
from slotune.gathering.log_file import read_log
from slotune.gathering.proc_file import read_proc_file
from slotune.llama.log_story import LogStory
from slotune.llama.server_answers import ModelMeta
from tests.diagnose.rules.building import NOTHING, ask, found, is_clear, is_undecided, of, pod, server
from tests.load.proc_texts import look, printed

GIB = 2**30
MIB = 2**20
IMAGE = "ghcr.io/ggml-org/llama.cpp:server-b11434"
AT_WORK = {"at_s": 1005.0, "cpu_s": 60.0}
IDLE = {"at_s": 1005.0, "cpu_s": 50.01}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def host(folder: Path, later: dict[str, Any] | None = None, **always: Any) -> HostFacts:
    """By way of the file that a person brings: one look, and with ``later`` another."""
    looks = [look(**always)] if later is None else [look(**always), look(**{**always, **later})]
    path = folder / "proc.txt"
    path.write_text(printed(*looks))
    return read_proc_file(path)


def story(folder: Path, *lines: str) -> LogStory:
    path = folder / "server.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    (one,) = read_log(path)
    return one


def started(folder: Path, *lines: str) -> LogStory:
    return story(
        folder,
        "0.00.100.000 I build_info: b11549-abcdef0",
        "0.00.110.000 I srv   main: loading model",
        *lines,
        "0.04.000.000 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'",
        "0.05.000.000 I srv  main: model loaded",
    )


# SLT037


def test_a_server_that_waits_for_swap_is_found(folder: Path) -> None:
    got = found(RULES, "SLT037", of(host=host(folder, AT_WORK | {"faults": 3000}, swapped_mib=500)))
    assert got.confidence is Confidence.CERTAIN
    assert "500 MiB" in got.sentence
    assert "576 pages a second" in got.sentence


def test_bytes_that_come_from_disk_tell_as_well_as_faults(folder: Path) -> None:
    got = found(RULES, "SLT037", of(host=host(folder, AT_WORK | {"read_mib": 4100}, swapped_mib=500)))
    assert "20 MiB a second" in got.sentence


def test_much_in_swap_is_likely_the_cause_where_nobody_watched(folder: Path) -> None:
    assert found(RULES, "SLT037", of(host=host(folder, swapped_mib=500))).confidence is Confidence.LIKELY
    assert found(RULES, "SLT037", of(host=host(folder, IDLE, swapped_mib=500))).confidence is Confidence.LIKELY


def test_what_a_working_server_does_not_need_may_lie_in_swap(folder: Path) -> None:
    found(RULES, "SLT037", of(host=host(folder, AT_WORK, swapped_mib=500)), Severity.INFO)


@pytest.mark.parametrize("swapped_mib", [0, 3, 60])
def test_little_in_swap_is_no_finding(folder: Path, swapped_mib: int) -> None:
    assert is_clear(RULES, "SLT037", of(host=host(folder, AT_WORK, swapped_mib=swapped_mib)))


def test_a_node_without_swap_rules_it_out_and_one_that_says_nothing_does_not() -> None:
    assert is_clear(RULES, "SLT037", of(pod=pod(), node=NodeFacts("n", swap_bytes=0)))
    assert is_undecided(RULES, "SLT037", of(pod=pod(), node=NodeFacts("n", swap_bytes=8 * GIB)))
    assert is_undecided(RULES, "SLT037", of(pod=pod(), node=NodeFacts("n")))


@pytest.mark.parametrize("rule", ["SLT037", "SLT038"])
def test_what_would_decide_is_a_file_that_an_option_takes(rule: str) -> None:
    assert "--proc FILE" in ask(RULES, rule, NOTHING).needs  # type: ignore[union-attr]  # undecided, as asserted
    assert "kubectl exec llama-0 -- sh -c" in ask(RULES, rule, of(pod=pod())).needs  # type: ignore[union-attr]  # as above


# SLT033


@pytest.mark.parametrize(("limit_mib", "finds"), [(6000, True), (16_000, False)])
def test_a_limit_of_the_process_bounds_the_prompt_cache_as_a_pods_does(
    folder: Path, limit_mib: int, finds: bool
) -> None:
    log = started(
        folder,
        "0.01.000.000 I load_tensors:   CPU_Mapped model buffer size =  4000.00 MiB",
        "0.02.000.000 I srv    load_model: prompt cache is enabled, size limit: 8192 MiB",
    )
    symptoms: Symptoms = of(log=log, host=host(folder, limit_mib=limit_mib))
    if finds:
        assert "the container may use 6,000 MiB" in found(RULES, "SLT033", symptoms).sentence
    else:
        assert is_clear(RULES, "SLT033", symptoms)


# SLT038


def test_weights_that_are_read_again_for_want_of_memory_are_found(folder: Path) -> None:
    squeezed = host(folder, AT_WORK | {"read_mib": 6000}, limit_mib=3000, resident_mib=1800)
    got = found(RULES, "SLT038", of(host=squeezed))
    assert got.confidence is Confidence.CERTAIN
    assert "400 MiB a second of its weights: they take 4,000 MiB, and it may use 3,000" in got.sentence
    assert is_clear(RULES, "SLT037", of(host=squeezed))


def test_pages_that_come_back_soon_after_they_were_dropped_are_a_want_of_memory(folder: Path) -> None:
    got = found(RULES, "SLT038", of(host=host(folder, AT_WORK | {"faults": 9000, "refaults": 90_000})))
    assert got.sentence.endswith("dropped shortly before: others need the memory")
    assert got.first is None, "its limit is not at fault"


def test_reading_weights_for_the_first_time_is_no_want_of_memory(folder: Path) -> None:
    first = host(folder, AT_WORK | {"read_mib": 6000}, limit_mib=8000, resident_mib=1800)
    assert found(RULES, "SLT038", of(host=first), Severity.INFO).confidence is Confidence.POSSIBLE


def test_a_limit_below_the_weights_is_likely_the_cause_where_nobody_watched(folder: Path) -> None:
    cpu = started(folder, "0.01.000.000 I load_tensors:   CPU_Mapped model buffer size =  4000.00 MiB")
    got = found(RULES, "SLT038", of(host=host(folder, limit_mib=3000, resident_mib=1800), log=cpu))
    assert got.confidence is Confidence.LIKELY


def test_a_server_in_good_health_is_clear(folder: Path) -> None:
    assert is_clear(RULES, "SLT038", of(host=host(folder, AT_WORK)))
    assert is_clear(RULES, "SLT038", of(host=host(folder, IDLE)))
    assert is_clear(RULES, "SLT038", of(host=host(folder)))
    assert is_clear(RULES, "SLT038", of(host=host(folder, AT_WORK, limit_mib=6000)))
    assert is_clear(RULES, "SLT038", of(host=host(folder, mapped_mib=0, resident_mib=0)))


def test_pages_that_are_not_there_and_not_needed_are_no_finding(folder: Path) -> None:
    idle = host(folder, IDLE, resident_mib=1000)
    assert is_undecided(RULES, "SLT038", of(host=idle)), "nobody saw whether it needs them"
    assert is_clear(RULES, "SLT038", of(host=host(folder, AT_WORK, resident_mib=1000)))


def test_mapped_weights_of_a_cpu_server_that_the_limit_has_no_room_for(folder: Path) -> None:
    large = server(model=ModelMeta("m", size_bytes=6 * GIB))
    got = found(RULES, "SLT038", of(pod=pod(memory_limit_bytes=4 * GIB, image=IMAGE), server=large))
    assert "6,144 MiB" in got.sentence
    assert is_clear(RULES, "SLT038", of(pod=pod(memory_limit_bytes=8 * GIB, image=IMAGE), server=large))
    whole = pod("--load-mode", "none", memory_limit_bytes=4 * GIB, image=IMAGE)
    assert is_clear(RULES, "SLT038", of(pod=whole, server=large)), "its weights are no pages of a file"


def test_layers_that_stay_on_the_cpu_beside_a_gpu_count(folder: Path) -> None:
    partly = started(
        folder,
        "0.01.000.000 I load_tensors: offloaded 20/33 layers to GPU",
        "0.01.000.000 I load_tensors:   CPU_Mapped model buffer size =  9000.00 MiB",
        "0.01.000.000 I load_tensors:        CUDA0 model buffer size =  9000.00 MiB",
    )
    got = found(RULES, "SLT038", of(pod=pod(memory_limit_bytes=8 * GIB), log=partly))
    assert "9,000 MiB" in got.sentence
    assert is_undecided(RULES, "SLT038", of(log=partly))
    assert isinstance(ask(RULES, "SLT038", of(log=partly, node=NodeFacts("n", memory_bytes=8 * GIB))), type(got))


def test_weights_that_were_repacked_for_the_cpu_are_not_needed_twice(folder: Path) -> None:
    repacked = started(
        folder,
        "0.01.000.000 I load_tensors:   CPU_Mapped model buffer size =  4000.00 MiB",
        "0.01.000.000 I load_tensors:   CPU_REPACK model buffer size =  3900.00 MiB",
    )
    assert is_clear(RULES, "SLT038", of(pod=pod(memory_limit_bytes=6 * GIB), log=repacked))


def test_with_all_layers_on_a_gpu_the_page_cache_matters_to_nobody(folder: Path) -> None:
    on_gpu = started(
        folder,
        "0.01.000.000 I load_tensors: offloaded 33/33 layers to GPU",
        "0.01.000.000 I load_tensors:   CPU_Mapped model buffer size =   500.00 MiB",
        "0.01.000.000 I load_tensors:        CUDA0 model buffer size =  9000.00 MiB",
    )
    assert is_clear(RULES, "SLT038", of(log=on_gpu))


@pytest.mark.parametrize(("has_mib", "finds"), [(7800, True), (32_000, False)])
def test_the_log_itself_says_when_a_machine_is_too_small(folder: Path, has_mib: int, finds: bool) -> None:
    projected = f"projected to use 9000 MiB of host memory vs. {has_mib} MiB of total host memory"
    log = started(folder, f"0.00.150.000 I common_params_fit_impl: {projected}")
    symptoms: Symptoms = of(log=log)
    if finds:
        got = found(RULES, "SLT038", symptoms)
        assert got.evidence[0].line == 3
        assert got.confidence is Confidence.LIKELY
    else:
        assert is_undecided(RULES, "SLT038", symptoms)


# SLT039

REFUSED = "warning: failed to mlock 4194304-byte buffer (after previously locking 0 bytes): Cannot allocate memory"


@pytest.mark.parametrize("line", [f"0.01.000.000 W {REFUSED}", REFUSED])
def test_memory_that_could_not_be_locked_is_worth_knowing(folder: Path, line: str) -> None:
    got = found(RULES, "SLT039", of(log=started(folder, line)), Severity.INFO)
    assert got.evidence[0].text == REFUSED


def test_a_start_without_that_line_is_clear(folder: Path) -> None:
    assert is_clear(RULES, "SLT039", of(log=started(folder)))
    assert is_clear(RULES, "SLT039", of(pod=pod()))
    assert is_undecided(RULES, "SLT039", of(pod=pod("-lm", "mlock")))
    assert is_undecided(RULES, "SLT039", NOTHING)
