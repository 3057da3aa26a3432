"""What this machine can stand for: one GPU class, one engine, and a name that tells its results from another's."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from slotune.api.manifests import Manifests
from slotune.llama.engine import Engine
from slotune.llama.engine_flags import EngineFlagError, parse_arguments
from slotune.llama.flag_cures import closest_flag
from slotune.llama.flag_table import BY_NAME
from slotune.llama.flags import to_args
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.reading import Reading

__all__ = ["check_engine", "one_class", "this_machine"]

_DESCRIPTIONS = ("/proc/driver/nvidia/gpus", "/sys/class/kfd/kfd/topology/nodes")


def one_class(manifests: Manifests, chosen: str | None) -> str:
    """The GPU class that this machine is one of.

    Raises:
        InvalidInputError: several are declared and none was chosen: numbers of this machine say nothing about others.
    """
    names = list(manifests.gpu_classes)
    if chosen is None and len(names) == 1:
        return names[0]
    if chosen in names:
        assert chosen is not None
        return chosen
    cure = f"name the one that this machine is: one of {', '.join(names)}"
    if chosen is None:
        raise InvalidInputError(
            "--gpu-class", None, f"spec.gpuClasses has several, and they can't all be measured here: {cure}"
        )
    raise InvalidInputError("--gpu-class", chosen, cure)


def check_engine(engine: Engine, reading: Reading) -> None:
    """Refuse flags of the user's server that the embedded engine does not take, before anything is started.

    Raises:
        InvalidInputError: the flag, and how to measure with it.
    """
    if engine.kind != "embedded":
        return
    arguments = to_args(
        reading.problem.baseline, model_path="x", host="127.0.0.1", port=0, alias="x", threads=1, draft_path="x"
    )
    try:
        parse_arguments(arguments)
    except EngineFlagError as error:
        close = None if error.flag in BY_NAME else closest_flag(error.flag)
        meant = f" (did you mean {close}?)" if close else ""
        raise InvalidInputError(
            "--engine",
            "embedded",
            f"it takes only the flags that slotune tunes, and your server has {error.flag}{meant}: name a llama-server "
            "of your own with --engine PATH, or leave that flag out of the manifest for this measurement",
        ) from error


def this_machine() -> str:
    """A digest of what speed depends on: processor, cores that may be used, GPUs. The same machine says the same."""
    said = [platform.machine(), _processor(), str(len(os.sched_getaffinity(0)))]
    for folder in map(Path, _DESCRIPTIONS):
        if folder.is_dir():
            # Model and identity only: interrupts and minor numbers change when the machine starts again.
            told = (_read(path) for path in folder.glob("*/*") if path.name in {"information", "name"})
            said += sorted(line for text in told for line in text.splitlines() if _names_a_gpu(line))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def _names_a_gpu(line: str) -> bool:
    key, colon, _ = line.partition(":")
    return not colon or key.strip() in {"Model", "GPU UUID"}


def _processor() -> str:
    lines = _read(Path("/proc/cpuinfo")).splitlines()
    return next((line for line in lines if line.startswith("model name")), platform.processor())


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
