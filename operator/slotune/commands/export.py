"""``slotune export``: the winner of a finished tune, ready to apply; or the whole search, ready to be replayed."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from slotune import __version__
from slotune.commands.in_cluster import in_cluster
from slotune.commands.outcomes import ExitCode
from slotune.commands.tune import DOCUMENT_FILE, SEARCH_FILE
from slotune.commands.writing import write_atomically
from slotune.controller.children import recommendation_name
from slotune.controller.finished_search import finished_search
from slotune.controller.kube_cluster import KubeCluster
from slotune.report.export import CONTAINER, Winner, arguments, docker_run, kustomize_patch
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.search_file import read_search, to_bytes

__all__ = ["export"]


def export(
    directory: Path | None,
    form: str,
    deployment: str | None,
    container: str | None,
    out: Path | None,
    *,
    llama_deployment: str | None = None,
    namespace: str = "default",
) -> int:
    """Print the winner in ``form``, or write it to ``out``; so the search, when ``form`` is ``search``.

    Exactly one of ``directory`` and ``llama_deployment``, whose search lies in a cluster.
    """
    packed = out is not None and out.suffix == ".gz"
    if (directory is None) == (llama_deployment is None):
        raise InvalidInputError(
            "DIR", directory, "name the --out of a tune, or a search in a cluster with --llama-deployment"
        )
    if llama_deployment is not None:
        if form != "search":
            raise InvalidInputError(
                "--format",
                form,
                f"of a search in a cluster only `search` is made: its patch lies ready in the ConfigMap "
                f"{recommendation_name(llama_deployment)}",
            )
        return in_cluster(_of_cluster(namespace, llama_deployment, out, packed=packed))
    assert directory is not None
    if form == "search":
        content = _search(directory, packed=packed)
    else:
        content = _winner(_document(directory), form, deployment, container).encode()
    return _hand_out(content, out)


def _hand_out(content: bytes, out: Path | None) -> int:
    if out is not None:
        write_atomically(out, content)
    else:
        sys.stdout.write(content.decode())
    return ExitCode.FOUND


async def _of_cluster(namespace: str, name: str, out: Path | None, *, packed: bool) -> int:
    async with await KubeCluster.connect(os.environ.get("KUBECONFIG")) as cluster:
        recorded = await finished_search(cluster, namespace, name, datetime.now(UTC))
    return _hand_out(to_bytes(recorded, version=__version__, packed=packed), out)


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
