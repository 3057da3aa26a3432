"""Manifests with a mistake that nobody thought of: a good one with a few values gone, moved or swapped for others."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

__all__ = ["mutants"]

Manifest = dict[str, Any]
Path = tuple[str | int, ...]

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False),
    *(0, -1, 1, 2, 300, 10**6, 2**31 - 1, 2**31, 2**63 - 1, 2**63),
    *(1.5, 2.0, 1e6, 1e20),
    *("", "x", "X", "a b", "0", "1", "-1", "0.5", "0.95", "1.5", "100"),
    *("0s", "1s", "5m", "11h", "1ms", "99999h", "24Gi", "1m", "02:00-05:00"),
    *("f16", "q8_0", "none", "Off", "Auto", "Borrow", "Gamma", "Replay", "SLOBreach"),
    *([], [1], ["x"], [None], [1, 1], ["f16", "f16"], [{"name": "x"}], {}, {"name": "x"}),
)


@st.composite
def mutants(draw: st.DrawFn, manifests: Sequence[Manifest]) -> Manifest:
    """One of the manifests with one to three places below its spec changed."""
    manifest = copy.deepcopy(draw(st.sampled_from(manifests)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(manifest["spec"], ("spec",)))
        if places:
            _change(draw, manifest, draw(st.sampled_from(places)), manifests)
    return manifest


def _change(draw: st.DrawFn, manifest: Manifest, place: Path, manifests: Sequence[Manifest]) -> None:
    parent, key = _at(manifest, place[:-1]), place[-1]
    other = draw(st.sampled_from(manifests))
    match draw(st.sampled_from(["remove", "odd", "elsewhere", "same place", "repeat or misspell"])):
        case "remove":
            del parent[key]
        case "odd":
            parent[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        case "elsewhere":
            parent[key] = copy.deepcopy(_at(other, draw(st.sampled_from(list(_places(other["spec"], ("spec",)))))))
        case "same place":
            if place in set(_places(other["spec"], ("spec",))):
                parent[key] = copy.deepcopy(_at(other, place))
        case _ if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[int(key)]))
        case _:
            parent[draw(st.sampled_from(["unknown", str(key).upper(), f"{key}s"]))] = 1


def _places(value: Any, path: Path) -> Iterator[Path]:
    """Paths of everything below ``value``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from _places(below, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value
