"""The reasons for which a llama-server could not be measured, as the API names them."""

from __future__ import annotations

import enum

__all__ = ["FailureClass"]


class FailureClass(enum.StrEnum):
    """Why a server could not be measured. The value is the API's reason."""

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
    FOREIGN_CONTEXT = "ForeignContext"
    SPECULATION_UNAVAILABLE = "SpeculationUnavailable"

    @property
    def is_memory(self) -> bool:
        """Whether candidates that need at least as much memory are bound to fail too."""
        return self.value.startswith("OutOfMemory")
