"""What nvidia-smi prints is not made for programs: three forms, two names for the same thing, and holes in all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.gathering.device_file import read_device_file
from slotune.load.device_facts import CLOCK_REASONS, Spread, device_fault
from slotune.load.nvidia_smi import DeviceSnapshot, ForeignOutputError, parse_nvidia_smi
from slotune.tuning.errors import InvalidInputError

MIB = 2**20

TABLE = """\
Tue Mar  3 09:58:12 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.133.07             Driver Version: 570.133.07     CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA L4                      On  |   00000000:00:03.0 Off |                    0 |
| N/A   71C    P0             72W /   72W |   19211MiB /  23034MiB |     98%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA L4                      On  |   00000000:00:04.0 Off |                    0 |
| N/A   35C    P8             12W /   72W |       4MiB /  23034MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{processes}
+-----------------------------------------------------------------------------------------+
"""

NOBODY = "|  No running processes found                                                             |"
SERVER = "|    0   N/A  N/A          823201      C   /app/llama-server                     17892MiB |"
TRAINING = "|    0   N/A  N/A          901234      C   python3                                1310MiB |"
SCREEN = "|    0   N/A  N/A            2115      G   /usr/lib/xorg/Xorg                        4MiB |"

FULL = """\

==============NVSMI LOG==============

Timestamp                                 : Tue Mar  3 09:58:12 2026
Driver Version                            : 570.133.07
CUDA Version                              : 12.8

Attached GPUs                             : 1
GPU 00000000:00:03.0
    Product Name                          : NVIDIA L4
    Product Brand                         : NVIDIA
    MIG Mode
        Current                           : N/A
        Pending                           : N/A
    PCI
        Bus                               : 0x00
        Bus Id                            : 00000000:00:03.0
    Performance State                     : P0
    {section}
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : {cap}
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {slow}
            HW Power Brake Slowdown       : Not Active
        Sync Boost                        : Not Active
        SW Thermal Slowdown               : Not Active
        Display Clock Setting             : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                  : 12345 us
        HW Thermal Slowdown               : 99 us
    FB Memory Usage
        Total                             : 23034 MiB
        Reserved                          : 345 MiB
        Used                              : 19211 MiB
        Free                              : 3478 MiB
    BAR1 Memory Usage
        Total                             : 32768 MiB
        Used                              : 1 MiB
    Temperature
        GPU Current Temp                  : 88 C
        GPU T.Limit Temp                  : N/A
        Memory Current Temp               : N/A
    {power}
        Power Draw                        : 71.42 W
        Current Power Limit               : 72.00 W
    Module Power Readings
        Power Draw                        : N/A
    Clocks
        Graphics                          : 855 MHz
        SM                                : 855 MHz
        Memory                            : 6251 MHz
    Max Clocks
        Graphics                          : 2040 MHz
        SM                                : 2040 MHz
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 823201
            Type                          : C
            Name                          : /app/llama-server
            Used GPU Memory               : 17892 MiB
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 901234
            Type                          : C
            Name                          : /usr/bin/python3
            Used GPU Memory               : 1310 MiB
