"""A router with its children, and a server that reads images, are well: each is read as what it is, and no rule alarms.

The lines are as llama.cpp's ``server-models.cpp``, ``server-context.cpp``, ``clip.cpp`` and ``mtmd-helper.cpp`` of 2026
print them.
"""

from __future__ import annotations

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.finding import Finding, Severity
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import of

LOADED = """\
0.00.000.341 I srv          init: initializing ...
0.00.002.546 I srv          init: build_info: b11549-0123abc
0.00.005.273 I srv          init: loading model
0.00.005.354 I srv    load_model: loading model '/models/{name}.gguf'
0.00.171.000 I load_tensors: offloaded {layers}/{layers} layers to GPU
0.00.171.100 I load_tensors:   CPU_Mapped model buffer size =   682.03 MiB
0.00.172.000 I load_tensors:        CUDA0 model buffer size = 16386.94 MiB
0.00.180.000 I llama_context: n_seq_max     = 4
0.00.180.100 I llama_context: n_ctx         = 16384
0.00.180.200 I llama_context: n_ctx_seq     = 16384
0.00.180.300 I llama_context: n_batch       = 2048
0.00.180.400 I llama_context: n_ubatch      = 512
0.00.180.500 I llama_context: flash_attn    = enabled
0.00.180.600 I llama_context: kv_unified    = true
0.00.190.000 I llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
0.00.191.000 I sched_reserve:      CUDA0 compute buffer size =   495.00 MiB
0.00.191.100 I sched_reserve:  CUDA_Host compute buffer size =    24.01 MiB
"""
EYE = """\
0.00.200.000 I clip_model_loader: model name:   Qwen3-VL
0.00.200.100 I clip_model_loader: description:
0.00.200.200 I clip_model_loader: GGUF version: 3
0.00.200.300 I clip_model_loader: alignment:    32
0.00.200.400 I clip_model_loader: n_tensors:    334
0.00.200.500 I clip_model_loader: n_kv:         33

0.00.201.000 I clip_model_loader: has vision encoder
0.00.202.000 I clip_ctx: CLIP using CUDA0 backend
0.00.203.000 W load_hparams: more info: https://github.com/ggml-org/llama.cpp/issues/16842
0.00.203.100 W load_hparams: if you encounter problems with accuracy, try adding --image-min-tokens 1024
0.00.204.000 I load_hparams: projector:          qwen3vl_merger
0.00.204.100 I load_hparams: n_embd:             1152
0.00.204.200 I load_hparams: n_head:             16
0.00.204.300 I load_hparams: n_ff:               4304
0.00.204.400 I load_hparams: n_layer:            27
0.00.204.500 I load_hparams: ffn_op:             gelu
0.00.204.600 I load_hparams: projection_dim:     5120

--- vision hparams ---
0.00.205.000 I load_hparams: image_size:         768
0.00.205.100 I load_hparams: patch_size:         16
0.00.205.200 I load_hparams: model size:         887.99 MiB
0.00.205.300 I load_hparams: metadata size:      0.12 MiB
0.00.300.000 I warmup: warmup with image size = 1472 x 1472
0.00.301.000 I alloc_compute_meta:      CUDA0 compute buffer size =   248.10 MiB
0.00.301.100 I alloc_compute_meta:        CPU compute buffer size =    24.93 MiB
0.00.301.200 I alloc_compute_meta: graph splits = 1, nodes = 823
0.00.301.300 I warmup: flash attention is enabled
0.00.302.000 I srv    load_model: loaded multimodal model, '/models/mmproj.gguf'
0.00.302.100 W srv    load_model: ctx_shift is not supported by multimodal, it will be disabled
0.00.302.200 W srv    load_model: cache_reuse is not supported by multimodal, it will be disabled
"""
UP = """\
0.00.462.826 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 16384, kv_unified = 'true'
0.00.463.000 I srv    load_model: prompt cache is enabled, size limit: 8192 MiB
0.00.464.786 I srv          init: model loaded
0.00.464.787 I srv          init: listening on http://127.0.0.1:{port}
"""
IMAGE = """\
{at}.010.000 I srv  process_chun: processing image...
{at}.010.100 I encoding image slice...
{at}.310.000 I image slice encoded in 300 ms
{at}.311.000 I decoding image batch 1/1, n_tokens_batch = 1024
{at}.611.000 I image decoded (batch 1/1) in 300 ms
{at}.612.000 I srv  process_chun: image processed in 602 ms
"""


