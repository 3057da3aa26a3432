"""The second half of looking: trials, their Jobs, pods and logs, and what serves production.

It reads only what the stage of the work needs. A search that has ended and a server that stays as it is cost a read or
two every ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from slotune.api.labels import MADE_FROM_ANNOTATION, TRIAL_LABEL
from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import LlamaTrial
from slotune.controller.children import is_child
from slotune.controller.cluster import Cluster, Object
from slotune.controller.flights import WITHOUT_A_NODE, Flight
from slotune.controller.gpu_classes import naming_the_class
from slotune.controller.kinds import JOB, LLAMA_DEPLOYMENT, LLAMA_TRIAL, NODE, POD
from slotune.controller.pod_logs import read_events, read_logs
from slotune.controller.references import References
from slotune.controller.store import Store, key_of, labels_of
from slotune.llama.log_lines import LogFacts
from slotune.sandbox.image_identity import digest_of_image
from slotune.sandbox.judgement import Waiting
from slotune.sandbox.pod_facts import JobFacts, PodFacts, newest_pod
from slotune.sandbox.pod_outcome import judge_pod, needed_logs
from slotune.tuning.trial_objects import trial_of

__all__ = ["ReadTrial", "Trials", "gather_trials", "holds_a_place", "read_trial", "running_trials"]


ReadTrial = Callable[[Object], LlamaTrial | None]


@dataclass(frozen=True, slots=True)
class Trials:
    """What is known of trials."""

    finished: tuple[LlamaTrial, ...] = field(default=(), repr=False)
    """Those that answer questions of this search, whoever asked them, in the order in which they ended."""
    flights: tuple[Flight, ...] = ()
    """This LlamaDeployment's trials that have not ended."""
    kept: tuple[LlamaTrial, ...] = field(default=(), repr=False)
    """All of this LlamaDeployment's trials that have ended, newest first."""
    leftovers: tuple[JobFacts, ...] = ()
    """Jobs of trials that have ended."""
    unreadable: tuple[Object, ...] = field(default=(), repr=False)
    """This LlamaDeployment's trials that another version of slotune has made."""
    reused: int = 0
    """How many of ``finished`` were asked by an earlier search or by others."""


async def gather_trials(
    references: References,
    contexts: Collection[str],
    store: Store,
    cluster: Cluster,
    *,
    hardware: Mapping[str, bool],
    started: MutableMapping[str, LogFacts],
    read: ReadTrial,
    now: datetime,
    image_id: str = "",
) -> Trials:
    """Read the trials, and what became of those under way.

    Args:
        references: the LlamaDeployment.
        contexts: of the search, of load and of answers; none while there is none.
        store: what was seen.
        cluster: what is read beside it.
        hardware: whether a GPUClass has a GPU, by name.
        started: how servers came up, by the uid of their pod; what is read now is added. Kubelet's log rotation may
            take it away before a trial ends.
        read: makes the model of a LlamaTrial; None where another version of slotune has made it.
        now: with time zone.
        image_id: of the image that the survey saw. Where it saw none, that of the first trial that has ended counts.
    """
    namespace, name = references.key
    live = [raw for raw in store.owned(LLAMA_TRIAL, namespace, name) if _is_live(raw, store)]
    own = [(raw, trial) for raw in live if (trial := read(raw)) is not None]
    readable = {key_of(raw) for raw, _ in own}
    known = {key_of(raw): (raw, trial) for raw, trial in own}
    ended = [(raw, trial) for raw, trial in own if _is_complete(trial)]
    others = [
        found
        for context in sorted(contexts)
        for raw in store.of_context(LLAMA_TRIAL, namespace, context)
        if (found := known.get(key_of(raw)) or _other(raw, store, read)) and _is_complete(found[1])
    ]
    finished = sorted((trial for _, trial in others), key=_when_ended)
    flights = []
    for raw, pending in own:
        if not _is_complete(pending):
            flights.append(
                await _flight(
                    references,
                    raw,
                    pending,
                    store,
                    cluster,
                    hardware=hardware,
                    started=started,
                    now=now,
                    image_id=image_id or _first_image(finished),
                )
            )
    uids = {trial.metadata.name: raw["metadata"]["uid"] for raw, trial in ended}
    return Trials(
        finished=tuple(finished),
        flights=tuple(flights),
        kept=tuple(sorted((trial for _, trial in ended), key=_when_ended, reverse=True)),
        leftovers=tuple(
            JobFacts.from_object(job)
            for job in store.owned(JOB, namespace, name)
            if is_child(job, uids.get(job["metadata"]["name"], ""))
        ),
        unreadable=tuple(raw for raw in live if key_of(raw) not in readable),
        reused=sum(trial.spec.llama_deployment != name for trial in finished),
    )


