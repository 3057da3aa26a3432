"""Looks at what is known of the weights: kept facts, or where the survey stands that finds them.

Facts are kept in a ConfigMap that is named after what was looked at, so they are found once for each pod template, by
whichever process.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from slotune.api.labels import DEPLOYMENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SURVEY_LABEL
from slotune.api.quantities import parse_duration
from slotune.controller.children import is_child
from slotune.controller.cluster import Cluster, NotFoundError, Object
from slotune.controller.flights import owner_reference
from slotune.controller.gpu_classes import naming_the_class
from slotune.controller.kinds import CONFIG_MAP, JOB, NODE, POD
from slotune.controller.observed import Survey
from slotune.controller.pod_logs import read_events, read_logs
from slotune.controller.references import References
from slotune.controller.store import Store
from slotune.controller.understanding import Surveyed
from slotune.llama.model_facts import ModelFacts
from slotune.sandbox.pod_facts import JobFacts, PodFacts, newest_pod
from slotune.sandbox.survey_outcome import judge_survey, needed_survey_logs

__all__ = ["facts_config_map", "look_at_survey"]

_KEY = "facts.json"
_FACTS: TypeAdapter[dict[str, ModelFacts]] = TypeAdapter(dict[str, ModelFacts])


async def look_at_survey(
    references: References, digest: str, store: Store, cluster: Cluster, *, known: Surveyed | None, now: datetime
) -> Survey:
    """What is known, and where the Job stands. ``known``: facts that this process has seen before."""
    namespace, deployment = references.key
    name = f"{deployment}-{digest}"
    found = store.get(JOB, namespace, name)
    uid = references.raw["metadata"]["uid"]
    job = None if found is None or not is_child(found, uid) else JobFacts.from_object(found)
    if known is None:
        try:
            kept = await cluster.get(CONFIG_MAP, namespace, name)
            known = _surveyed(kept) if is_child(kept, uid) else None
        except NotFoundError:
            known = None
    if known is not None or job is None or job.deleting:
        return Survey(digest, name, known, job)
    pods = await cluster.list(POD, namespace, f"{SURVEY_LABEL}={digest}")
    newest = newest_pod(pods, job.uid)
    pod = None if newest is None else PodFacts.from_object(newest)
    assert references.deployment is not None
    assert references.manifests is not None
    judgement = judge_survey(
        job,
        pod,
        {} if pod is None else await read_logs(cluster, namespace, pod.name, needed_survey_logs(pod)),
        server=references.manifests.container.name,
        capacity_timeout_s=float(parse_duration(references.deployment.spec.sandbox.capacity_timeout)),
        now=now,
        events=await read_events(cluster, namespace, name, pod),
    )
    first = next(iter(references.manifests.gpu_classes.values()))
    judgement = naming_the_class(judgement, first, 0, list(store.of(NODE).values()), now)
    return Survey(digest, name, None, job, judgement)


def facts_config_map(references: References, survey: Survey, surveyed: Surveyed) -> Object:
    """Keeps what a survey found."""
    namespace, deployment = references.key
    data = {_KEY: _FACTS.dump_json(dict(surveyed.models)).decode()}
    if surveyed.build is not None:
        data["build"] = str(surveyed.build)
    if surveyed.image_id:
        data["imageID"] = surveyed.image_id
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": survey.name,
            "namespace": namespace,
            "labels": {MANAGED_BY_LABEL: MANAGED_BY, DEPLOYMENT_LABEL: deployment, SURVEY_LABEL: survey.digest},
            "ownerReferences": [owner_reference(references.raw)],
        },
        "data": data,
    }


def _surveyed(config_map: Object) -> Surveyed | None:
    """What it keeps; None when it is not what was written, so that it is looked at anew."""
    data = config_map.get("data") or {}
    try:
        models = _FACTS.validate_json(data.get(_KEY) or "")
    except ValidationError:
        return None
    build = data.get("build", "")
    return Surveyed(models, int(build) if build.isdigit() else None, data.get("imageID", ""))