"""


def full(section: str = "Clocks Event Reasons", cap: str = "Active", slow: str = "Not Active", **more: str) -> str:
    return FULL.format(section=section, cap=cap, slow=slow, **{"power": "GPU Power Readings", **more})


def test_the_table_has_memory_heat_and_power_of_every_device_and_no_clocks() -> None:
    got = parse_nvidia_smi(TABLE.format(processes=NOBODY))

    assert (got.name, got.samples) == ("2 x NVIDIA L4", 1)
    assert got.temperature_c == Spread(35, 53, 71)
    assert got.power_w == Spread(12, 42, 72)
    assert got.memory_used_bytes == 19215 * MIB
    assert got.sm_clock_mhz is None
    assert not got.knows_clock_reasons
    assert got.others is None, "in a container nvidia-smi shows no process at all"
    assert got.lines[0] == "GPU 0, NVIDIA L4: 19,211 of 23,034 MiB used, 71 °C, 72 W"


def test_a_process_beside_the_server_is_counted_and_the_screen_is_not() -> None:
    got = parse_nvidia_smi(TABLE.format(processes="\n".join((SERVER, TRAINING, SCREEN))))

    assert (got.others, got.others_memory_bytes, got.shows_server) == (1, 1310 * MIB, True)
    assert parse_nvidia_smi(TABLE.format(processes="\n".join((SERVER, SCREEN)))).others == 0


def test_a_process_of_another_device_is_not_beside_the_server() -> None:
    elsewhere = TRAINING.replace("|    0 ", "|    1 ")
    got = parse_nvidia_smi(TABLE.format(processes="\n".join((SERVER, elsewhere))))
    assert (got.others, got.shows_server) == (0, True)

    second = TABLE.index("|   1  NVIDIA L4")
    alone = TABLE[:second] + TABLE[TABLE.index("\n+-", second) + 1 :]
    assert parse_nvidia_smi(alone.format(processes=SERVER + "\n" + TRAINING)).others == 1


def test_processes_of_which_none_is_the_server_cannot_be_told_from_it() -> None:
    assert parse_nvidia_smi(TABLE.format(processes=TRAINING)).others is None


def test_a_full_report_says_what_holds_the_clocks() -> None:
    got = parse_nvidia_smi(full())

    assert (got.name, got.samples, got.knows_clock_reasons) == ("NVIDIA L4", 1, True)
    assert got.clock_reasons == (("SwPowerCap", 1),)
    assert (got.sm_clock_mhz, got.memory_clock_mhz) == (Spread(855, 855, 855), Spread(6251, 6251, 6251))
    assert (got.temperature_c, got.power_w) == (Spread(88, 88, 88), Spread(71.42, 71.42, 71.42))
    assert got.memory_used_bytes == 19211 * MIB, "not the memory of the BAR1 window"
    assert (got.others, got.others_memory_bytes) == (1, 1310 * MIB)
    assert device_fault(got) is None, "a card at its power limit is not slowed down"


@pytest.mark.parametrize("section", ["Clocks Event Reasons", "Clocks Throttle Reasons"])
def test_a_slowdown_by_heat_is_a_fault_under_both_names_of_the_section(section: str) -> None:
    fault = device_fault(parse_nvidia_smi(full(section, slow="Active")))
    assert fault is not None
    assert "HwThermalSlowdown" in fault[1]


def test_the_power_of_an_early_driver_is_read_and_that_of_the_module_is_not() -> None:
    assert parse_nvidia_smi(full(power="Power Readings")).power_w == Spread(71.42, 71.42, 71.42)


def test_reasons_that_a_driver_does_not_give_are_unknown() -> None:
    text = full().replace("Not Active", "N/A").replace(": Active", ": N/A")
    got = parse_nvidia_smi(text)
    assert (got.knows_clock_reasons, got.clock_reasons) == (False, ())


def test_a_repeated_report_is_as_many_looks() -> None:
    got = parse_nvidia_smi(full(slow="Active") + full())
    assert (got.samples, dict(got.clock_reasons)["HwThermalSlowdown"]) == (2, 1)


def test_several_devices_of_a_report_are_one_look() -> None:
    second = "\n".join(full().splitlines()[8:]).replace("00:03.0", "00:04.0")
    got = parse_nvidia_smi(full() + second)
    assert (got.name, got.samples, got.memory_used_bytes) == ("2 x NVIDIA L4", 1, 2 * 19211 * MIB)


def test_what_runs_on_another_mig_slice_is_not_beside_the_server() -> None:
    mig = TABLE.format(
        processes="""\
|    0    3    0          823201      C   llama-server                           9000MiB |
|    0    5    0          901234      C   python3                                1310MiB |"""
    )
    assert parse_nvidia_smi(mig).others == 0
    assert parse_nvidia_smi(mig.replace("|    0    5", "|    0    3")).others == 1


@pytest.mark.parametrize("form", ["the table", "-q", "CSV"])
def test_a_device_in_mig_mode_says_so_in_its_name(form: str) -> None:
    """Whatever computes on it does so on a part of it."""
    row = "|                                         |                        |                  N/A |"
    text = {
        "the table": TABLE.format(processes=SERVER).replace(row, row.replace("    N/A", "Enabled"), 1),
        "-q": full().replace("Current                           : N/A", "Current                           : Enabled"),
        "CSV": "name, temperature.gpu, mig.mode.current\nNVIDIA L4, 71, Enabled\n",
    }[form]
    assert "NVIDIA L4 (MIG)" in parse_nvidia_smi(text).name
    assert "MIG" not in parse_nvidia_smi(text.replace("Enabled", "Disabled")).name


def test_rows_of_mig_devices_are_no_devices_of_their_own() -> None:
    rows = """\
