"""The stage of a plan that keeps production there, where slotune owns it: until the first decision it serves the
baseline, exactly as the user wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from slotune.api.kubernetes_types import PodTemplate
from slotune.api.labels import ROLLOUT_MANAGER
from slotune.api.server_container import server_container
from slotune.controller.actions import Apply
from slotune.controller.cluster import Object
from slotune.controller.draft import Draft
from slotune.controller.observed import Observed
from slotune.controller.reasons import Reason
from slotune.llama.flag_reading import read
from slotune.rollout.facts import SOURCE_ANNOTATION, Serving
from slotune.rollout.owned import serving_deployment, serving_service
from slotune.tuning.pod_reading import read_pod

__all__ = ["serve", "stated_port"]


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
    for taken, cure in ((serving, "tune it with spec.targetRef instead of spec.template, or "), (observed.service, "")):
        if taken is not None and not _is_ours(taken["metadata"], raw["metadata"]["uid"]):
            what = f"metadata.name is {raw['metadata']['name']}: there is a {taken['kind']} of that name"
            words = f"{what} which slotune did not make: {cure}rename one of the two."
            draft.unresolved(Reason.TARGET_CONFLICT, words)
            return False
    wanted = serving_deployment(deployment, raw["spec"]["template"], None, deployment.spec.replicas or 1)
    if serving is None:
        draft.do(Apply(wanted, ROLLOUT_MANAGER))
    elif draft.status.applied is None and draft.status.rollout is None and draft.status.restore is None:
        # Nothing was rolled out yet: a template or replicas that the user has changed are the new baseline. Production
        # that is borrowed comes back first: what is applied names replicas.
        source = wanted["metadata"]["annotations"][SOURCE_ANNOTATION]
        found = Serving.from_deployment(serving, container.name)
        scaled = not found.replicas_owners and found.desired != wanted["spec"]["replicas"]
        if found.source != source or scaled:
            draft.do(Apply(wanted, ROLLOUT_MANAGER))
    _keep_the_service(draft, observed, container.name)
    return True


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


def _is_ours(metadata: dict[str, object], uid: str) -> bool:
    owners = metadata.get("ownerReferences")
    return isinstance(owners, list) and any(owner.get("uid") == uid for owner in owners)
