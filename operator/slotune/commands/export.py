"""``slotune export``: the winner of a finished tune, ready to apply; or the whole search, ready to be replayed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson

from slotune import __version__
from slotune.commands.outcomes import ExitCode
from slotune.commands.tune import DOCUMENT_FILE, SEARCH_FILE
from slotune.commands.writing import write_atomically
from slotune.report.export import CONTAINER, Winner, arguments, docker_run, kustomize_patch
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.search_file import read_search, to_bytes

__all__ = ["export"]


def export(directory: Path, form: str, deployment: str | None, container: str | None, out: Path | None) -> int:
    """Print the winner in ``form``, or write it to ``out``; so the search, when ``form`` is ``search``."""
    if form == "search":
        content = _search(directory, packed=out is not None and out.suffix == ".gz")
    else:
        content = _winner(_document(directory), form, deployment, container).encode()
    if out is not None:
        write_atomically(out, content)
    else:
        sys.stdout.write(content.decode())
    return ExitCode.FOUND


def _search(directory: Path, *, packed: bool) -> bytes:
    """Read and written anew, so that nothing is handed on that could not be replayed."""
    path = directory / SEARCH_FILE
    if not path.exists():
        raise InvalidInputError(
            "DIR",
            directory,
            f"no {SEARCH_FILE} is there: name the --out of a tune that ended; the same `slotune tune` again writes it, "
            "and measures nothing twice",
        )
    return to_bytes(read_search(path), version=__version__, packed=packed)


def _document(directory: Path) -> dict[str, Any]:
    path = directory / DOCUMENT_FILE
    try:
        document: dict[str, Any] = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(
            "DIR", directory, f"{DOCUMENT_FILE} can't be read there ({error.strerror}): name the --out of a tune"
        ) from error
    except orjson.JSONDecodeError as error:
        raise InvalidInputError("DIR", directory, f"{DOCUMENT_FILE} is broken: run `slotune tune` again") from error
    return document


def _winner(document: dict[str, Any], form: str, deployment: str | None, container: str | None) -> str:
    winner = Winner.from_document(document)
    if (kind := document["decision"]["kind"]) != "Found":
        sys.stderr.write(f"note: the search ended as {kind}: this was not confirmed, or something cheaper may exist\n")
    match form:
        case "args":
            return arguments(winner)
        case "docker":
            return docker_run(winner, gpus=document["hardware"][winner.gpu_class].get("is_gpu", True))
        case _:
            target = document.get("target", {})
            return kustomize_patch(
                winner,
                deployment=deployment or target.get("deployment"),
                container=container or target.get("container") or CONTAINER,
            )
