"""What starts in the container, where that is not llama-server itself: a shell, a script, or another program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from slotune.api.env_words import env_words
from slotune.api.server_container import LAUNCHERS, SHELLS, program_at, tool_words
from slotune.tuning.refusal import Refusal, ServerPod

__all__ = ["RPC_WORKER", "another_program", "hidden_flags"]

_ENGINES: Final = {
    "vllm": "vLLM",
    "ollama": "Ollama",
    "text-generation-inference": "Text Generation Inference",
    "text-embeddings-inference": "Text Embeddings Inference",
    "sglang": "SGLang",
    "tritonserver": "Triton",
    "tensorrt": "TensorRT-LLM",
    "localai": "LocalAI",
    "local-ai": "LocalAI",
    "koboldcpp": "KoboldCpp",
    "llama-swap": "llama-swap",
    "llama-cpp-python": "llama-cpp-python",
    "llama_cpp_python": "llama-cpp-python",
    "llama_cpp.server": "llama-cpp-python",
    "text-generation-webui": "text-generation-webui",
    "lmdeploy": "LMDeploy",
    "llama-box": "llama-box",
    "mlc-llm": "MLC LLM",
    "aphrodite": "Aphrodite",
    "tabbyapi": "TabbyAPI",
    "infinity": "Infinity",
}
"""In the name of an image, or of the program that is started."""

RPC_WORKER: Final = "rpc-server"
"""Serves a part of a model to a llama-server elsewhere."""

_SCRIPT: Final = re.compile(r"\.(sh|bash|py|pl|rb)$|(^|/)(docker-)?(entrypoint|start|run|launch)[^/]*$")


def hidden_flags(pod: ServerPod) -> Iterator[Refusal]:
    """A shell or a script that starts the server: its flags may be in a string, in a file, or anywhere."""
    starter = _starter(pod)
    if _is_split(pod):
        yield Refusal(
            "HiddenFlags", f"{pod.where} command", "env -S",
            "splits a string, which hides the flags: start llama-server itself, with its flags in args",
        )  # fmt: skip
        return
    if starter is None:
        return
    what = "shell" if PurePosixPath(starter.word).name in SHELLS else "script" if _is_script(starter.word) else None
    if what is not None:
        yield Refusal(
            "HiddenFlags", starter.field, starter.word,
            f"is a {what}, which hides the flags: start llama-server itself, with its flags in args",
        )  # fmt: skip


def another_program(pod: ServerPod) -> Iterator[Refusal]:
    if pod.container is None or program_at(pod.container) is not None or _is_split(pod):
        return
    starter = _starter(pod)
    if starter is not None:
        name = PurePosixPath(starter.word).name
        if name not in SHELLS and not _is_script(starter.word) and name != RPC_WORKER:
            words = (*(pod.container.command or ()), *(pod.container.args or ()))
            engine = _engine(" ".join(words).lower()) or "not llama-server"
            yield Refusal(
                "NotLlamaServer", starter.field, starter.word,
                f"is {engine}: slotune tunes llama-server only, so start that itself",
            )  # fmt: skip
        return
    image = (pod.container.image or "").partition("@")[0]
    engine_of_image = _engine(image.lower())
    args = tuple(pod.container.args or ())
    if engine_of_image is not None:
        yield Refusal(
            "NotLlamaServer", f"{pod.where} image", pod.container.image,
            f"is {engine_of_image}: slotune tunes llama-server only, so use an image of llama.cpp",
        )  # fmt: skip
    elif ":full" in image and args and not tool_words(pod.container):
        yield Refusal(
            "NotLlamaServer",
            f"{pod.where} args",
            args[0],
            "is not llama-server but another tool of this image: write --server first",
        )
    elif ":light" in image:
        yield Refusal(
            "NotLlamaServer",
            f"{pod.where} image",
            pod.container.image,
            "is llama-cli, which serves nobody: use an image whose tag begins with server",
        )


@dataclass(frozen=True, slots=True)
class _Starter:
    """The word that says which program starts, behind supervisors."""

    word: str
    field: str


def _starter(pod: ServerPod) -> _Starter | None:
    """What is started before llama-server or in its place; None when that is left to the image."""
    if pod.container is None:
        return None
    command, args = list(pod.container.command or ()), list(pod.container.args or ())
    program = program_at(pod.container)
    leading = (
        [*command, *args][:program] if program is not None else [*command, *(args if _is_launched(command) else [])]
    )
    if not command and program is None:
        leading = args[:1]
    for place, word in enumerate(leading):
        if _names_program(word):
            return _Starter(word, f"{pod.where} {'command' if place < len(command) else 'args'}")
        if not command and place == 0 and word.startswith("-"):
            return None
    return None


def _is_split(pod: ServerPod) -> bool:
    """Whether ``env -S`` makes words of a string."""
    if pod.container is None:
        return False
    words = [*(pod.container.command or ()), *(pod.container.args or ())]
    is_launched = bool(words) and PurePosixPath(words[0]).name in LAUNCHERS
    return is_launched and env_words(words[: program_at(pod.container)]).splits


def _is_launched(command: Sequence[str]) -> bool:
    """Whether ``command`` only has supervisors, so that ``args`` name the program."""
    return bool(command) and not any(_names_program(word) for word in command)


def _is_script(word: str) -> bool:
    return _SCRIPT.search(word) is not None


def _names_program(word: str) -> bool:
    """Whether a word before the flags is no supervisor, and neither an option of one nor that option's value."""
    name = PurePosixPath(word).name
    return re.match(r"[A-Za-z/.]", word) is not None and name not in LAUNCHERS and "=" not in word


def _engine(text: str) -> str | None:
    return next((name for part, name in _ENGINES.items() if part in text), None)
