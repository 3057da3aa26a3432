"""Whatever can be said survives the way to YAML and back. Models are drawn field by field, so none is left out."""

from __future__ import annotations

import types
import typing
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from slotune.api.documents import read_documents
from slotune.api.forms import Form, Items
from slotune.api.kubernetes_types import ObjectMeta, PodTemplate
from slotune.api.model import Model
from slotune.api.v1alpha1 import (
    KINDS,
    Borrow,
    GPUClass,
    GPUClassSpec,
    LlamaDeployment,
    LlamaDeploymentSpec,
    LlamaDeploymentStatus,
    LlamaTrial,
    LlamaTrialStatus,
    LlamaWorkload,
    LlamaWorkloadSpec,
    Load,
    Measurement,
    Observe,
    Prompts,
    Retune,
    Rollout,
    Sandbox,
    SearchSpace,
    Trace,
    Workload,
)
from slotune.api.yaml_dialect import write_documents

ONE_OF: dict[type[Model], tuple[str, ...]] = {
    Load: ("requestRate", "users", "trace"),
    Trace: ("configMapKeyRef", "file"),
    Prompts: ("synthetic", "file", "configMapKeyRef", "secretKeyRef"),
    Workload: ("ref", "inline"),
}
"""Drawing each of these fields or not would nearly always break the rule that exactly one is needed."""

FIXED: dict[type[Model], st.SearchStrategy[Any]] = {
    ObjectMeta: st.fixed_dictionaries({"name": st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)}),
    PodTemplate: st.just({"spec": {"containers": [{"name": "a", "args": ["-np", "1e3"], "volumes": [None, 1, "y"]}]}}),
    LlamaDeploymentSpec: st.builds(
        lambda drawn, server: without_conflicts(drawn) | server,
        st.deferred(lambda: drawn_fields(LlamaDeploymentSpec)),
        st.sampled_from([{"template": {"spec": {"containers": [{"name": "a"}]}}}, {"targetRef": {"name": "a"}}]),
    ),
    Borrow: st.just({"window": "Sat 22:00-04:00", "timeZone": "Europe/Berlin", "maxDowntime": "90m"}),
}


SAMPLES = (
    *("0", "0.00", "1", "0.5", "0.95", "0.999", "99.9", "12345678901234", "-1.5", "1e-05", "inf", "-3.25e+17"),
    *("250ms", "1.5s", "2m", "1h30m", "0s", "24Gi", "0.5Mi", "300G", "2e9", "500m"),
    *("123456e789", "00000000e0", "0123456789", "1234567890"),
    *("y", "on", "null", "l4", "a.b-c", "Q4_K_M", "1.5.2", "0x1f", "0o17", "1_000", "2026-01-31", "1:30"),
    *(
        "2026-01-31T12:00:00Z",
        "02:00-05:00",
        "Europe/Berlin",
        "*/5 0 * * 6",
        "http://[::1]:9090/x",
        "two\nlines: #",
        "~",
    ),
)
"""Text that YAML likes to take for something else. A field takes those that suit it."""


def data(model: type[Model]) -> st.SearchStrategy[dict[str, Any]]:
    """Data in YAML's spelling whose fields are right one by one; rules between them may still be broken."""
    return FIXED[model] if model in FIXED else drawn_fields(model)


