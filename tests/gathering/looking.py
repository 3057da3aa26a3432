"""A made cluster with a Deployment of one pod whose server is well, and looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slotune.diagnose.symptoms import Symptoms
from slotune.gathering.cluster import Wanted, look_in_cluster
from slotune.gathering.cluster_reader import ClusterReader
from slotune.tuning.errors import InvalidInputError
from tests.gathering.api_server import ApiServer

POD = "chat-5d4f-a"
LOGS = Path(__file__).parents[1] / "llama" / "logs"
START = (LOGS / "all_defaults.log").read_bytes()
KEY = "open sesame"


@dataclass
class Look:
    """One cluster, and what is told about it."""

    server: ApiServer
    reader: ClusterReader
    told: list[str] = field(default_factory=list)

    async def take(self, name: str = "chat", namespace: str = "shop", **more: Any) -> tuple[Symptoms, ...]:
        return await look_in_cluster(self.reader, namespace, Wanted(name, tell=self.told.append, **more))

    async def fails(self, kind: type[InvalidInputError], name: str = "chat", **more: Any) -> str:
        with pytest.raises(kind) as caught:
            await self.take(name, **more)
        assert type(caught.value) is kind
        return str(caught.value)
