"""The Job that looks at the model files before anything is measured: where they are, what they are, who serves them.

The same pod as a trial's, without a GPU, so the user's init containers fetch the model as they will in a trial, and a
path that is wrong is known before the first failed trial. slotune's own image reads the files through the server's
mounts, every byte of them for a digest; the server's image says its version.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from slotune.api.labels import DEPLOYMENT_LABEL, LOAD_CLIENT, MANAGED_BY, MANAGED_BY_LABEL, SANDBOX_LABEL, SURVEY_LABEL
from slotune.api.quantities import parse_duration, parse_quantity
from slotune.api.v1alpha1.gpu_class import GPUClass
from slotune.api.v1alpha1.sandbox import Sandbox
from slotune.sandbox.job import (
    INIT_ALLOWANCE_S,
    MARGIN_S,
    PULL_ALLOWANCE_S,
    TTL_S,
    ClientImage,
    TrialServer,
)
from slotune.sandbox.kept_template import UnusableTemplateError, covering_mount, kept_of
from slotune.sandbox.pod_parts import (
    OWN_ANNOTATIONS,
    OWN_LABELS,
    client_security,
    pod_base,
    server_security,
    without_gpu,
)

__all__ = ["SURVEY", "VERSION", "survey_job"]

Object = dict[str, Any]

SURVEY: Final = "survey"
VERSION: Final = "version"
"""Names of the two containers."""
READ_ALLOWANCE_S: Final = 1800
"""For each weights file: 180 GB from a volume that gives 100 MB/s. No GPU waits meanwhile."""
SURVEY_CPU: Final = "100m"
"""That each of them asks for, unless the load client may not even have that."""


def survey_job(
    name: str,
    owner: Object,
    namespace: str,
    template: Mapping[str, Any],
    server: TrialServer,
    *,
    models: Mapping[str, str],
    digest: str,
    gpu_class: GPUClass,
    sandbox: Sandbox,
    client: ClientImage,
) -> Object:
    """A Job called ``name``.

    Args:
        name: of the Job.
        owner: owner reference to the LlamaDeployment, whose name the pod's labels have.
        namespace: of the Job.
        template: the user's PodTemplateSpec as JSON has it.
        server: its ``args`` are only what comes before the flags, such as the program behind a supervisor.
        models: path in the server's container, by variant.
        digest: of what is looked at: the value of the survey's label.
        gpu_class: on whose nodes it runs; it takes no GPU.
        sandbox: what it may touch.
        client: slotune's image.

    Raises:
        UnusableTemplateError: no Job can be made; says what to change.
    """
    kept = kept_of(template, server.container, list(models.values()))
    if LOAD_CLIENT in kept.container_names:  # no trial could be made either, and this is the first that is made
        raise UnusableTemplateError("container", LOAD_CLIENT, "slotune's own container has this name: give it another")
    for taken in {SURVEY, VERSION} & {str(container["name"]) for container in kept.init_containers}:
        raise UnusableTemplateError("initContainers", taken, "slotune's own container has this name: give it another")
    pod = pod_base(kept, gpu_class, sandbox)
    pod.pop("resourceClaims", None)
    pod["initContainers"] = [
        {**container, **({"resources": without_gpu(container["resources"])} if "resources" in container else {})}
        for container in kept.init_containers
    ]
    pod["containers"] = [
        _survey(kept.pod, kept.server, models, sandbox, client),
        _version(kept.server, server, sandbox),
    ]
    fetch_s = INIT_ALLOWANCE_S if kept.init_containers else 0
    pod["activeDeadlineSeconds"] = PULL_ALLOWANCE_S + MARGIN_S + fetch_s + READ_ALLOWANCE_S * len(models)
    labels = {MANAGED_BY_LABEL: MANAGED_BY, DEPLOYMENT_LABEL: owner["name"], SURVEY_LABEL: digest}
    waiting_s = float(parse_duration(sandbox.capacity_timeout))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [dict(owner)]},
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": math.ceil(pod["activeDeadlineSeconds"] + waiting_s + MARGIN_S),
            "ttlSecondsAfterFinished": TTL_S,
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {
                    "labels": labels | OWN_LABELS | {SANDBOX_LABEL: SURVEY},
                    "annotations": kept.annotations | OWN_ANNOTATIONS,
                },
                "spec": pod,
            },
        },
    }


def _survey(pod: Object, server: Object, models: Mapping[str, str], sandbox: Sandbox, client: ClientImage) -> Object:
    args = ["survey"]
    for variant, path in models.items():
        args += ["--model", f"{variant}={path}"]
        if covering_mount(server, path) is None:
            args += ["--inside-image", variant]
    return {
        "name": SURVEY,
        "image": client.name,
        "imagePullPolicy": client.pull_policy,
        "args": args,
        "resources": _amount(sandbox),
        "securityContext": client_security() | _reader(pod, server),
        "volumeMounts": [{**mount, "readOnly": True} for mount in server.get("volumeMounts") or []],
    }


def _reader(pod: Object, server: Object) -> Object:
    """The user that the server runs as, where the template says so: a model file may be readable for nobody else."""
    stated = {**(pod.get("securityContext") or {}), **(server.get("securityContext") or {})}
    user = stated.get("runAsUser")
    if user is None:
        return {}
    group = {} if stated.get("runAsGroup") is None else {"runAsGroup": stated["runAsGroup"]}
    return {"runAsUser": user, "runAsNonRoot": user != 0, **group}


def _version(kept: Object, server: TrialServer, sandbox: Sandbox) -> Object:
    """May fail: without a GPU's driver some builds do not even start. The build is then read in the first trial."""
    copied: Object = {name: kept[name] for name in ("image", "imagePullPolicy", "workingDir") if name in kept}
    command: Object = {} if server.program is None else {"command": list(server.program)}
    return {
        "name": VERSION,
        **copied,
        **command,
        "args": [*server.args, "--version"],
        "env": [dict(entry) for entry in server.env],
        "resources": _amount(sandbox),
        "securityContext": server_security(kept.get("securityContext") or {}),
        "volumeMounts": [dict(mount) for mount in kept.get("volumeMounts") or []],
    }


def _amount(sandbox: Sandbox) -> Object:
    """The load client's limits. Nothing is measured, so it needs no core to itself: two of them would find no place on
    a node that has one for the load client.
    """
    most = sandbox.load_client
    least_cpu = min(most.cpu, SURVEY_CPU, key=parse_quantity)
    return {
        "limits": {"cpu": most.cpu, "memory": most.memory},
        "requests": {"cpu": least_cpu, "memory": most.memory},
    }
