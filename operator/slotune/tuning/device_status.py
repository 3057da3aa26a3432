"""What a device did, to a trial's status and back: exactly, but for a spread that lacks one of its numbers."""

from __future__ import annotations

from slotune.api.v1alpha1.trial_status import TrialDevice, TrialSpread
from slotune.load.device_facts import CLOCK_REASONS, DeviceFacts, Spread
from slotune.tuning import status_values as values
from slotune.tuning.status_values import exact

__all__ = ["device_of", "device_status"]

_MOST_DEVICES = 16


def device_status(facts: DeviceFacts | None) -> TrialDevice | None:
    """The device; None where nobody could watch one."""
    if facts is None:
        return None
    return TrialDevice(
        name=values.line(facts.name),
        samples=values.count(facts.samples),
        sm_clock_megahertz=_spread_status(facts.sm_clock_mhz),
        memory_clock_megahertz=_spread_status(facts.memory_clock_mhz),
        power_watts=_spread_status(facts.power_w),
        temperature_celsius=_spread_status(facts.temperature_c),
        clock_reasons={name: values.count(looks) for name, looks in facts.clock_reasons},
        others=None if facts.others is None else values.count(facts.others),
        others_memory_bytes=min(values.count(facts.others_memory_bytes), 2**53),
        uuids=tuple(values.line(uuid) for uuid in facts.uuids[:_MOST_DEVICES]),
        of_server=facts.of_server,
    )


def device_of(said: TrialDevice | None) -> DeviceFacts | None:
    """:func:`device_status` turned round; the API server sorts the reasons' names, so they get NVML's order again."""
    if said is None:
        return None
    known = [name for name in CLOCK_REASONS.values() if name in said.clock_reasons]
    unknown = sorted(said.clock_reasons.keys() - set(known))
    return DeviceFacts(
        name=said.name,
        samples=said.samples,
        sm_clock_mhz=_spread_of(said.sm_clock_megahertz),
        memory_clock_mhz=_spread_of(said.memory_clock_megahertz),
        power_w=_spread_of(said.power_watts),
        temperature_c=_spread_of(said.temperature_celsius),
        clock_reasons=tuple((name, said.clock_reasons[name]) for name in (*known, *unknown)),
        others=said.others,
        others_memory_bytes=said.others_memory_bytes,
        uuids=said.uuids,
        of_server=said.of_server,
    )


def _spread_status(spread: Spread | None) -> TrialSpread | None:
    if spread is None:
        return None
    least, median, most = exact(spread.least), exact(spread.median), exact(spread.most)
    if least is None or median is None or most is None:
        return None
    return TrialSpread(least=least, median=median, most=most)


def _spread_of(said: TrialSpread | None) -> Spread | None:
    return None if said is None else Spread(float(said.least), float(said.median), float(said.most))
