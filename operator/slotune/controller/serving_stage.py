"""The stage of a plan that keeps production there, where slotune owns it: until the first decision it serves the
baseline, exactly as the user wrote it."""

from __future__ import annotations

from slotune.api.kubernetes_types import PodTemplate
from slotune.api.labels import ROLLOUT_MANAGER
from slotune.api.server_container import server_container
from slotune.controller.actions import Apply
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
    if serving is not None and not _is_ours(serving["metadata"], raw["metadata"]["uid"]):
        name = raw["metadata"]["name"]
        draft.unresolved(
            Reason.TARGET_CONFLICT,
            f"metadata.name is {name}: there is a Deployment of that name which slotune did not make. Tune it with "
            "spec.targetRef instead of spec.template, or rename one of the two.",
        )
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
    if not observed.has_service:
        port = stated_port(template, container.name)
        draft.do(Apply(serving_service(deployment, raw["spec"]["template"], container.name, port), ROLLOUT_MANAGER))
    return True


def stated_port(template: PodTemplate, name: str) -> int | None:
    """Where the flags or variables say that llama-server listens; None when they say nothing that can be read here."""
    container = template.container(name)
    assert container is not None
    pod = read_pod(template, container, {})
    words = [word.text for word in pod.words]
    variables = {variable.name: variable.value for variable in pod.variables.values() if variable.value is not None}
    stated = [setting for setting in read(words, variables).settings if setting.flag.name == "--port"]
    text = stated[-1].values[0] if stated and stated[-1].values else ""
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else None


def _is_ours(metadata: dict[str, object], uid: str) -> bool:
    owners = metadata.get("ownerReferences")
    return isinstance(owners, list) and any(owner.get("uid") == uid for owner in owners)
