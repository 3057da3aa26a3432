"""Builds of llama.cpp that are known to be slow, for whom, and who found out.

Short on purpose. A build is here when somebody bisected it, the cause is known, and the condition can be checked from
outside; "slower since I updated" is not enough, and most such reports are about one GPU. In which release a change
landed is not always written down: then there is a newest build that is known to be slow and an oldest that is known not
to be, and a build between them is a question, not an answer.

Read for this table: ggml-org/llama.cpp #24866, #26559, #27041, #27084, #27086, #27109, #27126, #27133, #27150, #28079,
#28455, #28456. Left out, for want of a cause, of a fix or of a condition that can be checked from outside: #17037,
#20835, #21834, #23626, #25207, #25489, #26918, #28752. Not of one build: #25840 (scattered slots), #28495 (one pool on
CUDA).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = [
    "COMPILED_KV_PAIRS",
    "KV_PAIRS_CONVERTED",
    "KV_PAIRS_ON_CPU",
    "SLOW_BUILDS",
    "Condition",
    "SlowBuild",
    "Standing",
    "is_kernel_missing",
]

COMPILED_KV_PAIRS: Final = frozenset({"f16-f16", "bf16-bf16", "q8_0-q8_0", "q4_0-q4_0", "f32-f32"})
"""K and V types for which builds for CUDA and ROCm have kernels by default (GGML_CUDA_FA_QUANTS); f32 counts as f16."""

KV_PAIRS_ON_CPU: Final = 10819
"""Newest build that is known to compute attention on other pairs on the CPU, without a word (#28455)."""
KV_PAIRS_CONVERTED: Final = 11434
"""Oldest build that is known to convert them instead, with a warning (#28079; by its source)."""
MIXED_PAIR: Final = "q8_0-q4_0"
MIXED_PAIR_MISSING: Final = 10433
"""Newest build that is known to be without a kernel for it (#27150); some that came later had one by default."""


class Condition(enum.Enum):
    """Whom a build is slow for; to be checked against a server before anything is said."""

    WEIGHTS_ON_CPU = "some weights are computed on the CPU"
    KV_PAIR_WITHOUT_KERNEL = "the KV cache has types that no CUDA or ROCm kernel was compiled for"
    WATCHED = "somebody asks it for /metrics or /slots while it works"
    GRAVITON = "it runs on an Arm Neoverse V core with flash attention on"


class Standing(enum.Enum):
    """What is known about one build and one entry."""

    FREE = enum.auto()
    SLOW = enum.auto()
    UNKNOWN = enum.auto()
    """The fix landed somewhere around it."""


@dataclass(frozen=True, slots=True)
class SlowBuild:
    """One change that made builds slow."""

    code: str
    """Short name, for tests and the page."""
    first: int
    """Oldest build that is known to have it."""
    last: int
    """Newest build that is known to have it."""
    fixed: int | None
    """Oldest build that is known to be without it again; None: nobody knows of a fix, so every later build counts."""
    condition: Condition
    what: str
    """What is slow, by how much, as the report says: completes "this build …"."""
    issues: tuple[str, ...]
    """Reports and pull requests of ggml-org/llama.cpp, the one that says most first."""
    cure: str
    """A full sentence."""
    costs_users: bool = True
    """False: those who use the server do not notice it."""

    def standing(self, build: int) -> Standing:
        """Whether ``build`` has it."""
        if build < self.first or (self.fixed is not None and build >= self.fixed):
            return Standing.FREE
        return Standing.SLOW if self.fixed is None or build <= self.last else Standing.UNKNOWN


SLOW_BUILDS: Final = (
    SlowBuild(
        code="DecodeOnWorkerThread",
        first=10429,  # 77918caf3, bisected in #27126
        last=10434,  # #27084
        fixed=10472,  # of 17 August 2026; #27133 was measured as merged on the 16th
        condition=Condition.WEIGHTS_ON_CPU,
        what="computes on a thread of its own, away from the CPU's thread pool: half of the tokens/s with 46 threads, "
        "a tenth with 48 in two reports",
        issues=("#27126", "#27084", "#27041", "#27133"),
        cure="Update to b10472 or later, or go back to b10428.",
    ),
    SlowBuild(
        code="AttentionOnCPU",
        first=5129,  # the kernels of default builds are those of #7527 (2024); earlier ones were not looked up
        last=KV_PAIRS_ON_CPU,
        fixed=KV_PAIRS_CONVERTED,
        condition=Condition.KV_PAIR_WITHOUT_KERNEL,
        what="computes attention on the CPU for KV types without a kernel, and does not say so: 197 in place of 1511 "
        "prompt tokens/s, 34 in place of 1147 in another report",
        issues=("#28455", "#27109", "#28456", "#28079"),
        cure="Set -ctk and -ctv both to q8_0, q4_0 or f16; from b11434 on other types are converted on the GPU.",
    ),
    SlowBuild(
        code="MetricsWaitForDecode",
        first=5129,  # since there is a server; earlier builds were not looked up
        last=10428,
        fixed=10429,
        condition=Condition.WATCHED,
        what="answers /metrics and /slots only between two decodes: a scrape took more than 10 s beside a prompt, "
        "while /health took 3 ms",
        issues=("#24866", "#27041"),
        cure="Give scrapes a long time-out and probe /health only, or update to b10472 or later.",
        costs_users=False,
    ),
    SlowBuild(
        code="FlashAttentionOnNeoverse",
        first=10433,
        last=10433,
        fixed=None,
        condition=Condition.GRAVITON,
        what="turns flash attention on by itself, which halves prefill on Neoverse V2 (430 against 854 prompt "
        "tokens/s) and costs a third on V1, though answers are written faster with it",
        issues=("#27086", "#26559"),
        cure="Try -fa off, with an f16 V cache, where prompts are long and answers short.",
        costs_users=False,
    ),
)
"""Newest cause first."""


def is_kernel_missing(build: int, pair: str) -> bool:
    """Whether a default build is known to compute attention on the CPU for K/V types such as ``q5_1-q5_1``."""
    if pair in COMPILED_KV_PAIRS or (pair == MIXED_PAIR and build > MIXED_PAIR_MISSING):
        return False
    return next(one for one in SLOW_BUILDS if one.code == "AttentionOnCPU").standing(build) is Standing.SLOW
