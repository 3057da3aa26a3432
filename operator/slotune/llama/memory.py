"""How much memory a candidate takes, before it is started and after something like it was.

Four parts. Weights and KV cache follow from the file and llama.cpp's rules for cells, exactly. The compute buffer is
llama.cpp's scratch space for one ubatch: its attention masks follow from the flags, the rest is estimated from the
model's widths and replaced by what the first start with that ubatch really took. The overhead is what the GPU's driver
takes for a process. Until something is learned the sum errs on the small side: a candidate that fits is never dropped,
and one that does not is found out by its first start.

A candidate's own draft model adds the same of its own: weights, a KV cache of f16 with as many cells, scratch space.

Not counted: draft models and multimodal projectors whose flags are in ``extra_args``, and everything in host memory
while the model is on a GPU (prompt cache, context checkpoints).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from slotune.llama.candidate import Candidate
from slotune.llama.kv_cells import physical_batch, slot_cells, streams, window_cells
from slotune.llama.kv_types import bytes_per_element
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.llama.speculation import draft_layers

__all__ = ["ComputeKey", "Fit", "LearnedCompute", "MemoryEstimate", "fits", "kv_bytes", "predict"]

MARGIN = 0.95
"""Share of a GPU's memory that may be planned: buffers still grow at run time (ggml-org/llama.cpp#13085)."""

GPU_OVERHEAD_BYTES = 256 * 2**20
"""What a CUDA context takes at least (kernels, cuBLAS workspace). Real ones take up to 1.2 GB."""

F32 = 4
F16 = 2

RESIDUAL_WIDTHS = 5
FEED_FORWARD_WIDTHS = 3
"""f32 rows of each width alive at once in the feed-forward part, where the graph is widest. Measured on build 11549:
exact to 0.1 % for SmolLM2, for generated llama, Gemma 2, Gemma 3 and mixture-of-experts models."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one device: the GPU, or the host when the model runs on the CPU."""

    weights: int
    kv: int
    compute: int
    overhead: int
    reclaimable: int = 0
    """Part of ``weights`` that the kernel can drop: pages of the file whose rearranged copy is in use."""
    learned: bool = False
    """Whether ``compute`` comes from a start of the same kind and not from the model's widths."""

    @property
    def total(self) -> int:
        """All that llama-server's log shows for the device, and the overhead."""
        return self.weights + self.kv + self.compute + self.overhead

    @property
    def needed(self) -> int:
        """What must be there for the server to run."""
        return self.total - self.reclaimable


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether an estimate fits a device, and why not."""

    ok: bool
    reason: str = ""
    """One sentence with the numbers and the cure; empty when it fits."""


@dataclass(frozen=True, slots=True)
class ComputeKey:
    """What the scratch space depends on, beyond the masks, which are computed."""

    variant: str
    gpu_class: str
    ubatch: int
    """Tokens, after llama-server's clamps."""
    flash_attention: str
    cache_types: tuple[str, str]
    gpu_layers: str
    draft: str | None = None
    """Whose scratch space is part of it."""


@dataclass(frozen=True, slots=True)
class LearnedCompute:
    """Scratch space that starts really took. A value: each start gives a new one."""

    scratch: Mapping[ComputeKey, int] = field(default_factory=lambda: MappingProxyType({}))
    """Bytes without masks and output rows."""

    def with_start(
        self, candidate: Candidate, facts: ModelFacts, compute_bytes: int, *, on_gpu: bool = True
    ) -> LearnedCompute:
        """Also knows a start of ``candidate`` whose log shows ``compute_bytes`` on the device."""
        scratch = max(0, compute_bytes - _attention_bytes(candidate, facts) - _output_bytes(candidate, facts, on_gpu))
        key = _key(candidate)
        known = {**self.scratch, key: max(scratch, self.scratch.get(key, 0))}
        return LearnedCompute(MappingProxyType(known))

    def scratch_of(self, candidate: Candidate) -> int | None:
        """Scratch bytes for ``candidate``: of the very same kind, else scaled from the nearest ubatch; None: unknown.

        Another KV type is close enough to stand in: the buffer differs by the rotation matrices only.
        """
        key = _key(candidate)
        if key in self.scratch:
            return self.scratch[key]
        alike = [
            known
            for known in self.scratch
            if (known.variant, known.gpu_class, known.flash_attention, known.gpu_layers, known.draft)
            == (key.variant, key.gpu_class, key.flash_attention, key.gpu_layers, key.draft)
        ]
        if not alike:
            return None
        nearest = min(alike, key=lambda known: (abs(known.ubatch - key.ubatch), known.cache_types))
        return self.scratch[nearest] * key.ubatch // nearest.ubatch


