"""The answer of a search as parts of a status: what is recommended, what runs today, why the rest is not the answer.

The words are those of the command line's report. Lists are cut to what the API holds; what is told of a user's server
is free of secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, cast

from slotune.api.v1alpha1.candidate import CandidateSettings, Configuration, Explanation, QualityResult
from slotune.api.v1alpha1.deployment_status import ChangeStep, Recommendation, Rejected
from slotune.diagnose.binding import with_binding
from slotune.llama.candidate import Candidate
from slotune.report.reasons import reason_groups
from slotune.report.redaction import said_in_public, without_secrets
from slotune.report.standing import cost_of, currency_of, replicas_at, today_of
from slotune.search.answers import QUALITY_TOO_LOW, Answers, judged
from slotune.search.decision import Choice, Decision, DecisionKind, PairFinding, Step
from slotune.search.knowledge import Knowledge
from slotune.search.pairs import pair_of
from slotune.search.problem import Problem
from slotune.search.proofs import compared_pairs
from slotune.search.trial import TrialResult
from slotune.tuning import status_values as values
from slotune.tuning.trial_objects import SETTING_NAMES, candidate_hash, measured_of, settings_of

__all__ = [
    "baseline_configuration",
    "belonging",
    "binding_of",
    "nearest_of",
    "recommendation_of",
    "rejected_of",
    "saving_percent",
]

Names = Mapping[str, str]
"""Name of the LlamaTrial by trial key; those of a reused trial name the one that was measured for another search."""

_NO_NAMES: Final[Names] = MappingProxyType({})
_MOST_REJECTED, _MOST_STEPS, _MOST_SENTENCES, _MOST_ARGS, _MOST_CHANGES = 32, 8, 16, 512, 32
_LONGEST_EXAMPLE: Final = 512
_CURRENCY_LETTERS: Final = 3


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known beside a configuration's own numbers."""

    compared: Sequence[PairFinding]
    trials: Names


def recommendation_of(
    problem: Problem,
    decision: Decision,
    *,
    args: Sequence[str],
    trials: Names = _NO_NAMES,
    patch_config_map: str | None = None,
) -> Recommendation | None:
    """The cheapest configuration that was measured to keep the promise; None when there is none.

    Args:
        problem: the search.
        decision: its end.
        args: the winner's arguments, one word each, as they go into the container.
        trials: name of the LlamaTrial by trial key.
        patch_config_map: ConfigMap with a ready patch.
    """
    choice = decision.choice
    if choice is None:
        return None
    plain = _chosen(problem, choice, _Known(decision.answers, trials))
    return Recommendation(
        **{name: getattr(plain, name) for name in Configuration.model_fields},
        args=without_secrets(args)[:_MOST_ARGS],
        patch_config_map=patch_config_map,
        saving_percent=values.figure(saving_percent(problem, decision)),
        cost_gap=values.money(decision.cost_gap),
        steps=tuple(_step(step) for step in decision.steps[:_MOST_STEPS]),
        proved=tuple(values.sentence(words) for words in decision.proved[:_MOST_SENTENCES]),
        not_proved=tuple(values.sentence(words) for words in decision.not_proved[:_MOST_SENTENCES]),
    )


def baseline_configuration(
    problem: Problem, decision: Decision | None, results: Sequence[TrialResult], *, trials: Names = _NO_NAMES
) -> Configuration:
    """What ran when the search began, at its replicas, with what is known of it so far."""
    result = _baseline_result(problem, decision, results)
    today = None if decision is None else decision.today
    known = _Known(_compared(problem, results) if decision is None else decision.answers, trials)
    if today is not None and today.candidate == problem.baseline and today.result == result:
        return _chosen(problem, today, known)
    return _configuration(problem, problem.baseline, problem.replicas_today, result, known)


def nearest_of(problem: Problem, decision: Decision, *, trials: Names = _NO_NAMES) -> Configuration | None:
    """What came closest, at the replicas that it was tried for; None when something passed, or nothing was measured."""
    nearest = decision.nearest
    if nearest is None or decision.choice is not None:
        return None
    replicas = replicas_at(problem, nearest.trial.rate)
    return _configuration(problem, nearest.trial.candidate, replicas, nearest, _Known(decision.answers, trials))


def binding_of(problem: Problem, decision: Decision, results: Sequence[TrialResult]) -> Explanation | None:
    """What stands in the way, with what it would take; None when there is an answer, or nothing is known to bind."""
    if decision.choice is not None or decision.kind is DecisionKind.INVALID:
        return None
    bound = decision
    if bound.binding_constraint is None:
        bound = with_binding(problem, belonging(problem, results), decision)
    if bound.binding_constraint is None:
        return None
    return Explanation(
        code=values.word(bound.binding_constraint),
        message=values.sentence(said_in_public(bound.binding_reason or ""), 1024),
        finding=bound.binding_finding,
    )


