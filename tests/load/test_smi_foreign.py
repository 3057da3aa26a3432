"""What is brought in place of nvidia-smi's output is named, with what to bring: people have a dozen monitors."""

from __future__ import annotations

import time

import pytest

from slotune.load.nvidia_smi import ForeignOutputError, parse_nvidia_smi

ROCM = """\
======================================== ROCm System Management Interface ========================================
Device  Node  IDs              Temp    Power  Partitions          SCLK     MCLK     Fan    Perf  PwrCap  VRAM%  GPU%
0       1     0x744c,   19803  45.0°C  20.0W  N/A, N/A, 0         31Mhz    96Mhz    0%     auto  303.0W  92%    0%
"""
AMD = """\
+------------------------------------------------------------------------------+
| AMD-SMI 26.0.0+37d158ab    amdgpu version: 6.14.14 ROCm version: 7.0.0       |
"""
INTEL = "intel-gpu-top: Intel Alderlake_s (Gen12) @ /dev/dri/card0 - 1199/1199 MHz;   0% RC6\n\n   ENGINES     BUSY\n"
XPU = "| Device ID                   | 0       |\n| GPU Utilization (%)         | 98      |\n"
NVTOP = " Device 0 [NVIDIA GeForce RTX 3090] PCIe GEN 4@16x RX: 0.000 KiB/s\n GPU 1695MHz MEM 9501MHz TEMP  61°C\n"
GPUSTAT = "host  Tue Mar  3 09:58:12 2026  570.133.07\n[0] NVIDIA L4        | 71°C,  98 % | 19211 / 23034 MB |\n"
TEGRA = "RAM 5120/7620MB (lfb 4x4MB) SWAP 0/3810MB CPU [5%@1510] EMC_FREQ 80%@3199 GR3D_FREQ 99%@[1015] gpu@62C\n"
DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk
# Idx      W      C      C      %      %      %      %    MHz    MHz
    0     71     65      -     98     80      0      0   6251   1980
"""
TOPO = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\t0-31\t0\n"


@pytest.mark.parametrize(
    ("text", "what", "cure"),
    [
        (ROCM, "is of rocm-smi", "leave --nvidia-smi out"),
        (AMD, "is of amd-smi", "leave --nvidia-smi out"),
        ("GPU: 0\n    USAGE:\n        GFX_ACTIVITY: 98 %\n", "is of amd-smi", "--bandwidth"),
        (INTEL, "is of intel_gpu_top", "--bandwidth"),
        (XPU, "is of xpu-smi", "--bandwidth"),
        (TEGRA, "is of tegrastats", "--gpu-class"),
        ("**** GPU usage ****\nGPU HW active frequency: 1578 MHz\n", "is of powermetrics", "--bandwidth"),
        (NVTOP, "is of nvtop", "give the output of nvidia-smi -q"),
        (GPUSTAT, "is of gpustat", "give the output of nvidia-smi -q"),
        (DMON, "dmon", "give the output of nvidia-smi -q"),
        (TOPO, "how the devices are connected", "give the output of nvidia-smi -q"),
        ("NVIDIA System Management Interface -- v570.133.07\n", "the help", "give the output of nvidia-smi -q"),
        ("bash: nvidia-smi: command not found\n", "command not found", "on the GPU's machine"),
        ('Field "clocks.foo" is not a valid field to query.\n', "clocks.foo", "needs no names of columns"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "mismatch", "reboot the machine"),
        ("0, NVIDIA L4, 71, 71.42 W, 19211 MiB\n", "columns of which nobody says", "without noheader"),
        ("index, name, uuid\n0, NVIDIA L4, GPU-1\n", "no column that tells", "nvidia-smi -q"),
        ("name, memory.used [MiB]\n", "no row below its header", "nvidia-smi -q"),
        ("pid, process_name, used_gpu_memory [MiB]\n8, x, 1 MiB\n", "processes and no device", "nvidia-smi -q"),
    ],
    ids=lambda value: value.strip()[:24],
)
def test_what_is_no_report_is_named_with_what_to_bring(text: str, what: str, cure: str) -> None:
    with pytest.raises(ForeignOutputError) as caught:
        parse_nvidia_smi(text)
    said = str(caught.value)
    assert what in said
    assert cure in said
    assert "\n" not in said
    assert len(said) < 400


@pytest.mark.parametrize("line", ["a\n", "  a\n", "a, b\n", "> \n", "x" * 4096])
def test_a_large_file_that_is_none_is_refused_without_reading_it_line_by_line(line: str) -> None:
    began = time.process_time()
    with pytest.raises(ForeignOutputError, match="no output of nvidia-smi"):
        parse_nvidia_smi(line * (4_000_000 // len(line)))
    assert time.process_time() - began < 2.0
