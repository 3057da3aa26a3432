"""``slotune tune`` as a person runs it: a real process, a real llama.cpp, a tiny model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from html.parser import HTMLParser

import pytest

from tests.commands.manifests import manifest
from tests.commands.processes import run, servers_below, slotune, trials_on_disk, tune_command, wait_until

pytestmark = pytest.mark.engine


@pytest.mark.alone
def test_the_answer_is_printed_saved_and_reported(tuned, tmp_path):
    assert "1 × cpu" in tuned.done.stdout
    assert "llama-server" in tuned.done.stdout
    assert "/models/f16.gguf" in tuned.done.stdout  # the flags belong into the manifest, not onto this machine
    assert str(tuned.models / "f16.gguf") not in tuned.done.stdout
    document = json.loads((tuned.out / "decision.json").read_text())
    assert document["decision"]["kind"] == "Found"
    HTMLParser().feed((tuned.out / "report.html").read_text())
    assert "tiny" in (tuned.out / "report.html").read_text()
    assert servers_below(tuned.models) == []
    exported = tmp_path / "tiny.json.gz"
    assert run(slotune("export", tuned.out, "--format", "search", "--out", exported)).returncode == 0
    again = run(slotune("replay", exported, "-o", "json"))
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["comparison"] == "Same"


@pytest.mark.alone
def test_output_for_machines_is_the_whole_document_and_nothing_else(tmp_path):
    done = run(tune_command(tmp_path, manifest(tmp_path), "-o", "json"))
    assert json.loads(done.stdout)["decision"]["kind"] == "Found"


@pytest.mark.alone
def test_the_same_command_again_measures_nothing_twice(tuned):
    measured = trials_on_disk(tuned.models)
    again = run(tuned.command)
    assert again.returncode == 0, again.stderr
    assert trials_on_disk(tuned.models) == measured > 0
    assert "resuming" in again.stderr


@pytest.mark.alone
def test_an_impossible_promise_is_infeasible_and_says_what_binds(tmp_path):
    done = run(tune_command(tmp_path, manifest(tmp_path, slo__ttftP95="1ms")))
    assert done.returncode == 3, done.stderr
    document = json.loads((tmp_path / "out" / "decision.json").read_text())
    assert document["decision"]["kind"] == "Infeasible"
    assert document["decision"]["binding_constraint"]
    assert document["decision"]["choice"] is None


def test_a_kill_9_leaves_no_server_behind(tmp_path):
    file = manifest(tmp_path, workload__inline__load__requestRate="2")
    with subprocess.Popen(tune_command(tmp_path, file), stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: servers_below(tmp_path), "a server runs")
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not servers_below(tmp_path), "the server is gone")


def test_two_tunes_do_not_share_a_directory(tmp_path):
    file = manifest(tmp_path, workload__inline__load__requestRate="2")
    with subprocess.Popen(tune_command(tmp_path, file), stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: servers_below(tmp_path), "a server runs")
        second = run(tune_command(tmp_path, file))
        process.terminate()
    assert second.returncode == 2
    assert "--out" in second.stderr


@pytest.mark.alone
def test_plain_lines_say_what_is_measured_how_it_stands_and_how_long_it_may_take(tuned):
    said = tuned.done.stderr
    assert re.search(r"measuring · \d+ of \d+ requests · \d+ broke the promise, \d+ may · \d+ s, at most", said)
    assert "\x1b" not in said
