"""Looks whether recorded answers are still what was recorded, right before a comparison gets its pod.

ConfigMaps are not watched, and this one is large: it is read once for each comparison, not at each look. A Secret is
read by the comparison's pod alone, so of that one is known afterwards.
"""

from __future__ import annotations

import asyncio

from slotune.controller.cluster import Cluster, NotFoundError
from slotune.controller.kinds import CONFIG_MAP
from slotune.controller.recordings import LostReference, lost_secret, place_of, what_is_wrong
from slotune.controller.world import Trials

__all__ = ["lost_reference"]


async def lost_reference(trials: Trials, namespace: str, cluster: Cluster) -> LostReference | None:
    """The recording that a comparison without a Job is to compare with, or had to, if it can't."""
    for flight in trials.flights:
        wanted = flight.trial.spec.reference
        if flight.job is not None or wanted is None or wanted.config_map is None:
            continue
        recorded = [trial for trial in trials.finished if place_of(trial).config_map == wanted.config_map]
        if not recorded:  # then the comparison is not asked for any more
            continue
        try:
            kept = await cluster.get(CONFIG_MAP, namespace, wanted.config_map)
        except NotFoundError:
            kept = None
        # Unpacking the largest takes a while, and other LlamaDeployments need not wait for it.
        if why := await asyncio.to_thread(what_is_wrong, kept, recorded[0], wanted.digest):
            return LostReference(recorded[0], why)
    return lost_secret(trials.finished)
