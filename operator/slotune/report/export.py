"""The winner of a saved document, in the form in which it is rolled out: a patch, arguments, or a line for docker."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

import yaml

from slotune.report.command import argument_groups, command_text
from slotune.report.document import SCHEMA
from slotune.report.figures import money, plural, seconds
from slotune.report.redaction import REDACTED

__all__ = [
    "ExportError",
    "NoWinnerError",
    "UnknownDocumentError",
    "Winner",
    "arguments",
    "comment_header",
    "docker_run",
    "kustomize_patch",
]

WIDTH = 100
CONTAINER = "llama-server"
_MODEL_FLAGS = ("-m", "--model")
_IMAGE = '"${LLAMA_SERVER_IMAGE:?name the llama-server image}"'


class ExportError(Exception):
    """A document from which nothing can be exported."""


class UnknownDocumentError(ExportError):
    """The document is none of ours, or of another version."""


class NoWinnerError(ExportError):
    """The search ended without a configuration to export."""


@dataclass(frozen=True, slots=True)
class Winner:
    """What a saved document says about the configuration to roll out."""

    name: str
    flags: tuple[str, ...]
    """Arguments without the program."""
    label: str
    replicas: int
    monthly_cost: Decimal
    currency: str
    gpu_class: str
    hardware_changed: bool
    """Whether it runs on another GPU class than the baseline."""
    evidence: str
    """One sentence: what was measured."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Winner:
        """Raises UnknownDocumentError for a foreign document and NoWinnerError when there is nothing to export."""
        found = document.get("schema") if isinstance(document, Mapping) else None
        if found != SCHEMA:
            raise UnknownDocumentError(f"schema is {found!r}: this version reads {SCHEMA!r}; run `slotune tune` again")
        try:
            return cls._read(document)
        except (KeyError, TypeError, ValueError, InvalidOperation) as error:
            raise UnknownDocumentError(f"the document lacks or garbles {error}: run `slotune tune` again") from error

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> Winner:
        decision = document["decision"]
        choice = decision["choice"]
        if choice is None:
            raise NoWinnerError(
                f"decision.kind is {decision['kind']}: no configuration was confirmed, so there is nothing to export; "
                "report.html says what stands in the way"
            )
        if not document["flags"]:
            raise NoWinnerError("flags is empty: the winner's arguments were not saved; run `slotune tune` again")
        gpu_class = choice["candidate"]["gpu_class"]
        return cls(
            name=document["name"],
            flags=tuple(document["flags"]),
            label=choice["candidate"]["label"],
            replicas=choice["replicas"],
            monthly_cost=Decimal(choice["monthly_cost"]),
            currency=document["hardware"][gpu_class]["currency"],
            gpu_class=gpu_class,
            hardware_changed=gpu_class != document["baseline"]["gpu_class"],
            evidence=_evidence(document, choice["trial"]),
        )

    def with_model(self, path: str) -> Winner:
        """The same winner with its weights at ``path``, for a machine that keeps them elsewhere."""
        flags = list(self.flags)
        for index, flag in enumerate(flags[:-1]):
            if flag in _MODEL_FLAGS:
                flags[index + 1] = path
                return replace(self, flags=tuple(flags))
        return replace(self, flags=("-m", path, *flags))


def arguments(winner: Winner) -> str:
    """One flag with its values a line, quoted for a POSIX shell."""
    lines = [shlex.join(group) for group in argument_groups(winner.flags)]
    return "".join(f"{line}\n" for line in lines)


def docker_run(winner: Winner, *, image: str | None = None, gpus: bool = True, port: int = 8080) -> str:
    """A ``docker run`` line that mounts the weights' folder where ``-m`` says; without ``image`` it asks for one."""
    program = f"docker run --rm {'--gpus all ' if gpus else ''}-p 127.0.0.1:{port}:{port}"
    folder = _model_folder(winner.flags)
    mount = f" -v {shlex.quote(f'{folder}:{folder}:ro')}" if folder else ""
    reach = [] if "--host" in winner.flags else ["--host", "0.0.0.0"]  # noqa: S104 - inside its own network
    reach += [] if "--port" in winner.flags else ["--port", str(port)]
    start = f"{program}{mount} {shlex.quote(image) if image else _IMAGE}"
    return command_text([*winner.flags, *reach], width=WIDTH, program=start) + "\n"


def kustomize_patch(
    winner: Winner, *, deployment: str | None = None, container: str = CONTAINER, replicas: bool = False
) -> str:
    """A strategic merge patch for the Deployment that serves the model.

    ``container`` must name the container that exists: another name would add one. ``replicas`` sets
    their number too; leave it off where an autoscaler owns it.
    """
    spec: dict[str, Any] = {"template": {"spec": {"containers": [{"name": container, "args": list(winner.flags)}]}}}
    if replicas:
        spec = {"replicas": winner.replicas, **spec}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment or winner.name},
        "spec": spec,
    }
    return comment_header(_notes(winner, container, replicas=replicas)) + yaml.safe_dump(
        patch, sort_keys=False, width=10_000, allow_unicode=True
    )


def _notes(winner: Winner, container: str, *, replicas: bool) -> Sequence[str]:
    cost = money(winner.monthly_cost, winner.currency)
    notes = [
        f"slotune: {winner.label} for {winner.name}",
        f"{winner.evidence} {winner.replicas} × {winner.gpu_class}, {cost} a month.",
        "In kustomization.yaml: patches: [{path: slotune-patch.yaml}]",
        f"The container must be called {container}; its command stays, its arguments are replaced as a whole.",
    ]
    if not replicas:
        notes.append(
            f"Replicas are left alone: {plural(winner.replicas, 'server was', 'servers were')} measured to be enough."
        )
    if winner.hardware_changed:
        notes.append(f"It was measured on GPU class {winner.gpu_class}: move the node selector too.")
    if any(REDACTED in flag for flag in winner.flags):
        notes.append(f"Put your secret where {REDACTED} stands, or pass it by environment.")
    return notes


def comment_header(lines: Sequence[str]) -> str:
    """The lines as comments at the top of a YAML file."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def _model_folder(flags: Sequence[str]) -> str | None:
    for flag, value in pairwise(flags):
        if flag in _MODEL_FLAGS and value.startswith("/"):
            return value.rsplit("/", 1)[0] or "/"
    return None


def _evidence(document: Mapping[str, Any], key: str) -> str:
    trial = next((t for t in document["trials"] if t["key"] == key), None)
    wait = trial["verdict"]["ttft_p95_s"] if trial else None
    return f"p95 TTFT {seconds(wait)} at {trial['rate']:g} requests/s a server." if trial and wait else "Measured."
