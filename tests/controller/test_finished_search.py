"""A search that the operator made can be taken along as one file, and replayed where there is no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.controller.cluster import ForbiddenError
from slotune.controller.finished_search import finished_search
from slotune.search.replay import Comparison, replay
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.search_file import from_bytes, to_bytes
from tests.controller.manifests import NAMESPACE, owned
from tests.controller.simulation import Simulation


async def decided() -> Simulation:
    simulation = Simulation()
    simulation.apply(owned())
    await simulation.until_decided()
    return simulation


async def test_a_search_that_has_ended_comes_out_of_the_cluster_and_replays_to_its_own_answer():
    simulation = await decided()
    before = len(simulation.cluster.changes)
    recorded = await finished_search(simulation.cluster, NAMESPACE, "chat", simulation.now)
    assert len(simulation.cluster.changes) == before, "only read"
    recommended = simulation.status()["recommendation"]
    assert recorded.answer.replicas == recommended["replicas"]
    assert len(recorded.results) == len(simulation.trials())
    file = from_bytes(to_bytes(recorded, version="0", packed=True), Path("chat.json.gz"))
    again = replay(file)
    assert (again.comparison, again.unrecorded) == (Comparison.SAME, ())


async def test_a_search_that_goes_on_has_no_answer_to_export():
    simulation = Simulation()
    simulation.apply(owned())
    await simulation.run(lambda: bool(simulation.trials()))
    with pytest.raises(InvalidInputError, match=r"has not ended|not been looked at"):
        await finished_search(simulation.cluster, NAMESPACE, "chat", simulation.now)


async def test_a_name_that_is_not_there_is_answered_with_those_that_are():
    simulation = await decided()
    with pytest.raises(InvalidInputError, match=r"no LlamaDeployment of that name \(chat\)"):
        await finished_search(simulation.cluster, NAMESPACE, "chit", simulation.now)


async def test_a_manifest_that_is_no_longer_valid_sends_to_its_conditions():
    simulation = await decided()
    simulation.apply(owned(replicas=0))
    with pytest.raises(InvalidInputError, match=r"describe lld chat|Invalid"):
        await finished_search(simulation.cluster, NAMESPACE, "chat", simulation.now)


async def test_rights_that_are_missing_are_named_by_the_cluster(monkeypatch: pytest.MonkeyPatch):
    simulation = await decided()

    async def refuse(*_: object, **__: object) -> object:
        raise ForbiddenError("list llamatrials", 403, "not allowed")

    monkeypatch.setattr(simulation.cluster, "list", refuse)
    with pytest.raises(ForbiddenError, match="llamatrials"):
        await finished_search(simulation.cluster, NAMESPACE, "chat", simulation.now)
