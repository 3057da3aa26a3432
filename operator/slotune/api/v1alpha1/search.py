"""What may be tried, and how much may be spent on it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from slotune.api.forms import Items
from slotune.api.model import Model
from slotune.api.rules import Rule, holds
from slotune.api.texts import Label

__all__ = ["Budget", "CacheType", "Search", "SearchSpace", "Speculation"]

CacheType = Literal["f16", "q8_0", "q4_0"]
Speculation = Literal[
    "none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "draft-simple"
]


def _any_ubatch_fits(space: Any) -> bool:
    return not space.u_batch_size or not space.batch_size or min(space.u_batch_size) <= max(space.batch_size)


class SearchSpace(Model):
    """Values that may be tried, by setting of llama-server. A list that is absent lets slotune choose; a list that is
    there is never left. What runs today is always a candidate."""

    parallel_slots: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=256)], ...], Items(most=32, least=1, distinct=True)] | None
    ) = None
    """Requests that are decoded at the same time (--parallel)."""
    context_size_per_slot: (
        Annotated[tuple[Annotated[int, Field(ge=64, le=1_048_576)], ...], Items(most=16, least=1, distinct=True)] | None
    ) = None
    """Tokens that one request may use, prompt and answer. --ctx-size is this times the slots. llama-server rounds up to
    a multiple of 256."""
    kv_unified: Annotated[tuple[bool, ...], Items(most=2, least=1, distinct=True)] | None = None
    """One KV pool for all slots (true), or one stream per slot (false)."""
    batch_size: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=65_536)], ...], Items(most=16, least=1, distinct=True)] | None
    ) = None
    """Most prompt tokens per scheduler step (--batch-size): bounds how long reading a prompt stalls running answers."""
    u_batch_size: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=65_536)], ...], Items(most=16, least=1, distinct=True)] | None
    ) = None
    """Physical batch (--ubatch-size). Combinations above the batch size are left out."""
    cache_types: Annotated[tuple[CacheType, ...], Items(most=3, least=1, distinct=True)] | None = None
    """Types of the KV cache, for K and V alike: only equal pairs are fast in stock builds."""
    cache_ram_mib: (
        Annotated[tuple[Annotated[int, Field(ge=0, le=1_048_576)], ...], Items(most=16, least=1, distinct=True)] | None
    ) = Field(None, alias="cacheRAMMiB")
    """Prompt cache in host memory, in MiB (--cache-ram); 0 is off. It counts against the pod's memory limit."""
    cache_reuse: (
        Annotated[tuple[Annotated[int, Field(ge=0, le=65_536)], ...], Items(most=16, least=1, distinct=True)] | None
    ) = None
    """Shortest chunk, in tokens, that is reused after a changed prefix (--cache-reuse); 0 is off. Approximate."""
    cache_idle_slots: Annotated[tuple[bool, ...], Items(most=2, least=1, distinct=True)] | None = None
    """Whether idle slots are saved to the prompt cache on every new request; needs cacheRAMMiB."""
    speculation: Annotated[tuple[Speculation, ...], Items(most=7, least=1, distinct=True)] | None = None
    """Ways to guess tokens ahead (--spec-type); only none when absent. draft-simple is tried on models that name a
    draft model, the others need none. The model checks every guess, so answers stay what they are."""
    speculation_tokens: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], Items(most=8, least=1, distinct=True)] | None
    ) = None
    """Most tokens that are guessed at a time, for every way but ngram-cache; llama-server's own number when absent (3
    of a draft model, 48 or 64 of n-grams)."""
    speculation_match: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], Items(most=8, least=1, distinct=True)] | None
    ) = None
    """Tokens that must repeat before n-grams guess, for every ngram way but ngram-cache; llama-server's own number when
    absent (24 of ngram-mod, else 12)."""
    backend_sampling: Annotated[tuple[bool, ...], Items(most=2, least=1, distinct=True)] | None = None
    """Whether tokens are sampled where the model runs (--backend-sampling), which helps many busy slots and may cost
    few; experimental in llama.cpp. Only as today when absent."""
    models: Annotated[tuple[Label, ...], Items(most=16, least=1, distinct=True)] | None = None
    """Names of spec.models that may be tried; all when absent. The others only serve as a reference."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        holds(
            _any_ubatch_fits,
            "every uBatchSize is above every batchSize, so nothing can be tried: add a smaller one",
            ("u_batch_size", "batch_size"),
            "!has(self.uBatchSize) || !has(self.batchSize) || "
            "self.uBatchSize.exists(u, self.batchSize.exists(b, u <= b))",
            at="uBatchSize",
        ),
        holds(
            lambda it: it.cache_idle_slots != (True,) or it.cache_ram_mib is None or any(it.cache_ram_mib),
            "idle slots are saved to the prompt cache, and cacheRAMMiB allows none: add a size above 0",
            ("cache_idle_slots", "cache_ram_mib"),
            "!has(self.cacheIdleSlots) || self.cacheIdleSlots.exists(on, !on) || !has(self.cacheRAMMiB) || "
            "self.cacheRAMMiB.exists(size, size > 0)",
            at="cacheIdleSlots",
        ),
    )


class Budget(Model):
    """Where the search must stop. Then the best that was confirmed is the answer, with what it did not prove."""

    gpu_minutes: Annotated[int, Field(ge=1, le=100_000)] = 120
    """Minutes that trials may hold GPUs, all together."""
    trials: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Trials that may run."""


class Search(Model):
    """What may be tried, and how much may be spent on it."""

    space: SearchSpace = SearchSpace()
    """Values that may be tried; slotune chooses when absent."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 8
    """Most replicas of a candidate, where a GPU class sets no limit of its own."""
    budget: Budget = Budget()
    """Where the search must stop."""
    explain: Literal["Measured", "Off"] = "Measured"
    """Whether trials are spent, after the winner is confirmed, on what each change bought. "Off" needs its quotes."""
