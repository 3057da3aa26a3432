"""A GPU is known by the line of its back end; a processor that calls itself a Vulkan device is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slotune.llama.log_devices import DEVICE_LINE, device_free, device_sizes, devices_found, devices_used, gpus_in_use
from slotune.llama.log_lines import parse_log

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("  Device 0: NVIDIA L4, compute capability 8.9, VMM: yes", ("NVIDIA L4",)),
        ("  Device 0: AMD Radeon RX 7900 XTX, gfx1100 (0x1100), VMM: no, Wave Size: 32", ("AMD Radeon RX 7900 XTX",)),
        ("using device CUDA0 (NVIDIA L4) - 22000 MiB free", ("NVIDIA L4",)),
        ("using device CUDA0 (NVIDIA L4) (0000:01:00.0) - 22000 MiB free", ("NVIDIA L4",)),
        (
            "using device Vulkan0 (Intel(R) Arc(TM) 130V GPU) (unknown id) - 900 MiB free",
            ("Intel(R) Arc(TM) 130V GPU",),
        ),
        ("ggml_vulkan: 0 = NVIDIA GeForce RTX 2060 (NVIDIA) | uma: 0 | fp16: 1", ("NVIDIA GeForce RTX 2060",)),
        ("ggml_vulkan: 0 = llvmpipe (LLVM 15.0.7, 256 bits) (llvmpipe) | uma: 1 | fp16: 1", ()),
        ("ggml_metal_init: found device: Apple M1 Max", ("Apple M1 Max",)),
        # Back ends whose device has no number (ggml-org/llama.cpp#9786).
        ("llama_new_context_with_model:       CANN compute buffer size =  1260.50 MiB", ("CANN",)),
        ("llama_context:      Metal compute buffer size =   517.00 MiB", ("Metal",)),
        ("llama_context:  Vulkan_Host compute buffer size =    20.00 MiB", ()),
        ("  - CUDA0   : NVIDIA L4 (22565 MiB, 22317 MiB free)", ("NVIDIA L4",)),
        ("  - CPU     : AMD EPYC 7B13 (64000 MiB, 60000 MiB free)", ()),
        ("|   - CUDA0 (L4)           | 22565 = 21000 + (1000 =   500 +     300 +     200) +         565 |", ("L4",)),
        ("|   - Host                 |                  294 =    92 +     180 +      22                |", ()),
        ("ggml_cuda_init: found 2 ROCm devices:", ("2 ROCm devices",)),
        ("ggml_vulkan: Found 1 Vulkan devices:", ("1 Vulkan device",)),
        ("Found 1 SYCL devices:", ("1 SYCL device",)),
        (
            "| 0| [level_zero:gpu:0]|   Intel Arc A770 Graphics|  12.55|    512|    1024|   32| 16225M|   1.3.27642|",
            ("Intel Arc A770 Graphics",),
        ),
        (
            "| 1|     [opencl:cpu:0]|     13th Gen Intel Core i9|    3.0|     32|    8192|   64| 67181M|   2024.17.5|",
            (),
        ),
        ("llama_context:      CUDA0 compute buffer size =  1480.00 MiB", ("CUDA0",)),
        ("llama_context:        CPU compute buffer size =    15.01 MiB", ()),
        ("load_backend: loaded CUDA backend from /app/libggml-cuda.so", ()),
        ("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", ()),
        ("ggml_vulkan: No devices found.", ()),
    ],
)
def test_each_back_ends_words_name_its_device(line: str, devices: tuple[str, ...]) -> None:
    assert devices_found(line) == devices
    assert bool(re.search(DEVICE_LINE, line)) or not devices


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("cuda_unused", ("NVIDIA L4",)),
        ("cuda_unused_new_build", ("NVIDIA L4", "NVIDIA A10G")),
        ("vulkan_unused", ("AMD Radeon RX 7900 XTX (RADV NAVI31)",)),
        ("cuda_old_build", ("NVIDIA GeForce RTX 4090",)),
        ("cuda_no_driver", ()),
        ("gpu_build_without_gpu", ()),
        ("all_defaults", ()),
    ],
)
def test_a_device_that_is_named_several_times_counts_once(name: str, devices: tuple[str, ...]) -> None:
    assert parse_log((LOGS / f"{name}.log").read_text(encoding="utf-8")).devices == devices


TWO = """\
  - CUDA0   : NVIDIA L4 (22565 MiB, 22317 MiB free)
  - CUDA1   : NVIDIA L4 (22565 MiB, 22317 MiB free)
  - CPU     : AMD EPYC 7B13 (64000 MiB, 60000 MiB free)
