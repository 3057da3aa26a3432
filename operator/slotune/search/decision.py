"""The answer of a search, with what it proved and what it did not."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.quality.divergence import Divergence
from slotune.search.pairs import Pair
from slotune.search.trial import TrialResult

__all__ = ["HOURS_PER_MONTH", "Choice", "Decision", "DecisionKind", "PairFinding", "Rejection", "Step", "monthly_cost"]

HOURS_PER_MONTH = 730
"""Hours of a mean month: 8,760 / 12."""


class DecisionKind(enum.StrEnum):
    """How a search ended."""

    FOUND = "Found"  # a configuration was confirmed to keep the promise
    INFEASIBLE = "Infeasible"  # nothing within the declared space and replica limits can
    BUDGET_EXHAUSTED = "BudgetExhausted"  # stopped before it was clear; `choice` holds the best confirmed, if any
    INCONCLUSIVE = "Inconclusive"  # everything left could neither be passed nor failed
    INVALID = "Invalid"  # measurements were at fault, so nothing could be decided


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate with the replicas that it needs."""

    candidate: Candidate
    replicas: int
    monthly_cost: Decimal
    cost_per_million_output_tokens: Decimal | None
    """At the peak rate."""
    result: TrialResult
    """The trial that confirmed it."""
    headroom: float
    """Rate that it passed at over the rate that it is owed, 1.0 or more."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one group of changes bought, measured on top of the steps before it."""

    name: str
    """``baseline``, ``queue``, ``cache``, ``bytes`` or ``hardware``."""
    candidate: Candidate
    replicas: int | None
    """Fewest replicas that passed; None when none did within the limit or it was not measured."""
    monthly_cost: Decimal | None
    result: TrialResult | None
    """The trial that stands for the step: its Pass, or its last Fail."""
    changed: tuple[str, ...] = ()
    """Candidate fields that changed in this step."""
    kept: bool = True
    """Whether the promise was shown to hold at ``replicas``."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a candidate is not the answer: one reason each."""

    candidate: Candidate
    code: str
    reason: str
    rate: float | None = None
    """Rate of the trial that rejected it; None when it was never run."""
    undecided: bool = False
    """True when it could still have been cheaper (Inconclusive, Invalid, or budget)."""


@dataclass(frozen=True, slots=True)
class PairFinding:
    """What was found out about the answers of one pair of weights and KV cache. It gates, it does not rank."""

    pair: Pair
    state: str
    """``Ungated`` (the reference itself), ``Open`` (nothing led to it), ``Passed``, ``Failed`` or ``Undecided``."""
    code: str = ""
    """CamelCase: ``QualityKept``, ``QualityTooLow``, ``QualityUndecided``, or what its server failed of."""
    reason: str = ""
    """One sentence with the numbers; empty where nothing was measured."""
    divergence: Divergence | None = None
    is_reference: bool = False
    is_todays: bool = False
    """Whether what runs today answers with it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of a search."""

    kind: DecisionKind
    reason: str
    """One plain sentence."""
    choice: Choice | None = None
    today: Choice | None = None
    """The baseline at today's replicas when it was measured; its ``result`` may be a Fail."""
    baseline_result: TrialResult | None = None
    steps: tuple[Step, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    binding_constraint: str | None = None
    """CamelCase name of what stands in the way when infeasible: TTFTPrefill, TTFTQueue, TokensPerSecond, Memory, …"""
    binding_reason: str | None = None
    binding_finding: str | None = None
    """Identifier under which the catalogue of diagnoses says more, such as ``SLT050``."""
    nearest: TrialResult | None = None
    """The measured trial that came closest when nothing passed."""
    cost_gap: Decimal | None = None
    """Monthly cost that an undecided candidate might still save; 0 is proved cheapest; None without a choice."""
    considered: int = 0
    confidence: float | None = None
    gpu_seconds: float = 0.0
    trials: int = 0
    proved: tuple[str, ...] = ()
    """Sentences: what was proved."""
    not_proved: tuple[str, ...] = ()
    answers: tuple[PairFinding, ...] = ()
    """Every pair that was offered; empty when nobody looks at answers, or there is no choice."""
    noise_floor: Divergence | None = None
    """The reference against itself after a restart."""


def monthly_cost(replicas: int, price_per_hour: Decimal) -> Decimal:
    """replicas x price x 730, rounded to cents."""
    return (price_per_hour * replicas * HOURS_PER_MONTH).quantize(Decimal("0.01"))