| MIG devices:                                                                            |
|  0    3   0   0  |             250MiB /  5952MiB    | 14      0 |  1   0    1    0    0 |
|                  |               0MiB /  8191MiB    |           |                       |
"""
    assert parse_nvidia_smi(TABLE.format(processes=NOBODY) + rows).memory_used_bytes == 19215 * MIB


CSV = """\
timestamp, name, index, temperature.gpu, power.draw [W], clocks.current.sm [MHz], memory.used [MiB], {active}
2026/03/03 09:58:12.104, NVIDIA L4, 0, 71, 71.42 W, 1980 MHz, 19211 MiB, 0x0000000000000004
2026/03/03 09:58:12.108, NVIDIA L4, 1, 35, [N/A], 210 MHz, 4 MiB, 0x0000000000000001
2026/03/03 09:58:13.104, NVIDIA L4, 0, 88, 40.00 W, 855 MHz, 19211 MiB, 0x0000000000000048
2026/03/03 09:58:13.108, NVIDIA L4, 1, 35, [N/A], 210 MHz, 4 MiB, 0x0000000000000001
"""


@pytest.mark.parametrize("active", ["clocks_event_reasons.active", "clocks_throttle_reasons.active"])
def test_columns_are_read_by_their_header_and_rows_are_looks(active: str) -> None:
    got = parse_nvidia_smi(CSV.format(active=active))

    assert (got.name, got.samples) == ("2 x NVIDIA L4", 2)
    assert dict(got.clock_reasons) == {"GpuIdle": 2, "SwPowerCap": 1, "HwSlowdown": 1, "HwThermalSlowdown": 1}
    assert got.power_w == Spread(40, 55.71, 71.42)
    assert got.sm_clock_mhz == Spread(210, 532.5, 1980)


def test_columns_without_units_and_with_named_reasons() -> None:
    got = parse_nvidia_smi(
        "name, temperature.gpu, clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.gpu_idle\n"
        "NVIDIA L4, 88, Active, Not Active\n"
    )
    assert (got.clock_reasons, got.knows_clock_reasons) == ((("HwThermalSlowdown", 1),), True)


def test_columns_without_reasons_know_none() -> None:
    got = parse_nvidia_smi("name, clocks.current.sm [MHz]\nNVIDIA L4, 855 MHz\n")
    assert (got.sm_clock_mhz, got.knows_clock_reasons) == (Spread(855, 855, 855), False)


def test_a_list_of_processes_may_stand_below() -> None:
    got = parse_nvidia_smi(
        "name, memory.used [MiB]\nNVIDIA L4, 19211 MiB\n"
        "pid, process_name, used_gpu_memory [MiB]\n823201, /app/llama-server, 17892 MiB\n901234, python3, [N/A]\n"
    )
    assert (got.others, got.others_memory_bytes) == (1, 0)


def test_a_table_that_was_cut_off_counts_as_far_as_it_goes() -> None:
    got = parse_nvidia_smi(TABLE.format(processes=NOBODY).partition("|   1  NVIDIA")[0])
    assert (got.name, got.memory_used_bytes) == ("NVIDIA L4", 19211 * MIB)
    assert parse_nvidia_smi(full().partition("    Temperature")[0]).knows_clock_reasons
    assert parse_nvidia_smi(CSV.format(active="x")[:-20]).samples == 2


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "is empty"),
        ("load_tensors: offloaded 33/33 layers to GPU\n", "begins with 'load_tensors"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "has failed"),
        ("No devices were found\n", "No devices"),
        ("GPU 0: NVIDIA L4 (UUID: GPU-70051dd3)\n", "nvidia-smi -q"),
        ("<?xml version='1.0' ?>\n<nvidia_smi_log>\n", "without -x"),
        ("0, NVIDIA L4, 71, 19211 MiB\n", "with its header"),
        ("name, memory.used [MiB]\n", "with its header"),
        ("name,age\ncat,4\n", "is no output"),
        ("x" * 200_000, "is no output"),
        ("\x00\x01\x02\n", "is no output"),
    ],
    ids=lambda value: value[:20],
)
def test_anything_else_is_refused_with_a_word_on_what_it_is(text: str, word: str) -> None:
    with pytest.raises(ForeignOutputError, match=word) as caught:
        parse_nvidia_smi(text)
    assert len(str(caught.value)) < 400


def test_values_that_are_errors_are_left_out() -> None:
    text = TABLE.format(processes=NOBODY).replace("N/A   71C    P0             72W", "ERR!  ERR!  ERR!            ERR!")
    got = parse_nvidia_smi(text)
    assert got.temperature_c == Spread(35, 35, 35)


def test_the_file_is_read_with_its_lines_as_evidence(tmp_path: Path) -> None:
    path = tmp_path / "smi.txt"
    path.write_text(full(), encoding="utf-8")
    facts, evidence = read_device_file(path)
    assert facts.name == "NVIDIA L4"
    assert [str(one) for one in evidence] == [
        "device  NVIDIA L4: 19,211 of 23,034 MiB used, 88 °C, 71 W, SM clock 855 MHz, clocks held by SwPowerCap"
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_shell_that_wrote_the_file_does_not_matter(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "smi.txt"
    path.write_bytes(("\x1b[32m" + full().replace("\n", "\r\n")).encode(encoding))
    assert read_device_file(path)[0].knows_clock_reasons


def test_a_file_that_is_missing_or_foreign_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"--nvidia-smi is .*nowhere.*can't be read"):
        read_device_file(tmp_path / "nowhere")
    (tmp_path / "other").write_bytes(bytes(range(256)))
    with pytest.raises(InvalidInputError, match="is no output of nvidia-smi"):
        read_device_file(tmp_path / "other")


@given(st.text(max_size=400))
def test_no_text_breaks_the_reader(text: str) -> None:
    for made in (text, full() + text, TABLE.format(processes=text.replace("{", "")), f"name, memory.used\n{text}"):
        try:
            got = parse_nvidia_smi(made)
        except ForeignOutputError:
            continue
        assert isinstance(got, DeviceSnapshot)
        assert got.samples >= 1


@given(st.sets(st.sampled_from(list(CLOCK_REASONS.items()))))
def test_the_bits_of_a_column_are_the_names_of_the_report(reasons: set[tuple[int, str]]) -> None:
    bits = sum(bit for bit, _ in reasons)
    got = parse_nvidia_smi(f"name, temperature.gpu, clocks_event_reasons.active\nNVIDIA L4, 40, 0x{bits:016x}\n")
    assert {name for name, _ in got.clock_reasons} == {name for _, name in reasons}


def full_of(address: str, **more: str) -> str:
    """The report's block of the device at that address."""
    return "\n".join(full(**more).splitlines()[8:]).replace("00:03.0", address) + "\n"