NOTHING_LEARNED = LearnedCompute()


def predict(
    candidate: Candidate,
    facts: ModelFacts,
    learned: LearnedCompute = NOTHING_LEARNED,
    *,
    on_gpu: bool = True,
    overhead_bytes: int | None = None,
    draft: ModelFacts | None = None,
) -> MemoryEstimate:
    """Bytes that ``candidate`` takes on its device.

    Args:
        candidate: what would be started.
        facts: of its weights file.
        learned: what earlier starts took for scratch.
        on_gpu: False when the model runs on the CPU; then host memory is meant.
        overhead_bytes: what the driver takes; None: 256 MiB on a GPU, nothing on the host.
        draft: facts of the candidate's draft model; not looked at where it has none.
    """
    if overhead_bytes is None:
        overhead_bytes = GPU_OVERHEAD_BYTES if on_gpu else 0
    scratch = learned.scratch_of(candidate)
    weights = _weights(candidate, facts, on_gpu)
    attention = _attention_bytes(candidate, facts)
    output = _output_bytes(candidate, facts, on_gpu)
    alone = MemoryEstimate(
        weights=weights,
        kv=kv_bytes(candidate, facts, on_gpu=on_gpu),
        compute=attention + output + (_scratch(candidate, facts) if scratch is None else scratch),
        overhead=overhead_bytes,
        reclaimable=0 if on_gpu else max(0, weights - facts.weights_bytes),
        learned=scratch is not None,
    )
    if candidate.draft is None or draft is None:
        return alone
    beside = predict(drafting(candidate), draft, on_gpu=on_gpu, overhead_bytes=0)
    return replace(
        alone,
        weights=alone.weights + beside.weights,
        kv=alone.kv + beside.kv,
        compute=alone.compute + (0 if alone.learned else beside.compute),  # what was learned has both
        reclaimable=alone.reclaimable + beside.reclaimable,
    )


def drafting(candidate: Candidate) -> Candidate:
    """The draft model's context beside that of ``candidate``: as many cells, of f16 (llama-server's ``-ctkd`` default).

    Its memory is that of such a candidate; it is never started by itself.
    """
    assert candidate.draft is not None
    return replace(
        candidate,
        variant=candidate.draft,
        cache_type_k="f16",
        cache_type_v="f16",
        gpu_layers=draft_layers(candidate.gpu_layers),
        speculation="none",
        draft=None,
        speculation_tokens=None,
    )


def fits(estimate: MemoryEstimate, device_bytes: int, margin: float = MARGIN) -> Fit:
    """Whether ``estimate`` fits into the share ``margin`` of a device with ``device_bytes``."""
    limit = int(device_bytes * margin)
    if estimate.needed <= limit:
        return Fit(ok=True)
    weights = estimate.weights - estimate.reclaimable
    parts = {"weights": weights, "KV cache": estimate.kv, "compute": estimate.compute, "overhead": estimate.overhead}
    if weights + estimate.overhead > limit:
        cure = "only a smaller quantization or a larger GPU helps"
    elif estimate.kv > estimate.compute:
        cure = "fewer slots, a shorter context or a quantized KV cache take less"
    else:
        cure = "a smaller ubatch takes less"
    listed = ", ".join(f"{name} {_size(size)}" for name, size in parts.items() if size)
    share = f"{margin:.0%} of {_size(device_bytes)}".replace("%", " %")
    return Fit(ok=False, reason=f"needs {_size(estimate.needed)} ({listed}), there is {_size(limit)} ({share}); {cure}")


