"""A device is told by its name, a part of one is never counted as several."""

from __future__ import annotations

from decimal import Decimal

import pytest

from slotune.api.gpu_resources import devices_in, is_gpu_class, is_gpu_part, is_gpu_resource


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb.me",
        "nvidia.com/gpu-10gb", "amd.com/gpu", "amd.com/cpx_nps4", "gpu.intel.com/i915", "gpu.intel.com/xe",
        "habana.ai/gaudi", "google.com/tpu", "huawei.com/Ascend910", "huawei.com/Ascend310P", "huawei.com/npu",
        "cambricon.com/mlu370", "cambricon.com/vmlu", "aliyun.com/gpu", "aliyun.com/gpu-count", "aws.amazon.com/neuron",
        "volcano.sh/vgpu-number", "volcano.sh/gpu-number", "metax-tech.com/sgpu", "hygon.com/dcunum",
        "qualcomm.com/qaic", "kunlunxin.com/xpu", "enflame.com/gcu", "example.com/gpu",
    ],
)  # fmt: skip
def test_two_of_a_device_are_two(name: str) -> None:
    assert is_gpu_resource(name)
    assert [devices_in(name, Decimal(amount)) for amount in (0, 1, 2)] == [0, 1, 2]


@pytest.mark.parametrize(
    "name",
    [
        "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "gpu.intel.com/millicores", "gpu.intel.com/memory.max",
        "gpu.intel.com/tiles", "gpu.intel.com/i915_monitoring", "koordinator.sh/gpu-memory", "nvidia.com/gpumem",
        "nvidia.com/gpucores", "nvidia.com/gpumem-percentage", "tencent.com/vcuda-memory", "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-cores", "aws.amazon.com/neuroncore", "mthreads.com/sgpu-core", "huawei.com/Ascend910-memory",
    ],
)  # fmt: skip
def test_a_part_of_a_device_is_none_however_much(name: str) -> None:
    assert is_gpu_resource(name)
    assert devices_in(name, Decimal(500)) == 0


@pytest.mark.parametrize(("amount", "want"), [(50, 0), (100, 0), (150, 2), (200, 2)])
def test_beyond_a_hundred_percent_there_are_several(amount: int, want: int) -> None:
    names = ("koordinator.sh/gpu", "koordinator.sh/gpu-core", "tencent.com/vcuda-core")
    assert {devices_in(name, Decimal(amount)) for name in names} == {want}


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("nvidia.com/mig-1g.5gb", 1), ("nvidia.com/mig-3g.40gb.me", 2), ("amd.com/cpx_nps4", 1),
        ("amd.com/dpx_nps1", 8), ("nvidia.com/gpucores", 30), ("volcano.sh/vgpu-cores", 50),
        ("aliyun.com/gpu-core.percentage", 25), ("koordinator.sh/gpu", 50), ("koordinator.sh/gpu-core", 150),
        ("tencent.com/vcuda-core", 20),
    ],
)  # fmt: skip
def test_a_partition_or_a_share_of_the_cores_has_a_part_of_the_bandwidth(name: str, amount: int) -> None:
    assert is_gpu_part(name, Decimal(amount))
    assert not is_gpu_part(name, Decimal(0))


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("nvidia.com/gpu", 1), ("nvidia.com/gpu.shared", 1), ("amd.com/gpu", 2), ("amd.com/spx_nps1", 1),
        ("nvidia.com/gpucores", 100), ("koordinator.sh/gpu", 200), ("nvidia.com/gpumem", 4000),
        ("nvidia.com/gpumem-percentage", 50), ("koordinator.sh/gpu-memory-ratio", 50), ("cpu", 1),
        ("example.com/migration", 1),
    ],
)  # fmt: skip
def test_a_whole_device_has_all_of_its_bandwidth_whoever_shares_it(name: str, amount: int) -> None:
    assert not is_gpu_part(name, Decimal(amount))


@pytest.mark.parametrize(
    "name",
    ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "rdma/hca", "nvidia.com/hostdev", "intel.com/sgx", "gpu",
     "example.com/fpga", "gpu.example.com/nic", "smarter-devices/fuse", "intel.com/memory"],
)  # fmt: skip
def test_what_is_no_gpu_is_none(name: str) -> None:
    assert not is_gpu_resource(name)
    assert devices_in(name, Decimal(8)) == 0


def test_classes_of_networks_are_told_from_those_of_gpus() -> None:
    assert all(map(is_gpu_class, ("gpu.nvidia.com", "mig.nvidia.com", "a100", "tpu.google.com", "netflix-gpus")))
    assert not any(map(is_gpu_class, ("rdma.example.com", "dranet", "nic.example.com", "sriov-ib", "dra.cpu")))
