"""Errors of input are known by name, so that a quick command need not import what a slow one can raise."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from slotune.cli import make_parser
from slotune.commands import running

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
