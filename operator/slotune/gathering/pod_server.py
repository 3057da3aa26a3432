"""A look at the server in one pod, through the API server; a look that failed says why, and is one all the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from slotune.controller.cluster import ClusterError, ForbiddenError
from slotune.controller.kinds import POD
from slotune.controller.listening import Listening
from slotune.diagnose.symptoms import ServerLook
from slotune.gathering.cluster_reader import ClusterReader
from slotune.gathering.look_errors import right
from slotune.gathering.pod_relay import relayed
from slotune.gathering.server import look_at
from slotune.tuning.errors import InvalidInputError

__all__ = ["LOOK_LIMIT_S", "look_at_pod"]

DOOR_LIMIT_S: Final = 2.0
LOOK_LIMIT_S: Final = 5.0
"""For the whole server; one that works takes less than one."""
_DOOR: Final = "/health"
_ENDPOINTS: Final = ("/props", "/slots", "/metrics")


async def look_at_pod(
    reader: ClusterReader, namespace: str, pod: str, listening: Listening, api_key: str | None
) -> ServerLook:
    """What the server shows. Raises nothing but being cancelled; ``refused`` has the reasons.

    Args:
        reader: the cluster.
        namespace: of the pod.
        pod: its name; it must run.
        listening: how its server listens.
        api_key: of the server; None for none.
    """
    url = listening.url(pod)
    try:
        async with asyncio.timeout(DOOR_LIMIT_S):
            await reader.ask_pod(
                namespace, pod, listening.port, f"{listening.prefix}{_DOOR}", encrypted=listening.is_encrypted
            )
    except TimeoutError:
        pass  # silence is a finding, and the look says how long it was
    except ForbiddenError as error:
        lacks = right("get", POD, namespace, "proxy")
        return _shut(url, f"not asked: your account lacks the right to {lacks} ({error.status})")
    except ClusterError as error:
        return _shut(url, error.message)
    async with relayed(reader, namespace, pod, listening) as address:
        try:
            look = await look_at(address, api_key, limit_s=LOOK_LIMIT_S)
        except InvalidInputError as error:
            return _shut(url, error.cure.replace(address, f"pod {pod}"))
    return replace(look, url=url)


def _shut(url: str, why: str) -> ServerLook:
    return ServerLook(url, refused=dict.fromkeys((_DOOR, *_ENDPOINTS), why))
