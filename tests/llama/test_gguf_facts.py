"""Facts must be what llama.cpp will make of the file, and a file that it would refuse must be refused in words."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotune.llama.file_digest import FileChangedError
from slotune.llama.gguf_facts import UnreadableModelError, read_facts
from slotune.llama.gguf_header import read_header
from slotune.llama.model_facts import LayerCache
from tests.tiny_models import write_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers, two KV heads of 64."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-Q8_0.gguf", layers=4, kv_heads=2, words=512)


def write_keys(path: Path, architecture: str = "llama", **keys: object) -> Path:
    """A file with these keys (``__`` is a dot) below the architecture, and one small tensor."""
    writer = gguf.GGUFWriter(path, architecture)
    stated = {"block_count": 4, "context_length": 4096, "embedding_length": 64, "attention__head_count": 4} | keys
    for key, value in stated.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        if isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif value is not None:
            writer.add_array(name, value)
    writer.add_tensor("token_embd.weight", np.zeros((32, 64), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def refusal(path: Path) -> UnreadableModelError:
    with pytest.raises(UnreadableModelError) as caught:
        read_facts(path)
    assert caught.value.cure
    assert str(path) in str(caught.value)
    return caught.value


def test_a_generated_models_facts_are_those_it_was_made_with(tiny: Path) -> None:
    facts = read_facts(tiny)

    assert facts.architecture == "llama"
    assert facts.quantization == "F16"
    assert (facts.context_length, facts.vocabulary, facts.embedding, facts.heads) == (2048, 512, 256, 4)
    assert facts.layers == (LayerCache(128, 128),) * 4
    assert facts.file_bytes == tiny.stat().st_size
    tensors = gguf.GGUFReader(tiny).tensors
    assert facts.weights_bytes == sum(tensor.n_bytes for tensor in tensors)
    assert facts.bits_per_weight == pytest.approx(facts.weights_bytes * 8 / sum(t.n_elements for t in tensors))


def test_the_demos_model_has_the_figures_that_llama_cpp_prints_of_it(demo_model: Path) -> None:
    facts = read_facts(demo_model)

    assert facts.quantization == "Q4_1"
    assert facts.weights_bytes / 2**20 == pytest.approx(92.10, abs=0.005)
    assert facts.bits_per_weight == pytest.approx(5.74, abs=0.005)
    assert (facts.context_length, facts.vocabulary, facts.embedding, facts.heads) == (8192, 49152, 576, 9)
    assert facts.layers == (LayerCache(192, 192),) * 30
    assert facts.feed_forward == 1536


def test_facts_of_a_real_model_take_less_than_a_second_and_little_memory(demo_model: Path) -> None:
    script = (
        "import resource, time\n"
        "from slotune.llama.gguf_facts import read_facts\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "began = time.process_time()\n"
        f"read_facts({str(demo_model)!r})\n"
        "print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    seconds, kibibytes = map(float, told.stdout.split())

    assert seconds < 1.0
    assert kibibytes < 64 * 1024  # the gguf package's own modules are most of it


def test_an_embedding_table_of_its_own_is_read_row_by_row_and_stays_in_host_memory(tiny: Path) -> None:
    facts = read_facts(tiny)
    table = 512 * 256 * 2

    assert facts.host_weights_bytes == table
    assert facts.active_weights_bytes == facts.weights_bytes - table + 256 * 2


def test_a_tied_embedding_table_is_read_whole(tmp_path: Path) -> None:
    facts = read_facts(write_tiny_model(tmp_path / "tied.gguf", tied=True))

    assert facts.host_weights_bytes == 0
    assert facts.active_weights_bytes == facts.weights_bytes


def test_of_a_mixture_only_the_chosen_experts_are_read(tmp_path: Path) -> None:
    facts = read_facts(write_tiny_model(tmp_path / "moe.gguf", layers=3, experts=8, experts_used=2))
    experts = 3 * 3 * 8 * 512 * 256 * 2
    table = 512 * 256 * 2

    assert facts.active_weights_bytes == facts.weights_bytes - experts * 6 // 8 - table + 256 * 2
    assert facts.feed_forward == 2 * 512


def test_a_quantization_that_is_not_stated_is_that_of_most_matrices(tmp_path: Path) -> None:
    assert read_facts(write_keys(tmp_path / "bare.gguf")).quantization == "F16"


def test_the_cpu_backends_copies_are_counted_where_there_are_any(tmp_path: Path) -> None:
    plain = read_facts(write_tiny_model(tmp_path / "q8.gguf", quantization="Q8_0"))
    copied = read_facts(write_tiny_model(tmp_path / "q4.gguf", quantization="Q4_0"))
    tied = read_facts(write_tiny_model(tmp_path / "tied.gguf", quantization="Q4_0", layers=1, tied=True))
    table, norm = 512 * 256 * 18 // 32, 256 * 4

    assert tied.cpu_buffer_bytes == (table + 3 * norm) + (tied.weights_bytes - 3 * norm)
    assert plain.cpu_buffer_bytes == pytest.approx(plain.weights_bytes, rel=0.001)
    assert copied.cpu_buffer_bytes > 1.3 * copied.weights_bytes


def test_the_identity_changes_with_the_file_and_only_with_it(tmp_path: Path, tiny: Path) -> None:
    copy = tmp_path / "another-name.gguf"
    shutil.copy(tiny, copy)
    other = write_tiny_model(tmp_path / "other.gguf", layers=4, kv_heads=2, words=513)
    longer = tmp_path / "longer.gguf"
    longer.write_bytes(tiny.read_bytes() + b"\0")

    assert read_facts(copy).identity == read_facts(tiny).identity
    assert len({read_facts(path).identity for path in (tiny, other, longer)}) == 3


def test_weights_of_another_training_with_the_same_header_are_another_model(tmp_path: Path) -> None:
    one, two = (write_tiny_model(tmp_path / f"{seed}.gguf", seed=seed) for seed in (1, 2))
    assert read_header(one).digest == read_header(two).digest
    assert read_facts(one).identity != read_facts(two).identity


@pytest.mark.parametrize("share", [0.0, 0.013, 0.5, 0.77, 1.0])
def test_one_damaged_byte_anywhere_in_the_weights_makes_another_model(tmp_path: Path, tiny: Path, share: float) -> None:
    damaged = tmp_path / "damaged.gguf"
    shutil.copy(tiny, damaged)
    start = read_header(tiny).data_start
    with damaged.open("r+b") as file:
        file.seek(start + round((tiny.stat().st_size - 1 - start) * share))
        was = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([was[0] ^ 1]))
    assert read_facts(damaged).identity != read_facts(tiny).identity


def test_damage_in_any_part_of_a_split_model_makes_another_model(tmp_path: Path, tiny: Path) -> None:
    first, _, last = split(tiny, tmp_path, 3)
    sound = read_facts(first).identity
    content = last.read_bytes()
    last.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert read_facts(first).identity != sound


def test_who_asks_for_memory_and_speed_only_gets_no_identity(tiny: Path) -> None:
    assert read_facts(tiny, hashed=False) == replace(read_facts(tiny), identity="")


def test_a_model_that_is_written_to_meanwhile_is_refused_in_words(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changing(path: Path, cache: Path | None) -> str:
        raise FileChangedError(path)

    monkeypatch.setattr("slotune.llama.gguf_facts.file_digest", changing)
    assert "wait until it is complete" in refusal(tiny).cure


def split(path: Path, folder: Path, parts: int) -> list[Path]:
    """The model at ``path`` over several files, as llama.cpp's gguf-split leaves it."""
    reader = gguf.GGUFReader(path)
    paths = [folder / f"big-{number:05}-of-{parts:05}.gguf" for number in range(1, parts + 1)]
    for number, part in enumerate(paths):
        writer = gguf.GGUFWriter(part, "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", parts)
        if number == 0:
            for key in ("block_count", "context_length", "embedding_length", "attention.head_count"):
                writer.add_uint32(f"llama.{key}", int(reader.get_field(f"llama.{key}").contents()))
        for tensor in reader.tensors[number::parts]:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_a_split_model_is_the_sum_of_its_parts(tmp_path: Path, tiny: Path) -> None:
    first, *others = split(tiny, tmp_path, 3)
    facts = read_facts(first)

    assert facts.weights_bytes == read_facts(tiny).weights_bytes
    assert facts.file_bytes == sum(path.stat().st_size for path in (first, *others))
    assert facts.host_weights_bytes == 512 * 256 * 2


