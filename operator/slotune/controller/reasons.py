"""Every condition that slotune sets, and every reason that it gives: what a script may compare, each with its meaning.

Messages are for people and may change; these words may not.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final

__all__ = ["BAD_NEWS", "REASONS_OF", "ConditionType", "Reason"]


class ConditionType(enum.StrEnum):
    """What is observed. The order is that of the status."""

    READY = "Ready"  # all that the spec asks of slotune is done for this generation; always there
    RECONCILING = "Reconciling"  # slotune works towards it; only there while True
    STALLED = "Stalled"  # it cannot be reached without a change by somebody; only there while True
    TARGET_RESOLVED = "TargetResolved"  # the server, its flags, weights, GPU classes and traffic are known
    BASELINE_MEASURED = "BaselineMeasured"  # what runs today was measured at today's replicas
    SEARCH_COMPLETED = "SearchCompleted"  # nothing is left to measure; the status says what came of it
    SLO_MET = "SLOMet"  # what serves production now was measured to keep the SLO at its replicas
    ROLLED_OUT = "RolledOut"  # the answer serves production


class Reason(enum.StrEnum):
    """Why a condition is as it is. A trial's outcome may give a reason of its own beside these."""

    # before there is anything to say
    PENDING = "Pending"  # not looked at yet
    SUSPENDED = "Suspended"  # spec.suspend stops everything
    PROGRESSING = "Progressing"  # the next step is under way

    # what the spec names
    RESOLVED = "Resolved"  # everything that the spec names was found and read
    INVALID_SPEC = "InvalidSpec"  # the spec asks for what cannot be; the message names the field and the cure
    REFERENCE_NOT_FOUND = "ReferenceNotFound"  # something that the spec names is not there
    TARGET_CONFLICT = "TargetConflict"  # an older LlamaDeployment has the same target
    INVALID_WORKLOAD = "InvalidWorkload"  # prompts or a recorded trace hold what cannot be sent
    REFUSED = "Refused"  # the user's server has a form whose flags cannot be known for certain
    MODEL_UNREADABLE = "ModelUnreadable"  # a weights file is missing, cut off or no GGUF file
    WINDOW_TOO_SHORT = "WindowTooShort"  # no opening of sandbox.borrow.window is long enough for a trial
    NO_CAPACITY = "NoCapacity"  # no node has the GPU class, or none was free for a trial for too long
    VERSION_SKEW = "VersionSkew"  # written for another version of slotune: apply its CRDs
    FORBIDDEN = "Forbidden"  # slotune's role lacks a right that this spec needs
    REFUSED_BY_CLUSTER = "RefusedByCluster"  # the API server or an admission rule refuses what slotune writes
    UNAVAILABLE = "Unavailable"  # the API server, or a webhook or kubelet behind it, does not answer a request
    INTERNAL_ERROR = "InternalError"  # slotune failed in a way that is a defect of its own

    # the baseline
    MEASURED = "Measured"  # there is a verdict on what runs today
    MEASURING = "Measuring"  # its trial runs or waits
    BASELINE_DOES_NOT_START = "BaselineDoesNotStart"  # what runs today did not start in a trial
    MEASUREMENT_AT_FAULT = "MeasurementAtFault"  # it was measured, and each measurement was Invalid

    # the search
    SEARCHING = "Searching"  # trials run
    CONFIRMING = "Confirming"  # the would-be answer is measured again, on a fresh start with fresh seeds
    EXPLAINING = "Explaining"  # the answer stands; what each change bought is measured
    FOUND = "Found"  # an answer was confirmed
    INFEASIBLE = "Infeasible"  # nothing within the declared space and limits keeps the SLO
    BUDGET_EXHAUSTED = "BudgetExhausted"  # the budget ended before it was clear
    INCONCLUSIVE = "Inconclusive"  # neither keeping nor breaking could be shown
    MEASUREMENTS_INVALID = "MeasurementsInvalid"  # measurements were at fault, so nothing was decided

    # the promise
    SERVING_KEEPS_SLO = "ServingKeepsSLO"  # what serves was measured to keep it
    SERVING_MISSES_SLO = "ServingMissesSLO"  # what serves was measured to miss it, and no answer is known yet
    NOT_ROLLED_OUT = "NotRolledOut"  # an answer is known; what serves still was measured to miss it
    NOT_MEASURED = "NotMeasured"  # nothing is known of what serves

    # the way to production
    NO_RECOMMENDATION = "NoRecommendation"  # there is nothing to roll out
    RECOMMENDED = "Recommended"  # the recommendation stands, which is all that rollout.mode asks for
    RECOMMEND_ONLY = "RecommendOnly"  # rollout.mode is Recommend: nothing is written
    ALREADY_SERVING = "AlreadyServing"  # the answer is what serves already
    SAVES_TOO_LITTLE = "SavesTooLittle"  # less than rollout.minSavingPercent, and what serves keeps the SLO
    AWAITING_APPROVAL = "AwaitingApproval"  # rollout.approvedCandidate does not name it yet
    STALE_APPROVAL = "StaleApproval"  # rollout.approvedCandidate names an older recommendation
    BORROWED = "Borrowed"  # production's GPU is lent to a trial
    SCALED_TO_ZERO = "ScaledToZero"  # the Deployment has no replicas, so nothing can be replaced or seen
    DEPLOYMENT_NOT_FOUND = "DeploymentNotFound"  # it is not there yet
    DEPLOYMENT_IS_DELETED = "DeploymentIsDeleted"  # it is going away
    DEPLOYMENT_PAUSED = "DeploymentPaused"  # somebody paused it
    PRODUCTION_NOT_READY = "ProductionNotReady"  # a change of somebody else's is under way, or no pod answers
    FIELD_OWNED_BY_OTHER = "FieldOwnedByOther"  # another manager owns the fields that would change
    WOULD_DEADLOCK = "WouldDeadlock"  # no GPU is spare, so new pods would wait for ever
    NEEDS_DOWNTIME = "NeedsDowntime"  # nobody would be served for a while, which is not allowed
    DRAINING = "Draining"  # servers finish their answers before they are replaced
    DEFERRED = "Deferred"  # running answers were not cut; it is tried again
    PODS_BUSY = "PodsBusy"  # answers still ran when drain.timeout ended
    IDLE_CHECK_FAILED = "IdleCheckFailed"  # nobody could see whether answers still run
    APPLYING = "Applying"  # the change is sent
    ROLLING_OUT = "RollingOut"  # production is being changed
    PODS_STARTING = "PodsStarting"  # new pods load their model
    VERIFYING = "Verifying"  # production has it and is watched
    ROLLED_OUT = "RolledOut"  # production has it, and it held while it was watched
    VERIFICATION_INCONCLUSIVE = "VerificationInconclusive"  # production showed too little to judge by
    NOT_READY = "NotReady"  # new pods were not ready in time
    SLO_MISSED = "SLOMissed"  # production missed the SLO while it was watched
    CHANGED_BY_OTHER = "ChangedByOther"  # somebody changed the pods meanwhile
    REVERTED_BY_OTHER = "RevertedByOther"  # somebody put the old pods back, again and again
    ROLLING_BACK = "RollingBack"  # what served before is put back
    ROLLED_BACK = "RolledBack"  # it did not hold in production; what served before serves again
    CANDIDATE_ROLLED_BACK = "CandidateRolledBack"  # it was rolled back once and is not tried again by itself
    NOTHING_TO_GO_BACK_TO = "NothingToGoBackTo"  # it did not hold, and nothing is known that served before
    LAST_GOOD_LOST = "LastGoodLost"  # it did not hold, and the template that served before is not what was recorded
    LAST_GOOD_UNHEALTHY = "LastGoodUnhealthy"  # what served before was put back and is not ready either
    HALTED = "Halted"  # a person has to look


