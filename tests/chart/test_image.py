"""The image holds what is pinned, and the build sees what it copies and nothing else."""

from __future__ import annotations

import re

from tests.chart.reading import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
ALLOWED = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)


def copied() -> set[str]:
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


def test_the_build_sees_what_it_copies_and_nothing_else() -> None:
    assert copied() == set(ALLOWED)
    assert [source for source in copied() if not (ROOT / source).exists()] == []


def test_packages_are_installed_by_their_hashes_only() -> None:
    installs = [line for line in DOCKERFILE.splitlines() if re.search(r"pip .*install", line)]
    ours = [line for line in installs if "--require-hashes" not in line]
    assert len(installs) == 3
    assert ["--no-index --no-deps dist/slotune-" in line for line in ours] == [True]


def test_every_extra_has_a_lock_file_of_its_own() -> None:
    named = re.findall(r"EXTRAS=([a-z,]+)", DOCKERFILE)
    assert {lock for extras in named for lock in extras.split(",")} == {"operator", "engine"}
    assert [
        lock for lock in ("runtime", "operator", "engine") if not (ROOT / f"requirements/{lock}.txt").exists()
    ] == []


def test_it_runs_as_a_number_that_is_not_root() -> None:
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["65532:65532"]


def test_what_was_put_into_the_wheelhouse_is_never_committed() -> None:
    assert (ROOT / "wheelhouse" / ".gitignore").read_text().splitlines()[-2:] == ["*", "!.gitignore"]
