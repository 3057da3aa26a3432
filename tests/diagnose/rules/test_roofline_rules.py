"""A token and a prompt are held against what they really need; where that is not known, the obstacle is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.diagnose.finding import Confidence, Undecided
from slotune.diagnose.rules import decode, prefill
from slotune.diagnose.symptoms import GPUFacts, PodFacts, ProbeFacts, Symptoms
from slotune.llama.model_facts import LayerCache, ModelFacts
from tests.diagnose.rules.building import ask, found, is_clear
from tests.diagnose.server_logs import LLAMA_8B, Asked, log_of

MODEL = ModelFacts(
    path="m.gguf", file_bytes=4_920_000_000, identity="", architecture="llama", quantization="Q4_K_M",
    context_length=131072, vocabulary=128256, embedding=4096, heads=32, layers=(LayerCache(1024, 1024),) * 32,
    weights_bytes=4_913_000_000, active_weights_bytes=4_617_000_000, bits_per_weight=4.89,
    prompt_parameters=6_803_000_000,
)  # fmt: skip


def of(asked: Asked, **more: object) -> Symptoms:
    return Symptoms("server.log", log=log_of(asked=[asked], **more))  # type: ignore[arg-type]  # by name


def needs(identifier: str, symptoms: Symptoms) -> str:
    rules = decode.RULES if identifier == "SLT012" else prefill.RULES
    said = ask(rules, identifier, symptoms)
    assert isinstance(said, Undecided), said
    return said.needs


@pytest.mark.parametrize("context", [4096, 16384, 131072])
def test_the_context_that_a_slot_may_hold_decides_nothing(context: int) -> None:
    assert is_clear(decode.RULES, "SLT012", of(Asked(400, 200, 110), context=context))
    slow = found(decode.RULES, "SLT012", of(Asked(400, 200, 30), context=context))
    assert "33 ms alone, though NVIDIA GeForce RTX 4090 can read what it needs in 5 ms" in slow.sentence


def test_what_is_far_below_the_bound_of_a_dense_model_is_possible_where_it_may_be_none() -> None:
    model = replace(MODEL, active_weights_bytes=MODEL.weights_bytes)
    slow = replace(of(Asked(400, 200, 30)), model=model)
    assert found(decode.RULES, "SLT012", slow).confidence is Confidence.LIKELY
    unknown = of(Asked(400, 200, 30), experts="?")
    assert found(decode.RULES, "SLT012", unknown).confidence is Confidence.POSSIBLE


def test_guesses_that_came_true_do_not_hide_a_slow_step() -> None:
    """Three tokens a step: 40 tokens/s are 13 steps, of which the GPU can do 215."""
    assert is_clear(decode.RULES, "SLT012", of(Asked(400, 200, 300, accepted=133, drafted=199)))
    found(decode.RULES, "SLT012", of(Asked(400, 200, 40, accepted=133, drafted=199)))


@pytest.mark.parametrize("split", ["layer", "row", "tensor"])
def test_several_gpus_are_not_accused_of_waiting_for_each_other(split: str) -> None:
    """Half of what one of four could do alone."""
    pod = PodFacts("p", args=("llama-server", "-sm", split), gpus=4)
    symptoms = replace(of(Asked(400, 200, 31), devices=(), model=""), model=MODEL, gpu=GPUFacts("NVIDIA L4"), pod=pod)
    assert is_clear(decode.RULES, "SLT012", symptoms)


@pytest.mark.parametrize(("split", "words"), [("layer", None), ("row", "-sm row"), ("tensor", "-sm tensor")])
def test_the_link_between_gpus_that_share_each_matrix_is_named_first(split: str, words: str | None) -> None:
    pod = PodFacts("p", args=("llama-server", "-sm", split), gpus=2)
    symptoms = replace(of(Asked(400, 200, 12), devices=(), model=""), model=MODEL, gpu=GPUFacts("NVIDIA L4"), pod=pod)
    first = found(decode.RULES, "SLT012", symptoms).first
    assert first is None if words is None else first is not None and f"with {words} the GPUs exchange" in first


def test_cards_of_one_name_are_held_against_the_slowest_that_it_may_be() -> None:
    """GDDR6 of 448 GB/s or GDDR6X of 608: 25 ms a token would be long for the second."""
    devices = ("NVIDIA GeForce RTX 3060 Ti",)
    assert is_clear(decode.RULES, "SLT012", of(Asked(400, 200, 40), devices=devices))
    slow = found(decode.RULES, "SLT012", of(Asked(400, 200, 30), devices=devices))
    assert "can read what it needs in 10 ms" in slow.sentence


def test_with_the_model_at_hand_it_is_not_asked_for() -> None:
    fast = replace(of(Asked(400, 200, 300)), model=MODEL)
    said = needs("SLT012", fast)
    assert "--model" not in said
    assert "NVIDIA GeForce RTX 4090 is faster than its data sheet says, or another one" in said
    quick = replace(of(Asked(4000, 200, 100, prompt_tokens_per_s=90000)), model=MODEL)
    assert "--model" not in needs("SLT013", quick)
    assert "more is seen than there can be" in needs("SLT013", quick)


@pytest.mark.parametrize("identifier", ["SLT012", "SLT013"])
def test_a_mixture_of_experts_asks_for_its_file(identifier: str) -> None:
    assert "mixture of experts" in needs(identifier, of(Asked(400, 200, 30), experts="32"))


def test_what_the_device_lacks_can_be_given() -> None:
    unknown = of(Asked(400, 200, 30, prompt_tokens_per_s=50), devices=("NVIDIA GeForce MX450",))
    assert "--bandwidth" in needs("SLT012", unknown)
    assert "--gpu-class" in needs("SLT013", unknown)
    given = replace(unknown, gpu=GPUFacts("RTX 4090"))
    found(decode.RULES, "SLT012", given)
    found(prefill.RULES, "SLT013", given)


def test_one_prompt_on_gpus_that_take_turns_is_read_by_one_at_a_time() -> None:
    """512 tokens of 8B on L4s: 34 ms of arithmetic of one; 1.4 s is forty times that."""
    both = LLAMA_8B.replace("4403.49", "2201.75") + "load_tensors:        CUDA1 model buffer size =  2201.74 MiB\n"
    two = of(Asked(512, 200, 50, prompt_tokens_per_s=450), devices=("NVIDIA L4", "NVIDIA L4"), model=both)
    assert is_clear(prefill.RULES, "SLT013", replace(two, model=MODEL))
    slow = of(Asked(512, 200, 50, prompt_tokens_per_s=200), devices=("NVIDIA L4", "NVIDIA L4"), model=both)
    found(prefill.RULES, "SLT013", replace(slow, model=MODEL))


def test_other_makers_kernels_are_given_more_time() -> None:
    """A third of its bandwidth is usual for an Arc, and has a cause on an NVIDIA GPU with as much."""
    arc = of(Asked(400, 200, 40), devices=("Intel(R) Arc(TM) A770 Graphics",), model=LLAMA_8B.replace("CUDA", "SYCL"))
    assert is_clear(decode.RULES, "SLT012", arc)
    found(decode.RULES, "SLT012", of(Asked(400, 200, 40)))


def test_a_log_of_guesses_is_judged_by_its_own_requests_not_by_a_probes() -> None:
    speculating = of(Asked(400, 200, 300, accepted=133, drafted=199))
    probed = replace(speculating, probe=ProbeFacts(4, 30000, 0.01, prefill_tokens_per_s=3000.0, decode_step_s=0.5))
    assert is_clear(decode.RULES, "SLT012", probed)
