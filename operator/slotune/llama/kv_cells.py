"""How many KV cells llama.cpp allocates for a candidate, and the ``-c`` that asks for them.

llama.cpp rounds in several places (llama-context.cpp and llama-kv-cache-iswa.cpp, read at b11434): the whole pool
up to 256 cells, then with split streams each stream up to 256 again, and a sliding-window cache up to 256 on top of
``window + ubatch``. A candidate's ``context_per_slot`` is therefore exact only as a multiple of 256 when the cache is
split; with a unified cache any value holds, because nothing is divided.
"""

from __future__ import annotations

from slotune.llama.candidate import Candidate

__all__ = ["CELL_PADDING", "context_flag", "padded", "physical_batch", "slot_cells", "streams", "window_cells"]

CELL_PADDING = 256
"""Cells. llama.cpp's own figure, chosen for its kernels (ggml-org/llama.cpp#17037)."""


def padded(cells: int) -> int:
    """``cells`` rounded up to the next multiple of 256."""
    return -(-cells // CELL_PADDING) * CELL_PADDING


def context_flag(candidate: Candidate) -> int:
    """The value of ``-c`` that leaves every slot with at least ``context_per_slot`` tokens.

    Split: each slot's share is stated already rounded, so that llama-server neither rounds nor warns.
    Unified: the pool is stated as it is; llama-server rounds it up as a whole.
    """
    if candidate.kv_unified:
        return candidate.context_total
    return candidate.parallel_slots * padded(candidate.context_per_slot)


def streams(candidate: Candidate) -> int:
    """Separate caches: one per slot, or a single one when they share a pool."""
    return 1 if candidate.kv_unified else candidate.parallel_slots


def slot_cells(candidate: Candidate) -> int:
    """Cells that one slot can reach (``n_ctx_seq``): its own stream, or with a unified cache the whole pool."""
    return padded(context_flag(candidate) // streams(candidate))


def physical_batch(candidate: Candidate) -> int:
    """Tokens of one ubatch after llama-server's clamps: ubatch to batch, batch to ``-c``."""
    return min(candidate.ubatch_size, candidate.batch_size, context_flag(candidate))


def window_cells(candidate: Candidate, window: int) -> int:
    """Cells per stream of a layer with a sliding window: all slots' windows in a unified cache, and one ubatch."""
    windows = window * (candidate.parallel_slots if candidate.kv_unified else 1)
    return padded(min(slot_cells(candidate), windows + physical_batch(candidate)))
