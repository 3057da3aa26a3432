"""What the next step of a rollout means for people: where the way to production stands, and in which phase.

The phase follows from the stage that is remembered and not from the step, of which one stage takes many: a phase that
was left does not come back while production stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus, Phase, RolloutRecord
from slotune.controller.conditions import Claim
from slotune.controller.reasons import ConditionType, Reason
from slotune.rollout.steps import AwaitApproval, Done, NothingToDo, Refuse, RollBack, RolloutStep, Wait, WriteAhead

__all__ = [
    "ENDED",
    "WENT_BACK",
    "RolloutNews",
    "news_of",
    "not_written_yet",
    "nothing_planned",
    "pods_change",
    "rollout_news",
]

T: Final = ConditionType

WENT_BACK: Final = frozenset({Reason.ROLLING_BACK, Reason.ROLLED_BACK, Reason.CANDIDATE_ROLLED_BACK})
"""Reasons of a rollout that went, or goes, back."""
ENDED: Final = frozenset(
    {
        *WENT_BACK,
        Reason.NO_RECOMMENDATION,
        Reason.NOT_READY,
        Reason.SLO_MISSED,
        Reason.VERIFICATION_INCONCLUSIVE,
        Reason.CHANGED_BY_OTHER,
        Reason.REVERTED_BY_OTHER,
        Reason.NOTHING_TO_GO_BACK_TO,
        Reason.LAST_GOOD_LOST,
        Reason.LAST_GOOD_UNHEALTHY,
        Reason.HALTED,
    }
)
"""Reasons of RolledOut that tell what happened. Others tell what comes, or what a person should do for it."""
_PHASE_OF_STAGE: Final[Mapping[str, Phase]] = MappingProxyType(
    {
        "Draining": "RollingOut",
        "Deferred": "RollingOut",
        "Applying": "RollingOut",
        "Verifying": "Verifying",
        "Unproven": "Verifying",
        "RollingBack": "RolledBack",
        "RolledBack": "RolledBack",
    }
)
"""Of a rollout that is not at its end. What its next step is says nothing of it: one stage takes many, in any order."""
_PARTS_OF_THE_WAY: Final = (
    frozenset(
        {
            Reason.ROLLING_OUT,
            Reason.DRAINING,
            Reason.DEFERRED,
            Reason.PODS_BUSY,
            Reason.IDLE_CHECK_FAILED,
            Reason.APPLYING,
            Reason.PODS_STARTING,
        }
    ),
    frozenset({Reason.VERIFYING}),
)
"""Reasons of RolledOut before the candidate answers, and after."""
_STAGES: Final = frozenset(
    {Reason.PROGRESSING, Reason.MEASURING, Reason.SEARCHING, Reason.CONFIRMING, Reason.EXPLAINING}
)
"""Reasons of Reconciling while a search runs."""


@dataclass(frozen=True, slots=True)
class RolloutNews:
    """Where the way to production stands."""

    state: Literal["Settled", "Waiting", "Working", "Refused"]
    """Settled: production is as the spec asks. Waiting: for a person. Refused: it cannot go on until somebody changes
    something."""
    claim: Claim
    """The condition RolledOut."""
    phase: Phase
    doing: str = ""
    """Reason of Reconciling while Working, where it is not the claim's."""


def rollout_news(step: RolloutStep, record: RolloutRecord | None = None) -> RolloutNews:
    """What the next step of a rollout says about where it stands.

    ``record``: the rollout that the status remembers, under way or at its end; None: none.
    """
    if isinstance(step, WriteAhead):
        return _written_down(step)
    claim = Claim(T.ROLLED_OUT, step.rolled_out, step.reason, step.message)
    if isinstance(step, Done):
        return RolloutNews("Settled", claim, "Tuned")
    if isinstance(step, AwaitApproval):
        return RolloutNews("Waiting", claim, "AwaitingApproval")
    if isinstance(step, NothingToDo):
        settled = step.reason in {Reason.RECOMMEND_ONLY, Reason.SAVES_TOO_LITTLE, Reason.NO_RECOMMENDATION}
        return RolloutNews("Settled" if settled else "Waiting", claim, "Recommended")
    if isinstance(step, Refuse):
        return RolloutNews("Refused", claim, "RolledBack" if step.reason in WENT_BACK else "Failed")
    phase: Phase = "Recommended" if record is None else _PHASE_OF_STAGE.get(record.stage, "Recommended")
    if isinstance(step, RollBack):
        phase = "RolledBack"
    elif isinstance(step, Wait) and step.serves:
        phase = "Tuned"
    unproven = step.reason == Reason.VERIFICATION_INCONCLUSIVE  # it is looked at on, and waits for a person
    return RolloutNews("Refused" if unproven else "Working", claim, phase)


