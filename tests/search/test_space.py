"""The space holds what the user allows, what can be combined, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.search.space import ORDER_CONSTRAINTS, SpaceLimits, build_space, context_at_least, context_needed
from tests.search.worlds import candidate, facts

MODELS = {"F16": facts("F16"), "Q8_0": facts("Q8_0", bits=8.5, gigabytes=8.5)}
LIMITS = SpaceLimits(variants=("F16", "Q8_0"), gpu_classes=("l4",))


def demand(longest_prompt: int = 4000, output: int = 250) -> Demand:
    return Demand(
        peak_rate=6.0,
        output_tokens=output,
        synthetic=SyntheticPrompts(longest_prompt),
        input_tokens_max=longest_prompt,
    )


def test_what_runs_today_is_always_the_first_candidate():
    odd = candidate(slots=5, batch_size=1000, ubatch_size=100)
    candidates, _ = build_space(odd, LIMITS, demand(), MODELS)
    assert candidates[0] == odd


def test_the_context_holds_the_longest_request_in_steps_of_256_tokens():
    assert context_needed(demand(4000, 250)) == 4352
    assert context_needed(demand(1, 1)) == 256


def test_real_prompts_are_only_estimated_so_the_context_has_room_and_the_refusal_gives_way():
    estimated = Demand(peak_rate=6.0, output_tokens=250, prompts=(Prompt("x"),), input_tokens_max=4000)
    assert context_needed(estimated) >= 1.5 * 4000 + 250
    assert context_at_least(estimated) <= 4000 / 1.5 + 250


def test_a_context_that_is_too_small_is_refused_with_both_numbers():
    limits = SpaceLimits(variants=("F16",), gpu_classes=("l4",), context_per_slot=(1024, 8192))
    candidates, pruned = build_space(candidate(), limits, demand(), MODELS)
    assert {c.context_per_slot for c in candidates[1:]} == {8192}
    assert {p.code for p in pruned} == {"ContextTooSmall"}
    assert "1024" in pruned[0].reason
    assert "4250" in pruned[0].reason


def test_a_model_whose_training_context_is_too_short_is_refused():
    candidates, pruned = build_space(candidate(), LIMITS, demand(200_000), MODELS)
    assert candidates == (candidate(),)
    assert {p.code for p in pruned} == {"ModelContextTooSmall"}


def test_named_values_are_the_only_ones_used():
    limits = SpaceLimits(
        variants=("Q8_0",),
        gpu_classes=("l4",),
        parallel_slots=(3, 7),
        kv_unified=(True,),
        batch_size=(600,),
        ubatch_size=(200,),
        cache_types=("q4_0",),
        cache_ram_mib=(128,),
        cache_reuse=(64,),
        cache_idle_slots=(False,),
    )
    candidates, _ = build_space(candidate(slots=1), limits, demand(), MODELS)
    assert {(c.parallel_slots, c.batch_size, c.cache_type_k, c.cache_ram_mib) for c in candidates[1:]} == {
        (3, 600, "q4_0", 128),
        (7, 600, "q4_0", 128),
    }


def test_room_on_top_of_an_estimate_never_exceeds_what_the_model_can_hold():
    small = {"F16": replace(facts("F16"), context_length=8192)}
    estimated = Demand(peak_rate=6.0, output_tokens=200, prompts=(Prompt("x"),), input_tokens_max=5500)
    limits = SpaceLimits(variants=("F16",), gpu_classes=("l4",))
    candidates, pruned = build_space(candidate(), limits, estimated, small)
    assert not pruned
    assert {c.context_per_slot for c in candidates[1:]} == {8192}


def test_a_context_is_stated_as_the_server_pads_it():
    limits = SpaceLimits(variants=("F16",), gpu_classes=("l4",), context_per_slot=(64, 200, 300))
    candidates, _ = build_space(candidate(), limits, demand(20, 8), MODELS)
    assert {c.context_per_slot for c in candidates[1:]} == {256, 512}


def test_a_context_beyond_the_models_training_is_refused_before_a_start():
    limits = SpaceLimits(variants=("F16",), gpu_classes=("l4",), context_per_slot=(8192, 1_000_000))
    candidates, pruned = build_space(candidate(), limits, demand(), MODELS)
    assert {c.context_per_slot for c in candidates[1:]} == {8192}
    assert {p.code for p in pruned} == {"ContextAboveTraining"}


numbers = st.lists(st.integers(1, 4096), min_size=1, max_size=3, unique=True).map(tuple)


@given(
    slots=st.lists(st.integers(1, 256), min_size=1, max_size=3, unique=True).map(tuple),
    batches=numbers,
    ubatches=numbers,
    unified=st.sampled_from([(True,), (False,), (True, False)]),
    idle=st.sampled_from([None, (True,), (False,)]),
    ram=st.sampled_from([(0,), (0, 64), (512,)]),
    reuse=st.sampled_from([(0,), (0, 256)]),
)
def test_no_candidate_breaks_an_order_constraint_and_none_is_there_twice(
    slots, batches, ubatches, unified, idle, ram, reuse
):
    limits = SpaceLimits(
        variants=("F16",),
        gpu_classes=("l4",),
        parallel_slots=slots,
        batch_size=batches,
        ubatch_size=ubatches,
        kv_unified=unified,
        cache_idle_slots=idle,
        cache_ram_mib=ram,
        cache_reuse=reuse,
    )
    candidates, pruned = build_space(candidate(), limits, demand(), MODELS)
    built: list[Candidate] = [*candidates[1:], *(p.candidate for p in pruned)]
    assert len(set(built)) == len(built)
    for one in built:
        assert all(rule.holds(one) for rule in ORDER_CONSTRAINTS), one
        assert one.cache_type_k == one.cache_type_v


def test_every_ubatch_up_to_the_batch_is_tried():
    limits = replace(LIMITS, batch_size=(512, 2048), ubatch_size=(256, 512, 1024))
    candidates, _ = build_space(candidate(), limits, demand(), MODELS)

    pairs = {(c.batch_size, c.ubatch_size) for c in candidates[1:]}
    assert pairs == {(512, 256), (512, 512), (2048, 256), (2048, 512), (2048, 1024)}


def test_a_way_to_guess_has_the_numbers_that_it_knows_and_a_draft_only_where_the_model_has_one():
    limits = replace(
        LIMITS,
        speculation=("none", "ngram-cache", "ngram-mod", "draft-simple"),
        speculation_tokens=(4, 16),
        speculation_match=(8, 12),
        drafts={"F16": "tiny"},
    )
    candidates, _ = build_space(candidate(), limits, demand(), MODELS)

    def ways(variant: str) -> set[tuple[object, ...]]:
        return {
            (c.speculation, c.draft, c.speculation_tokens, c.speculation_match)
            for c in candidates
            if c.variant == variant
        }

    plain = {("none", None, None, None), ("ngram-cache", None, None, None)}
    ngrams = {("ngram-mod", None, tokens, match) for tokens in (4, 16) for match in (8, 12)}
    assert ways("Q8_0") == plain | ngrams
    assert ways("F16") == plain | ngrams | {("draft-simple", "tiny", tokens, None) for tokens in (4, 16)}


def test_a_flag_of_the_users_own_is_never_stated_a_second_time():
    own = replace(candidate(), extra_args=("--spec-ngram-mod-n-max", "32"))
    limits = replace(LIMITS, speculation=("ngram-mod", "ngram-simple"), speculation_tokens=(4,))
    candidates, _ = build_space(own, limits, demand(), MODELS)

    assert {c.speculation for c in candidates[1:]} == {"ngram-simple"}
