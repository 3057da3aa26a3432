"""Taking a node down removes exactly the node: all of it, after a crash too, and nothing of anybody else's."""

from __future__ import annotations

import dataclasses
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.node.launching import launched
from e2e.node.lifecycle import bring_up, standing, take_down
from e2e.node.processes import boot_id, identify
from e2e.node.record import Record, read_record, write_record
from e2e.waiting import eventually


@pytest.fixture
def name() -> Iterator[str]:
    """Of a node beside the session's own."""
    name = f"t{secrets.token_hex(3)}"
    yield name
    take_down(name)


@pytest.fixture
def stranger() -> Iterator[int]:
    """The number of a process that is none of the node's business."""
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process.pid
        process.kill()


def traces(record: Record) -> list[str]:
    """What of a node can be found on this machine."""
    found = [str(path) for path in (record.folder, Path("/sys/class/net", record.link)) if path.exists()]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{record.cgroup}")]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(record.folder) in line]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(record.folder) in command:
            found.append(command)
    return found


def firewall() -> list[str]:
    """The machine's firewall rules, without comments and counters."""
    text = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return [line.partition(" [")[0] for line in text.splitlines() if not line.startswith("#")]


def sysctls() -> dict[str, str]:
    """Settings of the whole machine that a kubelet would like to change."""
    names = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
    return {name: Path("/proc/sys", name).read_text() for name in names}


def test_a_node_leaves_the_machine_as_it_was(name: str) -> None:
    before = firewall(), sysctls()

    node = bring_up(name, gpus=3, tied=True)
    assert standing(name)[1] == "up"
    during = firewall(), sysctls()
    assert traces(node.record) != []
    assert take_down(name)

    assert during == before
    assert (firewall(), sysctls()) == before
    assert traces(node.record) == []
    assert standing(name) == (None, "down")
    assert not take_down(name)


def test_a_node_whose_starter_was_killed_ends_and_the_next_one_clears_it_away(name: str) -> None:
    crashed = bring_up(name, tied=True).record
    # What the kernel does to a process that is killed: its end of the pipe is closed, and nothing else happens.
    launcher = launched[name]
    assert launcher.stdin is not None
    launcher.stdin.close()
    eventually(lambda: launcher.poll() is not None, 20, "the node ends by itself")
    assert standing(name)[1].startswith("crashed")
    assert traces(crashed) != []

    again = bring_up(name, tied=True).record

    assert again.folder != crashed.folder
    assert not crashed.folder.exists()
    assert standing(name)[1] == "up"


@pytest.mark.parametrize("change", ["another process has the number", "the machine has been started again"])
def test_a_process_that_got_the_number_of_a_dead_node_is_left_alone(
    name: str, stranger: int, tmp_path: Path, change: str
) -> None:
    identity = identify(stranger)
    assert identity is not None
    boot = boot_id()
    if change == "another process has the number":
        identity = dataclasses.replace(identity, started=identity.started - 1)
    else:
        boot = "00000000-0000-0000-0000-000000000000"
    folder = tmp_path / "node"
    (folder / "log").mkdir(parents=True)
    cgroup = f"slotune-{name}"
    write_record(Record(name, boot, folder, cgroup, cgroup[:15], 1, launcher=identity, first=identity, ready=True))

    assert standing(name)[1].startswith("crashed")
    assert take_down(name)

    os.kill(stranger, 0)
    assert not folder.exists()
    assert read_record(name) is None


def test_nothing_is_left_of_a_start_that_was_interrupted(name: str) -> None:
    begun = []

    def interrupt(line: str) -> None:
        begun.append(line)
        if line.startswith("etcd"):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        bring_up(name, tied=True, tell=interrupt)

    assert [line for line in begun if line.startswith("kube-apiserver")] == []
    assert standing(name) == (None, "down")
    folder = Path(begun[0].rpartition(" ")[2])
    assert not folder.exists()
