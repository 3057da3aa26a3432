"""May this pair of weights and KV cache be tried at all? A gate on how far its answers lie from the reference's.

The bounds decide, never the means: Pass when even the unlucky ends of both intervals keep the limits, Fail when even
the lucky end of one breaks its limit, else Inconclusive with what it would take. The limits only mean something well
above the noise: a reference that differs from itself by more than a third of a limit makes every verdict Invalid.

It gates and does not rank. Divergence tells usable quantizations from broken ones over wide ranges, but among those
near the reference it does not say which will do better at a task (arXiv 2606.19558), so nothing prefers the one of two
passing pairs whose numbers look better.
"""

from __future__ import annotations

import math

from scipy import special

from slotune.quality.bounds import unseen_share
from slotune.quality.divergence import Divergence
from slotune.quality.limits import Limits
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["FLOOR_FACTOR", "NOT_A_RANKING", "judge_damaged", "judge_floor", "judge_quality"]

FLOOR_FACTOR = 3.0
"""A limit below this many times the noise floor can't be told from noise."""

NOT_A_RANKING = (
    "The quality gate says which weights and KV caches may be used, not which of them is better: small differences in "
    "divergence do not predict how well a model does its task."
)
"""For reports, beside any table of divergences."""

_ROUNDING = 1e-9
"""What a limit may lie below the noise by, so that the one that was advised is accepted."""

_MOST_POSITIONS = 3_000
"""In all. A recorded reference has to fit into 1 MB, which holds somewhat more than that."""


def judge_quality(measured: Divergence, floor: Divergence, limits: Limits) -> Verdict:
    """Judge a candidate's pair against the limits.

    Args:
        measured: The candidate compared with the reference.
        floor: The reference compared with itself after a restart.
        limits: What is owed.

    Raises:
        ValueError: the two were measured against different references.
    """
    if measured.reference_digest != floor.reference_digest:
        raise ValueError(
            f"measured against reference {measured.reference_digest[:12]}, the noise floor against "
            f"{floor.reference_digest[:12]}: measure both against the same"
        )
    noise = judge_floor(floor, limits)
    if noise.outcome is Outcome.INVALID:
        return noise
    found = _found(measured, limits)
    if measured.kld_upper <= limits.mean_kld_max and measured.top1_lower >= limits.top1_min:
        rare = 100 * unseen_share(measured.prompts, measured.confidence)
        reason = (
            f"{found}; a kind of prompt that makes up less than {rare:.2g} % of the traffic may be missing among them, "
            "and be answered otherwise; it may be tried, which does not rank it among others that may"
        )
        return _verdict(Outcome.PASS, "QualityKept", reason, measured)
    if broken := _broken(measured, limits):
        return _verdict(Outcome.FAIL, "QualityTooLow", f"{found}: {' and '.join(broken)}", measured)
    return _verdict(Outcome.INCONCLUSIVE, "QualityUndecided", f"{found}; {_what_it_takes(measured, limits)}", measured)


def judge_floor(floor: Divergence, limits: Limits) -> Verdict:
    """Judge the reference compared with itself: Pass, or Invalid where a limit lies below three times the noise."""
    noise, least = floor.mean_kld, FLOOR_FACTOR * floor.mean_kld
    if limits.mean_kld_max < least - _ROUNDING:
        return _verdict(
            Outcome.INVALID,
            "NoiseFloorTooHigh",
            f"the limit of {limits.mean_kld_max:g} nats ({limits.name}) is below {FLOOR_FACTOR:g} times {noise:.2g}, "
            f"by which the reference differs from itself after a restart: set meanKLD to {_up(least):g} or more, or "
            "find out why its answers change (another GPU, batches of other shapes)",
            floor,
        )
    changed = 1 - floor.top1
    if 1 - limits.top1_min < FLOOR_FACTOR * changed - _ROUNDING:
        lowest = max(0.0, 1 - FLOOR_FACTOR * changed)
        return _verdict(
            Outcome.INVALID,
            "NoiseFloorTooHigh",
            f"the limit of {limits.top1_min:.4g} on top-1 agreement ({limits.name}) allows less than {FLOOR_FACTOR:g} "
            f"times the {100 * changed:.2g} % of positions at which the reference disagrees with itself after a "
            f"restart: set top1Percent to {math.floor(1000 * lowest) / 10:g} or less, or find out why its answers "
            "change (another GPU, batches of other shapes)",
            floor,
        )
    return _verdict(
        Outcome.PASS,
        "NoiseFloorLow",
        f"the reference differs from itself by {noise:.2g} nats and at {100 * changed:.2g} % of {floor.positions} "
        f"positions after a restart, which is far enough below the limits of {limits.name}",
        floor,
    )


