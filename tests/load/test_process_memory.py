"""What Linux says of a process's memory is read to the number; what it does not say is not known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotune.load.process_cpu import CPULook
from slotune.load.process_memory import MemoryLook, memory_look
from tests.load.proc_texts import MIB, look


def test_a_look_at_a_server_is_read() -> None:
    got = memory_look(look(swapped_mib=300, mapped_mib=4000, resident_mib=2500, limit_mib=3000, refaults=512))
    assert got == MemoryLook(
        name="llama-server",
        at_s=1000.0,
        resident_bytes=3400 * MIB,
        anonymous_bytes=900 * MIB,
        swapped_bytes=300 * MIB,
        mapped_weights_bytes=4000 * MIB,
        resident_weights_bytes=2500 * MIB,
        major_faults=120,
        read_bytes=4000 * MIB,
        cpu_s=50.0,
        limit_bytes=3000 * MIB,
        used_bytes=3400 * MIB,
        refault_bytes=2 * MIB,
        stalled_percent=0.0,
        machine_bytes=65_536_000 * 1024,
        cpu=CPULook(own_s=50.0),
    )


def test_a_name_with_brackets_does_not_shift_the_numbers() -> None:
    assert memory_look({"/proc/7/stat": "7 (a) b) (c) S 1 7 7 0 -1 0 5 0 33 0 200 100 0 0 20"}).major_faults == 33
    assert memory_look({"/proc/7/stat": "7 (a) b) (c) S 1 7 7 0 -1 0 5 0 33 0 200 100 0 0 20"}).cpu_s == 3.0


def test_a_container_without_a_limit_has_none_in_either_version() -> None:
    assert memory_look({"/sys/fs/cgroup/memory.max": "max"}).limit_bytes is None
    old = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    assert memory_look({old: "9223372036854771712"}).limit_bytes is None
    assert memory_look({old: "4294967296"}).limit_bytes == 4096 * MIB


def test_a_large_mapped_file_without_the_ending_counts_as_weights_and_a_library_does_not() -> None:
    blob = "7f00-7f01 r--s 00000000 08:01 42 /models/blobs/sha256-ab\nSize: 4194304 kB\nRss: 1024 kB\n"
    library = "7f00-7f01 r--p 00000000 08:01 43 /usr/lib/libcublasLt.so.12\nSize: 524288 kB\nRss: 1024 kB\n"
    assert memory_look({"/proc/1/smaps": blob}).mapped_weights_bytes == 4096 * MIB
    assert memory_look({"/proc/1/smaps": library}).mapped_weights_bytes == 0
    assert memory_look({}).mapped_weights_bytes is None


NAMES = st.sampled_from(sorted(look()))


@given(st.dictionaries(NAMES, st.text(max_size=200)))
def test_no_text_breaks_it(files: dict[str, str]) -> None:
    assert isinstance(memory_look(files), MemoryLook)
