"""A log's caches are told apart, and what a draft model has is not the server's."""

from __future__ import annotations

from slotune.llama.log_lines import parse_log
from slotune.llama.log_shape import CacheShape

MIB = 2**20

GEMMA = """\
print_info: n_vocab          = 262144
print_info: n_embd           = 1152
print_info: n_embd_head_k    = 256
print_info: n_swa            = 512
load_tensors:        CUDA0 model buffer size =   762.49 MiB
llama_context: constructing llama_context
llama_kv_cache_iswa: creating non-SWA KV cache, size = 32768 cells
llama_kv_cache:      CUDA0 KV buffer size =   128.00 MiB
llama_kv_cache: size =  128.00 MiB ( 32768 cells,   4 layers,  4/1 seqs), K (f16):   64.00 MiB, V (f16):   64.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 2560 cells
llama_kv_cache:      CUDA0 KV buffer size =    55.00 MiB
llama_kv_cache: size =   55.00 MiB (  2560 cells,  22 layers,  4/1 seqs), K (f16):   27.50 MiB, V (f16):   27.50 MiB
"""

HYBRID = """\
llama_context: constructing llama_context
llama_kv_cache:      CUDA0 KV buffer size =   256.00 MiB
llama_kv_cache: size =  256.00 MiB (  4096 cells,   8 layers,  2/2 seqs), K (f16):  128.00 MiB, V (f16):  128.00 MiB
llama_memory_recurrent: size =  100.50 MiB (     2 cells,  32 layers,  2 seqs), R (f32): 4.50 MiB, S (f32): 96.00 MiB
"""

DRAFT = """\
srv    load_model: loading draft model '/models/draft.gguf'
print_info: n_embd           = 576
load_tensors:        CUDA0 model buffer size =   100.00 MiB
llama_context: constructing llama_context
llama_kv_cache: size =   22.50 MiB (  1024 cells,  30 layers,  4/1 seqs), K (f16):   11.25 MiB, V (f16):   11.25 MiB
srv    load_model: initializing, n_slots = 4, n_ctx_slot = 32768, kv_unified = 'true'
"""


def test_a_sliding_windows_cache_is_told_from_the_full_one() -> None:
    shape = parse_log(GEMMA).shape
    assert (shape.vocabulary, shape.embedding, shape.window) == (262144, 1152, 512)
    assert shape.caches == (CacheShape(128 * MIB, 32768), CacheShape(55 * MIB, 2560, sliding=True))


def test_separate_streams_have_their_cells_each_and_states_one_per_sequence() -> None:
    assert parse_log(HYBRID).shape.caches == (
        CacheShape(256 * MIB, 8192),
        CacheShape(round(100.5 * MIB), 2, recurrent=True),
    )


def test_a_draft_models_shape_is_not_the_servers() -> None:
    facts = parse_log(GEMMA + DRAFT)
    assert facts.shape.draft_buffers == {"CUDA0": 100 * MIB}
    assert facts.shape.embedding == 1152
    assert len(facts.shape.caches) == 2


def test_a_context_that_is_made_again_replaces_the_first() -> None:
    again = HYBRID.replace("4096 cells", "1024 cells").replace("256.00", " 64.00")
    assert parse_log(HYBRID + again).shape.caches[0] == CacheShape(64 * MIB, 2048)


def test_a_log_that_says_nothing_of_it_has_no_shape() -> None:
    shape = parse_log("main: model loaded\n").shape
    assert (shape.vocabulary, shape.embedding, shape.window, shape.caches) == (None, None, None, ())
