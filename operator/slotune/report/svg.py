"""SVG elements as escaped text, sized in per cent so that a chart fits any width without shrinking its letters.

Shapes take x positions as shares of the width (0..1) and y positions in pixels. Colours are CSS
classes: the page decides between light, dark and print.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

__all__ = ["across", "circle", "curve", "figure", "hatch", "horizontal", "rectangle", "text", "vertical"]


def across(share: float) -> str:
    """A share of the width, kept inside the picture: 0.5 is ``50%``."""
    return f"{min(max(share, 0.0), 1.0) * 100:.2f}".rstrip("0").rstrip(".") + "%"


def figure(title: str, height: int, parts: Iterable[Markup], *, kind: str) -> Markup:
    """A whole picture, as wide as its place and ``height`` pixels high; ``title`` tells all that it shows."""
    body = Markup("").join(parts)
    return Markup(
        '<svg class="{}" width="100%" height="{}" role="img" aria-label="{}"><title>{}</title>{}</svg>'
    ).format(kind, height, title, title, body)


def rectangle(x: float, width: float, y: float, height: float, kind: str, *, title: str = "", fill: str = "") -> Markup:
    """A bar; ``title`` shows when it is pointed at, ``fill`` names a pattern of :func:`hatch`."""
    tip = Markup("<title>{}</title>").format(title) if title else Markup("")
    style = Markup(' fill="url(#{})"').format(fill) if fill else Markup("")
    return Markup('<rect class="{}" x="{}" y="{:g}" width="{}" height="{:g}"{}>{}</rect>').format(
        kind, across(x), y, across(width), height, style, tip
    )


def hatch(name: str) -> Markup:
    """A pattern of slanted lines; ``name`` must be unique in the page."""
    return Markup(
        '<defs><pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>'
    ).format(name)


def vertical(x: float, y1: float, y2: float, kind: str) -> Markup:
    """A line from top to bottom."""
    return Markup('<line class="{}" x1="{}" x2="{}" y1="{:g}" y2="{:g}"/>').format(kind, across(x), across(x), y1, y2)


def horizontal(x1: float, x2: float, y: float, kind: str) -> Markup:
    """A line from left to right."""
    return Markup('<line class="{}" x1="{}" x2="{}" y1="{:g}" y2="{:g}"/>').format(kind, across(x1), across(x2), y, y)


def circle(x: float, y: float, radius: float, kind: str) -> Markup:
    """A dot."""
    return Markup('<circle class="{}" cx="{}" cy="{:g}" r="{:g}"/>').format(kind, across(x), y, radius)


def text(x: float, y: float, words: str, kind: str = "", *, dx: float = 0) -> Markup:
    """Words centred at ``x``; the classes ``first`` and ``last`` let them start or end there."""
    return Markup('<text class="{}" x="{}" y="{:g}" dx="{:g}">{}</text>').format(kind, across(x), y, dx, words)


def curve(points: Sequence[tuple[float, float]], y: float, height: float, kind: str) -> Markup:
    """A line through (x share, y share from the bottom) points, stretched over the full width."""
    path = " ".join(f"{x * 1000:.1f},{(1 - share) * 1000:.1f}" for x, share in points)
    return Markup(
        '<svg x="0" y="{:g}" width="100%" height="{:g}" viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        'aria-hidden="true"><title>{}</title>'
        '<polyline class="{}" points="{}" vector-effect="non-scaling-stroke"/></svg>'
    ).format(y, height, kind, kind, path)
