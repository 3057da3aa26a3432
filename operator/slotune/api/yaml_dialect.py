"""The YAML that Kubernetes' tools speak: which plain words are numbers, booleans, null or text. For both directions.

PyYAML follows YAML 1.1 to the letter: ``2026-01-01`` is a date and ``1:30`` is 90, but ``1e10`` is text. kubectl (Go)
says text, text, number. A file must mean the same to both, or a hash such as ``123456e789`` would leave slotune as text
and arrive at the API server as infinity. So what either of them would misread is written in quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import yaml

__all__ = ["Loader", "NotJSONError", "scalar_value", "write_documents"]

_Resolvers = dict[str, list[tuple[str, re.Pattern[str]]]]

_TAG: Final = "tag:yaml.org,2002:"
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01][01_]*|0o?[0-7][0-7_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|[1-9][0-9_]*|0)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BOOLEANS: Final = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_LONGEST_INTEGER: Final = 19
"""Digits that surely fit 64 bits. Go makes a float of a longer one, and Python refuses to read thousands."""

_RESOLVERS: Final = (
    ("bool", r"(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$", "yYnNtTfFoO"),
    ("int", f"(?:{_INTEGER.pattern})$", "-+0123456789"),
    ("float", f"(?:{_FLOAT.pattern}|{_NO_NUMBER.pattern})$", "-+.0123456789"),
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("merge", r"(?:<<)$", "<"),
)


class NotJSONError(ValueError):
    """A number that YAML can write and JSON can't."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # which base exists depends on the build
    """Composes nodes whose plain scalars are tagged as Kubernetes' tools would."""

    yaml_implicit_resolvers: ClassVar[_Resolvers] = {}


class _Dumper(yaml.SafeDumper):
    """Writes text in quotes when PyYAML or Kubernetes' tools would take it for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Anchors are legal and nobody likes to read them."""
        return True


for _name, _pattern, _first in _RESOLVERS:
    Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(_pattern), list(_first))
    _Dumper.add_implicit_resolver(f"{_TAG}{_name}", re.compile(_pattern), list(_first))
_Dumper.add_implicit_resolver(f"{_TAG}bool", re.compile(r"[yYnN]$"), list("yYnN"))  # booleans to some YAML 1.1 readers


def scalar_value(tag: str, text: str) -> str | int | float | bool | None:
    """The value of a scalar node. A tag that Kubernetes does not know is a :class:`KeyError`, ``.nan`` and its like are
    a :class:`NotJSONError`."""
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool" if text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        case "int" if _INTEGER.fullmatch(text):
            return _integer(text.replace("_", "").lower())
        case "float" if _FLOAT.fullmatch(text):
            return _finite(text.replace("_", ""))
        case "float":
            raise NotJSONError(text)
        case "str":
            return text
    raise KeyError(tag)


def write_documents(*documents: Mapping[str, Any]) -> str:
    """The documents as one YAML stream, keys in the order that they have."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _integer(digits: str) -> int | float:
    if re.fullmatch(r"[-+]?0[0-7]+", digits):  # YAML 1.1 octal, which is why file modes work in Kubernetes
        return int(digits, 8)
    if digits.lstrip("+-").isdigit() and len(digits.lstrip("+-")) > _LONGEST_INTEGER:
        return _finite(digits)
    return int(digits, 0)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotJSONError(text)
    return value
