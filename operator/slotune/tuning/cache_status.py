"""What a trial found out about its prompt cache, to its status and back, both ways side by side."""

from __future__ import annotations

from slotune.api.v1alpha1.trial_status import TrialCache
from slotune.load.cache_facts import CacheFacts
from slotune.tuning import status_values as values
from slotune.tuning.status_values import exact

__all__ = ["cache_of", "cache_status"]

_CACHE_NUMBERS = {
    "theoretical_reuse": "theoretical_reuse",
    "measured_reuse": "measured_reuse",
    "slots_reuse": "slots_reuse",
    "prefix_share": "prefix_share",
    "cold_ttft_s": "cold_ttft_seconds",
    "cold_reuse": "cold_reuse",
    "warm_ttft_s": "warm_ttft_seconds",
    "warm_reuse": "warm_reuse",
    "canary_noise": "canary_noise",
    "canary_divergence": "canary_divergence",
}
"""Field of CacheFacts to field of TrialCache."""


def cache_status(cache: CacheFacts | None) -> TrialCache | None:
    """What the prompt cache served; None when nobody looked."""
    if cache is None:
        return None
    return TrialCache(
        prefixes=values.count(cache.prefixes),
        template_keeps_prefix=cache.template_keeps_prefix,
        canaries=values.count(cache.canaries),
        foreign=values.count(cache.foreign),
        **{written: exact(getattr(cache, own)) for own, written in _CACHE_NUMBERS.items()},
    )


def cache_of(said: TrialCache | None) -> CacheFacts | None:
    """:func:`cache_status` turned round."""
    if said is None:
        return None
    return CacheFacts(
        prefixes=said.prefixes,
        template_keeps_prefix=said.template_keeps_prefix,
        canaries=said.canaries,
        foreign=said.foreign,
        **{own: _float(getattr(said, written)) for own, written in _CACHE_NUMBERS.items()},
    )


def _float(said: str | None) -> float | None:
    return None if said is None else float(said)
