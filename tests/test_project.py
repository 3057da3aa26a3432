"""The frame holds: pins agree with what is declared, documents with each other, code with the house rules."""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hatchling.build import build_wheel
from packaging.requirements import Requirement

import slotune
from slotune.api.manifests import load_manifests
from slotune.cli import make_parser

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "operator" / "slotune"
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted(PACKAGE.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

APACHE_2 = "0ffddef9e48f8a09aed5caf2d44f7ba1c1be2d9b8e0a6f693b1635b2d5566645"
"""SHA-256 of the licence's words, one blank between them: line breaks do not matter."""
FILE_LINES_MAX = 500
LICENCE_TERMS = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC", "MIT"} | {
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
}
"""Terms that docs/licences.md has words for. A new one needs a look by a person first."""


class Pin(NamedTuple):
    """One locked package; a package may have one pin for each Python version."""

    name: str
    version: str
    hashes: int


def pins(lock: str) -> list[Pin]:
    """What a lock file holds, in its order. Anything that is not a pin with hashes is an assertion."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text().replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pin = re.match(r"([a-z0-9][a-z0-9._-]*)==([^ ;]+)( ; [^\\]*?)?((?: +--hash=sha256:[0-9a-f]{64})*) *$", line)
        assert pin, f"requirements/{lock}.txt: {line[:80]!r} is not NAME==VERSION with hashes"
        found.append(Pin(pin[1], pin[2], pin[4].count("--hash")))
    return found


def versions(lock: str) -> dict[str, set[str]]:
    """Package name to its locked versions."""
    held: dict[str, set[str]] = {}
    for pin in pins(lock):
        held.setdefault(pin.name, set()).add(pin.version)
    return held


def unmet(requirements: list[str], lock: str) -> list[str]:
    """Requirements that a lock file has no pin for, or a pin outside the declared range."""
    held = versions(lock)
    missing = []
    for requirement in map(Requirement, requirements):
        locked = held.get(requirement.name.lower().replace("_", "-"), set())
        if not locked or not all(requirement.specifier.contains(version) for version in locked):
            missing.append(f"{requirement} (locked: {', '.join(sorted(locked)) or 'nothing'})")
    return missing


@pytest.mark.parametrize("lock", [path.stem for path in LOCKS])
def test_every_locked_package_has_a_hash(lock: str) -> None:
    assert [pin.name for pin in pins(lock) if not pin.hashes] == []


@pytest.mark.parametrize("lock", [path.stem for path in LOCKS])
def test_a_lock_file_names_no_index_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    # An option at the start of a line is where pip and uv write an index; addresses have a scheme or an @.
    assert re.findall(r"^ *-(?!-hash=).*|^.*(?:://| @ ).*", text, re.MULTILINE) == []


def test_the_locks_hold_what_the_project_declares() -> None:
    run_time = PYPROJECT["project"]["dependencies"]
    engine = PYPROJECT["project"]["optional-dependencies"]["engine"]
    nvidia = PYPROJECT["project"]["optional-dependencies"]["nvidia"]
    development = PYPROJECT["dependency-groups"]["dev"]
    assert unmet(run_time, "runtime") == []
    assert unmet([*run_time, *engine], "engine") == []
    assert unmet([*run_time, *nvidia], "nvidia") == []
    assert unmet([*run_time, *engine, *nvidia, *development], "dev") == []


def test_the_build_is_pinned_as_it_is_declared() -> None:
    declared = PYPROJECT["build-system"]["requires"]
    source = (ROOT / "requirements" / "build.in").read_text().splitlines()
    assert [line for line in declared if line not in source] == []
    assert unmet([line for line in source if not line.startswith("#")], "build") == []


@pytest.mark.parametrize(
    ("smaller", "larger"), [("runtime", "engine"), *((lock, "dev") for lock in ("engine", "build", "nvidia"))]
)
def test_one_lock_never_contradicts_another(smaller: str, larger: str) -> None:
    inner, outer = versions(smaller), versions(larger)
    assert {name: held for name, held in inner.items() if outer.get(name) != held} == {}


def test_every_run_time_dependency_has_known_terms_on_record() -> None:
    page = (ROOT / "docs" / "licences.md").read_text()
    recorded = dict(re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", page, re.MULTILINE))
    needed = {*versions("engine"), *versions("nvidia"), *versions("operator")} - {"colorama"}  # Windows only
    assert set(recorded) == needed, "run `make licences`"
    terms = {name: set(re.split(r"[() ]+|AND|OR", licence)) - {""} for name, licence in recorded.items()}
    assert {name: unknown for name, held in terms.items() if (unknown := held - LICENCE_TERMS)} == {}


def test_the_licence_is_apache_2_word_for_word() -> None:
    words = " ".join((ROOT / "LICENSE").read_text().split())
    assert hashlib.sha256(words.encode()).hexdigest() == APACHE_2
    assert PYPROJECT["project"]["license"] == "Apache-2.0"


def test_every_package_and_module_says_what_it_is() -> None:
    silent = [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_no_source_file_is_too_long_to_hold_one_idea() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_file_is_named_after_everything() -> None:
    assert [path.name for path in SOURCES if path.stem in {"utils", "util", "helpers", "common", "misc"}] == []


def test_the_layers_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_wheel_ships_the_whole_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    wheel = tmp_path / build_wheel(str(tmp_path))
    shipped = set(zipfile.ZipFile(wheel).namelist())
    package = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert package - shipped == set()
    assert "slotune/py.typed" in shipped
    assert any(name.endswith("licenses/LICENSE") for name in shipped)


def test_the_changelog_begins_with_this_version() -> None:
    newest = re.search(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == slotune.__version__


def anchors(document: Path) -> set[str]:
    """The names that a link into a document may end in, as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_between_documents_lead_somewhere(document: str) -> None:
    source = ROOT / document
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", source.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (source.parent / path).resolve() if path else source
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


def test_documents_name_only_targets_that_make_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for path in DOCUMENTS for name in re.findall(r"`make ([a-z]+)|^    make ([a-z]+)", path.read_text())}
    assert {name for pair in named for name in pair if name} - targets == set()


def typed_words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every command and option that a parser knows, those of its commands included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield name
                yield from typed_words(command)
        elif action.dest != "help":
            yield from action.option_strings


def test_the_command_line_reference_has_every_command_and_option() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert {word for word in typed_words(make_parser()) if not re.search(rf"[ `]{word}\b", page)} == set()


def test_the_example_is_a_valid_manifest() -> None:
    manifests = load_manifests([ROOT / "examples" / "demo" / "slotune.yaml"])
    assert manifests.deployment.spec.slo.ttft_p95


def test_code_names_only_documents_that_exist() -> None:
    known = {path.name for path in DOCUMENTS}
    strange = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*SOURCES, *sorted((ROOT / "bench").glob("*.py"))]
        for name in re.findall(r"[\w-]+\.md\b|\b(?:design|research)\b[^\n]{0,20}§", path.read_text())
        if name not in known
    }
    assert strange == set()
