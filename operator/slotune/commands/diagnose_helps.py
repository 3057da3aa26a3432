"""What a person gives beside a server so that it can be judged: its device, its weights, what is owed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from slotune.api.quantities import QuantityError, parse_decimal, parse_quantity
from slotune.diagnose.accelerators import known_accelerator
from slotune.diagnose.evidence import Evidence
from slotune.diagnose.host import HostFacts
from slotune.diagnose.symptoms import UNNAMED, GPUFacts, Symptoms
from slotune.gathering.device_file import read_device_file
from slotune.gathering.proc_file import read_proc_file
from slotune.llama.gguf_facts import read_facts
from slotune.llama.model_facts import ModelFacts
from slotune.load.device_facts import DeviceFacts
from slotune.tuning.errors import InvalidInputError
from slotune.verdict.promise import Promise

__all__ = ["Helps", "read_helps", "read_key"]

_LONGEST_KEY = 4096
"""More than servers take in a line of a request's head, most often."""


@dataclass(frozen=True, slots=True)
class Helps:
    """None is what was not given."""

    promise: Promise | None = None
    gpu: GPUFacts | None = None
    model: ModelFacts | None = None
    device: DeviceFacts | None = None
    device_evidence: tuple[Evidence, ...] = ()
    host: HostFacts | None = None
    key: str | None = None
    notes: tuple[str, ...] = ()

    def added_to(self, symptoms: Symptoms) -> Symptoms:
        """What a person gave counts before what was found."""
        return replace(
            symptoms,
            promise=self.promise or symptoms.promise,
            gpu=_joined(self.gpu, symptoms.gpu),
            model=self.model or symptoms.model,
            device=self.device or symptoms.device,
            device_evidence=self.device_evidence or symptoms.device_evidence,
            host=self.host or symptoms.host,
        )


def read_helps(
    *,
    nvidia_smi: Path | None,
    model: Path | None,
    api_key_file: Path | None,
    files: Sequence[str],
    name: str | None,
    gpu_class: str | None,
    bandwidth: str | None,
    price_per_hour: str | None,
    proc: Path | None = None,
) -> Helps:
    """Read every file that was named.

    Raises:
        InvalidInputError: one of them can't be used, or a number is none.
        InvalidManifest: the manifest is wrong.
        UnreadableModelError: the weights can't be read.
    """
    width = None if bandwidth is None else _number("--bandwidth", bandwidth)
    price = None if price_per_hour is None else _number("--price-per-hour", price_per_hour)
    promise, declared, notes = _from_manifest(files, name, gpu_class) if files else _by_name(name, gpu_class)
    given = None
    if width is not None or price is not None:
        given = GPUFacts(
            UNNAMED if declared is None else declared.name,
            bandwidth_bytes_per_s=None if width is None else float(width),
            price_per_hour=None if price is None else float(price),
            currency="USD" if declared is None else declared.currency,
        )
    device, evidence = (None, ()) if nvidia_smi is None else read_device_file(nvidia_smi)
    return Helps(
        promise=promise,
        gpu=_joined(given, declared),
        model=None if model is None else read_facts(model, hashed=False),
        device=device,
        device_evidence=evidence,
        host=None if proc is None else read_proc_file(proc),
        key=None if api_key_file is None else read_key(api_key_file),
        notes=notes,
    )


def read_key(path: Path) -> str:
    """The key in a file. Raises InvalidInputError."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            key = file.read(_LONGEST_KEY + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("--api-key-file", path, "can't be read: name a text file with the key") from error
    if not key:
        raise InvalidInputError("--api-key-file", path, "is empty: write the key into it")
    if len(key) > _LONGEST_KEY:
        cure = f"is longer than any key ({_LONGEST_KEY:,} characters): name a file that holds nothing but the key"
        raise InvalidInputError("--api-key-file", path, cure)
    return key


def _by_name(name: str | None, gpu_class: str | None) -> tuple[None, GPUFacts | None, tuple[str, ...]]:
    """Without a manifest, what is known of a device by its name. Raises InvalidInputError."""
    if name is not None:
        raise InvalidInputError("--name", name, "is looked up in a manifest: name its file with -f FILE")
    if gpu_class is None:
        return None, None, ()
    if known_accelerator(gpu_class) is None:
        cure = "is no device of known figures, such as 'RTX 4090': write so, or name the GPUClass's file with -f FILE"
        raise InvalidInputError("--gpu-class", gpu_class, cure)
    return None, GPUFacts(gpu_class), ()


def _from_manifest(
    files: Sequence[str], name: str | None, gpu_class: str | None
) -> tuple[Promise, GPUFacts | None, tuple[str, ...]]:
    from slotune.commands.diagnose_manifest import read_manifest  # noqa: PLC0415  (a third of a second)

    return read_manifest(files, name, gpu_class)


_SLOWEST_MEMORY, _FASTEST_MEMORY = Decimal(10**9), Decimal(10**14)
"""Bytes/s: less than any memory that a model is served from, and ten times the fastest of today."""


_AS_ON_DATA_SHEETS = re.compile(r"([0-9.]+) ?([kMGTP]i?)?(?:B(?:/s|/sec|ps)?|/s)?", re.ASCII)
_BITS = re.compile(r"[0-9] ?[kKmMgGtTpP]?i?(?:b|bit)(?:/s|/sec|ps|s)?$", re.ASCII)
_EXPONENT = re.compile(r"\+?[0-9.]+[eE][-+]?[0-9]+", re.ASCII)


def _quantity(text: str) -> str:
    """A bandwidth as data sheets write it, ``1008 GB/s``, as a quantity; anything else as it is."""
    found = _AS_ON_DATA_SHEETS.fullmatch(text.strip())
    return text if found is None else found[1] + (found[2] or "")


def _number(flag: str, text: str) -> Decimal:
    """A number above 0. Raises InvalidInputError."""
    is_width = flag == "--bandwidth"
    cure = "a number above 0 is needed, such as " + ("300G, or 300GB/s" if is_width else "0.80")
    try:
        value = parse_quantity(_quantity(text), flag) if is_width else parse_decimal(text, flag)
    except QuantityError as error:
        if is_width and _BITS.search(text):
            cure = "a small b stands for bits: bytes a second are needed, such as 300G, or 300GB/s"
        elif _EXPONENT.fullmatch(text):
            cure = f"write it without an exponent, such as {'300G' if is_width else '0.80'}"
        raise InvalidInputError(flag, text, cure) from error
    if value <= 0:
        raise InvalidInputError(flag, text, cure)
    if is_width and not _SLOWEST_MEMORY <= value <= _FASTEST_MEMORY:
        raise InvalidInputError(flag, text, "no memory moves so many bytes a second: is a unit missing, as in 300G?")
    return value


def _joined(first: GPUFacts | None, second: GPUFacts | None) -> GPUFacts | None:
    """``first``, with what it lacks from ``second``."""
    if first is None or second is None:
        return first or second
    return GPUFacts(
        second.name if first.name == UNNAMED else first.name,
        first.bandwidth_bytes_per_s or second.bandwidth_bytes_per_s,
        first.flops_per_s or second.flops_per_s,
        first.price_per_hour or second.price_per_hour,
        # A price without a class of its own is in the currency of the class that it is given for.
        second.currency if first.price_per_hour is None or first.name == UNNAMED else first.currency,
    )
