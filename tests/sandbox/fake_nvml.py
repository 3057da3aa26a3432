"""Stands for the module ``pynvml``: devices whose state a test sets, and what a driver may refuse to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class FakeDevice:
    """One GPU. A quantity that is None is one that its driver does not know."""

    name: str | bytes = "NVIDIA L4"
    uuid: str = "GPU-11111111"
    sm_clock: int | None = 2040
    memory_clock: int | None = 6251
    power_mw: int | None = 71_500
    temperature: int | None = 62
    reasons: int | None = 0
    processes: dict[int, int | None] = field(default_factory=dict)
    mig_mode: int | None = None
    gone: bool = False


class FakeNvml:
    """As much of ``pynvml`` as slotune calls. ``calls`` holds (function, name of the thread)."""

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        """The one class that all of NVML's errors are."""

    def __init__(self, *devices: FakeDevice, driver: bool = True, names: Sequence[str] = ("Event", "Throttle")) -> None:
        self.devices = devices
        self.driver = driver
        self.calls: list[tuple[str, str]] = []
        self.looked = threading.Event()
        self.closed = threading.Event()
        for word in names:
            setattr(self, f"nvmlDeviceGetCurrentClocks{word}Reasons", self._reasons)

    def nvmlInit(self) -> None:
        self._called("nvmlInit")
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self._called("nvmlShutdown")
        self.closed.set()

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeDevice:
        return self.devices[index]

    def nvmlDeviceGetName(self, device: FakeDevice) -> str | bytes:
        self._called("nvmlDeviceGetName")
        self.looked.set()
        return self._known(device, lambda it: it.name)

    def nvmlDeviceGetMigMode(self, device: FakeDevice) -> list[int]:
        return [self._known(device, lambda it: it.mig_mode), 0]

    def nvmlDeviceGetUUID(self, device: FakeDevice) -> str:
        return device.uuid

    def nvmlDeviceGetClockInfo(self, device: FakeDevice, kind: int) -> int:
        return self._known(device, lambda it: it.sm_clock if kind == self.NVML_CLOCK_SM else it.memory_clock)

    def nvmlDeviceGetPowerUsage(self, device: FakeDevice) -> int:
        return self._known(device, lambda it: it.power_mw)

    def nvmlDeviceGetTemperature(self, device: FakeDevice, kind: int) -> int:
        assert kind == self.NVML_TEMPERATURE_GPU
        return self._known(device, lambda it: it.temperature)

    def nvmlDeviceGetComputeRunningProcesses(self, device: FakeDevice) -> list[SimpleNamespace]:
        held = self._known(device, lambda it: it.processes)
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in held.items()]

    def _reasons(self, device: FakeDevice) -> int:
        return self._known(device, lambda it: it.reasons)

    def _known(self, device: FakeDevice, get: Callable[[FakeDevice], Any]) -> Any:
        value = get(device)
        if device.gone or value is None:
            raise self.NVMLError("Not Supported")
        return value

    def _called(self, name: str) -> None:
        self.calls.append((name, threading.current_thread().name))
