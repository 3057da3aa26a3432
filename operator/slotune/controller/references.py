"""Everything that a LlamaDeployment refers to, read fresh from the cluster and checked like a folder of manifests.

The objects become the same documents that the command line reads from files, so one piece of code says what is missing
or wrong, in the same words.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slotune.api.documents import Document
from slotune.api.inventory import take_stock
from slotune.api.problems import Problem
from slotune.api.references import Manifests, resolve
from slotune.api.v1alpha1 import LlamaDeployment
from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus
from slotune.controller.cluster import Cluster, ForbiddenError, NotFoundError, Object
from slotune.controller.identity import digest_of
from slotune.controller.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    GPU_CLASS,
    LLAMA_DEPLOYMENT,
    LLAMA_WORKLOAD,
    RESOURCE_CLAIM_TEMPLATE,
    SECRET,
    Kind,
)
from slotune.controller.store import Key, Store, key_of

__all__ = ["References", "gather_references", "parse", "rival_of", "sentence_of"]

_NOT_SEARCHED = frozenset({"rollout", "observe", "retune", "suspend", "rerun", "template"})
"""Fields of a LlamaDeployment on which no search depends, or (the last two) of which only a part counts."""

_PARTS = {"LlamaDeployment": "spec", "LlamaWorkload": "workload", "GPUClass": "hardware"}
"""What an object of a kind is to a search; of a ConfigMap or Secret it depends on who names it."""
_TRAFFIC = ("prompts.", "load.")
"""Where a workload names one."""

_OF_ANY_WRITE = frozenset({"managedFields", "resourceVersion"})
"""Metadata that every write changes, and nothing here rests on."""
REMEMBERED = 256
"""Parsed objects that are kept."""

NOWHERE = Path("/nonexistent")
"""Where relative paths of prompt files start: nowhere, since no file of the operator's is a user's."""


@dataclass(frozen=True, slots=True)
class References:
    """A LlamaDeployment with what it refers to, as far as it is there."""

    raw: Object
    deployment: LlamaDeployment | None
    """None when the spec is not valid for this slotune."""
    status: LlamaDeploymentStatus
    invalid: tuple[str, ...] = ()
    """What is wrong with the object itself: sentences with field, value and cure."""
    missing: tuple[str, ...] = ()
    """What is wrong with what it refers to."""
    manifests: Manifests | None = field(default=None, repr=False)
    target: Object | None = field(default=None, repr=False)
    """The Deployment that targetRef names."""
    rival: str | None = None
    """An older LlamaDeployment with the same target."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Digests of what a search depends on beside the server itself: spec, workload, hardware, and settings of the
    server that lie in ConfigMaps."""

    claim_templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """``spec.spec`` of each ResourceClaimTemplate that the pod names, by name, as far as it can be read."""
    rests_on_unwatched: bool = False
    """Whether it names ConfigMaps, Secrets or ResourceClaimTemplates: no watch tells of a change of theirs."""
    is_foreign: bool = False
    """Whether what is wrong are fields that this slotune does not know: another version's CRD took them."""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return key_of(self.raw)

    @property
    def target_as_before(self) -> Object | None:
        """The target with the replicas that it has while nothing is borrowed."""
        return None if self.target is None else _as_before(self.target, self.status)

    @property
    def rerun(self) -> str:
        """The reason of the last request for a new search, also when it is no longer in the spec; empty for none."""
        asked = None if self.deployment is None else self.deployment.spec.rerun
        return (self.status.last_handled_rerun or "") if asked is None else asked.reason

    @property
    def template(self) -> Object | None:
        """The pod template that production runs, as it was written."""
        if self.target is not None:
            found: Object = self.target["spec"]["template"]
            return found
        written: Object | None = self.raw["spec"].get("template")
        return written


