"""What a llama-server does where its arguments say nothing. Differs between builds, so it is a value.

Only what a baseline depends on. The values are those of build 11549 and, by its source, of 11434; another build gets
its own.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BUILD_11549", "BuildDefaults"]


@dataclass(frozen=True, slots=True)
class BuildDefaults:
    """Defaults of one build."""

    host: str = "127.0.0.1"
    port: int = 8080
    """Announced to become 9931 (ggml-org/llama.cpp#26508)."""
    auto_slots: int = 4
    """Slots without ``-np``; they share one unified cache. With ``-np`` it is split unless ``-kvu`` is stated."""
    batch_size: int = 2048
    ubatch_size: int = 512
    flash_attention: str = "auto"
    cache_type: str = "f16"
    cache_prompt: bool = True
    cache_ram_mib: int = 8192
    cache_idle_slots: bool = True
    """Only with a prompt cache in host memory."""
    cache_reuse: int = 0
    gpu_layers: str = "auto"
    fit: bool = True
    """Shrinks what is not stated until it fits the GPU, and says so in the log only."""


BUILD_11549 = BuildDefaults()
