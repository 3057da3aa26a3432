"""Where trials run, and what they may touch."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from slotune.api import quantities
from slotune.api.forms import Form, Items
from slotune.api.model import Model
from slotune.api.rules import Rule, holds
from slotune.api.texts import Name, PositiveBytes, PositiveDuration, PositiveQuantity

__all__ = ["Borrow", "LoadClient", "Sandbox", "TimeZone", "Window"]

Window = Annotated[
    str,
    Form(
        quantities.WINDOW_PATTERN,
        "a window such as 02:00-05:00, Sat 22:00-04:00 or Mon-Fri 01:00-03:00 is needed",
        64,
        parse=quantities.parse_window,
    ),
]
TimeZone = Annotated[
    str,
    Form(r"^[A-Za-z]+([/_+-][A-Za-z0-9]+)*$", "a time zone such as UTC or Europe/Berlin is needed", 64),
]


def _fits_window(borrow: Any) -> bool:
    minutes = quantities.parse_window(borrow.window).length_minutes
    return quantities.parse_duration(borrow.max_downtime) <= minutes * 60


class Borrow(Model):
    """Takes production's own GPU for trials, and gives it back. How to restore production is written down before it is
    touched, and done even when the operator dies."""

    window: Window
    """When production may be down: "02:00-05:00", "Sat 22:00-04:00", "Mon-Fri 01:00-03:00". It may pass midnight."""
    time_zone: TimeZone = "UTC"
    """Time zone of the window (IANA), e.g. Europe/Berlin."""
    max_downtime: PositiveDuration = "1h"
    """Longest time that production is down at once; it is back by the end of the window in any case."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            _fits_window,
            "maxDowntime must fit into the window",
            ("window", "max_downtime"),
            None,  # CEL has no times of day
            at="maxDowntime",
        ),
    )


class LoadClient(Model):
    """Resources of the container that sends the requests. It gets them as limits too, so that it never takes the
    server's."""

    cpu: PositiveQuantity = "1"
    """CPU, e.g. "1" or "500m". A client that is late makes a trial invalid."""
    memory: PositiveBytes = "512Mi"
    """Memory, e.g. "512Mi"."""


class Sandbox(Model):
    """Where trials run, and what they may touch. Every trial is a Job of one server and one load client."""

    mode: Literal["SpareGPU", "Borrow"] = "SpareGPU"
    """SpareGPU: a GPU that is free. Borrow: production's own GPU, within a window."""
    borrow: Borrow | None = None
    """When and for how long production's GPU may be taken."""
    capacity_timeout: PositiveDuration = "30m"
    """How long a trial may wait for a GPU until the search is stalled. A GPU that never comes fails no candidate."""
    queue_name: Name | None = None
    """Kueue queue that the Jobs are put into."""
    priority_class_name: Name | None = None
    """Priority class of the trials' pods; it should be below production's and never preempt."""
    load_client: LoadClient = LoadClient()
    """Resources of the load client."""
    secret_env: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Items(most=32, distinct=True)
    ] = ()
    """Environment variables of the server whose value comes from a Secret and that trials may see, by name. All others
    from Secrets are left out."""
    egress: Literal["Denied", "HTTPS"] = "Denied"
    """What a trial's pod may reach. HTTPS: port 443 and DNS, for init containers that fetch the model."""
    retain_trials: Annotated[int, Field(ge=0, le=1000)] = 100
    """LlamaTrials that are kept after a decision, newest first. A kept one answers the same question for free."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            lambda it: it.mode != "Borrow" or it.borrow is not None,
            "mode Borrow takes production down, so it needs borrow.window: when that is allowed",
            ("mode", "borrow"),
            "!has(self.mode) || self.mode != 'Borrow' || has(self.borrow)",
            at="borrow",
        ),
        holds(
            lambda it: it.mode == "Borrow" or it.borrow is None,
            "only mode Borrow reads this: set mode to Borrow, or remove it",
            ("mode", "borrow"),
            "!has(self.borrow) || (has(self.mode) && self.mode == 'Borrow')",
            at="borrow",
        ),
    )
