"""Rules between the parts of a LlamaDeployment. Each is named after what must hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from slotune.api.forms import matches
from slotune.api.quantities import DURATION_PATTERN, parse_duration
from slotune.api.rules import Breach, Rule, holds, needs
from slotune.api.v1alpha1.measurement import Measurement

__all__ = ["DEPLOYMENT_RULES", "SHORT_NAME"]

_LONGEST_NAME: Final = 52
"""Characters. Children are named after it: 63 fit a label, and they add a dash and ten digits."""

SHORT_NAME: Final = holds(
    lambda it: len(it.metadata.name) <= _LONGEST_NAME and "." not in it.metadata.name and it.metadata.name[0].isalpha(),
    f"the Service and the trials are named after it: at most {_LONGEST_NAME} characters, no dots, a letter first",
    ("metadata",),
    f"self.metadata.name.size() <= {_LONGEST_NAME} && self.metadata.name.matches('^[a-z][-a-z0-9]*$')",
    at="metadata.name",
)


def _later_references(spec: Any) -> Iterator[Breach]:
    marked = [index for index, model in enumerate(spec.models) if model.reference]
    yield from (Breach(("models", index, "reference")) for index in marked[1:])


_ONE_REFERENCE: Final = Rule(
    "at most one model can be the reference that quality is measured against",
    ("models",),
    _later_references,
    "self.models.filter(m, has(m.reference) && m.reference).size() <= 1",
    at="models",
)


def _repeated_paths(spec: Any) -> Iterator[Breach]:
    seen: set[str] = set()
    for index, model in enumerate(spec.models):
        if model.path in seen:
            yield Breach(("models", index, "path"), model.path)
        seen.add(model.path)


_DIFFERENT_FILES: Final = Rule(
    "another model has the same file: each file is measured once, remove one",
    ("models",),
    _repeated_paths,
    "self.models.all(m, self.models.exists_one(other, other.path == m.path))",
    at="models",
)


def _unknown_drafts(spec: Any) -> Iterator[Breach]:
    drafting = {model.name: model.draft for model in spec.models}
    for index, model in enumerate(spec.models):
        wrong = model.draft not in drafting or model.draft == model.name or drafting[model.draft] is not None
        if model.draft is not None and wrong:
            yield Breach(("models", index, "draft"), model.draft)


_DRAFTS_EXIST: Final = Rule(
    "must be the name of another entry of spec.models, one without a draft model of its own",
    ("models",),
    _unknown_drafts,
    "self.models.all(m, !has(m.draft) || (m.draft != m.name && "
    "self.models.exists(d, d.name == m.draft && !has(d.draft))))",
    at="models",
)

_DRAFTS_GIVE_NO_ANSWERS: Final = holds(
    lambda it: (
        not any(
            model.reference or model.name in (it.search.space.models or ())
            for model in it.models
            if model.name in {other.draft for other in it.models}
        )
    ),
    "a draft model gives no answers, so it can be neither the reference nor in search.space.models",
    ("models", "search"),
    "self.models.all(d, !self.models.exists(m, has(m.draft) && m.draft == d.name) || "
    "(!(has(d.reference) && d.reference) && (!has(self.search) || !has(self.search.space) || "
    "!has(self.search.space.models) || !(d.name in self.search.space.models))))",
    at="models",
)

_DRAFTING_HAS_A_MODEL: Final = holds(
    lambda it: (
        "draft-simple" not in (it.search.space.speculation or ()) or any(model.draft is not None for model in it.models)
    ),
    "draft-simple needs a draft model: name one in the draft of an entry of spec.models",
    ("models", "search"),
    "!has(self.search) || !has(self.search.space) || !has(self.search.space.speculation) || "
    "!('draft-simple' in self.search.space.speculation) || self.models.exists(m, has(m.draft))",
    at="search.space.speculation",
)


def _quality_is_stated(spec: Any) -> bool:
    quantized_kv = set(spec.search.space.cache_types or ()) - {"f16"}
    answering = {model.name for model in spec.models} - {model.draft for model in spec.models}
    return spec.slo.quality is not None or (len(answering) <= 1 and not quantized_kv)


_QUALITY_IS_STATED: Final = holds(
    _quality_is_stated,
    "several models or a quantized KV cache are offered, and fewer bits are only cheaper if the answers hold: "
    'set quality to Strict, Balanced, Custom or "Off"',
    ("slo", "models", "search"),
    "has(self.slo.quality) || (self.models.filter(d, !self.models.exists(m, has(m.draft) && m.draft == d.name)).size() "
    "<= 1 && !(has(self.search) && has(self.search.space) && "
    "has(self.search.space.cacheTypes) && self.search.space.cacheTypes.exists(t, t != 'f16')))",
    at="slo.quality",
)


def _unknown_models(spec: Any) -> Iterator[Breach]:
    names = {model.name for model in spec.models}
    for index, name in enumerate(spec.search.space.models or ()):
        if name not in names:
            yield Breach(("search", "space", "models", index), name)


_SEARCHED_MODELS_EXIST: Final = Rule(
    "is not among spec.models: use the name of one of them",
    ("models", "search"),
    _unknown_models,
    "!has(self.search) || !has(self.search.space) || !has(self.search.space.models) || "
    "self.search.space.models.all(name, self.models.exists(m, m.name == name))",
    at="search.space.models",
)


def _unnamed_container(spec: Any) -> Iterator[Breach]:
    if spec.template is not None and spec.template.container(spec.container) is None:
        yield Breach(("container",), spec.container)


_CONTAINER_IS_IN_POD: Final = Rule(
    "must be the name of the container of template that is llama-server; only a pod with a single one can do without",
    ("template", "container"),
    _unnamed_container,
    "!has(self.template) || self.template.spec.containers.size() == 0 || (has(self.container) ? "
    "self.template.spec.containers.exists(c, c.name == self.container) : self.template.spec.containers.size() == 1)",
    at="container",
)

_TIMEOUT: Final = (
    "(has(self.measurement) && has(self.measurement.requestTimeout) ? self.measurement.requestTimeout : "
    f"'{Measurement().request_timeout}')"
)
_TIMEOUT_BEYOND_TTFT: Final = holds(
    lambda it: parse_duration(it.measurement.request_timeout) > parse_duration(it.slo.ttft_p95),
    "must be longer than slo.ttftP95, or requests would be given up before they are late",
    ("slo", "measurement"),
    f"!{matches('self.slo.ttftP95', DURATION_PATTERN)} || !{matches(_TIMEOUT, DURATION_PATTERN)} || "
    f"duration({_TIMEOUT}) > duration(self.slo.ttftP95)",
    at="measurement.requestTimeout",
)

_BREACH_IS_WATCHED: Final = holds(
    lambda it: "SLOBreach" not in it.retune.triggers or it.observe.prometheus is not None,
    "SLOBreach needs production to be watched: set observe.prometheus",
    ("retune", "observe"),
    "!has(self.retune) || !has(self.retune.triggers) || !('SLOBreach' in self.retune.triggers) || "
    "(has(self.observe) && has(self.observe.prometheus))",
    at="retune.triggers",
)

DEPLOYMENT_RULES: Final[Iterable[Rule]] = (
    needs("replicas", "template", "replicas belongs to template; the Deployment of targetRef says its own"),
    _CONTAINER_IS_IN_POD,
    _ONE_REFERENCE,
    _DIFFERENT_FILES,
    _DRAFTS_EXIST,
    _DRAFTS_GIVE_NO_ANSWERS,
    _DRAFTING_HAS_A_MODEL,
    _QUALITY_IS_STATED,
    _SEARCHED_MODELS_EXIST,
    _TIMEOUT_BEYOND_TTFT,
    _BREACH_IS_WATCHED,
)
