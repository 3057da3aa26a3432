"""A look at the server in one pod, through the API server; a look that failed says why, and is one all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from slotune.controller.cluster import ClusterError, ForbiddenError
from slotune.controller.kinds import POD
from slotune.diagnose.checkup import NOT_ASKED
from slotune.diagnose.symptoms import ProbeFacts, ServerLook
from slotune.gathering.cluster_reader import ClusterReader, PodPlace
from slotune.gathering.look_errors import right
from slotune.gathering.pod_relay import relayed
from slotune.gathering.server import look_at
from slotune.gathering.watching import Watch
from slotune.tuning.errors import InvalidInputError

__all__ = ["Probe", "look_at_pod", "probe_pod"]

Probe = Callable[[str, str | None, ServerLook], Awaitable[ProbeFacts]]
"""Sends a few requests to a URL, with an API key if there is one, to a server that showed this much."""

DOOR_LIMIT_S: Final = 2.0
LOOK_LIMIT_S: Final = 5.0
"""For the whole server; one that works takes less than one."""
BETWEEN_S: Final = 0.5
"""From one look at the metrics to the next."""
_DOOR: Final = "/health"
_ENDPOINTS: Final = ("/props", "/slots", "/metrics")


async def look_at_pod(
    reader: ClusterReader, place: PodPlace, api_key: str | None, watch: Watch | None = None
) -> ServerLook:
    """What the server shows. Raises nothing but being cancelled; ``refused`` has the reasons.

    Args:
        reader: the cluster.
        place: of a server that runs.
        api_key: of the server; None for none.
        watch: how long the look goes on; None for two moments.
    """
    url = place.listening.url(place.pod)
    try:
        async with asyncio.timeout(DOOR_LIMIT_S), reader.ask_pod(place, _DOOR):
            pass
    except TimeoutError:
        pass  # silence is a finding, and the look says how long it was
    except ForbiddenError as error:
        missing = right("get", POD, place.namespace, "proxy")
        return _shut(url, f"{NOT_ASKED}your account lacks the right to {missing} ({error.status})")
    except ClusterError as error:
        return _shut(url, error.message)
    async with relayed(reader, place) as address:
        try:
            look = await look_at(address, api_key, between_s=BETWEEN_S, limit_s=LOOK_LIMIT_S, watch=watch)
        except InvalidInputError as error:
            return _shut(url, _in_pod(error.cure.replace(address, f"pod {place.pod}"), place))
    return replace(look, url=url)


async def probe_pod(
    reader: ClusterReader, place: PodPlace, api_key: str | None, look: ServerLook, probe: Probe
) -> ProbeFacts:
    """What a probe of the server finds; what it raises."""
    async with relayed(reader, place, may_send=True) as address:
        return await probe(address, api_key, look)


def _in_pod(cure: str, place: PodPlace) -> str:
    """Words for a server at an address, as somebody can follow them who looks at a pod."""
    if "llama-server's router" in cure:
        return (
            "this is llama-server's router: the server that it started for the model listens inside of the pod; "
            f"kubectl port-forward {place.pod} PORT, and give --url http://127.0.0.1:PORT"
        )
    return cure.replace(" (--log FILE shows how far it is)", "")


def _shut(url: str, why: str) -> ServerLook:
    return ServerLook(url, refused=dict.fromkeys((_DOOR, *_ENDPOINTS), why))
