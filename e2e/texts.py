"""Texts at the edges of every form that a string of the API can have, and a kind that takes each of the forms."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import create_model

from slotune.api.forms import Form, Items
from slotune.api.kubernetes_types import ObjectMeta
from slotune.api.model import Model
from slotune.api.problems import model_within
from slotune.api.v1alpha1 import API_VERSION, KINDS, KindInfo, Resource

__all__ = ["FORMS", "TEXTS", "Specimen"]

EDGES: Final = (
    *("", "0", "1", "00", "0.0", "1.", ".5", "-1", "-0", "+1", "0.49", "0.5", "0.50", "0.999", "0.9990", "0.9991"),
    *("1.01", "100", "100.0", "100.01", "0.99999999999999999", "1.00000000000000001", "9" * 19, "9" * 20, "9" * 24),
    *("1e3", "1E5", "1E", "1e", "1e99", "0e5", "1.5e10", "1e+05", "1e-05", "inf", "-inf", "nan", "1Ki", "0Ki", "1m"),
    *("0m", "9" * 18 + "E", "9" * 18 + "Ei", "0.0000000001", "0.00000000001Ki", "1 Gi", "24GB", "24gi"),
    *("1ms", "0ms", "0s", "0.0s", "1h30m", "1h 30m", "0h0m1ms", "1.5.5s", "0.0000000001s", "0.1ms", "0.0000001ms"),
    *("87600h", "87601h", "2562047h", "2562048h", "9999999999999h", "9" * 29 + "h", "9" * 31 + "s", "1d", "1S"),
    *(
        "1\n",
        "\n1",
        "1 ",
        " 1",
        "a\n",
        "1\r",
        "\u0661",
        "1\u0661",
        "é",
        "aé",
        "a\u0085",
        "a\u2028b",
        "a\x00b",
        "a\tb",
        "a\x7fb",
    ),
    *("A", "a-", "-a", "a..b", "a.b", "a.-b", "a-.b", "a_b", "a/b", "A/b", "a/", "/a", "a/b/c", "nvidia.com/gpu"),
    *("a" * size for size in (8, 9, 10, 11, 63, 64, 65, 128, 129, 253, 254, 256, 257)),
    *("é", "aé", "é" * 256, "é" * 257, "😀" * 256, "😀" * 257, "e\u0301", "\ufeffa", "\u200b"),
    *("Mon 01:00-02:00", "Mon-Fri,Sun 01:00-02:00", "Mon-Tue-Wed 01:00-02:00", "Mon,Tue-Wed-Thu 01:00-02:00"),
    *("01:00-01:00", "24:00-01:00", "00:00-00:00", "1:00-2:00", "Mon  01:00-02:00", "Mon 01:00-02:00\n"),
    *("http://a", "http://[::1]:80/", "http://a?b", "https://a/%20", "http://", "http://-a", "http://a:b@c"),
    *("UTC", "Europe/Berlin", "Etc/GMT+3", "a//b", "all", "auto", "999999", "1000000", "none", "none,ngram-mod"),
    *("0123456789", "012345678", "0123456789A", "abcdef01" * 8, "abcdef01" * 8 + "0", "USD", "usd", "USDX"),
    *("* * * * *", "*/5 1-2 1,2 JAN mon", "* * * *", "* * * * * *", "*  * * * *"),
    *("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+02:00", "2026-01-31 12:00:00Z", "2026-01-31t12:00:00z"),
)
_CHARACTERS: Final = "0159.eEmshkKMiGP-+ ,:/aZé_\n"


def _with_slips(edges: tuple[str, ...], more: int) -> tuple[str, ...]:
    """The texts, and ``more`` of them with one character added, changed or lost; always the same ones."""
    chance = random.Random(5)
    texts = dict.fromkeys(edges)
    short = [text for text in edges if 0 < len(text) < 40]
    while len(texts) < len(set(edges)) + more:
        text = chance.choice(short)
        place, character = chance.randrange(len(text)), chance.choice(_CHARACTERS)
        texts[text[:place] + chance.choice(("", character, character + text[place])) + text[place + 1 :]] = None
    return tuple(texts)


TEXTS: Final = _with_slips(EDGES, 250)


def _forms(model: type[Model], seen: set[type[Model]]) -> Iterator[tuple[str, Form]]:
    """(where it was first found, form) of every form in a model."""
    seen.add(model)
    for name, field in model.model_fields.items():
        for form in (*filter(_is_form, field.metadata), *_forms_of(field.annotation)):
            yield f"{model.__name__}_{name}", form
        inner = model_within(field.annotation)
        if inner is not None and inner not in seen:
            yield from _forms(inner, seen)


def _forms_of(annotation: Any) -> Iterator[Form]:
    yield from filter(_is_form, getattr(annotation, "__metadata__", ()))
    for inner in get_args(annotation):
        yield from _forms_of(inner)


def _is_form(value: object) -> bool:
    return isinstance(value, Form)


def _every_form() -> dict[str, Form]:
    seen: set[type[Model]] = set()
    found: dict[Form, str] = {}
    for kind in KINDS:
        for name, form in _forms(kind, seen):
            found.setdefault(form, name)
    # Letters alone: the API's spelling of a field takes a new word to begin behind a digit.
    forms = {"".join(filter(str.isalpha, name.lower())): form for form, name in found.items()}
    assert len(forms) == len(found), "two forms have one name"
    return forms


FORMS: Final = _every_form()
"""Every form of the API, by the name of a field that has it."""

_fields: dict[str, Any] = {
    name: (Annotated[tuple[Annotated[str, form], ...], Items(most=len(TEXTS))] | None, None)
    for name, form in FORMS.items()
}
SpecimenSpec = create_model("SpecimenSpec", __base__=Model, __doc__="Texts by form.", **_fields)


class Specimen(Resource):
    """A kind for the tests alone, with a list of texts for each form."""

    api_version: Literal["slotune.dev/v1alpha1"] = API_VERSION
    """Version of this type."""
    kind: Literal["Specimen"] = "Specimen"
    """Name of this type."""
    metadata: ObjectMeta
    """Name."""
    spec: SpecimenSpec
    """The texts."""

    INFO: ClassVar[KindInfo] = KindInfo("Specimen", "specimens", "specimen", namespaced=False, columns=())
