"""Which Deployment a person means, with the promise and the hardware that a LlamaDeployment states for it.

A name is that of a Deployment, or else of a LlamaDeployment, whose server is then looked at. What a LlamaDeployment
knows is worth having and never needed: a cluster without slotune, or an account that may not read its kinds, is none
the worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from slotune.api.problems import closest
from slotune.api.v1alpha1 import GPUClass, LlamaDeployment
from slotune.controller.cluster import Cluster, ForbiddenError, NotFoundError, Object
from slotune.controller.kinds import DEPLOYMENT, GPU_CLASS, LLAMA_DEPLOYMENT
from slotune.controller.references import parse
from slotune.diagnose.symptoms import GPUFacts
from slotune.gathering.look_errors import FIELD, MOST_NAMES, RIGHTS, MissingRightError, NoSuchDeploymentError, right
from slotune.gathering.optional_reads import OptionalReads
from slotune.gathering.other_kinds import other_of_that_name
from slotune.verdict.promise import Promise

__all__ = ["Meant", "find_deployment"]


@dataclass(frozen=True, slots=True)
class Meant:
    """A Deployment and what is owed by it."""

    deployment: Object
    promise: Promise | None = None
    gpu: GPUFacts | None = None
    container: str | None = None
    """As the LlamaDeployment names it."""

    @property
    def name(self) -> str:
        """Of the Deployment."""
        return str(self.deployment["metadata"]["name"])


async def find_deployment(cluster: Cluster, namespace: str, name: str, reads: OptionalReads) -> Meant:
    """The Deployment of that name, or the one that a LlamaDeployment of that name is about.

    Raises:
        NoSuchDeploymentError: there is neither; the message names those that there are.
        MissingRightError: Deployments may not be read.
        ClusterError: the API server does not answer.
    """
    found = await _deployment(cluster, namespace, name)
    tuned = await _llama_deployments(namespace, reads)
    if found is None:
        own = next((one for one in tuned if one["metadata"]["name"] == name), None)
        if own is None:
            raise await _no_such(cluster, namespace, name, tuned)
        target = _target(own)
        found = await _deployment(cluster, namespace, target)
        if found is None:
            cure = f"LlamaDeployment {name} is about Deployment {target}, and there is none in namespace {namespace}"
            raise NoSuchDeploymentError(FIELD, name, f"{cure}: create it, or see why slotune has not yet")
    about = found["metadata"]["name"]
    owner = next((one for one in tuned if _target(one) == about), None)
    return Meant(found) if owner is None else await _with_promise(found, owner, reads)


async def _deployment(cluster: Cluster, namespace: str, name: str) -> Object | None:
    try:
        return await cluster.get(DEPLOYMENT, namespace, name)
    except NotFoundError:
        return None
    except ForbiddenError as error:
        raise MissingRightError(name, right("get", DEPLOYMENT, namespace), error.status) from error


async def _llama_deployments(namespace: str, reads: OptionalReads) -> list[Object]:
    return await reads.list(LLAMA_DEPLOYMENT, namespace, lost="what is owed to users and the GPU's price")


def _target(owner: Mapping[str, Any]) -> str:
    """Name of the Deployment that a LlamaDeployment is about: the one that it names, or its own of the same name."""
    stated = ((owner.get("spec") or {}).get("targetRef") or {}).get("name")
    return str(stated or owner["metadata"]["name"])


async def _with_promise(found: Object, owner: Object, reads: OptionalReads) -> Meant:
    model, _, _ = parse(owner)
    if model is None:
        reads.note(f"LlamaDeployment {owner['metadata']['name']} is not valid here, so what it owes is not known")
        return Meant(found)
    slo = model.spec.slo
    speed = slo.tokens_per_second
    promise = Promise(float(slo.ttft_p95_seconds), None if speed is None else float(speed))
    return Meant(found, promise, await _gpu(model, reads), model.spec.container)


async def _gpu(model: LlamaDeployment, reads: OptionalReads) -> GPUFacts | None:
    """The first class is that of today."""
    name = model.spec.gpu_classes[0].name
    raw = await reads.get(GPU_CLASS, None, name, lost="the GPU's bandwidth and price")
    if raw is None:
        return None
    try:
        spec = GPUClass.from_manifest({key: value for key, value in raw.items() if key != "status"}).spec
    except ValidationError:
        reads.note(f"GPUClass {name} is not valid here, so the GPU's bandwidth and price are not known")
        return None
    bandwidth = spec.bandwidth_bytes_per_second
    return GPUFacts(
        name=name,
        bandwidth_bytes_per_s=None if bandwidth is None else float(bandwidth),
        price_per_hour=float(spec.price),
        currency=spec.currency,
    )


async def _no_such(cluster: Cluster, namespace: str, name: str, tuned: Sequence[Object]) -> NoSuchDeploymentError:
    """With what else is of that name, the names that there are, and the namespace where it is, as far as the caller may
    see them."""
    if words := await other_of_that_name(cluster, namespace, name):
        return NoSuchDeploymentError(FIELD, name, words)
    unseen = ""
    try:
        listed = await cluster.list_metadata(DEPLOYMENT, namespace)
    except ForbiddenError:
        listed, unseen = [], f"your account lacks the right to {right('list', DEPLOYMENT, namespace)}"
    names = sorted({str(one["metadata"]["name"]) for one in (*listed, *tuned)})
    if meant := closest(name, names):
        return NoSuchDeploymentError(FIELD, name, f"namespace {namespace} has no such one: did you mean {meant}?")
    try:
        elsewhere = await cluster.list(DEPLOYMENT, None, fields=f"metadata.name={name}")
    except ForbiddenError:  # most people see their own namespaces alone
        elsewhere = []
    if elsewhere:
        places = ", ".join(sorted(str(one["metadata"]["namespace"]) for one in elsewhere)[:MOST_NAMES])
        return NoSuchDeploymentError(FIELD, name, f"it is not in namespace {namespace}, but in {places}: name that")
    shown = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    if unseen:
        there = f"which there are can't be seen: {unseen}: check its name and the namespace, or ask for the role of"
        there += f" {RIGHTS}" + (f" (LlamaDeployments are {shown})" if names else "")
    else:
        there = (
            f"there {'is' if len(names) == 1 else 'are'} {shown}" if names else "there is none: name another namespace"
        )
    return NoSuchDeploymentError(
        FIELD, name, f"a Deployment or LlamaDeployment of namespace {namespace} is needed; {there}"
    )
