"""What a build does by itself is what was found about that build, and what was not found is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slotune.llama.build_arguments import unsupported
from slotune.llama.build_defaults import BUILD_11549, TURNS, defaults_of
from slotune.llama.build_evidence import defaults_for
from slotune.llama.build_number import build_of_image, build_of_text
from slotune.llama.candidate import Candidate
from slotune.llama.flags import from_args, to_args

BUILDS = st.sampled_from([5200, 6000, 6301, 6310, 6327, 6663, 6869, 7079, 7394, 7433, 7539, 8664, 8854, 10114, 11434])


def baseline(args: str, build: int | None) -> Any:
    return from_args(
        f"-m m.gguf {args}".split(),
        variant="v",
        gpu_class="g",
        training_context=32768,
        defaults=defaults_of(build),
    )


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b6869", 6869),
        ("ghcr.io/ggml-org/llama.cpp:server-b11434", 11434),
        ("ghcr.io/ggml-org/llama.cpp:full-b5000", 5000),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13-b11206@sha256:91ac61def9ed19af", 11206),
        ("registry.example:5000/llama.cpp:b11434-server", 11434),
        ("registry.example:5000/b11434/llama.cpp", None),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", None),
        ("ghcr.io/ggml-org/llama.cpp@sha256:91ac61def9edb11206", None),
        ("example/llama:cuda-b128", None),
        ("example/llama:web11434", None),
        (None, None),
    ],
)
def test_an_images_tag_names_the_build(image: str | None, want: int | None) -> None:
    assert build_of_image(image) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("version: 6869 (1a2b3c4d)\nbuilt with gcc", 6869),
        ("version: 0.1.0-dev (build 10429, commit 77918caf3)", 10429),
        ("build: 6019 (8ad7b3e6) with cc (Debian)", 6019),
        ("version: 2.0.0 (build 20001, commit 77918caf3)", 20001),
        ("common_params_print_info: build 11434 (7e4c0a9) with GNU 11.4.0", 11434),
        ("11434 (7e4c0a9)", 11434),
        ('{"build_info":"b11434-1a2b3c4d5"}', 11434),
        ("slotune engine: xllamacpp 2026.10.11549", 11549),
        ("version: 1 (7e4c0a9)", None),
        ("build_info: b0-unknown", None),
        ("no such thing", None),
    ],
)
def test_the_program_says_its_build(text: str, want: int | None) -> None:
    assert build_of_text(text) == want


@pytest.mark.parametrize(
    ("build", "want"),
    [
        pytest.param(
            5200,
            {"parallel_slots": 1, "kv_unified": False, "context_per_slot": 4096, "flash_attention": "off",
             "gpu_layers": "0", "cache_ram_mib": 0, "cache_idle_slots": False},
            id="spring 2025",
        ),
        pytest.param(
            6500, {"parallel_slots": 1, "flash_attention": "auto", "gpu_layers": "all", "cache_ram_mib": 0},
            id="attention and layers by themselves",
        ),
        pytest.param(
            7079,
            {"parallel_slots": 4, "kv_unified": True, "context_per_slot": 1024, "cache_ram_mib": 8192,
             "cache_idle_slots": False},
            id="four slots and a prompt cache",
        ),
        pytest.param(
            8000, {"gpu_layers": "auto", "context_per_slot": 8192, "cache_idle_slots": False},
            id="what is not stated is fitted",
        ),
        pytest.param(8700, {"cache_idle_slots": True}, id="idle slots are saved"),
        pytest.param(None, {"parallel_slots": 4, "cache_ram_mib": 8192, "cache_idle_slots": True}, id="not known"),
    ],
)  # fmt: skip
def test_a_server_without_flags_is_what_its_build_makes_of_it(build: int | None, want: dict[str, Any]) -> None:
    parsed = baseline("", build)

    assert parsed.errors == ()
    assert {name: getattr(parsed.candidate, name) for name in want} == want


def test_an_explicit_single_slot_was_once_as_good_as_none() -> None:
    assert baseline("-np 1 -c 4096", 7100).baseline.parallel_slots == 4
    assert baseline("-np 1 -kvu -c 4096", 7100).baseline.parallel_slots == 1
    assert baseline("-np 1 -c 4096", 7433).baseline.parallel_slots == 1
    assert baseline("-np 1 -c 4096", 6500).baseline.parallel_slots == 1


def test_minus_one_layer_is_whatever_the_build_does_by_itself() -> None:
    layers = [baseline("-ngl -1 -c 4096", build).baseline.gpu_layers for build in (6000, 6500, 8000, None)]

    assert layers == ["0", "all", "auto", "auto"]


def test_a_default_that_is_not_certain_is_said_where_it_matters() -> None:
    told = " ".join(baseline("-c 4096", 6869).notes)
    assert "-np is not set, and llama.cpp #16736 changed the default after b6663 and by b7079" in told
    assert "-cram is not set" in told

    assert "changed the default" not in " ".join(baseline("-np 2 -c 4096 -cram 0", 6869).notes)
    assert "changed the default" not in " ".join(baseline("", 8700).notes)


def test_builds_beyond_what_is_known_are_said() -> None:
    assert any("up to b11549" in note for note in baseline("", 20000).notes)
    assert any("from b5129 on" in note for note in baseline("", 4000).notes)


def test_an_unknown_build_is_taken_for_the_newest_and_said() -> None:
    assert replace(defaults_of(None), build=11549, notes=()) == BUILD_11549
    (told,) = [note for note in baseline("-np 2 -c 4096", None).notes if "build" in note]
    assert told == (
        "Nothing says which build of llama.cpp the image is of, so defaults and rules of b11549 are assumed: an image "
        "whose tag has the build, such as server-b11549, leaves nothing to assume."
    )
    assert baseline("-np 2 -c 4096 -ngl all", 11434).notes == ()


@pytest.mark.parametrize(
    ("args", "build", "want"),
    [
        ("-np 2", None, None),
        ("-fa -np 2", None, 6301),
        ("--no-mmap", None, 10114),
        ("--no-mmap -fa", None, 6301),
        ("--clear-idle", None, 8853),
        ("-fa -cram 0", None, None),
        ("-fa", 6310, 6310),
    ],
)
def test_the_flags_of_a_server_that_runs_say_how_new_it_can_be(args: str, build: int | None, want: int | None) -> None:
    defaults = defaults_for(args.split(), {}, build)

    assert defaults.build == want
    assert (build is None) == any("Nothing says which build" in note for note in defaults.notes)


def test_turns_are_in_order() -> None:
    assert [turn.absent for turn in TURNS] == sorted((turn.absent for turn in TURNS), reverse=True)
    assert all(turn.absent < turn.present for turn in TURNS)


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    unified = draw(st.booleans())
    ram = draw(st.integers(-1, 9000))
    return Candidate(
        variant="v",
        gpu_class="g",
        parallel_slots=draw(st.integers(1, 64)),
        context_per_slot=256 * draw(st.integers(1, 128)),
        kv_unified=unified,
        batch_size=2048,
        ubatch_size=draw(st.sampled_from([256, 512, 1024])),
        flash_attention=draw(st.sampled_from(["on", "off", "auto"])),
        cache_prompt=draw(st.booleans()),
        cache_ram_mib=ram,
        cache_idle_slots=ram != 0 and draw(st.booleans()),
        cache_reuse=draw(st.integers(0, 512)),
    )


@given(candidates(), BUILDS)
def test_an_early_build_is_told_what_it_understands_and_runs_the_same_candidate(
    candidate: Candidate, build: int
) -> None:
    defaults = defaults_of(build)
    assume(not unsupported(candidate, defaults))
    words = to_args(candidate, model_path="m", host="h", port=1, alias="a", defaults=defaults)

    parsed = from_args(words, variant="v", gpu_class="g", training_context=32768, defaults=defaults)

    assert parsed.errors == ()
    assert parsed.candidate == candidate


def test_what_an_early_build_cannot_do_is_said() -> None:
    modern = Candidate("v", "g", 1, 256, cache_ram_mib=64, cache_idle_slots=True, flash_attention="auto")

    assert len(unsupported(modern, defaults_of(5200))) == 3
    assert [told for told in unsupported(modern, defaults_of(7100)) if "#17300" in told]
    assert unsupported(modern, defaults_of(11434)) == unsupported(modern, defaults_of(None)) == ()
