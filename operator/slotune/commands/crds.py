"""``slotune crds``: the CustomResourceDefinitions that this version of slotune works with."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from slotune.api.crds import custom_resource_definition, file_name, write_crd
from slotune.api.v1alpha1 import KINDS
from slotune.api.v1alpha1.meta import GROUP
from slotune.api.yaml_dialect import write_documents
from slotune.commands.outcomes import ExitCode
from slotune.commands.writing import write_atomically

__all__ = ["check_crds", "print_crds", "write_crds"]


def print_crds() -> int:
    """All CRDs as one YAML stream on standard output, for ``kubectl apply --server-side -f -``."""
    sys.stdout.write(write_documents(*(custom_resource_definition(kind) for kind in KINDS)))
    return ExitCode.FOUND


def write_crds(folder: Path) -> int:
    """One file for each kind into ``folder``, which is made when it is not there. Other files in it are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        write_atomically(folder / file_name(kind), write_crd(kind).encode())
    return ExitCode.FOUND


def check_crds(folder: Path) -> int:
    """Whether ``folder`` holds what :func:`write_crds` would write; every file that differs is named, with its line."""
    differences = list(_differences(folder))
    for difference in differences:
        sys.stderr.write(f"slotune: {difference}\n")
    if not differences:
        return ExitCode.FOUND
    sys.stderr.write(f"slotune: write them again: slotune crds --out {folder}\n")
    return ExitCode.INVALID_INPUT


def _differences(folder: Path) -> Iterator[str]:
    wanted = {file_name(kind): write_crd(kind) for kind in KINDS}
    for name, want in wanted.items():
        path = folder / name
        if not path.is_file():
            yield f"{path}: is not there"
        elif difference := _first_difference(path.read_text(encoding="utf-8", errors="replace"), want):
            yield f"{path}:{difference}"
    for path in sorted(folder.glob(f"{GROUP}_*.yaml")):
        if path.name not in wanted:
            yield f"{path}: is of no kind of this slotune: remove it"


def _first_difference(text: str, want: str) -> str:
    pairs = itertools.zip_longest(text.splitlines(keepends=True), want.splitlines(keepends=True))
    for number, (line, wanted) in enumerate(pairs, start=1):
        if line != wanted:
            return f"{number}: {_quoted(line)} should be {_quoted(wanted)}"
    return ""


def _quoted(line: str | None) -> str:
    return "the end of the file" if line is None else repr(line.strip() or line)
