"""What became of a survey in its pod. Pure, and told apart by the same rules as a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
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
from slotune.sandbox.pod_waiting import (
    has_its_image,
    waiting_for_its_image,
    waiting_for_its_start,
    waiting_for_its_volumes,
    without_pod,
)
from slotune.sandbox.survey_job import SURVEY, VERSION
from slotune.sandbox.survey_report import SurveyError, survey_from_log

__all__ = ["Surveyed", "judge_survey", "needed_survey_logs"]

SURVEY_LOG: Final = LogRequest(SURVEY, tail_lines=1000)
VERSION_LOG: Final = LogRequest(VERSION, tail_lines=50)
VERSION_PATIENCE_S: Final = 60.0
"""How long the version may take once the survey has ended and its image is there: some builds initialise a GPU first.

The image itself is waited for. Every trial needs it, too: to fetch it, or to learn that it can't be had, takes no GPU
here, and there it would.
"""


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
    server: str,
    capacity_timeout_s: float,
    now: datetime,
    events: Sequence[EventFacts] = (),
) -> Surveyed | Judgement:
    """Say where a survey stands: never :class:`~slotune.sandbox.judgement.Ended`, which is a trial's.

    ``server`` is the name that llama-server's container has in the user's template."""
    if job is None:
        return Retry("JobLost", "the survey's Job was deleted while it ran")
    if pod is None:
        return without_pod(job, events, capacity_timeout_s, now)
    case = SurveyCase(
        job=job, pod=pod, logs=logs, events=events, capacity_timeout_s=capacity_timeout_s, now=now, server=server
    )
    ends = (_surveyed, _out_of_time, held_back, disrupted, refused_by_its_node, deleted, init_container_failed, _failed)
    for gate in (*ends, job_failed, _without_the_servers_image, waiting_for_its_start, _at_work):
        found: Surveyed | Judgement | None = gate(case)
        if found is not None:
            return found
    return waiting_for_its_volumes(case)


@dataclass(frozen=True, kw_only=True)
class SurveyCase(PodCase):
    """One survey in its pod."""

    server: str

    @cached_property
    def found(self) -> dict[str, ModelFacts | SurveyError] | None:
        """What it says of the model files; None while it is at work, or when that was lost."""
        survey = self.pod.containers.get(SURVEY)
        return None if survey is None or survey.ended is None else survey_from_log(self.logs.get(SURVEY_LOG, ""))


def _surveyed(case: SurveyCase) -> Surveyed | Waiting | None:
    survey, version = case.pod.containers.get(SURVEY), case.pod.containers.get(VERSION)
    if survey is None or survey.ended is None or case.found is None:
        return None
    if version is not None and not has_its_image(version):
        return None
    since = [time for time in (survey.ended.finished_at, version and version.first_start) if time]
    patient = bool(since) and (case.now - max(since)).total_seconds() < VERSION_PATIENCE_S
    if patient and not case.pod.over and (version is None or version.ended is None):
        return Waiting("Running", "Surveying", "llama-server says its version")
    build = build_of_text(case.logs.get(VERSION_LOG, ""))
    return Surveyed(case.found, build, "" if version is None else version.image_id)


def _out_of_time(case: SurveyCase) -> Blocked | None:
    if case.pod.over and case.pod.reason == "DeadlineExceeded":
        return Blocked("NotStartedInTime", "the survey's pod was not ready before its deadline: see its events")
    return None


def _failed(case: SurveyCase) -> Judgement | None:
    survey = case.pod.containers.get(SURVEY)
    if survey is None or survey.ended is None or case.found is not None:
        return None
    said = last_line(case.logs.get(SURVEY_LOG, "")) or survey.ended.message[:LINE]
    if survey.ended.reason == "OOMKilled":
        return Blocked("SurveyFailed", "the survey ran out of memory: raise sandbox.loadClient.memory")
    if survey.ended.exit_code == 0:
        return Retry("ResultLost", "the survey ended, but what it found did not arrive")
    return Blocked("SurveyFailed", f"the survey failed (exit code {survey.ended.exit_code}){quoted(said)}")


def _without_the_servers_image(case: SurveyCase) -> Judgement | None:
    """In the words that a trial would have for it: with the name of the user's container."""
    version = case.pod.containers.get(VERSION)
    return None if version is None else waiting_for_its_image(case, replace(version, name=case.server))


def _at_work(case: SurveyCase) -> Judgement | None:
    survey: ContainerFacts | None = case.pod.containers.get(SURVEY)
    if survey is None or survey.running_since is None:
        return None
    return Waiting("Running", "Surveying", "reads the headers of the model files")
