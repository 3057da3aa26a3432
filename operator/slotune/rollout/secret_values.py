"""Keeps keys out of a pod template that is written down, and puts them back from the one that runs.

A value that may be a key is left out, and whoever reads the template again takes it from the Deployment, where slotune
never changes it: literal values of variables, the values of flags that are named after a key, and headers of probes.
What a rollout does change is kept: llama-server's own variables, and those that its other flags take.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from slotune.tuning.pod_reading import references_in

__all__ = ["NoSuchValueError", "with_values_of", "without_keys"]

LEFT_OUT: Final[Mapping[str, bool]] = {"slotune.dev/left-out": True}
"""Stands where a string was left out; no string can be mistaken for it."""

_KEY: Final = re.compile(r"key|token|secret|passw|auth|credential|hft\b", re.IGNORECASE)
_WORDS: Final = frozenset({"args", "command"})


class NoSuchValueError(LookupError):
    """A value that was left out is not there any more."""


def without_keys(value: Any) -> Any:
    """A part of a pod template with what may be a key left out. The one that is given stays as it is."""
    if isinstance(value, Mapping):
        return {name: _left_out(name, item, value) for name, item in value.items()}
    return [without_keys(item) for item in value] if isinstance(value, list) else value


def with_values_of(value: Any, live: Any) -> Any:
    """The template again, with what was left out as it is in ``live``.

    Raises :class:`NoSuchValueError` where that has no such value.
    """
    if value == LEFT_OUT:
        if not isinstance(live, str):
            raise NoSuchValueError
        return live
    if isinstance(value, Mapping):
        there = live if isinstance(live, Mapping) else {}
        return {name: _put_back(name, item, there.get(name)) for name, item in value.items()}
    return _items(value, live) if isinstance(value, list) else value


def _left_out(name: str, item: Any, holder: Mapping[str, Any]) -> Any:
    if name in _WORDS and isinstance(item, list):
        hidden = set(_key_words(item))
        return [LEFT_OUT if place in hidden else word for place, word in enumerate(item)]
    if name == "env" and isinstance(item, list):
        kept = _tunable(holder)
        return [one if one.get("name") in kept or "value" not in one else {**one, "value": LEFT_OUT} for one in item]
    if name == "httpHeaders" and isinstance(item, list):
        return [{**one, "value": LEFT_OUT} for one in item]
    return without_keys(item)


def _put_back(name: str, item: Any, live: Any) -> Any:
    if name not in _WORDS or not isinstance(item, list):
        return with_values_of(item, live)
    there = live if isinstance(live, list) else []
    values = iter([there[place] for place in _key_words(there)])  # their order is the same wherever they stand
    return [with_values_of(word, next(values, None)) if word == LEFT_OUT else word for word in item]


def _items(value: Sequence[Any], live: Any) -> list[Any]:
    """Items by name where they have one, the first of a name with the first; by their place otherwise."""
    there: dict[Any, list[Any]] = defaultdict(list)
    for place, item in enumerate(live if isinstance(live, list) else ()):
        there[_name(item, place)].append(item)
    found = []
    for place, item in enumerate(value):
        same = there[_name(item, place)]
        found.append(with_values_of(item, same.pop(0) if same else None))
    return found


def _name(item: Any, place: int) -> Any:
    return item.get("name", place) if isinstance(item, Mapping) else place


def _key_words(words: Sequence[str]) -> Iterator[int]:
    """Places of the words that may hold a key: behind a flag that is named after one, or in one word with it."""
    follows = False
    for place, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        names_key = _KEY.search(flag) is not None
        is_flag = word.startswith("-") and not re.search(r"\s", flag)
        if follows or (names_key and (equals or not is_flag)):
            yield place
        follows = is_flag and names_key and not equals


def _tunable(container: Mapping[str, Any]) -> set[str]:
    """Variables that a rollout may set anew, none of them named after a key."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    hidden = set(_key_words(words))
    taken = {name for place, word in enumerate(words) if place not in hidden for name in references_in(word)}
    for place in hidden:
        taken -= set(references_in(words[place]))
    own = {one.get("name", "") for one in container.get("env") or () if one.get("name", "").startswith("LLAMA_ARG_")}
    return {name for name in taken | own if not _KEY.search(name)}
