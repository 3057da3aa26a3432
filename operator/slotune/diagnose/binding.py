"""Why nothing can keep the promise, and what it would take.

An infeasible answer is worth as much as a feasible one when it names the constraint that binds and by how much. The
constraints are tried from the hardest to the softest: nothing fits or starts; one prompt alone is too slow; one user
alone is too slow; and only then the load, in the words of the trial that came closest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from slotune.diagnose.case import seconds
from slotune.diagnose.findings import Finding, findings
from slotune.load.summary import IdleProbe
from slotune.search.conclude import nearest_miss
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["binding_constraint"]

Bind = tuple[str, str]


def binding_constraint(
    problem: Problem, results: Sequence[TrialResult]
) -> tuple[str | None, str | None, TrialResult | None]:
    """(CamelCase code, sentence, nearest trial) of an infeasible problem.

    Code and sentence are None when nothing was measured or ruled out, so that nothing binds; the trial is None when
    none got as far as a first token.
    """
    trials = [result for result in results if result.trial.purpose.puts_load]
    nearest = _nearest(problem, trials)
    checks: tuple[Callable[[Problem, Sequence[TrialResult], TrialResult | None], Bind | None], ...] = (
        _nothing_to_start,
        _nothing_starts,
        _prompt_alone,
        _one_user_alone,
        _load,
        _ruled_out,
    )
    for check in checks:
        bind = check(problem, trials, nearest)
        if bind is not None:
            return (*bind, nearest)
    return None, None, nearest


def _nearest(problem: Problem, trials: Sequence[TrialResult]) -> TrialResult | None:
    """The least miss by p95 and speed; where no trial has a p95, the one with the smallest share of violations."""
    missed = [
        result
        for result in trials
        if result.failure is None
        and result.verdict.outcome in {Outcome.FAIL, Outcome.INCONCLUSIVE}
        and result.verdict.requests
    ]
    return nearest_miss(problem, missed) or min(
        missed, key=lambda result: result.verdict.violations / result.verdict.requests, default=None
    )


def _nothing_to_start(problem: Problem, trials: Sequence[TrialResult], nearest: TrialResult | None) -> Bind | None:
    return None if problem.candidates else _ruled_out(problem, trials, nearest)


def _ruled_out(problem: Problem, _: Sequence[TrialResult], __: TrialResult | None) -> Bind | None:
    if not problem.pruned:
        return None
    [(code, count)] = Counter(pruned.code for pruned in problem.pruned).most_common(1)
    example = next(pruned.reason for pruned in problem.pruned if pruned.code == code)
    binding = {"DoesNotFit": "Memory", "ContextTooSmall": "Context"}.get(code, code)
    of_all = f" of {len(problem.pruned):,}" if count < len(problem.pruned) else ""
    return binding, f"{count:,}{of_all} configurations {_because(code)}. {example}"


def _because(code: str) -> str:
    return {"DoesNotFit": "do not fit in memory", "ContextTooSmall": "have too little context"}.get(
        code, f"are ruled out ({code})"
    )


def _nothing_starts(problem: Problem, trials: Sequence[TrialResult], _: TrialResult | None) -> Bind | None:
    if not trials or any(result.failure is None for result in trials):
        return None
    [(failure, count)] = Counter(result.failure for result in trials if result.failure).most_common(1)
    example = next(result.verdict.reason for result in trials if result.failure is failure)
    code = "Memory" if failure.is_memory else failure.value
    return (
        code,
        f"no configuration could be measured: {count} of {len(trials)} tried ended in {failure.value}. {example}",
    )


def _probes(trials: Sequence[TrialResult]) -> list[IdleProbe]:
    return [result.probe for result in trials if result.probe is not None]


def _prompt_alone(problem: Problem, trials: Sequence[TrialResult], _: TrialResult | None) -> Bind | None:
    """The fastest prefill that was seen, on the prompt at p95 less all that any cache could save."""
    probes = _probes(trials)
    if not probes:
        return None
    demand, owed = problem.demand, problem.promise.ttft_s
    may_cache = any(candidate.cache_prompt for candidate in problem.candidates)
    reusable = demand.reusable_tokens if may_cache else 0.0
    tokens = max(1.0, max(demand.input_tokens_p95, demand.input_tokens_mean) - reusable)
    best = max(probes, key=lambda probe: probe.prefill_tokens_per_s)
    alone = tokens / best.prefill_tokens_per_s
    if alone + best.overhead_s <= owed:
        return None
    uncached = " uncached" if reusable else ""
    start = (
        f"a prompt of {tokens:,.0f}{uncached} tokens alone takes {seconds(alone)} to read here "
        f"({best.prefill_tokens_per_s:,.0f} tokens/s), you owe {seconds(owed)}"
    )
    left = owed - best.overhead_s
    if left <= 0:
        return "TTFTOverhead", f"an idle server answers after {seconds(best.overhead_s)}, you owe {seconds(owed)}"
    return "TTFTPrefill", (
        f"{start}. It would take prompts of at most {_rounded(left * best.prefill_tokens_per_s, down=True)} uncached "
        f"tokens, or a GPU that reads {_rounded(tokens / left)} tokens/s"
    )


def _one_user_alone(problem: Problem, trials: Sequence[TrialResult], _: TrialResult | None) -> Bind | None:
    owed = problem.promise.tokens_per_second_per_user
    steps = [probe.decode_step_s for probe in _probes(trials) if probe.decode_step_s > 0]
    if owed is None or not steps or 1 / min(steps) >= owed:
        return None
    best = min(steps)
    return "TokensPerSecond", (
        f"one user alone gets {1 / best:.1f} tokens/s here ({seconds(best)} a token), you owe {owed:g}. It would take "
        f"a model with at most {100 / (best * owed):.0f} % of the bytes, or a GPU with {best * owed:.1f} times the "
        "memory bandwidth"
    )


def _load(problem: Problem, trials: Sequence[TrialResult], nearest: TrialResult | None) -> Bind | None:
    """Alone it would do: what the nearest trial says under load, at the most replicas allowed."""
    if nearest is None:
        return None
    most = problem.hardware[nearest.trial.candidate.gpu_class].replicas_max
    rate = nearest.trial.rate
    causes = (one for one in _found(problem, nearest) if one.binds is not None)
    cause = next(causes, None)
    code = _by_verdict(problem, nearest) if cause is None or cause.binds is None else cause.binds
    why = nearest.verdict.reason if cause is None else cause.sentence
    share = max(1, round(problem.demand.peak_rate / rate))
    where = f"even on {most} replicas" if share >= most else f"on {share} of at most {most} replicas"
    crowded = sum(pruned.code == "DoesNotFit" for pruned in problem.pruned)
    memory = f". {crowded:,} roomier configurations do not fit in memory" if crowded and code == "TTFTQueue" else ""
    return code, f"{where} ({rate:.3g} requests/s each) the nearest misses: {why}{memory}"


def _found(problem: Problem, nearest: TrialResult) -> Sequence[Finding]:
    model = problem.models.get(nearest.trial.candidate.variant)
    return findings(nearest, problem.promise, problem.demand, model=model)


def _by_verdict(problem: Problem, nearest: TrialResult) -> str:
    owed, speed = problem.promise.tokens_per_second_per_user, nearest.verdict.tokens_per_second_p5
    return "TokensPerSecond" if owed is not None and speed is not None and speed < owed else "TTFTQueue"


def _rounded(value: float, *, down: bool = False) -> str:
    """Two significant digits, on the safe side: ``2,400``."""
    if value < 100:
        return f"{value:.0f}"
    unit = 10 ** (len(str(int(value))) - 2)
    steps = value / unit
    return f"{(int(steps) if down else -int(-steps // 1)) * unit:,}"
