"""A GPU is watched beside the measurement and never in its way; without one there is nothing, in silence."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from slotune.load.device_facts import Reading, device_fault, facts_of
from slotune.load.records import RunResult
from slotune.sandbox.device import DeviceLook, DeviceWatch, watch_gpu
from slotune.sandbox.nvml import Nvml, import_pynvml
from slotune.verdict.verdicts import Outcome, Verdict
from tests.sandbox.fake_nvml import FakeDevice, FakeNvml

PROBED = Verdict(Outcome.PASS, "the idle server was probed", "Probed", 0.95)
HEAT = 0x48


BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def read(
    library: FakeNvml, environ: Mapping[str, str] | None = MappingProxyType({}), *, own: frozenset[int] = frozenset()
) -> tuple[Reading, ...]:
    devices = Nvml.open(library, own=own, environ=environ)
    return () if devices is None else devices.read()


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, "not within 10 s"
        threading.Event().wait(0.005)


class Seen:
    """Looks that a test made up."""

    def __init__(self, *reasons: int, others: int | None = 0) -> None:
        self.looks = tuple((Reading("NVIDIA L4", clock_reasons=bits, others=others),) for bits in reasons)

    def since(self, moment_s: float) -> tuple[tuple[Reading, ...], ...]:
        return self.looks if moment_s <= 1.0 else ()


def test_one_device_says_its_clocks_power_temperature_and_reasons() -> None:
    (one,) = read(FakeNvml(FakeDevice(reasons=0x4)))
    assert one == Reading("NVIDIA L4", 2040, 6251, 71.5, 62, 0x4, None, 0, "GPU-11111111", True)


def test_what_a_driver_does_not_know_is_left_out_and_nothing_else() -> None:
    (one,) = read(FakeNvml(FakeDevice(name=b"Tesla T4", power_mw=None, reasons=None, memory_clock=None)))
    assert one == Reading("Tesla T4", 2040, None, None, 62, 0, None, 0, "GPU-11111111", True)


@pytest.mark.parametrize(("mode", "want"), [(1, "NVIDIA A100-SXM4-40GB (MIG)"), (0, "NVIDIA A100-SXM4-40GB")])
def test_a_device_in_mig_mode_says_so_in_its_name(mode: int, want: str) -> None:
    (one,) = read(FakeNvml(FakeDevice("NVIDIA A100-SXM4-40GB", mig_mode=mode)))
    assert one.name == want


def test_a_binding_that_still_says_throttle_is_understood() -> None:
    (one,) = read(FakeNvml(FakeDevice(reasons=HEAT), names=("Throttle",)))
    assert one.clock_reasons == HEAT


def test_a_device_that_falls_off_the_bus_is_left_out_from_then_on() -> None:
    device = FakeDevice()
    devices = Nvml.open(FakeNvml(device), own=frozenset(), environ={})
    assert devices is not None
    assert len(devices.read()) == 1
    device.gone = True
    assert devices.read() == ()


@pytest.mark.parametrize("library", [FakeNvml(driver=False), FakeNvml()], ids=["no driver", "no device"])
def test_without_a_driver_or_a_device_there_is_nothing(library: FakeNvml) -> None:
    assert Nvml.open(library, own=frozenset(), environ={}) is None


def test_the_devices_that_the_server_is_on_are_the_ones_that_count() -> None:
    library = FakeNvml(FakeDevice("busy", processes={7: 100}), FakeDevice("ours", processes={42: 5_000, 7: None}))
    (one,) = read(library, own=frozenset({41, 42}))
    assert (one.name, one.others, one.others_memory_bytes) == ("ours", 1, 0)


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        pytest.param({"CUDA_VISIBLE_DEVICES": "1"} | BUS, ["second"], id="an index along the bus"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-2222"}, ["second"], id="the beginning of a UUID"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-"}, [], id="a beginning that several have"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0,1"}, ["first", "second"], id="all of them, in whichever order"),
        pytest.param({}, ["first", "second"], id="nothing said: all"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, [], id="the empty list hides all"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, [], id="and so does one of none"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1,7,0"} | BUS, ["second"], id="what follows a wrong one is hidden"),
    ],
)
def test_where_pids_tell_nothing_the_devices_that_the_server_may_see_count(environ, want) -> None:
    library = FakeNvml(FakeDevice("first"), FakeDevice("second", uuid="GPU-22223333", processes={9: 1}))
    readings = read(library, environ, own=frozenset({1234}))
    assert [one.name for one in readings] == want
    assert all(one.of_server for one in readings)
    assert {one.others for one in readings} <= {None}, "its PIDs are of another namespace, so nobody is accused"


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param(None, id="another container's environment"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1"}, id="an index that counts from the fastest device"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "MIG-of-some-kind"}, id="a slice of nobody knows which device"),
    ],
)
def test_devices_that_may_be_a_neighbours_are_on_record_and_fault_nobody(environ) -> None:
    library = FakeNvml(FakeDevice("cool"), FakeDevice("hot", uuid="GPU-2", reasons=HEAT, processes={7: 1}))
    readings = read(library, environ)
    assert [(one.name, one.of_server) for one in readings] == [("cool", False), ("hot", False)]
    found = facts_of([readings])
    assert found is not None
    assert found.clock_reasons
    assert found.uuids == ("GPU-11111111", "GPU-2")
    assert device_fault(found) is None
    assert device_fault(replace(found, of_server=True)) is not None


def test_one_device_has_one_index_however_they_are_counted() -> None:
    (one,) = read(FakeNvml(FakeDevice(reasons=HEAT)), {"CUDA_VISIBLE_DEVICES": "0"})
    assert one.of_server


def test_a_device_that_the_server_is_on_is_its_own_whatever_is_said() -> None:
    library = FakeNvml(FakeDevice("other"), FakeDevice("ours", uuid="GPU-2", processes={42: 1}))
    (one,) = read(library, None, own=frozenset({42}))
    assert (one.name, one.of_server) == ("ours", True)


def test_every_call_is_made_in_the_threads_own_time_and_the_library_is_let_go() -> None:
    library = FakeNvml(FakeDevice())
    with watch_gpu(library=library, environ={}) as watch:
        assert watch is not None
        wait_for(lambda: len(watch.since(0.0)) > 0)
    assert library.closed.is_set()
    assert {thread for _, thread in library.calls} == {"slotune-device"}


def test_only_looks_since_the_asked_moment_are_told() -> None:
    ticks = iter(range(10**6))
    library = FakeNvml(FakeDevice())
    devices = Nvml.open(library, own=frozenset(), environ={})
    with DeviceWatch(lambda: devices, every_s=0.001, clock=lambda: float(next(ticks))) as watch:
        wait_for(lambda: len(watch.since(0.0)) >= 5)
    taken = len(watch.since(0.0))
    assert len(watch.since(2.0)) == taken - 2
    assert watch.since(1e9) == ()


def test_a_watch_costs_next_to_no_cpu() -> None:
    library = FakeNvml(FakeDevice())
    devices = Nvml.open(library, own=frozenset(), environ={})
    began = time.thread_time()
    assert devices is not None
    for _ in range(100):
        devices.read()
    assert (time.thread_time() - began) / 100 < 0.005, "a look a second must stay below half a percent of a core"


def test_a_machine_without_nvidia_is_watched_in_silence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it fails
    assert import_pynvml() is None
    with watch_gpu() as watch:
        assert watch is None
    with watch_gpu(library=FakeNvml(driver=False)) as watch:
        assert watch is not None
    assert watch.since(0.0) == ()
    assert capfd.readouterr() == ("", "")


def test_a_module_that_is_installed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(FakeDevice())
    monkeypatch.setitem(sys.modules, "pynvml", library)
    with watch_gpu() as watch:
        assert watch is not None
        assert library.looked.wait(10)


def test_the_real_module_has_every_name_that_is_called() -> None:
    real = pytest.importorskip("pynvml")
    called = [name for name in dir(FakeNvml(FakeDevice())) if name.startswith(("nvml", "NVML"))]
    # The newer binding need not have kept the older word.
    assert [name for name in called if not hasattr(real, name) and "ThrottleReasons" not in name] == []


def test_a_run_keeps_what_its_device_did() -> None:
    look, run = DeviceLook(Seen(0x4, 0x4)), RunResult(seed=1, rate=1.0)
    look.after(run, 0.5)
    assert run.invalid_reasons == []
    assert run.device == look.facts == facts_of(Seen(0x4, 0x4).looks)


def test_a_throttled_device_makes_the_run_invalid() -> None:
    look, run = DeviceLook(Seen(0, HEAT, HEAT)), RunResult(seed=1, rate=1.0)
    look.after(run, 0.5)
    ((code, sentence),) = run.invalid_reasons
    assert code == "DeviceThrottled"
    assert "cool it" in sentence


def test_heat_before_the_window_is_not_held_against_the_run() -> None:
    look, run = DeviceLook(Seen(HEAT)), RunResult(seed=1, rate=1.0)
    look.after(run, 2.0)
    assert (run.device, run.invalid_reasons) == (None, [])


def test_a_sentinel_on_a_throttled_device_says_nothing_about_the_machine() -> None:
    assert DeviceLook(Seen(HEAT)).after_probe(PROBED, 0.5).outcome is Outcome.INVALID
    assert DeviceLook(Seen(0x4)).after_probe(PROBED, 0.5) is PROBED
    assert DeviceLook(None).after_probe(PROBED, 0.5) is PROBED


def test_somebody_else_on_the_device_is_a_warning() -> None:
    look, run = DeviceLook(Seen(0, others=2)), RunResult(seed=1, rate=1.0)
    look.after(run, 0.5)
    (warning,) = look.warnings
    assert warning.startswith("2 other processes used NVIDIA L4 meanwhile")
    assert run.invalid_reasons == []
