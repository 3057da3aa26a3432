"""NVIDIA's own view of its devices, where there are any: read-only, without a CUDA context or memory of its own.

``nvidia-ml-py`` is optional and its library comes with the driver, so each of them may be missing: then there is
nothing to read, and nobody is told. What a driver does not know about one quantity (a laptop's power, a MIG slice's
clocks) leaves that quantity out.

Which devices are the server's? Those that its processes are on, by their PIDs; else those that its environment names,
as CUDA reads ``CUDA_VISIBLE_DEVICES`` (CUDA C++ Programming Guide, "CUDA Environment Variables"): UUIDs, or indices,
which count from the fastest device unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``, while NVML counts along the bus.
Where neither tells, all devices are looked at and each reading says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from slotune.load.device_facts import SLICED, Reading

__all__ = ["Nvml", "import_pynvml"]

T = TypeVar("T")

VISIBLE, ORDER, ALONG_THE_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"


def import_pynvml() -> ModuleType | None:
    """The module that ``nvidia-ml-py`` installs; None without it."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


class Nvml:
    """The devices that one server may use. :meth:`open` it, and :meth:`close` it from the thread that reads."""

    def __init__(self, library: Any, devices: Sequence[Any], own: frozenset[int]) -> None:
        self._library, self._devices, self._own = library, devices, own
        self._of_server = True

    @classmethod
    def open(cls, library: Any, *, own: frozenset[int], environ: Mapping[str, str] | None) -> Nvml | None:
        """The devices to look at; None where there is no driver, or no device.

        Args:
            library: the module ``pynvml``, or one with its names.
            own: processes of the server. Only devices that they are on count; none of them shows where NVML and the
                server live in different PID namespaces, and then every device counts that the server may see.
            environ: the server's environment; None where nobody knows it.
        """
        try:
            library.nvmlInit()
        except library.NVMLError:
            return None
        nvml = cls(library, (), own)
        found = range(nvml._ask(library.nvmlDeviceGetCount) or 0)
        handles = [nvml._ask(library.nvmlDeviceGetHandleByIndex, index) for index in found]
        devices = [handle for handle in handles if handle is not None]
        used = [device for device in devices if own & nvml._processes(device).keys()]
        nvml._devices, nvml._of_server = (used, True) if used else nvml._visible(devices, environ)
        if nvml._devices:
            return nvml
        nvml.close()
        return None

    def close(self) -> None:
        """Let go of the library."""
        self._ask(self._library.nvmlShutdown)

    def read(self) -> tuple[Reading, ...]:
        """One reading per device; without those that do not answer any more."""
        readings = (self._reading(device) for device in self._devices)
        return tuple(reading for reading in readings if reading is not None)

    def _reading(self, device: Any) -> Reading | None:
        library = self._library
        name = self._ask(library.nvmlDeviceGetName, device)
        if name is None:
            return None
        power_mw = self._ask(library.nvmlDeviceGetPowerUsage, device)
        processes = self._processes(device)
        others = {pid: held for pid, held in processes.items() if pid not in self._own}
        told_apart = len(others) < len(processes)
        text = name.decode() if isinstance(name, bytes) else name
        return Reading(
            name=text + SLICED if self._is_sliced(device) else text,
            sm_clock_mhz=self._ask(library.nvmlDeviceGetClockInfo, device, library.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(library.nvmlDeviceGetClockInfo, device, library.NVML_CLOCK_MEM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=self._ask(library.nvmlDeviceGetTemperature, device, library.NVML_TEMPERATURE_GPU),
            clock_reasons=self._clock_reasons(device),
            others=len(others) if told_apart else None,
            others_memory_bytes=sum(others.values()) if told_apart else 0,
            uuid=self._uuid(device),
            of_server=self._of_server,
        )

    def _is_sliced(self, device: Any) -> bool:
        # Bindings from before MIG lack the call; the answer is (now, after a reset).
        call = getattr(self._library, "nvmlDeviceGetMigMode", None)
        modes = None if call is None else self._ask(call, device)
        return bool(modes and modes[0])

    def _clock_reasons(self, device: Any) -> int:
        # Drivers from 535 on say "event", older ones and their bindings "throttle"; the bits are the same.
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            call = getattr(self._library, name, None)
            bits = None if call is None else self._ask(call, device)
            if bits is not None:
                return int(bits)
        return 0

    def _processes(self, device: Any) -> dict[int, int]:
        """Bytes that each process computes with, by its PID; 0 where the driver does not say (MIG, other users')."""
        running = self._ask(self._library.nvmlDeviceGetComputeRunningProcesses, device) or ()
        return {process.pid: process.usedGpuMemory or 0 for process in running}

    def _visible(self, devices: Sequence[Any], environ: Mapping[str, str] | None) -> tuple[Sequence[Any], bool]:
        """(devices that a server with this environment may see, whether it computes on all of them).

        CUDA takes what is named up to the first word that names nothing; an empty list hides every device.
        """
        if environ is None:
            return devices, False
        named = environ.get(VISIBLE)
        if named is None:
            return devices, True
        in_order = len(devices) == 1 or environ.get(ORDER) == ALONG_THE_BUS
        chosen: list[Any] = []
        by_index = False
        for word in map(str.strip, named.split(",")):
            if word.startswith("MIG-"):
                return devices, False  # which device it is a slice of is not in its name
            found = self._named(devices, word)
            if found is None:
                break
            by_index = by_index or word.isdigit()
            chosen.append(found)
        if by_index and not in_order and len(set(map(id, chosen))) < len(devices):
            return devices, False
        return chosen, True

    def _named(self, devices: Sequence[Any], word: str) -> Any | None:
        """The device with this index, or (beginning of a) UUID; None when there is no such one, or several."""
        if word.isascii() and word.isdigit():
            return devices[int(word)] if int(word) < len(devices) else None
        alike = [device for device in devices if word.startswith("GPU-") and self._uuid(device).startswith(word)]
        return alike[0] if len(alike) == 1 else None

    def _uuid(self, device: Any) -> str:
        uuid = self._ask(self._library.nvmlDeviceGetUUID, device) or ""
        return uuid.decode() if isinstance(uuid, bytes) else str(uuid)

    def _ask(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """What the library says; None for what this driver or device does not know, or when the device is gone."""
        try:
            return call(*arguments)
        except self._library.NVMLError:
            return None
