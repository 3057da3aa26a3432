"""Finished trials on disk: what a search remembers when its process dies.

One line of JSON per trial, appended and synced before the search goes on, so that a kill at any
moment loses at most the trial in flight. A half-written last line is what such a kill leaves
behind; it is cut off, not an error. The record of every request lies beside it, compressed.
"""

from __future__ import annotations

import fcntl
import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import orjson
from pydantic import TypeAdapter, ValidationError

from slotune.load.record_lines import record_lines
from slotune.load.records import RunResult
from slotune.sandbox.reference_files import ReferenceFiles
from slotune.search.trial import TrialResult

__all__ = ["Ledger", "LedgerBusyError", "LedgerUnreadableError", "LedgerUnwritableError"]

TRIALS_FILE = "trials.jsonl"
RECORDS_DIRECTORY = "records"
REFERENCES_DIRECTORY = "references"

_RESULT = TypeAdapter(TrialResult)


class LedgerBusyError(Exception):
    """Another process writes to the same directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        super().__init__(f"{directory} is in use by another slotune: wait for it, or give another directory with --out")


class LedgerUnreadableError(Exception):
    """A line in the middle of the file is broken: somebody edited it, or the disk is faulty."""

    def __init__(self, path: Path, line: int) -> None:
        self.path, self.line = path, line
        super().__init__(f"{path} line {line} is not a trial: delete that line, or give another directory with --out")


class LedgerUnwritableError(Exception):
    """The directory cannot be made or written to."""

    def __init__(self, directory: Path, cause: OSError) -> None:
        self.directory = directory
        super().__init__(f"cannot write to {directory} ({cause.strerror}): give another directory with --out")


class Ledger:
    """The trials of one output directory. A context manager: it holds a lock while open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Ledger:
        try:
            (self.directory / RECORDS_DIRECTORY).mkdir(parents=True, exist_ok=True)
            self._lock = (self.directory / ".lock").open("ab")
        except OSError as error:
            raise LedgerUnwritableError(self.directory, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            self._lock = None
            raise LedgerBusyError(self.directory) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def path(self) -> Path:
        """The file of trials."""
        return self.directory / TRIALS_FILE

    @property
    def references(self) -> ReferenceFiles:
        """The recorded references that comparisons need."""
        return ReferenceFiles(self.directory / REFERENCES_DIRECTORY)

    def results(self, *contexts: str) -> list[TrialResult]:
        """Finished trials that answer questions of any of ``contexts``, oldest first; others are left alone."""
        return [result for of, result in self._whole_lines() if of in contexts]

    def add(self, context: str, result: TrialResult, runs: Sequence[RunResult] = ()) -> None:
        """Append one trial and the record of each of its requests; on return both are on disk."""
        key = result.trial.key(context)
        if runs:
            self._write_records(key, runs)
        line = orjson.dumps(
            {"context": context, "key": key, "result": _RESULT.dump_python(result, mode="json")},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        self._cut_half_line()
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _whole_lines(self) -> list[tuple[str, TrialResult]]:
        if not self.path.exists():
            return []
        raw = self.path.read_bytes().split(b"\n")
        lines = []
        for number, text in enumerate(raw[:-1], start=1):  # what follows the last newline was never finished
            try:
                line = orjson.loads(text)
                lines.append((str(line["context"]), _RESULT.validate_python(line["result"])))
            except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
                raise LedgerUnreadableError(self.path, number) from error
        return lines

    def _cut_half_line(self) -> None:
        if not self.path.exists():
            return
        raw = self.path.read_bytes()
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):
            with self.path.open("r+b") as file:
                file.truncate(whole)

    def _write_records(self, key: str, runs: Sequence[RunResult]) -> None:
        target = self.directory / RECORDS_DIRECTORY / f"{key}.jsonl.gz"
        partial = target.with_suffix(".partial")
        with gzip.open(partial, "wb", compresslevel=6) as file:
            file.writelines(record_lines(runs))
        partial.replace(target)
