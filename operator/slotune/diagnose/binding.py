"""Why nothing can keep the promise, and what it would take.

An infeasible answer is worth as much as a feasible one when it names the constraint that binds and by how much. The
constraints are tried from the hardest to the softest: nothing fits or starts; one prompt alone is too slow; one user
alone is too slow; and only then the load, in the words of the trial that came closest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from slotune.diagnose.checkup import FAILING
from slotune.diagnose.durations import seconds
from slotune.diagnose.entry import Entry
from slotune.diagnose.failed_trials import entry_of
from slotune.diagnose.findings import trial_findings
from slotune.diagnose.rules.batch import PROMPT_ALONE_TOO_SLOW
from slotune.diagnose.rules.load import ONE_USER_TOO_SLOW
from slotune.load.summary import IdleProbe
from slotune.search.conclude import nearest_miss
from slotune.search.decision import Decision, DecisionKind
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["Binding", "binding_constraint", "with_binding"]


class Binding(NamedTuple):
    """What stands in the way of any answer."""

    code: str | None
    """CamelCase; None when nothing was measured or ruled out, so that nothing binds."""
    sentence: str | None
    """In words, with what it would take."""
    nearest: TrialResult | None
    """The trial that came closest; None when none got as far as a first token."""
    entry: Entry | None = None
    """Where the catalogue says more; None where it has no entry, as of configurations that were never started."""

    @property
    def cited(self) -> str | None:
        """The sentence, with the identifier under which the catalogue says more."""
        return self.sentence if self.entry is None or self.sentence is None else f"{self.sentence} ({self.entry.id})"


_LOSING: Final[Mapping[str, str]] = {"ContextTooSmall": "Context", "KVPoolFull": "Memory", "GPUMemoryFull": "Memory"}
"""Causes by which requests are lost, to what binds; a configuration that is ruled out for the same binds alike."""


class _Bind(NamedTuple):
    code: str
    sentence: str
    entry: Entry | None = None


def with_binding(problem: Problem, results: Sequence[TrialResult], decision: Decision) -> Decision:
    """``decision`` with what stands in the way, where there is no answer."""
    if decision.kind is DecisionKind.FOUND:
        return decision
    binding = binding_constraint(problem, results)
    return replace(
        decision,
        binding_constraint=binding.code,
        binding_reason=binding.cited,
        binding_finding=None if binding.entry is None else binding.entry.id,
        nearest=binding.nearest or decision.nearest,
    )


def binding_constraint(problem: Problem, results: Sequence[TrialResult]) -> Binding:
    """What makes a problem infeasible."""
    trials = [result for result in results if result.trial.purpose.puts_load]
    nearest = _nearest(problem, trials)
    checks: tuple[Callable[[Problem, Sequence[TrialResult], TrialResult | None], _Bind | None], ...] = (
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
            return Binding(bind.code, bind.sentence, nearest, bind.entry)
    return Binding(None, None, nearest)


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


def _nothing_to_start(problem: Problem, trials: Sequence[TrialResult], nearest: TrialResult | None) -> _Bind | None:
    return None if problem.candidates else _ruled_out(problem, trials, nearest)


def _ruled_out(problem: Problem, _: Sequence[TrialResult], __: TrialResult | None) -> _Bind | None:
    if not problem.pruned:
        return None
    [(code, count)] = Counter(pruned.code for pruned in problem.pruned).most_common(1)
    example = next(pruned.reason for pruned in problem.pruned if pruned.code == code)
    binding = {"DoesNotFit": "Memory", "ContextTooSmall": "Context"}.get(code, code)
    of_all = f" of {len(problem.pruned):,}" if count < len(problem.pruned) else ""
    return _Bind(binding, f"{count:,}{of_all} configurations {_because(code)}. {example}")


def _because(code: str) -> str:
    return {"DoesNotFit": "do not fit in memory", "ContextTooSmall": "have too little context"}.get(
        code, f"are ruled out ({code})"
    )


def _nothing_starts(problem: Problem, trials: Sequence[TrialResult], _: TrialResult | None) -> _Bind | None:
    if not trials or any(result.failure is None for result in trials):
        return None
    [(failure, count)] = Counter(result.failure for result in trials if result.failure).most_common(1)
    example = next(result for result in trials if result.failure is failure)
    code = "Memory" if failure.is_memory else failure.value
    return _Bind(
        code,
        f"no configuration could be measured: {count} of {len(trials)} tried ended in {failure.value}. "
        f"{example.verdict.reason}",
        entry_of(failure, example.failure_knob, example.verdict.reason),
    )


def _probes(trials: Sequence[TrialResult]) -> list[IdleProbe]:
    return [result.probe for result in trials if result.probe is not None]


def _prompt_alone(problem: Problem, trials: Sequence[TrialResult], _: TrialResult | None) -> _Bind | None:
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
        return _Bind(
            "TTFTOverhead", f"an idle server answers after {seconds(best.overhead_s)}, you owe {seconds(owed)}"
        )
    return _Bind(
        "TTFTPrefill",
        f"{start}. It would take prompts of at most {_rounded(left * best.prefill_tokens_per_s, down=True)} uncached "
        f"tokens, or a GPU that reads {_rounded(tokens / left)} tokens/s",
        PROMPT_ALONE_TOO_SLOW,
    )


def _one_user_alone(problem: Problem, trials: Sequence[TrialResult], _: TrialResult | None) -> _Bind | None:
    owed = problem.promise.tokens_per_second_per_user
    steps = [probe.decode_step_s for probe in _probes(trials) if probe.decode_step_s > 0]
    if owed is None or not steps or 1 / min(steps) >= owed:
        return None
    best = min(steps)
    return _Bind(
        "TokensPerSecond",
        f"one user alone gets {1 / best:.1f} tokens/s here ({seconds(best)} a token), you owe {owed:g}. It would take "
        f"a model with at most {100 / (best * owed):.0f} % of the bytes, or a GPU with {best * owed:.1f} times the "
        "memory bandwidth",
        ONE_USER_TOO_SLOW,
    )


def _load(problem: Problem, trials: Sequence[TrialResult], nearest: TrialResult | None) -> _Bind | None:
    """Alone it would do: what the nearest trial says under load, at the most replicas allowed."""
    if nearest is None:
        return None
    most = problem.hardware[nearest.trial.candidate.gpu_class].replicas_max
    rate = nearest.trial.rate
    found = trial_findings(problem, nearest)
    cause = next((one for one in found if one.binds is not None or one.id in FAILING), None)
    code = _by_verdict(problem, nearest) if cause is None else cause.binds or _LOSING.get(cause.code, cause.code)
    why = nearest.verdict.reason if cause is None else cause.sentence
    share = max(1, round(problem.demand.peak_rate / rate))
    where = f"even on {most} replicas" if share >= most else f"on {share} of at most {most} replicas"
    crowded = sum(pruned.code == "DoesNotFit" for pruned in problem.pruned)
    memory = f". {crowded:,} roomier configurations do not fit in memory" if crowded and code == "TTFTQueue" else ""
    sentence = f"{where} ({rate:.3g} requests/s each) the nearest misses: {why}{memory}"
    return _Bind(code, sentence, None if cause is None else cause.entry)


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
