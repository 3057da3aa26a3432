"""``slotune export``: the winner of a finished tune, ready to apply."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from slotune.commands.outcomes import ExitCode
from slotune.commands.tune import DOCUMENT_FILE
from slotune.report.export import CONTAINER, Winner, arguments, docker_run, kustomize_patch
from slotune.tuning.errors import InvalidInputError

__all__ = ["export"]


def export(directory: Path, form: str, deployment: str | None, container: str | None) -> int:
    """Print the winner in ``form``."""
    path = directory / DOCUMENT_FILE
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(
            "DIR", directory, f"{DOCUMENT_FILE} can't be read there ({error.strerror}): name the --out of a tune"
        ) from error
    except orjson.JSONDecodeError as error:
        raise InvalidInputError("DIR", directory, f"{DOCUMENT_FILE} is broken: run `slotune tune` again") from error
    winner = Winner.from_document(document)
    if (kind := document["decision"]["kind"]) != "Found":
        sys.stderr.write(f"note: the search ended as {kind}: this was not confirmed, or something cheaper may exist\n")
    match form:
        case "args":
            text = arguments(winner)
        case "docker":
            text = docker_run(winner, gpus=document["hardware"][winner.gpu_class].get("is_gpu", True))
        case _:
            target = document.get("target", {})
            text = kustomize_patch(
                winner,
                deployment=deployment or target.get("deployment"),
                container=container or target.get("container") or CONTAINER,
            )
    sys.stdout.write(text)
    return ExitCode.FOUND