def parse(raw: Object) -> tuple[LlamaDeployment | None, LlamaDeploymentStatus, tuple[str, ...]]:
    """Spec and status of the object, or what is wrong with its spec.

    A status that cannot be read (a newer slotune wrote it) is none: it is written anew from what is in the cluster, but
    for how to give production its GPU back, which is nowhere else.
    """
    metadata = {name: value for name, value in raw["metadata"].items() if name not in _OF_ANY_WRITE}
    bare = {name: value for name, value in raw.items() if name != "status"} | {"metadata": metadata}
    deployment, problems = _parsed(json.dumps(bare))
    return deployment, _status_of(json.dumps(raw.get("status") or {})), problems


# A look parses twice, and most looks find what the one before found. The models are frozen.
@lru_cache(maxsize=REMEMBERED)
def _parsed(written: str) -> tuple[LlamaDeployment | None, tuple[str, ...]]:
    inventory = take_stock([_document(json.loads(written))])
    entry = inventory.of("LlamaDeployment")[:1]
    model = entry[0].model if entry else None
    problems = tuple(sentence_of(problem) for problem in inventory.problems)
    return (model if isinstance(model, LlamaDeployment) else None), problems


@lru_cache(maxsize=REMEMBERED)
def _status_of(written: str) -> LlamaDeploymentStatus:
    status = json.loads(written)
    try:
        return LlamaDeploymentStatus.from_manifest(status)
    except ValidationError:
        return _way_back(status)


def _way_back(status: Object) -> LlamaDeploymentStatus:
    kept = {name: status[name] for name in ("restore", "lastRestored") if name in status}
    try:
        return LlamaDeploymentStatus.from_manifest(kept)
    except ValidationError:
        return LlamaDeploymentStatus()


def sentence_of(problem: Problem) -> str:
    """Field, value and cure of a problem, without the file and line that a cluster does not have."""
    shown = "" if problem.value is None else f" is {problem.value}"
    of = "" if problem.owner.startswith("LlamaDeployment/") or not problem.owner else f" of {problem.owner}"
    return f"{problem.field}{of}{shown}: {problem.cure.replace(' in the files', '')}" if problem.field else problem.cure


async def gather_references(raw: Object, store: Store, cluster: Cluster) -> References:
    """Read what ``raw`` refers to. Nothing that is missing or unreadable raises; an API server that is down does."""
    deployment, status, invalid = parse(raw)
    if deployment is None:
        return References(raw, None, status, invalid, is_foreign=_is_foreign(raw))
    namespace, _ = key_of(raw)
    target = None
    if deployment.spec.target_ref is not None:
        target = await _read(store, cluster, DEPLOYMENT, namespace, deployment.spec.target_ref.name)
    documents = [_document({name: value for name, value in raw.items() if name != "status"})]
    documents += [_document(found) for found in _watched(deployment, namespace, store)]
    if target is not None:
        documents.append(_document(_as_before(target, status)))
    found_classes, unreadable = await _hidden_classes(deployment, store, cluster)
    documents += [_document(found) for found in found_classes]
    hidden = bool(unreadable)
    prompts: set[tuple[str, str]] = set()
    template = raw["spec"].get("template") if target is None else target["spec"]["template"]
    data = list(_data_of(deployment, _workload(documents), template or {}))
    for kind, name, place in data:
        if place.startswith(_TRAFFIC):
            prompts.add((kind.name, name))
        try:
            documents.append(_document(await cluster.get(kind, namespace, name)))
        except NotFoundError:
            continue  # resolving says where it is missed
        except ForbiddenError:
            unreadable.append(
                f"{place} is {name}: slotune may not read that {kind.name}: allow it in slotune's role"
                + ("" if kind == CONFIG_MAP else ", or use a ConfigMap")
            )
    inventory = take_stock(documents)
    problems = list(inventory.problems)
    (entry,) = [one for one in inventory.of("LlamaDeployment") if one.name == key_of(raw)[1]]
    manifests = resolve(entry, inventory, {"": NOWHERE}, problems)
    problems = [one for one in problems if not (hidden and one.field.startswith("spec.gpuClasses["))]
    missing = (*unreadable, *(sentence_of(problem) for problem in problems))
    if manifests is not None:
        missing = (*missing, *_files(manifests))
    return References(
        raw,
        deployment,
        status,
        missing=tuple(dict.fromkeys(missing)),
        manifests=None if missing else manifests,
        target=target,
        rival=rival_of(raw, deployment, store),
        about=_about(documents, prompts),
        rests_on_unwatched=bool(data or ((template or {}).get("spec") or {}).get("resourceClaims")),
        claim_templates=await _claim_templates(template or {}, namespace, cluster),
    )


