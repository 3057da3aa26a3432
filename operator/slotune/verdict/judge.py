"""Runs in, verdict out. What is claimed was shown; what was not shown is called Inconclusive.

The order of the rules, first match wins:

1. Invalid: a validity gate was missed, so the numbers describe the measurement. No Fail outranks it, however clear:
   a client that was late makes requests late on any server, and tokens that somebody else was served make it slow.
   Overload of the server itself never misses a gate (``slotune.load.gates``), so no bad candidate hides here.
2. Fail: so many violations would be a rare accident (1 - confidence) if the promise were just kept.
3. Pass: all planned requests were sent, and both the binomial bound on effective requests and the t bound over
   two or more runs lie within the promise. One bound alone passes too often: the first is blind to how runs differ,
   the second to anything when few runs happen to agree.
4. Inconclusive: everything else. A trial that was stopped because a pass had become impossible is not yet a Fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from slotune.load.demand import Demand
from slotune.load.records import RunResult
from slotune.verdict import wording
from slotune.verdict.binomial import fewest_requests, pass_limit
from slotune.verdict.curtailment import look_confidence
from slotune.verdict.evidence import Evidence, gather
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["judge"]


def judge(
    runs: Sequence[RunResult],
    promise: Promise,
    *,
    confidence: float,
    planned_requests: int,
    looks: int = 1,
    demand: Demand | None = None,
) -> Verdict:
    """The verdict on all runs of a trial so far.

    ``planned_requests`` are the measured requests that this look at the data wants (all runs so far; twice as many
    after one extension). ``looks`` is how often the trial may be looked at, 1 plus its extensions: they share
    ``confidence``, the chance that a broken promise is never passed and a kept one never failed. ``demand`` is what
    the runs sent; with it a pass need not wait until the luck of their crowds has averaged out
    (:mod:`slotune.verdict.crowds`). A Fail rests on what was counted alone.
    """
    per_look = look_confidence(confidence, looks)
    evidence = gather(runs, promise, per_look, demand)
    share = evidence.share
    stopped = any(run.stopped_early for run in runs)
    gates = [gate for run in runs for gate in run.invalid_reasons]
    limit = pass_limit(planned_requests, promise.violation_share, per_look)
    if gates:
        outcome, code, reason = Outcome.INVALID, gates[0][0], wording.missed_gates(gates, len(runs))
    elif not share.requests:
        outcome, code, reason = Outcome.INVALID, "NothingSent", "no request was sent in the measured window"
    elif share.excess_p_value <= 1 - per_look:
        outcome, code = Outcome.FAIL, "TooManyViolations"
        reason = wording.broken(share, evidence.kinds, promise, planned=planned_requests, limit=limit, stopped=stopped)
    elif not stopped and (fewest := _fewest_if_short(evidence, promise, per_look, planned_requests, len(runs))):
        outcome, code = Outcome.INCONCLUSIVE, "TooFewRequests"
        reason = wording.too_few(share, evidence.kinds, runs=len(runs), planned=planned_requests, fewest=fewest)
    elif not stopped and share.shows_kept(promise.violation_share):
        outcome, code = Outcome.PASS, "PromiseKept"
        reason = wording.kept(share, evidence.kinds, promise, per_look)
    else:
        outcome, code = Outcome.INCONCLUSIVE, "NeitherShown"
        reason = wording.neither_shown(share, evidence.kinds, promise, per_look, limit=limit, stopped=stopped)
    return _verdict(outcome, code, reason, confidence, evidence)


def _fewest_if_short(evidence: Evidence, promise: Promise, confidence: float, planned: int, runs: int) -> int | None:
    """Requests that any pass needs, when this trial could not have passed whatever it had seen; else None."""
    fewest = fewest_requests(promise.violation_share, confidence)
    return fewest if evidence.share.requests < max(planned, fewest) or runs < 2 else None


def _verdict(outcome: Outcome, code: str, reason: str, confidence: float, evidence: Evidence) -> Verdict:
    share = evidence.share
    return Verdict(
        outcome=outcome,
        reason=reason,
        code=code,
        confidence=confidence,
        requests=share.requests,
        violations=share.violations,
        effective_requests=share.effective_requests if share.requests else None,
        share_upper=share.share_upper if share.requests else None,
        run_share_upper=share.run_share_upper,
        ttft_p95_s=evidence.ttft_p95_s,
        ttft_p95_upper_s=evidence.ttft_p95_upper_s,
        tokens_per_second_p5=evidence.tokens_per_second_p5,
    )
