"""Where the weights are read from, how long that takes, and who waits for it: each start, or the first requests.

Measured with build 11549: before /health says ok a mapped file is in memory as a whole, for a GPU gets a copy of its
weights while they are loaded, and the warm-up computes with all of them. So a slow volume costs the start. It costs
requests where the warm-up was turned off, or where memory is too short to keep what was read (SLT038).
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import build_of, shown, stated, weights_bytes
from slotune.diagnose.rules.storage import storage_of
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.flag_history import REMOVED_FLAGS
from slotune.llama.flag_settings import Setting

__all__ = ["WEIGHTS_FROM_SLOW_STORAGE", "read_whole", "weights_from_slow_storage"]

MIB: Final = 2**20
SHORT_S: Final = 30.0
"""A start that takes no longer is slow for nobody: Kubernetes itself takes seconds to a minute for a pod."""
LOCAL_BYTES_PER_S: Final = 300e6
"""What a disk in the machine gives at least: a SATA SSD 500 MB/s; a share over 1 Gbit/s gives 110."""
MUCH_SLOWER: Final = 3.0
"""The first prompt against the others: prompts of one server differ by less where nothing else does."""
LONG_ENOUGH_S: Final = 2.0
"""Seconds that the first prompt lost before anybody would notice."""
_WHOLE: Final = (("none",), ("dio",))
"""Ways of loading (-lm) after which all weights are memory of the process."""
_WHOLE_ONCE: Final = ("--no-mmap", "-dio", "--direct-io")
"""What older builds had in place of them."""
_LOCKED: Final = (("mlock",), ("mmap+mlock",))

WEIGHTS_FROM_SLOW_STORAGE: Final = Entry(
    id="SLT035",
    code="WeightsFromSlowStorage",
    item=Item.MEMORY,
    title="The weights come from slow storage",
    cause="All weights are read when the server starts, so on a share, a disk over the network or an object store each "
    "start takes as long as that needs. Requests wait for it only where the warm-up was turned off (--no-warmup): then "
    "a mapped page is read when it is used for the first time.",
    first="Keep the file on the node (a local volume, or an image volume), so that a restart reads it from there.",
    avoid="Do not turn the warm-up off to be ready sooner: the first requests then wait for the same bytes.",
    verify="The time from the first line of the log to model loaded, and the first long prompt after a restart takes "
    "as long as the tenth.",
    knobs=("extraArgs",),
)


def weights_from_slow_storage(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether the weights come from where reading them takes long, and whether that was to be noticed."""
    late = _first_prompt_waited(symptoms)
    start = _start(symptoms)
    took = "" if start is None else f", and it was up {_about(start[0])} after its start"
    where = _volume(symptoms)
    if where is None:
        return late or _by_time(symptoms, start) or Undecided(_needs(symptoms))
    kind, told = where
    storage = storage_of(kind)
    if storage is not None and not storage.is_remote:
        return Clear("the model file lies on the node", told)
    if storage is None:
        return late or _by_time(symptoms, start) or Undecided(_needs(symptoms, kind))
    if late is not None:
        return late
    if start is not None and start[0] <= SHORT_S:
        return Clear(f"the weights lie {storage.value}{took}", (*told, start[1]))
    return Finding(
        WEIGHTS_FROM_SLOW_STORAGE,
        f"the weights lie {storage.value} ({kind}), so each start waits for it{took}{_rate(symptoms, start)}",
        told if start is None else (*told, start[1]),
        Severity.INFO,
        Confidence.LIKELY if start is None else Confidence.CERTAIN,
        first=_first(symptoms),
    )


def _needs(symptoms: Symptoms, kind: str | None = None) -> str:
    log = "a log with time stamps that holds the server's start"
    if kind is not None:
        claim = "" if "(class" not in kind else ", or the right to get PersistentVolumes"
        return f"{log}: {kind} may be storage of any kind{claim}"
    weights = symptoms.log is not None and symptoms.log.loaded_s is not None
    if weights:
        return "--model FILE, or a log with -lv 4: how large the weights are that took so long to load"
    return log if symptoms.pod is not None else f"{log}, or --deployment: the volumes of its pods"


def _volume(symptoms: Symptoms) -> tuple[str, tuple[Evidence, ...]] | None:
    """(Kind of the volume that the model file lies on, who says so); None: not known."""
    pod, path = symptoms.pod, _model_path(symptoms)
    if pod is None or not path.startswith("/"):
        return None
    mounts = [mount for mount in pod.volumes if PurePosixPath(path).is_relative_to(mount)]
    if not mounts:
        return "image", (Evidence(Source.POD, f"no volume is mounted over {path}"[:LONGEST]),)
    mount = max(mounts, key=len)
    kind = pod.volumes[mount]
    return kind, (Evidence(Source.POD, f"{mount} is of {kind}"[:LONGEST]),)


