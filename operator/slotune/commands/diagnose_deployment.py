"""``slotune diagnose --deployment``: the pods of a Deployment, each with its events, limits, node, log and server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from slotune.commands.diagnose import Asked, Looked, announce, run_diagnosis
from slotune.commands.diagnose_helps import Helps
from slotune.commands.diagnose_watch import watching
from slotune.diagnose.symptoms import ProbeFacts, ServerLook
from slotune.gathering.cluster import look_at_deployment
from slotune.gathering.probe import probe_server

__all__ = ["diagnose_deployment"]


def diagnose_deployment(asked: Asked, output: str) -> int:
    """Look at every pod, and print what was found."""
    return run_diagnosis(asked, output, _look)


def _look(asked: Asked, helps: Helps) -> Looked:
    assert asked.deployment is not None
    notes: list[str] = []
    servers = look_at_deployment(
        asked.deployment,
        asked.namespace,
        kubeconfig=asked.kubeconfig,
        context=asked.context,
        container=asked.container,
        api_key=helps.key,
        key_file=asked.api_key_file,
        probe=partial(_probe, note=notes.append) if asked.probe else None,
        watched=partial(watching, asked.watch, announce, notes.append, probe=asked.probe),
        tell=notes.append,
    )
    cure = "give the log of the pod on it: kubectl logs POD | slotune diagnose --log - --nvidia-smi FILE"
    return Looked(servers, tuple(notes), cure)


async def _probe(url: str, key: str | None, look: ServerLook, *, note: Callable[[str], None]) -> ProbeFacts:
    return await probe_server(
        url,
        key,
        look,
        announce=lambda line: announce(f"{look.url}: {line}"),
        note=lambda line: note(f"{look.url}: {line}"),
    )
