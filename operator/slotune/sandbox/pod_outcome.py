"""What became of a trial in its pod. Pure: the same facts at the same time give the same judgement.

Three questions, in this order: did the load client come to a result; if not, was that the candidate's doing; if not,
was it chance or is it here to stay? A server's crash counts whatever the client says, since kubelet starts a sidecar
again and the client may have measured two servers. What is nobody's fault never becomes a word about a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from slotune.llama.effective import Mismatch, check_log, with_log
from slotune.llama.failures import Failure, classify_failure
from slotune.llama.log_lines import LogFacts
from slotune.sandbox.image_identity import digest_of_image, is_another_image
from slotune.sandbox.judgement import Blocked, Ended, Judgement, Logs, Retry, Waiting
from slotune.sandbox.measurement import out_of_time
from slotune.sandbox.outcomes import LOG_TAIL_LINES, failed, invalid, mismatched, not_measured
from slotune.sandbox.pod_case import CLIENT_END, UNSEEN, Case, needed_logs
from slotune.sandbox.pod_ends import (
    LINE,
    LOST,
    deleted,
    disrupted,
    held_back,
    init_container_failed,
    job_failed,
    last_line,
    quoted,
    refused_by_its_node,
)
from slotune.sandbox.pod_facts import EventFacts, Exit, JobFacts, PodFacts
from slotune.sandbox.pod_notice import noticed_in
from slotune.sandbox.pod_waiting import waiting_for, without_pod
from slotune.sandbox.reference_check import not_as_recorded
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["GATES", "judge_pod", "needed_logs"]

_KILLED = frozenset({0, 137, 143})
"""Exit codes of a server that was told to stop: by SIGTERM once it handles it, by SIGKILL, by SIGTERM before."""
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
LAST_WORDS_S = 30.0
"""From a server's first start: how long the log of one that has ended is waited for."""
_PROBE_SLACK_S = 15.0
"""Between the last probe and the kill, and times without fractions."""


def judge_pod(
    trial: Trial,
    job: JobFacts | None,
    pod: PodFacts | None,
    logs: Logs,
    *,
    gpu_expected: bool,
    server_container: str,
    capacity_timeout_s: float,
    startup_timeout_s: float,
    now: datetime,
    events: Sequence[EventFacts] = (),
    earlier: LogFacts | None = None,
    image_id: str = "",
    is_generated: bool = True,
) -> Judgement:
    """Say where a trial stands whose Job was made.

    Args:
        trial: what was asked.
        job: its Job; None when there is none any more.
        pod: the Job's newest pod; None when there is none.
        logs: what :func:`needed_logs` asked for, as far as it could be read.
        gpu_expected: the pod holds a GPU, so work left on the CPU is a fallback.
        server_container: name of llama-server's container.
        capacity_timeout_s: how long it may wait for a node.
        startup_timeout_s: how long the server may load.
        now: aware of its time zone.
        events: of the Job and the pod; without them a refused pod shows only when the waiting is over.
        earlier: the server's facts from an earlier :class:`Waiting`: its log may have been rotated since.
        image_id: of the image that the search is about, as kubelet named it; empty when that is not known.
        is_generated: prompts were made up, and say nothing about what real ones hold.
    """
    if job is None:
        return Retry("JobLost", "the trial's Job was deleted while it ran")
    if pod is None:
        return without_pod(job, events, capacity_timeout_s, now)
    case = Case(
        trial=trial,
        job=job,
        pod=pod,
        logs=logs,
        events=events,
        gpu_expected=gpu_expected,
        server_container=server_container,
        capacity_timeout_s=capacity_timeout_s,
        startup_timeout_s=startup_timeout_s,
        now=now,
        earlier=earlier,
        image_id=image_id,
        is_generated=is_generated,
    )
    for gate in GATES:
        judgement = gate(case)
        if judgement is not None:
            return judgement
    return waiting_for(case)


def _of_another_image(case: Case) -> Judgement | None:
    """Two programs are not compared. It shows as soon as the server has started: nothing is measured in vain."""
    if case.server is None or not is_another_image(case.image_id, case.server.image_id):
        return None
    was, now = (digest_of_image(one)[:LINE] for one in (case.image_id, case.server.image_id))
    sentence = (
        f"image {case.server.image} is another one by now: {now}, and the search began with {was}. Name it by its "
        "digest (IMAGE@sha256:…) in the pod template, or have the search begin anew with spec.rerun"
    )
    return _ended(case, invalid(_base(case), "ImageMoved", sentence))


def _measured(case: Case) -> Judgement | None:
    """The client came to a result. It holds unless the server crashed meanwhile, or was not what was asked for."""
    result = case.client_result
    if result is None:
        return None
    known = _with_server(case, result)
    if case.crash is not None:
        return _crashed(case, case.crash, known)
    mismatches = (
        check_log(case.trial.candidate, case.server_facts, case.gpu_expected) if case.server_facts.ready else []
    )
    if mismatches and known.failure is None:
        known = mismatched(known, mismatches)
    if known.failure is not None and not known.log_tail:
        known = replace(known, log_tail=_tail(case))
    return _ended(case, known)


def _out_of_time(case: Case) -> Judgement | None:
    """The pod's deadline: a safety net behind the client's own limit, the startup probe and the capacity timeout."""
    if not (case.pod.over and case.pod.reason == "DeadlineExceeded"):
        return None
    if case.client is None or case.client.first_start is None:
        return Blocked(
            "NotStartedInTime",
            f"the pod was not ready before its deadline: {_unfinished(case)}: fetch the model onto a volume beforehand",
        )
    if case.trial.time_limit_s is not None:
        return _ended(case, replace(_base(case), verdict=out_of_time(case.trial.confidence)))
    return _ended(case, invalid(_base(case), "DeadlineExceeded", "the load client did not come to an end in time"))