def requests(count: int, *, image: bool = False) -> str:
    """Requests one after the other, each with its image."""
    out = []
    for number in range(1, count + 1):
        at, slot, prompt = f"{number // 6}.{number % 6 * 10:02}", number % 4, 1100 if image else 400
        of_it = f"id {slot:2d} | task {number} |"
        out.append(
            f"{at}.003.000 I slot get_availabl: id {slot:2d} | task -1 | selected slot by LRU, t_last = 7\n"
            f"{at}.004.000 I slot launch_slot_: {of_it} processing task, is_child = 0\n"
            f"{IMAGE.format(at=at) if image else ''}"
            f"{at}.800.000 I slot print_timing: {of_it} prompt eval time =     790.00 ms / {prompt:5d} tokens (    "
            f"0.72 ms per token,  1392.40 tokens per second)\n"
            f"{at}.800.100 I slot print_timing: {of_it}        eval time =    2000.00 ms /   100 tokens (   20.00 ms "
            f"per token,    50.00 tokens per second)\n"
            f"{at}.800.200 I slot      release: {of_it} stop processing: n_tokens = {prompt + 99}, truncated = 0\n"
        )
    return "".join(out)


def read(text: str) -> tuple[LogStory, ...]:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    return reader.finish()


def findings(story: LogStory) -> tuple[Finding, ...]:
    return check_up(of(log=story), ALL_RULES).findings


def alarms(story: LogStory) -> list[str]:
    return [f"{one.id} {one.sentence}" for one in findings(story) if one.severity is not Severity.INFO]


def child(port: int, text: str) -> list[str]:
    return [f"[{port:5d}] {line}" for line in text.splitlines(keepends=True)]


def spawned(at: str, name: str, port: int) -> list[str]:
    """What a router says when a request asks for a model that is not loaded."""
    return [
        f"{at}.000.000 I srv  ensure_model: model name={name} is not loaded, loading...\n",
        f"{at}.000.100 I srv          load: spawning server instance with name={name} on port {port}\n",
        f"{at}.000.200 I srv          load: spawning server instance with args:\n",
        f"{at}.000.300 I srv          load:   /usr/local/bin/llama-server\n",
        f"{at}.000.400 I srv          load:   --port\n",
        f"{at}.000.500 I srv          load:   {port}\n",
        f"{at}.000.600 I srv  ensure_model: waiting until model name={name} is fully loaded...\n",
    ]


ROUTER = [
    "0.00.000.341 I srv          init: initializing ...\n",
    "0.00.002.546 I srv          init: build_info: b11549-0123abc\n",
    "0.00.208.866 I srv   load_models: Loaded 2 custom model presets from /etc/models.ini\n",
    "0.00.208.900 I srv   load_models: Available models (2) (*: custom preset)\n",
    "0.00.208.901 I srv   load_models:   * gemma\n",
    "0.00.208.902 I srv   load_models:   * qwen\n",
    "0.00.210.000 I srv  llama_server: starting server in router mode\n",
    "0.00.210.627 I srv  llama_server: listening on http://0.0.0.0:8080\n",
]
EVICTED = [
    "9.00.000.000 I srv    unload_lru: models_max limit reached, removing LRU name=gemma\n",
    "9.00.000.001 I srv        unload: stopping model instance name=gemma\n",
    "9.00.000.002 I srv    operator(): stopping model instance name=gemma\n",
    "[41000] 8.50.000.000 I srv    operator(): exit command received, exiting...\n",
    "[41000] 8.50.000.100 I srv  llama_server: cleaning up before exit...\n",
    "9.00.300.000 I srv    operator(): instance name=gemma exited with status 0\n",
]
PROXIED = "2.00.000.000 I srv  proxy_reques: proxying request to model {} on port {}\n"
READY = '[{}] cmd_child_to_router:state:{{"state":"ready","payload":{{"id":"m","meta":{{"n_ctx":16384}}}}}}\n'


