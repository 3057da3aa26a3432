"""Whether two pods ran the same image: a tag may lead to another one at any time, its digest never does."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["digest_of_image", "is_another_image"]

_DIGEST: Final = re.compile(r"(@?)(sha(?:256|512):[0-9a-f]+)$")


def digest_of_image(image_id: str) -> str:
    """The digest in what kubelet says of a container's image; empty where it says none."""
    found = _DIGEST.search(image_id)
    return found[2] if found else ""


def is_another_image(expected: str, found: str) -> bool:
    """Whether both are digests of one sort, and differ.

    Of an image that was fetched kubelet names the digest in its registry (``name@sha256:…``), of one that was imported
    by hand that of its configuration (``sha256:…``). One image may be both on two nodes, so these tell nothing of each
    other.
    """
    one, other = _DIGEST.search(expected), _DIGEST.search(found)
    return one is not None and other is not None and one[1] == other[1] and one[2] != other[2]
