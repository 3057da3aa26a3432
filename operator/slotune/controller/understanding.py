"""From what a LlamaDeployment refers to, to a search problem: or why there is none, or what must be looked at first.

Pure. The command line makes the same problem from files (:mod:`slotune.tuning.reading`); here the weights' facts come
from a survey, since an operator cannot read what lies in a user's volume. A survey takes a pod, and that may wait for a
node. So the same reading is asked before it, too, with everything that it may find: what is refused each time in the
same words is refused at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from slotune.api.references import Manifests
from slotune.api.v1alpha1 import Question
from slotune.controller.identity import digest_of, pod_digest
from slotune.controller.reasons import Reason
from slotune.controller.references import References
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.load.jsonl import InputFileError
from slotune.load.lengths import DemandError
from slotune.rollout.facts import CANDIDATE_ANNOTATION
from slotune.sandbox.image_identity import digest_of_image
from slotune.sandbox.server_environment import server_environment
from slotune.search.problem import Problem
from slotune.tuning.baseline import Baseline, baseline_of
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.pod_reading import read_pod
from slotune.tuning.possible_builds import possible_builds
from slotune.tuning.reading import Reading, Today, check_unseen, reading_of
from slotune.tuning.refusal import RefusedFlagsError, RefusedServerError
from slotune.tuning.server_refusals import refusals
from slotune.tuning.traffic import demand_of
from slotune.tuning.trial_objects import candidate_hash, candidate_of

__all__ = ["NotUnderstood", "Surveyed", "Understood", "refused_unseen", "survey_digest", "understand"]

_REFUSALS: Final = (InvalidInputError, InputFileError, DemandError)


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a look at the weights and the image found."""

    models: Mapping[str, ModelFacts]
    build: int | None = None
    """Build number of llama.cpp in the image; None when it did not say."""
    image_id: str = ""
    """The image that was there, as kubelet names it; empty when none was started."""


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """Why no search can begin."""

    reason: str
    """CamelCase reason of the condition."""
    message: str


@dataclass(frozen=True, slots=True)
class Understood:
    """A problem that can be searched."""

    reading: Reading
    manifests: Manifests
    surveyed: Surveyed
    pod_digest: str
    inputs: str
    """Digest of all that the answer depends on: a finished search with the same one needs no other."""
    question: Question
    """The same part by part: which of them has changed says why it is asked again."""
    written: Baseline
    """What the template says now: where a change is made. Equal to the baseline until slotune rolls something out."""
    rolled_out: str | None
    """Hash of the candidate that production carries by slotune's hand; None when it is the user's own."""

    @property
    def space(self) -> Problem:
        """Everything that may be tried: starts correct what can fit."""
        return self.reading.space

    @property
    def baseline(self) -> Baseline:
        """What runs today, or ran before slotune changed it."""
        return self.reading.baseline

    def refined(self, results: object) -> Problem:
        """The problem with what the starts so far taught about memory."""
        return without_what_cannot_fit(self.space, results)  # type: ignore[arg-type]  # a sequence of results


def survey_digest(references: References) -> str:
    """Names a survey: the pod's volumes and image, the paths of the weights, and why it was last looked again."""
    assert references.manifests is not None
    assert references.deployment is not None
    spec, manifests = references.deployment.spec, references.manifests
    pod = pod_digest(references.template or {}, manifests.container.name, {})
    paths = {variant.name: variant.path for variant in spec.models}
    return digest_of([pod, paths, references.rerun, references.status.search_epoch])[:10]


def refused_unseen(references: References) -> NotUnderstood | None:
    """Why no search can begin, whatever a survey would find: weights of any kind, an image of any build."""
    manifests = references.manifests
    assert manifests is not None
    try:
        _checked_demand(references)
    except _REFUSALS as error:
        return _told(error)
    today = _today(references, _rolled_out(references))
    first, *others = possible_builds(manifests.container.image)
    said = _refused_if(manifests, today, first)
    for build in others:
        if said is None:
            return None
        said = _in_common(said, _refused_if(manifests, today, build))
    return None if said is None else _told(said)


