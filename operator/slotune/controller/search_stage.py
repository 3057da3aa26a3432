"""The stage of a plan that searches: it lands what is under way, asks the pure search what comes next, and makes that
trial. Pure itself: results are read from LlamaTrials, and new ones are actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slotune.api.labels import CONTEXT_LABEL, DEPLOYMENT_LABEL, MADE_FROM_ANNOTATION, MANAGED_BY, MANAGED_BY_LABEL
from slotune.api.v1alpha1 import LlamaTrial, Question, TrialReference
from slotune.api.v1alpha1.meta import API_VERSION
from slotune.api.v1alpha1.trial import LlamaTrialSpec
from slotune.controller.actions import Create, Delete
from slotune.controller.backoff import failed_again, seconds_left
from slotune.controller.cluster import Object
from slotune.controller.draft import Draft
from slotune.controller.events import trial_ended
from slotune.controller.flights import POLL_S, Flight, Landing, land, owner_reference, patience_s
from slotune.controller.image_build import read_again
from slotune.controller.kinds import JOB, LLAMA_TRIAL
from slotune.controller.observed import Observed
from slotune.controller.recordings import LostReference, forget, usable_references
from slotune.controller.status_progress import RunningTrial, doing, progress_of, trial_label
from slotune.controller.trial_pods import job_of, start_trial
from slotune.controller.understanding import Understood
from slotune.diagnose.binding import with_binding
from slotune.diagnose.findings import explain_result
from slotune.diagnose.hints import hints
from slotune.sandbox.judgement import Blocked, Ended, Waiting
from slotune.sandbox.kept_template import UnusableTemplateError
from slotune.search.answers import judged
from slotune.search.best_first import next_step
from slotune.search.decision import Decision
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.trial_objects import result_of, trial_name, trial_of, trial_spec
from slotune.verdict.verdicts import Outcome

__all__ = ["Search", "search"]


@dataclass(frozen=True, slots=True)
class Search:
    """Where the search stands after this plan."""

    problem: Problem
    results: tuple[TrialResult, ...] = field(repr=False)
    decision: Decision | None = None
    """None while there is something to measure."""
    purpose: Purpose | None = None
    """Of the trial that runs or comes next."""
    doing: str = ""
    blocked: Blocked | None = None
    """Why it can't go on without somebody."""
    names: dict[str, str] = field(default_factory=dict)
    """Name of the LlamaTrial by trial key."""
    references: tuple[TrialReference, ...] = field(default=(), repr=False)
    """What comparisons may compare with, the next one with the last."""
    asked: LlamaTrialSpec | None = field(default=None, repr=False)
    """What the trial that runs or comes next asks; None when nothing is to be measured."""


def search(draft: Draft, observed: Observed, understood: Understood) -> Search:
    """One step of the search."""
    trials = observed.trials
    found = _found(observed)
    results = tuple(result for _, result in found)
    names = {understood.space.key(result.trial): trial.metadata.name for trial, result in found}
    problem = understood.refined(results)
    _tidy(draft, observed)
    references = usable_references(problem, found)
    flights = [flight for flight in trials.flights if _still_asked(flight, problem, references)]
    for flight in trials.flights:
        if flight not in flights:
            _cancel(draft, flight)
    state = Search(problem, results, names=names, references=references)
    if words := read_again(draft, observed, understood):
        return _progressed(draft, observed, replace(state, purpose=Purpose.BASELINE, doing=words), [])
    if (failed := _baseline_that_does_not_start(problem, results)) is not None:
        for flight in flights:
            _cancel(draft, flight)
        words = f"what runs today did not start in a trial: {failed.verdict.reason}"
        cure = (
            "Check what a trial's pod lacks that production's has, or correct the template; no candidate is to blame."
        )
        blocked = Blocked("BaselineDoesNotStart", f"{words}. {cure}")
        return _progressed(draft, observed, Search(problem, results, None, Purpose.BASELINE, "", blocked, names), [])
    if observed.lost_reference is not None:
        return _record_again(draft, observed, state, flights, observed.lost_reference)
    if flights:
        return _go_on(draft, observed, understood, state, flights)
    step = next_step(problem, results, preferred=hints(problem, results))
    if isinstance(step, Decision):
        draft.set(failures=None)
        decision = with_binding(problem, results, step)
        return _progressed(draft, observed, Search(problem, results, decision, names=names), [])
    return _ask(draft, observed, understood, state, step)


def _found(observed: Observed) -> list[tuple[LlamaTrial, TrialResult]]:
    trials = observed.trials.finished
    return [(trial, result) for trial in trials if (result := result_of(trial)) is not None]