def test_of_several_devices_the_one_that_is_slowed_is_named_with_its_own_heat() -> None:
    cool = full_of("00:04.0").replace("88 C", "95 C")
    got = parse_nvidia_smi(full(slow="Active").replace(": 1\nGPU", ": 2\nGPU") + cool)
    assert got.slowed is not None
    assert got.slowed.name == "GPU 00000000:00:03.0 of 2 x NVIDIA L4"
    assert got.slowed.temperature_c == Spread(88, 88, 88)
    assert [line.partition(":")[0] for line in got.lines] == ["GPU 00000000", "GPU 00000000"]
    assert len({line.partition(",")[0] for line in got.lines}) == 2
    assert parse_nvidia_smi(full(slow="Active")).slowed is None


def test_a_heat_that_no_chip_survives_and_a_memory_of_no_size_are_unknown() -> None:
    got = parse_nvidia_smi("index, name, temperature.gpu, memory.used, memory.total\n0, NVIDIA L4, 4294967295, 0, 0\n")
    assert (got.temperature_c, got.memory_used_bytes) == (None, None)
    empty = full().replace("88 C", "511 C").replace("23034 MiB", "0 MiB").replace("19211 MiB", "0 MiB")
    assert (parse_nvidia_smi(empty).temperature_c, parse_nvidia_smi(empty).memory_used_bytes) == (None, None)
    table = TABLE.format(processes=NOBODY).replace("19211MiB /  23034MiB", "    0MiB /      0MiB")
    assert parse_nvidia_smi(table).memory_used_bytes is None