def kv_bytes(candidate: Candidate, facts: ModelFacts, *, on_gpu: bool = True) -> int:
    """Bytes of keys, values and recurrent states over all slots.

    K and V of a layer: cells x elements x bytes per element, per stream. A state: one per slot, in f32.
    """
    layers = facts.layers
    if on_gpu:
        if _has(candidate, "-nkvo", "--no-kv-offload"):
            return 0
        layers = layers[len(layers) - _offloaded_layers(candidate, facts) :]
    key_bytes, value_bytes = bytes_per_element(candidate.cache_type_k), bytes_per_element(candidate.cache_type_v)
    # Without flash attention V is stored transposed, with the widest layer's rows everywhere.
    widest = max((layer.value_elements for layer in facts.layers), default=0)
    total = 0.0
    for layer in layers:
        values = layer.value_elements
        if candidate.flash_attention == "off" and layer.key_elements and widest:
            values = widest
        cell = layer.key_elements * key_bytes + values * value_bytes
        total += _cells(candidate, layer) * streams(candidate) * cell
        total += layer.state_bytes * candidate.parallel_slots
    return round(total)


def _cells(candidate: Candidate, layer: LayerCache) -> int:
    """Cells of one stream of ``layer``."""
    if layer.window is None or _has(candidate, "--swa-full"):
        return slot_cells(candidate)
    return window_cells(candidate, layer.window)


def _weights(candidate: Candidate, facts: ModelFacts, on_gpu: bool) -> int:
    """Bytes of the model's buffers on the device. Part of the layers: their average share, the output layer is one."""
    if not on_gpu:
        return facts.cpu_buffer_bytes or facts.weights_bytes
    movable = facts.weights_bytes - facts.host_weights_bytes
    all_layers = len(facts.layers) + 1
    wanted = _gpu_layers(candidate, facts)
    return movable if wanted >= all_layers else movable * wanted // all_layers


def _gpu_layers(candidate: Candidate, facts: ModelFacts) -> int:
    """Layers asked for, the output layer counted as one; ``auto`` and ``all`` are all of them, since fit is off."""
    all_layers = len(facts.layers) + 1
    return min(int(candidate.gpu_layers), all_layers) if candidate.gpu_layers.isdigit() else all_layers


def _offloaded_layers(candidate: Candidate, facts: ModelFacts) -> int:
    """Repeating layers on the GPU, the last ones of the model; the output layer goes first."""
    return max(0, _gpu_layers(candidate, facts) - 1)


def _attention_bytes(candidate: Candidate, facts: ModelFacts) -> int:
    """Masks of one ubatch, one for full and one for sliding layers; without flash attention also the scores."""
    tokens = physical_batch(candidate)
    cells = {_cells(candidate, layer) for layer in facts.layers if layer.key_elements and layer.window is None}
    sliding = {_cells(candidate, layer) for layer in facts.layers if layer.key_elements and layer.window is not None}
    columns = max(cells, default=0) + max(sliding, default=0)
    if candidate.flash_attention != "off":
        return tokens * columns * F16
    return tokens * columns * F32 + tokens * facts.heads * max(cells | sliding, default=0) * F32


def _output_bytes(candidate: Candidate, facts: ModelFacts, on_gpu: bool) -> int:
    """The logits that llama-server copies out, one row per slot: always in host memory."""
    return 0 if on_gpu else candidate.parallel_slots * facts.vocabulary * F32


def _scratch(candidate: Candidate, facts: ModelFacts) -> int:
    """Activations of one ubatch, or the logits of all slots where those are larger."""
    narrow = RESIDUAL_WIDTHS * facts.embedding
    wide = 0 if candidate.flash_attention == "off" else FEED_FORWARD_WIDTHS * facts.feed_forward
    activations = physical_batch(candidate) * F32 * (narrow + wide)
    return max(activations, candidate.parallel_slots * (facts.vocabulary + facts.embedding) * F32)


def _key(candidate: Candidate) -> ComputeKey:
    return ComputeKey(
        variant=candidate.variant,
        gpu_class=candidate.gpu_class,
        ubatch=physical_batch(candidate),
        flash_attention="off" if candidate.flash_attention == "off" else "on",  # auto is on where it can be
        cache_types=(candidate.cache_type_k, candidate.cache_type_v),
        gpu_layers="all" if candidate.gpu_layers == "auto" else candidate.gpu_layers,  # fit is off
        draft=candidate.draft,
    )


def _has(candidate: Candidate, *flags: str) -> bool:
    return any(flag in candidate.extra_args for flag in flags)


def _size(size: int) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
