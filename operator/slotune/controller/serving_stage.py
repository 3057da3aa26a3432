"""The stage of a plan that keeps production there, where slotune owns it: until the first decision it serves the
baseline, exactly as the user wrote it, and later that with the settings of what was rolled out.

What is owned is kept: a Deployment that somebody has changed by hand is put back, and so is one that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.api.labels import ROLLOUT_MANAGER
from slotune.api.server_container import server_container
from slotune.controller.actions import Apply, Patch
from slotune.controller.children import adoption, is_child, is_orphan
from slotune.controller.cluster import Object
from slotune.controller.draft import Draft
from slotune.controller.events import EventNote
from slotune.controller.flights import owner_reference
from slotune.controller.kept_production import Kept
from slotune.controller.kinds import kind_of
from slotune.controller.observed import Observed
from slotune.controller.reasons import Reason
from slotune.llama.flag_reading import read
from slotune.rollout.facts import Serving
from slotune.rollout.last_good import template_record
from slotune.rollout.memory import Memory
from slotune.rollout.owned import serving_service
from slotune.rollout.planner import is_under_way
from slotune.tuning.pod_reading import read_pod

__all__ = ["serve", "stated_port"]

AT_ONCE_S = 0.5
PUT_BACK_AFTER: Final = timedelta(seconds=30)
"""Between two times that a Deployment is put right."""


def serve(draft: Draft, observed: Observed) -> bool:
    """Make the Deployment and the Service of owned mode where they are missing. Whether the plan may go on."""
    deployment = observed.references.deployment
    assert deployment is not None
    template = deployment.spec.template
    if template is None:
        return True
    container = server_container(template, deployment.spec.container)
    if container is None:
        names = ", ".join(one.name for one in template.spec.containers)
        cure = "none of the containers is llama-server: name it" if deployment.spec.container is None else "is none of"
        draft.unresolved(Reason.INVALID_SPEC, f"spec.container: {cure} ({names})")
        return False
    serving, raw = observed.serving, observed.references.raw
    adopted = False
    for found, cure in ((serving, "tune it with spec.targetRef instead of spec.template, or "), (observed.service, "")):
        if found is None or is_child(found, raw["metadata"]["uid"]):
            continue
        if is_orphan(found, raw["metadata"]["name"]):
            _adopt(draft, raw, found)
            adopted = True
            continue
        what = f"metadata.name is {raw['metadata']['name']}: there is a {found['kind']} of that name"
        draft.unresolved(Reason.TARGET_CONFLICT, f"{what} which slotune did not make: {cure}rename one of the two.")
        return False
    if adopted:
        draft.working(Reason.PROGRESSING, "What an earlier LlamaDeployment of this name has left is taken over")
        draft.look_again(AT_ONCE_S)
        return False
    if serving is None and observed.kept is not None:
        draft.do(Apply(observed.kept.manifest(observed.references, None), ROLLOUT_MANAGER))
    elif serving is not None and draft.status.restore is None and not _put_right(draft, observed, serving, container):
        return False  # production that is borrowed comes back first: what is applied names replicas
    _keep_the_service(draft, observed, container.name)
    return True


def _adopt(draft: Draft, raw: Object, found: Object) -> None:
    kind, metadata = kind_of(found), found["metadata"]
    patch = adoption(found, owner_reference(raw))
    draft.do(Patch(kind, metadata["namespace"], metadata["name"], patch, manager=ROLLOUT_MANAGER))
    words = f"{found['kind']} {metadata['name']} was left by an earlier LlamaDeployment of this name, and is taken over"
    draft.note([EventNote("Normal", "Adopted", "Serve", words, metadata["uid"])])


def _put_right(draft: Draft, observed: Observed, serving: Object, container: Container) -> bool:
    """Bring an owned Deployment to what it should have. Whether the plan may go on in the same look."""
    kept, references, status = observed.kept, observed.references, draft.status
    if kept is None:
        return True
    facts = Serving.from_deployment(serving, container.name)
    if observed.lost:
        _put_back(draft, observed, facts, kept)
        return False
    memory = Memory.from_status(status)
    if is_under_way(memory):
        return True
    manifest = kept.manifest(references, facts)
    never = status.applied is None and status.rollout is None
    scaled = never and facts.desired != manifest["spec"].get("replicas", facts.desired)
    if facts.source != kept.source or scaled:
        draft.do(Apply(manifest, ROLLOUT_MANAGER))
        if status.rollout is not None and status.rollout.stage == "Deferred":
            draft.set(rollout=None)  # it was to replace other pods
        draft.changes_pods = "spec.template has changed: production gets the change"
    elif kept.candidate is not None and not facts.strangers and memory.knows_other_pods(facts):
        assert references.deployment is not None
        draft.do(Apply(template_record(references.deployment, serving["spec"]["template"]), ROLLOUT_MANAGER))
        draft.set(**memory.following(facts, observed.now).for_rollout())
        draft.changes_pods = "spec.template has changed, and production has the change"
    if draft.changes_pods:
        draft.look_again(AT_ONCE_S)
    return True


def _put_back(draft: Draft, observed: Observed, facts: Serving, kept: Kept) -> None:
    """Undo what somebody has done to the Deployment by hand, but don't fight a machine that does it again and again."""
    who, name = ", ".join(facts.strangers) or "Somebody", facts.name
    changed = f"{who} changed {', '.join(observed.lost)} of Deployment {name}, which is slotune's"
    words = f"{changed}: it is put back. Change spec.template instead"
    early = 0.0 if facts.sent_at is None else (facts.sent_at + PUT_BACK_AFTER - observed.now).total_seconds()
    if early <= 0:
        draft.do(Apply(kept.manifest(observed.references, facts), ROLLOUT_MANAGER))
        draft.note([EventNote("Warning", "EditUndone", "Serve", words, facts.resource_version)])
    else:  # in other words: what is told goes out with a status that is another one
        words = f"{changed}: it is put back in a moment, since slotune has only just applied it"
    draft.changes_pods = words
    draft.working(Reason.APPLYING, words)
    draft.look_again(max(AT_ONCE_S, early))