@pytest.mark.parametrize(
    "text",
    [
        "index, name, temperature.gpu, memory.used\n1, NVIDIA L4, [Unknown Error], [Unknown Error]\n",
        "index, name, temperature.gpu, memory.used\n1, NVIDIA L4, [GPU is lost], [GPU is lost]\n",
        full().replace("88 C", "Unknown Error").replace("71.42 W", "Unknown Error"),
        full().replace("88 C", "GPU is lost"),
        TABLE.format(processes=NOBODY).replace("N/A   35C    P8 ", "ERR!  ERR!   ERR!"),
    ],
    ids=["unknown error", "lost", "-q", "-q, lost", "the table"],
)
def test_a_device_that_does_not_answer_is_told(text: str) -> None:
    got = parse_nvidia_smi(text)
    assert len(got.broken) == 1
    assert "does not answer its driver" in got.lines[-1]


def test_one_sensor_that_is_not_there_is_no_broken_device() -> None:
    assert not parse_nvidia_smi(TABLE.format(processes=NOBODY).replace("72W /   72W", "ERR! / ERR!")).broken


@pytest.mark.parametrize(
    "said",
    [
        "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.  Reboot the system to recover",
        "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error",
    ],
)
def test_a_lost_gpu_is_no_foreign_text(said: str) -> None:
    alone = parse_nvidia_smi(said + "\n")
    assert alone.broken == (("nvidia-smi", said),)
    assert alone.lines == (said,)
    assert parse_nvidia_smi(said + "\n" + full()).broken == (("nvidia-smi", said),), "the others are still reported"


def test_what_the_kernel_said_of_a_card_is_read_beside_a_report_and_alone() -> None:
    fell = "[81733.2] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    for text in (fell, fell * 3, full() + fell):
        (event,) = parse_nvidia_smi(text).xids
        assert (event.device, event.number, event.what) == ("0000:65:00", 79, "it has fallen off the bus")
        assert event.line.startswith("NVRM: Xid (PCI:0000:65:00): 79,")
    program = "Dec 23 23:30:56 host kernel: NVRM: Xid (0000:01:00): 31, Ch 00000010, MMU Fault\n"
    (event,) = parse_nvidia_smi(program).xids
    assert (event.device, event.number, event.what, event.cure) == ("0000:01:00", 31, None, None)


def test_what_the_kernel_said_of_a_card_before_it_recovered_is_over() -> None:
    said = "NVRM: Xid (PCI:0000:{}:00): {}\n"
    memory, stopped = said.format("65", "48, DBE (double bit error)"), said.format("66", "46, stopped")
    asks = said.format("65", "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    recovered = said.format("65", "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")

    def numbers(text: str) -> list[int]:
        return [event.number for event in parse_nvidia_smi(full() + text).xids]

    assert numbers(memory + asks + memory) == [154, 48], "the last one is last"
    assert numbers(memory + stopped + asks + recovered) == [46]
    assert numbers(memory + asks + recovered + memory) == [48]


def test_a_report_that_ends_in_the_middle_says_so() -> None:
    assert "cut off" in parse_nvidia_smi(full().partition("    Temperature")[0]).lines[-1]
    assert "cut off" in parse_nvidia_smi(full().replace(": 1\nGPU", ": 2\nGPU")).lines[-1]
    assert not any("cut off" in line for line in parse_nvidia_smi(full()).lines)


def test_devices_of_one_name_are_told_apart_whatever_the_name_holds() -> None:
    got = parse_nvidia_smi("index, name, temperature.gpu\n0, NVIDIA A100, 40\n1, NVIDIA A100, 41\n")
    assert got.lines == ("GPU 0, NVIDIA A100: 40 °C", "GPU 1, NVIDIA A100: 41 °C")
    nameless = parse_nvidia_smi("index, temperature.gpu\n0, 40\n1, 41\n")
    assert nameless.lines == ("GPU 0: 40 °C", "GPU 1: 41 °C")
