"""What owned mode keeps in the Deployment: ``spec.template``, with the settings of the candidate that serves.

Until a candidate serves it is the template as it is written. From then on the tuned settings are slotune's to change
and all else is still its user's, so an edit reaches production with those settings laid over it, and waits for no
search. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slotune.api.kubernetes_types import PodTemplate
from slotune.api.server_container import server_container
from slotune.api.v1alpha1 import LlamaDeployment
from slotune.controller.cluster import Object
from slotune.controller.references import References
from slotune.controller.understanding import Understood
from slotune.llama.candidate import Candidate
from slotune.rollout.change import compose_change
from slotune.rollout.facts import Serving, template_digest
from slotune.rollout.owned import serving_deployment, serving_pod_template
from slotune.rollout.strategy import ONE_AT_A_TIME
from slotune.tuning.baseline import baseline_of
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.trial_objects import candidate_hash, candidate_of

__all__ = ["Kept", "covers", "kept_in", "lost_fields"]

MOST_NAMED = 3
"""Fields that a sentence names."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A pod template of production's, as its user and a candidate say it."""

    template: Object = field(repr=False)
    """Without what slotune marks pods with."""
    candidate: str | None
    """Hash of the candidate in it; None: the template as it is written."""
    source: str
    """Digest of what is sent: what a Deployment shows that has it."""

    def pods(self, deployment: LlamaDeployment) -> Object:
        """The pod template that is sent."""
        return serving_pod_template(deployment, self.template, self.candidate)

    def manifest(self, references: References, found: Serving | None) -> Object:
        """The Deployment for server-side apply.

        Before any rollout its replicas are those of the spec. Later, and where somebody else has set them, they stay as
        they are, and so does the way in which pods are replaced.
        """
        deployment, status = references.deployment, references.status
        assert deployment is not None
        replicas: int | None = deployment.spec.replicas or 1
        strategy = ONE_AT_A_TIME
        if found is not None and (status.applied is not None or status.rollout is not None or self.candidate):
            replicas, strategy = found.desired, found.strategy
        if found is not None and found.replicas_owners:
            replicas = None
        return serving_deployment(deployment, self.template, self.candidate, replicas, strategy)


def kept_in(references: References, understood: Understood | None, serving: Object | None) -> Kept | None:
    """What belongs into the Deployment; None where that is not known now, or it is not slotune's.

    Args:
        references: with the template as it is written.
        understood: how it is read; None: it is not. Only needed once a candidate serves.
        serving: the Deployment; None: there is none yet.
    """
    deployment = references.deployment
    if deployment is None or deployment.spec.template is None:
        return None
    written: Object = references.raw["spec"]["template"]
    serves = None if serving is None else Serving.from_deployment(serving, "").candidate
    if serving is None or serves is None:
        return _kept(deployment, written, None)
    candidate = None if understood is None else _candidate(references, understood, serving["spec"]["template"], serves)
    if understood is None or candidate is None:
        return None
    wanted = replace(candidate, extra_args=understood.written.candidate.extra_args)
    if not {wanted.variant, wanted.draft or wanted.variant} <= understood.written.paths.keys():
        return None
    manifests = understood.manifests
    change = compose_change(
        manifests.template,
        manifests.container,
        understood.written,
        wanted,
        config_maps=manifests.config_maps,
        only_pod=True,
    )
    return _kept(deployment, change.patched_template(written), candidate_hash(wanted))


def covers(found: Any, sent: Any) -> bool:
    """Whether an object has all that was sent, word by word. The API server writes some of it otherwise (``1000m`` is
    ``1``), so False only asks for a closer look."""
    if isinstance(sent, Mapping):
        return isinstance(found, Mapping) and all(
            value is None or (name in found and covers(found[name], value)) for name, value in sent.items()
        )
    if isinstance(sent, list):
        same = isinstance(found, list) and len(found) == len(sent)
        return same and all(covers(one, other) for one, other in zip(found, sent, strict=True))
    return bool(found == sent)


def lost_fields(found: Mapping[str, Any], as_sent: Mapping[str, Any]) -> tuple[str, ...]:
    """Where a pod template differs from the one that an apply would make of it: ``containers[llama].args``."""
    if template_digest(found) == template_digest(as_sent):
        return ()
    places = sorted(set(_places(found, as_sent)))
    more = len(places) - MOST_NAMED
    return (*places[:MOST_NAMED], *([f"{more} more"] if more > 0 else []))


def _kept(deployment: LlamaDeployment, template: Object, candidate: str | None) -> Kept:
    return Kept(template, candidate, template_digest(serving_pod_template(deployment, template, candidate)))


def _candidate(references: References, understood: Understood, template: Object, serves: str) -> Candidate | None:
    """The candidate of that hash: as the status knows it, or as the pods that run say it."""
    status = references.status
    for known in (status.recommendation, status.baseline):
        if known is not None and known.candidate_hash == serves:
            return candidate_of(known.candidate)
    running = PodTemplate.from_manifest(template)
    name = understood.manifests.container.name
    container = running.container(name) or server_container(running, None)
    if container is None:
        return None
    manifests, surveyed = replace(understood.manifests, template=running, container=container), understood.surveyed
    try:
        read = baseline_of(manifests, surveyed.models, next(iter(manifests.gpu_classes)), surveyed.build).candidate
    except InvalidInputError:
        return None
    on_each = (replace(read, gpu_class=name) for name in manifests.gpu_classes)
    return next((one for one in on_each if candidate_hash(one) == serves), None)


def _places(found: Any, other: Any, path: str = "") -> list[str]:
    if isinstance(found, Mapping) and isinstance(other, Mapping):
        return [
            place
            for name in {**found, **other}
            if found.get(name) != other.get(name)
            for place in _places(found.get(name), other.get(name), _below(path, name))
        ]
    if _named(found) and _named(other):
        ours, theirs = ({one["name"]: one for one in items} for items in (found, other))
        return [
            place
            for name in {**ours, **theirs}
            if ours.get(name) != theirs.get(name)
            for place in _places(ours.get(name), theirs.get(name), f"{path}[{name}]")
        ]
    return [path]


def _below(path: str, name: str) -> str:
    return name if path in {"", "spec"} else f"{path}.{name}"


def _named(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(one, Mapping) and "name" in one for one in items)
