"""A server's speed stands beside what its device allows, and nothing is made up where that is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.diagnose.roofline import Roofline, roofline_of
from slotune.diagnose.symptoms import GPUFacts, NodeFacts, PodFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import LogStory, RequestTimings
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.llama.server_answers import Metrics, ModelMeta, Props, Slot
from tests.diagnose.server_logs import LLAMA_8B, Asked, log_of

EIGHT_B = ModelMeta("chat", parameters=8_000_000_000, size_bytes=16_000_000_000)
SERVER = ServerLook("http://127.0.0.1:8080", model=EIGHT_B)
PROBE = ProbeFacts(4, 4000, 0.01, prefill_tokens_per_s=3000.0, decode_step_s=0.08)
DENSE = LogStory("log", LogFacts(experts=0))
SYMPTOMS = Symptoms("chat", log=DENSE, server=SERVER, probe=PROBE, gpu=GPUFacts("L4", bandwidth_bytes_per_s=300e9))

ON_GPU = 4403.49 * 2**20
"""Bytes of LLAMA_8B that a token reads."""
PER_TOKEN = 131072
"""Bytes of f16 keys and values of one token of it."""


def known(symptoms: Symptoms) -> Roofline:
    found = roofline_of(symptoms)
    assert isinstance(found, Roofline)
    return found


def of_log(story: LogStory, **more: object) -> Roofline:
    return known(replace(Symptoms("server.log", log=story), **more))  # type: ignore[arg-type]  # fields by name


def said(roofline: Roofline) -> str:
    return "; ".join(roofline.sentences)


def llama_8b() -> ModelFacts:
    return ModelFacts(
        path="m.gguf", file_bytes=4_920_000_000, identity="", architecture="llama", quantization="Q4_K_M",
        context_length=131072, vocabulary=128256, embedding=4096, heads=32, layers=(LayerCache(1024, 1024),) * 32,
        weights_bytes=4_913_000_000, active_weights_bytes=4_617_000_000, bits_per_weight=4.89,
        prompt_parameters=6_803_000_000,
    )  # fmt: skip


# What a token reads


def test_16_gb_of_weights_at_300_gb_a_second_are_at_most_18_75_tokens_a_second():
    found = known(SYMPTOMS)
    assert found.decode.at_most == pytest.approx(18.75)
    assert found.decode.share == pytest.approx(12.5 / 18.75)
    assert "a token reads about 16 GB of weights" in found.sentences[0]
    assert "66.7 %" in found.sentences[0]


def test_a_large_context_that_nobody_fills_costs_nothing():
    """Requests of 400 and 200 tokens: 500 tokens of context on average, whatever the slot may hold."""
    by_hand = 1008e9 / (ON_GPU + 500 * PER_TOKEN)
    for context in (16384, 131072):
        found = of_log(log_of(context=context, asked=[Asked(400, 200, 110)]))
        assert (found.context_tokens, found.kv_bytes) == (500, 500 * PER_TOKEN)
        assert found.decode.at_most == pytest.approx(by_hand, rel=1e-4)
        assert found.decode.share == pytest.approx(110 / by_hand, rel=0.01)
        assert "more than" not in said(found)


def test_cached_tokens_are_in_the_context_too():
    found = of_log(log_of(asked=[Asked(400, 200, 110, cached=3000)]))
    assert found.context_tokens == 3500


def test_without_a_word_on_how_long_requests_are_the_weights_alone_count():
    found = of_log(log_of())
    assert (found.kv_bytes, found.context_tokens) == (None, None)
    assert found.decode.at_most == pytest.approx(1008e9 / ON_GPU, rel=1e-6)
    assert "weights alone" in found.sentences[0]


def test_a_probes_prompts_are_the_context_of_what_it_measured():
    found = of_log(log_of(asked=[Asked(8000, 10, 110)]), probe=replace(PROBE, prompt_tokens=512))
    assert found.kv_bytes == 512 * PER_TOKEN


@pytest.mark.parametrize(
    ("args", "env", "gb"),
    [
        ((), {}, 2.147),
        (("-ctk", "q8_0", "-ctv", "q8_0"), {}, 1.141),
        (("-ctk", "q8_0"), {"LLAMA_ARG_CACHE_TYPE_V": "q4_0"}, 0.872),
        (("--cache-type-k", "q4_0", "--cache-type-v", "q4_0"), {}, 0.604),
    ],
)
def test_keys_and_values_count_in_the_types_that_were_asked_for(args: tuple[str, ...], env: dict[str, str], gb: float):
    """16,384 tokens of Llama 8B: 32 layers, 1,024 elements of each of K and V."""
    pod = PodFacts("p", args=("llama-server", "-np", "4", "-c", "131072", *args), env=env, gpus=1)
    found = known(replace(SYMPTOMS, model=llama_8b(), pod=pod, probe=replace(PROBE, prompt_tokens=16384)))
    assert found.kv_bytes == pytest.approx(gb * 1e9, rel=1e-3)


def test_windows_states_and_latent_keys_count_as_what_they_are():
    layers = (
        LayerCache(1024, 1024),  # reads all 4,000 tokens
        LayerCache(1024, 1024, window=512),
        LayerCache(576, 0),  # MLA: a rank of 512 and 64 dimensions of rope, no values
        LayerCache(0, 0, state_bytes=3_000_000),
    )
    found = known(replace(SYMPTOMS, model=replace(llama_8b(), layers=layers)))
    assert found.kv_bytes == 4000 * 2048 * 2 + 512 * 2048 * 2 + 4000 * 576 * 2 + 3_000_000


def test_a_logs_sliding_and_recurrent_caches_count_as_what_they_are():
    caches = """\
