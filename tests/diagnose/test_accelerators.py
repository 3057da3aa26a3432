"""A device is known by the name that its driver, llama.cpp or a node gives it, and by no name that only looks alike."""

from __future__ import annotations

import pytest

from slotune.diagnose.accelerators import known_accelerator


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
        ("NVIDIA H100 PCIe", 2000e9),
        ("NVIDIA H100 80GB HBM3", 3350e9),
        ("NVIDIA H200", 4800e9),
        ("NVIDIA B200", 8000e9),
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
        ("AMD Instinct MI300X", 5300e9),
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
        "Apple M5 Max",
        "AMD Radeon Graphics",
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
