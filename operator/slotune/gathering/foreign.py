"""What answers at an address that is not llama-server's, named where it can be recognised. Pure.

People have several model servers on one machine, one port apart, so "not a llama-server" is best said with a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from slotune.gathering.asking import Answer, Silence

__all__ = ["is_llama_model_list", "is_router", "who_answers"]

_LLAMA_SWAP = "llama-swap, a proxy (the address of a server behind it ends with /upstream/ and the model's name)"
_OWNERS: Mapping[str, str] = MappingProxyType(
    {
        "vllm": "vLLM",
        "sglang": "SGLang",
        "library": "Ollama",
        "organization_owner": "LM Studio",
        "me": "llama-cpp-python's server",
        "koboldcpp": "KoboldCpp",
        "aphrodite": "Aphrodite",
        "docker": "Docker Model Runner",
        "tensorrt_llm": "TensorRT-LLM's server",
        "llama-swap": _LLAMA_SWAP,
    }
)
"""``owned_by`` of the first entry of /v1/models, as each of them writes it."""

_ROOTS: Mapping[bytes, str] = MappingProxyType(
    {
        b"Ollama is running": "Ollama",
        b"llama-swap": _LLAMA_SWAP,
        b"Docker Model Runner": "Docker Model Runner",
        b"<title>LocalAI": "LocalAI",
        b"<title>Open WebUI": "Open WebUI",
        b"LiteLLM": "LiteLLM, a proxy",
    }
)
"""What the page at ``/`` says."""


def is_llama_model_list(said: Answer | Silence) -> bool:
    """Whether /v1/models was answered by llama-server."""
    return _owner(said) == "llamacpp"


def is_router(said: Answer | Silence) -> bool:
    """Whether /props was answered by llama-server's router, which starts a server for each model."""
    body = said.json_or_none if isinstance(said, Answer) else None
    return isinstance(body, dict) and body.get("role") == "router"


def who_answers(props: Answer | Silence, models: Answer | Silence, root: Answer | Silence) -> str:
    """``Ollama``, ``a web page``, ``another server with OpenAI's interface``, …"""
    if named := _OWNERS.get(_owner(models) or "") or _its_own(models):
        return named
    if isinstance(root, Answer):
        for mark, name in _ROOTS.items():
            if mark in root.body:
                return name
    if _owner(models) is not None or _is_list(models):
        return "another server with OpenAI's interface"
    if any(isinstance(said, Answer) and said.is_page for said in (props, root)):
        return "a web server that shows pages"
    if isinstance(props, Answer) and props.status == 404:
        return "a server that has no /props (an address ends with the server's --api-prefix, or has no path)"
    return "another server"


def _owner(said: Answer | Silence) -> str | None:
    """None when there is no list of models, empty when its first entry has no owner."""
    entry = _first(said)
    if not isinstance(entry, dict):
        return None
    owner = entry.get("owned_by")
    return owner if isinstance(owner, str) else ""


def _its_own(said: Answer | Silence) -> str | None:
    """Who says of its model that it owns itself, since the beginning of time."""
    entry = _first(said)
    if not isinstance(entry, dict) or not entry.get("id") or entry.get("created") != 0:
        return None
    return "text-generation-inference" if entry.get("owned_by") == entry["id"] else None


def _is_list(said: Answer | Silence) -> bool:
    body = said.json_or_none if isinstance(said, Answer) else None
    return isinstance(body, dict) and body.get("object") == "list"


def _first(said: Answer | Silence) -> Any:
    body = said.json_or_none if isinstance(said, Answer) else None
    data = body.get("data") if isinstance(body, dict) else None
    return data[0] if isinstance(data, list) and data else None
