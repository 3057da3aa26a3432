"""What every part of a resource has in common: strict types, YAML's spelling, and all problems at once.

Pydantic alone stops at the first layer that is wrong: rules between fields would only be looked at once every field is
right, so a user would fix one problem to be shown the next. Here a rule speaks as soon as the fields that it reads are
right.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from slotune.api.rules import Rule, TransitionRule

__all__ = ["Location", "Model", "OpenModel", "StatusModel"]

Location = tuple[str | int, ...]
"""Keys and list indexes from the top of a document, in YAML's spelling."""

_FROM_MANIFEST = "slotune.dev/manifest"
"""Validation context of data that a person wrote: null is not the same as absent there."""


class Model(BaseModel):
    """A part of a spec: immutable, unknown fields refused, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # a prompt or a secret must never reach a log through an error
        strict=True,
        use_attribute_docstrings=True,  # they become the CRD's descriptions
        validate_by_alias=True,
        validate_by_name=True,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()
    TRANSITIONS: ClassVar[tuple[TransitionRule, ...]] = ()

    @classmethod
    def from_manifest(cls, data: Any) -> Self:
        """The model of parsed YAML or JSON, in YAML's spelling only.

        Raises :class:`pydantic.ValidationError` with every problem; ``slotune.api.problems`` makes sentences of it.
        """
        return cls.model_validate(data, by_alias=True, by_name=False, context=_FROM_MANIFEST)

    def to_manifest(self) -> dict[str, Any]:
        """Plain data in YAML's spelling, without absent fields; :meth:`from_manifest` gives an equal model."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def refused_changes(self, new: Self) -> tuple[tuple[Location, str], ...]:
        """(location, message) of each rule that forbids the step from this object to ``new``."""
        broken = [rule.message for rule in type(self).TRANSITIONS if not rule.accepts(self, new)]
        refused: list[tuple[Location, str]] = [((), message) for message in broken]
        for name, field in type(self).model_fields.items():
            before, after = getattr(self, name), getattr(new, name)
            if isinstance(before, Model) and type(before) is type(after):
                place = str(field.alias)
                refused += [((place, *below), message) for below, message in before.refused_changes(after)]
        return tuple(refused)

    @model_validator(mode="wrap")
    @classmethod
    def _find_every_problem(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        errors: list[InitErrorDetails] = []
        model: Self | None = None
        if isinstance(data, dict) and info.context == _FROM_MANIFEST:
            data = _with_whole_numbers(cls, data)
        try:
            model = handler(data)
        except ValidationError as error:
            errors = [_again(details) for details in error.errors(include_url=False)]
        if isinstance(data, dict) and info.context == _FROM_MANIFEST:
            errors += _empty_fields(cls, data)
        if isinstance(data, cls | dict):
            errors += _broken_rules(cls, model, data)
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        assert model is not None
        return model

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        json_schema = handler.resolve_ref_schema(handler(schema))
        every: tuple[Rule | TransitionRule, ...] = (*cls.RULES, *cls.TRANSITIONS)
        rules = [validation for rule in every if (validation := rule.validation)]
        if rules:
            json_schema["x-kubernetes-validations"] = rules
        return json_schema


class OpenModel(Model):
    """A part of somebody else's type: what slotune reads is checked, everything else is kept as it is."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})

    @model_serializer(mode="wrap")
    def _keep_null(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Null means something in others' types (``emptyDir:``), so it is kept where it was written."""
        written: dict[str, Any] = handler(self)
        return written | {name: None for name, value in (self.model_extra or {}).items() if value is None}


class StatusModel(Model):
    """A part of a status. A newer slotune may have written fields that this one does not know: they are dropped."""

    model_config = ConfigDict(extra="ignore")


def _again(details: Any) -> InitErrorDetails:
    """An error as it was: pydantic takes its own kinds of error by name only, so all go through as custom ones."""
    error = PydanticCustomError(details["type"], details["msg"], details.get("ctx"))
    return InitErrorDetails(type=error, loc=details["loc"], input=details["input"])


def _with_whole_numbers(cls: type[Model], data: dict[str, Any]) -> dict[str, Any]:
    """``1e+06`` where an integer belongs is a million, to JSON and to the API server: Helm writes large numbers so."""
    floats = {key: _whole(data[key]) for key in _integer_fields(cls) if isinstance(data.get(key), float | list)}
    return data | floats if floats else data


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@functools.cache
def _integer_fields(cls: type[Model]) -> tuple[str, ...]:
    return tuple(str(field.alias) for field in cls.model_fields.values() if _mentions_int(field.annotation))


def _mentions_int(annotation: Any) -> bool:
    return annotation is int or any(_mentions_int(inner) for inner in get_args(annotation))


def _empty_fields(cls: type[Model], data: dict[str, Any]) -> list[InitErrorDetails]:
    """Optional fields that are written but empty. Server-side apply refuses them too (client-side apply removes them
    before the API server looks). Kubernetes' own types take null for absent, so the pieces of them do here."""
    if issubclass(cls, OpenModel):
        return []
    empty = PydanticCustomError("empty", "is empty: give it a value, or remove the line")
    return [
        InitErrorDetails(type=empty, loc=(field.alias,), input=None)
        for field in cls.model_fields.values()
        if field.alias in data and data[field.alias] is None and not field.is_required() and field.default is None
    ]


def _broken_rules(cls: type[Model], model: Model | None, data: Any) -> list[InitErrorDetails]:
    errors = []
    for rule in cls.RULES:
        subject = model if model is not None else _partial(cls, rule.reads, data)
        if subject is None:
            continue
        for breach in rule.find(subject):
            message = f"{rule.message} ({breach.remark})" if breach.remark else rule.message
            error = PydanticCustomError("rule", "{message}", {"message": message, "shown": breach.shown})
            errors.append(InitErrorDetails(type=error, loc=breach.at, input=None))
    return errors


def _partial(cls: type[Model], names: tuple[str, ...], data: dict[str, Any]) -> Model | None:
    """A model of these fields alone, or None when one of them is wrong or missing itself."""
    values: dict[str, Any] = {}
    for name in names:
        field = cls.model_fields[name]
        key = field.alias if field.alias in data else name
        if key in data:
            try:
                values[name] = _adapter(cls, name).validate_python(data[key])
            except ValidationError:
                return None
        elif field.is_required():
            return None
    return cls.model_construct(**values)


@functools.cache
def _adapter(cls: type[Model], name: str) -> TypeAdapter[Any]:
    field = cls.model_fields[name]
    annotation: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(annotation)
