"""Runs a command: input that can't be used becomes one clear message and exit code 2, an interrupt 130."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Callable

from slotune.api.manifests import InvalidManifest
from slotune.commands.outcomes import ExitCode
from slotune.llama.engine import EngineError
from slotune.llama.gguf_facts import UnreadableModelError
from slotune.load.jsonl import InputFileError
from slotune.load.lengths import DemandError
from slotune.report.export import NoWinnerError, UnknownDocumentError
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.ledger import LedgerBusyError, LedgerUnreadableError, LedgerUnwritableError
from slotune.tuning.search_file import SearchFileError

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

_INPUT_ERRORS = (
    InvalidManifest,
    InvalidInputError,
    InputFileError,
    UnreadableModelError,
    DemandError,
    EngineError,
    LedgerBusyError,
    LedgerUnreadableError,
    LedgerUnwritableError,
    NoWinnerError,
    UnknownDocumentError,
    SearchFileError,
)


def run_command(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """The command's exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(args)
    except _INPUT_ERRORS as error:
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
        sys.stderr.write("slotune: stopped; finished trials are kept, the same command goes on from them\n")
        return ExitCode.INTERRUPTED


def _interrupt(*_: object) -> None:
    """SIGTERM stops as cleanly as Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)
