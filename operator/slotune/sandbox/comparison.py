"""Looks at a server's answers instead of its speed: records the reference, or compares with it. One at a time, no rate.

Whoever runs the server (a child process, a pod) brings the reference and keeps the one that comes back; the verdict on
the numbers is the search's, since limits may change and numbers stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from slotune.llama.server_http import LlamaServer
from slotune.load.demand import Demand
from slotune.load.target import Target
from slotune.quality.errors import DamagedAnswerError, OtherModelError, QualityError
from slotune.quality.prompts import quality_prompts
from slotune.quality.reference import Reference
from slotune.quality.teacher import Listener, compare, record_reference
from slotune.sandbox.outcomes import invalid
from slotune.sandbox.protocol import Measured, Progress, ProgressListener
from slotune.search.problem import QualityQuestion
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.quality_gate import judge_damaged
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["AnswersQuestion", "look_at_answers"]

EVERY_S = 0.5
"""Seconds between two words about progress."""


@dataclass(frozen=True, slots=True)
class AnswersQuestion:
    """What is asked of a server's answers."""

    demand: Demand
    quality: QualityQuestion
    model: str = ""
    """Identity of the weights file, kept in the reference."""
    reference: Reference | None = None
    """What to compare with; None when it is recorded now."""


async def look_at_answers(
    server: LlamaServer,
    target: Target,
    base: TrialResult,
    question: AnswersQuestion,
    listener: ProgressListener,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Do what ``base.trial`` asks, a REFERENCE or a QUALITY one, of a running, idle server.

    Raises:
        ServerError: it does not answer.
        DemandError: the workload's lengths contradict each other.
    """
    heard = _heard(listener, clock)
    listener(Progress("comparing"))
    records = base.trial.purpose is Purpose.REFERENCE
    try:
        if records:
            return await _record(server, target, base, question, heard)
        return await _compare(target, base, question, heard)
    except DamagedAnswerError as error:
        return Measured(replace(base, verdict=_damaged(base, question.quality, error)))
    except OtherModelError as error:
        return Measured(_failed(base, "OtherModel", str(error)))
    except QualityError as error:
        # A reference that cannot be recorded cannot be the next time either.
        return Measured(
            _failed(base, "NoReference", str(error)) if records else invalid(base, "NotComparable", str(error))
        )


async def _compare(target: Target, base: TrialResult, question: AnswersQuestion, heard: Listener) -> Measured:
    if question.reference is None:
        return Measured(invalid(base, "ReferenceMissing", "the recorded reference is gone, so nothing was compared"))
    measured = await compare(target, question.reference, question.quality.settings, heard)
    verdict = Verdict(Outcome.PASS, "the answers were compared", "Compared", measured.confidence)
    return Measured(replace(base, verdict=verdict, quality=measured, reference=measured.reference_digest))


async def _record(
    server: LlamaServer, target: Target, base: TrialResult, question: AnswersQuestion, heard: Listener
) -> Measured:
    settings, candidate = question.quality.settings, base.trial.candidate
    vocabulary = (await server.model()).vocabulary
    prompts = quality_prompts(question.demand, settings, vocabulary)
    reference = await record_reference(
        target,
        prompts,
        settings,
        heard,
        model=question.model,
        cache_types=(candidate.cache_type_k, candidate.cache_type_v),
    )
    kept = len(reference.walks)
    fewer = f" ({len(prompts)} were asked for, the rest did not fit)" if kept < len(prompts) else ""
    words = f"{reference.positions:,} steps of {kept} prompts were recorded{fewer}"
    verdict = Verdict(Outcome.PASS, words, "ReferenceRecorded", base.trial.confidence)
    return Measured(replace(base, verdict=verdict, reference=reference.digest), reference=reference)


def _failed(base: TrialResult, code: str, sentence: str) -> TrialResult:
    return replace(base, verdict=Verdict(Outcome.FAIL, sentence, code, base.trial.confidence))


def _damaged(base: TrialResult, quality: QualityQuestion, error: DamagedAnswerError) -> Verdict:
    if base.trial.purpose is Purpose.REFERENCE:
        return Verdict(Outcome.FAIL, f"the reference itself is damaged: {error}", "NoReference", base.trial.confidence)
    return judge_damaged(str(error), quality.limits, base.trial.confidence)


def _heard(listener: ProgressListener, clock: Callable[[], float]) -> Listener:
    """Says now and then how far it is: a step takes milliseconds, and a terminal need not hear of each."""
    began = last = clock()

    def step(done: int, most: int) -> None:
        nonlocal last
        now = clock()
        if now - last >= EVERY_S or done >= most:
            last = now
            left = (now - began) / done * (most - done) if done else None
            listener(
                Progress(
                    "comparing",
                    requests_done=done,
                    requests_planned=most,
                    elapsed_s=now - began,
                    remaining_worst_s=left,
                )
            )

    return step
