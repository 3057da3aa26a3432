"""``slotune operator``: tune every LlamaDeployment of a cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from pythonjsonlogger.json import JsonFormatter  # comes with kopf

from slotune import __version__
from slotune.commands.in_cluster import in_cluster
from slotune.commands.outcomes import ExitCode
from slotune.controller.run import run_operator
from slotune.controller.settings import Settings
from slotune.tuning.errors import InvalidInputError

__all__ = ["run"]


def run(
    *,
    trial_image: str,
    namespaces: Sequence[str],
    max_trials: int,
    pull_policy: str,
    health_port: int,
    metrics_port: int,
    log_format: str,
) -> int:
    """Run the operator until it is told to stop.

    Raises:
        InvalidInputError: both ports are one.
    """
    if health_port == metrics_port:
        raise InvalidInputError("--metrics-port", metrics_port, "--health-port is the same: choose another one")
    _configure_logging(log_format)
    settings = Settings(
        trial_image=trial_image,
        namespaces=tuple(dict.fromkeys(namespaces)),
        max_trials=max_trials,
        image_pull_policy=pull_policy,
        identity=os.environ.get("HOSTNAME", "slotune"),
        version=__version__,
        health_port=health_port,
        metrics_port=metrics_port,
        kubeconfig=os.environ.get("KUBECONFIG") or None,
    )
    return in_cluster(_run(settings))


async def _run(settings: Settings) -> int:
    await run_operator(settings)
    return ExitCode.FOUND


def _configure_logging(log_format: str) -> None:
    """One line a message on standard error; JSON for machines that collect them."""
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("kopf", "aiohttp", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