_UNRESOLVED: Final = (
    Reason.INVALID_SPEC,
    Reason.REFERENCE_NOT_FOUND,
    Reason.TARGET_CONFLICT,
    Reason.INVALID_WORKLOAD,
    Reason.REFUSED,
    Reason.MODEL_UNREADABLE,
    Reason.VERSION_SKEW,
)
_UNANSWERED: Final = (
    Reason.INFEASIBLE,
    Reason.BUDGET_EXHAUSTED,
    Reason.INCONCLUSIVE,
    Reason.MEASUREMENTS_INVALID,
)
_ROLLOUT_STALLED: Final = (
    Reason.STALE_APPROVAL,
    Reason.DEPLOYMENT_PAUSED,
    Reason.FIELD_OWNED_BY_OTHER,
    Reason.WOULD_DEADLOCK,
    Reason.NEEDS_DOWNTIME,
    Reason.VERIFICATION_INCONCLUSIVE,
    Reason.NOT_READY,
    Reason.SLO_MISSED,
    Reason.CHANGED_BY_OTHER,
    Reason.REVERTED_BY_OTHER,
    Reason.ROLLED_BACK,
    Reason.CANDIDATE_ROLLED_BACK,
    Reason.NOTHING_TO_GO_BACK_TO,
    Reason.LAST_GOOD_LOST,
    Reason.LAST_GOOD_UNHEALTHY,
    Reason.RECOMMEND_ONLY,  # a change is to be taken back, and may not be written
    Reason.HALTED,
)
_STALLING: Final = (
    *_UNRESOLVED,
    Reason.WINDOW_TOO_SHORT,
    Reason.NO_CAPACITY,
    Reason.PRODUCTION_NOT_READY,
    Reason.FORBIDDEN,
    Reason.REFUSED_BY_CLUSTER,
    Reason.UNAVAILABLE,
    Reason.INTERNAL_ERROR,
    Reason.BASELINE_DOES_NOT_START,
    *_UNANSWERED,
    *_ROLLOUT_STALLED,
)
_STAGES: Final = (Reason.PROGRESSING, Reason.MEASURING, Reason.SEARCHING, Reason.CONFIRMING, Reason.EXPLAINING)
_ROLLOUT_WORKING: Final = (
    Reason.BORROWED,
    Reason.SCALED_TO_ZERO,
    Reason.DEPLOYMENT_NOT_FOUND,
    Reason.DEPLOYMENT_IS_DELETED,
    Reason.PRODUCTION_NOT_READY,
    Reason.DRAINING,
    Reason.DEFERRED,
    Reason.PODS_BUSY,
    Reason.IDLE_CHECK_FAILED,
    Reason.APPLYING,
    Reason.ROLLING_OUT,
    Reason.PODS_STARTING,
    Reason.VERIFYING,
    Reason.ROLLING_BACK,
)
_GOING_BACK: Final = (Reason.NOT_READY, Reason.SLO_MISSED, Reason.ROLLED_BACK)
"""Why what served before is being put back, until one look at it ends the story."""
_ROLLOUT_DONE: Final = (
    Reason.RECOMMEND_ONLY,
    Reason.ALREADY_SERVING,
    Reason.SAVES_TOO_LITTLE,
    Reason.ROLLED_OUT,
)

