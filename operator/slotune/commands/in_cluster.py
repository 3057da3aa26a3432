"""Runs what talks to a cluster, and says on one line why it can't."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from kubernetes.aio.config import ConfigException

from slotune.commands.outcomes import ExitCode
from slotune.controller.cluster import ClusterError
from slotune.controller.run import CRDsMissingError

__all__ = ["in_cluster"]


def in_cluster(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of ``work``, or of why it could not be done."""
    try:
        return asyncio.run(work)
    except ConfigException as error:
        cure = "run it inside of a cluster, or name a kubeconfig with KUBECONFIG"
        sys.stderr.write(f"slotune: no cluster is known ({error}): {cure}\n")
    except (ClusterError, CRDsMissingError) as error:
        sys.stderr.write(f"slotune: {error}\n")
    return ExitCode.INVALID_INPUT
