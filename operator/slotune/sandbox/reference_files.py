"""Recorded references on disk, one per question about answers, so that a resumed search need not record them again.

A file that is gone or broken is one that was never there: the reference is recorded anew. Only its owner may read it,
since whoever has the tokenizer reads the workload's prompts out of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from slotune.quality.reference import BrokenReferenceError, Reference
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["ReferenceFiles"]

SUFFIX = ".reference"
OWNER_ONLY = 0o600


class ReferenceFiles:
    """The references in ``directory``, which is made when the first one is kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def current(self, problem: Problem) -> Reference | None:
        """The reference that ``problem`` compares with; None when none can be read."""
        try:
            return Reference.from_bytes(self._path(problem).read_bytes())
        except (FileNotFoundError, BrokenReferenceError):
            return None

    def keep(self, problem: Problem, reference: Reference) -> None:
        """Write it down; on return it is on disk, whole."""
        path = self._path(problem)
        self._directory.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "wb") as file:
            file.write(reference.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def without_lost(self, problem: Problem, results: list[TrialResult]) -> list[TrialResult]:
        """``results`` less the recordings whose reference is not here any more: nothing could be compared with it."""
        if not any(_recorded(result) for result in results):
            return results
        kept = self.current(problem)
        digest = None if kept is None else kept.digest
        return [result for result in results if not _recorded(result) or result.reference == digest]

    def _path(self, problem: Problem) -> Path:
        assert problem.quality is not None
        return self._directory / f"{problem.quality.context}{SUFFIX}"


def _recorded(result: TrialResult) -> bool:
    return result.trial.purpose is Purpose.REFERENCE and result.verdict.outcome is Outcome.PASS
