"""Real prompts from a JSONL file: a million of them cost no more memory than the sample that is kept.

Each line is a JSON string, ``{"prompt": "..."}``, ``{"text": "..."}`` or ``{"messages": [...]}``, the
objects with an optional ``max_tokens``; other keys are ignored. Every line is checked, also those that the
sample leaves out, because a file that is broken at line 900,000 is a broken file.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotune.load.demand import Prompt
from slotune.load.jsonl import InputFileError, json_lines, lines_of

__all__ = ["PROMPT_LIMIT", "PromptFile", "parse_prompts", "read_prompts"]

PROMPT_LIMIT = 2000
"""Prompts kept from a file by default: twice the requests of a full trial."""

_SHAPES = 'a line is a JSON string, {"prompt": "..."}, {"text": "..."} or {"messages": [{"role": ..., "content": ...}]}'
_KINDS = {bool: "boolean", int: "number", float: "number", list: "list", type(None): "null", dict: "object"}


@dataclass(frozen=True, slots=True)
class PromptFile:
    """What a prompt file gave."""

    prompts: tuple[Prompt, ...]
    """In file order; a sample without replacement when ``sampled``."""
    lines: int
    """Prompts in the file."""
    digest: str
    """SHA-256 of the file's prompts, in hex; blank lines and line ends do not count."""

    @property
    def sampled(self) -> bool:
        """Whether the file holds more prompts than were kept."""
        return self.lines > len(self.prompts)


def read_prompts(path: Path, *, limit: int = PROMPT_LIMIT, seed: int = 0) -> PromptFile:
    """Read the prompts of ``path``, at most ``limit`` of them (a uniform sample, the same for the same seed).

    Raises:
        InputFileError: the file is missing, empty, or a line is not a prompt.
    """
    return parse_prompts(lines_of(path), source=str(path), limit=limit, seed=seed)


def parse_prompts(lines: Iterable[bytes], *, source: str, limit: int = PROMPT_LIMIT, seed: int = 0) -> PromptFile:
    """Read prompts from ``lines`` (a file, a ConfigMap's value); ``source`` names them in errors.

    Raises:
        InputFileError: nothing is in there, or a line is not a prompt.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}: keep at least 1 prompt")
    chance = random.Random(seed)  # noqa: S311 (a sample, not a secret)
    kept: list[tuple[int, Prompt]] = []
    digest = hashlib.sha256()
    count = 0
    for number, line, value in json_lines(lines, source=source, cure=_SHAPES):
        if problem := _problem(value):
            raise InputFileError(source, number, problem)
        digest.update(line + b"\n")
        count += 1
        # Reservoir sampling (Vitter 1985, algorithm R): every prompt is kept with the same chance.
        if len(kept) < limit:
            kept.append((number, _prompt(value)))
        elif (place := int(chance.random() * count)) < limit:
            kept[place] = (number, _prompt(value))
    if not count:
        raise InputFileError(source, None, f"holds no prompt: {_SHAPES}")
    kept.sort(key=lambda pair: pair[0])
    return PromptFile(tuple(prompt for _, prompt in kept), count, digest.hexdigest())


def _problem(value: Any) -> str | None:
    """Say why a line is no prompt; None when it is one."""
    if isinstance(value, str):
        value = {"prompt": value}
    if not isinstance(value, dict):
        return f"a JSON {_KINDS[type(value)]} is no prompt: {_SHAPES}"
    given = [key for key in ("prompt", "text", "messages") if key in value]
    if len(given) != 1:
        return f"needs exactly one of prompt, text and messages, has {' and '.join(given) or 'none'}: {_SHAPES}"
    tokens = value.get("max_tokens")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        return "max_tokens must be a whole number above 0, or be left out"
    content = value[given[0]]
    if given[0] == "messages":
        return _messages_problem(content)
    if not isinstance(content, str):
        return f"{given[0]} is a JSON {_KINDS[type(content)]}: it must be a string"
    return None if content.strip() else f"{given[0]} is empty: remove the line"


def _messages_problem(messages: Any) -> str | None:
    if not isinstance(messages, list) or not messages:
        return "messages must be a list of at least one message"
    for position, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return f'message {position} needs a role: {{"role": "user", "content": "..."}}'
        if not isinstance(message.get("content"), str | list | None):
            return f"content of message {position} must be a string or a list of parts"
    if not any(message.get("content") for message in messages):
        return "every message is empty: remove the line"
    return None


def _prompt(value: Any) -> Prompt:
    if isinstance(value, str):
        return Prompt(text=value)
    if "messages" in value:
        return Prompt(messages=tuple(value["messages"]), max_tokens=value.get("max_tokens"))
    return Prompt(text=value.get("prompt", value.get("text")), max_tokens=value.get("max_tokens"))
