"""What an operator knows when it starts, and what it forgets."""

from __future__ import annotations

import pytest

from slotune.controller.cluster import NotFoundError
from slotune.controller.kinds import GPU_CLASS, JOB, LLAMA_DEPLOYMENT, NODE, Kind
from slotune.controller.run import CRDsMissingError, fill, hold_on, lay_ghosts
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


async def test_looking_for_what_is_gone_reads_no_whole_object() -> None:
    class OnlyMetadata(FakeCluster):
        async def list_metadata(self, kind: Kind, namespace: str | None, labels: str = "") -> list[dict[str, object]]:
            return [{"metadata": {"uid": one["metadata"]["uid"]}} for one in self.all_of(kind, namespace)]

        async def list(self, *_: object, **__: object) -> list[dict[str, object]]:
            raise AssertionError("a list of whole objects")

    cluster, store = OnlyMetadata(), Store()
    store.put(await cluster.create(job("stays")))
    store.put(await cluster.create(job("goes")))
    await cluster.delete(JOB, "team", "goes")
    assert await lay_ghosts(store, cluster, ("team",)) == 1
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


def tuned(name: str, **metadata: object) -> dict[str, object]:
    named = {"namespace": "team", "name": name}
    return {"apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaDeployment", "metadata": named | metadata, "spec": {}}


async def test_the_finalizer_is_put_on_those_that_have_none_and_on_nothing_that_goes() -> None:
    cluster, store = FakeCluster(), Store()
    await cluster.create(tuned("new"))
    await cluster.create(tuned("shared", finalizers=["example.org/theirs"]))
    await cluster.create(tuned("held", finalizers=["slotune.dev/restore"]))
    await cluster.create(tuned("goes", finalizers=["example.org/theirs"], deletionTimestamp="2026-01-01T00:00:00Z"))
    await fill(store, cluster, ())
    held = await cluster.get(LLAMA_DEPLOYMENT, "team", "held")
    await hold_on(store, cluster)
    after = {key[1]: raw["metadata"] for key, raw in store.of(LLAMA_DEPLOYMENT).items()}
    assert {name: metadata["finalizers"] for name, metadata in after.items()} == {
        "new": ["slotune.dev/restore"],
        "shared": ["example.org/theirs", "slotune.dev/restore"],
        "held": ["slotune.dev/restore"],
        "goes": ["example.org/theirs"],
    }
    assert after["held"]["resourceVersion"] == held["metadata"]["resourceVersion"]


async def test_a_finalizer_of_somebody_else_that_came_meanwhile_is_not_lost() -> None:
    cluster, store = FakeCluster(), Store()
    await cluster.create(tuned("new"))
    await fill(store, cluster, ())
    await cluster.patch(LLAMA_DEPLOYMENT, "team", "new", {"metadata": {"finalizers": ["example.org/theirs"]}})
    await hold_on(store, cluster)
    found = await cluster.get(LLAMA_DEPLOYMENT, "team", "new")
    assert found["metadata"]["finalizers"] == ["example.org/theirs"]
