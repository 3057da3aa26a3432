"""Looking at answers by reconciles is what the command line does, however often whoever asks dies in between."""

from __future__ import annotations

import base64
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.controller.kinds import CONFIG_MAP
from slotune.search.trial import Purpose, Trial
from slotune.verdict.verdicts import Outcome
from tests.controller.fake_node import tiny_reference
from tests.controller.manifests import NAMESPACE
from tests.controller.simulation import drive
from tests.controller.test_answers_in_pods import (
    ALL_LOOKS,
    after_the_floor,
    asking,
    kept_name,
    looks,
    quantized,
    remove,
    simulation_of,
)
from tests.controller.test_search_laws import KillAt, assert_each_question_once, assert_same_answer, tuned

outcomes = st.dictionaries(
    st.sampled_from(["F16", "Q8_0", "Q4_0"]), st.sampled_from([Outcome.INVALID, Outcome.INCONCLUSIVE]), max_size=2
)


@settings(deadline=None, max_examples=4)
@given(outcomes)
def test_the_cluster_compares_as_the_command_line_does(faults):
    def verdicts(trial: Trial) -> Outcome | None:
        return faults.get(trial.candidate.variant) if trial.purpose is Purpose.QUALITY else None

    async def law() -> None:
        there, here = quantized(verdicts=verdicts), quantized(verdicts=verdicts)
        simulation = simulation_of(there)
        simulation.apply(asking())
        await simulation.until_decided()
        answer = await tuned(simulation, here)
        assert_same_answer(simulation, answer)
        assert [one.key() for one in there.asked] == [one.key() for one in here.asked]
        assert_each_question_once(simulation)

    drive(law())


kills = st.dictionaries(st.integers(1, 120), st.sampled_from(["before", "after"]), min_size=1, max_size=8)


@settings(deadline=None, max_examples=5)
@given(kills, st.none() | st.integers(0, 99))
def test_an_operator_that_dies_at_any_write_records_and_compares_everything_once(points, seed):
    async def law() -> None:
        there = quantized()
        simulation = simulation_of(there, late=None if seed is None else Random(seed))
        simulation.apply(asking())
        killer = KillAt(points)
        killer.install(simulation)
        reborn = simulation.kill

        def kill_and_go_on() -> None:
            reborn()
            killer.install(simulation)

        simulation.kill = kill_and_go_on  # type: ignore[method-assign]  # the next life may die too
        await simulation.until_decided()
        assert_same_answer(simulation, await tuned(simulation, quantized()))
        assert_each_question_once(simulation)
        assert looks(simulation) == ALL_LOOKS
        kept = simulation.cluster.find(CONFIG_MAP, NAMESPACE, kept_name(simulation))
        assert kept is not None
        assert base64.b64decode(kept["binaryData"]["reference"]) == tiny_reference(4).to_bytes()

    drive(law())


@settings(deadline=None, max_examples=4)
@given(kills)
def test_an_operator_that_dies_while_answers_are_lost_still_comes_to_the_answer(points):
    async def law() -> None:
        simulation = simulation_of(quantized())
        simulation.apply(asking())
        await after_the_floor(simulation)
        remove(simulation, kept_name(simulation))
        killer = KillAt({max(1, at // 6): when for at, when in points.items()})
        killer.install(simulation)
        await simulation.until_decided()
        assert simulation.status()["recommendation"]["candidate"]["model"] == "Q8_0"
        assert looks(simulation).count(("reference", "F16")) == 2

    drive(law())
