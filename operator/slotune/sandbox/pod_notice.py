"""What the log, the arguments and the limits of a trial's server in a pod say beside the numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from slotune.api.gpu_resources import devices_in
from slotune.api.quantities import QuantityError, parse_quantity
from slotune.diagnose.symptoms import PodFacts
from slotune.diagnose.trial_server import notice
from slotune.sandbox.pod_case import Case
from slotune.sandbox.pod_facts import ContainerFacts
from slotune.sandbox.server_log import story_of
from slotune.search.noticed import Noticed
from slotune.search.trial import TrialResult

__all__ = ["noticed_in"]

_SETTINGS: Final = "LLAMA_ARG_"
"""Beginning of the variables that are arguments, and hold no keys."""


def noticed_in(case: Case, result: TrialResult) -> tuple[Noticed, ...]:
    """What is found of the server of ``case``, which came to ``result``."""
    if case.server is None:
        return ()
    pod = _pod(case, case.server)
    log = story_of(case.server_parts, pod.name)
    return notice(result, log, is_gpu=case.gpu_expected, is_generated=case.is_generated, pod=pod)


def _pod(case: Case, server: ContainerFacts) -> PodFacts:
    """Its limits and arguments. How often it was started, and how it ended, is judged by who judges the trial."""
    devices = sum(devices_in(name, amount) for name in server.limits if (amount := _amount(server, name)) is not None)
    cores, memory = _amount(server, "cpu"), _amount(server, "memory")
    return PodFacts(
        name=case.pod.name,
        image=server.image,
        args=server.words,
        env={name: value for name, value in server.env.items() if name.startswith(_SETTINGS)},
        cpu_limit=None if cores is None else float(cores),
        memory_limit_bytes=None if memory is None else math.ceil(memory),
        gpus=devices or int(case.gpu_expected),
    )


def _amount(server: ContainerFacts, name: str) -> Decimal | None:
    text = server.limits.get(name)
    try:
        return None if text is None else parse_quantity(text, name)
    except QuantityError:
        return None
