"""A device is known by the name that its driver, llama.cpp or a node gives it, and by no name that only looks alike."""

from __future__ import annotations

import pytest

from slotune.diagnose.accelerators import is_part_of_device, known_accelerator


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA L4", 300e9),
        ("2 x NVIDIA L40S", 864e9),
        ("NVIDIA-A10G", 600e9),
        ("Tesla T4", 320e9),
        ("Tesla V100-SXM2-32GB", 900e9),
        ("NVIDIA A100-SXM4-80GB", 2039e9),
        ("NVIDIA-A100-SXM4-40GB-SHARED", 1555e9),
        ("NVIDIA H100 PCIe", 2039e9),
        ("NVIDIA H100 80GB HBM3", 3350e9),
        ("NVIDIA H200", 4917e9),
        ("NVIDIA B200", 8184e9),
        ("NVIDIA GB10", 273e9),
        ("NVIDIA GeForce RTX 2080 Ti", 616e9),
        ("NVIDIA GeForce RTX 3060", 360e9),
        ("NVIDIA GeForce RTX 3090 Ti", 1008e9),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 672e9),
        ("NVIDIA GeForce RTX 4090", 1008e9),
        ("NVIDIA GeForce RTX 4090 D", 1008e9),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 576e9),
        ("NVIDIA GeForce RTX 5090", 1792e9),
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", 672e9),
        ("NVIDIA RTX 4000 SFF Ada Generation", 280e9),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1792e9),
        ("NVIDIA RTX A6000", 768e9),
        ("Quadro RTX 6000", 672e9),
        ("NVIDIA Jetson AGX Orin", 205e9),
        ("AMD Instinct MI300X", 5325e9),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", 960e9),
        ("AMD Radeon RX 9070 XT", 645e9),
        ("AMD Radeon 8060S Graphics (RADV GFX1151)", 256e9),
        ("Apple M1", 68.3e9),
        ("Apple M3 Pro", 153.6e9),
        ("Apple M4 Max", 546e9),
        ("Intel(R) Arc(TM) A770 Graphics", 560e9),
        ("Intel(R) Arc(tm) B580 Graphics (BMG G21)", 456e9),
    ],
)
def test_names_as_drivers_write_them_are_known(name: str, bandwidth: float):
    found = known_accelerator(name)
    assert found is not None
    assert found[0] == pytest.approx(bandwidth)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA GeForce RTX 3060", 360e9),  # 8 GB: 240
        ("NVIDIA GeForce RTX 3080", 912e9),  # 10 GB: 760
        ("NVIDIA GeForce RTX 3050 Laptop GPU", 224e9),  # 6 GB: 168
        ("NVIDIA GeForce GTX 1060 6GB", 217e9),  # of most: 192
        ("Apple M4 Max", 546e9),  # 32 cores: 410
        ("Apple M5 Max", 614.4e9),  # 32 cores: 460
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", 560e9),  # 8 GB: 512
        ("NVIDIA RTX 2000 Ada Generation", 256e9),  # by its sheet 224
    ],
)
def test_of_several_memories_behind_one_name_the_fastest_bounds(name: str, bandwidth: float):
    found = known_accelerator(name)
    assert found is not None
    assert found[0] == pytest.approx(bandwidth)


GIB = 2**30
MIB = 2**20
RTX = "NVIDIA GeForce RTX "


@pytest.mark.parametrize(
    ("name", "size", "bandwidth"),
    [
        (f"{RTX}3060", 12037 * MIB, 360e9),
        (f"{RTX}3060", 8191 * MIB, 240e9),
        (f"{RTX}3080", 10001 * MIB, 760e9),
        (f"{RTX}3080", 12288 * MIB, 912e9),
        (f"{RTX}3050", 5918 * MIB, 168e9),
        (f"{RTX}3050", 8192 * MIB, 224e9),
        (f"{RTX}4060 Ti", 16380 * MIB, 288e9),
        (f"{RTX}4060 Ti", 8188 * MIB, 288e9),
        ("NVIDIA GeForce GTX 1060 3GB", 3018 * MIB, 192e9),
        ("Intel(R) Arc(TM) A770 Graphics", 15473 * MIB, 560e9),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", 8096 * MIB, 512e9),
        ("Orin", 62841 * MIB, 205e9),
        ("Orin", 30697 * MIB, 205e9),
        ("Orin", 15655 * MIB, 102.4e9),
        ("Apple M4 Max", 28_991_000_000, 410e9),  # 36 GB, 32 cores
        ("Apple M4 Max", 38_654_000_000, 546e9),  # 48 GB
        ("Apple M3 Max", 77_309_000_000, 300e9),  # 96 GB, 30 cores
        ("Apple M3 Max", 51_539_000_000, 410e9),  # 64 GB
    ],
)
def test_cards_that_share_a_name_are_told_apart_by_their_memory(name: str, size: int, bandwidth: float):
    found = known_accelerator(name, (size,))
    assert found is not None
    assert found.bandwidth == pytest.approx(bandwidth)


@pytest.mark.parametrize(
    ("name", "sizes", "at_least", "slowest"),
    [
        (f"{RTX}3060", (), 0, 240e9),
        (f"{RTX}3060", (), 11909 * MIB, 360e9),  # more was free than one of 8 GB has
        (f"{RTX}3060", (), 7000 * MIB, 240e9),
        (f"{RTX}3060", (8191 * MIB, 12288 * MIB), 0, 240e9),  # one of each
        (f"{RTX}3060", (20 * GIB,), 0, 240e9),  # none that is known
        (f"{RTX}3060 Ti", (8191 * MIB,), 0, 448e9),  # GDDR6 and GDDR6X, both of 8 GB
        (f"{RTX}4070", (12282 * MIB,), 0, 480e9),
        ("NVIDIA GeForce GTX 1060 6GB", (6078 * MIB,), 0, 192e9),
        ("Orin", (7620 * MIB,), 0, 68e9),
        ("NVIDIA L4", (), 0, 300e9),
    ],
)
def test_what_a_name_leaves_open_has_the_slowest_beside_the_fastest(
    name: str, sizes: tuple[int, ...], at_least: int, slowest: float
):
    found = known_accelerator(name, sizes, at_least)
    assert found is not None
    assert found.slowest_bandwidth == pytest.approx(slowest)
    assert found.slowest_bandwidth <= found.bandwidth