def drawn_fields(model: type[Model]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {str(field.alias): value_of_field(field) for field in model.model_fields.values()}
    required = {str(field.alias) for field in model.model_fields.values() if field.is_required()}
    if model in ONE_OF:
        return st.sampled_from(ONE_OF[model]).flatmap(lambda name: st.fixed_dictionaries({name: fields[name]}))
    return st.fixed_dictionaries(
        {name: strategy for name, strategy in fields.items() if name in required},
        optional={name: strategy for name, strategy in fields.items() if name not in required},
    )


def without_conflicts(spec: dict[str, Any]) -> dict[str, Any]:
    """What keeps the rules of a deployment, which independent draws hardly ever would."""
    kept = {name: part for name, part in spec.items() if name not in {"template", "replicas", "targetRef", "container"}}
    kept["slo"] = {"ttftP95": "1s", "quality": "Off"}
    kept["models"] = [{"name": f"m{index}", "path": f"/{index}"} for index, _ in enumerate(spec["models"])]
    return kept | {"measurement": {"requestTimeout": "2s"}, "retune": {}, "search": {"maxReplicas": 3}}


def value_of_field(field: Any) -> st.SearchStrategy[Any]:
    return value(field.annotation, tuple(field.metadata))


def value(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one per type
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return value(inner[0], (*annotation.__metadata__, *metadata))
    if origin in {typing.Union, types.UnionType}:
        return st.one_of([value(option, metadata) for option in inner if option is not type(None)])
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        items = next(item for item in metadata if isinstance(item, Items))
        key = (lambda item: item[items.key]) if items.key else repr if items.distinct else None
        return st.lists(value(inner[0]), min_size=items.least, max_size=min(items.most, 3), unique_by=key)
    if origin is dict:
        return st.dictionaries(st.text("abc.-", min_size=1, max_size=5), value(inner[1]), max_size=2)
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(bound(metadata, "ge", 0), bound(metadata, "le", 2**53))
    if annotation is str:
        return text(metadata)
    return data(annotation)


def bound(metadata: tuple[Any, ...], name: str, default: int) -> int:
    found = [getattr(part, name) for part in flat(metadata) if getattr(part, name, None) is not None]
    return int(found[0]) if found else default


def flat(metadata: tuple[Any, ...]) -> tuple[Any, ...]:
    """Constraints, those inside a ``Field(...)`` included."""
    return tuple(part for outer in metadata for part in (outer, *getattr(outer, "metadata", ())))


def text(metadata: tuple[Any, ...]) -> st.SearchStrategy[str]:
    for form in metadata:
        if isinstance(form, Form) and (right := [sample for sample in SAMPLES if is_right(form, sample)]):
            return st.sampled_from(right)
        if isinstance(form, Form):
            return st.from_regex(form.pattern, alphabet=st.characters(codec="ascii")).filter(partial(is_right, form))
    shortest, longest = bound(metadata, "min_length", 0), bound(metadata, "max_length", 20)
    return st.text("ab1.-_ Yn", min_size=shortest, max_size=min(longest, 20))


def is_right(form: Form, drawn: str) -> bool:
    try:
        form.check(drawn)
    except ValueError:
        return False
    return True


def survives(model: type[Model], drawn: dict[str, Any]) -> bool:
    """Whether the data keeps the rules between fields; if so, it must survive."""
    try:
        first = model.from_manifest(drawn)
    except ValidationError as error:
        others = [details for details in error.errors() if details["type"] != "rule"]
        return bool(others) and pytest.fail(f"not drawn as the fields ask: {others}")
    (document,), problems = read_documents("a.yaml", write_documents(first.to_manifest()).encode())
    assert problems == []
    assert model.from_manifest(document.data) == first
    return True


PARTS = (
    GPUClass,
    GPUClassSpec,
    LlamaDeployment,
    LlamaDeploymentStatus,
    LlamaTrial,
    LlamaTrialStatus,
    LlamaWorkload,
    LlamaWorkloadSpec,
    Measurement,
    Observe,
    Prompts,
    Retune,
    Rollout,
    Sandbox,
    SearchSpace,
)


@pytest.mark.parametrize("model", PARTS, ids=lambda model: model.__name__)
def test_every_part_survives_yaml(model: type[Model]) -> None:
    kept = 0

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data(model))
    def check(drawn: dict[str, Any]) -> None:
        nonlocal kept
        kept += survives(model, drawn)

    check()
    assert kept >= 3


def test_every_kind_is_drawn() -> None:
    assert set(KINDS) <= set(PARTS)
