"""How a string or a list must look: its bound, its rule, and the cure for a wrong one, stated once.

A plain pattern could only answer "does not match ^([0-9]+…". So a form carries three things at once: what pydantic
checks, what the CRD's schema will say (pattern, lengths, CEL for what a pattern can't), and a sentence for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, cast

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from slotune.api.quantities import QuantityError

__all__ = ["Form", "Items", "Properties", "matches"]


@dataclass(frozen=True)
class Form:
    """How a string must look. Put it beside ``str`` in an ``Annotated``."""

    pattern: str
    cure: str
    """What to write instead, as the end of a sentence."""
    most: int
    """Longest length in characters."""
    parse: Callable[[str], Any] | None = None
    """Raises :class:`~slotune.api.quantities.QuantityError` with a better cure than the form's own."""
    accepts: Callable[[str], bool] | None = None
    """What the pattern can't say, for a string that already matches it…"""
    cel: str | None = None
    """…the same for the API server, with ``self`` as the string…"""
    refusal: str = ""
    """…and the cure when it is not accepted."""

    def __post_init__(self) -> None:
        assert (self.accepts is None) == (self.cel is None) == (not self.refusal)

    def check(self, text: str) -> str:
        """The text itself, or an error whose message is the cure."""
        if self.parse is not None:
            try:
                self.parse(text)
            except QuantityError as error:
                raise PydanticCustomError("form", "{cure}", {"cure": error.cure}) from None
        if len(text) > self.most:
            raise PydanticCustomError("form", "at most {most} characters are allowed", {"most": self.most})
        if not re.fullmatch(self.pattern, text, re.ASCII):  # search would let $ match before a last line break
            raise PydanticCustomError("form", "{cure}", {"cure": self.cure})
        if self.accepts is not None and not self.accepts(text):
            raise PydanticCustomError("form", "{cure}", {"cure": self.refusal})
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        json_schema = handler(schema)
        json_schema |= {"pattern": self.pattern, "maxLength": self.most}
        if self.cel is not None:
            # A string of another form is the pattern's to refuse: CEL would only say that it can't convert it.
            rule = f"!{matches('self', self.pattern)} || ({self.cel})"
            json_schema["x-kubernetes-validations"] = [{"rule": rule, "message": self.refusal}]
        return json_schema


def matches(text: str, pattern: str) -> str:
    """CEL for whether ``text``, itself CEL for a string, has a form."""
    return f"{text}.matches(r'{pattern}')"


@dataclass(frozen=True)
class Items:
    """How many elements a list has, and whether they must differ. Put it beside ``tuple[X, ...]``."""

    most: int
    least: int = 0
    key: str | None = None
    """Field (the same name in Python and YAML) in which two elements must differ: the key of a list-type map."""
    distinct: bool = False
    """Whether the elements themselves must differ: a list-type set."""

    def check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """The items themselves, or an error when there are too few, and at each element that repeats an earlier one."""
        if len(items) < self.least:
            raise PydanticCustomError("too_few", "must not be empty" if self.least == 1 else "has too few entries")
        if not self.key and not self.distinct:
            return items
        first: dict[Hashable, int] = {}
        errors: list[InitErrorDetails] = []
        for index, item in enumerate(items):
            value = getattr(item, self.key) if self.key else item
            # JSON knows true and 1 apart, Python does not.
            earlier = first.setdefault((type(value), value), index)
            if earlier != index:
                message = "must be unique, and [{earlier}] says the same: rename or remove one"
                error = PydanticCustomError("duplicate", message, {"earlier": earlier})
                errors.append(
                    InitErrorDetails(type=error, loc=(index, self.key) if self.key else (index,), input=value)
                )
        if errors:
            raise ValidationError.from_exception_data("list", errors)
        return items

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema = cast("core_schema.TupleSchema", handler(source))
        assert schema["type"] == "tuple", "Items belongs beside tuple[X, ...]"
        # YAML knows lists only; strict pydantic would not make a tuple of one.
        schema["strict"], schema["max_length"] = False, self.most
        # pydantic would count only the elements that are right, so the least number is checked once all are.
        return core_schema.no_info_after_validator_function(self.check, schema)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        json_schema = handler(schema)
        json_schema["maxItems"] = self.most
        if self.least:
            json_schema["minItems"] = self.least
        if self.key:
            json_schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}
        elif self.distinct:
            json_schema["x-kubernetes-list-type"] = "set"
        else:
            json_schema["x-kubernetes-list-type"] = "atomic"
        return json_schema


def Properties(most: int) -> Any:  # noqa: N802 - it stands beside Items, as a type
    """At most this many keys. Put it beside ``dict[str, X]``."""
    return Field(max_length=most)
