"""Errors of input are known by name, so that a quick command need not import what a slow one can raise."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slotune.cli import make_parser
from slotune.commands import running
from tests.commands.test_diagnose import LOG, serving
from tests.gathering.standing_in import stand_in

HEAVY = ("scipy", "numpy", "pydantic", "aiohttp", "kubernetes", "gguf")


@pytest.mark.parametrize(("module", "name"), running._INPUT_ERRORS)
def test_every_error_is_one_where_it_is_said_to_be(module: str, name: str) -> None:
    error = getattr(importlib.import_module(module), name)
    assert issubclass(error, Exception)
    assert error.__module__ == module


def test_a_look_at_a_server_imports_nothing_that_takes_long() -> None:
    """Under two seconds for ``slotune diagnose --url``, of which half a second lies between its two looks."""
    code = "import sys, slotune.cli, slotune.commands.running, slotune.commands.diagnose; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(set(loaded) & set(HEAVY)) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["tune", "-f", "x.yaml"], "finished trials are kept"),
        (["diagnose", "--log", "x.log"], "nothing was changed"),
        (["validate", "-f", "x.yaml"], "slotune: stopped\n"),
    ],
)
def test_ctrl_c_is_answered_in_the_words_of_the_command(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    assert running.run_command(interrupted, make_parser().parse_args(command)) == 130
    said = capsys.readouterr().err
    assert words in said
    assert ("trials" in said) is (command[0] == "tune")


def from_a_shell(line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``line``, in which ``$SLOTUNE`` is the command."""
    command = f"{sys.executable} -m slotune.cli"
    env = {**os.environ, "SLOTUNE": command, **variables}
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, timeout=60, check=False, env=env)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed_stops_no_command(closed: str, tmp_path: Path) -> None:
    with serving(stand_in()) as url:
        done = from_a_shell(f"$SLOTUNE diagnose --url {url} {closed}")
    assert done.returncode == 0, done.stderr
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert done.stderr == b""
    assert from_a_shell(f"$SLOTUNE diagnose --url '' {closed}").returncode == 2


def test_a_terminal_that_can_not_show_every_sign_gets_a_mark_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "prüfung.log").write_bytes(LOG.read_bytes())
    for form in ("table", "json", "yaml"):
        line = f"$SLOTUNE diagnose -o {form} --log '{tmp_path}/prüfung.log'"
        done = from_a_shell(line, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        assert b"pr?fung" in done.stdout


@pytest.mark.parametrize("columns", ["0", "1", "20", "40", "-5", "x"])
def test_a_terminal_of_any_width_is_written_to(columns: str) -> None:
    done = from_a_shell(f"$SLOTUNE diagnose --log {LOG}", COLUMNS=columns)
    assert done.returncode == 0, done.stderr
    assert b"Checklist" in done.stdout
    assert from_a_shell("$SLOTUNE diagnose --explain SLT036", COLUMNS=columns).returncode == 0
