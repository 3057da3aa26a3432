"""Facts of a model from its GGUF file or files: what memory and speed depend on, and an identity.

Memory and speed are known from headers (:mod:`slotune.llama.gguf_header`), in a moment whatever the size. The identity
says that two files hold the same answers, and damage may lie in any block, so it is a digest of every byte
(:mod:`slotune.llama.file_digest`). A model that is split into several files is read through its first one, as
llama-server does, and all its parts must be there.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slotune.llama.file_digest import FileChangedError, file_digest
from slotune.llama.gguf_header import ArrayPlace, Header, TensorInfo, UnreadableModelError, read_header
from slotune.llama.layer_caches import INEXACT, RECURRENT, layer_caches, per_layer
from slotune.llama.model_facts import ModelFacts
from slotune.llama.tensor_parts import INPUT_TABLES, block_of, prompt_parameters

__all__ = ["UnreadableModelError", "read_facts", "read_parts"]

REPACKED = ("Q4_0", "Q4_K", "IQ4_NL", "MXFP4")
"""Types that the CPU backend rearranges on x86 with AVX2 and on ARM (ggml-cpu/repack.cpp at b11434). ARM rearranges
Q5_K, Q6_K and Q8_0 as well, AVX-512 also Q2_K: not counted, a bound must not be pessimistic."""
REPACKED_ROWS = 8
"""Only matrices whose rows come in whole groups."""

LAYERS_MAX = 512
"""LLAMA_MAX_LAYERS of llama.cpp b11434."""

_PART = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


def read_facts(path: str | Path, *, hashed: bool = True, cache: Path | None = None) -> ModelFacts:
    """Facts of the model whose only or first file is ``path``.

    Args:
        path: The file.
        hashed: False leaves the identity empty and reads no weights, where only memory and speed are asked for.
        cache: Folder that keeps identities, from :func:`slotune.llama.file_digest.cache_folder`; None keeps none.

    Raises:
        UnreadableModelError: the file or a part is missing, damaged, truncated or of an unsupported version, lacks a
            key that llama.cpp needs as well, holds something that is no language model, or changes while it is read.
    """
    parts = read_parts(path)
    head = parts[0]
    architecture = _architecture(head)
    metadata = head.metadata

    def get(key: str) -> Any:
        return _numbers(head, f"{architecture}.{key}")

    for key in ("block_count", "context_length", "embedding_length"):
        _positive(head, f"{architecture}.{key}")
    if architecture not in RECURRENT and get("attention.head_count") is None:
        what = f"the key {architecture}.attention.head_count is missing"
        raise UnreadableModelError(path, what, "convert the model again with a current llama.cpp")
    layers = int(get("block_count"))
    if layers > LAYERS_MAX:
        what = f"the key {architecture}.block_count is {layers:,}, llama.cpp has at most {LAYERS_MAX} layers"
        raise UnreadableModelError(path, what, "download it again")
    tensors = [tensor for part in parts for tensor in part.tensors]
    if not tensors:
        raise UnreadableModelError(path, "the file holds no tensors", "name a model, not a vocabulary")
    weights = sum(tensor.size for tensor in tensors)
    heads = per_layer(get("attention.head_count") or 0, layers)
    return ModelFacts(
        path=str(path),
        file_bytes=sum(part.file_bytes for part in parts),
        identity=_identity(parts, cache) if hashed else "",
        architecture=architecture,
        quantization=_quantization(metadata.get("general.file_type"), tensors),
        context_length=int(get("context_length")),
        vocabulary=_vocabulary(metadata, get("vocab_size"), tensors),
        embedding=int(get("embedding_length")),
        heads=max(heads),
        layers=layer_caches(architecture, get),
        weights_bytes=weights,
        active_weights_bytes=_active_bytes(tensors, get, layers),
        bits_per_weight=weights * 8 / sum(tensor.elements for tensor in tensors),
        feed_forward=_feed_forward(get, layers),
        host_weights_bytes=_host_bytes(tensors),
        cpu_buffer_bytes=_cpu_buffer_bytes(parts, tied=_is_tied(tensors)),
        prompt_parameters=prompt_parameters(tensors, get, layers),
        kv_exact=architecture not in INEXACT,
    )


def read_parts(path: str | Path) -> tuple[Header, ...]:
    """Headers of all files of the model whose only or first file is ``path``, in order.

    Raises:
        UnreadableModelError: as :func:`read_facts`, as far as files and headers go.
    """
    path = Path(path)
    head = read_header(path)
    count = int(head.metadata.get("split.count") or 1)
    if count <= 1:
        return (head,)
    named = _PART.match(path.name)
    if named is None or int(named["count"]) != count:
        cure = f"give the parts back the names they came with, NAME-00001-of-{count:05}.gguf and so on"
        raise UnreadableModelError(path, f"this is one of {count} parts, but not named like one", cure)

    def part(number: int) -> Path:
        return path.with_name(f"{named['stem']}-{number:05}-of-{count:05}.gguf")

    if int(head.metadata.get("split.no") or 0) != 0:
        raise UnreadableModelError(path, f"this is part {named['number']} of a split model", f"name {part(1)}")
    missing = [str(part(number)) for number in range(2, count + 1) if not part(number).is_file()]
    if missing:
        what = f"{len(missing)} of its {count} parts {'is' if len(missing) == 1 else 'are'} missing"
        raise UnreadableModelError(path, what, f"put {', '.join(missing)} beside it")
    return (head, *(read_header(part(number)) for number in range(2, count + 1)))


def _architecture(head: Header) -> str:
    architecture = head.metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        what = "the key general.architecture is missing"
        raise UnreadableModelError(head.path, what, "convert the model again with a current llama.cpp")
    kind = head.metadata.get("general.type", "model")
    if architecture == "clip" or kind in {"mmproj", "adapter", "imatrix"}:
        what = "multimodal projector" if architecture == "clip" else str(kind)
        raise UnreadableModelError(head.path, f"this is a {what}, not a language model", "name the model's own file")
    return architecture


def _positive(head: Header, key: str) -> None:
    value = head.metadata.get(key)
    if not isinstance(value, int) or value <= 0:
        what = f"the key {key} is missing" if value is None else f"the key {key} is {value!r}"
        raise UnreadableModelError(head.path, what, "convert the model again with a current llama.cpp")


def _numbers(head: Header, key: str) -> Any:
    """A number, a tuple of numbers (one per layer), or None where the file does not state the key."""
    value = head.metadata.get(key)
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, tuple) and not any(isinstance(item, str) for item in value):
        return value
    raise UnreadableModelError(head.path, f"the key {key} should be a number, it is {value!r:.60}", "convert it again")


def _identity(parts: Sequence[Header], cache: Path | None) -> str:
    """Digest of every byte of every part, and of nothing else: not of names, places or times."""
    digest = hashlib.sha256()
    for part in parts:
        try:
            digest.update(bytes.fromhex(file_digest(part.path, cache)))
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            raise UnreadableModelError(part.path, what, "check its permissions") from error
        except FileChangedError as error:
            what = "the file changed while it was read"
            raise UnreadableModelError(part.path, what, "wait until it is complete") from error
    return digest.hexdigest()


def _quantization(file_type: object, tensors: Sequence[TensorInfo]) -> str:
    """The file type's usual name; where the file states none, that of most of its tensors, as llama.cpp guesses."""
    from gguf.constants import GGMLQuantizationType, LlamaFileType  # noqa: PLC0415  (a third of a second)

    if isinstance(file_type, int):
        try:
            return LlamaFileType(file_type).name.removeprefix("MOSTLY_").removeprefix("ALL_")
        except ValueError:
            return f"FTYPE_{file_type}"
    matrices = [tensor for tensor in tensors if len(tensor.shape) > 1] or list(tensors)
    ((number, _),) = Counter(tensor.type_number for tensor in matrices).most_common(1)
    try:
        return GGMLQuantizationType(number).name
    except ValueError:
        return f"TYPE_{number}"


