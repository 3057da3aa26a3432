"""Every condition that slotune sets, and every reason that it gives: what a script may compare, each with its meaning.

Messages are for people and may change; these words may not.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final

__all__ = ["REASONS_OF", "ConditionType", "Reason"]


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
    REFUSED = "Refused"  # the user's server has a form whose flags cannot be known for certain
    MODEL_UNREADABLE = "ModelUnreadable"  # a weights file is missing, cut off or no GGUF file
    NO_CAPACITY = "NoCapacity"  # no node has the GPU class, or none was free for a trial for too long
    VERSION_SKEW = "VersionSkew"  # written for another version of slotune: apply its CRDs
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
    RECOMMENDED = "Recommended"  # the recommendation stands; rollout.mode asks for no more
    ALREADY_SERVING = "AlreadyServing"  # the answer is what serves already
    SAVING_TOO_SMALL = "SavingTooSmall"  # it saves less than rollout.minSavingPercent, and what serves keeps the SLO
    AWAITING_APPROVAL = "AwaitingApproval"  # rollout.approvedCandidate does not name it yet
    STALE_APPROVAL = "StaleApproval"  # rollout.approvedCandidate names an older recommendation
    ROLLING_OUT = "RollingOut"  # production is being changed
    DRAINING = "Draining"  # servers finish their answers before they are replaced
    VERIFYING = "Verifying"  # production has it and is watched
    ROLLED_OUT = "RolledOut"  # production has it, and it held while it was watched
    ROLLED_BACK = "RolledBack"  # it did not hold in production; what served before serves again
    WOULD_DEADLOCK = "WouldDeadlock"  # no GPU is spare and downtime is not allowed
    FIELD_OWNED_BY_OTHER = "FieldOwnedByOther"  # another manager owns the fields that would change
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"  # new pods were not ready in time
    VERIFICATION_INCONCLUSIVE = "VerificationInconclusive"  # production showed too little to judge by
    NO_ANSWER = "NoAnswer"  # there is nothing to roll out


_STALLING: Final = (
    Reason.INVALID_SPEC,
    Reason.REFERENCE_NOT_FOUND,
    Reason.TARGET_CONFLICT,
    Reason.REFUSED,
    Reason.MODEL_UNREADABLE,
    Reason.NO_CAPACITY,
    Reason.VERSION_SKEW,
    Reason.INTERNAL_ERROR,
    Reason.BASELINE_DOES_NOT_START,
    Reason.INFEASIBLE,
    Reason.BUDGET_EXHAUSTED,
    Reason.INCONCLUSIVE,
    Reason.MEASUREMENTS_INVALID,
    Reason.STALE_APPROVAL,
    Reason.WOULD_DEADLOCK,
    Reason.FIELD_OWNED_BY_OTHER,
    Reason.PROGRESS_DEADLINE_EXCEEDED,
    Reason.VERIFICATION_INCONCLUSIVE,
    Reason.ROLLED_BACK,
)
_WORKING: Final = (
    Reason.PROGRESSING,
    Reason.MEASURING,
    Reason.SEARCHING,
    Reason.CONFIRMING,
    Reason.EXPLAINING,
    Reason.ROLLING_OUT,
    Reason.DRAINING,
    Reason.VERIFYING,
)

REASONS_OF: Final = MappingProxyType(
    {
        ConditionType.READY: (
            Reason.PENDING,
            Reason.SUSPENDED,
            Reason.RECOMMENDED,
            Reason.ALREADY_SERVING,
            Reason.SAVING_TOO_SMALL,
            Reason.ROLLED_OUT,
            Reason.AWAITING_APPROVAL,
            *_WORKING,
            *_STALLING,
        ),
        ConditionType.RECONCILING: _WORKING,
        ConditionType.STALLED: _STALLING,
        ConditionType.TARGET_RESOLVED: (
            Reason.PENDING,
            Reason.RESOLVED,
            Reason.INVALID_SPEC,
            Reason.REFERENCE_NOT_FOUND,
            Reason.TARGET_CONFLICT,
            Reason.REFUSED,
            Reason.MODEL_UNREADABLE,
            Reason.VERSION_SKEW,
        ),
        ConditionType.BASELINE_MEASURED: (
            Reason.PENDING,
            Reason.MEASURING,
            Reason.MEASURED,
            Reason.BASELINE_DOES_NOT_START,
            Reason.MEASUREMENT_AT_FAULT,
            Reason.NOT_MEASURED,
        ),
        ConditionType.SEARCH_COMPLETED: (
            Reason.PENDING,
            Reason.MEASURING,
            Reason.SEARCHING,
            Reason.CONFIRMING,
            Reason.EXPLAINING,
            Reason.FOUND,
            Reason.INFEASIBLE,
            Reason.BUDGET_EXHAUSTED,
            Reason.INCONCLUSIVE,
            Reason.MEASUREMENTS_INVALID,
        ),
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
            Reason.RECOMMENDED,
            Reason.ALREADY_SERVING,
            Reason.SAVING_TOO_SMALL,
            Reason.AWAITING_APPROVAL,
            Reason.STALE_APPROVAL,
            Reason.ROLLING_OUT,
            Reason.DRAINING,
            Reason.VERIFYING,
            Reason.ROLLED_OUT,
            Reason.ROLLED_BACK,
            Reason.WOULD_DEADLOCK,
            Reason.FIELD_OWNED_BY_OTHER,
            Reason.PROGRESS_DEADLINE_EXCEEDED,
            Reason.VERIFICATION_INCONCLUSIVE,
            Reason.NO_ANSWER,
        ),
    }
)
"""Which reasons a condition may give: what the documentation lists and a test holds."""
