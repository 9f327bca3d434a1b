"""SVG elements and axes. Every coordinate is finite, every text is escaped."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup, escape

# Characters that XML forbids even when escaped. A name from JSON may contain them.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def written(text: str) -> Markup:
    """Return any text, escaped for SVG."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, cut with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number(value: float) -> str:
    """Format a coordinate; raises ValueError when it is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"chart: expected a finite coordinate, found {value!r}")
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


@dataclass(frozen=True, slots=True)
class Box:
    """The size of a chart, and the plot area within it."""

    width: float
    height: float
    left: float
    right: float
    """The right edge of the plot, from the left."""
    top: float
    bottom: float
    """The lower edge of the plot, from the top."""

    def svg(self, parts: Iterable[str], *, label: str, kind: str) -> Markup:
        """Return the chart; `label` describes it for screen readers."""
        view = f"0 0 {number(self.width)} {number(self.height)}"
        drawing = f'<svg class="chart {kind}" role="img" aria-label="{written(label)}" viewBox="{view}">{"".join(parts)}</svg>'
        return Markup(drawing)  # noqa: S704  every text in it was escaped


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear scale from values to coordinates; values beyond its ends are clipped."""

    least: float
    most: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        if self.most <= self.least:
            return (self.start + self.end) / 2.0
        share = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return self.start + share * (self.end - self.start)


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a straight line."""
    return f'<line class="{kind}" x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"/>'


def rectangle(kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    """Return a rectangle; `title` is its tooltip."""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(max(width, 0.0))}" height="{number(max(height, 0.0))}"'
    drawn = f'<rect class="{kind}" {place}/>'
    return _titled(drawn, "rect", title) if title else drawn


def words(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    """Return a text; `anchor` is `start`, `middle` or `end`."""
    return f'<text class="{kind}" x="{number(x)}" y="{number(y)}" text-anchor="{anchor}">{written(text)}</text>'


def path(kind: str, points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """Return a line through points."""
    joined = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path class="{kind}" d="M{joined}{"Z" if closed else ""}"/>'


def triangle(kind: str, x: float, y: float, title: str) -> str:
    """Return a triangle whose lower corner is at a point; `title` is its tooltip."""
    return _titled(path(kind, ((x - 5, y - 8), (x + 5, y - 8), (x, y)), closed=True), "path", title)


def diamond(kind: str, x: float, y: float, radius: float, title: str) -> str:
    """Return a diamond; `title` is its tooltip."""
    corners = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
    return _titled(path(kind, corners, closed=True), "path", title)


def _titled(shape: str, tag: str, title: str) -> str:
    return f"{shape.removesuffix('/>')}><title>{written(title)}</title></{tag}>"


LEAST_HEIGHT = 0.2
"""An axis covers at least twenty points, so that a change of one point does not look like a fall."""
_GRID = 20
"""Axes begin and end at multiples of a twentieth, five points."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = (
    *(5, 10, 15, 30),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 5, 10, 30, 100, 365)),
)
_LAST_TIME = 253_402_300_799.0
"""The end of the year 9999, the last that datetime can format."""


def share_range(values: Iterable[float]) -> tuple[float, float]:
    """Return the ends of an accuracy axis: it covers all values and at least twenty points, within 0 and 1."""
    shown = [min(max(value, 0.0), 1.0) for value in values if math.isfinite(value)] or [0.9]
    least = max(0, math.floor((min(shown) - 0.005) * _GRID))
    most = min(_GRID, math.ceil((max(shown) + 0.005) * _GRID))
    needed = round(LEAST_HEIGHT * _GRID)
    while most - least < needed:
        # Downwards first: accuracies fall rather than rise.
        if least > 0:
            least -= 1
        if most - least < needed and most < _GRID:
            most += 1
    return least / _GRID, most / _GRID


def share_ticks(least: float, most: float) -> list[float]:
    """Return the labelled values of an axis from `share_range`."""
    step = 1 if most - least <= 0.3001 else 2 if most - least <= 0.6001 else 4
    first, last = round(least * _GRID), round(most * _GRID)
    return [tick / _GRID for tick in range(first, last + 1) if tick % step == 0]


@dataclass(frozen=True, slots=True)
class TimeTick:
    """A labelled time of an axis."""

    at: float
    text: str
    date: str = ""
    """Shown under the first tick and where a day begins."""


def possible(at: float) -> bool:
    """Return whether a time can be formatted as a date."""
    return math.isfinite(at) and 0.0 <= at <= _LAST_TIME


def time_ticks(start: float, end: float, most: int) -> list[TimeTick]:
    """Return at most `most` round times in UTC from `start` to `end`, which are possible times."""
    step = next((one for one in _STEPS if (end - start) / one <= most - 1), _STEPS[-1])
    if (end - start) / step > most - 1:
        step = math.ceil((end - start) / (most - 1) / _DAY) * _DAY
    ticks: list[TimeTick] = []
    day = ""
    for index in range(math.ceil(start / step), math.floor(end / step) + 1):
        moment = datetime.fromtimestamp(index * step, UTC)
        date = f"{moment.day} {moment:%b}"
        if step >= _DAY:
            ticks.append(TimeTick(index * step, f"{date} {moment.year}" if step >= 365 * _DAY else date))
            continue
        ticks.append(
            TimeTick(index * step, f"{moment:%H:%M:%S}" if step < _MINUTE else f"{moment:%H:%M}", date * (date != day))
        )
        day = date
    return ticks
