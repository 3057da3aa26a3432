"""The cache never goes back in time, and what is gone stays gone, in whatever order watches and answers arrive."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slotune.controller.cluster import Object
from slotune.controller.kinds import CONFIG_MAP, DEPLOYMENT, JOB, LLAMA_TRIAL
from slotune.controller.store import Store

OWNER = "slotune.dev/deployment"


def job(version: int | str, *, uid: str = "u1", name: str = "a", **labels: str) -> Object:
    metadata = {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata | {"managedFields": [{"manager": "x"}]}}


def version_of(store: Store, name: str = "a") -> str | None:
    found = store.get(JOB, "shop", name)
    return None if found is None else found["metadata"]["resourceVersion"]


@given(st.permutations(range(1, 7)))
def test_the_newest_version_stays_in_whatever_order_they_come(order):
    store = Store()
    for version in order:
        store.put(job(version))
    assert version_of(store) == "6"


def test_versions_are_numbers_and_no_texts():
    store = Store()
    assert store.put(job(9))
    assert store.put(job(10))
    assert not store.put(job(9))
    assert not store.put(job(10))


def test_what_is_gone_does_not_come_back_with_older_news_and_its_successor_does():
    store = Store()
    store.put(job(1))
    store.remove(job(3))
    assert not store.put(job(2))
    assert version_of(store) is None
    assert store.put(job(4, uid="u2"))
    store.remove(job(3, uid="u1"))  # late news of the one before
    assert version_of(store) == "4"


def test_what_is_gone_before_it_was_seen_is_never_seen():
    store = Store()
    store.remove(job(2))
    assert not store.put(job(1))


@given(st.integers(0, 10_000))
def test_any_order_of_news_and_answers_ends_with_what_is_there(seed):
    random = Random(seed)
    lives = [("u1", [1, 2, 3], 4), ("u2", [5, 6], 7), ("u3", [8, 9], None)]
    store, pending = Store(), [list(one) for one in lives]
    watch: list[tuple[str, Object]] = []
    answers: list[Object] = []
    for uid, versions, gone in pending:
        for version in versions:
            watch.append(("MODIFIED", job(version, uid=uid)))
            answers.append(job(version, uid=uid))
        if gone is not None:
            watch.append(("DELETED", job(gone, uid=uid)))
    random.shuffle(answers)
    while watch or answers:
        if watch and (not answers or random.random() < 0.6):
            kind, manifest = watch.pop(0)
            store.remove(manifest) if kind == "DELETED" else store.put(manifest)
        elif answers[-1]["metadata"]["uid"] == "u3" or not watch:
            store.put(answers.pop())
        else:
            answers.insert(0, answers.pop())
            kind, manifest = watch.pop(0)
            store.remove(manifest) if kind == "DELETED" else store.put(manifest)
    assert version_of(store) == "9"


def test_objects_are_found_by_the_label_of_their_owner():
    store = Store()
    store.put(job(1, name="b", **{OWNER: "chat"}))
    store.put(job(2, uid="u2", name="a", **{OWNER: "chat"}))
    store.put(job(3, uid="u3", name="c", **{OWNER: "other"}))
    names = [one["metadata"]["name"] for one in store.owned(JOB, "shop", "chat")]
    assert names == ["a", "b"]
    store.put(job(4, name="b", **{OWNER: "other"}))
    assert [one["metadata"]["name"] for one in store.owned(JOB, "shop", "chat")] == ["a"]
    store.remove(job(5, uid="u2", name="a"))
    assert store.owned(JOB, "shop", "chat") == []
    assert store.owned(JOB, "elsewhere", "other") == []


def test_kinds_that_are_not_watched_are_not_kept():
    store = Store()
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "u"}}
    assert not store.put(manifest)
    assert store.of(CONFIG_MAP) == {}


def test_bulk_is_left_out_but_of_deployments_whose_owners_are_told():
    store = Store()
    store.put(job(1))
    assert "managedFields" not in store.get(JOB, "shop", "a")["metadata"]
    store.put(job(1) | {"apiVersion": "apps/v1", "kind": "Deployment"})
    assert store.get(DEPLOYMENT, "shop", "a")["metadata"]["managedFields"]


def test_only_objects_of_a_namespace_are_within_it():
    store = Store()
    store.put(job(1) | {"apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaTrial"})
    assert len(list(store.within(LLAMA_TRIAL, "shop"))) == 1
    assert list(store.within(LLAMA_TRIAL, "other")) == []


def test_objects_share_what_is_equal_in_two_versions():
    store = Store()
    spec = {"args": ["--parallel", "4"]}
    store.put(job(1) | {"spec": {**spec}})
    answer = job(2) | {"spec": {**spec}, "status": {"active": 1}}
    store.put(answer)
    kept = store.get(JOB, "shop", "a")
    assert kept["status"] == {"active": 1}
    from_watch = job(2) | {"spec": {**spec}, "status": {"active": 2}}
    store.slim(JOB, from_watch)
    assert from_watch["spec"] is kept["spec"]
    assert from_watch["status"] == {"active": 2}
    assert "managedFields" not in from_watch["metadata"]


def test_owners_of_a_deployments_fields_are_not_slimmed_away():
    deployment = job(1) | {"apiVersion": "apps/v1", "kind": "Deployment"}
    Store().slim(DEPLOYMENT, deployment)
    assert deployment["metadata"]["managedFields"]
