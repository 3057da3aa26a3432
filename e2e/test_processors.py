"""Threads and cores of a real engine on this machine: told by its address alone, without its log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.engines import diagnose, running, text_of
from e2e.models import WEIGHTS

pytestmark = pytest.mark.engine


async def test_twice_as_many_threads_as_cores_are_found_while_it_works(weights: Path, tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    flags = ("--threads", str(2 * cores), "--threads-batch", str(2 * cores), "-np", "1", "-c", "512")
    async with (
        running(weights / WEIGHTS["Q4_0"], tmp_path, *flags) as server,
        server.used_by(1, lambda user, turn: text_of(20, (user, turn)), 48),
    ):
        found = await diagnose("--url", server.url, "--watch", "3")
    assert any(one.startswith(f"SLT060 {2 * cores} threads share {cores} core") for one in found.alarms), found.alarms


async def test_as_many_threads_as_cores_are_clear_at_rest(weights: Path, tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    flags = ("--threads", str(cores), "--threads-batch", str(cores), "-np", "1", "-c", "512")
    async with running(weights / WEIGHTS["Q4_0"], tmp_path, *flags) as server:
        found = await diagnose("--url", server.url)
    (threads,) = [one for one in found.document["servers"][0]["checklist"] if one["item"] == "Threads"]
    assert any(one.startswith(f"{cores} thread") for one in threads["clear"])
    assert found.alarms == []
