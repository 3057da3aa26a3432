"""Who is woken by what: nobody who need not be, and everybody who must."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slotune.controller.cluster import Object
from slotune.controller.handlers import _first_of, _is_served, wake_those_concerned
from slotune.controller.kinds import kind_of
from slotune.controller.store import Store
from slotune.controller.wakes import Wakes

LABEL = "slotune.dev/deployment"


def made(api_version: str, kind: str, name: str, namespace: str | None = "shop", **more: Any) -> Object:
    metadata: dict[str, Any] = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "1"}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"labels": more.pop("labels")} if "labels" in more else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def own(kind: str, name: str, namespace: str | None = "shop", **more: Any) -> Object:
    return made("slotune.dev/v1alpha1", kind, name, namespace, **more)


SPECS: dict[str, Any] = {
    "a": {"targetRef": {"name": "web"}, "workload": {"ref": {"name": "traffic"}}, "gpuClasses": [{"name": "l4"}]},
    "b": {"targetRef": {"name": "web"}, "workload": {"inline": {}}, "gpuClasses": [{"name": "h100"}]},
    "c": {"template": {}, "workload": {"ref": {"name": "other"}}, "gpuClasses": [{"name": "l4"}]},
    "odd": {"targetRef": None, "workload": None, "gpuClasses": "none of slotune's business"},
}
OVER = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize(
    ("manifest", "woken"),
    [
        (own("LlamaDeployment", "c"), {"c"}),
        (own("LlamaDeployment", "a", spec=SPECS["a"]), {"a", "b"}),
        (own("LlamaWorkload", "traffic"), {"a"}),
        (own("LlamaWorkload", "traffic", "elsewhere"), set()),
        (own("GPUClass", "l4", None), {"a", "c"}),
        (own("LlamaTrial", "c-1", labels={LABEL: "c"}), {"c"}),
        (
            made("batch/v1", "Job", "c-1", labels={LABEL: "c", "slotune.dev/trial": "c-1"}, status=OVER),
            {"c", "waiting"},
        ),
        (made("batch/v1", "Job", "c-2", labels={LABEL: "c", "slotune.dev/trial": "c-2"}), {"c"}),
        (made("batch/v1", "Job", "somebody's"), set()),
        (made("apps/v1", "Deployment", "web"), {"a", "b"}),
        (made("apps/v1", "Deployment", "c", labels={LABEL: "c"}), {"c"}),
        (made("apps/v1", "Deployment", "unrelated"), set()),
        (made("v1", "Node", "node-1", None), set()),
    ],
    ids=lambda one: f"{one['kind']} {one['metadata']['name']}" if isinstance(one, dict) else "",
)
def test_those_whom_an_object_concerns_are_woken(manifest, woken):
    store, wakes = Store(), Wakes()
    keys = {name: ("shop", name) for name in [*SPECS, "waiting"]}
    events = {name: wakes.event(key) for name, key in keys.items()}
    for name, spec in SPECS.items():
        store.put(own("LlamaDeployment", name, spec=spec))
    wakes.wait_for_slot(keys["waiting"], waits=True)
    store.put(manifest)
    wake_those_concerned(store, wakes, kind_of(manifest), manifest)
    assert {name for name, event in events.items() if event.is_set()} == woken


def test_a_job_that_vanishes_frees_its_place_whatever_its_last_status():
    store, wakes = Store(), Wakes()
    event = wakes.event(("shop", "waiting"))
    wakes.wait_for_slot(("shop", "waiting"), waits=True)
    job = made("batch/v1", "Job", "c-1", labels={LABEL: "c", "slotune.dev/trial": "c-1"})
    store.put(job)
    wake_those_concerned(store, wakes, kind_of(job), job)
    assert not event.is_set()
    store.remove(job)
    wake_those_concerned(store, wakes, kind_of(job), job)
    assert event.is_set()


def test_only_deployments_that_somebody_tunes_are_followed():
    store = Store()
    store.put(own("LlamaDeployment", "a", spec=SPECS["a"]))
    assert _is_served(store, made("apps/v1", "Deployment", "web"))
    assert _is_served(store, made("apps/v1", "Deployment", "any", labels={LABEL: "any"}))
    assert not _is_served(store, made("apps/v1", "Deployment", "web", "elsewhere"))
    assert not _is_served(store, made("apps/v1", "Deployment", "unrelated"))


def test_a_call_that_comes_while_nobody_sleeps_is_kept_and_counts_once():
    wakes = Wakes()
    event = wakes.event(("shop", "a"))
    wakes.wake([("shop", "a"), ("shop", "a"), ("shop", "unknown")])
    assert event.is_set()
    event.clear()
    assert not wakes.event(("shop", "a")).is_set()


def test_whoever_waits_no_longer_or_is_gone_is_not_woken():
    wakes = Wakes()
    first, second = wakes.event(("shop", "a")), wakes.event(("shop", "b"))
    for name in ("a", "b"):
        wakes.wait_for_slot(("shop", name), waits=True)
    wakes.wait_for_slot(("shop", "a"), waits=False)
    wakes.forget(("shop", "b"))
    wakes.slot_is_free()
    assert not first.is_set()
    assert not second.is_set()


class Stopped:
    """What kopf gives a daemon: its ``wait()`` is an awaitable and no coroutine."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def wait(self) -> asyncio.Future[bool]:
        return asyncio.ensure_future(self.event.wait())


@pytest.mark.parametrize("what", ["time", "wake", "stop"])
async def test_a_scheduler_sleeps_until_something_happens_and_leaves_no_task_behind(what):
    wake, stopped = asyncio.Event(), Stopped()
    sleeping = asyncio.create_task(_first_of(wake, stopped, 0.01 if what == "time" else 60.0))
    await asyncio.sleep(0)
    if what == "wake":
        wake.set()
    elif what == "stop":
        stopped.event.set()
    await asyncio.wait_for(sleeping, 5)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_the_end_of_a_scheduler_leaves_that_of_a_newer_object_alone():
    wakes = Wakes()
    older = wakes.begin(("shop", "a"))
    newer = wakes.begin(("shop", "a"))
    wakes.forget(("shop", "a"), older)
    wakes.wake([("shop", "a")])
    assert newer.is_set()
    assert not older.is_set()