BAD_NEWS: Final = frozenset(_STALLING) - {Reason.RECOMMEND_ONLY, Reason.PRODUCTION_NOT_READY}
"""Reasons that warn whichever condition gives them."""

REASONS_OF: Final = MappingProxyType(
    {
        ConditionType.READY: (
            Reason.PENDING,
            Reason.SUSPENDED,
            Reason.AWAITING_APPROVAL,
            Reason.RECOMMENDED,
            *_ROLLOUT_DONE,
            *_STAGES,
            *_ROLLOUT_WORKING,
            *_STALLING,
        ),
        ConditionType.RECONCILING: (*_STAGES, *_ROLLOUT_WORKING, *_GOING_BACK),
        ConditionType.STALLED: _STALLING,
        ConditionType.TARGET_RESOLVED: (Reason.PENDING, Reason.RESOLVED, *_UNRESOLVED),
        ConditionType.BASELINE_MEASURED: (
            Reason.PENDING,
            Reason.MEASURING,
            Reason.MEASURED,
            Reason.BASELINE_DOES_NOT_START,
            Reason.MEASUREMENT_AT_FAULT,
            Reason.NOT_MEASURED,
        ),
        ConditionType.SEARCH_COMPLETED: (Reason.PENDING, *_STAGES, Reason.FOUND, *_UNANSWERED),
        ConditionType.SLO_MET: (
            Reason.PENDING,
            Reason.SERVING_KEEPS_SLO,
            Reason.SERVING_MISSES_SLO,
            Reason.NOT_ROLLED_OUT,
            Reason.INFEASIBLE,
            Reason.INCONCLUSIVE,
            Reason.BASELINE_DOES_NOT_START,
            Reason.NOT_MEASURED,
        ),
        ConditionType.ROLLED_OUT: (
            Reason.PENDING,
            Reason.SUSPENDED,
            Reason.NO_RECOMMENDATION,
            Reason.AWAITING_APPROVAL,
            *_ROLLOUT_DONE,
            *_ROLLOUT_WORKING,
            *_ROLLOUT_STALLED,
        ),
    }
)
"""Which reasons a condition may give: what the documentation lists and a test holds."""
