"""Verdicts in plain words with numbers. Decides nothing."""

from __future__ import annotations

from collections import Counter

from slotune.verdict.evidence import ShareEvidence
from slotune.verdict.promise import Promise
from slotune.verdict.violations import Violation

__all__ = ["broken", "kept", "missed_gates", "neither_shown", "too_few"]


def kept(share: ShareEvidence, kinds: Counter[Violation], promise: Promise, confidence: float) -> str:
    """Why it is a Pass."""
    bound = max(share.share_upper, share.run_share_upper or 0.0)
    return (
        f"{_counted(share, kinds)}{_averaged(share)}; at {_percent(confidence)} confidence at most {_percent(bound)} "
        f"of all miss the promise, {_percent(promise.violation_share)} may"
    )


def broken(
    share: ShareEvidence, kinds: Counter[Violation], promise: Promise, *, planned: int, limit: int, stopped: bool
) -> str:
    """Why it is a Fail."""
    sentence = f"{_counted(share, kinds, first=stopped)}; "
    if limit < 0:
        return f"{sentence}{_percent(promise.violation_share)} may"
    return f"{sentence}a pass allows {limit:,} of {planned:,}"


def neither_shown(
    share: ShareEvidence, kinds: Counter[Violation], promise: Promise, confidence: float, *, limit: int, stopped: bool
) -> str:
    """Why it is neither: the promised share lies between the bounds."""
    upper = max(share.share_upper, share.run_share_upper or 0.0)
    clusters = ""
    if share.average_crowd_share is None and share.effective_requests < 0.8 * share.requests:
        clusters = (
            f". They came in clusters, so the requests tell as much as {share.effective_requests:,.0f} would apart"
        )
    ending = ""
    if stopped:
        ending = "; a pass is out of reach" if share.violations > limit else "; it was stopped before its end"
    return (
        f"{_counted(share, kinds, first=stopped)}{_averaged(share)}; at {_percent(confidence)} confidence between "
        f"{_percent(share.share_lower)} and {_percent(upper)} of all miss the promise, "
        f"{_percent(promise.violation_share)} may: "
        f"neither kept nor broken is shown{ending}{clusters}"
    )


def too_few(share: ShareEvidence, kinds: Counter[Violation], *, runs: int, planned: int, fewest: int) -> str:
    """Why no pass could be shown whatever was seen."""
    sentence = _counted(share, kinds)
    if planned < fewest:
        return f"{sentence}, but {planned:,} requests can never show a pass: plan at least {fewest:,}"
    if share.requests < planned:
        return f"{sentence}, but a pass needs all {planned:,}"
    return f"{sentence}, but a pass needs at least 2 runs to see how runs differ, and there was {runs}"


def missed_gates(gates: list[tuple[str, str]], runs: int) -> str:
    """Why the measurement is at fault."""
    code, sentence = gates[0]
    hit = sum(1 for other, _ in gates if other == code)
    others = sorted({other for other, _ in gates} - {code})
    suffix = f" (in {hit} of {runs} runs)" if runs > 1 else ""
    return f"{sentence.rstrip('.')}{suffix}" + (f"; also {', '.join(others)}" if others else "")


def _counted(share: ShareEvidence, kinds: Counter[Violation], *, first: bool = False) -> str:
    """``5 of the first 12 requests were late``; ``6 of 200 requests broke the promise (4 late, 2 failed)``."""
    total = f"the first {share.requests:,}" if first else f"{share.requests:,}"
    if not kinds:
        return f"none of {total} requests broke the promise"
    if len(kinds) == 1:
        [(kind, count)] = kinds.items()
        return f"{count:,} of {total} requests {'was' if count == 1 else 'were'} {kind.words}".replace(
            "were failed", "failed"
        ).replace("was failed", "failed")
    parts = ", ".join(f"{count:,} {kind.words}" for kind, count in kinds.most_common())
    return f"{share.violations:,} of {total} requests broke the promise ({parts})"


def _averaged(share: ShareEvidence) -> str:
    """How lucky the crowd was, where that was taken into account."""
    if share.average_crowd_share is None:
        return ""
    return f" ({_percent(share.average_crowd_share)} if they came as they do on average)"


def _percent(share: float) -> str:
    """``5 %``, ``2.4 %``: one decimal unless it is zero."""
    text = f"{100 * share:.1f}".removesuffix(".0")
    return f"{text} %"
