"""What the log of a server tells, from a start to its last line: how it came up, and what it did since.

A story is a value of bounded size, however long the log was: how often something was said, the first and the last line
that said it, and sums. Lines are quoted without colours and prefixes, cut to :data:`LONGEST` characters.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from slotune.llama.failures import Failure
from slotune.llama.log_lines import LogFacts

__all__ = [
    "LONGEST",
    "Forgotten",
    "Line",
    "LogStory",
    "Media",
    "Partings",
    "RequestTimings",
    "Running",
    "Seen",
    "Topic",
    "Turns",
]

LONGEST = 300


class Topic(enum.StrEnum):
    """Something that llama-server says, and that a diagnosis wants to know the number of."""

    NO_USABLE_GPU = "NoUsableGPU"
    LAYERS_OFFLOADED = "LayersOffloaded"
    FLASH_ATTENTION_FALLBACK = "FlashAttentionFallback"
    KERNEL_FALLBACK = "KernelFallback"
    FIT_REDUCED_CONTEXT = "FitReducedContext"
    FIT_FAILED = "FitFailed"
    MEDIA_FALLBACK = "MediaFallback"
    """The encoder of pictures and sound, or a part of it, runs on the CPU."""
    CONTEXT_CAPPED = "ContextCapped"
    CONFIG_FILE = "ConfigFile"
    CACHE_REUSE_UNSUPPORTED = "CacheReuseUnsupported"
    FULL_REPROCESSING = "FullReprocessing"
    """``forcing full prompt re-processing``: a sliding window or recurrent layers forgot the prefix."""
    CHECKPOINT = "Checkpoint"
    CACHE_UPDATE = "CacheUpdate"
    """``prompt cache update took X ms``: on the thread that computes."""
    CACHE_EVICTED = "CacheEvicted"
    STATE_EXCEEDS_CACHE = "StateExceedsCache"
    IDLE_SLOT_SAVED = "IdleSlotSaved"
    SLOT_BY_SIMILARITY = "SlotBySimilarity"
    SLOT_BY_LRU = "SlotByLRU"
    KEPT_COMPARED = "KeptCompared"
    """``prompt with length N, lcp = M``: of a kept prompt, how much of it a new one begins with."""
    HOST_PROJECTED = "HostProjected"
    """What -fit expects a server without a GPU to need, beside the memory of the machine."""
    MEMORY_NOT_LOCKED = "MemoryNotLocked"
    KV_FULL = "KVFull"
    CONTEXT_EXCEEDED = "ContextExceeded"
    INPUT_TOO_LARGE = "InputTooLarge"
    """An input for embedding or ranking that is longer than a physical batch, and refused."""
    REQUEST_REFUSED = "RequestRefused"
    """A request that got an error for a reason that is no other topic's."""
    TRUNCATED = "Truncated"
    CONTEXT_SHIFTED = "ContextShifted"
    SPECULATION_FAILED = "SpeculationFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    COMPUTE_FAILED = "ComputeFailed"
    """A step that could not be computed; the server tells all requests in it, and goes on."""
    DEBUG_LINE = "DebugLine"
    """A line that only a high verbosity prints."""
    SLOW_PROMPT = "SlowPrompt"
    """``prompt processing, … progress``: printed when a prompt takes more than 3 s."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, as quoted."""

    number: int
    """From 1."""
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """How often a topic came up."""

    count: int
    first: Line
    last: Line
    total_ms: float = 0.0
    """Sum of the milliseconds that its lines name; 0 when they name none."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Of prompts that are read from the start because the model forgot their beginning."""

    prompts: int = 0
    """Those of which the log says what they have in common with their slot."""
    tokens: int = 0
    """What they have in common, added up: read again though it was read before."""
    most_tokens: int = 0
    """Of one prompt."""
    line: Line | None = None
    """That says so."""
    erased_tokens: int = 0
    """Prompt tokens of the longest checkpoint that was thrown away: no prompt lost more than that, and many less."""
    erased_line: Line | None = None


@dataclass(frozen=True, slots=True)
class Partings:
    """Prompts that part from what their slot holds."""

    count: int
    changing: int = 0
    """Those that part within a time of day, a time stamp or a random id."""
    line: Line | None = None
    """The last of these, without the prompt's words."""


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """What the server said about the requests that it answered; quantiles are (10 %, 50 %, 90 %)."""

    requests: int
    prompt_tokens: int
    """Computed, without cached ones."""
    prompt_ms: float
    predicted_tokens: int
    predicted_ms: float
    cached_tokens: int | None = None
    """Taken from the cache; None when this log does not say."""
    prefill_tokens_per_s: tuple[float, float, float] | None = None
    """Of prompts with 64 computed tokens or more, each on its own; other slots' work is in it."""
    decode_tokens_per_s: tuple[float, float, float] | None = None
    """Per request; other slots' work is in it."""
    most_busy_slots: int | None = None
    """Most requests between ``processing task`` and their end at one time."""
    example: Line | None = None
    """The line of the slowest prompt."""
    first_prompt: tuple[int, float] | None = None
    """Tokens and milliseconds of the first prompt with 64 computed tokens or more."""
    example_beside: Line | None = None
    """The line of the slowest prompt that was taken up while other requests were at work; None also where timings do
    not name their slot."""
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    long_prompt_tokens: int = 0
    long_prompt_ms: float = 0.0
    """Both of prompts with 64 computed tokens or more: of shorter ones the fixed cost of a step is most."""
    held_tokens: int = 0
    """Prompt tokens that were computed although the slot that their request got held them, as far as the log says what
    it held (``selected slot by LCP similarity``)."""
    released: int = 0
    """Requests after which the log says what their slot kept; builds of llama.cpp since late 2024 do not say."""
    unkept: int = 0
    """Those of them after which it kept nothing of a prompt that it had computed."""
    unkept_line: Line | None = None
    """The last line that says so."""
    prompt_ms_spread: tuple[tuple[float, int], ...] = ()
    """(Milliseconds within half a percent, prompts that took so long), shortest first; empty when not counted."""
    prompt_tokens_spread: tuple[tuple[float, int], ...] = ()
    """The same of their computed tokens."""
    turns: Turns | None = None
    """None where no line tells of a request and its number."""


