"""One full set of llama-server settings on one weights file and one GPU class.

A candidate is a value: two equal candidates are the same question. It knows no file paths
and no ports; ``slotune.llama.flags`` turns it into arguments and back.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

__all__ = ["KV_TYPES", "Candidate", "KVType"]

KVType = Literal["f16", "q8_0", "q4_0"]

KV_TYPES: tuple[KVType, ...] = ("f16", "q8_0", "q4_0")
"""KV cache types, least lossy first. Only pairs of equal K and V type have flash-attention kernels
in stock CUDA builds (ggml-org/llama.cpp#28455), so others are never proposed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Every setting that slotune states explicitly to llama-server (design: nothing is left to defaults)."""

    variant: str
    """Name of the model variant (weights file) as the manifest lists it."""
    gpu_class: str
    """Name of the GPUClass that the server runs on."""
    parallel_slots: int
    """``-np``: requests that are decoded at the same time, 1 to 256."""
    context_per_slot: int
    """Tokens that one request may use. ``-c`` is this times the slots."""
    kv_unified: bool = False
    """``-kvu``: one shared pool instead of one stream per slot."""
    batch_size: int = 2048
    """``-b``: most prompt tokens per scheduler step; bounds how long a prefill stalls decodes."""
    ubatch_size: int = 512
    """``-ub``: physical batch, at most ``batch_size``."""
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attention: Literal["on", "off", "auto"] = "on"
    cache_prompt: bool = True
    """``--cache-prompt``: reuse the common prefix of the slot's last prompt."""
    cache_ram_mib: int = 0
    """``--cache-ram``: host prompt cache in MiB, 0 is off, -1 has no limit."""
    cache_idle_slots: bool = False
    """``--cache-idle-slots``: save idle slots to the host cache on each new task (needs ``cache_ram_mib``)."""
    cache_reuse: int = 0
    """``--cache-reuse``: least chunk (tokens) that is reused after a changed prefix, 0 is off."""
    gpu_layers: str = "all"
    """``-ngl``: a number, ``auto`` or ``all``."""
    threads: int | None = None
    """``-t`` and ``-tb``; None leaves them to the sandbox, which passes the CPU limit (ollama#17916)."""
    speculation: str = "none"
    """``--spec-type``: ``none``, a draft-free kind such as ``ngram-mod``, or ``draft-simple`` (needs ``draft``)."""
    extra_args: tuple[str, ...] = ()
    """Flags of the user's own server that slotune does not tune; passed through unchanged."""
    speculation_tokens: int | None = None
    """Most tokens that are guessed at a time; None leaves it to the build. Flag by kind:
    :data:`slotune.llama.speculation.KINDS`."""
    speculation_match: int | None = None
    """Tokens of text that must repeat before an n-gram kind guesses; None leaves it to the build."""
    draft: str | None = None
    """Name of the model variant whose file drafts (``-md``); None has none."""
    backend_sampling: bool = False
    """``-bs``: the next token is chosen where the model runs. Experimental in llama.cpp."""

    @property
    def context_total(self) -> int:
        """``-c``: tokens of the whole KV pool."""
        return self.parallel_slots * self.context_per_slot

    def as_said(self) -> dict[str, Any]:
        """Every setting by name, for digests: those that came later only where they are not as they were before, so
        that a candidate keeps its name."""
        later = {"speculation_tokens": None, "speculation_match": None, "draft": None, "backend_sampling": False}
        return {name: value for name, value in asdict(self).items() if name not in later or value != later[name]}

    def changed_from(self, other: Candidate) -> tuple[str, ...]:
        """Names of the fields in which this candidate differs from ``other``."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name))
