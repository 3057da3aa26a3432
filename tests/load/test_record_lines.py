"""The record of a trial: a line per request, and one per run on what the accelerator did, where somebody saw it."""

from __future__ import annotations

import json

from slotune.load.device_facts import DeviceFacts, Spread
from slotune.load.record_lines import record_lines
from slotune.load.records import RequestRecord, RunResult

FACTS = DeviceFacts("NVIDIA L4", 60, Spread(1800.0, 2040.0, 2040.0), clock_reasons=(("SwPowerCap", 12),), others=0)


def lines(*runs: RunResult) -> list[dict[str, object]]:
    written = list(record_lines(runs))
    assert all(line.endswith(b"\n") for line in written)
    return [json.loads(line) for line in written]


def run(seed: int, device: DeviceFacts | None = None) -> RunResult:
    return RunResult(seed, 2.0, [RequestRecord(0, 1, 0.0), RequestRecord(1, 2, 0.5)], device=device)


def test_without_a_watched_device_there_is_a_line_per_request_and_no_other() -> None:
    assert [(line["run"], line["seed"], line["index"]) for line in lines(run(5), run(6))] == [
        (0, 5, 0), (0, 5, 1), (1, 6, 0), (1, 6, 1),
    ]  # fmt: skip


def test_what_a_device_did_in_a_run_stands_before_its_requests() -> None:
    first, *rest = lines(run(5, FACTS), run(6))
    assert (first["run"], first["seed"], first["rate"]) == (0, 5, 2.0)
    assert first["device"] == {
        "name": "NVIDIA L4",
        "samples": 60,
        "sm_clock_mhz": {"least": 1800.0, "median": 2040.0, "most": 2040.0},
        "memory_clock_mhz": None,
        "power_w": None,
        "temperature_c": None,
        "clock_reasons": [["SwPowerCap", 12]],
        "uuids": [],
        "of_server": True,
        "others": 0,
        "others_memory_bytes": 0,
    }
    assert ["index" in line for line in rest] == [True] * 4
