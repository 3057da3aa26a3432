"""Recorded answers of a reference, as the cluster holds them: an object that goes with the LlamaTrial that made them.

Token ids are as good as the prompts, so they lie in a ConfigMap or, where the prompts come from a Secret, in a Secret.
A comparison names the place and the digest of what was recorded, so that nothing else in that place is taken for it. A
recording whose answers are gone counts as one that was at fault: it is made once more, and what was compared with it
still holds. Pure.

No rule can allow to read Secrets whose names are not known beforehand but one that allows to read all of them. So a
Secret is made and never read here: its name says of which trial's uid it is, so no other is found in its place, and
the comparison's own pod, which has it mounted, says when it is not what was recorded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from slotune.api.labels import SANDBOX_MANAGER, STATUS_MANAGER
from slotune.api.v1alpha1 import LlamaTrial, TrialReference
from slotune.api.v1alpha1.meta import API_VERSION
from slotune.controller.actions import Action, Apply, Create
from slotune.controller.children import is_child
from slotune.controller.cluster import Object
from slotune.controller.conditions import timestamp
from slotune.controller.draft import Draft
from slotune.controller.events import EventNote
from slotune.quality.reference import BrokenReferenceError
from slotune.sandbox.job import REFERENCE_KEY
from slotune.sandbox.outcomes import invalid
from slotune.sandbox.reference_check import read_reference
from slotune.search.answers import ATTEMPTS
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.tuning.trial_objects import completed_status, result_of
from slotune.verdict.verdicts import Outcome

__all__ = [
    "LostReference",
    "Place",
    "forget",
    "keep_reference",
    "lost_secret",
    "place_for",
    "place_of",
    "usable_references",
    "what_is_wrong",
]

REFERENCE_LOST = "ReferenceLost"
"""Code of a recording whose answers are not there any more."""
_NOT_IN_THE_POD = {"ReferenceMissing": "is gone", "ReferenceChanged": "does not hold any more what was recorded"}
"""Codes of comparisons whose pod found its Secret wanting."""
_AT_ONCE_S = 0.5


@dataclass(frozen=True, slots=True)
class LostReference:
    """A recording that can't be compared with."""

    trial: LlamaTrial = field(repr=False)
    """Which recorded it."""
    why: str
    """The beginning of a sentence."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where recorded answers lie. One of the two is a name."""

    config_map: str | None = None
    secret: str | None = None

    def __str__(self) -> str:
        """As sentences begin with it."""
        return f"ConfigMap {self.config_map}" if self.secret is None else f"Secret {self.secret}"


def place_for(trial: LlamaTrial) -> Place:
    """Where what a trial records has to lie."""
    name = f"{trial.metadata.name}-reference"
    if trial.spec.workload.prompts.secret_key_ref is None:
        return Place(config_map=name)
    return Place(secret=f"{name}-{hashlib.sha256(str(trial.metadata.uid).encode()).hexdigest()[:8]}")


def place_of(trial: LlamaTrial) -> Place:
    """Where what a trial recorded lies: an older slotune knew ConfigMaps only."""
    known = trial.status
    if known is not None and known.reference_config_map is not None:
        return Place(config_map=known.reference_config_map)
    return place_for(trial)


def keep_reference(trial: LlamaTrial, raw: Object, owner: Object, data: bytes) -> Action:
    """Keep what a trial recorded; ``raw`` is the trial as the cluster has it, ``owner`` the reference to it."""
    place, metadata = place_for(trial), raw["metadata"]
    made: Object = {
        "namespace": metadata["namespace"],
        "labels": dict(metadata.get("labels") or {}),
        "ownerReferences": [owner],
    }
    packed = {REFERENCE_KEY: base64.b64encode(data).decode()}
    if place.secret is None:
        named = {"name": place.config_map, **made}
        return Apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "binaryData": packed}, SANDBOX_MANAGER
        )
    named = {"name": place.secret, **made}
    return Create(
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": True, "metadata": named, "data": packed}
    )


def usable_references(problem: Problem, found: Sequence[tuple[LlamaTrial, TrialResult]]) -> tuple[TrialReference, ...]:
    """What comparisons may compare with, the one for the next of them last: all that hold what was recorded last.

    ``found``: trials of the search with their results, in the order in which they ended.
    """
    recorded = [
        TrialReference(config_map=place_of(trial).config_map, secret=place_of(trial).secret, digest=result.reference)
        for trial, result in found
        if result.trial.purpose is Purpose.REFERENCE
        and result.verdict.outcome is Outcome.PASS
        and result.trial.candidate.gpu_class in problem.hardware
        and result.trial.candidate.variant in problem.models
    ]
    return tuple(one for one in recorded if one.digest == recorded[-1].digest)


def what_is_wrong(config_map: Object | None, lost_from: LlamaTrial, digest: str) -> str:
    """Why the answers that a trial recorded are not in their ConfigMap; empty when they are."""
    place = place_of(lost_from)
    if config_map is None:
        return f"{place} with the recorded answers is gone"
    if not is_child(config_map, str(lost_from.metadata.uid)):
        return f"{place} is not the one that holds the recorded answers"
    packed = (config_map.get("binaryData") or {}).get(REFERENCE_KEY)
    try:
        read_reference(base64.b64decode(packed or "", validate=True), digest)
    except (BrokenReferenceError, binascii.Error, TypeError, ValueError):
        return f"{place} does not hold any more what was recorded"
    return ""


def lost_secret(finished: Sequence[LlamaTrial]) -> LostReference | None:
    """A recording whose Secret a comparison's pod found wanting, while it still counts as recorded."""
    recorded = {place_of(trial).secret: trial for trial in finished if _holds_answers(trial)}
    for trial in finished:
        wanted, status = trial.spec.reference, trial.status
        if wanted is None or wanted.secret is None or status is None or wanted.secret not in recorded:
            continue
        if what := _NOT_IN_THE_POD.get(status.reason or ""):
            return LostReference(recorded[wanted.secret], f"Secret {wanted.secret} {what}")
    return None


def _holds_answers(trial: LlamaTrial) -> bool:
    status = trial.status
    return trial.spec.purpose == "Reference" and status is not None and status.outcome == Outcome.PASS.value


def forget(draft: Draft, lost: LostReference) -> str:
    """Write down that a recording is of no use any more; what goes on, in words."""
    result = result_of(lost.trial)
    status = lost.trial.status
    assert result is not None
    assert status is not None
    words = f"{lost.why}: they are recorded again"
    kind = "ConfigMap" if place_of(lost.trial).secret is None else "Secret"
    if lost.trial.spec.attempt >= ATTEMPTS:
        words = (
            f"{lost.why}, and not for the first time: weights and KV types other than today's are set aside. Find out "
            f"what deletes or changes {kind}s here, then set spec.rerun"
        )
    gone = invalid(result, REFERENCE_LOST, words)
    written = completed_status(
        gone,
        completed_at=status.completed_at or timestamp(draft.now),
        generation=lost.trial.metadata.generation,
        environment=status.environment,
        job_name=status.job_name,
    )
    metadata = lost.trial.metadata
    manifest: Object = {
        "apiVersion": API_VERSION,
        "kind": "LlamaTrial",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "status": written.model_copy(update={"interruptions": status.interruptions}).to_manifest(),
    }
    draft.do(Apply(manifest, STATUS_MANAGER, subresource="status"))
    draft.note([EventNote("Warning", REFERENCE_LOST, "CompareAnswers", f"{words} [{metadata.name}]", metadata.name)])
    draft.look_again(_AT_ONCE_S)
    return words
