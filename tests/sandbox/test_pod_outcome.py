"""Every end of a trial in a pod is told apart: the candidate's doing, chance, or something that is here to stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.sandbox.judgement import Blocked, Ended, Judgement, LogRequest, Retry, Waiting
from slotune.sandbox.pod_case import CLIENT_END, CLIENT_NOW, init_log, server_head, server_tail
from slotune.sandbox.pod_facts import EventFacts, JobFacts, PodFacts, newest_pod
from slotune.sandbox.pod_outcome import GATES, judge_pod, needed_logs
from slotune.sandbox.protocol import Progress
from slotune.sandbox.report_stream import frames, progress_line, result_frames, stopped_line, summary_of
from slotune.search.trial import Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.sandbox.pods import NOW, ago, crashing, ended, event, failed_job, job, pod, waiting, with_state

LOGS = Path(__file__).parent.parent / "llama" / "logs"
READY = (LOGS / "split_quantized.log").read_text()
KV_FULL = (LOGS / "kv_too_big.log").read_text()

ASKED = Candidate("only", "l4", 2, 2048, batch_size=512, ubatch_size=256)
TRIAL = Trial(ASKED, 2.0)
PASSED = TrialResult(
    TRIAL, Verdict(Outcome.PASS, "it held", "PromiseKept", 0.95, 200, 3), 12.0, effective=(("x", "1"),)
)
AS_READY = replace(
    TRIAL,
    candidate=Candidate(
        variant="only",
        gpu_class="l4",
        parallel_slots=3,
        context_per_slot=1024,
        batch_size=256,
        ubatch_size=128,
        cache_type_k="q8_0",
        cache_type_v="q8_0",
        cache_ram_mib=64,
        cache_idle_slots=True,
        speculation="ngram-mod",
    ),
)
"""What the server of ``READY`` was asked to be."""
LIMITS: dict[str, Any] = {
    "gpu_expected": False,
    "server_container": "llama",
    "capacity_timeout_s": 1800.0,
    "startup_timeout_s": 600.0,
    "now": NOW,
}

DONE = with_state(pod(), "load-client", ended(0))
HEAD, TAIL = server_head("llama", previous=False), server_tail("llama", previous=False)
OLD_HEAD = server_head("llama", previous=True)


def judge(
    pod_object: Any = None,
    job_object: Any = None,
    logs: dict[LogRequest, str] | None = None,
    trial: Trial = TRIAL,
    events: tuple[Any, ...] = (),
    **more: Any,
) -> Judgement:
    return judge_pod(
        trial,
        JobFacts.from_object(job_object or job()),
        None if pod_object is None else PodFacts.from_object(pod_object),
        logs or {},
        events=[EventFacts.from_object(one) for one in events],
        **(LIMITS | more),
    )


def result(judgement: Judgement) -> TrialResult:
    assert isinstance(judgement, Ended), judgement
    return judgement.result


def log_of(*lines: bytes) -> str:
    return b"".join(lines).decode()


WHOLE = log_of(*frames("record", b"all requests"), *result_frames(PASSED))


def test_a_result_ends_the_trial_with_its_record_and_what_it_is_true_for():
    judgement = judge(DONE, logs={CLIENT_END: WHOLE})
    assert isinstance(judgement, Ended)
    assert judgement.result.verdict == PASSED.verdict
    assert judgement.record == b"all requests"
    assert judgement.environment.node == judgement.result.node == "gpu-1"
    assert judgement.environment.image == "docker.io/library/llama.cpp@sha256:bbbb"
    assert judgement.environment.slotune


def test_the_time_that_the_gpu_was_held_counts_from_the_servers_start_to_the_clients_end():
    assert result(judge(DONE, logs={CLIENT_END: WHOLE})).gpu_seconds == 9 * 60 + 20
    assert result(judge(DONE, logs={CLIENT_END: WHOLE})).started_at == "2026-03-01T11:50:31+00:00"


def test_without_a_log_the_termination_message_has_the_result():
    made = with_state(pod(), "load-client", ended(0, message=summary_of(PASSED).decode()))
    assert result(judge(made)).verdict == PASSED.verdict


def test_a_record_that_is_cut_costs_the_record_and_not_the_verdict():
    cut = log_of(*[*frames("record", b"x" * 20_000)][1:], *result_frames(PASSED))
    judgement = judge(DONE, logs={CLIENT_END: cut})
    assert isinstance(judgement, Ended)
    assert (judgement.record, judgement.result.passed) == (None, True)
    assert judgement.notes


def test_the_servers_log_adds_memory_build_and_what_is_in_effect():
    told = result(judge(DONE, logs={CLIENT_END: WHOLE, HEAD: READY}, trial=AS_READY))
    assert told.memory_bytes is not None
    assert told.memory_bytes > 50e6
    assert told.compute_buffer_bytes is not None
    assert dict(told.effective)["cacheTypeK"] == AS_READY.candidate.cache_type_k
    assert dict(told.effective)["x"] == "1"


def test_work_that_fell_back_to_the_cpu_is_the_candidates_failure_whatever_was_measured():
    judged = result(judge(DONE, logs={CLIENT_END: WHOLE, HEAD: READY}, gpu_expected=True, trial=AS_READY))
    assert (judged.verdict.outcome, judged.failure) == (Outcome.FAIL, FailureClass.CPU_FALLBACK)
    assert "gpuLayers" in judged.verdict.reason


def test_a_fallback_is_known_before_the_load_ends_and_saves_the_rest():
    assert result(judge(pod(), logs={HEAD: READY}, gpu_expected=True, trial=AS_READY)).failure is not None
    assert isinstance(judge(pod(), logs={HEAD: READY}, gpu_expected=False, trial=AS_READY), Waiting)


def test_a_server_that_is_not_as_asked_makes_the_measurement_void():
    judged = result(judge(DONE, logs={CLIENT_END: WHOLE, HEAD: READY}))
    assert (judged.verdict.outcome, judged.verdict.code) == (Outcome.INVALID, "ConfigurationMismatch")


def test_a_crash_counts_whatever_the_client_says():
    again = with_state(
        DONE, "llama", {"running": {"startedAt": ago(30)}}, restartCount=1, lastState=ended(139, began=500, finished=40)
    )
    judged = result(judge(again, logs={CLIENT_END: WHOLE}))
    assert (judged.verdict.outcome, judged.failure) == (Outcome.FAIL, FailureClass.CRASHED)
    assert "SIGSEGV" in judged.verdict.reason


def test_of_a_server_that_crashed_twice_the_end_that_kubelet_still_knows_counts():
    made = with_state(crashing(1), "llama", ended(1), restartCount=1, lastState={})
    now = server_tail("llama", previous=False)
    asked = needed_logs(JobFacts.from_object(job()), PodFacts.from_object(made), "llama")
    assert now in asked
    assert not any(one.previous for one in asked)
    judged = result(judge(made, logs={now: "error: invalid argument: --no-such-flag"}))
    assert judged.failure == FailureClass.BAD_FLAG


def test_a_server_that_kubelet_stops_after_the_client_is_no_crash():
    for code in (0, 137, 143):
        made = with_state(pod(phase="Succeeded"), "load-client", ended(0, finished=9))
        made = with_state(made, "llama", ended(code, finished=5))
        assert result(judge(made, logs={CLIENT_END: WHOLE})).passed


def test_a_server_that_ended_before_the_client_is_a_crash_also_when_it_was_not_started_again():
    made = with_state(pod(phase="Failed"), "load-client", ended(0, finished=9))
    made = with_state(made, "llama", ended(134, finished=12))
    assert result(judge(made, logs={CLIENT_END: WHOLE})).failure is FailureClass.CRASHED


def test_within_the_same_second_the_clients_word_decides():
    lost = replace(PASSED, verdict=Verdict(Outcome.INVALID, "gone", "ServerUnreachable", 0.95))
    made = with_state(with_state(pod(), "load-client", ended(0, finished=9)), "llama", ended(1, finished=9))
    assert result(judge(made, logs={CLIENT_END: WHOLE})).passed
    assert result(judge(made, logs={CLIENT_END: log_of(*result_frames(lost))})).failure is FailureClass.CRASHED


def test_a_wedge_that_the_client_saw_gets_the_servers_last_words():
    wedged = replace(PASSED, verdict=Verdict(Outcome.FAIL, "wedged", "Wedged", 0.95), failure=FailureClass.WEDGED)
    judged = result(judge(DONE, logs={CLIENT_END: log_of(*result_frames(wedged)), HEAD: "one\ntwo"}))
    assert (judged.failure, judged.log_tail) == (FailureClass.WEDGED, ("one", "two"))


@pytest.mark.parametrize(
    ("made", "log", "failure", "knob"),
    [
        pytest.param(crashing(1), KV_FULL, FailureClass.OUT_OF_MEMORY_KV, "contextSizePerSlot", id="GPU memory, KV"),
        pytest.param(
            crashing(1), "error: invalid argument: --nope\n", FailureClass.BAD_FLAG, "--nope", id="a flag it refuses"
        ),
        pytest.param(
            crashing(137, "OOMKilled"), KV_FULL, FailureClass.OUT_OF_MEMORY_HOST, "cacheRAMMiB", id="host memory"
        ),
        pytest.param(
            crashing(137, began=700, finished=95), "loading model", FailureClass.STARTUP_TIMEOUT, "startupTimeout",
            id="killed by the startup probe",
        ),
        pytest.param(
            crashing(134), READY + "\nCUDA error: out of memory\n", FailureClass.OUT_OF_MEMORY_RUNTIME, "uBatchSize",
            id="GPU memory under load",
        ),
        pytest.param(crashing(139), "", FailureClass.CRASHED, None, id="a segfault without a log"),
    ],
)  # fmt: skip
def test_a_server_that_cannot_run_fails_the_candidate_with_the_setting_to_change(made, log, failure, knob):
    judged = result(judge(made, logs={OLD_HEAD: log}))
    assert (judged.verdict.outcome, judged.failure, judged.failure_knob) == (Outcome.FAIL, failure, knob)


def test_a_kill_within_the_limit_is_not_taken_for_the_startup_probes():
    judged = result(judge(crashing(137, began=80, finished=9), logs={OLD_HEAD: "loading model"}))
    assert judged.failure is FailureClass.OUT_OF_MEMORY_HOST


def test_a_probe_that_kubelet_says_gave_up_is_believed():
    said = event("Pod", "Killing", "Init container llama failed startup probe")
    judged = result(judge(crashing(137, began=80, finished=9), logs={OLD_HEAD: "loading"}, events=(said,)))
    assert judged.failure is FailureClass.STARTUP_TIMEOUT


def test_when_the_log_is_gone_kubelets_excerpt_names_the_flag():
    made = crashing(1, message="error: invalid argument: --nope\n")
    assert result(judge(made)).failure_knob == "--nope"


def test_a_program_that_is_not_there_is_not_the_candidates_fault():
    made = crashing(128, "StartError", message='exec: "/app/llama-server": no such file or directory')
    judgement = judge(made)
    assert isinstance(judgement, Blocked)
    assert judgement.reason == "CannotStart"
    assert "no such file" in judgement.message


def test_a_node_that_was_started_again_under_the_server_says_nothing_about_it():
    made = with_state(DONE, "llama", waiting("x"), restartCount=1, lastState=ended(255, "Unknown"))
    for logs in ({}, {CLIENT_END: WHOLE}):
        assert judge(made, logs=logs) == Retry("NodeLost", "node gpu-1 lost the server's container")


COMPLETE = job(conditions=[{"type": "Complete", "status": "True"}])
TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "a pod came"}


@pytest.mark.parametrize(
    ("pod_object", "job_object", "reason"),
    [
        pytest.param(pod(conditions=[TARGET]), job(), "Disrupted", id="preempted"),
        pytest.param(
            pod(phase="Failed", reason="Evicted", conditions=[TARGET | {"reason": "TerminationByKubelet"}]), job(),
            "Disrupted", id="node under pressure",
        ),
        pytest.param(pod(phase="Failed", reason="NodeLost"), job(), "NodeRefused", id="node lost"),
        pytest.param(pod(phase="Failed", reason="UnexpectedAdmissionError"), job(), "NodeRefused", id="no GPU"),
        pytest.param(pod(deleted=True), job(), "Deleted", id="pod deleted"),
        pytest.param(pod(), job(deleted=True), "Deleted", id="job deleted"),
        pytest.param(
            with_state(pod(phase="Failed"), "load-client", ended(137, "ContainerStatusUnknown")), job(), "NodeLost",
            id="node came back without the pod",
        ),
        pytest.param(
            None, failed_job("PodFailurePolicy", "Pod models/x has condition DisruptionTarget matching FailJob rule"),
            "Disrupted", id="preempted, and the pod is gone",
        ),
        pytest.param(None, failed_job("BackoffLimitExceeded"), "PodLost", id="the pod is gone"),
        pytest.param(None, COMPLETE, "PodLost", id="cleaned up too early"),
        pytest.param(pod(phase="Failed"), failed_job("DeadlineExceeded"), "DeadlineExceeded", id="the Job's deadline"),
        pytest.param(
            with_state(pod(phase="Failed"), "load-client", ended(143)), job(), "Stopped", id="told to stop, no word why"
        ),
    ],
)  # fmt: skip
def test_what_says_nothing_about_the_candidate_is_run_again(pod_object, job_object, reason):
    judgement = judge(pod_object, job_object)
    assert isinstance(judgement, Retry), judgement
    assert judgement.reason == reason


def test_a_job_that_somebody_deleted_is_run_again():
    assert judge_pod(TRIAL, None, None, {}, **LIMITS) == Retry("JobLost", "the trial's Job was deleted while it ran")


def test_a_result_that_came_before_the_disruption_counts():
    made = with_state(pod(conditions=[TARGET]), "load-client", ended(0))
    assert result(judge(made, logs={CLIENT_END: WHOLE})).passed


def unscheduled(seconds: float, **condition: Any) -> Any:
    said = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": ago(seconds),
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", **condition,
    }  # fmt: skip
    made = pod(node=None, phase="Pending", conditions=[said], initContainerStatuses=[], containerStatuses=[])
    made["metadata"]["creationTimestamp"] = ago(seconds)
    return made


def test_a_gpu_that_never_comes_stalls_the_search_and_fails_no_candidate():
    assert judge(unscheduled(60)) == Waiting(
        "Pending", "Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )
    assert judge(unscheduled(59)).reason == "Scheduling"  # what was there before may be just leaving
    stalled = judge(unscheduled(1801))
    assert isinstance(stalled, Blocked)
    assert stalled.reason == "NoCapacity"
    for word in ("Insufficient nvidia.com/gpu", "30 min", "capacityTimeout", "Borrow"):
        assert word in stalled.message


@pytest.mark.parametrize(
    ("pod_object", "job_object"),
    [
        pytest.param(None, job(suspend=True, active=0), id="not admitted yet"),
        pytest.param(pod(), job(suspend=True), id="evicted by the queue"),
        pytest.param(pod(deleted=True), job(suspend=True), id="whose pod is being deleted"),
        pytest.param(
            with_state(pod(deleted=True, conditions=[TARGET]), "llama", ended(137)),
            job(suspend=True),
            id="whose server is gone",
        ),
        pytest.param(unscheduled(9000, reason="SchedulingGated"), job(), id="gated"),
    ],
)
def test_what_a_queue_holds_back_is_queued_however_long(pod_object, job_object):
    judgement = judge(pod_object, job_object, now=NOW + timedelta(days=3))
    assert isinstance(judgement, Waiting)
    assert judgement.phase == "Queued"


def not_started(name: str, reason: str, message: str = "", seconds: float = 600) -> Any:
    made = with_state(pod(phase="Pending"), "load-client", waiting("PodInitializing"))
    made = with_state(with_state(made, "llama", waiting("PodInitializing")), name, waiting(reason, message))
    for condition in made["status"]["conditions"]:
        condition["lastTransitionTime"] = ago(seconds)
    return made


@pytest.mark.parametrize(
    ("made", "reason", "word"),
    [
        pytest.param(
            not_started("llama", "ImagePullBackOff", "Back-off pulling image"), "ImagePullFailed", "imagePullSecrets",
            id="image",
        ),
        pytest.param(not_started("fetch", "InvalidImageName", seconds=1), "ImagePullFailed", "fetcher:1", id="no name"),
        pytest.param(
            not_started("llama", "CreateContainerConfigError", 'secret "licence" not found'), "CannotStart",
            'secret "licence" not found', id="a Secret that is not there",
        ),
        pytest.param(
            with_state(pod(phase="Failed"), "fetch", ended(22)), "InitContainerFailed", "fetch", id="the model's fetch"
        ),
        pytest.param(
            pod(phase="Failed", reason="Evicted", message='Usage of EmptyDir volume "x" exceeds the limit "1Gi". '),
            "StorageExceeded", "sizeLimit", id="its own disk use",
        ),
    ],
)  # fmt: skip
def test_what_is_here_to_stay_names_the_cause_and_the_cure(made, reason, word):
    judgement = judge(made)
    assert isinstance(judgement, Blocked), judgement
    assert judgement.reason == reason
    assert word in judgement.message


def test_a_registry_that_stumbles_is_given_time():
    judgement = judge(not_started("llama", "ErrImagePull", "timeout", seconds=20))
    assert isinstance(judgement, Waiting)
    assert judgement.reason == "ErrImagePull"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("curl: (6) Could not resolve host: store", "egress"),
        ("wget: can't open '/models/m.gguf': Read-only file system", "read-only in a trial"),
    ],
)
def test_a_fetch_that_the_sandbox_itself_broke_gets_the_cure(said, word):
    judgement = judge(with_state(pod(phase="Failed"), "fetch", ended(1)), logs={init_log("fetch"): f"...\n{said}\n"})
    assert isinstance(judgement, Blocked)
    assert said in judgement.message
    assert word in judgement.message


def test_a_pod_of_before_that_still_goes_when_the_turn_comes_again_is_no_interruption():
    resumed = job(startTime=ago(1), active=0)
    judgement = judge(with_state(pod(deleted=True), "load-client", ended(143)), resumed)
    assert isinstance(judgement, Waiting)
    assert (judgement.phase, judgement.reason) == ("Pending", "NoPod")


def test_what_a_fetch_logged_is_repeated_without_keys():
    said = "403 for https://me:pw@store/m.gguf?X-Amz-Signature=abc with hf_abcdefghijkl"
    judgement = judge(with_state(pod(phase="Failed"), "fetch", ended(1)), logs={init_log("fetch"): said})
    assert isinstance(judgement, Blocked)
    assert not any(secret in judgement.message for secret in ("pw@", "Signature", "hf_abc"))


@pytest.mark.parametrize(
    ("message", "reason", "seconds"),
    [
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged', "PodSecurity", 1),
        ('pods "x" is forbidden: no PriorityClass with name idle was found', "PodRefused", 600),
        ('pods "x" is forbidden: exceeded quota: gpus, requested: 1, used: 1, limited: 1', "QuotaExceeded", 3600),
    ],
)
def test_a_pod_that_the_api_server_refuses_is_said_with_its_words(message, reason, seconds):
    refused = event("Job", "FailedCreate", f"Error creating: {message}")
    now = NOW - timedelta(seconds=600 - seconds)
    judgement = judge(None, job(active=0), events=(refused,), now=now)
    assert isinstance(judgement, Blocked)
    assert judgement.reason == reason
    assert message in judgement.message


def test_a_quota_may_have_room_later():
    refused = event("Job", "FailedCreate", "exceeded quota: gpus")
    judgement = judge(None, job(active=0), events=(refused,))
    assert isinstance(judgement, Waiting)
    assert judgement.reason == "QuotaExceeded"


def test_a_volume_that_is_not_there_is_known_from_kubelets_event():
    made = not_started("fetch", "PodInitializing")
    mount = event("Pod", "FailedMount", 'MountVolume.SetUp failed for volume "models": claim "models" not found')
    judgement = judge(made, events=(mount,))
    assert isinstance(judgement, Blocked)
    assert judgement.reason == "VolumeNotMounted"
    assert isinstance(judge(made), Waiting)


@pytest.mark.parametrize(
    ("state", "log", "code"),
    [
        pytest.param(ended(137, "OOMKilled"), "", "LoadClientOutOfMemory", id="too little memory"),
        pytest.param(ended(1), "Traceback\nValueError: x", "LoadClientFailed", id="a bug of ours"),
        pytest.param(ended(0), "", "ResultLost", id="nothing arrived"),
        pytest.param(ended(1), log_of(next(iter(frames("result", b"x" * 9000)))), "ResultLost", id="half arrived"),
    ],
)
def test_a_load_client_that_fails_makes_the_measurement_invalid_and_blames_no_candidate(state, log, code):
    judged = result(judge(with_state(pod(phase="Failed"), "load-client", state), logs={CLIENT_END: log}))
    assert (judged.verdict.outcome, judged.verdict.code, judged.failure) == (Outcome.INVALID, code, None)


def test_a_client_that_was_told_to_stop_says_so_and_is_run_again():
    made = with_state(pod(phase="Failed"), "load-client", ended(143))
    assert isinstance(judge(made, logs={CLIENT_END: log_of(stopped_line("SIGTERM"))}), Retry)


def test_the_pods_deadline_is_the_trials_limit_when_it_has_one_and_a_fault_of_ours_otherwise():
    over = pod(phase="Failed", reason="DeadlineExceeded", message="Pod was active on the node longer than ...")
    over = with_state(over, "load-client", ended(137))
    assert result(judge(over)).verdict.code == "DeadlineExceeded"
    limited = result(judge(over, trial=replace(TRIAL, time_limit_s=60.0)))
    assert (limited.verdict.outcome, limited.verdict.code) == (Outcome.INCONCLUSIVE, "TimeLimit")


def test_a_model_that_is_not_there_before_the_deadline_is_nobodys_failure():
    over = not_started("llama", "PodInitializing")
    over["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded"}
    over = with_state(over, "fetch", {"running": {"startedAt": ago(9000)}}, started=False)
    judgement = judge(over)
    assert isinstance(judgement, Blocked)
    assert "fetch was still at work" in judgement.message


def test_progress_is_seen_while_it_runs_and_the_servers_facts_with_it():
    said = log_of(progress_line(Progress("warming up", 1, 5)))
    judgement = judge(pod(), logs={CLIENT_NOW: said, HEAD: READY}, trial=AS_READY)
    assert isinstance(judgement, Waiting)
    assert (judgement.phase, judgement.reason, judgement.progress) == (
        "Running",
        "WarmingUp",
        Progress("warming up", 1, 5),
    )
    assert judgement.server is not None
    assert judgement.server.ready


def test_what_the_servers_log_said_before_it_was_rotated_is_not_lost():
    first = judge(pod(), logs={HEAD: READY}, trial=AS_READY)
    assert isinstance(first, Waiting)
    later = judge(DONE, logs={CLIENT_END: WHOLE, HEAD: "only later lines"}, trial=AS_READY, earlier=first.server)
    assert result(later).memory_bytes is not None


def test_the_stages_before_the_load_are_told():
    loading = with_state(pod(), "load-client", waiting("PodInitializing"))
    fetching = with_state(not_started("llama", "PodInitializing"), "fetch", {"running": {"startedAt": ago(30)}})
    creating = not_started("fetch", "PodInitializing", seconds=5)
    for made, phase, reason in (
        (None, "Pending", "NoPod"),
        (creating, "Pending", "ContainerCreating"),
        (fetching, "Pending", "Initializing"),
        (loading, "Running", "Starting"),
    ):
        judgement = judge(made)
        assert isinstance(judgement, Waiting), judgement
        assert (judgement.phase, judgement.reason) == (phase, reason)


def _needed(made: Any, **more: Any) -> tuple[LogRequest, ...]:
    return needed_logs(JobFacts.from_object(job()), PodFacts.from_object(made), "llama", **more)


def test_only_the_logs_that_a_judgement_reads_are_asked_for():
    assert needed_logs(JobFacts.from_object(job()), None, "llama") == ()
    assert _needed(pod()) == (CLIENT_NOW, HEAD)
    assert _needed(pod(), head_known=True) == (CLIENT_NOW,)
    assert _needed(DONE) == (CLIENT_END, HEAD, TAIL)
    assert _needed(crashing(1)) == (OLD_HEAD, server_tail("llama", previous=True))
    assert _needed(with_state(not_started("llama", "PodInitializing"), "fetch", ended(1))) == (init_log("fetch"),)
    assert _needed(unscheduled(1)) == ()


def test_the_newest_pod_of_a_job_that_was_suspended_is_the_one_that_counts():
    old, new, foreign = pod(), pod(), pod()
    new["metadata"] |= {"name": "new", "creationTimestamp": ago(0)}
    foreign["metadata"] |= {"ownerReferences": [], "creationTimestamp": ago(-5)}
    assert newest_pod([new, old, foreign], "job-uid") is new
    assert newest_pod([foreign], "job-uid") is None


def test_the_order_of_the_gates_is_fixed():
    assert [gate.__name__ for gate in GATES] == [
        "_of_another_image", "_measured", "held_back", "disrupted", "refused_by_its_node", "deleted", "_out_of_time",
        "_server_failed", "init_container_failed", "_client_failed", "job_failed", "_fell_back",
    ]  # fmt: skip


STATES = st.sampled_from(
    [
        {},
        {"running": {"startedAt": ago(50)}},
        waiting("ContainerCreating"),
        waiting("CrashLoopBackOff"),
        waiting("ErrImagePull"),
        ended(0),
        ended(1),
        ended(137, "OOMKilled"),
        ended(143),
        {"terminated": {"exitCode": 137, "reason": "Error", "startedAt": None, "finishedAt": None}},
    ]
)


@given(
    st.lists(STATES, min_size=3, max_size=3),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    st.sampled_from(["", "Evicted", "DeadlineExceeded", "NodeLost"]),
    st.integers(0, 2),
    st.text(max_size=200) | st.just(WHOLE),
    st.booleans(),
)
def test_any_state_gets_a_judgement_and_a_pass_only_comes_from_a_client_that_said_so(
    states, phase, reason, restarts, text, gpu
):
    made = pod(phase=phase, reason=reason)
    for name, state in zip(("fetch", "llama", "load-client"), states, strict=True):
        made = with_state(made, name, state, restartCount=restarts if name == "llama" else 0)
    judgement = judge(made, logs={CLIENT_END: text, HEAD: text}, gpu_expected=gpu)
    if isinstance(judgement, Ended) and judgement.result.passed:
        assert (text, restarts) == (WHOLE, 0)
        assert "terminated" in states[2]


def test_the_last_words_of_a_server_that_has_just_ended_are_waited_for():
    """Seen on a real kubelet: restarted already, and neither a log nor an end of the life before."""
    restarted = crashing(1, began=3)
    restarted["status"]["startTime"] = ago(4)
    for status in restarted["status"]["initContainerStatuses"]:
        if status["name"] == "llama":
            status["lastState"] = {}
            status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    waiting = judge(restarted)
    assert isinstance(waiting, Waiting)
    assert waiting.reason == "Restarting"
    later = judge(crashing(1, began=3, finished=1), logs={OLD_HEAD: "error: invalid argument: --nope\n"})
    assert result(later).failure is FailureClass.BAD_FLAG


@pytest.mark.parametrize("done", [False, True], ids=["while it runs", "after it was measured"])
def test_a_server_of_another_image_ends_the_trial_whatever_it_measured(done):
    was = "docker.io/library/llama.cpp@sha256:aaaa"
    logs = {CLIENT_END: WHOLE} if done else {}
    judgement = judge(DONE if done else pod(), logs=logs, image_id=was)
    assert isinstance(judgement, Ended)
    assert judgement.result.verdict.outcome is Outcome.INVALID
    assert judgement.result.verdict.code == "ImageMoved"
    assert "sha256:bbbb" in judgement.result.verdict.reason
    assert "sha256:aaaa" in judgement.result.verdict.reason
    same = judge(DONE if done else pod(), logs=logs, image_id="docker.io/library/llama.cpp@sha256:bbbb")
    assert isinstance(same, Ended) is done
