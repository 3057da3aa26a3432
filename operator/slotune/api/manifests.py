"""From files to a checked LlamaDeployment with everything it refers to, or every problem at once.

The only place of this package that reads files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slotune.api.documents import MOST_BYTES, read_documents
from slotune.api.inventory import Entry, Inventory, problem_at, take_stock
from slotune.api.problems import InvalidManifest, Problem, closest
from slotune.api.references import Manifests, resolve
from slotune.api.v1alpha1 import LlamaDeployment

__all__ = ["InvalidManifest", "Manifests", "Problem", "Source", "load_every", "load_manifests", "parse_every"]

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Source:
    """One file's content."""

    name: str
    """As messages call it."""
    content: bytes
    directory: Path
    """Where relative paths in it start."""


def load_manifests(paths: Iterable[str | Path], name: str | None = None) -> Manifests:
    """The LlamaDeployment in these files (the one called ``name`` when there are several), checked and resolved.

    A path is a file with one or more YAML documents, a folder (its .yaml, .yml and .json files, not those below), or
    ``-`` for standard input. Raises :class:`InvalidManifest` with every problem.
    """
    found = load_every(paths)
    names = [manifests.deployment.metadata.name for manifests in found]
    chosen = [manifests for manifests in found if name in {None, manifests.deployment.metadata.name}]
    if len(chosen) == 1:
        return chosen[0]
    if len(chosen) > 1:
        raise InvalidManifest(
            (Problem(f"there are several LlamaDeployments: choose one of {', '.join(names)} by name"),)
        )
    meant = closest(str(name), names)
    cure = f"there is no such LlamaDeployment: did you mean {meant}?" if meant else f"there is only {', '.join(names)}"
    raise InvalidManifest((Problem(cure, "metadata.name", name),))


def load_every(paths: Iterable[str | Path]) -> tuple[Manifests, ...]:
    """Every LlamaDeployment in these files, as :func:`load_manifests` reads them; at least one."""
    sources, problems = _read(paths)
    return parse_every(sources, problems)


def parse_every(sources: Sequence[Source], problems: Sequence[Problem] = ()) -> tuple[Manifests, ...]:
    """The same from what was read already, with the problems that reading it had. No I/O."""
    documents = []
    found = list(problems)
    for source in sources:
        read, wrong = read_documents(source.name, source.content)
        documents += read
        found += wrong
    inventory = take_stock(documents)
    found += inventory.problems
    directories = {source.name: source.directory for source in sources}
    deployments = inventory.of("LlamaDeployment")
    every = []
    for entry in deployments:
        resolved = resolve(entry, inventory, directories, found)
        if resolved is not None:
            every.append(resolved)
    found += _shared_targets(deployments)
    if not deployments and not found:
        found.append(_nothing_found(sources, inventory))
    if found:
        raise InvalidManifest(tuple(dict.fromkeys(sorted(found, key=_by_place))))
    return tuple(every)


def _shared_targets(deployments: Sequence[Entry]) -> list[Problem]:
    """Two that would tune one Deployment would undo each other's answer."""
    problems = []
    first: dict[tuple[str | None, str], str] = {}
    for entry in deployments:
        if not isinstance(entry.model, LlamaDeployment) or entry.model.spec.target_ref is None:
            continue
        name = entry.model.spec.target_ref.name
        other = first.setdefault((entry.namespace, name), entry.name)
        if other != entry.name:
            cure = f"is the target of {other} already: one LlamaDeployment for each Deployment"
            problems.append(problem_at(entry.document, ("spec", "targetRef", "name"), cure, name))
    return problems


def _by_place(problem: Problem) -> tuple[str, int]:
    return problem.file, problem.line or 0


def _nothing_found(sources: Sequence[Source], inventory: Inventory) -> Problem:
    where = ", ".join(source.name for source in sources) or "nothing"
    ignored = f". {'; '.join(inventory.notes[:3])}" if inventory.notes else ""
    return Problem(f"there is no LlamaDeployment in {where}{ignored}")


def _read(paths: Iterable[str | Path]) -> tuple[list[Source], list[Problem]]:
    sources: list[Source] = []
    problems: list[Problem] = []
    for path in paths:
        if str(path) == "-":
            sources.append(Source("standard input", sys.stdin.buffer.read(MOST_BYTES + 1), Path.cwd()))
            continue
        try:
            files = _files(Path(path))
            if not files:
                cure = "there is no .yaml, .yml or .json file in this folder"
                problems.append(Problem(cure, file=str(path)))
            for file in files:
                with file.open("rb") as stream:
                    sources.append(Source(str(file), stream.read(MOST_BYTES + 1), file.parent))
        except FileNotFoundError:
            problems.append(Problem("there is no such file", file=str(path)))
        except OSError as error:
            problems.append(Problem(f"can't be read: {error.strerror}", file=str(path)))
    return sources, problems


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