def _vocabulary(metadata: Mapping[str, Any], stated: object, tensors: Sequence[TensorInfo]) -> int:
    words = metadata.get("tokenizer.ggml.tokens")
    if isinstance(words, ArrayPlace):
        return words.count
    if isinstance(stated, int):
        return stated
    table = next((tensor for tensor in tensors if tensor.name == "token_embd.weight"), None)
    return table.shape[-1] if table is not None else 0


def _active_bytes(tensors: Sequence[TensorInfo], get: Any, layers: int) -> int:
    """Bytes read for one token of one sequence: one row of an input table, the chosen experts, all of the rest.

    An embedding table that is also the output matrix is read whole. Blocks for multi-token prediction are not read.
    """
    experts = int(get("expert_count") or 0)
    used = per_layer(get("expert_used_count") or 0, layers)
    trunk = layers - int(get("nextn_predict_layers") or 0)
    tied = _is_tied(tensors)
    total = 0.0
    for tensor in tensors:
        layer = block_of(tensor.name)
        if layer is not None and layer >= trunk:
            continue
        if tensor.name in INPUT_TABLES and not (tied and tensor.name == "token_embd.weight"):
            total += tensor.size / max(1, tensor.shape[-1])
        elif experts and "_exps." in tensor.name and layer is not None and layer < layers:
            total += tensor.size * used[layer] / experts
        else:
            total += tensor.size
    return round(total)


