"""How much traffic there is at the peak, and how its requests are spaced."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slotune.api.model import Model
from slotune.api.rules import Rule, exactly_one_of, holds
from slotune.api.texts import Duration, FilePath, PositiveDecimal
from slotune.api.v1alpha1.meta import KeyReference

__all__ = ["ArrivalProcess", "Arrivals", "FileReference", "Load", "Trace", "Users"]

ArrivalProcess = Literal["Poisson", "Constant", "Gamma", "Replay"]


class FileReference(Model):
    """A file in JSON Lines (UTF-8)."""

    path: FilePath
    """Path of the file. In a cluster: on a volume of the server's pod, which the load client mounts read-only. On the
    command line: relative to the manifest."""


class Users(Model):
    """People who wait for an answer, read it, and ask again."""

    count: Annotated[int, Field(ge=1, le=1_000_000)]
    """How many use the service at the peak, over the whole fleet."""
    think_time: Duration
    """Mean time between an answer's end and the next request of the same user, e.g. "30s"."""


class Trace(Model):
    """Recorded arrivals in JSON Lines (UTF-8), one request a line. Each is {"timestamp_s": 12.5},
    {"timestamp_ms": 12500} or {"timestamp": "2026-01-31T12:00:00Z"}, with optional "input_tokens" and
    "output_tokens"."""

    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap of the same namespace."""
    file: FileReference | None = None
    """A file."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of("config_map_key_ref", "file", message="exactly one of configMapKeyRef and file is needed"),
    )


class Load(Model):
    """How much traffic there is at the peak, over the whole fleet. Exactly one field."""

    request_rate: PositiveDecimal | None = None
    """Requests per second at the peak, e.g. "6", or "0.1" for a home."""
    users: Users | None = None
    """People with a think time; slotune turns them into the rate that they can reach at most."""
    trace: Trace | None = None
    """A recorded trace; its busiest ten minutes (more, until 300 arrivals are in it) are replayed, and their rate is
    the peak rate."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of(
            "request_rate",
            "users",
            "trace",
            message="exactly one of requestRate, users and trace is needed",
        ),
    )


class Arrivals(Model):
    """How requests are spaced."""

    process: ArrivalProcess
    """Poisson: independent users, the honest default. Constant: evenly spaced, which hides queues. Gamma: burstier or
    smoother, by burstiness. Replay: the recorded spacing of load.trace."""
    burstiness: PositiveDecimal | None = None
    """Shape of Gamma: below "1" burstier than Poisson, above smoother."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: (it.process == "Gamma") == (it.burstiness is not None),
            'process Gamma needs burstiness (such as "0.5"), and no other process has one',
            ("process", "burstiness"),
            "(self.process == 'Gamma') == has(self.burstiness)",
            at="burstiness",
        ),
    )