def judge_damaged(reason: str, limits: Limits, confidence: float) -> Verdict:
    """The verdict on a candidate whose probabilities are none (``quality.errors.DamagedAnswerError``)."""
    return Verdict(Outcome.FAIL, f"{reason}; {limits.name} is owed", "QualityTooLow", confidence)


def _verdict(outcome: Outcome, code: str, reason: str, measured: Divergence) -> Verdict:
    return Verdict(outcome, reason, code, measured.confidence)


def _found(measured: Divergence, limits: Limits) -> str:
    return (
        f"mean divergence {measured.mean_kld:.4g} nats (at most {measured.kld_upper:.4g} at "
        f"{100 * measured.confidence:g} % confidence, {limits.name} allows {limits.mean_kld_max:g}) and top-1 "
        f"agreement {100 * measured.top1:.1f} % (at least {100 * measured.top1_lower:.1f} %, {limits.name} asks "
        f"{100 * limits.top1_min:g} %) over {measured.positions} positions of {measured.prompts} prompts"
    )


def _broken(measured: Divergence, limits: Limits) -> list[str]:
    broken = []
    if measured.kld_lower > limits.mean_kld_max:
        broken.append(f"the divergence is surely above the limit (at least {measured.kld_lower:.4g})")
    if measured.top1_upper < limits.top1_min:
        broken.append(f"the agreement is surely below the limit (at most {100 * measured.top1_upper:.1f} %)")
    return broken


def _what_it_takes(measured: Divergence, limits: Limits) -> str:
    """How many positions would decide, if more of them looked like these: bounds narrow with the root of their number.

    To pass, both limits must be decided; to fail, one that is broken is enough.
    """
    needs = {"divergence": _for_divergence(measured, limits), "agreement": _for_agreement(measured, limits)}
    broken = {
        "divergence": measured.mean_kld > limits.mean_kld_max,
        "agreement": measured.top1 < limits.top1_min,
    }
    fails = any(broken.values())
    factor = min(needs[name] for name in needs if broken[name]) if fails else max(needs.values())
    more = measured.positions * (factor - 1)
    if measured.positions + more > _MOST_POSITIONS:
        return "it lies so near to a limit that no number of positions that can be recorded would decide"
    return (
        f"about {max(1, math.ceil(more)):,} more positions would show whether it {'breaks' if fails else 'keeps'} the "
        f"limits: set measurement.qualityPrompts to {math.ceil(measured.prompts * factor)}, of a workload that has as "
        "many prompts"
    )


def _for_divergence(measured: Divergence, limits: Limits) -> float:
    apart = measured.mean_kld - limits.mean_kld_max
    if apart == 0:
        return math.inf
    bound = measured.kld_lower if apart > 0 else measured.kld_upper
    return max(1.0, ((measured.mean_kld - bound) / apart) ** 2)


def _for_agreement(measured: Divergence, limits: Limits) -> float:
    """From Wilson's bound solved for the sample size: n = z²·p·(1 - p) / (share - p)², p the limit."""
    apart = measured.top1 - limits.top1_min
    if apart == 0:
        return math.inf
    error = 1 - measured.confidence
    confidence = 1 - error if apart > 0 else 1 - error / 2
    scale = limits.top1_min * (1 - limits.top1_min) / apart**2 / measured.effective_positions
    factor = scale * float(special.ndtri(confidence)) ** 2
    for _ in range(4):  # the quantile is that of t, whose degrees of freedom are the prompts that come out of it
        factor = scale * float(special.stdtrit(max(1.0, measured.prompts * factor - 1), confidence)) ** 2
    return max(1.0, factor)


def _up(number: float) -> float:
    """Rounded up to two digits, so that what is advised is really enough."""
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return math.ceil(number / step - 1e-9) * step
