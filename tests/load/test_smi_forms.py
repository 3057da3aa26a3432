"""Devices of today, files that were cut off, and reports that went through a mail or a spreadsheet."""

from __future__ import annotations

import pytest

from slotune.load.nvidia_smi import parse_nvidia_smi
from tests.load.test_nvidia_smi import MIB, NOBODY, SERVER, TABLE, full

HOST_MEMORY = """\
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   68C    P0             38W /  N/A  | Not Supported          |     95%      Default |
|                                         |                        |                  N/A |
| Processes:                                                                              |
|    0   N/A  N/A           22790      C   .../llama.cpp/build/bin/llama-server  62418MiB |
"""
OLD = """\
| NVIDIA-SMI 470.82.01    Driver Version: 470.82.01    CUDA Version: 11.4     |
|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0  On |                  N/A |
| 53%   71C    P2   220W / 350W |  19211MiB / 24268MiB |     98%      Default |
|                               |                      |                  N/A |
| Processes:                                                                  |
|    0   N/A  N/A   2823201      C   ./llama-server                  19101MiB |
"""
WINDOWS = """\
| NVIDIA-SMI 576.88                 Driver Version: 576.88         CUDA Version: 12.9     |
|   0  NVIDIA GeForce RTX 4090      WDDM  |   00000000:01:00.0  On |                  Off |
|  0%   52C    P2            120W /  450W |   21211MiB /  24564MiB |     60%      Default |
|    0   N/A  N/A            1648    C+G   C:\\Windows\\System32\\dwm.exe             N/A      |
|    0   N/A  N/A            9648      C   ...p\\build\\bin\\Release\\llama-server.exe N/A      |
"""
NEW = """\
| NVIDIA-SMI 610.43.03              KMD Version: 610.43.03     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA GeForce RTX 3080 ...    Off |   00000000:01:00.0 Off |                  N/A |
| N/A   40C    P0            751W /   80W |      14MiB /  16384MiB |      6%      Default |
|    0   N/A  N/A           22790      C   /app/llama-server                          10MiB |
"""
VIRTUAL = OLD.replace("NVIDIA GeForce ...  Off ", "GRID T4-8Q          On  ").replace(
    "| 53%   71C    P2   220W / 350W |", "| N/A   N/A    P8    N/A /  N/A |"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HOST_MEMORY, "NVIDIA GB10: 68 °C, 38 W"),
        (OLD, "NVIDIA GeForce ...: 19,211 of 24,268 MiB used, 71 °C, 220 W"),
        (WINDOWS, "NVIDIA GeForce RTX 4090: 21,211 of 24,564 MiB used, 52 °C, 120 W"),
        (NEW, "NVIDIA GeForce RTX 3080 ...: 14 of 16,384 MiB used, 40 °C, 751 W"),
        (VIRTUAL, "GRID T4-8Q: 19,211 of 24,268 MiB used"),
    ],
    ids=["memory of the host", "driver 470", "Windows", "driver 610", "a virtual GPU"],
)
def test_the_table_of_every_driver_and_system_is_read(text: str, line: str) -> None:
    got = parse_nvidia_smi(text)
    assert got.lines == (line,)
    assert (got.shows_server, got.others, got.broken) == (True, 0, ())


def test_the_size_of_each_device_is_kept() -> None:
    assert parse_nvidia_smi(OLD).memory_sizes == (24268 * MIB,)
    assert parse_nvidia_smi(HOST_MEMORY).memory_sizes == ()
    assert parse_nvidia_smi("index, name, memory.total [MiB]\n0, A, 8192 MiB\n1, A, 12288 MiB\n").memory_sizes == (
        8192 * MIB,
        12288 * MIB,
    )


@pytest.mark.parametrize("margin", ["    ", "> ", ">", "\t"])
@pytest.mark.parametrize("text", [TABLE.format(processes=SERVER), full()], ids=["the table", "-q"])
def test_a_margin_before_every_line_changes_nothing(margin: str, text: str) -> None:
    moved = "".join(f"{margin}{line}\n" for line in text.splitlines())
    assert parse_nvidia_smi(moved) == parse_nvidia_smi(text)


def test_a_table_that_ends_behind_a_name_says_that_it_is_cut_off() -> None:
    second = TABLE.format(processes=NOBODY).index("|   1  NVIDIA L4")
    text = TABLE[: TABLE.index("\n", second)]
    assert "cut off in or behind GPU 1" in parse_nvidia_smi(text).lines[-1]
    assert not any("cut off" in line for line in parse_nvidia_smi(TABLE.format(processes=NOBODY)).lines)


def test_a_table_that_ends_behind_a_name_takes_nothing_of_the_next_one_in_the_file() -> None:
    cut, (_, name, state, *rest) = OLD[: OLD.index("\n| 53%") + 1], OLD.splitlines(keepends=True)
    first = OLD.splitlines(keepends=True)[0]
    assert parse_nvidia_smi(cut + first + state + name + state + "".join(rest)).lines == parse_nvidia_smi(OLD).lines


DECIMAL_COMMA = """\
index, name, temperature.gpu, power.draw [W], clocks.sm [MHz], memory.used [MiB]
0, NVIDIA L4, 71, 71,42 W, 855 MHz, 19211 MiB
"""
WITHOUT_UNITS = "index,name,temperature.gpu,power.draw,clocks.sm,memory.used\n0,NVIDIA L4,71,71,42,855,19211\n"
SEMICOLONS = """\
index; name; temperature.gpu; power.draw [W]; clocks.sm [MHz]; memory.used [MiB]
0; NVIDIA L4; 71; 71,42 W; 855 MHz; 19211 MiB
"""
QUOTES = """\
"index","name","temperature.gpu","power.draw [W]","clocks.sm [MHz]","memory.used [MiB]"
"0","NVIDIA L4","71","71,42 W","855 MHz","19211 MiB"
"""


@pytest.mark.parametrize("text", [DECIMAL_COMMA, WITHOUT_UNITS, SEMICOLONS, QUOTES])
def test_what_a_spreadsheet_made_of_the_columns_is_read(text: str) -> None:
    assert parse_nvidia_smi(text).lines == ("NVIDIA L4: 19,211 MiB used, 71 °C, 71 W, SM clock 855 MHz",)
