"""The Job of a trial, made from what a look has found: which server, in which environment, on which nodes."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.api.labels import MADE_FROM_ANNOTATION, SANDBOX_MANAGER
from slotune.api.references import Manifests
from slotune.controller.actions import Apply, StartTrial
from slotune.controller.borrow_stage import waits_for
from slotune.controller.cluster import Object
from slotune.controller.draft import Draft
from slotune.controller.flights import POLL_S, Flight, begun_anew
from slotune.controller.identity import digest_of
from slotune.controller.observed import Observed
from slotune.controller.understanding import Understood
from slotune.llama.flags import to_args
from slotune.sandbox.job import ClientImage, TrialServer, network_policy, trial_job
from slotune.sandbox.server_environment import launch_words, server_environment
from slotune.search.nodes import preferred_node
from slotune.search.trial import TrialResult
from slotune.tuning.pod_client import measuring_limit_s
from slotune.tuning.pod_reading import read_pod
from slotune.tuning.trial_objects import result_of, trial_of

__all__ = ["job_of", "signed", "start_trial", "survey_server", "trial_server"]

DEFAULT_PORT = 8080
SLOT_LOST_S = 600.0


def start_trial(draft: Draft, observed: Observed, understood: Understood, flight: Flight) -> str:
    """Start the Job of a trial if it may run now; what it waits for otherwise, as the end of a sentence.

    Raises UnusableTemplateError when the user's pod can't be measured.
    """
    if (seconds := draft.seconds_to_wait) > 0:
        draft.look_again(seconds)
        return f"another try in {seconds:.0f} s"
    if observed.running >= observed.settings.max_trials:
        draft.waits_for_slot = True  # its end wakes this one; the time is only for an event that was lost
        draft.look_again(SLOT_LOST_S)
        others = "another trial" if observed.running == 1 else f"{observed.running} other trials"
        return f"{others} to end (at most {observed.settings.max_trials} at a time)"
    if waits := waits_for(draft, observed, flight):
        return waits
    namespace, name = observed.references.key
    uid = str(observed.references.raw["metadata"]["uid"])
    policy = network_policy(name, namespace, uid, understood.manifests.deployment.spec.sandbox)
    draft.do(*begun_anew(flight, observed.now))
    draft.do(Apply(policy, SANDBOX_MANAGER), StartTrial(job_of(observed, understood, flight)))
    draft.look_again(POLL_S)
    return "its pod"


def job_of(observed: Observed, understood: Understood, flight: Flight) -> Object:
    """The Job of a trial, as it would be made now.

    Raises UnusableTemplateError when the user's pod can't be measured.
    """
    template = observed.references.template
    assert template is not None
    job = trial_job(
        flight.trial,
        template,
        trial_server(observed, understood, flight),
        gpu_class=understood.manifests.gpu_classes[flight.trial.spec.candidate.gpu_class],
        sandbox=understood.manifests.deployment.spec.sandbox,
        client=ClientImage(observed.settings.trial_image, observed.settings.image_pull_policy),
        measuring_s=measuring_limit_s(flight.trial.spec),
        node=preferred_node(understood.space, _known(observed), trial_of(flight.trial.spec)),
    )
    return signed(job)


def _known(observed: Observed) -> list[TrialResult]:
    return [result for trial in observed.trials.finished if (result := result_of(trial)) is not None]


def signed(job: Object) -> Object:
    """A Job that says what it was made from."""
    metadata = job["metadata"]
    annotations = {**(metadata.get("annotations") or {}), MADE_FROM_ANNOTATION: digest_of(job["spec"])}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def survey_server(observed: Observed) -> TrialServer:
    """llama-server as a survey asks for its version: container, program and environment."""
    manifests = observed.references.manifests
    assert manifests is not None
    return _server(observed, manifests, (), DEFAULT_PORT)


def trial_server(observed: Observed, understood: Understood, flight: Flight) -> TrialServer:
    """llama-server as it is started for the candidate of a trial."""
    baseline = understood.baseline
    port = baseline.port or DEFAULT_PORT
    flags = to_args(
        trial_of(flight.trial.spec).candidate,
        model_path=flight.trial.spec.model_path,
        host="0.0.0.0",  # noqa: S104 - of its own pod: kubelet's probe comes from the node
        port=port,
        alias=baseline.alias or "slotune",
        threads=baseline.threads,
        draft_path=flight.trial.spec.draft_path,
        defaults=baseline.defaults,
    )
    return _server(observed, understood.manifests, flags, port)


def _server(observed: Observed, manifests: Manifests, flags: Sequence[str], port: int) -> TrialServer:
    pod = read_pod(manifests.template, manifests.container, manifests.config_maps)
    starts = [word for word in pod.launch if word.origin.place == "command"]
    launch = launch_words([word.text for word in starts])
    # Such as --server of the full image. Together, for env may stand in command and what it sets in args.
    tools = launch_words([word.text for word in pod.launch])[len(launch) :]
    containers = (observed.references.template or {})["spec"]["containers"]
    container = next(one for one in containers if one["name"] == manifests.container.name)
    secret_env = manifests.deployment.spec.sandbox.secret_env
    return TrialServer(
        manifests.container.name,
        (*tools, *flags),
        tuple(launch) or None,
        tuple(server_environment(container, secret_env, manifests.config_maps)),
        port,
    )
