"""The base image: Debian with Python and the library that llama.cpp computes with, from Debian's own packages."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from e2e.images.buildah import Buildah

__all__ = ["BASE_IMAGE", "base_key", "make_base"]

BASE_IMAGE = "localhost/debian-python:bookworm"

_PACKAGES = ["ca-certificates", "libgomp1", "python3-venv"]
_SUITE = "bookworm"
_NEEDLESS = [
    "var/cache/apt/archives",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
]


def base_key() -> str:
    """What the image is made from; the number counts changes of how."""
    return f"{_SUITE} {' '.join(_PACKAGES)} 1"


def make_base(buildah: Buildah) -> bool:
    """Make the image unless it is there; whether it was made. 70 s, most of it unpacking packages.

    Raises:
        subprocess.CalledProcessError: debootstrap or buildah failed; their messages are on stderr.
    """
    if buildah.label(BASE_IMAGE, "slotune.made-from") == base_key():
        return False
    with tempfile.TemporaryDirectory(prefix="debian-", dir=buildah.folder) as scratch:
        root = Path(scratch, "root")
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(root)]
        subprocess.run([*command, *_mirror()], stdout=subprocess.DEVNULL, check=True)
        for folder in _NEEDLESS:
            for entry in (root / folder).iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
        buildah.commit_folder(root, BASE_IMAGE, {"slotune.made-from": base_key()})
    return True


def _mirror() -> list[str]:
    """The mirror that this machine's own packages come from; debootstrap's default when it is no Debian of that age."""
    form = ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)", "Created-By: Packages"]
    told = subprocess.run(form, capture_output=True, text=True, check=False).stdout
    for line in told.splitlines():
        site, _, rest = line.partition(" ")
        if rest == f"{_SUITE} main":
            return [site]
    return []
