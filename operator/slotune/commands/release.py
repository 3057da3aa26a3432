"""``slotune release``: let go of LlamaDeployments when the operator is gone."""

from __future__ import annotations

import os
import sys

from slotune.commands.in_cluster import in_cluster
from slotune.commands.outcomes import ExitCode
from slotune.controller.kube_cluster import KubeCluster
from slotune.controller.release import release as release_each

__all__ = ["release"]


def release(namespace: str | None, name: str | None) -> int:
    """Give back, take the finalizers off, and say so line by line."""
    return in_cluster(_release(namespace, name))


async def _release(namespace: str | None, name: str | None) -> int:
    count = 0
    async with await KubeCluster.connect(os.environ.get("KUBECONFIG")) as cluster:
        async for line in release_each(cluster, namespace, name):
            sys.stdout.write(f"{line}\n")
            count += 1
    if not count:
        where = "any namespace" if namespace is None else f"namespace {namespace}"
        sys.stderr.write(f"slotune release: there is no LlamaDeployment {name or ''} in {where}\n".replace("  ", " "))
        return ExitCode.INVALID_INPUT
    return ExitCode.FOUND