@dataclass(frozen=True, slots=True)
class Turns:
    """In what order requests were served, by the numbers that they got as they came."""

    requests: int
    """That were given a slot."""
    overtaken: int = 0
    """Those whose slot was given, at least twice, to requests that came after them."""
    most: int = 0
    """Requests that came later and got a slot sooner, of the one of which that is most."""
    waited_s: float | None = None
    """Seconds that this one waited at least, after one of them got its slot; None without time stamps."""
    late: Line | None = None
    """Where it gets its slot."""
    before: Line | None = None
    """Where that one got the same slot."""
    begun: int = 0
    """Prompts of which the log says that their reading begins, which it does at ``-lv 4``."""
    behind: int = 0
    """Those of them that began while one that came earlier, in a higher slot, was not begun."""
    passed: int = 0
    """Requests with a slot that saw two pieces of later prompts read, in lower slots, before theirs was begun."""
    passed_line: Line | None = None
    """Where the last of them got its slot."""
    passing_line: Line | None = None
    """The second of those pieces."""


@dataclass(frozen=True, slots=True)
class Media:
    """Pictures and sound that were read."""

    pieces: int
    """Pictures, or their slices where the log names those alone."""
    ms: float
    """That encoding all of them took."""
    slowest: Line


@dataclass(frozen=True, slots=True)
class Running:
    """How fast a request was while it was at work, as builds of 2026 say every three seconds."""

    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    """Both from the beginning of the prompt or of the answer, as was said last; other slots' work is in them."""
    tokens: int
    """Of the prompt, or of the answer, so far."""
    line: Line
    """What was said last."""


@dataclass(frozen=True, slots=True)
class LogStory:
    """One server's log."""

    source: str
    """The file, or the pod whose lines these are."""
    facts: LogFacts
    """Of the last start that the log holds."""
    fact_lines: Mapping[str, Line] = field(default_factory=lambda: MappingProxyType({}))
    """Name of a field of :class:`LogFacts` to the line that said it."""
    seen: Mapping[Topic, Seen] = field(default_factory=lambda: MappingProxyType({}))
    """Since the last start."""
    requests: RequestTimings | None = None
    running: Running | None = None
    """What is known of the speed where no request finished; None where one did, and nothing is said."""
    forgotten: Forgotten | None = None
    partings: Partings | None = None
    """None unless the server was started with LLAMA_SERVER_SLOTS_DEBUG=1."""
    media: Media | None = None
    """None where no line tells of a picture or of sound."""
    handovers: Seen | None = None
    """Slots that held another prompt and were picked, and what lies between that and the work in them; the lines are
    those of the longest. None where lines have no times of the server's own."""
    failure: Failure | None = None
    """How it ended, when it did not end well."""
    failure_line: Line | None = None
    build: int | None = None
    starts: int = 0
    """Starts in the log; 0 when it begins after the server came up."""
    last_start_line: int | None = None
    """Where the last start begins in the log; None where no process before it was left out."""
    requests_before: int = 0
    """Finished requests before it, left out."""
    verbosity: int | None = None
    """Least ``-lv`` that would have printed the lines since the last start, as builds of 2026 count: older ones print
    at 3 what is at 4 now. None when nothing tells."""
    lines: int = 0
    size_bytes: int = 0
    seconds: float | None = None
    """From the first to the last time stamp since the last start; None without time stamps."""
    loaded_s: float | None = None
    """From the first line of the last start to its model being loaded, warm-up and all; None without time stamps."""
    earlier_failure: Failure | None = None
    """How the process before the last start ended, when the log holds it and it did not end well."""
    earlier_failure_line: Line | None = None
    earlier_failure_start: int | None = None
    """Which start of the log it was that ended so, from 1; None where that is not known."""

    server_lines: int = 0
    """Lines that only llama-server writes."""
    engine_lines: int = 0
    """Lines that only llama.cpp writes, in llama-server or another program."""
    mixed: bool = False
    """Two servers' lines are mixed: then nothing else is told but how long it is."""
    router: str = ""
    """That it is llama-server's router, and where its children's lines are; empty: it is none."""
    notes: tuple[str, ...] = ()
    """What could not be read in it, in words that go behind its name."""

    def count(self, topic: Topic) -> int:
        """How often it came up; 0 also when the verbosity was too low for it."""
        seen = self.seen.get(topic)
        return 0 if seen is None else seen.count
