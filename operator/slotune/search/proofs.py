"""What was proved, and what was not, in sentences: how sure an answer is, of the promise and of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from slotune.search.answers import Answers, PairState
from slotune.search.decision import Choice, PairFinding, Rejection
from slotune.search.drift import MACHINE_DRIFTED, Watch, crept
from slotune.search.evidence import Evidence
from slotune.search.finalists import duel_of
from slotune.search.knowledge import ATTEMPTS
from slotune.search.pairs import gated_pairs, pair_of, reference_pair
from slotune.search.problem import Problem
from slotune.search.rates import must_hold_half
from slotune.verdict.verdicts import Outcome

__all__ = ["PRODUCTION_CONFIDENCE", "compared_pairs", "not_proved", "proved"]

PRODUCTION_CONFIDENCE = 0.95
"""What a production decision deserves; anything less is said in the answer."""


def compared_pairs(problem: Problem, answers: Answers) -> tuple[PairFinding, ...]:
    """What was found out about the answers of each pair; nothing where nobody looked."""
    if not gated_pairs(problem):
        return ()
    return tuple(
        PairFinding(
            pair,
            standing.state.value,
            standing.code,
            standing.reason,
            None if standing.result is None else standing.result.quality,
            is_reference=pair == reference_pair(problem),
            is_todays=pair == pair_of(problem.baseline),
        )
        for pair, standing in answers.pairs.items()
    )


def proved(evidence: Evidence, choice: Choice, gap: Decimal | None, rejected: Sequence[Rejection]) -> tuple[str, ...]:
    verdict = choice.result.verdict
    sure = f"{100 * verdict.confidence:.3g} % sure"
    promise = (
        f"the promise holds at {choice.result.trial.rate:.3g} requests/s a server, {sure}: "
        f"{verdict.violations} of {verdict.requests} requests broke it on a fresh start with fresh seeds, "
        f"{100 * evidence.problem.promise.violation_share:.3g} % may"
    )
    said = [promise]
    if must_hold_half(choice.candidate, evidence.problem.baseline) and evidence.holds_half(choice.candidate):
        said.append(
            "it holds at half of that rate as well, where guessed tokens, another layout of the KV cache or sampling "
            "on the GPU could cost more"
        )
    said.extend(_guesses(choice))
    pair = evidence.knowledge.answers.of(choice.candidate)
    if pair.state is PairState.PASSED and evidence.problem.quality is not None:
        said.append(f"its answers keep {evidence.problem.quality.limits.name}: {pair.reason}")
    said.extend(_compared(evidence, choice))
    if gap == 0:
        said.append(f"nothing among {len(rejected) + 1} candidates can be cheaper")
    return tuple(said)


def _guesses(choice: Choice) -> Iterator[str]:
    """What speculation did. The model checks each guess, so answers are what they would have been without."""
    shape = choice.result.latencies
    if choice.candidate.speculation != "none" and shape.acceptance is not None:
        yield (
            f"{100 * shape.acceptance:.3g} % of {shape.drafted_tokens:,} tokens that {choice.candidate.speculation} "
            "guessed were right; a wrong one costs time and changes no answer"
        )


def _guesses_not_proved(problem: Problem, choice: Choice) -> Iterator[str]:
    if choice.candidate.speculation != "none":
        if choice.result.latencies.acceptance is None:
            yield f"{choice.candidate.speculation} guessed nothing while it was measured, so the answer owes it nothing"
        elif problem.demand.synthetic is not None:
            yield (
                "how many guessed tokens are right was measured on random tokens, since the workload has no prompts of "
                "users: with theirs, speculation may do more or less"
            )
    if choice.candidate.backend_sampling and not problem.baseline.backend_sampling:
        yield (
            "sampling where the model runs is experimental in llama.cpp: probabilities are the same, the random "
            "numbers are others, and answers with a grammar are sampled on the CPU as before"
        )


def _compared(evidence: Evidence, choice: Choice) -> Iterator[str]:
    """How the answer stood against the one that keeps the promise at the same cost, where they were compared."""
    duel = duel_of(evidence, evidence.options[0]) if evidence.options else None
    margins = None if duel is None else duel.margins(evidence.problem.promise)
    if duel is None or margins is None or choice.candidate != duel.favourite(evidence.problem):
        return
    own, other = margins if choice.candidate == duel.first else margins[::-1]
    numbers = f"{own:.2f} times what is owed against {other:.2f}, measured in turns"
    if duel.is_tie(evidence.problem):
        yield (
            f"of two that do it at this cost neither was shown to have more room ({numbers}), so it is the one with "
            "fewer changes"
        )
    else:
        sure = f"{100 * evidence.problem.measurement.confidence:.3g} % sure"
        yield f"of two that do it at this cost it has more room, {sure}: {numbers}"


def not_proved(
    evidence: Evidence, choice: Choice | None, gap: Decimal | None, rejected: Sequence[Rejection]
) -> tuple[str, ...]:
    problem = evidence.problem
    sentences = []
    undecided = sum(r.undecided for r in rejected)
    currency = "" if choice is None else problem.hardware[choice.candidate.gpu_class].currency
    if choice is None and undecided:
        sentences.append(f"{undecided} {'candidate was' if undecided == 1 else 'candidates were'} not decided")
    if gap:
        who = "1 candidate" if undecided == 1 else f"{undecided} candidates"
        sentences.append(f"what is undecided ({who}, or fewer replicas) might save {gap:,.2f} {currency} a month")
    sentences.extend(_moved_machine(evidence))
    if choice is not None and choice.result.trial.seed_block == 0:
        sentences.append("the answer was measured once and not confirmed on a fresh start")
    if choice is not None:
        sentences.extend(_guesses_not_proved(problem, choice))
    sentences.extend(_answers_not_proved(evidence, choice))
    if problem.measurement.confidence < PRODUCTION_CONFIDENCE:
        sentences.append(
            f"confidence was lowered to {100 * problem.measurement.confidence:.3g} % for this run: "
            f"a production decision deserves {100 * PRODUCTION_CONFIDENCE:.3g} %"
        )
    return tuple(sentences)


def _moved_machine(evidence: Evidence) -> Iterator[str]:
    """What a machine that did not hold still cost, or may have hidden; and where nobody looked."""
    unwatched, total = _unwatched(evidence)
    if unwatched and evidence.problem.measurement.sentinel_every:
        yield (
            "whether the machine kept its speed could not be looked at again for "
            f"{unwatched} of {total} {'measurement' if total == 1 else 'measurements'}"
        )
    drifted = [result for result in evidence.results if result.verdict.code == MACHINE_DRIFTED]
    given_up = sum(result.trial.attempt >= ATTEMPTS for result in drifted)
    if given_up:
        measured = "1 measurement was" if given_up == 1 else f"{given_up} measurements were"
        yield (
            f"{measured} given up because the machine changed a second time meanwhile: measure where nothing else "
            "runs, and where it stays cool"
        )
    moved = crept(evidence.problem, evidence.results)
    if moved is not None and not drifted and moved.size > evidence.problem.measurement.drift_limit:
        yield f"the machine crept while it was measured: {moved} from the first look at {moved.server} to the last"


def _unwatched(evidence: Evidence) -> tuple[int, int]:
    """(how many measurements under load have no look at their machine before and after them, how many there are).

    What never came up was not measured, and what is Invalid counts for nothing either way.
    """
    looked_at = Watch.from_results(evidence.problem, evidence.results).looked_at
    measured = [
        index
        for index, result in enumerate(evidence.results)
        if result.trial.purpose.puts_load
        and result.verdict.outcome is not Outcome.INVALID
        and not result.never_ran
        and result.probe is not None
    ]
    return sum(index not in looked_at for index in measured), len(measured)


def _answers_not_proved(evidence: Evidence, choice: Choice | None) -> Iterator[str]:
    """What is not known of answers, though somebody asked."""
    asked = evidence.problem.quality
    if asked is None:
        return
    undecided = [
        pair
        for pair in compared_pairs(evidence.problem, evidence.knowledge.answers)
        if pair.state == PairState.UNDECIDED
    ]
    reasons: dict[str, list[str]] = {}
    for pair in undecided:
        reasons.setdefault(pair.reason, []).append(pair.pair.label)
    for reason, labels in reasons.items():
        yield f"whether {', '.join(labels)} keeps {asked.limits.name} is not decided: {reason}"
    if choice is None:
        return
    own = evidence.knowledge.answers.of(choice.candidate)
    if own.state is PairState.PASSED and evidence.problem.demand.synthetic is not None:
        yield (
            "answers were compared on random tokens, since the workload has no prompts of users: what they lose may "
            "differ"
        )
    if pair_of(choice.candidate) == reference_pair(evidence.problem) or own.state is PairState.PASSED:
        return
    why = "is not known" if own.state is PairState.UNDECIDED else f"against {asked.reference} was not measured"
    yield (
        f"quality {asked.limits.name} {why}: the answer has the weights and the KV cache of what runs today, so it "
        "answers as that does"
    )
