"""The image as the chart runs it: nobody's user, a root that is read-only, no token, and every command there."""

from __future__ import annotations

import re
import subprocess

import pytest

from e2e.cluster import Cluster, Object
from e2e.conftest import Images
from e2e.waiting import eventually
from slotune import __version__

POD_LIMIT_S = 60.0
MOST_MIB = 250
"""Of its layers as a node fetches them, compressed. Seen: 121 with the operator's extra."""
COMMANDS = {
    "version": (("--version",), rf"slotune {re.escape(__version__)}\n"),
    "operator": (("operator", "--help"), r"(?s)usage: slotune operator .*--trial-image"),
    "trial": (("trial", "--help"), r"(?s)usage: slotune trial .*--directory"),
    "crds": (("crds",), r"(?s).*kind: CustomResourceDefinition"),
}
"""Arguments, and what is told then."""


def test_commands_run_as_nobody_on_a_root_that_is_read_only(cluster: Cluster, namespace: str, images: Images) -> None:
    restricted = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    containers = [
        {
            "name": name,
            "image": images.product,
            "imagePullPolicy": "IfNotPresent",
            "args": list(words),
            "securityContext": restricted,
        }
        for name, (words, _) in COMMANDS.items()
    ]
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": containers,
    }
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "commands"}, "spec": spec}, namespace)

    def phase() -> str:
        found = cluster.find("pod", "commands", namespace)
        assert found is not None
        return str(found["status"]["phase"])

    eventually(lambda: phase() in {"Succeeded", "Failed"}, POD_LIMIT_S, "all have ended")
    said = {name: cluster.logs("commands", name, namespace) for name in COMMANDS}
    assert phase() == "Succeeded", said
    for name, (_, told) in COMMANDS.items():
        assert re.match(told, said[name]), said[name]


def test_the_image_is_small_enough_for_a_node(cluster: Cluster, images: Images) -> None:
    if cluster.node is None:
        pytest.skip("another cluster's images are its owner's business")
    ctr = [cluster.node.programs["ctr"], "--address", str(cluster.node.record.containerd_socket), "--namespace=k8s.io"]
    listed = subprocess.run(
        [*ctr, "images", "ls", f"name=={images.product}"], check=True, capture_output=True, text=True
    ).stdout
    [found] = re.findall(r" ([0-9.]+) MiB ", listed)
    print(f"{images.product}: {found} MiB")
    assert float(found) < MOST_MIB