def rejected_of(problem: Problem, decision: Decision) -> tuple[Rejected, ...]:
    """Why the others are not the answer: counted by code, the most frequent first, each with one example in words."""
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    for group in reason_groups(problem, decision):
        if not group.rows:
            continue
        code, first = values.word(group.code), group.rows[0]
        counts[code] = counts.get(code, 0) + len(group.rows)
        example = f"{group.title}. For example {first.label}: {said_in_public(first.reason)}"
        examples.setdefault(code, values.line(example, _LONGEST_EXAMPLE))
    every = sorted(counts, key=lambda code: (-counts[code], code))
    kept = every if len(every) <= _MOST_REJECTED else every[: _MOST_REJECTED - 1]
    told = [Rejected(code=code, count=counts[code], message=examples[code]) for code in kept]
    if len(kept) < len(every):
        rest = sum(counts[code] for code in every[len(kept) :])
        told.append(Rejected(code="Others", count=rest, message=f"{len(every) - len(kept)} other reasons"))
    return tuple(told)


def saving_percent(problem: Problem, decision: Decision) -> float | None:
    """Saved against today's cost, in percent, negative when keeping the promise costs more.

    None without an answer, or when the two costs are not in one currency.
    """
    choice, today = decision.choice, today_of(problem, decision)
    if (
        choice is None
        or not today.cost
        or currency_of(problem, choice.candidate) != currency_of(problem, today.candidate)
    ):
        return None
    return float(100 * (today.cost - choice.monthly_cost) / today.cost)


def belonging(problem: Problem, results: Sequence[TrialResult]) -> list[TrialResult]:
    """Results that can say anything here: the spec may have lost a GPU class or a model since they were measured."""
    return [
        result
        for result in results
        if result.trial.candidate.gpu_class in problem.hardware and result.trial.candidate.variant in problem.models
    ]


def _chosen(problem: Problem, choice: Choice, known: _Known) -> Configuration:
    plain = _configuration(problem, choice.candidate, choice.replicas, choice.result, known)
    return plain.model_copy(
        update={
            "monthly_cost": values.money(choice.monthly_cost),
            "cost_per_million_output_tokens": values.money(choice.cost_per_million_output_tokens),
            "headroom": values.figure(choice.headroom),
        }
    )


def _configuration(
    problem: Problem,
    candidate: Candidate,
    replicas: int | None,
    result: TrialResult | None,
    known: _Known,
) -> Configuration:
    cost: Decimal | None = cost_of(problem, candidate, replicas)
    public = replace(candidate, extra_args=without_secrets(candidate.extra_args))
    return Configuration(
        candidate_hash=candidate_hash(candidate),
        candidate=settings_of(public),
        gpu_class=candidate.gpu_class,
        replicas=None if replicas is None else min(replicas, 1_000_000),
        monthly_cost=values.money(cost),
        currency=values.line(currency_of(problem, candidate), _CURRENCY_LETTERS),
        measured=None if result is None else measured_of(result),
        quality=_quality(problem, candidate, known.compared),
        trial=None if result is None else known.trials.get(problem.key(result.trial)),
    )


def _compared(problem: Problem, results: Sequence[TrialResult]) -> tuple[PairFinding, ...]:
    """What is known of answers while the search goes on."""
    formed = judged(problem, belonging(problem, results))
    return compared_pairs(problem, Answers.from_results(problem, formed))


def _quality(problem: Problem, candidate: Candidate, compared: Sequence[PairFinding]) -> QualityResult | None:
    """How the candidate's answers compare with the reference's; None where nobody asks."""
    if problem.quality is None:
        return None
    preset = cast("Any", problem.quality.limits.name)
    finding = next((one for one in compared if one.pair == pair_of(candidate)), None)
    if finding is None:
        return QualityResult(preset=preset)
    measured = finding.divergence
    held = {"QualityKept": True, QUALITY_TOO_LOW: False}.get(finding.code)
    if finding.is_reference:
        held = True  # its answers are what all others are compared with
    if measured is None:
        return QualityResult(preset=preset, held=held)
    return QualityResult(
        preset=preset,
        held=held,
        mean_kld=values.figure(measured.mean_kld),
        mean_kld_upper=values.figure(measured.kld_upper),
        top1_percent=values.figure(100 * measured.top1),
        top1_percent_lower=values.figure(100 * measured.top1_lower),
    )


def _baseline_result(problem: Problem, decision: Decision | None, results: Sequence[TrialResult]) -> TrialResult | None:
    """The trial that speaks for today's load, else the last one of it; None when there is none."""
    if decision is not None:
        return today_of(problem, decision).result
    standing = Knowledge.from_results(problem, belonging(problem, results)).standing(problem.baseline)
    owed = problem.demand.peak_rate / problem.replicas_today
    if standing.passes(owed):
        return standing.passed
    if standing.is_refused(owed):
        return standing.refused
    return standing.results[-1] if standing.results else None


def _step(step: Step) -> ChangeStep:
    return ChangeStep(
        name=step.name,
        changed=tuple(_api_name(name) for name in step.changed[:_MOST_CHANGES]),
        replicas=step.replicas if step.kept else None,
        monthly_cost=values.money(step.monthly_cost) if step.kept else None,
    )


def _api_name(own: str) -> str:
    return str(CandidateSettings.model_fields[SETTING_NAMES[own]].alias)