def _host_bytes(tensors: Sequence[TensorInfo]) -> int:
    """Bytes that stay in host memory with all layers on a GPU. A tied table is there twice, so it does not count."""
    tied = _is_tied(tensors)
    return sum(
        tensor.size
        for tensor in tensors
        if tensor.name in INPUT_TABLES and not (tied and tensor.name == "token_embd.weight")
    )


def _cpu_buffer_bytes(parts: Sequence[Header], *, tied: bool) -> int:
    """Per file the span from the first to the last tensor that is used in place, and all that is rearranged.

    A tied embedding table is both: rows are read in place, the output matrix is its rearranged copy.
    """
    from gguf.constants import GGMLQuantizationType  # noqa: PLC0415  (a third of a second)

    numbers = {int(GGMLQuantizationType[name]) for name in REPACKED}

    def is_rearranged(tensor: TensorInfo) -> bool:
        rows_fit = len(tensor.shape) > 1 and tensor.shape[1] % REPACKED_ROWS == 0
        is_matrix = tensor.name not in INPUT_TABLES or (tied and tensor.name == "token_embd.weight")
        return tensor.type_number in numbers and rows_fit and is_matrix

    total = 0
    for part in parts:
        in_place = [tensor for tensor in part.tensors if tensor.name in INPUT_TABLES or not is_rearranged(tensor)]
        if in_place:
            total += max(tensor.start + tensor.size for tensor in in_place) - min(tensor.start for tensor in in_place)
        total += sum(tensor.size for tensor in part.tensors if is_rearranged(tensor))
    return total


def _is_tied(tensors: Sequence[TensorInfo]) -> bool:
    """Whether the embedding table is the output matrix as well."""
    return all(tensor.name != "output.weight" for tensor in tensors)


def _feed_forward(get: Any, layers: int) -> int:
    """Elements of the widest feed-forward layer that one token passes through."""
    dense = max(per_layer(get("feed_forward_length") or 0, layers))
    expert = max(per_layer(get("expert_feed_forward_length") or 0, layers)) or dense
    used = max(per_layer(get("expert_used_count") or 0, layers))
    shared = int(get("expert_shared_feed_forward_length") or 0)
    return max(dense, used * expert + shared) if used else dense
