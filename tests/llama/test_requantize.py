"""A variant must be the same model in another type, appear whole or not at all, and never cost a user's own file."""

from __future__ import annotations

import resource
import shutil
import time
from collections import namedtuple
from pathlib import Path

import gguf
import numpy as np
import pytest

from slotune.llama import requantize as module
from slotune.llama.gguf_facts import UnreadableModelError, read_facts
from slotune.llama.requantize import (
    TARGET_TYPES,
    DiskFullError,
    ForeignFileError,
    UnsupportedTensorError,
    requantize,
    variant_path,
)
from tests.tiny_models import write_tiny_model


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Q8_0 model with a mixture of experts and grouped heads."""
    folder = tmp_path_factory.mktemp("source")
    return write_tiny_model(
        folder / "tiny.Q8_0.gguf", layers=2, kv_heads=2, experts=4, experts_used=2, quantization="Q8_0"
    )


def weights(path: Path) -> dict[str, np.ndarray]:
    """Every tensor in f32."""
    return {t.name: gguf.quants.dequantize(np.array(t.data), t.tensor_type) for t in gguf.GGUFReader(path).tensors}


def types(path: Path) -> dict[str, str]:
    return {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize(("target", "tolerance"), [("F16", 0.001), ("Q4_0", 0.15)])
def test_a_variant_has_the_same_tensors_close_to_the_same_weights(
    source: Path, tmp_path: Path, target: str, tolerance: float
) -> None:
    made, original = weights(requantize(source, target, tmp_path)), weights(source)

    assert list(made) == list(original)
    for name, want in original.items():
        assert made[name].shape == want.shape
        assert np.abs(made[name] - want).max() <= tolerance * np.abs(want).max() + 1e-6, name


def test_the_file_says_what_it_is(source: Path, tmp_path: Path) -> None:
    for target in ("F16", "Q4_0"):
        facts = read_facts(requantize(source, target, tmp_path))
        assert facts.quantization == target
        assert facts.layers == read_facts(source).layers


def test_everything_but_the_weights_is_copied(source: Path, tmp_path: Path) -> None:
    made = gguf.GGUFReader(requantize(source, "F16", tmp_path))
    original = gguf.GGUFReader(source)
    changed = {"general.file_type", "general.quantization_version"}

    for key, field in original.fields.items():
        if key.startswith("GGUF.") or key in changed:
            continue
        copy = made.fields[key]
        assert copy.types == field.types, key
        assert copy.contents() == field.contents(), key
    added = made.fields.keys() - original.fields.keys()
    assert added == {"slotune.source.identity", "slotune.recipe"}


def test_norms_and_routers_stay_floats_and_tables_keep_eight_bits(source: Path, tmp_path: Path) -> None:
    made = types(requantize(source, "Q4_0", tmp_path))

    assert made["blk.0.attn_norm.weight"] == made["blk.0.ffn_gate_inp.weight"] == "F32"
    assert made["token_embd.weight"] == made["output.weight"] == "Q8_0"
    assert made["blk.0.attn_q.weight"] == made["blk.1.ffn_down_exps.weight"] == "Q4_0"


def test_rows_that_are_no_whole_blocks_become_f16(tmp_path: Path) -> None:
    odd = write_tiny_model(tmp_path / "odd.F16.gguf", heads=2, embedding=80, feed_forward=96, key_length=32)

    assert types(requantize(odd, "Q8_0", tmp_path))["blk.0.attn_q.weight"] == "F16"


def test_equal_sources_give_equal_bytes(source: Path, tmp_path: Path) -> None:
    one, two = (requantize(source, "Q4_0", tmp_path / name) for name in ("one", "two"))

    assert one.read_bytes() == two.read_bytes()


def test_a_large_tensor_is_the_same_in_pieces(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = requantize(source, "Q4_0", tmp_path / "whole").read_bytes()
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 1000)

    assert requantize(source, "Q4_0", tmp_path / "pieces").read_bytes() == whole


def test_what_is_there_already_is_not_made_again(source: Path, tmp_path: Path) -> None:
    made = requantize(source, "F16", tmp_path)
    before = made.stat()
    seen: list[float] = []

    assert requantize(source, "F16", tmp_path, seen.append) == made
    after = made.stat()  # it may be read, so the time of that may differ
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    assert seen == [1.0]


def test_another_source_of_the_same_name_is_made_again(source: Path, tmp_path: Path) -> None:
    requantize(source, "F16", tmp_path)
    other = write_tiny_model(tmp_path / source.name, layers=1, quantization="Q8_0", seed=1)

    assert len(read_facts(requantize(other, "F16", tmp_path)).layers) == 1


def test_progress_grows_to_one(source: Path, tmp_path: Path) -> None:
    seen: list[float] = []

    requantize(source, "F16", tmp_path, seen.append)

    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) > 10


def test_an_interruption_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    def interrupt(share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        requantize(source, "F16", tmp_path, interrupt)

    assert list(tmp_path.iterdir()) == []


def test_an_older_result_survives_an_interruption(source: Path, tmp_path: Path) -> None:
    made = requantize(write_tiny_model(tmp_path / source.name, quantization="Q8_0"), "F16", tmp_path)
    before = made.read_bytes()

    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        requantize(source, "F16", tmp_path, interrupt)

    assert made.read_bytes() == before


def test_a_users_own_file_is_never_replaced(source: Path, tmp_path: Path) -> None:
    own = shutil.copy(source, tmp_path / "tiny.F16.gguf")

    with pytest.raises(ForeignFileError, match="left alone"):
        requantize(source, "F16", tmp_path)
    assert own.read_bytes() == source.read_bytes()


def test_a_broken_file_in_its_place_is_not_replaced_either(source: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.F16.gguf").write_bytes(b"hello")

    with pytest.raises(ForeignFileError, match="move it or choose another directory"):
        requantize(source, "F16", tmp_path)


def test_the_source_itself_is_never_replaced(source: Path) -> None:
    before = source.read_bytes()

    with pytest.raises(ForeignFileError):
        requantize(source, "Q8_0", source.parent)
    assert source.read_bytes() == before


def test_without_room_on_the_disk_nothing_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage(100, 0, 100))

    with pytest.raises(DiskFullError, match="free some space"):
        requantize(source, "F16", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_type_that_cannot_be_read_is_named_with_its_tensor(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "llama")
    for key in ("block_count", "context_length", "embedding_length", "attention.head_count"):
        writer.add_uint32(f"llama.{key}", 256)
    kind = gguf.GGMLQuantizationType.Q8_K
    size = gguf.GGML_QUANT_SIZES[kind][1]
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((2, size), dtype=np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with pytest.raises(UnsupportedTensorError, match=r"blk\.0\.attn_q\.weight.*Q8_K"):
        requantize(tmp_path / "odd.gguf", "F16", tmp_path / "out")


def test_only_some_types_can_be_made(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only F16, Q8_0, Q4_0 can be made"):
        requantize(source, "Q4_K_M", tmp_path)


def test_an_unreadable_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModelError, match="no such file"):
        requantize(tmp_path / "nothing.gguf", "F16", tmp_path)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.F16.gguf"),
        ("Llama-3-8B-Q4_K_M.gguf", "Llama-3-8B.F16.gguf"),
        ("model-bf16.gguf", "model.F16.gguf"),
        ("model.IQ4_XS.gguf", "model.F16.gguf"),
        ("Qwen2.5-7B.gguf", "Qwen2.5-7B.F16.gguf"),
        ("big-Q8_0-00001-of-00003.gguf", "big.F16.gguf"),
    ],
)
def test_the_name_has_the_new_type_in_place_of_the_old(name: str, want: str) -> None:
    assert variant_path(f"/models/{name}", "F16", "/out") == Path("/out") / want


def test_the_demos_model_becomes_f16_quickly_and_in_little_memory(demo_model: Path, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()

    facts = read_facts(requantize(demo_model, "F16", tmp_path))

    assert time.process_time() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # KiB
    assert facts.weights_bytes / 2**20 == pytest.approx(256.63, abs=0.01)
    assert facts.vocabulary == 49152


def test_the_types_are_those_that_the_demo_needs() -> None:
    assert TARGET_TYPES == ("F16", "Q8_0", "Q4_0")