@pytest.mark.parametrize(("name", "bandwidth"), [("RTX 3060 8GB", 240e9), ("NVIDIA-GeForce-GTX-1060-3GB", 192e9)])
def test_a_size_in_the_name_counts_where_nobody_measured_it(name: str, bandwidth: float):
    found = known_accelerator(name)
    assert found is not None
    assert found.bandwidth == found.slowest_bandwidth == pytest.approx(bandwidth)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA-GeForce-RTX-4090", 1008e9),
        ("NVIDIA GeForce RTX 5060 Laptop GPU", 384e9),
        ("NVIDIA GeForce RTX 5060", 448e9),
        ("NVIDIA A100-PCIE-40GB", 1555e9),
        ("NVIDIA A100 80GB PCIe", 1935e9),
        ("NVIDIA-A100-SXM-80GB", 2039e9),
        ("NVIDIA H100 NVL", 3938e9),
        ("NVIDIA H20", 4022e9),
        ("NVIDIA H20-3e", 4917e9),
        ("NVIDIA GH200 480GB", 4022e9),
        ("NVIDIA GH200 144G HBM3e", 4917e9),
        ("NVIDIA A10", 600e9),
        ("NVIDIA L40", 864e9),
        ("Tesla V100-SXM2-16GB", 900e9),
        ("Tesla V100-SXM3-32GB", 981e9),
        ("Tesla V100S-PCIE-32GB", 1134e9),
        ("NVIDIA RTX 6000 Ada Generation", 960e9),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 1597e9),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 1792e9),
        ("AMD Instinct MI210", 1638e9),
        ("AMD Instinct MI250X / MI250", 1638e9),
        ("AMD Instinct MI60 / MI50", 1024e9),
        ("AMD Radeon PRO W7800 48GB", 864e9),
        ("AMD Radeon PRO W7800", 576e9),
        ("AMD Radeon RX 7900 XTX", 960e9),
        ("Radeon 8060S Graphics", 256e9),
        ("AMD Radeon 8060S Graphics (RADV STRIX_HALO)", 256e9),
    ],
)
def test_a_variant_is_not_taken_for_another_one(name: str, bandwidth: float):
    found = known_accelerator(name)
    assert found is not None
    assert found[0] == pytest.approx(bandwidth)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", True),
        ("NVIDIA-A100-SXM4-80GB-MIG-INVALID", True),
        ("NVIDIA A100-SXM4-80GB 2g.20gb", True),
        ("NVIDIA A10-4Q", True),
        ("NVIDIA H200-1-18CME", True),
        ("GRID T4-8Q", True),
        ("AMD Instinct MI300X CPX", True),
        ("NVIDIA A100-SXM4-40GB", False),
        ("Tesla-T4-SHARED", False),
        ("AMD Instinct MI300X SPX", False),
        ("Apple M4 Max", False),
    ],
)
def test_a_part_of_a_device_is_told_by_its_name(name: str, part: bool):
    assert is_part_of_device(name) is part
    assert (known_accelerator(name) is None) is part


@pytest.mark.parametrize(
    "name",
    [
        "L400",
        "NVIDIA T400",
        "cpu-core",
        "",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
        "NVIDIA GeForce RTX 4050 SUPER",
        "NVIDIA GeForce RTX 5090 D v2",
        "NVIDIA GeForce RTX 3090 Laptop GPU",
        "NVIDIA RTX 5000 Ada Generation Laptop GPU",
        "NVIDIA GeForce RTX 2080 with Max-Q Design",
        "NVIDIA RTX A2000 Laptop GPU",
        "NVIDIA A10-4Q",
        "GRID T4-8Q",
        "Orin",
        "Apple M4 Ultra",
        "Apple M5 Ultra",
        "AMD Radeon Graphics",
        "AMD Radeon Graphics (RADV GFX1151)",
        "gfx1100",
        "AMD Radeon RX 9070 GRE",
        "NVIDIA RTX A2000 Embedded GPU",
        "NVIDIA RTX PRO 4000 Blackwell SFF Edition",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA H100 64GB HBM2",
        "Intel(R) Data Center GPU Max 1550",
        "AMD Radeon RX 7900 XT/7900 XTX/7900 GRE",
        "Intel(R) Arc(TM) A770M Graphics",
        "Intel(R) Arc(TM) 140V GPU",
    ],
)
def test_a_name_that_only_looks_alike_is_not_known(name: str):
    assert known_accelerator(name) is None


@pytest.mark.parametrize(
    ("name", "sparse", "times"),
    [("NVIDIA GeForce RTX 4090", 1321e12, 2), ("NVIDIA GeForce RTX 5090", 3352e12, 4), ("NVIDIA L4", 485e12, 2)],
)
def test_operations_are_of_dense_matrices_at_8_bits(name: str, sparse: float, times: int):
    """Half of what a sheet states with sparsity, a quarter of what it states with FP4 as well."""
    found = known_accelerator(name)
    assert found is not None
    assert found[1] == pytest.approx(sparse / times, rel=0.005)
