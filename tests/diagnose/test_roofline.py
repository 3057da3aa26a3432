"""A server's speed stands beside what its device allows, and nothing is made up where that is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.diagnose.accelerators import known_accelerator
from slotune.diagnose.roofline import Roofline, roofline_of
from slotune.diagnose.symptoms import GPUFacts, NodeFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import LogStory, RequestTimings
from slotune.llama.server_answers import Metrics, ModelMeta

EIGHT_B = ModelMeta("chat", parameters=8_000_000_000, size_bytes=16_000_000_000)
SERVER = ServerLook("http://127.0.0.1:8080", model=EIGHT_B)
PROBE = ProbeFacts(4, 4000, 0.01, prefill_tokens_per_s=3000.0, decode_step_s=0.08)
DENSE = LogStory("log", LogFacts(experts=0))
SYMPTOMS = Symptoms("chat", log=DENSE, server=SERVER, probe=PROBE, gpu=GPUFacts("L4", bandwidth_bytes_per_s=300e9))


def known(symptoms: Symptoms) -> Roofline:
    found = roofline_of(symptoms)
    assert isinstance(found, Roofline)
    return found


def test_16_gb_of_weights_at_300_gb_a_second_are_at_most_18_75_tokens_a_second():
    found = known(SYMPTOMS)
    assert found.decode.at_most == pytest.approx(18.75)
    assert found.decode.share == pytest.approx(12.5 / 18.75)
    assert "a token reads 16 GB of weights" in found.sentences[0]
    assert "66.7 %" in found.sentences[0]


def test_a_prompt_token_takes_two_operations_for_each_parameter():
    found = known(SYMPTOMS)  # an L4's operations are known by its name
    assert found.prefill.at_most == pytest.approx(121e12 / 16e9)
    assert found.prefill.share == pytest.approx(3000 / 7562.5)


def test_keys_and_values_of_a_half_full_slot_are_read_too():
    facts = LogFacts(experts=0, kv_buffers={"CUDA0": 4_000_000_000}, context_total=32_768, context_per_slot=8192)
    found = known(replace(SYMPTOMS, log=LogStory("log", facts)))
    assert (found.context_tokens, found.kv_bytes) == (4096, 500_000_000)
    assert found.decode.at_most == pytest.approx(300e9 / 16.5e9)


def test_a_device_that_nobody_knows_has_no_bound_and_none_is_made_up():
    found = known(replace(SYMPTOMS, gpu=None))
    assert (found.decode.at_most, found.decode.share, found.prefill.share) == (None, None, None)
    assert "is not known" in found.sentences[0]
    assert "12.5" in found.sentences[0], "what was seen is said all the same"


def test_without_the_size_of_the_weights_it_says_what_would_tell():
    assert "--model" in str(roofline_of(replace(SYMPTOMS, server=None, log=None)))


def test_a_nodes_label_names_the_device():
    node = NodeFacts("gpu-1", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    found = known(replace(SYMPTOMS, gpu=None, node=node))
    assert found.decode.at_most == pytest.approx(2039e9 / 16e9)


def test_a_share_above_all_says_that_the_device_is_another():
    found = known(replace(SYMPTOMS, gpu=GPUFacts("mine", bandwidth_bytes_per_s=1e9)))
    assert "more than that" in found.sentences[0]
    assert "faster than was declared" in found.sentences[-1]
    assert not found.is_sure


def test_speeds_of_a_shared_batch_are_called_that():
    requests = RequestTimings(
        100, 100_000, 50_000.0, 10_000, 200_000.0,
        prefill_tokens_per_s=(100.0, 1000.0, 2000.0), decode_tokens_per_s=(5.0, 8.0, 10.0), most_busy_slots=4,
    )  # fmt: skip
    found = known(replace(SYMPTOMS, probe=None, log=LogStory("log", LogFacts(), requests=requests)))
    assert found.decode.seen is not None
    assert found.decode.seen.tokens_per_s == 10.0
    assert "with others in the batch" in found.sentences[0]


def test_counters_of_a_server_that_has_hardly_worked_say_nothing():
    metrics = Metrics({"tokens_predicted_total": 10.0, "tokens_predicted_seconds_total": 9.0})
    found = known(replace(SYMPTOMS, probe=None, server=replace(SERVER, metrics=metrics)))
    assert found.decode.seen is None


MOE = LogFacts(model_buffers={"CUDA0": 84_800_000_000}, parameters=79.7e9, experts=512, experts_used=10)


def test_of_a_mixture_of_experts_at_least_the_part_that_a_token_asks_is_read():
    symptoms = replace(SYMPTOMS, server=None, log=LogStory("log", MOE), gpu=GPUFacts("RTX 5090", 1792e9))
    found = known(symptoms)
    assert found.weights_bytes == round(84_800_000_000 * 10 / 512)
    assert found.decode.at_most == pytest.approx(1792e9 / found.weights_bytes)
    assert found.prefill.at_most == pytest.approx(209e12 / (2 * 79.7e9 * 10 / 512))
    assert "a token reads at least 1.66 GB of weights" in found.sentences[0]


def test_where_nobody_says_whether_it_is_one_the_bound_may_not_hold_and_says_so():
    found = known(replace(SYMPTOMS, log=None))
    assert found.is_dense is None
    assert "a token reads up to 16 GB of weights" in found.sentences[0]
    assert "a mixture of experts reads only some of its weights" in found.sentences[-1]


def test_each_half_that_is_not_known_names_what_it_lacks():
    found = known(replace(SYMPTOMS, gpu=GPUFacts("mine", bandwidth_bytes_per_s=300e9)))
    assert "operations/s" in found.sentences[1]
    assert "memory bandwidth" not in found.sentences[1]


@given(weights=st.integers(10**6, 10**12), bandwidth=st.floats(1e9, 1e13), step=st.floats(1e-4, 10))
def test_half_the_bytes_allow_twice_the_speed(weights: int, bandwidth: float, step: float):
    def at(size: int) -> Roofline:
        server = replace(SERVER, model=replace(EIGHT_B, size_bytes=size))
        probe = replace(PROBE, decode_step_s=step)
        return known(Symptoms("x", log=DENSE, server=server, probe=probe, gpu=GPUFacts("mine", bandwidth)))

    whole, half = at(2 * weights), at(weights)
    assert half.decode.at_most == pytest.approx(2 * (whole.decode.at_most or 0))
    assert half.decode.share == pytest.approx((whole.decode.share or 0) / 2)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA L4", 300e9),
        ("2 x NVIDIA L40S", 864e9),
        ("NVIDIA-A10G", 600e9),
        ("Tesla T4", 320e9),
        ("NVIDIA A100-SXM4-80GB", 2039e9),
        ("AMD Instinct MI300X", 5300e9),
        ("NVIDIA GeForce RTX 4090", 1008e9),
        ("NVIDIA H100 PCIe", 2000e9),
    ],
)
def test_names_as_drivers_write_them_are_known(name: str, bandwidth: float):
    found = known_accelerator(name)
    assert found is not None
    assert found[0] == bandwidth


@pytest.mark.parametrize(
    "name",
    [
        "L400",
        "NVIDIA T400",
        "cpu-core",
        "",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A10-4Q",
        "GRID T4-8Q",
    ],
)
def test_a_name_that_only_looks_alike_is_not_known(name: str):
    assert known_accelerator(name) is None
