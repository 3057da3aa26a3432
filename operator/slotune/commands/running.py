"""Runs a command: input that can't be used becomes one clear message and exit code 2, an interrupt 130."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

from slotune.commands.exit_codes import ExitCode
from slotune.commands.streams import prepare_streams

__all__ = ["run_command"]

_PLACES = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.ENOENT,
        errno.ENAMETOOLONG,
    }
)
"""What is wrong with a place that the user named; anything else is ours, and shows where it came from."""

_INPUT_ERRORS: Final = (
    ("slotune.api.problems", "InvalidManifest"),
    ("slotune.llama.engine", "EngineError"),
    ("slotune.llama.gguf_header", "UnreadableModelError"),
    ("slotune.load.jsonl", "InputFileError"),
    ("slotune.load.lengths", "DemandError"),
    ("slotune.report.export", "NoWinnerError"),
    ("slotune.report.export", "UnknownDocumentError"),
    ("slotune.tuning.errors", "InvalidInputError"),
    ("slotune.tuning.ledger", "LedgerBusyError"),
    ("slotune.tuning.ledger", "LedgerUnreadableError"),
    ("slotune.tuning.ledger", "LedgerUnwritableError"),
    ("slotune.tuning.search_file", "SearchFileError"),
)
"""Module and class. Importing them all takes a second, which most commands can do without; an error can only come out
of a module that is imported already."""


def run_command(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """The command's exit code."""
    prepare_streams()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(args)
    except _input_errors() as error:
        sys.stderr.write(f"slotune: {error}\n")
        return ExitCode.INVALID_INPUT
    except BrokenPipeError:  # `slotune plan … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FOUND
    except OSError as error:  # a full disk, a folder that is a file: said with its name, not with a traceback
        if error.errno not in _PLACES or (error.filename is None and error.errno != errno.ENOSPC):
            raise
        where = error.filename or "standard output"
        sys.stderr.write(f"slotune: {where}: {error.strerror or error}: free it, or name another place\n")
        return ExitCode.INVALID_INPUT
    except KeyboardInterrupt:
        stopped = getattr(args, "stopped", None)  # what a command leaves behind is its own to say
        sys.stderr.write(f"slotune: stopped; {stopped}\n" if stopped else "slotune: stopped\n")
        return ExitCode.INTERRUPTED


def _input_errors() -> tuple[type[Exception], ...]:
    """Those that could have been raised."""
    return tuple(getattr(sys.modules[module], name) for module, name in _INPUT_ERRORS if module in sys.modules)


def _interrupt(*_: object) -> None:
    """SIGTERM stops as cleanly as Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)