async def _claim_templates(
    template: Mapping[str, Any], namespace: str, cluster: Cluster
) -> dict[str, Mapping[str, Any]]:
    """What the pod's devices are asked for with. Where they can't be read, the scheduler has the last word."""
    found: dict[str, Mapping[str, Any]] = {}
    for claim in (template.get("spec") or {}).get("resourceClaims") or ():
        name = claim.get("resourceClaimTemplateName")
        if isinstance(name, str) and name not in found:
            try:
                read = await cluster.get(RESOURCE_CLAIM_TEMPLATE, namespace, name)
            except (NotFoundError, ForbiddenError):
                continue
            found[name] = (read.get("spec") or {}).get("spec") or {}
    return found


async def _hidden_classes(
    deployment: LlamaDeployment, store: Store, cluster: Cluster
) -> tuple[list[Object], list[str]]:
    """GPUClasses, read one by one where the operator may not follow them all, and what is to be said of those that it
    may not read either: that none is known does not mean that there is none."""
    found: list[Object] = []
    unreadable: list[str] = []
    if GPU_CLASS.name not in store.hidden:
        return found, unreadable
    for index, reference in enumerate(deployment.spec.gpu_classes):
        try:
            found.append(await cluster.get(GPU_CLASS, None, reference.name))
        except NotFoundError:
            continue  # resolving says where it is missed
        except ForbiddenError:
            unreadable.append(
                f"spec.gpuClasses[{index}].name is {reference.name}: slotune may not read GPUClasses: set "
                "rbac.clusterScopedReads in the chart, or allow it in slotune's role"
            )
    return found, unreadable


def _as_before(target: Object, status: LlamaDeploymentStatus) -> Object:
    """The Deployment as it was before its GPU was borrowed: nobody means the 0 replicas of a night."""
    restore = status.restore
    if restore is None or restore.uid != target["metadata"].get("uid") or target["spec"].get("replicas") != 0:
        return target
    return {**target, "spec": {**target["spec"], "replicas": restore.replicas}}


def _is_foreign(raw: Object) -> bool:
    """Whether a spec is only wrong for fields that are not known here. The API server prunes fields that its CRD does
    not know, so the CRD and this slotune are of different versions."""
    try:
        LlamaDeployment.from_manifest({name: value for name, value in raw.items() if name != "status"})
    except ValidationError as error:
        return all(found["type"] == "extra_forbidden" for found in error.errors(include_url=False))
    return False


def _document(data: Object) -> Document:
    return Document("", data, {(): 1})


async def _read(store: Store, cluster: Cluster, kind: Kind, namespace: str, name: str) -> Object | None:
    found = store.get(kind, namespace, name)
    if found is None:
        try:
            found = await cluster.get(kind, namespace, name)
        except NotFoundError:
            return None
        store.put(found)
    # The list of a watch leaves out what every element has in common.
    return {"apiVersion": kind.api_version, "kind": kind.name} | found


def _watched(deployment: LlamaDeployment, namespace: str, store: Store) -> Iterator[Object]:
    spec = deployment.spec
    if spec.workload.ref is not None and (found := store.get(LLAMA_WORKLOAD, namespace, spec.workload.ref.name)):
        yield found
    for reference in spec.gpu_classes:
        if found := store.get(GPU_CLASS, None, reference.name):
            yield found


def _workload(documents: list[Document]) -> Mapping[str, Any]:
    """The traffic as it is written, wherever; empty when it is not there."""
    for document in documents:
        if document.data.get("kind") == "LlamaWorkload":
            return document.data.get("spec") or {}
    workload = documents[0].data["spec"].get("workload") or {}
    inline: Mapping[str, Any] = workload.get("inline") or {}
    return inline