def _keep_the_service(draft: Draft, observed: Observed, container: str) -> None:
    """The Service leads to where the pods that serve now listen, which may not be where the next ones will. Where they
    have no container of that name any more, or not yet, it stays as it is."""
    deployment, references = observed.references.deployment, observed.references
    assert deployment is not None
    written = references.raw["spec"]["template"]
    template = written if observed.serving is None else observed.serving["spec"]["template"]
    config_maps = {} if references.manifests is None else references.manifests.config_maps
    port = stated_port(PodTemplate.from_manifest(template), container, config_maps)
    wanted = serving_service(deployment, template, container, port)
    if wanted is None:
        return
    if observed.service is None or not _leads_there(observed.service["spec"], wanted["spec"]):
        draft.do(Apply(wanted, ROLLOUT_MANAGER))


def _leads_there(found: Object, wanted: Object) -> bool:
    ports = [{name: port.get(name) for name in ("name", "port", "targetPort")} for port in found.get("ports") or ()]
    asked = [{name: port.get(name) for name in ("name", "port", "targetPort")} for port in wanted["ports"]]
    return ports == asked and found.get("selector") == wanted["selector"]


def stated_port(
    template: PodTemplate, name: str, config_maps: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> int | None:
    """Where the flags or variables say that llama-server listens; None when they say nothing that can be read here, or
    the pod has no container of that name."""
    container = template.container(name)
    if container is None:
        return None
    pod = read_pod(template, container, config_maps)
    words = [word.text for word in pod.words]
    variables = {variable.name: variable.value for variable in pod.variables.values() if variable.value is not None}
    stated = [setting for setting in read(words, variables).settings if setting.flag.name == "--port"]
    text = stated[-1].values[0] if stated and stated[-1].values else ""
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else None
