"""From this checkout to images in a node's containerd; whatever is unchanged since the last time is not done again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from e2e.images.buildah import Buildah
from e2e.images.debian import BASE_IMAGE, base_key, make_base
from e2e.images.wheels import wheelhouse
from e2e.node.places import CHECKOUT, cache_folder
from e2e.node.programs import MissingProgramsError

__all__ = ["ENGINE_IMAGE", "PRODUCT_IMAGE", "build_images", "load_images"]

PRODUCT_IMAGE = "localhost/slotune:e2e"
"""The operator and the load client."""

ENGINE_IMAGE = "localhost/llama-server:e2e"
"""llama.cpp."""

_LOCKS = ("build", "runtime", "operator", "engine")
_HERE = Path(__file__).resolve().parent
_MODIFIED = 1_700_000_000
"""Every file's time in a build's context: a fresh checkout has the same content, and must find the same steps done."""


def build_images(tell: Callable[[str], None] = lambda _: None) -> Path:
    """Build both images from the checkout; a folder in the OCI layout that holds exactly them.

    Raises:
        MissingProgramsError: buildah or debootstrap is not installed.
        subprocess.CalledProcessError: a step of the build failed; its output is on stderr.
    """
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    if missing:
        raise MissingProgramsError(f"missing: apt-get install -y --no-install-recommends {' '.join(missing)}")
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    layout, mark = folder / "layout", folder / "layout.made-from"
    with _locked(folder):
        wheels = wheelhouse(folder, [CHECKOUT / "requirements" / f"{lock}.txt" for lock in _LOCKS])
        context = _stage_context(folder / "context", wheels)
        made_from = f"{base_key()} {_digest(context)}"
        if mark.exists() and mark.read_text() == made_from:
            tell("unchanged")
            return layout
        buildah = Buildah(folder)
        buildah.tidy()
        if make_base(buildah):
            tell(f"{BASE_IMAGE} made")
        base = {"BASE": BASE_IMAGE}
        buildah.build(
            context, context / "Dockerfile", PRODUCT_IMAGE, {**base, "EXTRAS": "operator", "PIP_INDEX_URL": ""}
        )
        tell(f"{PRODUCT_IMAGE} built")
        buildah.build(context, context / "engine.Dockerfile", ENGINE_IMAGE, base)
        tell(f"{ENGINE_IMAGE} built")
        # The folder is kept: a layer that is in it already is not packed again.
        mark.unlink(missing_ok=True)
        (layout / "index.json").unlink(missing_ok=True)
        buildah.export([PRODUCT_IMAGE, ENGINE_IMAGE], layout)
        _name_for_containerd(layout)
        _remove_unnamed_blobs(layout)
        mark.write_text(made_from)
        tell("exported")
    return layout


def load_images(layout: Path, ctr: str, containerd_socket: Path) -> None:
    """Put the images into a node. Loading them again is quick."""
    command = [ctr, "--address", str(containerd_socket), "--namespace", "k8s.io", "images", "import", "-"]
    with (
        _locked(layout.parent),
        subprocess.Popen(["tar", "-C", str(layout), "-cf", "-", "."], stdout=subprocess.PIPE) as packing,
    ):
        subprocess.run(command, stdin=packing.stdout, stdout=subprocess.DEVNULL, check=True)


def _stage_context(context: Path, wheels: Path) -> Path:
    """A build context of the files that images are made from, with times and rights that are the same everywhere."""
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir()
    for name in _allowed():
        source, target = CHECKOUT / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    shutil.copytree(wheels, context / "wheelhouse", copy_function=os.link)
    for name in ("llama-server", "engine.Dockerfile"):
        shutil.copy(_HERE / name, context)
    shutil.copy(CHECKOUT / "Dockerfile", context)
    for path in [context, *context.rglob("*")]:
        os.utime(path, (_MODIFIED, _MODIFIED))
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    return context


def _digest(context: Path) -> str:
    """Of everything that the images are made from but the base; a wheel's name and size stand for the wheel."""
    digest = hashlib.sha256()
    for path in sorted(context.rglob("*")):
        if path.is_file():
            told = str(path.stat().st_size).encode() if path.suffix == ".whl" else path.read_bytes()
            digest.update(f"{path.relative_to(context)} {len(told)}\0".encode())
            digest.update(told)
    return digest.hexdigest()


def _allowed() -> list[str]:
    """What .dockerignore lets into a context, but for the wheels, which come from the cache."""
    lines = (CHECKOUT / ".dockerignore").read_text().splitlines()
    return [line[1:].strip("/") for line in lines if line.startswith("!") and not line.startswith("!wheelhouse")]


def _name_for_containerd(layout: Path) -> None:
    """containerd makes up a name for an image that has none of its own kind."""
    index = layout / "index.json"
    held = json.loads(index.read_text())
    for manifest in held["manifests"]:
        names = manifest["annotations"]
        names["io.containerd.image.name"] = names["org.opencontainers.image.ref.name"]
    index.write_text(json.dumps(held))


def _remove_unnamed_blobs(layout: Path) -> None:
    blobs = layout / "blobs" / "sha256"
    named = set()
    for manifest in json.loads((layout / "index.json").read_text())["manifests"]:
        held = json.loads((blobs / _hex(manifest)).read_text())
        named |= {_hex(manifest), _hex(held["config"]), *(_hex(layer) for layer in held["layers"])}
    for blob in blobs.iterdir():
        if blob.name not in named:
            blob.unlink()


def _hex(descriptor: dict[str, str]) -> str:
    return descriptor["digest"].removeprefix("sha256:")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "build.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