def _ask(draft: Draft, observed: Observed, understood: Understood, state: Search, trial: Trial) -> Search:
    """Make the next trial. Its Job comes with the next look, which the new object brings about."""
    namespace, name = observed.references.key
    assert observed.references.deployment is not None
    spec = observed.references.deployment.spec
    key = state.problem.key(trial)
    asked = trial_spec(
        trial,
        state.problem,
        deployment_name=name,
        model_path=understood.baseline.paths[trial.candidate.variant],
        draft_path=understood.baseline.paths.get(trial.candidate.draft or ""),
        workload=understood.manifests.workload,
        slo=spec.slo,
        measurement=spec.measurement,
        pod_template_digest=understood.pod_digest,
        workload_digest=state.problem.demand.identity,
        reference=state.references[-1] if trial.purpose is Purpose.QUALITY and state.references else None,
    )
    manifest = _manifest(asked, trial_name(name, key), namespace, observed.references.raw)
    draft.do(Create(manifest))
    draft.look_again(POLL_S)
    running = [RunningTrial(trial_name(name, key), trial)]
    words = doing(state.problem, state.results, running)
    after = replace(state, purpose=trial.purpose, doing=words, asked=asked)
    return _progressed(draft, observed, after, running)


def _record_again(
    draft: Draft, observed: Observed, state: Search, flights: Sequence[Flight], lost: LostReference
) -> Search:
    """Before a comparison gets its pod: what it was to be compared with is gone."""
    for flight in flights:
        if flight.trial.spec.reference is not None:
            _cancel(draft, flight)
    return _progressed(draft, observed, replace(state, purpose=Purpose.REFERENCE, doing=forget(draft, lost)), [])


def _go_on(
    draft: Draft, observed: Observed, understood: Understood, state: Search, flights: Sequence[Flight]
) -> Search:
    """Land every trial under way. There is one at a time, unless a kill came at a bad moment."""
    running, blocked = [], None
    for flight in [_with_verdict(flight, state) for flight in flights]:
        trial = trial_of(flight.trial.spec)
        if flight.job is None:
            try:
                waits = start_trial(draft, observed, understood, flight)
            except UnusableTemplateError as error:
                blocked, waits = Blocked("Refused", f"A trial can't be made from the pod: {error}"), "another template"
            running.append(RunningTrial(flight.name, trial, waits_for=waits))
            continue
        if _waits_for_what_was(observed, understood, flight):
            draft.do(Delete(JOB, observed.references.key[0], flight.name, flight.job.uid))
            draft.look_again(POLL_S)
            running.append(RunningTrial(flight.name, trial, waits_for="another pod: the spec asks for one by now"))
            continue
        landing = land(flight, observed.now, state.problem)
        draft.do(*landing.actions)
        draft.look_again(patience_s(flight.job, flight.judgement, observed.now))
        _tell(draft, flight, landing, state.problem)
        blocked = landing.blocked or blocked
        waiting = landing.waiting
        held = waiting.message if waiting is not None and waiting.phase != "Running" else ""
        running.append(RunningTrial(flight.name, trial, None if waiting is None else waiting.progress, held))
        if waiting is not None and waiting.progress is not None:
            draft.set(failures=None)  # a trial is measured: what stood in the way does not any more
    if blocked is not None:
        draft.set(failures=failed_again(draft.status.failures, blocked.reason, observed.now))
        draft.look_again(max(POLL_S, seconds_left(draft.status.failures, observed.now)))
    blocked = blocked or _still_blocked(draft)
    words = doing(state.problem, state.results, running)
    purpose = trial_of(flights[0].trial.spec).purpose
    after = replace(state, purpose=purpose, doing=words, blocked=blocked, asked=flights[0].trial.spec)
    return _progressed(draft, observed, after, running)


def _with_verdict(flight: Flight, state: Search) -> Flight:
    """The end of a comparison with the verdict on its numbers: a pod knows neither the limits nor the noise."""
    ended = flight.judgement
    if not isinstance(ended, Ended) or ended.result.quality is None:
        return flight
    result = judged(state.problem, [*state.results, ended.result])[-1]
    return replace(flight, judgement=replace(ended, result=result))


def _waits_for_what_was(observed: Observed, understood: Understood, flight: Flight) -> bool:
    """Whether a Job whose pod has not begun would be another one now: more room asked for, another image or queue."""
    waits = (
        isinstance(flight.judgement, Blocked | Waiting) and getattr(flight.judgement, "phase", "Pending") != "Running"
    )
    if not waits or flight.made_from is None:
        return False
    try:
        wanted = job_of(observed, understood, flight)
    except UnusableTemplateError:
        return True
    return bool(wanted["metadata"]["annotations"][MADE_FROM_ANNOTATION] != flight.made_from)


def _still_blocked(draft: Draft) -> Blocked | None:
    """A new try does not yet mean that what stood in the way is gone: until a trial is measured, it is said."""
    failures = draft.status.failures
    if failures is None or failures.reason is None:
        return None
    known = draft.references.status.condition("Stalled")
    return Blocked(failures.reason, known.message if known is not None else "the last try to run a trial failed")


