"""Two programs are never compared as if they were one, and one image is never taken for two."""

from __future__ import annotations

import pytest

from slotune.sandbox.image_identity import digest_of_image, is_another_image

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
NAME = "ghcr.io/ggml-org/llama.cpp"


@pytest.mark.parametrize(
    ("expected", "found", "want"),
    [
        (f"{NAME}@{A}", f"{NAME}@{A}", False),
        (f"{NAME}@{A}", f"{NAME}@{B}", True),
        (f"{NAME}@{A}", f"mirror.example/llama.cpp@{A}", False),
        (f"docker-pullable://{NAME}@{A}", f"{NAME}@{A}", False),
        (A, B, True),
        (A, A, False),
        (f"{NAME}@{A}", B, False),
        (B, f"{NAME}@{A}", False),
        (f"{NAME}@{A}", "", False),
        ("", f"{NAME}@{A}", False),
        (f"{NAME}@{A}", f"{NAME}:server", False),
    ],
    ids=[
        "the same",
        "another",
        "the same from a mirror",
        "the same as Docker writes it",
        "two that were imported",
        "one that was imported",
        "fetched here and imported there",
        "imported here and fetched there",
        "not said now",
        "not known before",
        "a name without a digest",
    ],
)
def test_only_two_digests_of_one_sort_tell_images_apart(expected: str, found: str, want: bool) -> None:
    assert is_another_image(expected, found) is want


def test_a_digest_is_read_from_every_form() -> None:
    assert digest_of_image(f"{NAME}@{A}") == digest_of_image(A) == A
    assert digest_of_image(f"{NAME}:server") == ""
