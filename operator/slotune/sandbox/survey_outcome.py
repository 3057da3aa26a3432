"""What became of a survey in its pod. Pure, and told apart by the same rules as a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from slotune.llama.build_number import build_of_text
from slotune.llama.model_facts import ModelFacts
from slotune.sandbox.judgement import Blocked, Judgement, LogRequest, Logs, Retry, Waiting
from slotune.sandbox.pod_case import PodCase, init_log
from slotune.sandbox.pod_ends import (
    LINE,
    deleted,
    disrupted,
    held_back,
    init_container_failed,
    job_failed,
    last_line,
    quoted,
    refused_by_its_node,
)
from slotune.sandbox.pod_facts import ContainerFacts, EventFacts, JobFacts, PodFacts
from slotune.sandbox.pod_waiting import waiting_for_its_start, waiting_for_its_volumes, without_pod
from slotune.sandbox.survey_job import SURVEY, VERSION
from slotune.sandbox.survey_report import SurveyError, survey_from_log

__all__ = ["Surveyed", "judge_survey", "needed_survey_logs"]

SURVEY_LOG: Final = LogRequest(SURVEY, tail_lines=1000)
VERSION_LOG: Final = LogRequest(VERSION, tail_lines=50)
VERSION_PATIENCE_S: Final = 60.0
"""How long the version may take after the survey ended: some builds initialise a GPU first."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """It has ended; the pod may still run."""

    models: dict[str, ModelFacts | SurveyError]
    build: int | None = None
    """None: the server's image did not say."""
    image_id: str = ""
    """The server's image, by digest; empty when it never started."""


def needed_survey_logs(pod: PodFacts | None) -> tuple[LogRequest, ...]:
    """The logs that a judgement would read."""
    if pod is None:
        return ()
    main = {SURVEY: SURVEY_LOG, VERSION: VERSION_LOG}
    return tuple(
        main.get(container.name) or init_log(container.name)
        for container in pod.containers.values()
        if container.ended is not None and (container.name in main or (container.is_init and container.ended.exit_code))
    )


def judge_survey(
    job: JobFacts | None,
    pod: PodFacts | None,
    logs: Logs,
    *,
    capacity_timeout_s: float,
    now: datetime,
    events: Sequence[EventFacts] = (),
) -> Surveyed | Judgement:
    """Say where a survey stands: never :class:`~slotune.sandbox.judgement.Ended`, which is a trial's."""
    if job is None:
        return Retry("JobLost", "the survey's Job was deleted while it ran")
    if pod is None:
        return without_pod(job, events, capacity_timeout_s, now)
    case = PodCase(job=job, pod=pod, logs=logs, events=events, capacity_timeout_s=capacity_timeout_s, now=now)
    ends = (_surveyed, held_back, disrupted, refused_by_its_node, deleted, init_container_failed, _failed, job_failed)
    for gate in (*ends, waiting_for_its_start, _at_work):
        found: Surveyed | Judgement | None = gate(case)
        if found is not None:
            return found
    return waiting_for_its_volumes(case)


def _surveyed(case: PodCase) -> Surveyed | Waiting | None:
    survey, version = case.pod.containers.get(SURVEY), case.pod.containers.get(VERSION)
    models = survey_from_log(case.logs.get(SURVEY_LOG, ""))
    if survey is None or survey.ended is None or models is None:
        return None
    ended_at = survey.ended.finished_at
    patient = ended_at is not None and (case.now - ended_at).total_seconds() < VERSION_PATIENCE_S
    if patient and not case.pod.over and (version is None or version.ended is None):
        return Waiting("Running", "Surveying", "llama-server says its version")
    build = build_of_text(case.logs.get(VERSION_LOG, ""))
    return Surveyed(models, build, "" if version is None else version.image_id)


def _failed(case: PodCase) -> Judgement | None:
    survey = case.pod.containers.get(SURVEY)
    if case.pod.over and case.pod.reason == "DeadlineExceeded":
        return Blocked("NotStartedInTime", "the survey's pod was not ready before its deadline: see its events")
    if survey is None or survey.ended is None:
        return None
    said = last_line(case.logs.get(SURVEY_LOG, "")) or survey.ended.message[:LINE]
    if survey.ended.reason == "OOMKilled":
        return Blocked("SurveyFailed", "the survey ran out of memory: raise sandbox.loadClient.memory")
    if survey.ended.exit_code == 0:
        return Retry("ResultLost", "the survey ended, but what it found did not arrive")
    return Blocked("SurveyFailed", f"the survey failed (exit code {survey.ended.exit_code}){quoted(said)}")


def _at_work(case: PodCase) -> Judgement | None:
    survey: ContainerFacts | None = case.pod.containers.get(SURVEY)
    if survey is None or survey.running_since is None:
        return None
    return Waiting("Running", "Surveying", "reads the headers of the model files")
