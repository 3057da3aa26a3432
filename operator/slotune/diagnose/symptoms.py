"""All that is known about one server, whoever said it: the only thing that a rule may look at.

Each part is None when nobody said it. A rule that needs a part which is not there is undecided; it never guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from slotune.diagnose.evidence import Evidence
from slotune.diagnose.host import HostFacts
from slotune.diagnose.trouble import Trouble
from slotune.llama.log_story import LogStory
from slotune.llama.model_facts import ModelFacts
from slotune.llama.server_answers import Metrics, ModelMeta, Props, Slot
from slotune.load.device_facts import DeviceFacts
from slotune.verdict.promise import Promise

__all__ = ["UNNAMED", "GPUFacts", "NodeFacts", "PodFacts", "ProbeFacts", "ServerLook", "Symptoms"]

UNNAMED: Final = "the device"
"""Name of a device of which somebody gave figures and no name."""


@dataclass(frozen=True, slots=True)
class ServerLook:
    """What a running server showed, read only. An endpoint that it does not show is None."""

    url: str
    props: Props | None = None
    model: ModelMeta | None = None
    slots: tuple[Slot, ...] | None = None
    """Of several looks the one in which most of them were at work."""
    slots_still_s: float | None = None
    """Seconds up to the last look at them for which all that were at work stood at the same token; 0 when none was at
    work, None with one look alone."""
    metrics: Metrics | None = None
    """The first look."""
    metrics_later: Metrics | None = None
    """The last look, ``between_s`` after the first: differences of counters say what happens now."""
    between_s: float = 0.0
    looks_at_metrics: int = 0
    """These two, and those in between."""
    processing: tuple[int, ...] = ()
    """Requests at work, at each look."""
    deferred: tuple[int, ...] = ()
    """Requests that waited for a slot, at each look."""
    health_s: float | None = None
    """Seconds that /health took: it never touches the thread that computes."""
    slots_s: float | None = None
    """Seconds that /slots took; it waits for the running decode (ggml-org/llama.cpp#24866)."""
    metrics_s: float | None = None
    """Seconds that the first /metrics took; it waits like /slots."""
    silent_s: Mapping[str, float] = field(default_factory=dict)
    """Endpoint to the seconds after which still no answer had come: one long decode (ggml-org/llama.cpp#24866), or a
    wedge (ggml-org/llama.cpp#27388). Each is in ``refused`` too."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Endpoint to why it said nothing, or less than it should: ``/metrics`` to ``off: start it with --metrics``."""
    sampling: Mapping[str, object] = field(default_factory=dict)
    """Sampling parameters that requests run with (/slots ``params``), else the defaults of /props."""
    sampling_source: Evidence | None = None
    request_params_seen: bool = False
    """Whether ``sampling`` is of a request, not of the defaults."""


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """A few requests, sent one at a time to a server that was otherwise idle; seconds and tokens/s, medians."""

    requests: int
    prompt_tokens: int
    overhead_s: float
    """TTFT from the send minus prompt_ms: network, template, tokenizing, first write."""
    prefill_tokens_per_s: float
    decode_step_s: float
    """Seconds per token of one sequence; 0 when no answer had two tokens."""
    short_prompt_overhead_s: float | None = None
    """The same of a prompt of a few tokens: what is left of overhead when there is nothing to tokenize."""
    cached_tokens_again: int | None = None
    """Cached tokens of a prompt that was sent a second time; about its length when the cache works."""
    connect_s: float | None = None
    """A new connection."""
    tokenize_s: float | None = None
    """/tokenize of the long prompts' text, network and all."""
    stream_s: float | None = None
    """From an answer's first token to its last, as they came in."""
    stream_made_s: float | None = None
    """The same as the server made them; much more than ``stream_s``: somebody holds tokens back."""
    was_idle: bool = True
    """False: somebody else's requests ran meanwhile, so the figures are upper bounds of time."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod of the server, as the API server shows it."""

    name: str
    image: str | None = None
    args: tuple[str, ...] = ()
    """Command and arguments of the server's container, with variables filled in where they could be."""
    env: Mapping[str, str] = field(default_factory=dict)
    """LLAMA_ARG_* and the like; values of secrets are never read."""
    cpu_limit: float | None = None
    """Cores."""
    memory_limit_bytes: int | None = None
    gpus: int = 0
    """Devices that its containers ask for."""
    gpu_parts: tuple[str, ...] = ()
    """Resources and DeviceClasses by which they ask for a part of a device: ``nvidia.com/mig-1g.5gb``. The labels of
    its node may name the whole."""
    restarts: int = 0
    last_exit: tuple[str, int] | None = None
    """(reason, exit code) of the last container that ended."""
    last_exit_ago_s: float | None = None
    """Seconds since then; None where nobody says when it was."""
    ready: bool | None = None
    events: tuple[Evidence, ...] = ()
    """Warnings about it, newest first."""
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Where the container mounts, to what kind of volume: ``/models`` to ``nfs``."""
    ready_after_s: float | None = None
    """Seconds from the start of the running container to when the pod was ready last, so at most what a start takes."""
    phase: str | None = None
    """``Pending``, ``Running``, …"""
    age_s: float | None = None
    """Seconds since it was made."""
    running_s: float | None = None
    """Seconds since the server's container was started; None while it does not run."""
    troubles: tuple[Trouble, ...] = ()
    """What keeps it from being ready, of every container; in ``events`` too, as it is quoted."""
    containers: int = 1
    """Those that go on side by side, the server's among them."""
    last_exit_message: str = ""
    """What Kubernetes says of ``last_exit``: why a program could not be started, or the container's own last words."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The node that it runs on."""

    name: str
    cores: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    pressures: tuple[str, ...] = ()
    """Conditions such as ``MemoryPressure`` that are true."""
    memory_bytes: int | None = None
    """Of the machine."""
    swap_bytes: int | None = None
    """Room for swap; None where its kubelet does not say."""


@dataclass(frozen=True, slots=True)
class GPUFacts:
    """What the accelerator could do at best, and what it costs."""

    name: str
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    """Dense matrix operations a second at 8 or 16 bits, whichever its kernels are faster at."""
    price_per_hour: float | None = None
    currency: str = "USD"
    """Of the price, as a GPUClass names it."""


@dataclass(frozen=True, slots=True)
class Symptoms:
    """One server."""

    name: str
    """The file, the address or the pod."""
    log: LogStory | None = None
    server: ServerLook | None = None
    probe: ProbeFacts | None = None
    pod: PodFacts | None = None
    node: NodeFacts | None = None
    device: DeviceFacts | None = None
    device_evidence: tuple[Evidence, ...] = ()
    """Where ``device`` came from."""
    host: HostFacts | None = None
    """Memory of its process, where that could be looked at."""
    gpu: GPUFacts | None = None
    model: ModelFacts | None = None
    """Of the weights file, where it can be read."""
    promise: Promise | None = None
    flags: tuple[str, ...] = ()
    """Arguments that the server was started with, where they are known."""