llama_kv_cache_iswa: creating non-SWA KV cache, size = 32768 cells
llama_kv_cache: size =  128.00 MiB ( 32768 cells,   4 layers,  4/1 seqs), K (q8_0): 64.00 MiB, V (q8_0): 64.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 2560 cells
llama_kv_cache: size =   55.00 MiB (  2560 cells,  22 layers,  4/1 seqs), K (q8_0): 27.50 MiB, V (q8_0): 27.50 MiB
llama_memory_recurrent: size =  100.00 MiB (     4 cells,  32 layers,  4 seqs), R (f32): 4.00 MiB, S (f32): 96.00 MiB
print_info: n_swa                 = 512
"""
    found = of_log(log_of(context=32768, caches=caches, asked=[Asked(2000, 2, 50)]))
    by_hand = 2001 * 128 * 2**20 / 32768 + 512 * 55 * 2**20 / 2560 + 100 * 2**20 / 4
    assert found.kv_bytes == pytest.approx(by_hand, rel=1e-6)


def test_a_table_of_which_a_token_reads_one_row_is_not_read():
    by_log = of_log(log_of())
    assert by_log.weights_bytes == pytest.approx(ON_GPU, rel=1e-6), "without the 282 MiB in host memory"
    assert not by_log.weights.rough
    meta = ModelMeta("m", vocabulary=128256, embedding=4096, parameters=8_030_261_312, size_bytes=4_912_898_304)
    by_url = known(replace(SYMPTOMS, server=replace(SERVER, model=meta)))
    assert by_url.weights_bytes == pytest.approx(4_912_898_304 * (1 - 128256 * 4096 / 8_030_261_312))
    assert by_url.weights.rough
    assert "about" in by_url.sentences[0]


def test_weights_of_the_file_itself_count_before_what_others_say():
    found = known(replace(SYMPTOMS, model=llama_8b()))
    assert found.weights_bytes == 4_617_000_000
    assert (found.decode.needs, found.prefill.needs, found.is_dense) == (None, None, True)


# Prompts


def test_a_prompt_token_takes_two_operations_for_each_weight_but_those_of_the_tables():
    found = known(replace(SYMPTOMS, model=llama_8b()))  # an L4's operations are known by its name
    assert found.prefill.at_most == pytest.approx(242e12 / (2 * 6.803e9))
    meta = ModelMeta("m", vocabulary=128256, embedding=4096, parameters=8_030_261_312, size_bytes=4_912_898_304)
    by_url = known(replace(SYMPTOMS, server=replace(SERVER, model=meta)))
    assert by_url.prefill.at_most == pytest.approx(242e12 / (2 * (8_030_261_312 - 2 * 128256 * 4096)))


@pytest.mark.parametrize(
    ("device", "quantization", "operations"),
    [
        ("NVIDIA GeForce RTX 5090", "MXFP4_MOE", 1676e12),
        ("NVIDIA GeForce RTX 5090", "Q4_K_M", 838e12),
        ("NVIDIA GeForce RTX 4090", "MXFP4_MOE", 661e12),
    ],
)
def test_gpus_that_multiply_4_bit_floats_do_so_twice_as_fast(device: str, quantization: str, operations: float):
    found = known(replace(SYMPTOMS, model=replace(llama_8b(), quantization=quantization), gpu=GPUFacts(device)))
    assert found.prefill.at_most == pytest.approx(operations / (2 * 6.803e9))


# Speculation


def test_a_step_that_writes_three_tokens_allows_three_times_as_many():
    """200 tokens of an answer, the first without a step; 133 guesses of 199 came true: 66 steps."""
    story = log_of(asked=[Asked(400, 200, 400, accepted=133, drafted=199)])
    found = of_log(story)
    assert found.speculating.tokens_per_step == pytest.approx(199 / 66)
    assert found.decode.at_most == pytest.approx(1008e9 * 199 / 66 / (ON_GPU + 500 * PER_TOKEN), rel=1e-4)
    assert "is faster than" not in said(found)
    assert found.decode.share is not None
    assert found.decode.share < 1


def test_a_draft_model_is_not_read_by_a_token_but_by_its_guesses():
    draft = """\