def served(name: str, port: int, count: int, layers: int) -> list[str]:
    """A child from its first line on, with requests that come through the router."""
    text = LOADED.format(name=name, layers=layers) + UP.format(port=port)
    return [*child(port, text), READY.format(port), PROXIED.format(name, port), *child(port, requests(count))]


def test_each_child_of_a_router_is_a_server_of_its_own_and_none_alarms() -> None:
    first = [*spawned("0.10", "gemma", 41000), *served("gemma", 41000, 30, 49)]
    second = [*spawned("9.01", "qwen", 41001), *served("qwen", 41001, 20, 41)]
    router, *children = read("".join([*ROUTER, *first, *EVICTED, *second]))

    assert (router.source, router.requests, router.failure, router.mixed) == ("server.log", None, None, False)
    assert [one.source for one in children] == ["port 41000 (gemma)", "port 41001 (qwen)"]
    assert [one.requests and one.requests.requests for one in children] == [30, 20]
    assert [(one.starts, one.facts.layers, one.facts.slots, one.failure) for one in children] == [
        (1, 49, 4, None),
        (1, 41, 4, None),
    ]
    assert [alarms(one) for one in (router, *children)] == [[], [], []]


def test_children_that_serve_at_the_same_time_are_told_apart() -> None:
    each = [served(name, port, 25, layers) for name, port, layers in (("gemma", 41000, 49), ("qwen", 41001, 41))]
    text = [*ROUTER, *spawned("0.10", "gemma", 41000), *spawned("0.11", "qwen", 41001)]
    text += [line for pair in zip(*each, strict=True) for line in pair]
    router, *children = read("".join(text))

    assert not any(one.mixed for one in (router, *children))
    assert [(one.facts.layers, one.requests and one.requests.requests) for one in children] == [(49, 25), (41, 25)]
    assert [alarms(one) for one in (router, *children)] == [[], [], []]


def test_a_router_says_that_it_is_one_and_where_its_children_are() -> None:
    first = [*spawned("0.10", "gemma", 41000), *served("gemma", 41000, 30, 49)]
    router, child_of_it = read("".join([*ROUTER, *first]))
    assert "it is llama-server's router, which loads no model of its own" in router.router
    assert router.router.endswith("a block of its own: port 41000 (gemma)")
    assert child_of_it.router == ""
    checkup = check_up(of(log=router), ALL_RULES)
    assert (checkup.doubt, checkup.is_healthy) == (router.router, None)


def test_routers_in_two_pods_have_each_its_own_children() -> None:
    lines = [*ROUTER, *spawned("0.10", "gemma", 41000), *served("gemma", 41000, 3, 49)]
    both = "".join(f"[pod/{pod}/llama] {line}" for pod in ("chat-1", "chat-2") for line in lines)
    told = {story.source: story.router for story in read(both)}
    assert told["chat-2"].endswith("a block of its own: chat-2:41000 (gemma)")


def test_a_router_whose_childrens_lines_are_elsewhere_says_so() -> None:
    (router,) = read("".join([*ROUTER, *spawned("0.10", "gemma", 41000)]))
    assert router.router.endswith("has lines that are not in this log")


def test_a_router_says_so_as_other_builds_do() -> None:
    lines = [
        *ROUTER[:2],
        "0.00.210.000 I srv  llama_server: starting router server, no model will be loaded in this process\n",
    ]
    (router,) = read("".join(lines))
    assert router.router


@pytest.mark.parametrize("image", [True, False], ids=["images", "text alone"])
def test_a_server_that_reads_images_is_read_as_one_with_its_projector_and_does_not_alarm(image: bool) -> None:
    text = LOADED.format(name="eye", layers=66) + EYE + UP.format(port=8080) + requests(30, image=image)
    (story,) = read(text)

    assert (story.starts, story.mixed, story.failure, story.facts.ready) == (1, False, None, True)
    assert (story.facts.layers, story.facts.slots, story.facts.flash_attention) == (66, 4, True)
    assert story.facts.compute_buffers["CUDA0"] == round(495.00 * 2**20) + round(248.10 * 2**20), "each has its own"
    assert story.requests is not None
    assert story.requests.requests == 30
    assert alarms(story) == []
    assert "SLT045" in [one.id for one in findings(story)], "it says itself that chunks are not reused"
