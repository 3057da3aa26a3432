"""What Linux says of a process's share of the processors is read to the number; what it does not say is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load.process_cpu import CPULook, cpu_look
from slotune.load.process_memory import memory_look
from tests.load.proc_texts import processors


def test_a_look_at_the_processors_is_read() -> None:
    got = cpu_look(processors(busy_s=400, stolen_s=8, cpu_s=50, threads={1: (3.5, 0.25), 7: (2, 1)}))
    assert got == CPULook(
        cpus=4,
        machine_cpus=4,
        busy_s=400.0,
        stolen_s=8.0,
        own_s=50.0,
        threads={1: (3.5, 0.25), 7: (2.0, 1.0)},
        knows_limit=True,
        throttled_s=0.0,
    )


def test_only_the_processors_that_it_may_run_on_count() -> None:
    got = cpu_look(processors(cpus=8, busy_s=800, allowed="0-1,5"))
    assert (got.cpus, got.machine_cpus, got.busy_s) == (3, 8, 300.0)


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"/sys/fs/cgroup/cpu.max": "150000 100000"}, (1.5, True)),
        ({"/sys/fs/cgroup/cpu.max": "max 100000"}, (None, True)),
        (
            {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            (2, True),
        ),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, (None, True)),
        ({"/sys/fs/cgroup/cpu.max": "-"}, (None, False)),
        ({}, (None, False)),
    ],
    ids=["version 2", "no limit", "version 1", "none in version 1", "garbage", "not shown"],
)
def test_the_limit_is_read_in_either_version(files: dict[str, str], want: tuple[float | None, bool]) -> None:
    got = cpu_look(files)
    assert (got.limit_cores, got.knows_limit) == want


@pytest.mark.parametrize(
    ("arguments", "variables", "want"),
    [
        ("llama-server -m m.gguf -t 6", "", 6),
        ("llama-server -m m.gguf --threads 4 -tb 12", "", 12),
        ("llama-server -m m.gguf", "LLAMA_ARG_THREADS=5 HOME=/", 5),
        ("llama-server -m m.gguf -t 2", "LLAMA_ARG_THREADS=5", 2),
        ("llama-server -m m.gguf -t -1", "", 0),
        ("llama-server -m m.gguf", "", 0),
        ("", "LLAMA_ARG_THREADS=5", None),
    ],
    ids=["a flag", "of the batch too", "a variable", "a flag before it", "the default", "not stated", "not shown"],
)
def test_threads_are_those_of_its_arguments(arguments: str, variables: str, want: int | None) -> None:
    files = {"/proc/7/cmdline": arguments.replace(" ", "\0"), "/proc/7/environ": variables.replace(" ", "\0")}
    assert cpu_look(files).stated_threads == want


def test_the_machines_numbers_are_not_taken_for_the_processs() -> None:
    files = processors(cpu_s=50, threads={1: (1, 1)})
    files["/proc/self/stat"] = files["/proc/1/stat"].replace(" 5000 0 0 0 20", " 900 0 0 0 20")
    files["/proc/pressure/cpu"] = "some avg10=90.00 avg60=0.00 avg300=0.00 total=0"
    assert memory_look(files).cpu_s == 50.0
    assert memory_look(files).cpu.own_s == 50.0
    assert memory_look(files).cpu.looking_s == 9.0


@given(st.dictionaries(st.sampled_from(sorted(processors(threads={1: (1, 1)}))), st.text(max_size=200)))
def test_no_text_breaks_it(files: dict[str, str]) -> None:
    assert isinstance(cpu_look(files), CPULook)
