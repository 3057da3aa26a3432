"""A law for what findings explain: parts of a whole, and no more seconds than anybody waited, whatever was measured."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotune.diagnose.finding import Finding
from slotune.diagnose.rules import batch, build, client, device, logs, prefill, template
from slotune.diagnose.symptoms import GPUFacts, ProbeFacts, Symptoms
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from slotune.llama.server_answers import ModelMeta
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import metrics, of, pod, probe, server

RULES = tuple(rule for module in (batch, logs, prefill, template, client, build, device) for rule in module.RULES)

START = """\
ggml_cuda_init: found 1 CUDA devices (Total VRAM: 24000 MiB):
  Device 0: NVIDIA L4, compute capability 8.9, VMM: yes, VRAM: 24000 MiB
build: 11434 (1af25fa1) with cc for x86_64-linux-gnu
print_info: n_expert              = 0
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'
srv  llama_server: model loaded
"""

Round = tuple[int, int, float, int, float]
"""Requests at once, computed tokens of their prompts, milliseconds for each, tokens of the answers, milliseconds."""

rounds = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(1, 8000),
        st.floats(0.0, 60_000.0),
        st.integers(1, 400),
        st.floats(0.0, 60_000.0),
    ),
    min_size=1,
    max_size=12,
)


def story_of(asked: list[Round], debug_lines: int) -> LogStory:
    """The log of requests that came in rounds."""
    lines = ["0.01.000.000 D srv  update_slots: decoding batch"] * debug_lines
    for turn, (at_once, tokens, prompt_ms, answer, answer_ms) in enumerate(asked):
        each = [f"id {slot:2d} | task {10 * turn + slot} |" for slot in range(at_once)]
        lines += [f"slot launch_slot_: {of_it} processing task, is_child = 0" for of_it in each]
        for of_it in each:
            lines += [
                f"slot print_timing: {of_it} prompt eval time = {prompt_ms:10.2f} ms / {tokens:5d} tokens",
                f"slot print_timing: {of_it}        eval time = {answer_ms:10.2f} ms / {answer:5d} tokens",
                f"slot      release: {of_it} stop processing: n_tokens = {tokens + answer - 1}, truncated = 0",
            ]
    reader = LogReader("server.log")
    reader.feed((START + "\n".join([*lines, ""])).encode())
    (story,) = reader.finish()
    return story


speeds = st.floats(0.5, 50_000.0)
probes = st.builds(
    probe,
    prompt_tokens=st.integers(1, 4000),
    prefill_tokens_per_s=speeds,
    decode_step_s=st.just(0.0) | st.floats(1e-4, 2.0),
    overhead_s=st.floats(0.0, 20.0),
    short_prompt_overhead_s=st.none() | st.floats(0.0, 20.0),
    connect_s=st.none() | st.floats(0.0, 10.0),
    stream_s=st.none() | st.floats(0.0, 20.0),
    stream_made_s=st.none() | st.floats(0.0, 20.0),
    was_idle=st.booleans(),
)


def longest_wait_s(asked: list[Round], probed: ProbeFacts | None) -> float:
    """The latest first token that anybody saw."""
    waits = [one[2] / 1e3 for one in asked]
    if probed is not None:
        before_s = max(probed.overhead_s, probed.connect_s or 0.0)
        waits.append(before_s + probed.prompt_tokens / probed.prefill_tokens_per_s)
    return max(waits)


def given_of(asked: list[Round], debug_lines: int, probed: ProbeFacts | None, more: Any) -> Symptoms:
    """A GPU's server."""
    sharing, pieces, owed_s = more
    look = server(
        model=ModelMeta("m", parameters=8_000_000_000, size_bytes=4_600_000_000),
        metrics=None if sharing is None else metrics(n_busy_slots_per_decode=sharing, n_decode_total=1000),
    )
    return of(
        log=story_of(asked, debug_lines),
        server=look,
        probe=probed,
        pod=pod("-ub", str(pieces), gpus=1),
        gpu=GPUFacts("NVIDIA L4"),
        promise=None if owed_s is None else Promise(owed_s),
    )


@settings(max_examples=300, deadline=None)  # a busy machine is no failure
@example(asked=[(1, 1, 1008.0, 1, 0.0), (1, 1, 5193.0, 1, 0.0)], debug_lines=0, probed=None, more=(None, 16, 1.0))
@example(asked=[(1, 64, 18042.0, 1, 0.0), (1, 66, 0.0, 1, 0.0)], debug_lines=0, probed=None, more=(None, 16, None))
@given(
    asked=rounds,
    debug_lines=st.integers(0, 2000),
    probed=st.none() | probes,
    more=st.tuples(
        st.none() | st.floats(1.0, 4.0), st.sampled_from((16, 32, 64, 512)), st.none() | st.floats(0.05, 30.0)
    ),
)
def test_what_a_finding_explains_is_a_part_of_what_was_seen(
    asked: list[Round], debug_lines: int, probed: ProbeFacts | None, more: Any
) -> None:
    symptoms = given_of(asked, debug_lines, probed, more)
    for rule in RULES:
        said = rule.check(symptoms)
        if not isinstance(said, Finding):
            continue
        cost = said.cost
        for share in (cost.ttft_share, cost.speed_share, cost.refused_share):
            assert share is None or 0.0 <= share <= 1.0, said
        if cost.ttft_s is not None:
            assert math.isfinite(cost.ttft_s)
            assert 0.0 <= cost.ttft_s <= longest_wait_s(asked, probed) + 0.01, said
            assert cost.ttft_share is None or cost.ttft_share == 0 or cost.ttft_s > 0, said
