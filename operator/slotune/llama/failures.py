"""Why a llama-server could not be measured, and the setting that each cause names."""

from __future__ import annotations

import enum

__all__ = ["FailureClass"]


class FailureClass(enum.StrEnum):
    """Why a server could not be measured (research llama-server §3.4). The value is the API's reason."""

    BAD_FLAG = "BadFlag"
    MODEL_UNREADABLE = "ModelUnreadable"
    OUT_OF_MEMORY_WEIGHTS = "OutOfMemoryWeights"
    OUT_OF_MEMORY_KV = "OutOfMemoryKV"
    OUT_OF_MEMORY_COMPUTE = "OutOfMemoryCompute"
    OUT_OF_MEMORY_RUNTIME = "OutOfMemoryRuntime"
    OUT_OF_MEMORY_HOST = "OutOfMemoryHost"
    CPU_FALLBACK = "CPUFallback"
    CONFIGURATION_MISMATCH = "ConfigurationMismatch"
    CRASHED = "Crashed"
    WEDGED = "Wedged"
    STARTUP_TIMEOUT = "StartupTimeout"

    @property
    def is_memory(self) -> bool:
        """Whether candidates that need at least as much memory are bound to fail too."""
        return self.value.startswith("OutOfMemory")
