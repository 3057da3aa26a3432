"""Why a prompt that was read before is read again: the causes alone; :mod:`slotune.diagnose.rules.reuse` finds them."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.entry import Entry, Item

__all__ = [
    "CACHED_TOO_MUCH",
    "CACHE_RAM_CHURN",
    "CACHE_REUSE_UNSUPPORTED",
    "CACHE_WITHOUT_EFFECT",
    "CANARY_UNSTEADY",
    "ENTRIES",
    "HOST_CACHE_COPIES",
    "IDLE_SLOTS_SAVED",
    "PINNED_SLOT",
    "PROMPT_CACHE_OFF",
    "PROMPT_COMPUTED_AGAIN",
    "SIMILARITY",
    "SLIDING_WINDOW",
    "SLOTS_FEWER_THAN_PREFIXES",
    "SLOT_SIMILARITY",
    "TEMPLATE_CHANGES_PREFIX",
]

SIMILARITY: Final = 0.1
"""``--slot-prompt-similarity``: share of a prompt that a slot must hold to be chosen for it (llama.cpp's default)."""

PROMPT_COMPUTED_AGAIN: Final = Entry(
    id="SLT040",
    code="PromptComputedAgain",
    item=Item.REUSE,
    title="A shared prefix is computed again",
    cause="Prompts begin alike, and the server computes that beginning again instead of taking it from a slot or from "
    "the host cache. A prefix counts only while it is the same to the byte (ggml-org/llama.cpp#17527).",
    first="Put what never changes first in the prompt (no time stamp, no random id before it), keep --cache-prompt "
    "on, and give the host cache room with --cache-ram.",
    avoid="Do not buy a larger GPU: it would compute the same tokens again, only faster.",
    verify="Send a prompt twice: cache_n in the second answer's timings is about the length of the prompt.",
    knobs=("cachePrompt", "cacheRAMMiB", "cacheReuse", "parallelSlots"),
    binds="TTFTPrefill",
)

SLIDING_WINDOW: Final = Entry(
    id="SLT041",
    code="SlidingWindow",
    item=Item.REUSE,
    title="The model forgot the prefix, so the whole prompt is read again",
    cause="Layers with a sliding window, or with a recurrent state, keep only the newest tokens: a prompt that parts "
    "from the cached one before that must be read from the start (ggml-org/llama.cpp#21831, #13194).",
    first="Start with --swa-full, which keeps the whole window's cache for more memory; for a hybrid or recurrent "
    "model keep context checkpoints on (--ctx-checkpoints).",
    avoid="Do not raise --cache-ram for this alone: what was forgotten is not in the host cache either.",
    verify="The line 'forcing full prompt re-processing' (-lv 4) is gone, and cache_n of a second turn is not 0.",
    knobs=("extraArgs", "variant"),
)

SLOTS_FEWER_THAN_PREFIXES: Final = Entry(
    id="SLT042",
    code="SlotsFewerThanPrefixes",
    item=Item.REUSE,
    title="More conversations take turns than there are slots to remember them",
    cause="A slot remembers the last prompt that it read. With more beginnings than slots, and no host cache, each "
    "request overwrites what the next one would have needed.",
    first="Give the host cache room (--cache-ram), or add slots until each conversation has its own.",
    avoid="Do not pin conversations to slots: a pinned slot makes its others wait (ggml-org/llama.cpp#28139).",
    verify="The share of slots picked for what they hold (LCP similarity, not LRU) rises, and so does cache_n.",
    knobs=("parallelSlots", "cacheRAMMiB"),
)

SLOT_SIMILARITY: Final = Entry(
    id="SLT043",
    code="SlotSimilarity",
    item=Item.REUSE,
    title="The slot that holds the prefix is not picked",
    cause="A slot is picked for what it holds only when that is more than --slot-prompt-similarity of the new prompt "
    "(0.1 unless stated); below it the least recently used one is taken, and the prefix is read again "
    "(ggml-org/llama.cpp#22083).",
    first="Lower --slot-prompt-similarity below the shared part of a prompt, but not to 0, which turns it off.",
    avoid="Do not add slots first: the one that holds the prefix is there already.",
    verify="The log says 'selected slot by LCP similarity' for these prompts, and cache_n is about the prefix.",
    knobs=("extraArgs",),
)

PINNED_SLOT: Final = Entry(
    id="SLT044",
    code="PinnedSlot",
    item=Item.REUSE,
    title="Requests name the slot that they want",
    cause="A request with id_slot waits for that very slot though others are free, and passes the host cache by "
    "(ggml-org/llama.cpp#28139, #24746).",
    first="Leave id_slot out of the requests: the server finds the slot that holds the prefix by itself.",
    avoid="Do not add slots: a pinned request does not use them.",
    verify="Requests are spread over the slots, and none waits while a slot is idle.",
)

CACHE_REUSE_UNSUPPORTED: Final = Entry(
    id="SLT045",
    code="CacheReuseUnsupported",
    item=Item.REUSE,
    title="--cache-reuse is switched off by the server",
    cause="Reusing chunks behind a changed prefix needs a cache whose positions can be shifted; with images, a sliding "
    "window or recurrent layers it can't, and the server goes on without it (ggml-org/llama.cpp#15082).",
    first="Take --cache-reuse out, and move what changes to the end of the prompt, where plain prefix reuse helps.",
    avoid="Do not try other values of --cache-reuse: none of them has an effect here.",
    verify="The warning is gone from the log, and cache_n grows with the part of the prompt that stays the same.",
    knobs=("cacheReuse",),
)

CACHE_RAM_CHURN: Final = Entry(
    id="SLT046",
    code="CacheRAMChurn",
    item=Item.REUSE,
    title="The host prompt cache throws out what it would need",
    cause="The host cache is smaller than the prompts that take turns: each is saved and evicted again before it comes "
    "back, and the copying happens on the thread that computes (ggml-org/llama.cpp#22629).",
    first="Raise --cache-ram until all prompts that take turns fit (and the memory limit with it), or set it to 0.",
    avoid="Do not leave it as it is: a cache that is always overwritten costs time and gives none back.",
    verify="The line 'cache size limit reached, removing oldest entry' is gone, and cache_n of a returning prompt is "
    "about its length.",
    knobs=("cacheRAMMiB", "parallelSlots"),
)

PROMPT_CACHE_OFF: Final = Entry(
    id="SLT047",
    code="PromptCacheOff",
    item=Item.REUSE,
    title="The prompt cache is switched off",
    cause="With --no-cache-prompt, or cache_prompt: false in the request, every prompt is read from its first token.",
    first="Take --no-cache-prompt out, or send cache_prompt: true.",
    avoid="Do not raise --cache-ram: the host cache is not asked either while the prompt cache is off.",
    verify="Send a prompt twice: cache_n in the second answer's timings is about the length of the prompt.",
    knobs=("cachePrompt",),
)

TEMPLATE_CHANGES_PREFIX: Final = Entry(
    id="SLT048",
    code="TemplateChangesPrefix",
    item=Item.REUSE,
    title="The chat template makes different beginnings of what prompts share",
    cause="A template that writes the date, or drops the reasoning of earlier turns, changes tokens near the start, "
    "and everything behind them is read again (ggml-org/llama.cpp#22746).",
    first="Use a template that adds to the end only; keep reasoning in earlier turns (--reasoning-preserve) if the "
    "model allows it.",
    avoid="Do not add cache memory: the tokens really are different.",
    verify="Apply the template to two turns of a conversation (POST /apply-template): the second begins with the "
    "first.",
    knobs=("extraArgs",),
)

CACHE_WITHOUT_EFFECT: Final = Entry(
    id="SLT049",
    code="CacheWithoutEffect",
    item=Item.REUSE,
    title="The prompt cache serves less than it could, and why is not decided",
    cause="Prompts share more than the cache served, and none of the known causes shows.",
    first="Read the log at -lv 4 while a prompt is sent twice: it says which slot was picked and what was forgotten.",
    avoid="Do not turn the cache off: what it does serve would be computed too.",
    verify="Send a prompt twice: cache_n in the second answer's timings is about the length of the prompt.",
    knobs=("parallelSlots", "cacheRAMMiB", "cacheReuse"),
)

CACHED_TOO_MUCH: Final = Entry(
    id="SLT054",
    code="CachedTooMuch",
    item=Item.REUSE,
    title="More came from the cache than the prompts share",
    cause="A prompt that nobody sent before was answered from the cache, so a foreign prompt may have been restored; "
    "its answer is then somebody else's (ggml-org/llama.cpp#27148).",
    first="Set --cache-ram 0 and take a newer build before trusting any answer.",
    avoid="Do not count this as a gain: fast answers to another prompt are wrong answers.",
    verify="Send prompts with a random number at the very front: cache_n stays near 0.",
    knobs=("cacheRAMMiB",),
)

CANARY_UNSTEADY: Final = Entry(
    id="SLT055",
    code="CanaryUnsteady",
    item=Item.REUSE,
    title="The server answers one prompt differently from time to time",
    cause="Without any cache, two answers to one prompt differ by more than rounding explains, so a cache that mixes "
    "prompts up can't be told from that.",
    first="Repeat the check with a single slot and nothing else running.",
    avoid="Do not conclude that the cache is right, or that it is wrong: neither was shown.",
    verify="Two cold answers to one prompt differ by less than 0.05 nats.",
)

IDLE_SLOTS_SAVED: Final = Entry(
    id="SLT056",
    code="IdleSlotsSaved",
    item=Item.REUSE,
    title="Saving prompts to the host cache takes time from every request",
    cause="On each new request idle slots are copied to host memory, on the thread that computes; with a unified cache "
    "they are cleared too, and loaded again later (ggml-org/llama.cpp#20993).",
    first="Start with --no-cache-idle-slots (--no-clear-idle before b8854); with --cache-ram 0 if prompts share "
    "nothing.",
    avoid="Do not raise --cache-ram: larger caches are copied for longer.",
    verify="The milliseconds of 'prompt cache update took' (-lv 4) are gone from the log, and TTFT falls by them.",
    knobs=("cacheIdleSlots", "cacheRAMMiB"),
)

HOST_CACHE_COPIES: Final = Entry(
    id="SLT058",
    code="HostCacheCopies",
    item=Item.REUSE,
    title="Copying prompts to and from the host cache takes time from every request",
    cause="When a request takes a slot that holds another prompt, that prompt is copied to host memory and the best "
    "saved one is copied back, on the thread that computes, while the request waits (mostlygeek/llama-swap#560).",
    first="Add slots (-np) until prompts that come back keep theirs; set --cache-ram 0 if few tokens come from a "
    "cache.",
    avoid="Do not raise --cache-ram, nor switch the saving of idle slots off: this copy is made for a slot that is "
    "taken, whichever is set.",
    verify="The milliseconds of 'prompt cache update took' (-lv 4) fall, and TTFT falls by them.",
    knobs=("parallelSlots", "cacheRAMMiB"),
)

ENTRIES: Final = (
    PROMPT_COMPUTED_AGAIN,
    SLIDING_WINDOW,
    SLOTS_FEWER_THAN_PREFIXES,
    SLOT_SIMILARITY,
    PINNED_SLOT,
    CACHE_REUSE_UNSUPPORTED,
    CACHE_RAM_CHURN,
    PROMPT_CACHE_OFF,
    TEMPLATE_CHANGES_PREFIX,
    CACHE_WITHOUT_EFFECT,
    CACHED_TOO_MUCH,
    CANARY_UNSTEADY,
    IDLE_SLOTS_SAVED,
    HOST_CACHE_COPIES,
)
