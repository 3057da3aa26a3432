"""A plan: every candidate with what it takes at least, before anything runs."""

from __future__ import annotations

from slotune.report.plan import PlanRow
from slotune.search.bounds import RooflineBounds, replicas_at_least
from slotune.search.problem import Problem

__all__ = ["plan_rows"]


def plan_rows(problem: Problem) -> list[PlanRow]:
    """One row per candidate: those that may be tried, and those that never are, with the reason."""
    bounds = RooflineBounds(problem)
    rows = [
        PlanRow(pruned.candidate, problem.memory_bytes.get(pruned.candidate), None, pruned.reason, pruned.code)
        for pruned in problem.pruned
    ]
    for candidate in problem.candidates:
        memory = problem.memory_bytes.get(candidate)
        floor = bounds.floor(candidate)
        least = replicas_at_least(problem.demand.peak_rate, bounds.capacity_at_most(candidate))
        most = problem.hardware[candidate.gpu_class].replicas_max
        if floor is not None:
            rows.append(PlanRow(candidate, memory, None, floor.reason, floor.code))
        elif least > most:
            reason = f"needs at least {least} replicas, {most} are allowed"
            rows.append(PlanRow(candidate, memory, least, reason, "TooManyReplicas"))
        else:
            rows.append(PlanRow(candidate, memory, least))
    return rows