def test_a_part_that_is_missing_is_named(tmp_path: Path, tiny: Path) -> None:
    first, _, last = split(tiny, tmp_path, 3)
    last.unlink()

    assert str(last) in refusal(first).cure


def test_a_later_part_points_to_the_first(tmp_path: Path, tiny: Path) -> None:
    first, second = split(tiny, tmp_path, 2)

    assert refusal(second).cure == f"name {first}"


def test_a_renamed_part_says_what_its_name_must_be(tmp_path: Path, tiny: Path) -> None:
    first, _ = split(tiny, tmp_path, 2)
    renamed = first.rename(tmp_path / "model.gguf")

    assert "NAME-00001-of-00002.gguf" in refusal(renamed).cure


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nothing.gguf").what


def test_a_directory(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path).what


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"not a model, however long this text may be", "no GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60), "damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**50) + bytes(40), "cut off"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99) + bytes(20), "value type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "general.architecture is missing"),
    ],
)
def test_what_is_no_readable_gguf_file_says_so(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)

    assert word in refusal(path).what


def test_a_download_that_stopped_in_the_weights_says_what_is_missing(tmp_path: Path, tiny: Path) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(tiny.read_bytes()[:-1000])

    error = refusal(path)

    assert "cut off" in error.what
    assert "bytes more" in error.what
    assert "download it again" in error.cure


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, tiny: Path, share: float) -> None:
    whole = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * share)])

    refusal(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 8000), value=st.integers(0, 255))
