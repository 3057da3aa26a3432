"""``slotune replay``: the search code of today on trials that were measured before, without any server."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from slotune.commands.outcomes import ExitCode
from slotune.commands.writing import print_document
from slotune.diagnose.hints import hints
from slotune.report.replay import replay_document, replay_text
from slotune.search.options import unhinted
from slotune.search.replay import Comparison
from slotune.search.replay import replay as run_again
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.search_file import read_search

__all__ = ["replay"]

_CODES = {
    Comparison.SAME: ExitCode.FOUND,
    Comparison.EQUAL: ExitCode.FOUND,
    Comparison.DEARER: ExitCode.LOSES_MONEY,
    Comparison.BREAKS_PROMISE: ExitCode.LOSES_MONEY,
    Comparison.UNRECORDED: ExitCode.INCONCLUSIVE,
}


def replay(file: Path, output: str, *, hinted: bool = True) -> int:
    """Print how today's answer compares with what was recorded.

    ``hinted``: whether what was found of trials says which of equals is asked first, as it does while one measures.
    """
    recorded = read_search(file)
    replayed = run_again(recorded, without_what_cannot_fit, hints if hinted else unhinted)
    if output == "table":
        console = Console(highlight=False)
        console.print(replay_text(recorded, replayed, width=console.width))
    else:
        print_document(replay_document(recorded, replayed), output, stream=sys.stdout)
    return _CODES[replayed.comparison]