def _start(symptoms: Symptoms) -> tuple[float, Evidence] | None:
    """(Seconds that the start took, at most, who says so)."""
    log, pod = symptoms.log, symptoms.pod
    if log is not None and log.loaded_s is not None:
        line = log.fact_lines.get("ready")
        words = "model loaded" if line is None else line.text
        return log.loaded_s, Evidence(Source.LOG, words[:LONGEST], None if line is None else line.number)
    if pod is not None and pod.ready_after_s is not None:
        return pod.ready_after_s, Evidence(Source.POD, f"Ready {pod.ready_after_s:.0f} s after the container started")
    return None


def _rate(symptoms: Symptoms, start: tuple[float, Evidence] | None) -> str:
    weights = weights_bytes(symptoms)
    if start is None or weights is None or not start[0]:
        return ""
    return f": {weights / MIB:,.0f} MiB, {weights / start[0] / 1e6:,.0f} MB a second at least"


def _by_time(symptoms: Symptoms, start: tuple[float, Evidence] | None) -> Finding | Clear | None:
    """By how long the start took, whatever the weights lie on."""
    if start is None:
        return None
    seconds, told = start
    if seconds <= SHORT_S:
        return Clear(f"the weights were loaded {_about(seconds)} after its start", (told,))
    weights = weights_bytes(symptoms)
    # A time of the pod is an upper bound: it may have been ready before, and not for a while.
    if weights is None or told.source is Source.POD:
        return None
    if weights / seconds >= LOCAL_BYTES_PER_S:
        return Clear(f"the weights were loaded in {_about(seconds)}, as fast as from a disk of its own", (told,))
    return Finding(
        WEIGHTS_FROM_SLOW_STORAGE,
        f"the start took {_about(seconds)}{_rate(symptoms, start)}",
        (told,),
        Severity.INFO,
        Confidence.POSSIBLE,
        first="Start it a second time: if that is much faster, the file came from slow storage and is now in the page "
        "cache; if not, it is the copy to the GPU or the warm-up that takes so long.",
    )


def _first_prompt_waited(symptoms: Symptoms) -> Finding | None:
    """Whether a server without warm-up was much slower at its first prompt than later."""
    log, setting = symptoms.log, stated(symptoms).get("--warmup")
    requests = None if log is None else log.requests
    if log is None or requests is None or log.starts < 1 or setting is None or setting.on:
        return None
    if requests.first_prompt is None or requests.prefill_tokens_per_s is None or read_whole(symptoms) is not None:
        return None
    tokens, ms = requests.first_prompt
    usual_s, first_s = tokens / requests.prefill_tokens_per_s[1], ms / 1e3
    if first_s < MUCH_SLOWER * usual_s or first_s - usual_s < LONG_ENOUGH_S:
        return None
    return Finding(
        WEIGHTS_FROM_SLOW_STORAGE,
        f"the first prompt after the start took {first_s:.1f} s, as many tokens take {usual_s:.1f} s later",
        (shown(setting), Evidence(Source.LOG, f"first prompt {ms:.0f} ms / {tokens} tokens")),
        Severity.WARNING,
        Confidence.LIKELY,
        cost=Cost(ttft_s=first_s - usual_s),
        first="Leave --no-warmup out: then the weights are read before the server says that it is ready.",
    )


def _first(symptoms: Symptoms) -> str | None:
    """Beside keeping the file near: in one go a share is read several times as fast as page by page."""
    if read_whole(symptoms) is not None or any(_locks(symptoms)):
        return None
    build, history = build_of(symptoms), REMOVED_FLAGS["--no-mmap"]
    if build is None or history.present < build[0] < history.absent:
        flag = f"--load-mode none (before b{history.present}: --no-mmap)"
    else:
        flag = "--load-mode none" if build[0] >= history.absent else "--no-mmap"
    return (
        f"{WEIGHTS_FROM_SLOW_STORAGE.first} Where it must stay there, compare a start with {flag}, which reads it in "
        "one go and needs memory for all of it."
    )


def _locks(symptoms: Symptoms) -> list[Setting]:
    settings = stated(symptoms)
    mode = settings.get("-lm")
    locked = [] if mode is None or mode.values[:1] not in _LOCKED else [mode]
    return [*locked, *(settings[name] for name in ("--mlock",) if name in settings)]


def _about(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def _model_path(symptoms: Symptoms) -> str:
    """As stated, or as the server says; empty when neither does."""
    setting = stated(symptoms).get("-m")
    if setting is not None and setting.values:
        return setting.values[0]
    props = None if symptoms.server is None else symptoms.server.props
    return "" if props is None else props.model_path


def read_whole(symptoms: Symptoms) -> Evidence | None:
    """The argument by which all weights are read into memory of the process, in place of being mapped."""
    settings = stated(symptoms)
    mode = settings.get("-lm")
    if mode is not None:
        return shown(mode) if mode.values[:1] in _WHOLE else None
    return next((shown(settings[name]) for name in _WHOLE_ONCE if name in settings), None)
