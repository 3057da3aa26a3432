"""A number that somebody is told to type has to work: with it the finding is gone, and there is room left."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotune.diagnose.checkup import Rule
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.memory import RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from slotune.llama.server_answers import ModelMeta
from tests.diagnose.rules.building import ask, found, is_clear, is_undecided, of, pod, server

MIB = 2**20
LOGS = Path(__file__).parents[2] / "llama" / "logs"
KILLED = ("OOMKilled", 137)
START = """\
0.00.221.040 I srv          init: build_info: b11434-7e4c0a9
0.00.226.771 I srv    load_model: loading model '/models/m.gguf'
"""


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


def weights_lines(weights: float, held: float = 0.0) -> str:
    more = f"0.00.315.536 I load_tensors:   CPU_REPACK model buffer size = {held:8.2f} MiB\n" if held else ""
    return START + f"0.00.315.535 I load_tensors:   CPU_Mapped model buffer size = {weights:8.2f} MiB\n" + more


def start(
    weights: float = 92.1,
    kv: float = 180.0,
    buffers: float = 22.6,
    *,
    held: float = 0.0,
    context: int = 8192,
    slots: int = 4,
    unified: bool = True,
    sliding: float = 0.0,
    cache: int | None = 8192,
    ready: bool = True,
) -> str:
    """A start as b11434 prints it at -lv 4; ``sliding`` of the KV cache (MiB) is as large with any context."""
    streams = 1 if unified else slots
    windowed = (
        "0.00.318.570 I llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells\n"
        f"0.00.318.575 I llama_kv_cache:        CPU KV buffer size = {sliding:8.2f} MiB\n"
        f"0.00.318.575 I llama_kv_cache: size = {sliding:8.2f} MiB ( 1024 cells, 25 layers,  {slots}/{streams} seqs), "
        f"K (f16): {sliding / 2:8.2f} MiB, V (f16): {sliding / 2:8.2f} MiB\n"
    )
    cached = (
        "prompt cache is disabled - use `--cache-ram N` to enable it"
        if cache == 0
        else f"prompt cache is enabled, size limit: {'no limit' if cache == -1 else f'{cache} MiB'}"
    )
    return (
        weights_lines(weights, held)
        + "0.00.318.045 I llama_context: constructing llama_context\n"
        + f"0.00.318.055 I llama_context: n_ctx                 = {context}\n"
        + f"0.00.318.576 I llama_kv_cache:        CPU KV buffer size = {kv:8.2f} MiB\n"
        + f"0.00.318.577 I llama_kv_cache: size = {kv:8.2f} MiB ({context // streams:6} cells,  30 layers,  "
        + f"{slots}/{streams} seqs), K (f16): {kv / 2:8.2f} MiB, V (f16): {kv / 2:8.2f} MiB\n"
        + (windowed if sliding else "")
        + f"0.00.425.054 I sched_reserve:        CPU compute buffer size = {buffers:8.2f} MiB\n"
        + f"0.00.460.000 I srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = {context // streams}, "
        + f"kv_unified = '{str(unified).lower()}'\n"
        + ("" if cache is None else f"0.00.462.967 I srv    load_model: {cached}\n")
        + ("0.00.463.000 I srv          init: model loaded\n" if ready else "")
    )


def of_pod(text: str, limit_mib: int, *args: str, killed: bool = False, **more: object) -> Symptoms:
    own = pod(*args, memory_limit_bytes=limit_mib * MIB, last_exit=KILLED if killed else None, ready=not killed)
    return of(log=read(text) if text else None, pod=own, **more)


def number(pattern: str, text: str | None) -> int:
    match = re.search(pattern, text or "")
    assert match, text
    return int(match[1].replace(",", ""))


def typed_limit(first: str | None) -> int:
    return number(r"memory limit to ([\d,]+) MiB", first)


def rule(identifier: str) -> Rule:
    (one,) = (one for one in RULES if one.id == identifier)
    return one


# SLT033


def test_a_default_cache_larger_than_the_limit_is_found_whatever_the_weights_take() -> None:
    quiet = START + "0.00.463.000 I srv          init: model loaded\n"
    got = found(RULES, "SLT033", of_pod(quiet, 300))
    assert got.sentence == "the host prompt cache may grow to 8,192 MiB, the pod may use 300 MiB"
    assert (got.first or "").startswith("Set --cache-ram 0, or raise the memory limit to 9,216 MiB and what")
    assert is_undecided(RULES, "SLT033", of_pod(quiet, 9216)), "now it depends on the weights"
    found(RULES, "SLT033", of_pod(quiet, 300, "--cache-ram", "-1"))
    assert is_clear(RULES, "SLT033", of_pod(quiet, 300, "--cache-ram", "0"))


def test_in_a_pod_without_a_gpu_the_server_says_how_large_its_weights_are() -> None:
    look = server(model=ModelMeta("m", size_bytes=181 * MIB))
    symptoms = of_pod(START, 512, "--cache-ram", "400", server=look)
    assert "of which the model takes 181" in found(RULES, "SLT033", symptoms).sentence
    with_gpu = replace(symptoms, pod=replace(symptoms.pod, gpus=1))  # type: ignore[type-var]  # it has a pod
    assert is_undecided(RULES, "SLT033", with_gpu)


def test_what_fit_projects_counts_where_no_buffer_is_listed() -> None:
    words = "projected to use 294 MiB of host memory vs. 24105 MiB of total host memory"
    projected = f"0.00.191.105 I common_params_fit_impl: {words}\n"
    assert "takes 294" in found(RULES, "SLT033", of_pod(START + projected, 512, "--cache-ram", "400")).sentence
    assert is_clear(RULES, "SLT033", of_pod(START + projected, 512, "--cache-ram", "128"))


def test_the_cure_leaves_room_in_the_limit_too() -> None:
    got = found(RULES, "SLT033", of_pod(start(weights=181, kv=0, buffers=0), 512))
    assert typed_limit(got.first) * MIB > (181 + 8192) * MIB / 0.9


def test_a_cache_that_only_just_fits_is_worth_knowing() -> None:
    got = found(RULES, "SLT033", of_pod(start(weights=181, kv=100, buffers=20), 8192 + 310), Severity.INFO)
    assert "next to nothing is left" in got.sentence


def test_a_real_log_of_a_small_model_outgrows_a_small_pod_and_no_large_one() -> None:
    text = (LOGS / "all_defaults.log").read_text()
    found(RULES, "SLT033", of_pod(text, 4096))
    assert is_clear(RULES, "SLT033", of_pod(text, 10240))


def test_a_server_of_embeddings_keeps_no_prompts() -> None:
    assert is_clear(RULES, "SLT033", of_pod(START, 300, "--embeddings"))
    assert is_clear(RULES, "SLT033", of_pod(START, 300, "--reranking"))


mib = st.floats(0, 60_000)
caches = st.sampled_from([-1, 1, 64, 256, 1024, 8192, 100_000])


@settings(deadline=None)
@given(weights=mib, held=mib, kv=mib, buffers=mib, cache=caches, limit=st.integers(64, 200_000))
@example(weights=181.0, held=0.0, kv=0.0, buffers=0.0, cache=8192, limit=512)
def test_each_number_that_is_advised_for_the_cache_makes_the_finding_go_away_and_leaves_room(
    weights: float, held: float, kv: float, buffers: float, cache: int, limit: int
) -> None:
    def check(limit_mib: int, cache_mib: int) -> Finding | Clear | Undecided:
        text = start(weights, kv, buffers, held=held, cache=cache_mib)
        return ask(RULES, "SLT033", of_pod(text, limit_mib))

    said = check(limit, cache)
    if isinstance(said, Clear):
        assert max(weights, held) + kv + buffers + cache < limit
        return
    assert isinstance(said, Finding)
    smaller = number(r"--cache-ram (\d+)", said.first)
    assert isinstance(check(limit, smaller), Clear)
    # That it is set alone is said only where all else fits.
    others = max(weights, held) + kv + buffers + 64
    if abs(others - limit) > 0.1:  # logs round
        assert (said.first or "").startswith("Set ") is (others <= limit)
    assert not smaller or (max(weights, held) + kv + buffers + smaller) < limit - 64
    if cache > 0:
        larger = typed_limit(said.first)
        assert isinstance(check(larger, cache), Clear)
        assert larger > (max(weights, held) + kv + buffers + cache) / 0.9
        assert larger > limit


@settings(deadline=None)
@given(weights=st.integers(1, 60_000), mmproj=st.booleans(), cache=caches, limit=st.integers(64, 200_000))
def test_so_it_is_where_only_the_size_of_the_weights_is_known(
    weights: int, mmproj: bool, cache: int, limit: int
) -> None:
    def check(limit_mib: int, cache_mib: int) -> Finding | Clear | Undecided:
        look = server(model=ModelMeta("m", size_bytes=weights * MIB))
        args = ("--cache-ram", str(cache_mib), *(("--mmproj", "/models/p.gguf") if mmproj else ()))
        return ask(RULES, "SLT033", of_pod(START, limit_mib, *args, server=look))

    said = check(limit, cache)
    if isinstance(said, Finding):
        smaller = number(r"--cache-ram (\d+)", said.first)
        assert isinstance(check(limit, smaller), Clear)
        assert not smaller or weights + smaller + 2048 < limit
        if cache > 0:
            assert isinstance(check(typed_limit(said.first), cache), Clear)
            assert typed_limit(said.first) > weights + cache + 2048
    elif isinstance(said, Clear):
        assert weights + cache < limit
    else:
        assert "-lv 4" in said.needs


# SLT207


def killed(text: str, limit_mib: int, *args: str, **more: object) -> Finding:
    symptoms = of_pod(text, limit_mib, *args, killed=True, **more)
    return found(RULES, "SLT034", symptoms, Severity.CRITICAL, entry="SLT207")


def test_a_kv_cache_beyond_the_limit_is_named_with_its_line_and_a_context_that_fits() -> None:
    text = start(weights=92.1, kv=720, buffers=30, context=32768, cache=0, ready=False)
    got = killed(text, 384, "-c", "32768", "--cache-ram", "0")
    assert got.sentence.endswith("its limit is 384 MiB: weights 92 MiB, KV cache 720 MiB, buffers 30 MiB")
    assert "CPU KV buffer size =   720.00 MiB" in " ".join(one.text for one in got.evidence)
    assert "cacheRAMMiB" not in got.knobs
    assert "--cache-ram" not in (got.first or "")
    assert got.first == "Set -c 7424 instead of 32768; or raise the memory limit to 1,024 MiB."


def test_a_kv_cache_that_does_not_fit_is_named_before_a_prompt_cache_that_would_not_either() -> None:
    got = killed(start(kv=720, context=32768, cache=8192), 384, "-c", "32768")
    assert got.knobs[0] == "contextSizePerSlot"
    assert (got.first or "").startswith("Set -c 7680 instead of 32768 and --cache-ram 0; or raise the memory limit to ")


def test_what_a_start_has_no_room_for_is_told_before_anybody_was_killed_and_is_no_slow_page() -> None:
    starting = of_pod(start(kv=720, context=32768, cache=0, ready=False), 384, "-c", "32768", "--cache-ram", "0")
    starting = replace(starting, pod=replace(starting.pod, ready=False))  # type: ignore[type-var]  # it has a pod
    got = found(RULES, "SLT034", starting, Severity.CRITICAL)
    assert got.knobs[0] == "contextSizePerSlot"
    assert got.confidence is Confidence.LIKELY
    assert (got.first or "").startswith("Set -c ")
    assert is_clear(RULES, "SLT038", starting)


def test_a_log_that_ends_before_the_compute_buffer_leaves_room_for_it() -> None:
    whole = start(kv=720, buffers=200, context=32768, cache=0, ready=False)
    cut = whole[: whole.index("0.00.425.054")]
    got = killed(cut, 384, "-c", "32768", "--cache-ram", "0")
    assert "for the compute buffer: nobody said how much that takes" in (got.first or "")
    width = "0.00.300.000 I print_info: n_embd                = 576\n"
    known = killed(cut.replace(START, START + width), 384, "-c", "32768", "--cache-ram", "0")
    assert 4096 <= number(r"Set -c (\d+)", known.first) < 9000
    assert "of which 59 are for the compute buffer" in (known.first or "")


def test_a_context_that_nobody_stated_is_the_one_of_training() -> None:
    got = killed(start(kv=7200, context=131072, cache=0), 2048, "--cache-ram", "0")
    assert "instead of the 131072 that the model was trained for" in (got.first or "")


def test_slots_that_divide_the_context_get_a_share_each_or_become_fewer() -> None:
    text = start(kv=1440, context=32768, slots=4, unified=False, cache=0)
    got = killed(text, 1024, "-c", "32768", "-np", "4", "--cache-ram", "0")
    assert (got.first or "").startswith("Set -c 16384 (4,096 for each of 4 slots) instead of 32768; with -np 2 as well")


def test_weights_that_no_file_backs_are_named() -> None:
    got = killed(start(weights=900, held=880, kv=100, cache=0), 512, "--cache-ram", "0")
    assert got.knobs == ("variant",)
    assert (got.first or "").startswith("Take smaller weights, or raise the memory limit to ")


def test_the_prompt_cache_is_named_where_all_else_fits() -> None:
    got = killed(start(), 1024)
    assert got.sentence.endswith(
        "its prompt cache may grow to 8,192 MiB beside weights 92 MiB, KV cache 180 MiB, buffers 23 MiB"
    )
    assert got.knobs == ("cacheRAMMiB",)
    assert (got.first or "").startswith("Set --cache-ram 512, or raise the memory limit to 9,")


def test_a_cache_that_is_off_is_never_blamed_though_nothing_else_is_known() -> None:
    got = killed("", 384, "-c", "32768", "--cache-ram", "0")
    assert "there is no prompt cache" in got.sentence
    assert "Lower --cache-ram" not in (got.first or "")
    assert "cacheRAMMiB" not in got.knobs
    by_size = killed("", 384, "--cache-ram", "0", server=server(model=ModelMeta("m", size_bytes=900 * MIB)))
    assert "weights 900 MiB" in by_size.sentence
    assert "-lv 4" in (killed("", 384).first or ""), "with nothing known it says how to know"


def test_a_kill_before_the_kv_cache_was_made_is_not_the_prompt_caches() -> None:
    got = killed(weights_lines(92.1), 384, "-c", "131072")
    assert "no prompt was kept yet" in got.sentence
    assert (got.first or "").startswith("Lower -c (now 131072), or raise the memory limit to ")
    assert "cacheRAMMiB" not in got.knobs


def test_a_cache_that_alone_outgrows_the_limit_is_named_though_nothing_is_known_of_the_model() -> None:
    quiet = START + "0.00.463.000 I srv          init: model loaded\n"
    got = killed(quiet, 300)
    assert got.knobs == ("cacheRAMMiB",)
    assert "its prompt cache alone may grow to 8,192 MiB" in got.sentence


def test_where_all_that_is_counted_fits_something_else_took_it() -> None:
    got = killed(start(cache=0), 1024, "--cache-ram", "0")
    assert "would fit" in got.sentence
    assert typed_limit(got.first) == 1280


def test_memory_that_was_refused_is_told_by_the_same_parts() -> None:
    text = start(weights=92, kv=720, context=32768, cache=0) + (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
    )
    got = found(RULES, "SLT034", of_pod(text, 384, "--cache-ram", "0"), Severity.CRITICAL, entry="SLT207")
    assert got.sentence == "host memory ran out: weights 92 MiB, KV cache 720 MiB, buffers 23 MiB"
    assert "Lower --cache-ram" not in (got.first or "")


@settings(deadline=None)
@given(
    weights=st.floats(1, 20_000),
    held=st.floats(0, 20_000),
    per_token=st.floats(0.001, 0.5),
    sliding=st.floats(0, 2000),
    buffers=st.floats(0, 3000),
    context=st.integers(1, 512).map(lambda blocks: 2048 * blocks),
    slots=st.sampled_from([1, 2, 4]),
    unified=st.booleans(),
    cache=st.sampled_from([-1, 0, 128, 8192]),
    limit=st.integers(64, 60_000),
)
def test_a_server_that_was_killed_lives_with_each_number_that_is_advised(
    weights: float, held: float, per_token: float, sliding: float, buffers: float, context: int, slots: int,
    unified: bool, cache: int, limit: int,
) -> None:  # fmt: skip
    def text(tokens: int, cache_mib: int) -> str:
        return start(
            weights, per_token * tokens, buffers, held=held, context=tokens, slots=slots, unified=unified,
            sliding=sliding, cache=cache_mib,
        )  # fmt: skip

    def needs(tokens: int, cache_mib: int) -> float:
        return max(weights, held) + per_token * tokens + sliding + buffers + cache_mib

    def lives(limit_mib: int, tokens: int, cache_mib: int) -> bool:
        clear = is_clear(RULES, "SLT033", of_pod(text(tokens, cache_mib), limit_mib))
        return clear and needs(tokens, cache_mib) < limit_mib - 32

    first = killed(text(context, cache), limit, "-c", str(context)).first or ""
    if (smaller := re.search(r"-c (\d+)", first)) is not None:
        off = 0 if "and --cache-ram 0" in first.partition(";")[0] else cache
        assert lives(limit, int(smaller[1]), off)
    elif first.startswith("Set --cache-ram"):
        assert lives(limit, context, number(r"--cache-ram (\d+)", first))
    if (larger := re.search(r"memory limit to ([\d,]+) MiB", first)) is not None:
        kept = 0 if "MiB and set --cache-ram 0" in first else cache
        assert lives(int(larger[1].replace(",", "")), context, kept)
    if (without := re.search(r"\(([\d,]+) with --cache-ram 0\)", first)) is not None:
        assert lives(int(without[1].replace(",", "")), context, 0)


# SLT038


@settings(deadline=None)
@given(weights=st.integers(300, 60_000), kv=mib, cache=st.sampled_from([0, 128, 8192]), limit=st.integers(64, 59_000))
def test_the_room_that_weights_are_given_is_enough_for_the_cache_beside_them(
    weights: int, kv: float, cache: int, limit: int
) -> None:
    text = start(weights, kv, cache=cache)
    said = ask(RULES, "SLT038", of_pod(text, limit))
    if isinstance(said, Finding):
        roomy = of_pod(text, number(r"Give it ([\d,]+) MiB", said.first))
        assert is_clear(RULES, "SLT038", roomy)
        assert is_clear(RULES, "SLT033", roomy)


@pytest.mark.parametrize("identifier", ["SLT033", "SLT034", "SLT038"])
def test_no_number_is_advised_of_nothing(identifier: str) -> None:
    assert isinstance(rule(identifier).check(of(log=read(START))), Undecided)
