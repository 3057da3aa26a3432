"""The four pictures of the report: what a step costs, where a wait went, how waits spread, which prices were tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from slotune.load.summary import Attribution
from slotune.report import svg
from slotune.report.figures import finite, seconds
from slotune.search.trial import TrialResult

__all__ = [
    "Curves",
    "Distribution",
    "Scale",
    "cost_bar",
    "has_parts",
    "latency_curves",
    "longest_wait",
    "scale_for",
    "wait_axis",
    "wait_bar",
]

PARTS = (("queue", "queue"), ("prefill", "prefill"), ("contention", "contention"), ("overhead", "overhead"))
"""(field of the attribution without ``_s``, CSS class), in the order in which a request meets them."""
MOST_BLOCKS = 24
"""Machines drawn one by one; above it a bar is one block."""
CUT_AT = 6.0
"""Waits longer than this many targets are cut off, or the target would vanish at the left edge."""
LOG_FROM = 20.0
"""Slowest over fastest from which the axis of waits is logarithmic."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Seconds to a share of the width."""

    low: float
    high: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Share of the width, 0..1; values beyond the ends stick to them."""
        if self.logarithmic:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)

    def ticks(self) -> tuple[float, ...]:
        """Round values inside the scale, both ends excluded when they are not round."""
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            decades = [10.0**power for power in range(first, last + 1)]
            steps = (1.0, 2.0, 5.0) if last - first <= 3 else (1.0,)
            values = [decade * step for decade in decades for step in steps]
        else:
            step = _round_step((self.high - self.low) / 4)
            values = [step * index for index in range(math.floor(self.high / step) + 1)]
        return tuple(v for v in values if self.low <= v <= self.high * (1 + 1e-9))


@dataclass(frozen=True, slots=True)
class Distribution:
    """TTFT at 0, 1, …, 100 % of the requests of one trial."""

    name: str
    kind: str
    """CSS class of its line: ``before`` or ``after``."""
    quantiles_s: tuple[float, ...]

    def at(self, share: float) -> float:
        """Seconds within which ``share`` of the requests were answered."""
        position = share * (len(self.quantiles_s) - 1)
        low = min(int(position), len(self.quantiles_s) - 2)
        a, b = self.quantiles_s[low], self.quantiles_s[low + 1]
        return a + (b - a) * (position - low)

    @property
    def drawable(self) -> bool:
        """Whether it has at least two quantiles and all of them are numbers."""
        return len(self.quantiles_s) > 1 and all(finite(q) is not None for q in self.quantiles_s)


@dataclass(frozen=True, slots=True)
class Curves:
    """A picture of distributions, and whether its axis is logarithmic, which must be said beside it."""

    svg: Markup
    logarithmic: bool


def cost_bar(title: str, share: float, blocks: int | None, kind: str, name: str, *, height: int = 26) -> Markup:
    """A bar of ``share`` of the width in one block for each machine; ``missed`` ones are hatched."""
    count = blocks if blocks is not None and 1 <= blocks <= MOST_BLOCKS else 1
    fill = f"hatch-{name}" if kind == "missed" else ""
    width = share / count
    bars = [svg.rectangle(index * width, width, 1, height - 2, f"block {kind}", fill=fill) for index in range(count)]
    pattern = [svg.hatch(fill)] if fill else []
    return svg.figure(title, height, [*pattern, *bars], kind="bar")


def scale_for(waits: Sequence[float], target: float) -> Scale:
    """A linear scale from 0 to the longest wait, cut at six targets."""
    longest = max([*waits, target * 1.25])
    return Scale(0.0, min(longest * 1.02, target * CUT_AT) if longest > 0 else 1.0)


def wait_axis(scale: Scale, target: float, percentile: str) -> Markup:
    """Ticks of the bars below, with the target named."""
    parts = []
    for tick in scale.ticks():
        at = scale.at(tick)
        if abs(at - scale.at(target)) > 0.14 and at < 0.97:
            parts.append(svg.text(at, 34, seconds(tick), "tick" if tick else "tick first"))
    at = scale.at(target)
    words = f"owed {seconds(target)}"
    parts.append(svg.text(at, 14, words, f"owed-name{_anchor(at)}"))
    title = f"Axis in seconds, 0 to {seconds(scale.high)}; the {percentile} may be at most {seconds(target)}"
    return svg.figure(title, 40, parts, kind="axis")


def has_parts(result: TrialResult) -> bool:
    """Whether any part of the wait was measured."""
    return bool(_parts(result.attribution) or _parts(result.slowest))


def longest_wait(result: TrialResult) -> float:
    """Seconds that the longest bar of a trial needs; 0 when its parts were not measured."""
    return max(_total(_parts(result.attribution)), _total(_parts(result.slowest)))


def wait_bar(label: str, result: TrialResult, mark: tuple[str, float | None], target: float, scale: Scale) -> Markup:
    """Where the wait of the slowest 5 % went as a thick bar, of all as a thin one, and a mark (percentile, seconds).

    A trial that only knows the mean shows it as the thick bar. What is cut off says its length; the
    page draws the target through all bars.
    """
    percentile, wait = mark
    bars = [("mean", _parts(result.attribution))]
    if slowest := _parts(result.slowest):
        bars.insert(0, ("slowest 5 %", slowest))
    shapes: list[Markup] = []
    said = []
    for (name, parts), (y, height) in zip(bars, ((10, 13), (25, 5)), strict=False):
        shapes.extend(_stacked(name, parts, y, height, scale))
        if parts:
            said.append(f"{name} {seconds(_total(parts))}: {', '.join(f'{n} {seconds(s)}' for n, _, s in parts)}")
    longest = _total(bars[0][1])
    if wait is not None:
        if wait > longest:
            shapes.append(svg.horizontal(scale.at(longest), scale.at(wait), 16.5, "whisker"))
        shapes.append(svg.vertical(scale.at(wait), 7, 26, "mark"))
    if max(longest, wait or 0.0) > scale.high:
        shapes.append(svg.text(1.0, 5, f"to {seconds(max(longest, wait or 0.0))} »", "tick last"))
    where = "; ".join(said) if said else "where the wait went was not measured"
    return svg.figure(f"{label}: {where}; {percentile} {seconds(wait)}, owed {seconds(target)}", 34, shapes, kind="bar")


def _stacked(of: str, parts: Sequence[tuple[str, str, float]], y: float, height: float, scale: Scale) -> list[Markup]:
    shapes, start = [], 0.0
    for name, kind, length in parts:
        left, right = scale.at(start), scale.at(start + length)
        start += length
        if right > left:
            tip = f"{of}: {name} {seconds(length)}"
            shapes.append(svg.rectangle(left, right - left, y, height, f"part {kind}", title=tip))
    return shapes


def _total(parts: Sequence[tuple[str, str, float]]) -> float:
    return sum(length for _, _, length in parts)


def _parts(attribution: Attribution | None) -> list[tuple[str, str, float]]:
    """(name, CSS class, seconds) of the parts that are numbers above 0."""
    if attribution is None:
        return []
    lengths = [(name, kind, finite(getattr(attribution, f"{name}_s"))) for name, kind in PARTS]
    return [(name, kind, length) for name, kind, length in lengths if length is not None and length > 0]


def latency_curves(distributions: Sequence[Distribution], target: float, owed_share: float) -> Curves | None:
    """Share of requests answered within a time, for each distribution, with target and owed share; None without any."""
    drawn = [d for d in distributions if d.drawable]
    if not drawn:
        return None
    scale = _wait_scale([q for d in drawn for q in d.quantiles_s], target)
    top, height = 26.0, 250.0

    def level(share: float) -> float:
        return top + (1 - share) * height

    parts = [svg.horizontal(0, 1, level(share), "grid") for share in (0.0, 0.5, 1.0)]
    for tick in scale.ticks():
        at = scale.at(tick)
        parts.append(svg.vertical(at, top, top + height, "grid"))
        parts.append(svg.text(at, top + height + 18, seconds(tick), f"tick{_anchor(at, 0.04)}"))
    parts.append(svg.rectangle(0, scale.at(target), level(1.0), level(owed_share) - level(1.0), "goal"))
    parts.append(svg.horizontal(0, 1, level(owed_share), "owed"))
    parts.append(svg.vertical(scale.at(target), top - 8, top + height, "owed"))
    at = scale.at(target)
    parts.append(svg.text(at, 12, f"owed {seconds(target)}", f"owed-name{_anchor(at)}"))
    for distribution in drawn:
        points = [(scale.at(q), index / 100) for index, q in enumerate(_hundred(distribution))]
        parts.append(svg.curve(points, top, height, f"line {distribution.kind}"))
    free = _free_place([scale.at(target), *(scale.at(d.at(0.5)) for d in drawn)])
    parts.append(svg.text(free, level(0.5) - 5, "half of requests", f"tick{_anchor(free)}"))
    parts.append(svg.text(0, level(owed_share) + 15, f"{owed_share * 100:g} %", "owed-name first", dx=2))
    for distribution in drawn:
        x = scale.at(distribution.at(owed_share))
        parts.append(svg.circle(x, level(owed_share), 4.5, f"dot {distribution.kind}"))
    picture = svg.figure(_spoken(drawn, target, owed_share), int(top + height + 26), parts, kind="curves")
    return Curves(picture, scale.logarithmic)


def _free_place(taken: Sequence[float]) -> float:
    """The place, an edge or between, whose nearest line is farthest."""
    return max((0.0, 1.0, 0.5, 0.3, 0.7), key=lambda place: min((abs(place - x) for x in taken), default=1.0))


def _anchor(place: float, margin: float = 0.12) -> str:
    """CSS class that keeps words inside the frame."""
    return " first" if place < margin else " last" if place > 1 - margin else ""


def _spoken(drawn: Sequence[Distribution], target: float, owed_share: float) -> str:
    said = "; ".join(
        f"{d.name}: half within {seconds(d.at(0.5))}, {owed_share * 100:g} % within {seconds(d.at(owed_share))}"
        for d in drawn
    )
    return f"Share of requests whose first token came within a time. {said}. Owed: {seconds(target)}."


def _hundred(distribution: Distribution) -> tuple[float, ...]:
    return tuple(distribution.at(index / 100) for index in range(101))


def _wait_scale(waits: Sequence[float], target: float) -> Scale:
    fastest = min([w for w in waits if w > 0] + [target])
    slowest = max([*waits, target])
    if slowest / fastest > LOG_FROM:
        return Scale(fastest * 0.8, slowest * 1.1, logarithmic=True)
    return Scale(0.0, slowest * 1.06)


def _round_step(about: float) -> float:
    """The nearest of 1, 2, 2.5, 5 times a power of ten that is not below ``about``."""
    power = 10.0 ** math.floor(math.log10(about))
    return next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= about * 0.999)
