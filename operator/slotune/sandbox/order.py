"""In which order the runs of a trial come: by lot, so that no seed is always the one that a cold machine gets.

All candidates share their seeds, which makes them comparable; were they also measured in one order, a machine that
slows down during each trial would make the last seed look hard for all of them. The lot is drawn from the trial's own
key: the same trial, measured again by somebody else, has the same order, and its second attempt has another one.
"""

from __future__ import annotations

import random

__all__ = ["run_order"]


def run_order(look: int, runs: int, lot: str) -> tuple[int, ...]:
    """Numbers of the runs of one look (from 1) at the data, in the order in which they are measured.

    Look k has the runs from (k - 1) x ``runs`` on: an extension only ever adds seeds. An empty ``lot`` keeps the order.
    """
    numbers = list(range((look - 1) * runs, look * runs))
    if lot:
        random.Random(f"{lot}/{look}").shuffle(numbers)  # noqa: S311 - a lot, no secret
    return tuple(numbers)
