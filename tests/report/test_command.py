"""Flags can be pasted into a shell, and secrets stay out of what is handed around."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.report.command import argument_groups, command_text
from slotune.report.redaction import without_secrets

FLAGS = ("-m", "/models/a b.gguf", "-np", "16", "--cache-ram", "-1", "-no-kvu", "--chat-template", "x; rm -rf $HOME")


def test_a_negative_number_is_a_value() -> None:
    assert ("--cache-ram", "-1") in argument_groups(FLAGS)
    assert ("-no-kvu",) in argument_groups(FLAGS)


@pytest.mark.parametrize("width", [30, 80, 500])
def test_a_shell_reads_back_what_was_written(width: int) -> None:
    command = command_text(FLAGS, width=width)
    assert shlex.split(command.replace("\\\n", " ")) == ["llama-server", *FLAGS]


def test_lines_stay_within_the_width() -> None:
    lines = command_text(FLAGS, width=60).splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 60 for line in lines)


@given(st.lists(st.text(st.characters(blacklist_categories=["C"]), min_size=1), max_size=8))
def test_any_argument_survives_the_shell(values: list[str]) -> None:
    flags = [part for value in values for part in ("--x", value)]
    command = command_text(flags, width=40)
    assert shlex.split(command.replace("\\\n", " ")) == ["llama-server", *flags]


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("--api-key", "s3cret", "-np", "4"), ("--api-key", "REDACTED", "-np", "4")),
        (("--api-key=s3cret",), ("--api-key=REDACTED",)),
        (("-hft", "s3cret"), ("-hft", "REDACTED")),
        (("--api-key-file", "/run/key"), ("--api-key-file", "/run/key")),
        (("--api-key",), ("--api-key",)),
    ],
)
def test_a_secret_is_replaced(arguments: tuple[str, ...], want: tuple[str, ...]) -> None:
    assert without_secrets(arguments) == want
