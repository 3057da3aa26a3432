"""A digest tells every change of a file, is computed once for a file that stays, and needs no place to be kept."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotune.llama.file_digest import FileChangedError, cache_folder, file_digest

LATER_S = 60.0
"""After the file was written, so that its clock has moved on."""


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(range(256)) * 16)
    return path


def kept(path: Path, cache: Path | None) -> str:
    return file_digest(path, cache, kept_from=1, now=time.time() + LATER_S)


def notes(cache: Path) -> list[Path]:
    return sorted((cache / "digests").iterdir())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 4095), value=st.integers(1, 255))
def test_any_byte_that_changes_changes_the_digest_even_with_size_and_times_put_back(
    tmp_path: Path, place: int, value: int
) -> None:
    path, cache = tmp_path / "m.gguf", tmp_path / "cache"
    path.write_bytes(bytes(range(256)) * 16)
    times = path.stat()
    sound = kept(path, cache)
    with path.open("r+b") as file:
        file.seek(place)
        was = file.read(1)[0]
        file.seek(place)
        file.write(bytes([was ^ value]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert kept(path, cache) != sound
    assert kept(path, cache) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_stays_is_read_once(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = kept(weights, tmp_path)
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert kept(weights, tmp_path) == sound


def test_another_file_in_its_place_is_read(weights: Path, tmp_path: Path) -> None:
    sound = kept(weights, tmp_path)
    other = tmp_path / "other.gguf"
    other.write_bytes(bytes(4096))
    other.replace(weights)
    assert kept(weights, tmp_path) != sound


def test_a_file_that_was_written_a_moment_ago_is_not_remembered(weights: Path, tmp_path: Path) -> None:
    file_digest(weights, tmp_path / "cache", kept_from=1, now=weights.stat().st_mtime + 1.0)
    assert not (tmp_path / "cache").exists()


def test_a_small_file_leaves_nothing_behind(weights: Path, tmp_path: Path) -> None:
    file_digest(weights, tmp_path / "cache", now=time.time() + LATER_S)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"state": [1], "sha256": "ab"}'])
def test_a_damaged_note_is_written_anew(weights: Path, tmp_path: Path, content: bytes) -> None:
    sound = kept(weights, tmp_path)
    (note,) = notes(tmp_path)
    whole = note.read_bytes()
    note.write_bytes(content)
    assert kept(weights, tmp_path) == sound
    assert [one.read_bytes() for one in notes(tmp_path)] == [whole]


def test_a_digest_that_is_none_is_not_believed(weights: Path, tmp_path: Path) -> None:
    sound = kept(weights, tmp_path)
    (note,) = notes(tmp_path)
    note.write_text(note.read_text().replace(sound, "sound"))
    assert kept(weights, tmp_path) == sound


def test_where_nothing_can_be_kept_the_digest_is_the_same(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert kept(weights, tmp_path / "file") == kept(weights, None) == kept(weights, tmp_path)


def test_a_file_that_is_written_while_it_is_read_has_no_digest(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = hashlib.file_digest

    def disturbed(*asked: object) -> object:
        found = genuine(*asked)  # type: ignore[arg-type]  # passed on
        weights.write_bytes(b"a download goes on")
        return found

    monkeypatch.setattr(hashlib, "file_digest", disturbed)
    with pytest.raises(FileChangedError, match="wait until it is complete"):
        file_digest(weights)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"SLOTUNE_CACHE": "/own", "XDG_CACHE_HOME": "/all"}, "/own"),
        ({"XDG_CACHE_HOME": "/all"}, "/all/slotune"),
        ({}, "~/.cache/slotune"),
    ],
)
def test_digests_are_kept_where_models_are(environment: dict[str, str], folder: str) -> None:
    assert cache_folder(environment) == Path(folder).expanduser()