def running_trials(store: Store) -> int:
    """Trials that hold a node anywhere, or are about to."""
    return sum(holds_a_place(store, job) for job in store.of(JOB).values())


def holds_a_place(store: Store, job: Object) -> bool:
    """Whether a Job counts among the trials that run at the same time.

    One that waits in a queue, or for a node that nobody has, does not: others would wait with it for good.
    """
    if TRIAL_LABEL not in labels_of(job) or _is_over(job) or job["metadata"].get("deletionTimestamp"):
        return False
    if (job.get("spec") or {}).get("suspend"):
        return False
    trial = store.get(LLAMA_TRIAL, *key_of(job))
    status = (trial or {}).get("status") or {}
    return status.get("phase") != "Queued" and status.get("reason") not in WITHOUT_A_NODE


def read_trial(raw: Object) -> LlamaTrial | None:
    """The model; None when another version of slotune has made the object: its question is asked anew."""
    try:
        return LlamaTrial.from_manifest(raw)
    except ValidationError:
        return None


def _other(raw: Object, store: Store, read: ReadTrial) -> tuple[Object, LlamaTrial] | None:
    trial = read(raw) if _is_live(raw, store) else None
    return None if trial is None else (raw, trial)


def _is_live(raw: Object, store: Store) -> bool:
    """Whether a trial's LlamaDeployment lives: others are about to be collected."""
    namespace, _ = key_of(raw)
    if raw["metadata"].get("deletionTimestamp"):
        return False
    owners = {owner.get("uid"): owner.get("name") for owner in raw["metadata"].get("ownerReferences") or ()}
    for uid, name in owners.items():
        owner = store.get(LLAMA_DEPLOYMENT, namespace, str(name))
        if owner is None or owner["metadata"].get("uid") != uid:
            return False
    return True


def _is_complete(trial: LlamaTrial) -> bool:
    return trial.status is not None and trial.status.phase == "Complete"


def _first_image(finished: Sequence[LlamaTrial]) -> str:
    """Of the first trial whose pod said which image it ran."""
    said = (one.status.environment for one in finished if one.status is not None and one.status.environment is not None)
    return next((one.image for one in said if one.image and digest_of_image(one.image)), "")


def _when_ended(trial: LlamaTrial) -> tuple[str, str]:
    assert trial.status is not None
    return trial.status.completed_at or "", trial.metadata.name


def _is_over(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one.get("type") in {"Complete", "Failed"} and one.get("status") == "True" for one in conditions)


async def _flight(
    references: References,
    raw: Object,
    trial: LlamaTrial,
    store: Store,
    cluster: Cluster,
    *,
    hardware: Mapping[str, bool],
    started: MutableMapping[str, LogFacts],
    now: datetime,
    image_id: str,
) -> Flight:
    namespace, name = key_of(raw)
    found = store.get(JOB, namespace, name)
    if found is None or not is_child(found, raw["metadata"]["uid"]):
        return Flight(trial, raw)
    job = JobFacts.from_object(found)
    if job.deleting or references.manifests is None:
        return Flight(trial, raw, job)
    server, spec = references.manifests.container.name, references.manifests.deployment.spec
    pods = await cluster.list(POD, namespace, f"{TRIAL_LABEL}={name}")
    newest = newest_pod(pods, job.uid)
    pod = None if newest is None else PodFacts.from_object(newest)
    asked = trial_of(trial.spec)
    earlier = None if pod is None else started.get(pod.uid)
    wanted = needed_logs(job, pod, server, head_known=earlier is not None)
    judgement = judge_pod(
        asked,
        job,
        pod,
        {} if pod is None else await read_logs(cluster, namespace, pod.name, wanted),
        gpu_expected=hardware.get(asked.candidate.gpu_class, False),
        server_container=server,
        capacity_timeout_s=float(parse_duration(spec.sandbox.capacity_timeout)),
        startup_timeout_s=float(parse_duration(trial.spec.measurement.startup_timeout)),
        now=now,
        events=await read_events(cluster, namespace, name, pod),
        earlier=earlier,
        image_id=image_id,
        is_generated=trial.spec.workload.prompts.synthetic is not None,
    )
    if pod is not None and isinstance(judgement, Waiting) and judgement.server is not None:
        started[pod.uid] = judgement.server
    elif pod is not None and not isinstance(judgement, Waiting):
        started.pop(pod.uid, None)
    for index, gpu_class in enumerate(references.manifests.gpu_classes.values()):
        if gpu_class.metadata.name == asked.candidate.gpu_class:
            judgement = naming_the_class(judgement, gpu_class, index, list(store.of(NODE).values()), now)
    return Flight(trial, raw, job, judgement, (found["metadata"].get("annotations") or {}).get(MADE_FROM_ANNOTATION))