def test_a_flipped_byte_in_the_header_gives_facts_or_a_refusal_and_nothing_else(
    tmp_path: Path, tiny: Path, position: int, value: int
) -> None:
    damaged = bytearray(tiny.read_bytes())
    damaged[position] = value
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damaged)

    with contextlib.suppress(UnreadableModelError):
        assert read_facts(path).weights_bytes > 0


@pytest.mark.parametrize("key", ["block_count", "context_length", "embedding_length", "attention__head_count"])
def test_a_key_that_llama_cpp_needs_is_named_when_it_is_missing(tmp_path: Path, key: str) -> None:
    named = key.replace("__", ".")

    assert refusal(write_keys(tmp_path / "bare.gguf", **{key: None})).what == f"the key llama.{named} is missing"


def test_a_key_of_the_wrong_kind_is_named(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "odd.gguf", attention__head_count_kv="four")

    assert "llama.attention.head_count_kv should be a number" in refusal(path).what


def test_more_layers_than_llama_cpp_has_are_refused(tmp_path: Path) -> None:
    assert "at most 512" in refusal(write_keys(tmp_path / "deep.gguf", block_count=2**31)).what


def test_a_projector_is_no_language_model(tmp_path: Path) -> None:
    assert "multimodal projector" in refusal(write_keys(tmp_path / "mmproj.gguf", "clip")).what


def test_texts_keep_their_bytes_even_where_they_are_no_utf8(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "text.gguf", name="caf\u00e9")
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xfe"))

    assert read_header(path).metadata["llama.name"].encode(errors="surrogateescape") == b"caf\xff\xfe"


def test_only_the_identity_reads_the_weights(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "sparse.gguf")
    content = path.read_bytes()
    with path.open("wb") as file:
        file.write(content)
        file.truncate(len(content) + 2**36)  # sparse: takes no room on the disk
    began = time.perf_counter()

    assert read_facts(path, hashed=False).file_bytes > 2**36
    assert time.perf_counter() - began < 5


def test_a_prompt_token_needs_no_table_no_output_matrix_and_not_the_last_blocks_feed_forward(tmp_path: Path) -> None:
    facts = read_facts(write_tiny_model(tmp_path / "tiny.gguf"), hashed=False)
    head = read_header(tmp_path / "tiny.gguf")
    last = len(facts.layers) - 1
    sizes = {one.name: one.elements for one in head.tensors if one.name.startswith("blk.") and len(one.shape) > 1}
    assert sizes
    by_hand = sum(size for name, size in sizes.items() if not name.startswith(f"blk.{last}.ffn_"))
    assert facts.prompt_parameters == by_hand
