"""A LlamaDeployment's status tells what is so: one condition for each question, and parts that fit the API whatever the
search did."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus
from slotune.controller.conditions import Claim, claimed, with_claims
from slotune.controller.events import transitions
from slotune.controller.reasons import REASONS_OF, ConditionType, Reason
from slotune.controller.rollout_story import RolloutNews, rollout_news
from slotune.controller.serving_story import Serving, keeps_promise, serving_of
from slotune.controller.status_answer import (
    baseline_configuration,
    binding_of,
    nearest_of,
    recommendation_of,
    rejected_of,
)
from slotune.controller.status_progress import RunningTrial, progress_of
from slotune.controller.status_story import phase_of, refusal_claims, search_claims
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.summary import Attribution
from slotune.rollout.steps import AwaitApproval, Done, NothingToDo, Refuse, Wait
from slotune.sandbox.protocol import Progress
from slotune.search.decision import Decision, DecisionKind
from slotune.search.problem import Budget, Hardware, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.trial_objects import candidate_hash, candidate_of
from slotune.verdict.verdicts import Outcome
from tests.report.samples import ALL, worked_example
from tests.search.worlds import GPU, World, candidate, live, problem

T = ConditionType
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CONTEXT = "0123456789abcdef"
BASE = candidate(slots=8)
BETTER = candidate(slots=16)


def search(
    capacity: dict[Candidate, float], failures: dict[Candidate, FailureClass] | None = None, **stated: object
) -> tuple[Problem, Decision, list[TrialResult]]:
    """A search over these candidates, the first of which runs today, run to its end."""
    asked = problem(list(capacity), context=CONTEXT, **stated)  # type: ignore[arg-type]  # a test's shorthand
    decision, results = live(asked, World(capacity, failures or {}))
    return asked, decision, results


def claims_of(
    asked: Problem, decision: Decision | None, results: list[TrialResult], **more: object
) -> dict[str, Claim]:
    said = search_claims(asked, decision, results, **more)  # type: ignore[arg-type]  # as above
    return {kind.value: found for kind in T if (found := claimed(said, kind)) is not None}


def served(asked: Problem) -> Serving:
    return Serving(asked.baseline, asked.replicas_today)


def full_status(
    asked: Problem, decision: Decision, results: list[TrialResult], **more: object
) -> LlamaDeploymentStatus:
    """All parts together, as the operator writes them."""
    said = search_claims(asked, decision, results, **more)  # type: ignore[arg-type]  # as above
    return LlamaDeploymentStatus(
        phase=phase_of(decision),
        conditions=with_claims((), said, generation=1, now=NOW),
        baseline=baseline_configuration(asked, decision, results),
        recommendation=recommendation_of(asked, decision, args=["-m", "/models/x.gguf", "--api-key", "s3cret"]),
        binding_constraint=binding_of(asked, decision, results),
        nearest=nearest_of(asked, decision),
        rejected=rejected_of(asked, decision),
        progress=progress_of(asked, results, (), now=NOW),
    )


# One question after the other -----------------------------------------------------------------------------------------


def test_while_the_baseline_runs_nothing_is_known_and_slotune_is_at_work():
    asked = problem([BASE, BETTER], context=CONTEXT)
    said = claims_of(asked, None, [], purpose=Purpose.BASELINE, serving=served(asked), doing="trial 1: what runs today")
    assert {kind: (claim.status, claim.reason) for kind, claim in said.items()} == {
        "BaselineMeasured": ("Unknown", "Measuring"),
        "SearchCompleted": ("False", "Measuring"),
        "SLOMet": ("Unknown", "NotMeasured"),
        "RolledOut": ("False", "NoRecommendation"),
        "Reconciling": ("True", "Measuring"),
        "Stalled": ("False", "Measuring"),
        "Ready": ("False", "Measuring"),
    }
    assert said["Reconciling"].message == "trial 1: what runs today"


def test_a_recommendation_that_nobody_rolled_out_changes_nothing_for_users():
    asked, decision, results = search({BASE: 0.5, BETTER: 7.0})
    said = claims_of(asked, decision, results, serving=served(asked))
    assert decision.kind is DecisionKind.FOUND
    assert (said["SLOMet"].status, said["SLOMet"].reason) == ("False", "NotRolledOut")
    assert "1 × l4 with 16 slots keeps it and does not serve yet" in said["SLOMet"].message
    assert (said["Ready"].status, said["Ready"].reason) == ("True", "Recommended")
    assert (said["RolledOut"].status, said["RolledOut"].reason) == ("False", "RecommendOnly")
    assert (said["SearchCompleted"].status, said["SearchCompleted"].reason) == ("True", "Found")
    assert phase_of(decision) == "Recommended"


def test_the_promise_is_kept_once_the_answer_serves():
    asked, decision, results = search({BASE: 0.5, BETTER: 7.0})
    rollout = rollout_news(Done("Candidate serves with 1 replica"))
    serving = serving_of(asked, decision, candidate_hash(BETTER), 1)
    said = claims_of(asked, decision, results, serving=serving, rollout=rollout)
    assert (said["SLOMet"].status, said["SLOMet"].reason) == ("True", "ServingKeepsSLO")
    assert (said["Ready"].status, said["Ready"].reason) == ("True", "RolledOut")
    assert phase_of(decision, rollout=rollout) == "Tuned"


def test_a_baseline_that_keeps_the_promise_keeps_it_while_something_cheaper_is_looked_for():
    asked = problem([BASE, BETTER], replicas_today=2, context=CONTEXT)
    world = World({BASE: 4.0, BETTER: 7.0})
    results = [world.measure(Trial(BASE, 3.0, purpose=Purpose.BASELINE))]
    said = claims_of(asked, None, results, purpose=Purpose.SEARCH, serving=served(asked))
    assert (said["SLOMet"].status, said["BaselineMeasured"].status) == ("True", "True")
    assert (said["Ready"].status, said["Reconciling"].reason) == ("False", "Searching")
    assert phase_of(None, purpose=Purpose.SEARCH) == "Searching"


def test_an_answer_that_runs_already_is_as_good_as_rolled_out():
    asked, decision, results = search({BASE: 7.0, BETTER: 0.1})
    assert decision.choice is not None
    said = claims_of(asked, decision, results, serving=Serving(BASE, decision.choice.replicas))
    assert [said[kind].status for kind in ("SLOMet", "RolledOut", "Ready")] == ["True", "True", "True"]
    assert said["RolledOut"].reason == "AlreadyServing"


def test_infeasible_is_stalled_with_the_constraint_that_binds_and_production_untouched():
    asked, decision, results = search({BASE: 0.1, BETTER: 0.2})
    said = claims_of(asked, decision, results, serving=served(asked))
    binding = binding_of(asked, decision, results)
    assert decision.kind is DecisionKind.INFEASIBLE
    assert binding is not None
    assert binding.message
    assert (said["Stalled"].status, said["Stalled"].reason) == ("True", "Infeasible")
    assert binding.code in said["Stalled"].message
    assert binding.message[1:] in said["Stalled"].message
    assert said["Stalled"].message.endswith("Production stays as it is.")
    assert (said["SLOMet"].status, said["SLOMet"].reason) == ("False", "Infeasible")
    assert (said["SearchCompleted"].status, said["Ready"].status) == ("True", "False")
    assert phase_of(decision) == "Infeasible"
    nearest = nearest_of(asked, decision)
    assert nearest is not None
    assert nearest.candidate_hash == candidate_hash(BETTER)


def test_faulty_measurements_bind_nothing():
    told = ALL["invalid"]()
    assert binding_of(told.problem, told.decision, list(told.results)) is None
    said = claims_of(told.problem, told.decision, list(told.results), serving=served(told.problem))
    assert "ClientLate" in said["Stalled"].message


def test_a_budget_that_ends_without_an_answer_says_what_to_raise():
    asked, decision, results = search({BASE: 0.1, BETTER: 7.0}, budget=Budget(gpu_seconds=30, trials=1))
    said = claims_of(asked, decision, results, serving=served(asked))
    assert decision.choice is None
    assert (said["Stalled"].status, said["Stalled"].reason) == ("True", "BudgetExhausted")
    assert "search.budget" in said["Stalled"].message
    assert phase_of(decision) == "Inconclusive"


def test_a_baseline_that_does_not_start_is_told_as_such_and_not_as_a_candidate_that_failed():
    crash = FailureClass.CRASHED
    asked, decision, results = search({BASE: 7.0, BETTER: 7.0}, {BASE: crash, BETTER: crash})
    said = claims_of(asked, decision, results, serving=served(asked))
    assert (said["BaselineMeasured"].status, said["BaselineMeasured"].reason) == ("False", "BaselineDoesNotStart")
    assert said["Stalled"].reason == "BaselineDoesNotStart"


def test_a_baseline_that_does_not_start_leaves_open_what_production_does():
    asked, decision, results = search({BASE: 7.0, BETTER: 7.0}, {BASE: FailureClass.OUT_OF_MEMORY_KV})
    said = claims_of(asked, decision, results, serving=served(asked))
    assert decision.choice is not None
    assert (said["SLOMet"].status, said["SLOMet"].reason) == ("Unknown", "BaselineDoesNotStart")
    assert said["Ready"].status == "True"


def test_what_could_not_be_decided_about_production_is_unknown():
    asked = problem([BASE, BETTER], context=CONTEXT)
    world = World({BASE: 7.0, BETTER: 7.0}, verdicts=lambda trial: Outcome.INCONCLUSIVE)
    results = [world.measure(Trial(BASE, 6.0, purpose=Purpose.BASELINE))]
    said = claims_of(asked, None, results, purpose=Purpose.SEARCH, serving=served(asked))
    assert (said["SLOMet"].status, said["SLOMet"].reason) == ("Unknown", "Inconclusive")
    assert keeps_promise(asked, results, served(asked)) is None


def test_fewer_replicas_than_were_measured_are_not_known_to_keep_the_promise():
    asked, _, results = search({BASE: 4.0, BETTER: 0.1}, replicas_today=2)
    assert keeps_promise(asked, results, Serving(BASE, 2)) is True
    assert keeps_promise(asked, results, Serving(BASE, 1)) is False
    assert keeps_promise(asked, results, None) is None


def test_a_candidate_of_another_search_is_not_known_to_serve():
    asked, decision, _ = search({BASE: 0.5, BETTER: 7.0})
    assert serving_of(asked, decision, "ffffffffff", 1) is None
    assert serving_of(asked, decision, None, 3) == Serving(BASE, 3)


@pytest.mark.parametrize(
    ("step", "want", "phase"),
    [
        pytest.param(AwaitApproval("name it"), ("False", None, None), "AwaitingApproval", id="a person is asked"),
        pytest.param(Wait("Borrowed", "at night"), ("False", "True", None), "Recommended", id="not begun yet"),
        pytest.param(Refuse("WouldDeadlock", "no GPU"), ("False", None, "True"), "Failed", id="it cannot go on"),
        pytest.param(Refuse("RolledBack", "it was late"), ("False", None, "True"), "RolledBack", id="it went back"),
        pytest.param(NothingToDo("SavesTooLittle", "2 %"), ("True", None, None), "Recommended", id="not worth it"),
        pytest.param(NothingToDo("ScaledToZero", "0"), ("False", None, None), "Recommended", id="nothing to replace"),
        pytest.param(Done("serves"), ("True", None, None), "Tuned", id="the answer serves"),
    ],
)
def test_the_way_to_production_decides_whether_all_is_done(step, want, phase):
    asked, decision, results = search({BASE: 0.5, BETTER: 7.0})
    rollout = rollout_news(step)
    said = search_claims(asked, decision, results, serving=served(asked), rollout=rollout)
    conditions = {c.type: c.status for c in with_claims((), said, generation=1, now=NOW)}
    assert (conditions["Ready"], conditions.get("Reconciling"), conditions.get("Stalled")) == want
    assert phase_of(decision, rollout=rollout) == phase


def test_suspended_is_neither_at_work_nor_stalled_and_a_finished_answer_stays_ready():
    asked, decision, results = search({BASE: 0.5, BETTER: 7.0})
    begun = claims_of(asked, None, results[:1], purpose=Purpose.SEARCH, serving=served(asked), suspended=True)
    assert [begun[kind].status for kind in ("Ready", "Reconciling", "Stalled")] == ["False"] * 3
    assert begun["Ready"].reason == "Suspended"
    done = claims_of(asked, decision, results, serving=served(asked), suspended=True)
    assert done["Ready"].status == "True"
    assert phase_of(decision, suspended=True) == "Suspended"


@pytest.mark.parametrize("reason", [Reason.TARGET_CONFLICT, Reason.REFUSED, Reason.NO_CAPACITY, Reason.VERSION_SKEW])
def test_a_refusal_stalls_and_says_whether_the_target_is_known(reason):
    said = {claim.type: claim for claim in refusal_claims(reason, "spec.container: name one")}
    assert said[T.STALLED].status == "True"
    assert said[T.STALLED].message == "spec.container: name one"
    assert (T.TARGET_RESOLVED in said) == (reason is not Reason.NO_CAPACITY)
    assert phase_of(None, refused=True) == "Failed"


# The answer -----------------------------------------------------------------------------------------------------------


def test_the_recommendation_of_the_worked_example_has_its_numbers():
    told = worked_example()
    names = {r.trial.key(told.problem.context): f"chat-{r.trial.key(told.problem.context)}" for r in told.results}
    found = recommendation_of(
        told.problem, told.decision, args=told.flags, trials=names, patch_config_map="chat-recommendation"
    )
    choice = told.decision.choice
    assert found is not None
    assert choice is not None
    assert (found.replicas, found.monthly_cost, found.currency) == (choice.replicas, "1460", "USD")
    assert found.saving_percent == "80"
    assert [(step.name, step.replicas, step.monthly_cost) for step in found.steps] == [
        ("baseline", None, None),
        ("queue", 4, "5840"),
        ("cache", 2, "2920"),
        ("bytes", 1, "1460"),
    ]
    assert found.args == told.flags
    assert found.trial in names.values()
    assert candidate_of(found.candidate) == choice.candidate
    assert found.proved == told.decision.proved


def test_changed_settings_have_the_names_of_the_api():
    found = recommendation_of(*worked_example_parts(), args=[])
    assert found is not None
    changed = {name for step in found.steps for name in step.changed}
    assert "parallelSlots" in changed
    assert not any("_" in name for name in changed)


def test_a_saving_in_another_currency_is_not_a_number():
    here, there = Hardware(GPU, Decimal(1)), Hardware("h100", Decimal(9), currency="EUR")
    far = candidate(gpu_class="h100")
    asked, decision, _ = search({BASE: 0.1, far: 7.0}, hardware={GPU: here, "h100": there})
    found = recommendation_of(asked, decision, args=[])
    assert found is not None
    assert (found.saving_percent, found.currency, found.gpu_class) == (None, "EUR", "h100")


def test_rejected_candidates_are_counted_by_reason_with_an_example_each():
    asked, decision, _ = search({BASE: 0.5, BETTER: 7.0, candidate(slots=4): 0.4, candidate(slots=2): 0.3})
    told = rejected_of(asked, decision)
    assert sum(group.count for group in told) == 3
    assert len({group.code for group in told}) == len(told)
    assert all("slot" in group.message or "what runs today" in group.message for group in told)


def test_more_reasons_than_a_status_holds_are_gathered_in_the_last():
    asked, decision, _ = search({BASE: 0.5, BETTER: 7.0})
    rejected = tuple(
        replace(decision.rejections[0], candidate=candidate(slots=10 + number), code=f"Reason{number}")
        for number in range(40)
    )
    told = rejected_of(asked, replace(decision, rejections=rejected))
    assert (len(told), told[-1].code) == (32, "Others")
    assert sum(group.count for group in told) >= 40


# Progress -------------------------------------------------------------------------------------------------------------


def test_progress_says_which_trial_runs_and_how_far_it_is():
    asked = problem([BASE, BETTER], context=CONTEXT)
    world = World({BASE: 0.5, BETTER: 7.0})
    results = [world.measure(Trial(BASE, 6.0)), world.measure(Trial(BETTER, 1.5))]
    running = RunningTrial("chat-1", Trial(BETTER, 1.5), Progress("measuring", 1, 5, 62, 200))
    said = progress_of(asked, results, [running], reused=1, started_at="2026-01-31T11:00:00Z", now=NOW)
    assert said.message == "trial 3: 16 slots at 1.5/s, 62 of 200 requests"
    assert (said.trials, said.running, said.passed, said.failed, said.reused) == (2, 1, 1, 1, 1)
    assert (said.gpu_minutes_used, said.current_trial, said.search) == ("1", "chat-1", CONTEXT)


@pytest.mark.parametrize(
    ("running", "want"),
    [
        pytest.param(
            RunningTrial("x", Trial(BASE, 6.0, purpose=Purpose.SENTINEL)),
            "trial 1: what runs today, idle: has the machine drifted?, starts",
            id="a sentinel",
        ),
        pytest.param(
            RunningTrial("x", Trial(BETTER, 6.0, 1, purpose=Purpose.CONFIRM), waits_for="a free GPU"),
            "trial 1: 16 slots at 6/s again, on a fresh start, waits for a free GPU",
            id="a confirmation that waits",
        ),
        pytest.param(
            RunningTrial("x", Trial(BETTER, 6.0), Progress("probing")),
            "trial 1: 16 slots at 6/s, probing",
            id="before its requests are planned",
        ),
    ],
)
def test_progress_is_told_in_words(running, want):
    asked = problem([BASE, BETTER], context=CONTEXT)
    assert progress_of(asked, [], [running], now=NOW).message == want


def test_time_alone_is_no_progress():
    asked = problem([BASE, BETTER], context=CONTEXT)
    results = [World({BASE: 0.5}).measure(Trial(BASE, 6.0))]
    first = progress_of(asked, results, [], now=NOW)
    later = NOW + timedelta(hours=1)
    assert progress_of(asked, results, [], now=later, before=first) == first
    more = progress_of(asked, [*results, *results], [], now=later, before=first)
    assert more.last_progress_time == "2026-01-31T13:00:00Z"


# Laws -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(ALL) - {"hostile"}))  # its names are none that an API object may have
def test_every_end_of_a_search_makes_a_valid_status(name):
    told = ALL[name]()
    status = full_status(told.problem, told.decision, list(told.results), serving=served(told.problem))
    assert LlamaDeploymentStatus.from_manifest(status.to_manifest()) == status
    assert "s3cret" not in json.dumps(status.to_manifest())
    assert len(json.dumps(status.to_manifest())) < 200_000


def test_no_secret_of_a_users_server_gets_into_a_status():
    open_door = replace(BASE, extra_args=("--api-key", "s3cret", "--jinja"))
    asked, decision, results = search({open_door: 0.5, replace(open_door, parallel_slots=16): 7.0})
    written = json.dumps(full_status(asked, decision, results, serving=served(asked)).to_manifest())
    assert "s3cret" not in written
    assert "--jinja" in written


variants = st.sampled_from(["F16", "Q8_0", "Q4_0"])
spaces = st.dictionaries(
    st.builds(candidate, variants, slots=st.sampled_from([1, 2, 4, 8, 16]), cache_prompt=st.booleans()),
    st.floats(0.05, 20),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=40)
@given(
    spaces,
    st.lists(st.none() | st.sampled_from(FailureClass), min_size=6, max_size=6),
    st.lists(st.none() | st.sampled_from(Outcome), min_size=1, max_size=5),
    st.integers(1, 8),
    st.sampled_from([Budget(1e9, 10_000), Budget(200, 10_000), Budget(1e9, 3)]),
    st.booleans(),
)
def test_whatever_a_search_does_its_status_is_valid_and_consistent(capacity, fails, verdicts, today, budget, explain):
    asked = problem(list(capacity), replicas_today=today, budget=budget, explain=explain, context=CONTEXT)
    failures = {one: failure for one, failure in zip(capacity, fails, strict=False) if failure is not None}
    turn = iter(range(10_000))
    world = World(capacity, failures, verdicts=lambda _: verdicts[next(turn) % len(verdicts)])
    decision, results = live(asked, world)
    conditions = ()
    for end, seen in ((None, results[:1]), (decision, results)):
        said = search_claims(asked, end, seen, purpose=Purpose.SEARCH, serving=served(asked))
        assert all(claim.reason in REASONS_OF[claim.type] for claim in said if claim.status == "True")
        after = with_claims(conditions, said, generation=1, now=NOW)
        assert {"Ready", "SLOMet", "SearchCompleted", "BaselineMeasured", "RolledOut"} <= {c.type for c in after}
        assert len(transitions(conditions, after)) == len({note.reason for note in transitions(conditions, after)})
        assert with_claims(after, said, generation=1, now=NOW + timedelta(hours=1)) == after
        conditions = after
    status = full_status(asked, decision, results, serving=served(asked))
    assert LlamaDeploymentStatus.from_manifest(status.to_manifest()) == status
    found = {c.type: c.status for c in status.conditions}
    assert ("Stalled" in found) == (decision.choice is None) == (found["Ready"] == "False")
    assert (status.recommendation is None) == (decision.choice is None)
    assert sum(group.count for group in status.rejected) >= len(asked.candidates) - 1
    if decision.kind is DecisionKind.INFEASIBLE:
        assert found["SLOMet"] == "False"


def worked_example_parts() -> tuple[Problem, Decision]:
    told = worked_example()
    return told.problem, told.decision


def test_a_plan_without_a_rollout_speaks_for_itself():
    news = RolloutNews("Settled", Claim.true(T.ROLLED_OUT, Reason.ALREADY_SERVING), "Tuned")
    asked, decision, results = search({BASE: 7.0})
    assert phase_of(decision, rollout=news) == "Tuned"
    assert claims_of(asked, decision, results, rollout=news)["Ready"].reason == "AlreadyServing"


# What decides is named ------------------------------------------------------------------------------------------------


def queueing(one: TrialResult) -> TrialResult:
    """The trial with a queue that explains its wait, where it missed the promise."""
    if one.verdict.outcome is not Outcome.FAIL:
        return one
    return replace(
        one,
        verdict=replace(one.verdict, ttft_p95_s=2.8),
        attribution=Attribution(2.4, 0.3, 0.1, 0.0, busy_slots=float(one.trial.candidate.parallel_slots)),
    )


def test_what_makes_it_infeasible_is_named_with_its_entry_in_status_conditions_and_events():
    asked, decision, results = search({BASE: 0.1})
    results = [queueing(one) for one in results]
    decision = replace(decision, nearest=results[-1])
    binding = binding_of(asked, decision, results)
    assert binding is not None
    assert (binding.code, binding.finding) == ("TTFTQueue", "SLT050")
    assert binding.message.endswith("(SLT050)")
    said = claims_of(asked, decision, results, serving=served(asked))
    for kind in ("SLOMet", "Stalled", "Ready"):
        assert "(SLT050)" in said[kind].message
        assert "See docs/diagnosis.md#slt050." in said[kind].message
    conditions = with_claims((), tuple(said.values()), generation=1, now=NOW)
    [note] = [note for note in transitions((), conditions) if note.reason == "Infeasible"]
    assert "See docs/diagnosis.md#slt050." in note.note


def test_what_makes_the_serving_configuration_miss_is_named_with_its_entry():
    asked, decision, results = search({BASE: 0.5, BETTER: 7.0})
    said = claims_of(asked, decision, [queueing(one) for one in results], serving=served(asked))
    assert (said["SLOMet"].status, said["SLOMet"].reason) == ("False", "NotRolledOut")
    assert "(SLT050)" in said["SLOMet"].message
    assert said["SLOMet"].message.endswith("keeps it and does not serve yet. See docs/diagnosis.md#slt050")


def test_where_no_cause_is_known_nothing_is_linked():
    asked, decision, results = search({BASE: 0.5, BETTER: 7.0})
    said = claims_of(asked, decision, results, serving=served(asked))
    assert "docs/diagnosis.md" not in said["SLOMet"].message
