"""A file with what /proc says is read as one look or two, and one of something else is refused with the cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.diagnose.host import HostFacts
from slotune.gathering.proc_file import read_proc_file
from slotune.tuning.errors import InvalidInputError
from tests.load.proc_texts import look, printed, processors


def written(folder: Path, text: str) -> Path:
    path = folder / "proc.txt"
    path.write_text(text)
    return path


def test_two_looks_say_what_happened_in_between(tmp_path: Path) -> None:
    text = printed(look(faults=100, cpu_s=50), look(at_s=1005, faults=600, cpu_s=60))
    host = read_proc_file(written(tmp_path, text))
    assert host.faults_per_s == 100
    assert host.was_at_work is True


def test_what_the_processors_did_is_in_it_too(tmp_path: Path) -> None:
    first, later = (processors(at_s=1000 + s, busy_s=500 + 4 * s, threads={1: (s, s)}) for s in (0, 5))
    host = read_proc_file(written(tmp_path, printed(first, later)))
    assert host.later is not None
    assert (host.first.cpu.busy_s, host.later.cpu.busy_s) == (500.0, 520.0)
    assert host.later.cpu.threads == {1: (5.0, 5.0)}


def test_one_look_says_how_it_is_and_no_more(tmp_path: Path) -> None:
    host = read_proc_file(written(tmp_path, printed(look(swapped_mib=10))))
    assert host == HostFacts(host.first)
    assert host.last.swapped_bytes == 10 * 2**20
    assert host.faults_per_s is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no line"),
        ("VmSwap: 0 kB\n", "holds no line"),
        ("0.00.1 I srv load_model: loading model 'm.gguf'\n", "holds no line"),
        ("/proc/uptime:1000.00 1\n", "says nothing of a process"),
        (printed(look(name="sh")), "'sh', which only starts the server"),
        (printed(look(name="python3", own_mib=6, mapped_mib=0, resident_mib=0)), "a process of 6 MiB, no server"),
        (printed(look(), look(name="python3", at_s=1005)), "several processes"),
    ],
    ids=["empty", "without paths", "a log", "no process", "a shell", "what started it", "two processes"],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidInputError, match=says) as refused:
        read_proc_file(path)
    assert "--proc" in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="can't be read"):
        read_proc_file(tmp_path / "none.txt")


def test_a_file_of_the_shell_of_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "proc.txt"
    path.write_bytes(printed(look(swapped_mib=7)).encode("utf-16"))
    assert read_proc_file(path).last.swapped_bytes == 7 * 2**20
