"""The smallest image: one static busybox. It keeps each pod's namespaces open and is a handy small server in tests."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

from e2e.node.configuration import PAUSE_IMAGE

__all__ = ["write_pause_image"]

_TOOLS = [
    "cat",
    "echo",
    "env",
    "grep",
    "httpd",
    "ls",
    "mkdir",
    "nc",
    "printf",
    "sh",
    "sleep",
    "test",
    "touch",
    "true",
    "wget",
]


def write_pause_image(folder: Path, busybox: Path) -> Path:
    """Write an archive as ``docker save`` would, with ``busybox`` in it; its path.

    The binary has to be a static one, since nothing else is in the image.
    """
    layer = _layer(busybox)
    config = json.dumps(
        {
            "architecture": _architecture(),
            "os": "linux",
            "config": {"Cmd": ["sleep", "infinity"], "Env": ["PATH=/bin"], "User": "65532:65532"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]).encode()
    archive = folder / "busybox.tar"
    with tarfile.open(archive, "w") as tar:
        for name, content in (("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
            _add(tar, name, content, 0o644)
    return archive


def _layer(busybox: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for tool in _TOOLS:
            link = tarfile.TarInfo(f"bin/{tool}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(scratch)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _architecture() -> str:
    """As images name it: amd64, arm64."""
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