def news_of(step: RolloutStep, status: LlamaDeploymentStatus) -> RolloutNews:
    """What the step means for people. One that only writes something down within a part of the way leaves said what
    was said before."""
    news, known = rollout_news(step, status.rollout), status.condition(T.ROLLED_OUT)
    if not isinstance(step, WriteAhead) or known is None:
        return news
    part = next((reasons for reasons in _PARTS_OF_THE_WAY if news.claim.reason in reasons), frozenset())
    if known.reason not in part:
        return news
    return replace(news, claim=Claim(T.ROLLED_OUT, known.status, known.reason, known.message))


def not_written_yet(then: RolloutStep | None, status: LlamaDeploymentStatus) -> RolloutNews:
    """Of an answer that the status does not hold yet, so that nothing acts on it. ``then``: the step if it did. One
    that serves already needs no act; what else it will be depends on what was not looked at yet."""
    if isinstance(then, Done):
        return rollout_news(then)
    known = status.condition(T.RECONCILING)
    doing = known.reason if known is not None and known.reason in _STAGES else Reason.PROGRESSING
    claim = Claim.false(T.ROLLED_OUT, Reason.PENDING, "The answer is written down before production is touched")
    return RolloutNews("Working", claim, "Recommended", doing)


def nothing_planned(status: LlamaDeploymentStatus, *, only_recommends: bool) -> RolloutNews | None:
    """Of an answer that stays until it is looked for again, and is not brought to production before. None: what was
    said of it stays said, since it tells what happened."""
    known = status.condition(T.ROLLED_OUT)
    if status.recommendation is None or (known is not None and (known.status == "True" or known.reason in ENDED)):
        return None
    if only_recommends:
        claim = Claim.false(T.ROLLED_OUT, Reason.RECOMMEND_ONLY, "rollout.mode is Recommend: nothing is written")
    else:
        words = "The answer is looked for again before anything is rolled out"
        claim = Claim.unknown(T.ROLLED_OUT, Reason.PENDING, words)
    return RolloutNews("Settled", claim, "Recommended")


def pods_change(words: str) -> RolloutNews:
    """While production's pods change without a rollout: what was said of one is not true of what comes."""
    return RolloutNews("Working", Claim.unknown(T.ROLLED_OUT, Reason.APPLYING, words), "RollingOut")


def _written_down(step: WriteAhead) -> RolloutNews:
    """Where a rollout stands once its next stage, or the end of it, is written down."""
    record = step.memory.rollout
    match None if record is None else record.stage:
        case "Verifying" | "Done":
            return RolloutNews("Working", Claim.unknown(T.ROLLED_OUT, Reason.VERIFYING, step.message), "Verifying")
        case "Unproven":
            claim = Claim.unknown(T.ROLLED_OUT, Reason.VERIFICATION_INCONCLUSIVE, step.message)
            return RolloutNews("Refused", claim, "Verifying")
        case "RollingBack" if record is not None:
            reason = record.reason or Reason.ROLLING_BACK
            return RolloutNews("Working", Claim.false(T.ROLLED_OUT, reason, record.message), "RolledBack")
        case "RolledBack" if record is not None:
            return RolloutNews("Working", Claim.false(T.ROLLED_OUT, Reason.ROLLED_BACK, record.message), "RolledBack")
        case "Halted" if record is not None:
            claim = Claim.false(T.ROLLED_OUT, record.reason or Reason.HALTED, record.message)
            return RolloutNews("Refused", claim, "Failed")
    return RolloutNews("Working", Claim.false(T.ROLLED_OUT, Reason.ROLLING_OUT, step.message), "RollingOut")
