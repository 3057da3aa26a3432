"""How a server ends, as entries of the catalogue: one for each class of failure that no other finding is.

A trial and a log of the same end are told under one identifier. The sentence of a failure has its own numbers and often
its own setting (:func:`slotune.llama.failures.classify_failure`); what stands here holds for every one of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.llama.failures import FailureClass

__all__ = ["ENTRIES", "OF_FAILURES", "WITHDRAWN"]

_STARTS: Final = "A server or a trial of the same configuration comes up, and its log says 'server is listening'."

WITHDRAWN: Final = frozenset({"SLT208", "SLT210", "SLT211", "SLT214"})
"""Identifiers of causes that have another one; none of them is ever used again."""

OF_FAILURES: Final[Mapping[FailureClass, Entry]] = MappingProxyType(
    {
        FailureClass.BAD_FLAG: Entry(
            id="SLT201",
            code="BadFlag",
            item=Item.HEALTH,
            title="llama-server refuses a flag or its value",
            cause="llama-server checks its flags before it loads anything and ends at the first that it does not know, "
            "or whose value does not go with the model; flags come and go between builds.",
            first="Correct or remove the flag that the message names.",
            avoid="Do not start it again as it is: the same flag is refused every time.",
            verify=_STARTS,
        ),
        FailureClass.MODEL_UNREADABLE: Entry(
            id="SLT202",
            code="ModelUnreadable",
            item=Item.HEALTH,
            title="The model file cannot be loaded",
            cause="The file is missing, cut off, no GGUF file, or of an architecture that this build does not know.",
            first="Compare its size and digest with the source and download it again; for an unknown architecture take "
            "a newer build.",
            avoid="Do not change slots, context or caches: nothing of them was reached.",
            verify=_STARTS,
            knobs=("variant",),
        ),
        FailureClass.OUT_OF_MEMORY_WEIGHTS: Entry(
            id="SLT203",
            code="OutOfMemoryWeights",
            item=Item.MEMORY,
            title="The weights do not fit",
            cause="The weights alone are larger than the memory that is free on the device, or on the host for a "
            "server that computes there.",
            first="Take smaller weights (a model variant of fewer bits), or a GPU or a limit with more memory.",
            avoid="Do not lower slots or context: the weights are allocated before any cache.",
            verify=_STARTS,
            knobs=("variant", "gpuClass"),
        ),
        FailureClass.OUT_OF_MEMORY_KV: Entry(
            id="SLT204",
            code="OutOfMemoryKV",
            item=Item.MEMORY,
            title="The KV cache does not fit beside the weights",
            cause="The cache of all slots is allocated at the start, as slots times context per slot.",
            first="Lower contextSizePerSlot (-c) to what requests really need, then parallelSlots (-np); q8_0 halves "
            "the cache.",
            avoid="Do not lower uBatchSize (-ub) for this: it is another buffer.",
            verify=_STARTS,
            knobs=("contextSizePerSlot", "parallelSlots", "cacheTypeK", "cacheTypeV"),
        ),
        FailureClass.OUT_OF_MEMORY_COMPUTE: Entry(
            id="SLT205",
            code="OutOfMemoryCompute",
            item=Item.MEMORY,
            title="The compute buffer does not fit beside weights and KV cache",
            cause="Intermediate results of one piece of a prompt need a buffer that grows with uBatchSize.",
            first="Lower uBatchSize (-ub), and keep flash attention on, which needs far less of it.",
            avoid="Do not raise batchSize or parallelSlots: neither makes the buffer smaller.",
            verify=_STARTS,
            knobs=("uBatchSize", "flashAttention"),
        ),
        FailureClass.OUT_OF_MEMORY_RUNTIME: Entry(
            id="SLT206",
            code="OutOfMemoryRuntime",
            item=Item.MEMORY,
            title="GPU memory ran out under load",
            cause="Everything fitted at the start, and something that is allocated later did not "
            "(ggml-org/llama.cpp#13085).",
            first="Leave a margin: lower uBatchSize (-ub) or contextSizePerSlot (-c), and see that nobody else uses "
            "the GPU.",
            avoid="Do not count on a restart: it ends the same way once load comes back.",
            verify="The same load runs to its end without a restart.",
            knobs=("uBatchSize", "contextSizePerSlot"),
        ),
        FailureClass.OUT_OF_MEMORY_HOST: Entry(
            id="SLT207",
            code="OutOfMemoryHost",
            item=Item.MEMORY,
            title="Host memory ran out",
            cause="The process grew beyond the memory limit and the kernel ended it: by the KV cache of a long context "
            "or by weights that are no mapped file when it starts, by the host prompt cache while it serves.",
            first="Raise the container's memory limit, or lower what took the memory: cacheRAMMiB (--cache-ram), "
            "contextSizePerSlot (-c), or the weights.",
            avoid="Do not take a larger GPU: its memory was not what ran out.",
            verify="Host memory stays below the limit through the same load.",
            knobs=("cacheRAMMiB", "contextSizePerSlot", "parallelSlots", "cacheTypeK", "cacheTypeV", "variant"),
        ),
        FailureClass.CONFIGURATION_MISMATCH: Entry(
            id="SLT209",
            code="ConfigurationMismatch",
            item=Item.HEALTH,
            title="The server does not run as it was asked to",
            cause="What /props, /slots and the log state differs from the flags: a variable or a file overrules them, "
            "or something else answers on that port.",
            first="Look for LLAMA_ARG_ variables and configuration files in the image, and at who listens there.",
            avoid="Do not read its figures as those of this configuration.",
            verify="/props and /slots show the values that were asked for.",
        ),
        FailureClass.STARTUP_TIMEOUT: Entry(
            id="SLT212",
            code="StartupTimeout",
            item=Item.HEALTH,
            title="The server was not ready in time",
            cause="Loading the weights took longer than measurement.startupTimeout, mostly from slow storage.",
            first="Raise measurement.startupTimeout, or bring the file nearer: a local disk, a cache on the node.",
            avoid="Do not lower slots or context: they are small beside the reading of the weights.",
            verify="The time from its first log line to 'server is listening' is below the limit.",
        ),
        FailureClass.FOREIGN_CONTEXT: Entry(
            id="SLT213",
            code="ForeignContext",
            item=Item.REUSE,
            title="A prompt was answered from another prompt's context",
            cause="The prompt cache restored the state of another prompt, so users would get each other's answers "
            "(ggml-org/llama.cpp#27148).",
            first="Turn the host cache off (cacheRAMMiB 0), take a newer build, and report it.",
            avoid="Do not use this configuration, however fast it is.",
            verify="Canary prompts are answered the same with the cache and without it.",
            knobs=("cacheRAMMiB", "cacheReuse"),
        ),
    }
)
"""Class to entry, in the order of the classes. Those that are not here are found of servers as well, under the entry of
the rule that finds them: :data:`slotune.diagnose.failed_trials.FAILURES` has every class."""

ENTRIES: Final = tuple(OF_FAILURES.values())
