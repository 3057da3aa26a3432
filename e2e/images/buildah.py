"""Building without a daemon: buildah, with its store in the cache folder instead of the machine's own.

Each call has its own mount namespace. Otherwise buildah's mounts would stay until the machine's next start, those of a
build that failed even longer than its store.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Buildah"]

_LAYERS_KEPT = 200
"""Each state of the code adds about six, of 100 MB together. When they are gone, the next build takes a minute."""


@dataclass(frozen=True, slots=True)
class Buildah:
    """buildah with a store of its own below ``folder``."""

    folder: Path

    def build(self, context: Path, dockerfile: Path, image: str, arguments: Mapping[str, str]) -> None:
        """Build a Dockerfile; steps whose input is unchanged are taken from the store."""
        command = [
            "build",
            "--isolation",
            "chroot",
            "--network",
            "host",
            "--layers",
            "--force-rm",
            "--quiet",
            "--pull-never",
        ]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"]
        self._run(*command, "--file", str(dockerfile), "--tag", image, str(context))

    def commit_folder(self, root: Path, image: str, labels: Mapping[str, str]) -> None:
        """An image of one layer with what is in ``root``."""
        container = self._run("from", "scratch").strip()
        try:
            self._run("add", "--quiet", container, str(root), "/")
            marks = [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
            self._run("config", *marks, "--cmd", "/bin/sh", container)
            self._run("commit", "--quiet", container, image)
        finally:
            self._run("rm", container)

    def label(self, image: str, name: str) -> str | None:
        """A label of an image; None when there is no such image or label."""
        if not self._run("images", "--quiet", "--filter", f"reference={image}"):
            return None
        held = json.loads(self._run("inspect", "--type", "image", image))["OCIv1"].get("config", {})
        return (held.get("Labels") or {}).get(name)

    def export(self, images: Sequence[str], folder: Path) -> None:
        """Write images into one folder in the OCI layout, where layers that they share are there once."""
        for image in images:
            self._run("push", "--quiet", "--disable-compression", image, f"oci:{folder}:{image}")

    def tidy(self) -> None:
        """Remove what a build that was cut short has left, and old steps once there are many."""
        layers = self.folder / "store" / "overlay"
        if layers.exists():
            self._run("rm", "--all")
            if len(list(layers.iterdir())) > _LAYERS_KEPT:
                self._run("rmi", "--prune")

    def _run(self, *words: str) -> str:
        # What is mounted is noted in the run root, and nothing is mounted any more when the namespace is gone.
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.folder) as run:
            store = ["--root", str(self.folder / "store"), "--runroot", run, "--storage-driver", "overlay"]
            command = ["unshare", "--mount", "buildah", *store, *words]
            return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
