"""``slotune tune`` that a person interrupts in the middle of a search on a real llama.cpp."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands.manifests import manifest
from tests.commands.processes import DEADLINE_S, run, servers_below, trials_on_disk, tune_command, wait_until

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured_and_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    file = manifest(tmp_path, workload__inline__load__requestRate="10")
    with subprocess.Popen(tune_command(tmp_path, file), stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: trials_on_disk(tmp_path) >= 1 and servers_below(tmp_path), "a second trial runs")
        process.send_signal(number)
        said = process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode == 130, said
    assert "the same command goes on" in said
    wait_until(lambda: not servers_below(tmp_path), "the server is gone")
    kept = trials_on_disk(tmp_path)
    assert kept >= 1
    again = run(tune_command(tmp_path, file))
    assert again.returncode == 0, again.stderr
    assert f"resuming: {kept} finished" in again.stderr
