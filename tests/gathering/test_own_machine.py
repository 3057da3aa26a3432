"""The process behind a port of this machine is found and looked at; one that is elsewhere is left alone."""

from __future__ import annotations

import mmap
import os
import socket
import sys
from pathlib import Path

import pytest

from slotune.gathering.own_machine import look_at_process, process_behind

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")


def test_the_process_that_listens_is_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert process_behind(f"http://127.0.0.1:{port}") == os.getpid()
        assert process_behind(f"http://localhost:{port}/base") == os.getpid()
        assert process_behind(f"http://192.0.2.7:{port}") is None
        assert process_behind(f"http://server.example:{port}") is None
    assert process_behind(f"http://127.0.0.1:{port}") is None


def test_mapped_weights_are_seen_with_what_of_them_is_in_memory(tmp_path: Path) -> None:
    weights = tmp_path / "m.gguf"
    weights.write_bytes(bytes(2**20))
    with weights.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[::4096]) == 0
        look = look_at_process(os.getpid())
    assert look is not None
    assert look.mapped_weights_bytes == look.resident_weights_bytes == 2**20
    assert look.swapped_bytes is not None
    assert look.major_faults is not None


def test_a_tunnel_is_not_taken_for_the_server() -> None:
    assert look_at_process(os.getpid()) is None, "it maps no weights"


def test_a_process_that_may_not_be_seen_is_not_known(tmp_path: Path) -> None:
    assert look_at_process(1, tmp_path) is None


@pytest.mark.parametrize(
    ("line", "folder", "name"),
    [
        ("0::/kubepods/pod1", "kubepods/pod1", "memory.max"),
        ("4:cpuset,memory:/docker/a", "memory/docker/a", "memory.limit_in_bytes"),
    ],
    ids=["version 2", "version 1"],
)
def test_the_limit_of_its_cgroup_is_found(tmp_path: Path, line: str, folder: str, name: str) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(f"{line}\n")
    (proc / "7" / "status").write_text("Name:\tllama-server\nVmSwap:\t0 kB\n")
    (cgroup / folder).mkdir(parents=True)
    (cgroup / folder / name).write_text("1073741824\n")
    look = look_at_process(7, proc, cgroup)
    assert look is not None
    assert look.limit_bytes == 2**30


def test_the_least_cpu_limit_of_its_groups_and_its_threads_are_found_and_no_other_argument(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7" / "task" / "9").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text("0::/kubepods/pod1/server\n")
    (proc / "7" / "status").write_text("Name:\tllama-server\nVmSwap:\t0 kB\n")
    (proc / "7" / "cmdline").write_text("llama-server\0-m\0m.gguf\0--api-key\0hush\0-t\0006\0")
    (proc / "7" / "task" / "9" / "schedstat").write_text("2000000000 1000000000 5\n")
    (proc / "stat").write_text("cpu  9 0 0 9 0 0 0 0 0 0\ncpu0 100 0 0 9 0 0 0 0 0 0\n")
    (cgroup / "kubepods" / "pod1" / "server").mkdir(parents=True)
    (cgroup / "kubepods" / "pod1" / "server" / "cpu.max").write_text("max 100000\n")
    (cgroup / "kubepods" / "pod1" / "cpu.max").write_text("150000 100000\n")
    look = look_at_process(7, proc, cgroup)
    assert look is not None
    assert (look.cpu.limit_cores, look.cpu.knows_limit, look.cpu.stated_threads) == (1.5, True, 6)
    assert (look.cpu.cpus, look.cpu.busy_s, look.cpu.threads) == (1, 1.0, {9: (2.0, 1.0)})
    assert "hush" not in repr(look)