def _data_of(
    deployment: LlamaDeployment, workload: Mapping[str, Any], template: Mapping[str, Any]
) -> Iterator[tuple[Kind, str, str]]:
    """(kind, name, field) of the ConfigMaps and Secrets whose content a search depends on, each once.

    Of Secrets only prompts are read: a server's keys are none of our business.
    """
    prompts, trace = workload.get("prompts") or {}, (workload.get("load") or {}).get("trace") or {}
    wanted: dict[tuple[str, str], tuple[Kind, str, str]] = {}

    def want(kind: Kind, reference: Any, place: str) -> None:
        if isinstance(reference, dict) and isinstance(reference.get("name"), str):
            wanted.setdefault((kind.name, reference["name"]), (kind, reference["name"], place))

    want(CONFIG_MAP, prompts.get("configMapKeyRef"), "prompts.configMapKeyRef.name")
    want(SECRET, prompts.get("secretKeyRef"), "prompts.secretKeyRef.name")
    want(CONFIG_MAP, trace.get("configMapKeyRef"), "load.trace.configMapKeyRef.name")
    for container in (template.get("spec") or {}).get("containers") or ():
        if deployment.spec.container in {None, container.get("name")}:
            place = f"container {container.get('name')}"
            for source in container.get("envFrom") or ():
                want(CONFIG_MAP, source.get("configMapRef"), f"{place} envFrom")
            for variable in container.get("env") or ():
                want(CONFIG_MAP, (variable.get("valueFrom") or {}).get("configMapKeyRef"), f"{place} env")
    yield from wanted.values()


def _files(manifests: Manifests) -> Iterator[str]:
    """Fields that name a file of the user's machine, which no cluster can read."""
    cure = "a file is for the command line: put it into a ConfigMap and name that with configMapKeyRef"
    if manifests.workload.prompts.file is not None:
        yield f"prompts.file.path is {manifests.workload.prompts.file.path}: {cure}"
    trace = manifests.workload.load.trace
    if trace is not None and trace.file is not None:
        yield f"load.trace.file.path is {trace.file.path}: {cure}"


def rival_of(raw: Object, deployment: LlamaDeployment, store: Store) -> str | None:
    """The oldest other LlamaDeployment with the same target that is older than this one: the oldest wins."""
    if deployment.spec.target_ref is None:
        return None
    namespace, _ = key_of(raw)
    older = [
        other
        for other in store.within(LLAMA_DEPLOYMENT, namespace)
        if ((other.get("spec") or {}).get("targetRef") or {}).get("name") == deployment.spec.target_ref.name
        and not other["metadata"].get("deletionTimestamp")
        and _age(other) < _age(raw)
    ]
    return min(older, key=_age)["metadata"]["name"] if older else None


def _age(raw: Object) -> tuple[str, str]:
    return str(raw["metadata"].get("creationTimestamp") or ""), str(raw["metadata"]["name"])


def _about(documents: list[Document], prompts: Collection[tuple[str, str]]) -> dict[str, str]:
    """Digests of what a search depends on, by what it is. What only concerns the rollout is left out, and so is a
    Deployment itself: what of it counts is in its template, whose flags the reading knows best."""
    said: dict[str, list[object]] = {name: [] for name in ("spec", "workload", "hardware", "settings")}
    for document in documents:
        data, kind, name = document.data, str(document.data.get("kind")), document.data["metadata"]["name"]
        spec = data.get("spec")
        if kind == "LlamaDeployment" and isinstance(spec, dict):
            spec = {field: value for field, value in spec.items() if field not in _NOT_SEARCHED}
        part = _PARTS.get(kind, "workload" if (kind, name) in prompts else "settings")
        content = {field: data.get(field) for field in ("data", "binaryData", "stringData")}
        if kind != "Deployment":
            said[part].append((kind, name, spec, content))
    return {part: digest_of(found) for part, found in said.items()}
