"""``slotune validate``: everything that is wrong with a manifest, at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from slotune.api.manifests import load_every, load_manifests
from slotune.commands.outcomes import ExitCode
from slotune.tuning.baseline import check_server
from slotune.tuning.traffic import demand_of

__all__ = ["validate"]


def validate(files: Sequence[str], name: str | None) -> int:
    """Check the manifests, the flags of the server in them, and the files of prompts and arrivals that they name.

    Weights files are left to ``plan``."""
    chosen = load_every(files) if name is None else (load_manifests(files, name),)
    for manifests in chosen:
        demand_of(manifests)
        for note in (*manifests.notes, *check_server(manifests)):
            sys.stderr.write(f"note: {note}\n")
        sys.stdout.write(f"{manifests.deployment.metadata.name}: valid\n")
    return ExitCode.FOUND
