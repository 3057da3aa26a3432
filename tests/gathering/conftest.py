"""A cluster for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from slotune.gathering import pod_server
from slotune.gathering.cluster_reader import ClusterReader
from tests.gathering.api_server import api_server, llama_server
from tests.gathering.looking import POD, START, Look
from tests.gathering.pods import deployment, node, pod


@pytest.fixture
async def look(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Look]:
    """A Deployment of one pod whose server is well."""
    monkeypatch.setattr(pod_server, "BETWEEN_S", 0.01)
    async with api_server() as server:
        server.put(deployment(), pod(), node())
        server.logs[POD, False] = START
        server.servers[POD] = llama_server
        async with ClusterReader(ApiClient(Configuration(host=server.url))) as reader:
            yield Look(server, reader)