"""


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        pytest.param(TWO, 2, id="two of one name"),
        pytest.param(
            "ggml_cuda_init: found 2 CUDA devices:\n  Device 0: NVIDIA L4, compute capability 8.9\n", 2, id="counted"
        ),
        pytest.param(TWO + "using device CUDA0 (NVIDIA L4) - 22000 MiB free\n", 1, id="one of two is used"),
        pytest.param(
            TWO
            + "load_tensors:  CUDA0 model buffer size = 10.00 MiB\nload_tensors:  CUDA1 model buffer size = 9.00 MiB\n",
            2,
            id="both are used",
        ),
        pytest.param(TWO + TWO.replace("CUDA", "Vulkan"), 2, id="two back ends find the same"),
        pytest.param(
            "ggml_vulkan: 0 = llvmpipe (LLVM 15.0.7, 256 bits) (llvmpipe) | uma: 1 | fp16: 1\n", 0, id="a processor"
        ),
        pytest.param("ggml_metal_init: found device: Apple M1 Max\n", 1, id="without a number"),
        pytest.param("  - CPU     : AMD EPYC 7B13 (64000 MiB, 60000 MiB free)\n", 0, id="none"),
    ],
)
def test_gpus_are_counted_as_many_as_the_model_lies_on(text: str, gpus: int) -> None:
    assert gpus_in_use(text) == gpus
    assert parse_log(text).gpus == gpus


MIB = 2**20
SYCL = "| {}|[level_zero:gpu:{}]|    Intel(R) Arc(TM) A770 Graphics|       1.3|        512|    1024|     32|    {}|\n"
METAL = """\
ggml_metal_init: found device: Apple M4 Max
ggml_metal_init: GPU name:   Apple M4 Max
ggml_metal_init: recommendedMaxWorkingSetSize  = 28991.03 MB
"""


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes, VRAM: 12037 MiB\n", (12037 * MIB,)),
        ("  - CUDA0   : NVIDIA GeForce RTX 3060 (12037 MiB, 11909 MiB free)\n", (12037 * MIB,)),
        ("- CUDA0 (NVIDIA GeForce RTX 3060):  12037 total,  9000 used\n", (12037 * MIB,)),
        ("|   - CUDA0 (RTX 3060) | 12037 = 11000 + ( 500 = 300 + 100 + 100) + 537 |\n", (12037 * MIB,)),
        (SYCL.format(0, 0, 16225243136), (16225243136,)),
        (SYCL.format(0, 0, "16225M"), (16_225_000_000,)),
        (SYCL.format(0, 0, 16225243136) + SYCL.format(1, 1, 8096681984), (16225243136, 8096681984)),
        (METAL, (28_991_000_000,)),
        ("  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes\n", None),
    ],
)
def test_the_memory_of_each_device_is_read_where_a_line_has_it(text: str, sizes: tuple[int, ...] | None) -> None:
    found = device_sizes(text)
    assert list(found.values()) == ([] if sizes is None else [sizes])
    assert set(found) <= set(devices_found(text))
    assert parse_log(text).device_sizes == found


def test_what_was_free_is_what_a_device_has_at_least() -> None:
    text = """\
using device CUDA0 (NVIDIA GeForce RTX 3060) - 7909 MiB free
using device CUDA1 (NVIDIA GeForce RTX 3060) (0000:02:00.0) - 11909 MiB free
"""
    assert device_free(text) == parse_log(text).device_free == {"NVIDIA GeForce RTX 3060": 11909 * MIB}
    assert not device_sizes(text)


LISTED = """\
  - Vulkan0 : AMD Radeon RX 7900 XT (RADV NAVI31) (20464 MiB, 20400 MiB free)
  - Vulkan1 : AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO) (16000 MiB, 15000 MiB free)
"""
TAKEN = "using device Vulkan0 (AMD Radeon RX 7900 XT (RADV NAVI31)) (unknown id) - 20400 MiB free\n"
BUFFER = "load_tensors:      Vulkan{} model buffer size =  {} MiB\n"
FIRST = "AMD Radeon RX 7900 XT (RADV NAVI31)"
SECOND = "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)"


@pytest.mark.parametrize(
    ("text", "used"),
    [
        pytest.param(LISTED, (), id="nobody says"),
        pytest.param(LISTED + TAKEN, (FIRST,), id="one is taken"),
        pytest.param(LISTED + BUFFER.format(0, "8000.00"), (FIRST,), id="one holds it"),
        pytest.param(LISTED + BUFFER.format(0, "8000.00") + BUFFER.format(1, "0.00"), (FIRST,), id="one holds nothing"),
        pytest.param(LISTED + TAKEN + BUFFER.format(1, "80.00"), (SECOND,), id="the other holds it"),
        pytest.param(
            LISTED + BUFFER.format(0, "80.00") + BUFFER.format(1, "80.00"), (FIRST, SECOND), id="both hold it"
        ),
        pytest.param(TAKEN + BUFFER.format(1, "80.00"), (FIRST,), id="who holds it has no name"),
        pytest.param("ggml_metal_init: found device: Apple M1\n" + BUFFER.format(0, "80.00"), (), id="no names"),
    ],
)
def test_the_devices_that_a_model_lies_on_are_told_from_those_that_were_found(text: str, used: tuple[str, ...]) -> None:
    assert devices_used(text) == parse_log(text).devices_used == used