def _server_failed(case: Case) -> Judgement | None:
    """The server ended while it was needed, or was killed because it was not ready in time."""
    if case.crash is None:
        return None
    began = (case.server and case.server.first_start) or case.pod.started_at
    lately = began is not None and (case.now - began).total_seconds() < LAST_WORDS_S
    if lately and not case.server_text and not case.pod.over:
        # Between two lives of a container kubelet has neither its log nor its end for a moment.
        return Waiting("Running", "Restarting", "llama-server has ended: what it said last is waited for")
    return _crashed(case, case.crash, _base(case))


def _client_failed(case: Case) -> Judgement | None:
    """The client ended and left nothing. Its fault is never the candidate's."""
    client = case.client
    if client is None or client.ended is None:
        return None
    ended, log = client.ended, case.client_log
    if ended.reason in _NOT_STARTED:
        return Blocked("CannotStart", f"the load client cannot be started: {ended.message[:LINE]}: check its image")
    if ended.reason == "OOMKilled":
        sentence = "the load client ran out of memory: raise sandbox.loadClient.memory"
        return _ended(case, invalid(_base(case), "LoadClientOutOfMemory", sentence))
    if log.stopped or ended.exit_code == 143:
        return Retry("Stopped", f"the load client was told to stop ({log.stopped or 'SIGTERM'})")
    if ended.exit_code == 0 or log.broken:
        return _ended(case, invalid(_base(case), "ResultLost", "the load client ended, but its result did not arrive"))
    said = quoted(last_line(case.logs.get(CLIENT_END, "")))
    sentence = f"the load client failed (exit code {ended.exit_code}){said}"
    return _ended(case, invalid(_base(case), "LoadClientFailed", sentence))


def _fell_back(case: Case) -> Judgement | None:
    """The server is up and is not what was asked for: there is no point in waiting for the measurement."""
    differing = _mismatches(case)
    return _ended(case, mismatched(_base(case), differing)) if differing else None


GATES: Final[tuple[Callable[[Case], Judgement | None], ...]] = (
    _of_another_image,
    _measured,
    held_back,
    disrupted,
    refused_by_its_node,
    deleted,
    _out_of_time,
    _server_failed,
    init_container_failed,
    _client_failed,
    job_failed,
    _fell_back,
)
"""In this order: what ended first must not be hidden by what followed from it."""


def _mismatches(case: Case) -> list[Mismatch]:
    """Known differences to what was asked for; a log that does not reach up to "model loaded" is not judged."""
    facts = case.server_facts
    return check_log(case.trial.candidate, facts, case.gpu_expected) if facts.ready else []


def _crashed(case: Case, exit_: Exit, base: TrialResult) -> Judgement:
    if exit_.reason in LOST:
        return Retry("NodeLost", f"node {case.pod.node} lost the server's container")
    if exit_.reason in _NOT_STARTED:
        return Blocked(
            "CannotStart",
            f"container {case.server_container} cannot be started: {exit_.message[:LINE]}: check command and image",
        )
    return _ended(case, failed(base, _failure(case, exit_), log_tail=_tail(case)))


def _failure(case: Case, exit_: Exit) -> Failure:
    text = case.server_text
    if exit_.reason == "OOMKilled":
        return classify_failure(137, "")
    ran_s = exit_.seconds
    probe_gave_up = any(
        event.kind == "Pod" and event.reason == "Killing" and "startup probe" in event.message for event in case.events
    )
    waited = ran_s is not None and ran_s >= case.startup_timeout_s - _PROBE_SLACK_S
    if exit_.exit_code in _KILLED and not case.server_facts.ready and (waited or probe_gave_up):
        return classify_failure(None, text, timed_out=True, limit_s=case.startup_timeout_s)
    return classify_failure(None if exit_.reason == UNSEEN else exit_.exit_code, text)


def _base(case: Case) -> TrialResult:
    return _with_server(case, not_measured(case.trial))


def _with_server(case: Case, result: TrialResult) -> TrialResult:
    """``result`` with what the pod and the server's log add: they know what the client can't see."""
    facts = case.server_facts
    return replace(
        result,
        gpu_seconds=case.held_s or result.gpu_seconds,
        started_at=case.started_at or result.started_at,
        memory_bytes=facts.memory_bytes,
        compute_buffer_bytes=facts.device_compute_bytes,
        effective=with_log(result.effective, facts),
        node=case.pod.node or "",
    )


def _ended(case: Case, result: TrialResult) -> Ended:
    result = replace(result, noticed=noticed_in(case, result))
    record = case.client_log.record
    lost = ("the record of the requests did not arrive",) if "record" in case.client_log.broken else ()
    kept = case.client_log.reference
    if result.trial.purpose is not Purpose.REFERENCE or result.verdict.outcome is not Outcome.PASS:
        return Ended(result, record, case.environment, lost)
    if (why := not_as_recorded(kept, result.reference)) is not None:
        gone = replace(invalid(result, why.code, why.sentence), reference="")
        return Ended(gone, record, case.environment, lost)
    return Ended(result, record, case.environment, lost, kept)


def _unfinished(case: Case) -> str:
    running = [c.name for c in case.pod.containers.values() if c.is_init and not c.started and c.ended is None]
    return f"container {running[0]} was still at work" if running else "its containers were still being made"


def _tail(case: Case) -> tuple[str, ...]:
    return tuple(case.server_text.splitlines()[-LOG_TAIL_LINES:])
