"""Answers are recorded and compared in pods before anything rests on them, once for all who ask; whatever is lost of
what was recorded costs no more than another recording."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

import pytest

from slotune.api.v1alpha1 import LlamaTrial
from slotune.controller.actions import Apply
from slotune.controller.cluster import Object, UnavailableError
from slotune.controller.kinds import CONFIG_MAP, LLAMA_TRIAL, SECRET
from slotune.controller.recordings import keep_reference, usable_references, what_is_wrong
from slotune.llama.failures import FailureClass
from slotune.search.pairs import Pair
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.trial_objects import result_of, trial_of
from slotune.verdict.verdicts import Outcome, Verdict
from tests.controller.fake_node import tiny_model, tiny_reference
from tests.controller.manifests import NAMESPACE, config_map, owned
from tests.controller.simulation import Simulation, assert_good_statuses, world
from tests.sandbox.trials import SPEC as TRIAL_SPEC
from tests.search.worlds import QUALITY, World, candidate, problem

FILES = {"F16": 16.0, "Q8_0": 8.5, "Q4_0": 4.5}
SPEEDS = {"F16": 0.7, "Q8_0": 1.1, "Q4_0": 2.2}
"""Requests per second of each slot."""
TOO_FAR = {Pair("Q4_0", "f16", "f16"): 0.2, Pair("Q8_0", "f16", "f16"): 0.004}


def quantized(**more: Any) -> World:
    return world(
        lambda one: SPEEDS[one.variant] * one.parallel_slots,
        **({"divergences": TOO_FAR, "seconds": lambda _: 2.0} | more),
    )


def asking(name: str = "chat", *, offered: tuple[str, ...] = ("F16", "Q8_0", "Q4_0"), **changes: Any) -> Object:
    """What runs today is F16; bits may be saved where answers keep Balanced."""
    models = [{"name": one, "path": f"/models/{one.lower()}.gguf"} for one in FILES]
    slots = [1, 2]
    stated = {"slo__quality": "Balanced", "models": models, "search__space__models": list(offered)}
    return owned(name, **(stated | {"search__space__parallelSlots": slots} | changes))


def simulation_of(measured: World, **more: Any) -> Simulation:
    made = Simulation(measured, **more)
    for name, bits in FILES.items():
        path = f"/models/{name.lower()}.gguf"
        made.node.files[path] = replace(tiny_model(name), path=path, bits_per_weight=bits)
    return made


def models(simulation: Simulation) -> list[LlamaTrial]:
    return [LlamaTrial.from_manifest(raw) for raw in simulation.trials()]


def looks(simulation: Simulation) -> list[tuple[str, str]]:
    """Purpose and weights of each look at answers that came to its end, in their order."""
    asked = [one for one in simulation.node.measured if one.purpose.asks_answers]
    return [(one.purpose.value, one.candidate.variant) for one in asked]


def recording(simulation: Simulation, attempt: int = 1) -> LlamaTrial:
    (found,) = [one for one in models(simulation) if one.spec.purpose == "Reference" and one.spec.attempt == attempt]
    return found


def kept_name(simulation: Simulation, attempt: int = 1) -> str:
    return f"{recording(simulation, attempt).metadata.name}-reference"


def rejected(simulation: Simulation) -> dict[str, str]:
    return {one["code"]: one["message"] for one in simulation.status()["rejected"]}


def notes(simulation: Simulation) -> list[str]:
    return [one["note"] for (kind, _, _), one in simulation.cluster.objects.items() if kind == "Event"]


ALL_LOOKS = [("reference", "F16"), ("quality", "F16"), ("quality", "Q8_0"), ("quality", "Q4_0")]


async def test_fewer_bits_win_only_after_their_answers_were_compared():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await simulation.until_decided()
    assert_good_statuses(simulation)
    asked = [(one.purpose, one.candidate.variant) for one in simulation.node.measured]
    assert looks(simulation) == ALL_LOOKS
    for weights in ("Q4_0", "Q8_0"):
        loads = [place for place, (purpose, of) in enumerate(asked) if of == weights and purpose.puts_load]
        assert all(asked.index((Purpose.QUALITY, weights)) < place for place in loads)
    assert (Purpose.SEARCH, "Q4_0") not in asked
    found = simulation.status()["recommendation"]
    assert found["candidate"]["model"] == "Q8_0"
    assert (found["quality"]["held"], found["quality"]["meanKLD"]) == (True, "0.004")
    assert "0.2 nats" in rejected(simulation)["QualityTooLow"]


async def test_what_was_recorded_lies_in_a_config_map_of_its_trial_and_comparisons_name_it_with_its_digest():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await simulation.until_decided()
    trial = recording(simulation)
    kept = simulation.cluster.find(CONFIG_MAP, NAMESPACE, kept_name(simulation))
    assert kept is not None
    assert base64.b64decode(kept["binaryData"]["reference"]) == tiny_reference(4).to_bytes()
    assert [owner["uid"] for owner in kept["metadata"]["ownerReferences"]] == [trial.metadata.uid]
    assert trial.status is not None
    assert (trial.status.reference_config_map, trial.status.record_config_map) == (kept_name(simulation), None)
    compared = [one for one in models(simulation) if one.spec.purpose == "Quality"]
    assert len(compared) == 3
    for one in compared:
        assert one.spec.reference is not None
        assert one.spec.reference.config_map == kept_name(simulation)
        assert one.spec.reference.digest == tiny_reference(4).digest
        assert one.spec.request_rate == "0"
        assert one.spec.candidate.parallel_slots == 1
    assert {one.status.reason for one in compared if one.status} == {"NoiseFloorLow", "QualityKept", "QualityTooLow"}


async def test_progress_and_events_tell_whose_answers_are_compared():
    simulation = simulation_of(quantized(seconds=lambda _: 12.0))
    simulation.apply(asking())
    await simulation.until_decided()
    said = [
        (one.object.get("status") or {}).get("progress", {}).get("message", "") for one in simulation.cluster.changes
    ]
    assert any("recording answers of F16 with KV cache f16 as the reference, starts" in words for words in said)
    assert any(re.search("comparing answers of Q8_0 with KV cache f16, [0-9]+ of 100", words) for words in said)
    assert any(
        "comparing answers of Q4_0 with KV cache f16: Fail (QualityTooLow)" in note for note in notes(simulation)
    )


def _progress(simulation: Simulation) -> str:
    progress = simulation.status().get("progress")
    return "" if progress is None else str(progress.get("message", ""))


async def test_a_file_that_only_serves_as_the_reference_is_surveyed_and_started():
    simulation = simulation_of(quantized())
    start = {"template__spec__containers__0__args__1": "/models/q8_0.gguf"}
    simulation.apply(asking(offered=("Q8_0", "Q4_0"), **start))
    await simulation.until_decided()
    assert looks(simulation)[0] == ("reference", "F16")
    trial = recording(simulation)
    assert (trial.spec.model_path, trial.spec.candidate.model) == ("/models/f16.gguf", "F16")
    assert {one.spec.candidate.model for one in models(simulation) if one.spec.purpose == "Search"} <= {"Q8_0", "Q4_0"}


async def test_one_comparison_answers_everybody_who_asks_the_same_whatever_else_is_owed():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await simulation.until_decided()
    count = len(looks(simulation))
    simulation.apply(asking("other", slo__ttftP95="2s"))
    await simulation.until_decided("other")
    assert len(looks(simulation)) == count
    assert simulation.status("other")["recommendation"]["candidate"]["model"] == "Q8_0"


async def test_other_limits_ask_nothing_again():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await simulation.until_decided()
    count = len(looks(simulation))
    simulation.apply(asking(slo__quality="Strict"))
    await simulation.run(lambda: simulation.status().get("observedGeneration") == 2)
    await simulation.until_decided()
    assert len(looks(simulation)) == count
    assert simulation.status()["recommendation"]["quality"]["preset"] == "Strict"


PROMPTS = "".join(f'{{"text": "what I told nobody, number {number}"}}\n' for number in range(64))


def secretive(measured: World) -> Simulation:
    """Prompts are in a Secret, which the operator may read, as it may make Secrets and nothing else."""
    simulation = simulation_of(measured)
    data = {"all.jsonl": base64.b64encode(PROMPTS.encode()).decode()}
    metadata = {"name": "prompts", "namespace": NAMESPACE}
    simulation.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    simulation.apply(asking(workload__inline__prompts={"secretKeyRef": {"name": "prompts", "key": "all.jsonl"}}))
    return simulation


def kept_secrets(simulation: Simulation) -> list[Object]:
    return [one for one in simulation.cluster.all_of(SECRET, NAMESPACE) if one["metadata"]["name"] != "prompts"]


async def test_answers_to_prompts_of_a_secret_lie_in_a_secret_which_is_made_and_never_read():
    simulation = secretive(quantized())
    await simulation.until_decided()
    assert_good_statuses(simulation)
    assert looks(simulation) == ALL_LOOKS
    assert not [one for one in simulation.cluster.all_of(CONFIG_MAP, NAMESPACE) if "binaryData" in one
                and "reference" in one["binaryData"]]  # fmt: skip
    (kept,) = kept_secrets(simulation)
    trial = recording(simulation)
    assert base64.b64decode(kept["data"]["reference"]) == tiny_reference(4).to_bytes()
    assert [owner["uid"] for owner in kept["metadata"]["ownerReferences"]] == [trial.metadata.uid]
    assert trial.status is not None
    assert (trial.status.reference_secret, trial.status.reference_config_map) == (kept["metadata"]["name"], None)
    compared = [one.spec.reference for one in models(simulation) if one.spec.purpose == "Quality"]
    assert {(one.secret, one.config_map) for one in compared if one} == {(kept["metadata"]["name"], None)}
    asked = {(one.verb, one.name) for one in simulation.cluster.requests if one.kind == "Secret"}
    assert asked == {("get", "prompts"), ("create", kept["metadata"]["name"])}


async def test_a_secret_whose_making_was_not_confirmed_is_not_looked_at_and_serves():
    simulation = secretive(quantized())
    failed: list[str] = []

    def lose_the_answer(request: Any) -> None:
        if (request.verb, request.kind) == ("create", "Secret") and not failed:
            failed.append(request.name)
            raise UnavailableError(str(request), 0, "connection reset")

    simulation.cluster.after = lose_the_answer
    await simulation.until_decided()
    assert looks(simulation) == ALL_LOOKS
    assert [one["metadata"]["name"] for one in kept_secrets(simulation)] == failed
    asked = {one.verb for one in simulation.cluster.requests if one.kind == "Secret" and one.name in failed}
    assert asked == {"create"}


async def test_a_secret_that_is_lost_is_known_from_the_pod_that_had_it_mounted_and_recorded_again():
    simulation = secretive(quantized())
    await after_the_floor(simulation)
    (first,) = kept_secrets(simulation)
    simulation.cluster.remove(SECRET, NAMESPACE, first["metadata"]["name"])
    await simulation.until_decided()
    assert_good_statuses(simulation)
    again = [("quality", "Q8_0"), ("reference", "F16"), *ALL_LOOKS[2:]]
    assert looks(simulation) == [*ALL_LOOKS[:2], *again]
    assert simulation.status()["recommendation"]["candidate"]["model"] == "Q8_0"
    assert sum("is gone" in note and "recorded again" in note for note in notes(simulation)) == 1
    (second,) = kept_secrets(simulation)
    assert second["metadata"]["name"] != first["metadata"]["name"]


async def test_without_the_right_to_make_secrets_nothing_is_put_elsewhere_and_the_cure_is_said():
    simulation = secretive(quantized())
    simulation.cluster.forbidden.add(("create", "Secret"))
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "Forbidden"))
    assert not kept_secrets(simulation)
    (stalled,) = [one for one in simulation.status()["conditions"] if one["type"] == "Stalled"]
    assert "permissions.secrets" in stalled["message"]
    simulation.cluster.forbidden.clear()
    await simulation.until_decided()
    assert looks(simulation) == ALL_LOOKS


def remove(simulation: Simulation, name: str) -> None:
    simulation.cluster.remove(CONFIG_MAP, NAMESPACE, name)


def exchange(simulation: Simulation, name: str) -> None:
    other = base64.b64encode(tiny_reference(7).to_bytes()).decode()
    simulation.cluster.change(CONFIG_MAP, NAMESPACE, name, binaryData={"reference": other})


def replace_by_anothers(simulation: Simulation, name: str) -> None:
    remove(simulation, name)
    simulation.apply(config_map(name, notes="mine"))


async def after_the_floor(simulation: Simulation) -> None:
    await simulation.run(lambda: len(looks(simulation)) == 2)


@pytest.mark.parametrize(
    ("lose", "words"),
    [(remove, "is gone"), (exchange, "does not hold any more"), (replace_by_anothers, "is not the one")],
)
async def test_lost_answers_are_recorded_again_with_a_word_and_what_was_compared_still_holds(lose, words):
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await after_the_floor(simulation)
    first = kept_name(simulation)
    lose(simulation, first)
    await simulation.until_decided()
    assert_good_statuses(simulation)
    assert looks(simulation) == [*ALL_LOOKS[:2], ("reference", "F16"), *ALL_LOOKS[2:]]
    assert simulation.status()["recommendation"]["candidate"]["model"] == "Q8_0"
    assert sum(words in note and "recorded again" in note for note in notes(simulation)) == 1
    status = recording(simulation, 1).status
    assert status is not None
    assert (status.outcome, status.reason) == ("Invalid", "ReferenceLost")
    compared = [one.spec.reference for one in models(simulation) if one.spec.purpose == "Quality"]
    assert {one.config_map for one in compared if one} == {first, kept_name(simulation, 2)}


KEPT = tiny_reference(4)
CHAT: Object = {"metadata": {"name": "chat-0", "namespace": NAMESPACE, "uid": "1"}}
TRIAL = LlamaTrial.from_manifest(
    {"apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaTrial", "spec": TRIAL_SPEC, **CHAT}
)


def recorded_by(uid: str, **fields: Any) -> Object:
    made = keep_reference(TRIAL, CHAT, {"uid": uid, "name": "chat-0"}, KEPT.to_bytes())
    assert isinstance(made, Apply)
    return {**made.manifest, **fields}


@pytest.mark.parametrize(
    ("config_map", "words"),
    [
        pytest.param(recorded_by("1"), "", id="whole"),
        pytest.param(None, "is gone", id="not there"),
        pytest.param(recorded_by("2"), "not the one", id="of another owner"),
        pytest.param(recorded_by("1", binaryData=None), "any more", id="emptied"),
        pytest.param(recorded_by("1", binaryData={"reference": "no base64!"}), "any more", id="no base64"),
        pytest.param(recorded_by("1", binaryData={"reference": "c2xvdHVuZQ=="}), "any more", id="something else"),
        pytest.param(recorded_by("1", data={"reference": "x"}, binaryData={}), "any more", id="as text"),
    ],
)
def test_each_way_in_which_recorded_answers_may_be_lost_is_seen(config_map, words):
    found = what_is_wrong(config_map, TRIAL, KEPT.digest)
    assert found.startswith("ConfigMap chat-0-reference ") if words else found == ""
    assert words in found


async def test_answers_that_are_lost_when_nobody_needs_them_any_more_are_not_recorded_again():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await simulation.until_decided()
    count, answer = len(simulation.node.measured), simulation.status()["recommendation"]
    remove(simulation, kept_name(simulation))
    simulation.apply(asking(search__budget__trials=59))
    await simulation.run(lambda: simulation.status().get("observedGeneration") == 2)
    await simulation.until_decided()
    assert (len(simulation.node.measured), simulation.status()["recommendation"]) == (count, answer)


async def test_answers_that_vanish_each_time_are_not_recorded_for_ever():
    simulation = simulation_of(quantized())
    simulation.apply(asking())

    def steal() -> None:
        for raw in simulation.cluster.all_of(CONFIG_MAP, NAMESPACE):
            if raw["metadata"]["name"].endswith("-reference"):
                remove(simulation, raw["metadata"]["name"])

    def decided() -> bool:
        steal()
        return simulation.says("SearchCompleted")[0] == "True"

    await simulation.run(decided)
    assert [purpose for purpose, _ in looks(simulation)] == ["reference", "reference"]
    assert "is gone, and not for the first time" in rejected(simulation)["QualityUndecided"]
    assert sum("then set spec.rerun" in note for note in notes(simulation)) == 1
    assert simulation.status()["recommendation"]["candidate"]["model"] == "F16"


async def test_another_reference_that_is_recorded_meanwhile_is_what_is_compared_with_from_then_on():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await after_the_floor(simulation)
    remove(simulation, kept_name(simulation))
    simulation.node.recorded = tiny_reference(9)
    await simulation.until_decided()
    assert looks(simulation) == [*ALL_LOOKS[:2], ("reference", "F16"), ("quality", "F16"), *ALL_LOOKS[2:]]
    found = [result_of(one) for one in models(simulation) if one.spec.candidate.model != "F16"]
    digests = {result.quality.reference_digest for result in found if result is not None and result.quality}
    assert digests == {tiny_reference(9).digest}


async def test_a_comparison_with_a_recording_that_somebody_deleted_is_given_up():
    simulation = simulation_of(quantized(seconds=lambda _: 12.0))
    simulation.apply(asking())
    await simulation.run(lambda: re.search("Q8_0 with KV cache f16, [0-9]", _progress(simulation)) is not None)
    simulation.cluster.remove(LLAMA_TRIAL, NAMESPACE, recording(simulation).metadata.name)
    await simulation.until_decided()
    assert looks(simulation) == [*ALL_LOOKS[:2], ("reference", "F16"), *ALL_LOOKS[2:]]


def test_only_what_equals_the_last_recording_is_compared_with():
    space = problem([candidate("F16"), candidate("Q4_0")], quality=QUALITY)
    one = Trial(candidate("F16"), 0.0, purpose=Purpose.REFERENCE)

    def ended(name: str, digest: str, outcome: Outcome = Outcome.PASS, trial: Trial = one) -> tuple[Any, TrialResult]:
        made = {
            "apiVersion": "slotune.dev/v1alpha1",
            "kind": "LlamaTrial",
            "spec": TRIAL_SPEC,
            "metadata": {"name": name},
        }
        return LlamaTrial.from_manifest(made), TrialResult(
            trial, Verdict(outcome, "", "Said", 0.9), 1.0, reference=digest
        )

    def names(*found: tuple[Any, TrialResult]) -> list[str]:
        return [one.config_map for one in usable_references(space, found)]

    elsewhere = replace(one, candidate=replace(one.candidate, gpu_class="gone"))
    assert names(ended("a", "x"), ended("b", "y"), ended("c", "x")) == ["a-reference", "c-reference"]
    assert names(ended("a", "x"), ended("b", "y")) == ["b-reference"]
    assert names(ended("a", "x"), ended("b", "", Outcome.INVALID)) == ["a-reference"]
    assert names(ended("a", "x"), ended("b", "y", trial=elsewhere)) == ["a-reference"]
    assert names(ended("b", "y", trial=replace(one, purpose=Purpose.QUALITY))) == []


async def test_a_name_that_somebody_else_has_is_said_and_taken_from_nobody():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await simulation.run(lambda: any(one.spec.purpose == "Reference" for one in models(simulation)))
    name = kept_name(simulation)
    simulation.apply(config_map(name, notes="mine"))
    await simulation.run(most_s=300)
    assert simulation.says("Stalled") == ("True", "TargetConflict")
    assert simulation.cluster.find(CONFIG_MAP, NAMESPACE, name)["data"] == {"notes": "mine"}
    remove(simulation, name)
    await simulation.until_decided()
    assert simulation.status()["recommendation"]["candidate"]["model"] == "Q8_0"


def without_reference(measured: World, failure: FailureClass) -> Any:
    def measure(trial: Trial) -> TrialResult:
        result = measured.measure(trial)
        return result if trial.purpose is not Purpose.REFERENCE else replace(result, failure=failure)

    return measure


@pytest.mark.parametrize("failure", [FailureClass.OUT_OF_MEMORY_WEIGHTS, FailureClass.OUT_OF_MEMORY_KV])
async def test_a_reference_that_does_not_run_sets_changed_answers_aside_and_the_search_goes_on(failure):
    measured = quantized()
    simulation = simulation_of(measured)
    simulation.node.measure = without_reference(measured, failure)
    simulation.apply(asking())
    await simulation.until_decided()
    assert_good_statuses(simulation)
    found = simulation.status()["recommendation"]
    assert (found["candidate"]["model"], found["candidate"]["parallelSlots"]) == ("F16", 2)
    why = "the reference F16 with KV cache f16 could not be recorded"
    assert why in rejected(simulation)["QualityUndecided"]
    assert any(why in words for words in found["notProved"])
    (warned,) = [one for one in notes(simulation) if one.startswith("recording answers of F16")]
    assert f"Fail ({failure.value}): no answers can be compared" in warned
    assert looks(simulation) == []
    assert len([one for one in models(simulation) if one.spec.purpose == "Reference"]) == 1


async def test_a_reference_that_was_interrupted_is_recorded_by_the_next_pod():
    simulation = simulation_of(quantized())
    simulation.node.fate = lambda trial, number: (
        "disrupted" if trial.purpose is Purpose.REFERENCE and number == 1 else "measured"
    )
    simulation.apply(asking())
    await simulation.until_decided()
    assert looks(simulation) == ALL_LOOKS
    status = recording(simulation).status
    assert status is not None
    assert status.interruptions == 1


async def test_where_nobody_asks_nothing_is_compared():
    simulation = simulation_of(quantized())
    simulation.apply(asking(slo__quality="Off"))
    await simulation.until_decided()
    assert looks(simulation) == []
    assert simulation.status()["recommendation"]["candidate"]["model"] == "Q4_0"


async def test_a_comparison_under_way_ends_when_nobody_asks_any_more():
    simulation = simulation_of(quantized())
    simulation.apply(asking())
    await simulation.run(lambda: "comparing answers of Q4_0" in _progress(simulation))
    simulation.apply(asking(slo__quality="Off"))
    await simulation.run(lambda: simulation.status().get("observedGeneration") == 2)
    flying = [trial_of(LlamaTrial.from_manifest(raw).spec) for raw in simulation.cluster.all_of(LLAMA_TRIAL, NAMESPACE)
              if (raw.get("status") or {}).get("phase") != "Complete"]  # fmt: skip
    assert not any(trial.purpose.asks_answers for trial in flying)