def _tell(draft: Draft, flight: Flight, landing: Landing, problem: Problem) -> None:
    """An end is worth an event, and shows that trials can run here."""
    if landing.ended is None:
        return
    draft.set(failures=None)
    result = landing.ended.result
    draft.outcomes.append(result.verdict.outcome.value)
    why = explain_result(result, problem.promise, problem.demand)
    note = trial_ended(flight.name, result, trial_label(problem, result.trial), why)
    if note is not None:
        draft.note([note])
    draft.look_again(0.5)


def _progressed(draft: Draft, observed: Observed, state: Search, running: Sequence[RunningTrial]) -> Search:
    before = observed.references.status.progress
    assert isinstance(observed.understood, Understood)
    inputs = observed.understood.inputs
    anew = before is None or before.inputs != inputs
    progress = progress_of(
        state.problem,
        state.results,
        running,
        reused=observed.trials.reused,
        started_at=draft.stamp if anew or before is None else before.started_at,
        now=observed.now,
        before=None if anew else before,
    )
    question = _question(observed, state, None if anew or before is None else before.question)
    draft.set(progress=progress.model_copy(update={"inputs": inputs, "question": question}))
    _handle_rerun(draft, observed)
    if state.decision is not None and (
        anew or observed.references.status.last_search_time is None or _was_open(observed)
    ):
        draft.set(last_search_time=draft.stamp)
    return state


def _question(observed: Observed, state: Search, before: Question | None) -> Question:
    """With the devices on which it was measured: the last that were seen while the search ran."""
    assert isinstance(observed.understood, Understood)
    seen = observed.devices
    if before is not None and (state.decision is not None or not seen):
        seen = before.devices
    return observed.understood.question.model_copy(update={"devices": seen})


def _handle_rerun(draft: Draft, observed: Observed) -> None:
    """The search that was asked for has begun: what was rolled back before may be found again."""
    deployment, status = observed.references.deployment, observed.references.status
    assert deployment is not None
    rerun = deployment.spec.rerun
    if rerun is not None and rerun.reason != status.last_handled_rerun:
        draft.set(last_handled_rerun=rerun.reason, refused_candidates=())


def _was_open(observed: Observed) -> bool:
    condition = observed.references.status.condition("SearchCompleted")
    return condition is None or condition.status != "True"


def _baseline_that_does_not_start(problem: Problem, results: Sequence[TrialResult]) -> TrialResult | None:
    """The failed start of what runs today. A server that never came up says nothing about candidates: the trial's pod
    may lack what production's has."""
    for result in results:
        today = result.trial.candidate == problem.baseline and result.trial.purpose is Purpose.BASELINE
        never_up = result.failure is not None and result.probe is None and not result.effective
        if today and never_up and result.verdict.outcome is Outcome.FAIL:
            return result
    return None


def _still_asked(flight: Flight, problem: Problem, references: Sequence[TrialReference]) -> bool:
    """Whether a trial answers a question of this search: of one context, and of a candidate that may still win, or with
    what comparisons compare with by now."""
    trial = trial_of(flight.trial.spec)
    candidate = trial.candidate
    if candidate.variant not in problem.models or flight.trial.spec.context_digest != problem.context_of(trial):
        return False
    if trial.purpose is Purpose.QUALITY and flight.trial.spec.reference not in references:
        return False
    if trial.purpose.asks_answers:
        return problem.quality is not None and candidate.gpu_class in problem.hardware
    return candidate == problem.baseline or candidate in problem.candidates


def _cancel(draft: Draft, flight: Flight) -> None:
    """Its Job goes with it."""
    metadata = flight.raw["metadata"]
    draft.do(Delete(LLAMA_TRIAL, metadata["namespace"], metadata["name"], metadata["uid"]))
    draft.look_again(POLL_S)


def _tidy(draft: Draft, observed: Observed) -> None:
    """Jobs of trials that have ended hold nothing but logs; trials of earlier questions are kept up to a number."""
    namespace, _ = observed.references.key
    for job in observed.trials.leftovers:
        if not job.deleting:
            draft.do(Delete(JOB, namespace, job.name, job.uid))
    for raw in observed.trials.unreadable:
        draft.do(Delete(LLAMA_TRIAL, namespace, raw["metadata"]["name"], raw["metadata"]["uid"]))
    assert observed.references.deployment is not None
    keep = observed.references.deployment.spec.sandbox.retain_trials
    current = {trial.metadata.name for trial in observed.trials.finished}
    old = [trial for trial in observed.trials.kept if trial.metadata.name not in current]
    for trial in old[keep:]:
        draft.do(Delete(LLAMA_TRIAL, namespace, trial.metadata.name, trial.metadata.uid))


def _manifest(spec: LlamaTrialSpec, name: str, namespace: str, owner: Object) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "LlamaTrial",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                DEPLOYMENT_LABEL: owner["metadata"]["name"],
                CONTEXT_LABEL: spec.context_digest,
            },
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": spec.to_manifest(),
    }
