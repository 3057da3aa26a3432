"""Rules between fields, as data: one statement for pydantic, for the API server and for people.

A schema can't say "exactly one of". Written as a validator, such a rule would be a second time in the CRD, in CEL, and
would drift. Here a rule has both forms side by side, and the tests hold them to the same corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

__all__ = ["Breach", "Rule", "TransitionRule", "at_most_one_of", "exactly_one_of", "holds", "immutable", "needs"]


@dataclass(frozen=True)
class Breach:
    """Where a rule is broken, below the object that has the rule, and what stands there."""

    at: tuple[str | int, ...]
    """Keys in YAML spelling; empty for the object itself."""
    shown: str | None = None
    """What to show as the value; None when there is nothing to show."""
    remark: str = ""
    """What is the case here, in words; empty when the rule's message says enough."""


@dataclass(frozen=True)
class Rule:
    """What must hold between the fields of one object."""

    message: str
    """What must be so, and the cure. The same words come from pydantic and from the API server."""
    reads: tuple[str, ...]
    """Python names of the fields that the rule looks at. When one of them is wrong itself, the rule waits."""
    find: Callable[[Any], Iterable[Breach]]
    """Yields each place where the rule is broken, given the model."""
    cel: str | None
    """The same for the API server, with ``self`` as the object; None when CEL can't say it."""
    at: str = ""
    """The field that the API server blames, dotted and without indexes; empty for the object itself."""

    @property
    def validation(self) -> dict[str, str] | None:
        """An entry of ``x-kubernetes-validations``; None when CEL can't say it."""
        if self.cel is None:
            return None
        place = {"fieldPath": f".{self.at}"} if self.at else {}
        return {"rule": self.cel, "message": self.message, **place}


@dataclass(frozen=True)
class TransitionRule:
    """What must hold between an object and its next version. Checked by the API server, and by whoever updates."""

    message: str
    accepts: Callable[[Any, Any], bool]
    """Given the old and the new model."""
    cel: str

    @property
    def validation(self) -> dict[str, str]:
        """An entry of ``x-kubernetes-validations``."""
        return {"rule": self.cel, "message": self.message}


def holds(
    predicate: Callable[[Any], bool], message: str, reads: tuple[str, ...], cel: str | None, at: str = ""
) -> Rule:
    """A rule that is one yes-or-no question about the object. ``at`` is the field that is to blame, dotted."""
    where = tuple(at.split(".")) if at else ()

    def find(model: Any) -> Iterator[Breach]:
        if not predicate(model):
            yield Breach(where)

    return Rule(message, reads, find, cel, at)


def exactly_one_of(*fields: str, message: str) -> Rule:
    """Exactly one of the optional ``fields`` (Python names) is set."""
    return _count(fields, message, allow_none=False)


def at_most_one_of(*fields: str, message: str) -> Rule:
    """None or one of the optional ``fields`` (Python names) is set."""
    return _count(fields, message, allow_none=True)


def needs(field: str, other: str, message: str) -> Rule:
    """The optional ``field`` is only set together with the optional ``other`` (Python names)."""
    cel = f"!has(self.{to_camel(field)}) || has(self.{to_camel(other)})"

    def predicate(model: Any) -> bool:
        return getattr(model, field) is None or getattr(model, other) is not None

    return holds(predicate, message, (field, other), cel, at=to_camel(field))


def immutable(message: str) -> TransitionRule:
    """The object can't be changed once it exists."""
    return TransitionRule(message, lambda old, new: bool(old == new), "self == oldSelf")


def _count(fields: tuple[str, ...], message: str, *, allow_none: bool) -> Rule:
    def find(model: Any) -> Iterator[Breach]:
        present = [to_camel(field) for field in fields if getattr(model, field) is not None]
        if len(present) > 1:
            yield Breach((), remark=f"{' and '.join(present)} are set")
        elif not present and not allow_none:
            yield Breach((), remark="none is set")

    flags = ", ".join(f"has(self.{to_camel(field)})" for field in fields)
    comparison = "<=" if allow_none else "=="
    return Rule(message, fields, find, f"[{flags}].filter(given, given).size() {comparison} 1")
