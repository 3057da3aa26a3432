"""The weights that pods serve, on this machine's disk, and the volume through which a restricted pod may read them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.cluster import Object
from e2e.node.places import CHECKOUT

__all__ = ["MODELS_CLAIM", "WEIGHTS", "make_weights", "models_manifests"]

MODELS_CLAIM = "models"
"""The claim's name in each namespace."""

_SOURCE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS = {quant: f"SmolLM2-135M-Instruct.{quant}.gguf" for quant in ("F16", "Q8_0", "Q4_0")}
"""File name of each weight format."""


def make_weights(folder: Path) -> Path:
    """The folder with all three, quantized from the demo's model when they are missing.

    Raises:
        subprocess.CalledProcessError: fetching or quantizing failed; the message is on stderr.
    """
    if all((folder / name).is_file() for name in WEIGHTS.values()):
        return folder
    source = os.environ.get("SLOTUNE_DEMO_MODEL")
    if source is None:
        fetch = [sys.executable, str(CHECKOUT / "tools" / "fetch_model.py"), "--folder", str(folder)]
        subprocess.run(fetch, stdout=subprocess.DEVNULL, check=True)
        source = str(folder / _SOURCE)
    make = [sys.executable, "-m", "slotune.cli", "engine", "requantize", source, "--to", ",".join(WEIGHTS)]
    subprocess.run([*make, "--out", str(folder)], stdout=subprocess.DEVNULL, check=True)
    return folder


def models_manifests(volume: str, namespace: str, folder: Path) -> list[Object]:
    """A volume of that folder and a claim for it, since Pod Security ``restricted`` forbids ``hostPath`` in a pod."""
    shared = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    claim = {"namespace": namespace, "name": MODELS_CLAIM}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": shared
            | {
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": str(folder), "type": "Directory"},
                "claimRef": claim,
                "persistentVolumeReclaimPolicy": "Retain",
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": claim,
            "spec": shared | {"volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]
