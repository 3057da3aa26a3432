"""llama-server's arguments as a line that can be pasted into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from slotune.report.redaction import without_secrets

__all__ = ["PROGRAM", "argument_groups", "command_text"]

PROGRAM = "llama-server"

_NUMBER = re.compile(r"-\d+(\.\d+)?")


def argument_groups(flags: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Each flag with its values: ``-1`` is a value, ``-np`` is a flag."""
    groups: list[list[str]] = []
    for argument in flags:
        is_flag = argument.startswith("-") and _NUMBER.fullmatch(argument) is None
        if is_flag or not groups:
            groups.append([argument])
        else:
            groups[-1].append(argument)
    return tuple(tuple(group) for group in groups)


def command_text(flags: Sequence[str], *, width: int, program: str = PROGRAM, indent: str = "  ") -> str:
    """``llama-server -m … \\`` over as many lines as ``width`` asks for, quoted for a POSIX shell, without secrets."""
    lines, line = [], program
    for group in argument_groups(without_secrets(flags)):
        words = shlex.join(group)
        if len(line) + 1 + len(words) + 2 > width and line.strip():
            lines.append(f"{line} \\")
            line = indent + words
        else:
            line = f"{line} {words}"
    return "\n".join([*lines, line])
