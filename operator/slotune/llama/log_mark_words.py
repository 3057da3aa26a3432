"""Words of llama-server by which lines are known that tell how far it came, or that have numbers to add up."""

from __future__ import annotations

import enum
import re
from typing import Final

__all__ = ["HEADER_WORDS", "HOT_WORDS", "MARK_WORDS", "Hot", "Mark"]


class Mark(enum.Enum):
    """A line that tells how far a server came."""

    EARLY = enum.auto()
    """Said while arguments are read: nothing of the same process is before it but its like."""
    DEVICE = enum.auto()
    """Devices and back ends, found in the first moments of a process, in no fixed place."""
    HEADER = enum.auto()
    """Build, machine: once in a process."""
    LOADING = enum.auto()
    SLOTS = enum.auto()
    """Slots are made; changes no stage."""
    SLEEP = enum.auto()
    """Its model is unloaded until a request comes; changes no stage."""
    READY = enum.auto()
    WORK = enum.auto()
    END = enum.auto()


class Hot(enum.Enum):
    """A line with numbers to add up; most lines of a busy server are such."""

    WORK = enum.auto()
    PROMPT = enum.auto()
    GENERATION = enum.auto()
    DRAFT = enum.auto()
    STOP = enum.auto()
    TOOK = enum.auto()
    PICK = enum.auto()
    PICK_OLDEST = enum.auto()
    """A slot whose prompt is like the request's, or the one that was used longest ago."""
    RUNNING = enum.auto()
    """How far a request is that is at work."""
    IN_COMMON = enum.auto()
    FORGOTTEN = enum.auto()
    ERASED = enum.auto()
    """What a prompt shares with its slot, that it is read again all the same, a checkpoint that is thrown away."""
    BEGIN = enum.auto()
    READING = enum.auto()
    """A prompt's first piece is next; a piece was read."""
    PARTED = enum.auto()
    """The tokens where a prompt parts from its slot's."""
    MEDIA = enum.auto()
    """A picture or sound was encoded."""
    OLD = enum.auto()
    """As builds until September 2024 wrote it."""


HEADER_WORDS: Final = (
    ("engine", re.compile(rb"slotune engine: xllamacpp")),
    ("init", re.compile(rb"srv +init: initializing \.\.\.")),
    ("print_info", re.compile(rb"common_params_print_info: build \d+")),
    ("verbosity", re.compile(rb"common_params_print_info: verbosity = ")),
    ("build_info", re.compile(rb"build_info: ")),
    ("build", re.compile(rb"build:? \d+ \([0-9a-f]")),
    ("system_info", re.compile(rb"system_info: n_threads")),
    ("system", re.compile(rb"system info: n_threads")),
    ("old_build", re.compile(rb"\Abuild info\Z")),
    ("old_system", re.compile(rb"\Asystem info\Z")),
)
MARK_WORDS: Final = (
    (Mark.READY, re.compile(rb"(?<!draft )(?<!CLIP )\bmodel loaded\s*\Z")),
    (Mark.LOADING, re.compile(rb"loading model(?: '|\s*\Z)")),
    (Mark.SLOTS, re.compile(rb"\binitializing(?:,? (?:slots, )?n_slots = | slots\Z)")),
    (Mark.SLEEP, re.compile(rb"(?:entering|exiting) sleeping state")),
    (Mark.WORK, re.compile(rb"\| processing task")),
    (
        Mark.END,
        re.compile(
            rb"exiting due to|cleaning up before exit|main loop exited|GGML_ASSERT[(:]|GGML_ABORT"
            rb"|(?:CUDA|ROCm|HIP|MUSA|SYCL) error|terminate called after"
        ),
    ),
    (
        Mark.EARLY,
        re.compile(
            rb"no usable GPU found|failed to initialize (?:CUDA|ROCm|HIP|MUSA)|using config file: "
            rb"|error: (?:(?:invalid|unknown) argument|invalid parameter for|--model is required|either --embedding)"
            rb"|error while handling|error while loading shared libraries: "
            rb"|: version `[^'\n]+' not found \(required by "
        ),
    ),
    (Mark.DEVICE, re.compile(rb"ggml_\w+_init: found|ggml_vulkan: Found|load_backend: loaded")),
)
HOT_WORDS: Final = (
    (Hot.WORK, re.compile(rb"\| processing task")),
    (Hot.PROMPT, re.compile(rb"prompt eval time = +(?:[\d.]+|-?nan|-?inf) ms / +\d+ tokens")),
    (Hot.GENERATION, re.compile(rb"(?<!prompt )\beval time = +(?:[\d.]+|-?nan|-?inf) ms / +\d+ (?:tokens|runs)")),
    (Hot.DRAFT, re.compile(rb"draft acceptance(?: rate)? = +[\d.]+ \( *\d+ accepted / +\d+ generated\)")),
    (Hot.STOP, re.compile(rb"stop processing: n_(?:tokens|past) = \d+, truncated = \d")),
    (
        Hot.RUNNING,
        re.compile(
            rb"prompt processing, n_tokens = +\d+, .* / +[\d.]+ tokens per|n_(?:decoded|gen) = +\d+, tg = +[\d.]+"
        ),
    ),
    (Hot.BEGIN, re.compile(rb"\| new prompt, n_ctx_slot = \d")),
    (Hot.READING, re.compile(rb"prompt processing progress, n_(?:past|tokens) = \d")),
    (Hot.MEDIA, re.compile(rb"(?:image|audio)(?: slice|/slice)? (?:encoded|processed) in \d+ ms")),
    (Hot.TOOK, re.compile(rb"prompt cache update took [\d.]+ ms")),
    (Hot.IN_COMMON, re.compile(rb"n_past = \d+, (?:slot\.prompt\.tokens|\S*cache_tokens)\.size\(\) = \d+")),
    (Hot.FORGOTTEN, re.compile(rb"forcing full prompt re-processing")),
    (Hot.ERASED, re.compile(rb"erased invalidated context checkpoint \(.* n_tokens = \d+, ")),
    (Hot.PARTED, re.compile(rb"\| (?:old|new): \.\.\. ")),
    (Hot.PICK_OLDEST, re.compile(rb"selected slot by LRU, t_last = -?\d")),
    (Hot.PICK, re.compile(rb"selected slot by LCP similarity, (?:f_)?sim_best = [01]\.\d{3} ")),
)
