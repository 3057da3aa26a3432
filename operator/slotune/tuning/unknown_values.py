"""Values that the manifests do not say: those of Secrets, and what only a running pod knows.

A flag that counts for what is measured and has such a value is refused. Where the value makes no difference it is none
of slotune's business.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from slotune.llama.flag_cures import MODEL_FLAGS, UNMEASURED
from slotune.llama.flag_reading import Setting
from slotune.llama.flag_table import FLAGS
from slotune.llama.flags import EMITTED
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.pod_reading import PodReading, references_in

__all__ = ["check_references", "check_variables"]

_FLAG_VARIABLES: Final = ("LLAMA_ARG_", "LLAMA_OFFLINE", "LLAMA_CACHE")
"""Variables that are flags of llama-server; an API key is none that changes a measurement."""

_TEXTS: Final = frozenset({"--host", "-a"})
"""Of what slotune writes itself, the flags that a reference may stay in: nothing is computed from them."""
_READ: Final = frozenset({flag.name for flag in EMITTED} | MODEL_FLAGS) - _TEXTS


def check_variables(pod: PodReading, where: str, stated: Collection[str]) -> None:
    """Refuse a variable of llama-server's that cannot be read: what runs today would be guesswork.

    Not where it makes no difference: ``stated`` are the flags (first spellings) that arguments state, which win, and an
    address or a name is a trial's own.
    """
    if pod.missing:
        raise InvalidInputError(
            f"{where} envFrom.configMapRef.name",
            pod.missing[0],
            "there is no such ConfigMap: add it, llama-server may get flags from it",
        )
    indifferent = {*stated, *_TEXTS, *UNMEASURED}
    for variable in pod.variables.values():
        flags = [flag.name for flag in FLAGS if variable.name in {flag.env, flag.negative_env}]
        if indifferent.intersection(flags):
            continue
        if variable.value is None and variable.name.startswith(_FLAG_VARIABLES):
            raise InvalidInputError(
                f"{where} env {variable.name}",
                None,
                f"it is a flag of llama-server, and {variable.unknown}: state the flag in args, or in a ConfigMap",
            )


def check_references(pod: PodReading, where: str, settings: Sequence[Setting]) -> None:
    """Refuse a setting that slotune has to know and that is a reference still."""
    for setting in settings:
        if setting.flag.name not in _READ:
            continue
        for value in setting.values:
            if references_in(value):
                raise InvalidInputError(
                    f"{where} {'args' if setting.variable is None else 'env'} {setting.spelling}",
                    value,
                    f"slotune has to know it, and {pod.why_unknown(value)}: state it, or take it from a ConfigMap",
                )