srv    load_model: loading draft model '/models/draft.gguf'
load_tensors:   CPU_Mapped model buffer size =    50.00 MiB
load_tensors:        CUDA0 model buffer size =   400.00 MiB
"""
    plain = of_log(log_of(asked=[Asked(400, 200, 110)]))
    beside = of_log(log_of(more=draft, asked=[Asked(400, 200, 300, accepted=133, drafted=264)]))
    assert beside.weights_bytes == plain.weights_bytes
    step = ON_GPU + 500 * PER_TOKEN + 264 / 66 * 400 * 2**20
    assert beside.step_bytes == pytest.approx(step, rel=1e-6)
    assert beside.decode.at_most == pytest.approx(1008e9 * 199 / 66 / step, rel=1e-4)
    assert "of the draft model's" in beside.sentences[0]


@pytest.mark.parametrize("known_by", ["slots", "arguments"])
def test_guesses_of_unknown_success_leave_no_bound_on_tokens(known_by: str):
    slots = (Slot(0, 4096, processing=False, speculative=True),)
    server = replace(SERVER, slots=slots) if known_by == "slots" else SERVER
    pod = PodFacts("p", args=("llama-server", "--spec-type", "ngram-mod"), gpus=1) if known_by == "arguments" else None
    found = known(replace(SYMPTOMS, server=server, pod=pod, probe=replace(PROBE, decode_step_s=0.01)))
    assert found.decode.at_most is None
    assert found.decode.needs is not None
    assert "speculation" in found.decode.needs
    assert "faster" not in said(found)


# Which device, and how many


def test_a_device_that_nobody_knows_has_no_bound_and_none_is_made_up():
    found = known(replace(SYMPTOMS, gpu=None))
    assert (found.decode.at_most, found.decode.share, found.prefill.share) == (None, None, None)
    assert "is not known" in found.sentences[0]
    assert "12.5" in found.sentences[0], "what was seen is said all the same"


@pytest.mark.parametrize(
    ("words", "bandwidth"),
    [
        ("  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes", 1008e9),
        ("  Device 0: AMD Radeon RX 7900 XTX, gfx1100 (0x1100), VMM: no, Wave Size: 32", 960e9),
        ("0.00.001.000 I cmn  common_param:   - CUDA0   : NVIDIA L4 (22565 MiB, 22317 MiB free)", 300e9),
        (
            "ggml_vulkan: 0 = Intel(R) Arc(tm) A770 Graphics (DG2) (Intel open-source Mesa driver) | uma: 0 | fp16: 1",
            560e9,
        ),
        ("ggml_metal_init: found device: Apple M2 Ultra", 819e9),
    ],
)
def test_the_log_names_the_device(words: str, bandwidth: float):
    story = log_of(devices=(), model=words + "\n" + LLAMA_8B)
    found = of_log(story)
    assert found.decode.at_most == pytest.approx(bandwidth / ON_GPU, rel=1e-6)
    assert "log, line" in said(found)


def test_a_device_without_figures_is_named_with_what_helps():
    found = of_log(log_of(devices=("NVIDIA GeForce MX450",)))
    assert found.decode.at_most is None
    assert "NVIDIA GeForce MX450: give its memory bandwidth with --bandwidth" in said(found)
    given = of_log(log_of(devices=("NVIDIA GeForce MX450",)), gpu=GPUFacts("mine", 80e9))
    assert given.decode.at_most == pytest.approx(80e9 / ON_GPU, rel=1e-6)


def test_a_name_says_nothing_of_a_model_that_lies_in_host_memory():
    found = of_log(log_of(model="load_tensors:   CPU_Mapped model buffer size =  4685.30 MiB\n"))
    assert found.device is None


def test_a_nodes_label_names_the_device():
    node = NodeFacts("gpu-1", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    found = known(replace(SYMPTOMS, gpu=None, node=node))
    assert found.decode.at_most == pytest.approx(2039e9 / 16e9)
    assert "nvidia.com/gpu.product" in said(found)


TWO = LLAMA_8B.replace("4403.49", "2201.75") + "load_tensors:        CUDA1 model buffer size =  2201.74 MiB\n"
ROWS = LLAMA_8B.replace("CUDA0", "CUDA_Split")
META = LLAMA_8B.replace("       CUDA0", "Meta(CUDA0,CUDA1)")


@pytest.mark.parametrize(
    ("model", "split", "times"), [(LLAMA_8B, None, 1), (TWO, "layer", 1), (ROWS, "row", 2), (META, "tensor", 2)]
)
def test_gpus_that_take_turns_are_no_faster_for_one_user_and_those_that_share_a_matrix_are(
    model: str, split: str | None, times: int
):
    found = of_log(log_of(devices=("NVIDIA L4", "NVIDIA L4"), model=model))
    assert found.devices.split == split
    assert found.weights_bytes == pytest.approx(ON_GPU, rel=1e-5), "over all devices"
    assert found.decode.at_most == pytest.approx(times * 300e9 / ON_GPU, rel=1e-5)
    assert ("2 GPUs" in said(found)) is (split is not None)


@pytest.mark.parametrize(
    ("args", "times", "prompt_times"),
    [
        ((), 1, 4),
        (("-sm", "layer"), 1, 4),
        (("-sm", "row"), 4, 4),
        (("--split-mode", "tensor"), 4, 4),
        (("-sm", "none"), 1, 1),
    ],
)
def test_the_gpus_of_a_pod_count_as_its_arguments_split_the_model(args: tuple[str, ...], times: int, prompt_times: int):
    pod = PodFacts("p", args=("llama-server", *args), gpus=4)
    found = known(replace(SYMPTOMS, pod=pod, model=llama_8b(), log=None, probe=None))
    assert found.decode.at_most == pytest.approx(times * 300e9 / 4.617e9)
    assert found.prefill.at_most == pytest.approx(prompt_times * 242e12 / (2 * 6.803e9))
    assert "4 GPUs" in said(found)


def test_a_pod_without_gpus_is_not_bound_by_its_nodes():
    node = NodeFacts("gpu-1", labels={"nvidia.com/gpu.product": "NVIDIA-L4"})
    assert known(replace(SYMPTOMS, gpu=None, node=node, pod=PodFacts("p"))).device is None
    assert known(replace(SYMPTOMS, gpu=None, node=node, pod=PodFacts("p", gpus=1))).device == "NVIDIA-L4"


def test_the_devices_that_were_chosen_are_those_that_hold_the_model():
    pod = PodFacts("p", args=("llama-server", "-sm", "row", "-dev", "CUDA0,CUDA1"), gpus=4)
    found = known(replace(SYMPTOMS, pod=pod, model=llama_8b(), probe=None))
    assert found.decode.at_most == pytest.approx(2 * 300e9 / 4.617e9)


# More than there can be


def test_a_device_is_only_accused_where_nothing_else_is_left():
    """An 8B model of 4.6 GB at 300 tokens/s: 1,385 GB/s at least."""
    pod = PodFacts("p", args=("llama-server",), gpus=1)
    found = of_log(log_of(asked=[Asked(10, 200, 300)], caches=""), pod=pod)
    assert found.kv_bytes is None
    assert found.sentences[-1].endswith(": NVIDIA GeForce RTX 4090 is faster than its data sheet says, or another one")
    assert found.decode.needs is not None
    declared = of_log(log_of(asked=[Asked(10, 200, 300)]), pod=pod, gpu=GPUFacts("mine", 1008e9))
    assert declared.sentences[-1].endswith(": mine is faster than was declared, or another one")


def test_a_shorter_context_explains_no_more_than_it_takes():
    """Half of the step are keys and values of the mean context: up to twice as fast may be a shorter one."""
    pod = PodFacts("p", args=("llama-server",), gpus=1)
    context = round(ON_GPU / PER_TOKEN)
    true = 1008e9 / (2 * ON_GPU)
    assert "a shorter context than the mean one" in said(of_log(log_of(asked=[Asked(context, 2, 1.5 * true)]), pod=pod))
    assert "faster than its data sheet" in said(of_log(log_of(asked=[Asked(context, 2, 2.5 * true)]), pod=pod))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"server": replace(SERVER, model=replace(EIGHT_B, size_bytes=8_000_000_000)), "log": None},
            "mixture of experts",
        ),
        ({"log": None}, "it speculates"),
        ({}, "an input table"),
        ({}, "several GPUs read at the same time"),
        ({"model": replace(llama_8b(), active_weights_bytes=100_000_000)}, "the GPU's own cache"),
    ],
)
def test_whatever_else_may_explain_it_is_said_before(change: dict[str, object], words: str):
    quick = replace(PROBE, decode_step_s=0.0001)
    fast = replace(SYMPTOMS, probe=quick, **change)  # type: ignore[arg-type]  # fields by name
    found = known(fast)
    assert "more than that" in found.sentences[0]
    assert words in said(found)
    assert "is faster than" not in said(found)


# What was seen


def test_speeds_of_a_shared_batch_are_called_that():
    requests = RequestTimings(
        100, 100_000, 50_000.0, 10_000, 200_000.0,
        prefill_tokens_per_s=(100.0, 1000.0, 2000.0), decode_tokens_per_s=(5.0, 8.0, 10.0), most_busy_slots=4,
    )  # fmt: skip
    found = known(replace(SYMPTOMS, probe=None, log=LogStory("log", LogFacts(), requests=requests)))
    assert found.decode.seen is not None
    assert found.decode.seen.tokens_per_s == 10.0
    assert "with others in the batch" in found.sentences[0]


@pytest.mark.parametrize(
    ("slots", "busy", "alone", "words"),
    [
        (1, 1.0, True, "12 were seen on average since the start:"),
        (4, 2.5, False, "since the start, with others in the batch:"),
        (4, 1.0, None, "since the start, perhaps with others in the batch:"),
        (None, None, None, "since the start, perhaps with others in the batch:"),
    ],
)
def test_nobody_can_have_been_beside_on_a_server_of_one_slot(
    slots: int | None, busy: float | None, alone: bool | None, words: str
):
    counters = {"tokens_predicted_total": 1200.0, "tokens_predicted_seconds_total": 100.0}
    metrics = Metrics(counters if busy is None else counters | {"n_busy_slots_per_decode": busy})
    props = None
    if slots is not None:
        props = Props(slots, 4096, "m.gguf", "m", "b11434", metrics_enabled=True, slots_enabled=False)
    server = replace(SERVER, metrics=metrics, props=props)
    found = known(replace(SYMPTOMS, probe=None, log=LogStory("log", LogFacts(experts=0)), server=server))
    assert found.decode.seen is not None
    assert found.decode.seen.alone is alone
    assert words in found.sentences[0]


def test_counters_of_a_server_that_has_hardly_worked_say_nothing():
    metrics = Metrics({"tokens_predicted_total": 10.0, "tokens_predicted_seconds_total": 9.0})
    found = known(replace(SYMPTOMS, probe=None, server=replace(SERVER, metrics=metrics)))
    assert found.decode.seen is None


# What is not known


def test_without_the_size_of_the_weights_it_says_what_would_tell():
    assert "--model" in str(roofline_of(replace(SYMPTOMS, server=None, log=None)))


MOE = LogFacts(model_buffers={"CUDA0": 84_800_000_000}, parameters=79.7e9, experts=512, experts_used=10)


def test_of_a_mixture_of_experts_at_least_the_part_that_a_token_asks_is_read():
    symptoms = replace(SYMPTOMS, server=None, log=LogStory("log", MOE), gpu=GPUFacts("RTX 5090", 1792e9))
    found = known(symptoms)
    assert found.weights_bytes == round(84_800_000_000 * 10 / 512)
    assert found.decode.at_most is not None
    assert found.decode.at_most == pytest.approx(1792e9 / (84.8e9 * 10 / 512), rel=1e-6)
    assert found.prefill.at_most == pytest.approx(838e12 / (2 * 79.7e9 * 10 / 512))
    assert "a token reads at least 1.66 GB of weights" in found.sentences[0]


def test_where_nobody_says_whether_it_is_one_the_bound_may_not_hold_and_says_so():
    found = known(replace(SYMPTOMS, log=None))
    assert found.is_dense is None
    assert "a token reads up to 16 GB of weights" in found.sentences[0]
    assert "a mixture of experts reads only some of its weights" in found.sentences[-1]


def test_a_server_on_a_processor_is_not_asked_for_a_gpu():
    facts = LogFacts(experts=0, model_buffers={"CPU_Mapped": 100_000_000}, parameters=1e8)
    found = known(replace(SYMPTOMS, gpu=None, log=LogStory("log", facts)))
    assert "the bandwidth of the machine's memory: --bandwidth" in said(found)
    assert "GPU" not in said(found)
    assert "GPU" not in f"{found.decode.needs} {found.prefill.needs}"


def test_each_half_that_is_not_known_names_what_it_lacks():
    found = known(replace(SYMPTOMS, gpu=GPUFacts("mine", bandwidth_bytes_per_s=300e9)))
    assert "operations/s" in found.sentences[1]
    assert "memory bandwidth" not in found.sentences[1]


def test_a_slots_allotted_context_is_no_context():
    props = Props(4, 32768, "m.gguf", "m", "b11434", metrics_enabled=False, slots_enabled=False)
    found = known(replace(SYMPTOMS, model=llama_8b(), probe=None, server=replace(SERVER, props=props)))
    assert found.kv_bytes is None


@given(weights=st.integers(10**9, 10**12), bandwidth=st.floats(1e9, 1e13), step=st.floats(1e-4, 10))
def test_half_the_bytes_allow_twice_the_speed(weights: int, bandwidth: float, step: float):
    def at(size: int) -> Roofline:
        server = replace(SERVER, model=replace(EIGHT_B, size_bytes=size))
        probe = replace(PROBE, decode_step_s=step)
        return known(Symptoms("x", log=DENSE, server=server, probe=probe, gpu=GPUFacts("mine", bandwidth)))

    whole, half = at(2 * weights), at(weights)
    assert half.decode.at_most == pytest.approx(2 * (whole.decode.at_most or 0))
    assert half.decode.share == pytest.approx((whole.decode.share or 0) / 2)


@given(prompt=st.integers(64, 60000), answer=st.integers(20, 4000), share=st.floats(0.05, 0.999))
def test_no_speed_that_the_device_can_have_is_called_more_than_it_can(prompt: int, answer: int, share: float):
    """A device that reads exactly what it must is at all of its bound, whatever the requests are like."""
    true = 1008e9 / (ON_GPU + (prompt + answer / 2) * PER_TOKEN)
    found = of_log(log_of(asked=[Asked(prompt, answer, share * true, count=3)]))
    assert found.decode.share is not None
    assert found.decode.share <= 1.006, "quantiles are within half a percent"
