"""What an operator knows when it starts, and what it forgets."""

from __future__ import annotations

import pytest

from slotune.controller.cluster import NotFoundError
from slotune.controller.kinds import GPU_CLASS, JOB, LLAMA_DEPLOYMENT, NODE, Kind
from slotune.controller.run import CRDsMissingError, fill, lay_ghosts
from slotune.controller.store import Store
from tests.controller.fake_cluster import FakeCluster


def job(name: str) -> dict[str, object]:
    labels = {"app.kubernetes.io/managed-by": "slotune"}
    metadata = {"namespace": "team", "name": name, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}


async def test_a_job_that_went_while_nobody_watched_is_forgotten() -> None:
    cluster, store = FakeCluster(), Store()
    await cluster.create(job("stays"))
    await cluster.create(job("goes"))
    await fill(store, cluster, ())
    await cluster.delete(JOB, "team", "goes")
    assert await lay_ghosts(store, cluster, ()) == 1
    assert [key[1] for key in store.of(JOB)] == ["stays"]


async def test_a_cluster_without_the_kinds_says_what_to_apply() -> None:
    class Bare(FakeCluster):
        async def list(
            self, kind: Kind, namespace: str | None, labels: str = "", fields: str = ""
        ) -> list[dict[str, object]]:
            raise NotFoundError("GET /apis/slotune.dev/v1alpha1/llamadeployments", 404, "page not found")

    with pytest.raises(CRDsMissingError, match="slotune crds"):
        await fill(Store(), Bare(), ())


async def test_kinds_of_the_whole_cluster_are_followed_where_the_role_allows() -> None:
    assert {LLAMA_DEPLOYMENT, GPU_CLASS, NODE} <= await fill(Store(), FakeCluster(), ("team",))