def understand(references: References, surveyed: Surveyed) -> Understood | NotUnderstood:
    """Make the problem. Nothing raises: what is wrong is said with field, value and cure."""
    manifests, deployment = references.manifests, references.deployment
    assert manifests is not None
    assert deployment is not None
    template = references.template or {}
    pod = pod_digest(template, manifests.container.name, manifests.gpu_classes)
    epoch = references.status.search_epoch
    environment = _environment(manifests, template)
    image = digest_of_image(surveyed.image_id)
    identity = [manifests.container.image, surveyed.build, pod, environment, references.rerun, epoch]
    engine = digest_of([*identity, image] if image else identity)
    rolled_out = _rolled_out(references)
    try:
        reading = reading_of(
            manifests,
            _checked_demand(references),
            surveyed.models,
            engine=engine,
            today=_today(references, rolled_out),
            build=surveyed.build,
        )
    except _REFUSALS as error:
        return _told(error)
    about = dict(references.about)
    inputs = digest_of([about, reading.space.context, candidate_hash(reading.baseline.candidate)])
    written = baseline_of(manifests, surveyed.models, next(iter(manifests.gpu_classes)), surveyed.build)
    reading = _with_replicas_of_then(reading, references, inputs)
    question = _question(references, reading, surveyed)
    return Understood(reading, manifests, surveyed, pod, inputs, question, written, rolled_out)


def _refused_if(manifests: Manifests, today: Today | None, build: int | None) -> InvalidInputError | None:
    """What is said of the server if its program is of that build."""
    try:
        check_unseen(manifests, today=today, build=build)
    except InvalidInputError as error:
        return error
    return None


def _in_common(one: InvalidInputError, other: InvalidInputError | None) -> InvalidInputError | None:
    """What both say; of several flags those that both refuse, for the same reason."""
    if isinstance(one, RefusedFlagsError) and isinstance(other, RefusedFlagsError):
        return one.also_in(other)
    return one if other is not None and str(one) == str(other) else None


def _checked_demand(references: References) -> Demand:
    """The traffic, for a server that is tuned at all. Raises one of :data:`_REFUSALS`."""
    manifests = references.manifests
    assert manifests is not None
    if found := refusals(
        manifests.template,
        manifests.container.name,
        references.target_as_before or {},
        gpu_resource=next(iter(manifests.gpu_classes.values())).spec.resource_name,
        config_maps=manifests.config_maps,
        claim_templates=references.claim_templates,
    ):
        raise RefusedServerError(found)
    return demand_of(manifests)


def _told(error: Exception) -> NotUnderstood:
    reason = Reason.REFUSED if isinstance(error, InvalidInputError) else Reason.INVALID_WORKLOAD
    return NotUnderstood(reason, str(error))


def _rolled_out(references: References) -> str | None:
    """Hash of the candidate that the target carries by slotune's hand."""
    annotations = ((references.template or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.get(CANDIDATE_ANNOTATION) if references.target is not None else None


def _environment(manifests: Manifests, template: Mapping[str, Any]) -> list[tuple[object, str | None]]:
    """The variables that a trial gets, with their values as far as they may be known; only for a digest."""
    name, spec = manifests.container.name, manifests.deployment.spec
    container = next(one for one in template["spec"]["containers"] if one.get("name") == name)
    values = read_pod(manifests.template, manifests.container, manifests.config_maps).environment
    entries = server_environment(container, spec.sandbox.secret_env, manifests.config_maps)
    return [(entry, values.get(str(entry.get("name")))) for entry in entries]


def _question(references: References, reading: Reading, surveyed: Surveyed) -> Question:
    """What the search is about. In owned mode the server is a part of the spec."""
    manifests, about = references.manifests, references.about
    assert manifests is not None
    pod = pod_digest(references.template or {}, manifests.container.name, {})
    flags = candidate_hash(reading.baseline.candidate)
    server = [manifests.container.image, surveyed.build, pod, flags, about.get("settings")]
    is_ours = references.target is None
    return Question(
        spec=digest_of([about.get("spec"), references.rerun, server if is_ours else None]),
        server=None if is_ours else digest_of(server),
        models=digest_of({name: facts.identity for name, facts in surveyed.models.items()}),
        workload=digest_of([about.get("workload"), reading.space.demand.identity]),
        hardware=about.get("hardware"),
        epoch=references.status.search_epoch,
    )


def _with_replicas_of_then(reading: Reading, references: References, inputs: str) -> Reading:
    """The replicas of when the search began: an autoscaler that moves them asks no new question."""
    status = references.status
    known = status.progress is not None and status.progress.inputs == inputs
    replicas = None if status.baseline is None or not known else status.baseline.replicas
    if not replicas:
        return reading
    return replace(
        reading,
        problem=replace(reading.problem, replicas_today=replicas),
        space=replace(reading.space, replicas_today=replicas),
    )


def _today(references: References, rolled_out: str | None) -> Today | None:
    """What ran when the search began, once production carries an answer of ours.

    Without it the answer would be the next baseline, and every rollout would ask for another search.
    """
    status = references.status
    # What is being applied is written down before, and only called applied once it was seen in the Deployment.
    ours = {one.candidate_hash for one in (status.rollout, status.applied, status.last_good) if one is not None}
    if status.baseline is None or rolled_out not in ours:
        return None
    return Today(candidate_of(status.baseline.candidate), status.baseline.replicas or 1)
