"""Pictures are drawn to scale, and stay inside their frame whatever the numbers are."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load.summary import Attribution
from slotune.report import svg
from slotune.report.charts import Distribution, Scale, cost_bar, latency_curves, scale_for, wait_bar
from tests.report.page import read
from tests.report.samples import worked_example

WAITS = st.floats(min_value=1e-4, max_value=1e4)


@given(WAITS, st.lists(WAITS, min_size=1, max_size=5))
def test_nothing_is_drawn_outside_the_frame(target: float, waits: list[float]) -> None:
    split = Attribution(waits[0], waits[-1], 0.0, float("nan"))
    result = replace(worked_example().results[0], attribution=split, slowest=split)
    bar = read(str(wait_bar("x", result, ("p95", max(waits)), target, scale_for(waits, target))))
    for rect in bar.all("rect"):
        left, width = (float(rect.attributes[a].rstrip("%")) for a in ("x", "width"))
        assert 0 <= left <= 100
        assert left + width <= 100.02


@given(WAITS, st.lists(WAITS, min_size=101, max_size=101))
def test_a_curve_rises_from_left_to_right(target: float, waits: list[float]) -> None:
    picture = latency_curves([Distribution("a", "before", tuple(sorted(waits)))], target, 0.95)
    assert picture is not None
    points = re.findall(r"([\d.]+),([\d.]+)", read(str(picture.svg)).all("polyline")[0].attributes["points"])
    xs, ys = [float(x) for x, _ in points], [float(y) for _, y in points]
    assert xs == sorted(xs)
    assert ys == sorted(ys, reverse=True)
    assert 0 <= xs[0] <= xs[-1] <= 1000


@given(st.floats(min_value=1e-3, max_value=10), st.floats(min_value=1.3, max_value=1e5), st.booleans())
def test_ticks_are_few_and_inside(low: float, ratio: float, logarithmic: bool) -> None:
    scale = Scale(low if logarithmic else 0.0, low * ratio, logarithmic and ratio > 20)
    ticks = scale.ticks()
    assert 0 <= len(ticks) <= 13
    assert all(scale.low <= tick <= scale.high * 1.0001 for tick in ticks)


def test_a_logarithmic_scale_gives_each_decade_the_same_width() -> None:
    scale = Scale(0.1, 100, logarithmic=True)
    assert [round(scale.at(v), 6) for v in (0.1, 1, 10, 100)] == [0, 0.333333, 0.666667, 1]


def test_quantiles_between_two_points_are_interpolated() -> None:
    distribution = Distribution("a", "before", (1.0, 2.0, 4.0))
    assert [distribution.at(s) for s in (0, 0.25, 0.5, 0.75, 1)] == [1, 1.5, 2, 3, 4]


@pytest.mark.parametrize("quantiles", [(), (1.0,), (1.0, float("nan")), (1.0, float("inf"))])
def test_a_distribution_without_numbers_is_not_drawn(quantiles: tuple[float, ...]) -> None:
    assert latency_curves([Distribution("a", "before", quantiles)], 1.0, 0.95) is None


@pytest.mark.parametrize(("machines", "want"), [(1, 1), (5, 5), (24, 24), (25, 1), (None, 1), (0, 1)])
def test_machines_are_blocks_until_they_are_too_many(machines: int | None, want: int) -> None:
    assert len(read(str(cost_bar("t", 1.0, machines, "kept", "n"))).all("rect")) == want


def test_words_in_a_picture_are_escaped() -> None:
    picture = str(svg.figure("<b>&\"'", 10, [svg.text(0.5, 1, "</svg><script>")], kind='x" onload="y'))
    root = read(picture)
    assert [e.tag for e in root.children] == ["svg"]
    assert root.all("script") == []
    assert "onload" not in root.children[0].attributes
