"""Where a llama-server in production is asked: its port, the prefix of its paths, and whether it speaks TLS.

Read from the same flags and variables as the baseline, but without a look at the weights: also while little else of a
server is understood, its answers have to be counted before its pod goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotune.api.manifests import Manifests
from slotune.controller.trial_pods import DEFAULT_PORT
from slotune.llama.flag_reading import read
from slotune.tuning.pod_reading import PodReading, read_pod

__all__ = ["Listening", "listening_in", "listening_of"]


@dataclass(frozen=True, slots=True)
class Listening:
    """How a llama-server is reached at the address of its pod."""

    port: int = DEFAULT_PORT
    prefix: str = ""
    """Of every path, as ``--api-prefix`` says it."""
    is_encrypted: bool = False
    """Whether it speaks TLS: it does once it has both a key and a certificate."""

    def url(self, host: str) -> str:
        """What stands before a path such as ``/slots``. ``host``: an address, in brackets where it is IPv6."""
        return f"{'https' if self.is_encrypted else 'http'}://{host}:{self.port}{self.prefix}"


def listening_of(manifests: Manifests | None) -> Listening:
    """How the server of ``manifests`` listens; as llama-server does by itself where nothing is known."""
    if manifests is None:
        return Listening()
    return listening_in(read_pod(manifests.template, manifests.container, manifests.config_maps))


def listening_in(pod: PodReading) -> Listening:
    """How a server listens that is started in this way."""
    # Of several the last one counts, which is an argument before a variable.
    stated = {one.flag.name: one.values[-1] for one in read(pod.arguments, pod.environment).settings if one.values}
    port = stated.get("--port", "")
    return Listening(
        port=int(port) if port.isdecimal() and int(port) else DEFAULT_PORT,
        prefix=stated.get("--api-prefix", "").rstrip("/"),
        is_encrypted=bool(stated.get("--ssl-key-file")) and bool(stated.get("--ssl-cert-file")),
    )
