"""How the answer reaches production, when it is looked for again, and how production is watched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from slotune.api.cron import parse_cron
from slotune.api.forms import Form, Items
from slotune.api.model import Model
from slotune.api.quantities import QuantityError
from slotune.api.rules import Breach, Rule
from slotune.api.texts import Duration, PositiveDuration, ShortText
from slotune.api.v1alpha1.meta import KeyReference
from slotune.api.v1alpha1.sandbox import TimeZone

__all__ = ["CandidateHash", "Drain", "Observe", "Prometheus", "Rerun", "Retune", "Rollout", "Verify"]

CandidateHash = Annotated[
    str,
    Form(r"^[0-9a-f]{10}$", "ten hexadecimal digits are needed: copy status.recommendation.candidateHash", 10),
]
Query = Annotated[str, Form(r"^[^\x00]+$", "a PromQL query is needed", 4096)]
CronSchedule = Annotated[
    str,
    Form(
        r"^[0-9*/,-]+ [0-9*/,-]+ [0-9*/,-]+ [0-9A-Za-z*/,-]+ [0-9A-Za-z*/,-]+$",
        'five cron fields are needed, in quotes, such as "0 3 * * 6"',
        64,
    ),
]
BaseURL = Annotated[
    str,
    Form(
        r"^https?://[A-Za-z0-9\[]([-A-Za-z0-9.:\]]*[A-Za-z0-9\]])?(/[-A-Za-z0-9._~/%]*)?$",
        "an address such as http://prometheus.monitoring:9090 is needed, without user, password or query",
        1024,
    ),
]


class Drain(Model):
    """How a server is emptied before it is replaced. It is replaced once /slots shows nothing at work, and not at all
    when that can't be seen."""

    timeout: Duration = "5m"
    """How long to wait for running answers."""
    on_timeout: Literal["Abort", "Proceed"] = "Abort"
    """What happens when answers still run then. Abort: the rollout waits for a better time. Proceed: they are cut."""


class Verify(Model):
    """How a new configuration is judged in production. No data and NaN are inconclusive, never a success."""

    window: PositiveDuration = "10m"
    """How long it is watched."""
    interval: PositiveDuration = "1m"
    """Time between two looks."""
    probe_requests: Annotated[int, Field(ge=0, le=1000)] = 20
    """Synthetic requests that are sent in the window; 0 sends none."""
    failure_limit: Annotated[int, Field(ge=0, le=100)] = 2
    """Looks that may miss the SLO before the last good configuration is restored."""
    inconclusive_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """Looks that may show nothing before the rollout stops and asks."""


class Rollout(Model):
    """How the answer reaches production."""

    mode: Literal["Recommend", "RequireApproval", "Auto"] = "Recommend"
    """Recommend: status and a ConfigMap with a ready patch, nothing else is written. RequireApproval: rolled out once
    approvedCandidate names it. Auto: rolled out when it is found."""
    approved_candidate: CandidateHash | None = None
    """Hash of the candidate that may be rolled out (status.recommendation.candidateHash), for RequireApproval. The hash
    of an older recommendation is refused."""
    allow_downtime: bool = False
    """Whether production may be down for the change where no GPU is spare. Without it such a change is refused."""
    min_saving_percent: Annotated[int, Field(ge=0, le=100)] = 5
    """Least saving for which a configuration that keeps the SLO is replaced: no churn for noise. One that misses it is
    always replaced."""
    progress_deadline: PositiveDuration = "20m"
    """How long new pods may take to be ready, the loading of the model included."""
    drain: Drain = Drain()
    """How servers are emptied before they are replaced."""
    verify: Verify = Verify()
    """How the new configuration is judged in production."""


def _schedule_that_never_comes(retune: Any) -> Iterator[Breach]:
    if retune.schedule is not None:
        try:
            parse_cron(retune.schedule)
        except QuantityError as error:
            yield Breach(("schedule",), retune.schedule, error.cure)


class Retune(Model):
    """When the answer is looked for again. A change of the spec always counts; suspend stops everything."""

    triggers: Annotated[
        tuple[Literal["ImageChange", "ModelChange", "WorkloadChange", "HardwareChange", "SLOBreach"], ...],
        Items(most=5, distinct=True),
    ] = ("ImageChange", "ModelChange", "WorkloadChange", "HardwareChange")
    """Changes that make the answer stale: the image of targetRef or what else of its pod somebody changed, a weights
    file, the workload, the GPU or its driver, or production that misses the SLO."""
    breach_for: PositiveDuration = "30m"
    """How long production must miss the SLO for SLOBreach."""
    schedule: CronSchedule | None = None
    """When to look again in any case, as five cron fields."""
    time_zone: TimeZone = "UTC"
    """Time zone of the schedule (IANA)."""
    cooldown: Duration = "24h"
    """Least time between two searches that nobody asked for."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "every field of a schedule must be within its range",
            ("schedule",),
            _schedule_that_never_comes,
            None,  # a pattern can't tell the 31st from the 32nd
            "schedule",
        ),
    )


class Prometheus(Model):
    """Where production's numbers are read."""

    url: BaseURL
    """Base address of Prometheus' HTTP API. Credentials do not belong here."""
    ttft_query: Query | None = None
    """PromQL that gives p95 TTFT in seconds as exactly one series. llama-server has no histogram of it: without a
    query, only what its own counters say is shown."""
    tokens_per_second_query: Query | None = None
    """PromQL that gives tokens per second per user as exactly one series; llama-server's own counters when absent."""
    bearer_token_secret_ref: KeyReference | None = None
    """Token for Prometheus, in a key of a Secret of the same namespace."""
    interval: PositiveDuration = "1m"
    """Time between two queries."""
    timeout: PositiveDuration = "10s"
    """How long a query may take."""


class Observe(Model):
    """How production is watched beside what was measured."""

    prometheus: Prometheus | None = None
    """Where production's numbers are read; not at all when absent."""


class Rerun(Model):
    """Asks for a new search."""

    reason: ShortText
    """Any new text starts a search for which nothing measured before counts. The reason is then in Git's diff."""
