"""Plots of metrics beyond accuracy and of the class mix: a panel for each metric, with a row for each class.

Several labelled pairs have the estimates against the realised values instead.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from monitor.cli.performance_text import (
    CANNOT_SAY,
    IF_ONLY,
    MACRO,
    SHORT,
    Metrics,
    interval_of,
    mean_errors,
    points,
    shown_classes,
)
from monitor.core.performance import Target
from monitor.reference.offline import Compared, Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

HEADING = "Expected performance"
MIX = "class mix"
BLUE, INK, QUIET, BAND = "#0072B2", "#000000", "#595959", "#E4E4E4"
WIDTH, LINE = 9.0, 0.15
"""In inches: the width of a plot, the height of a line."""
LINE_CHARACTERS = 100
_ACROSS = 4
"""Panels side by side."""
_NAME_CHARACTERS = 18
_ROW, _TITLE, _TICKS = 0.24, 0.3, 0.3
_MARKS: dict[str, dict[str, Any]] = {
    "reference": {"marker": "|", "s": 110, "color": QUIET, "linewidths": 1.6, "zorder": 2},
    "estimate": {"marker": "o", "s": 20, "color": BLUE, "linewidths": 0, "zorder": 3},
    "realised": {"marker": "D", "s": 34, "facecolors": "none", "edgecolors": INK, "linewidths": 1.1, "zorder": 4},
}
_RING: dict[str, Any] = {"marker": "o", "s": 30, "facecolors": "white", "edgecolors": QUIET, "linewidths": 1.0}
_NOTE = f"Assumes that probabilities mean what they meant on the reference. Class mix: {IF_ONLY}."


class Part(NamedTuple):
    """A part of a plot, over its whole width."""

    height: float
    draw: Callable[["SubFigure"], None]


def printable(text: str) -> str:
    """Replace control characters, lone surrogates and bidirectional controls."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def by_class(
    classes: Sequence[str], metrics: Metrics, mix: Sequence[Compared], title: str, level: float, *, labelled: bool
) -> Part:
    """Return the panels of one window: estimates with intervals, the reference, and what was realised."""
    shown = shown_classes(metrics)
    rows: list[int | None] = [*shown, None]
    panels = [
        (SHORT[metric], found)
        for metric in SHORT
        if (found := [metrics.get(Target(metric, one)) for one in rows]) and any(found)
    ]
    if mix and shown:
        panels.append((MIX, [None if one is None else mix[one] for one in rows]))
    names = [MACRO if one is None else _shortened(classes[one]) for one in rows]
    lines = textwrap.wrap(title, LINE_CHARACTERS)
    side, top, bottom = _ROW * len(rows), 0.6 + LINE * len(lines), 0.55
    down = _TITLE + side + _TICKS
    height = top + math.ceil(len(panels) / _ACROSS) * down + bottom

    def draw(figure: "SubFigure") -> None:
        left, gap = 1.55, 0.2
        width = (WIDTH - left - 0.25) / _ACROSS - gap
        for number, (name, cells) in enumerate(panels):
            row, column = divmod(number, _ACROSS)
            corner = left + column * (width + gap), height - top - row * down - _TITLE - side
            place = (corner[0] / WIDTH, corner[1] / height, width / WIDTH, side / height)
            axes = figure.add_axes(place, xlim=(0.0, 1.0), ylim=(len(rows) - 0.5, -0.5))
            _rows(axes, name, cells, names if column == 0 else None)
        key = [axes.scatter([], [], label=_label(kind, level), **_MARKS[kind]) for kind in _kinds(labelled=labelled)]
        _frame(figure, height, lines, key)

    return Part(height, draw)


def _kinds(*, labelled: bool) -> Iterable[str]:
    return (kind for kind in ("estimate", "reference", "realised") if labelled or kind != "realised")


def _label(kind: str, level: float) -> str:
    return f"estimate with {100 * level:g}% interval" if kind == "estimate" else kind


def _shortened(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"


def _rows(axes: "Axes", title: str, cells: Sequence[Compared | None], names: Sequence[str] | None) -> None:
    """Draw a metric: a row for each class."""
    axes.set_title(title, fontsize=9, loc="left", pad=5)
    axes.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"], fontsize=8)
    axes.set_yticks(range(len(cells)), [""] * len(cells) if names is None else names, color=INK, fontsize=8)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="both", color=BAND, linewidth=0.7)
    for row, one in enumerate(cells):
        if one is None:
            continue
        interval = interval_of(one)
        if interval is not None:
            axes.plot(interval, [row, row], color=BLUE, linewidth=2.0, alpha=0.45, solid_capstyle="butt", zorder=2)
        marks = {"reference": one.reference, "estimate": one.value, "realised": one.realised}
        for kind, value in marks.items():
            if value is not None:
                axes.scatter(value, row, clip_on=False, **_MARKS[kind])
        if one.value is None:
            # In the widest gap between marks.
            ends = sorted([0.0, 1.0, *(value for value in marks.values() if value is not None)])
            low, high = max(pairwise(ends), key=lambda gap: gap[1] - gap[0])
            axes.text((low + high) / 2, row, CANNOT_SAY, ha="center", va="center", color=QUIET, fontsize=7.5)


def of_pairs(evaluations: Sequence[Evaluation]) -> Part | None:
    """Return the panels of several pairs: estimates, and the reference's values, against realised ones; None without any."""
    panels = []
    for metric, name in SHORT.items():
        each = [found for one in evaluations if (found := _said(one.of_classes(metric)))]
        if each:
            panels.append((name, [one for found in each for one in found], [mean_errors(found) for found in each]))
    shares = [one for evaluation in evaluations for one in _said(evaluation.class_mix)]
    mixes = [errors for one in evaluations if (errors := one.class_mix_errors()) is not None]
    panels += [(MIX, shares, mixes)] if shares else []
    if not panels:
        return None
    left, gap, top, bottom = 0.8, 0.2, 1.25, 1.0
    side = (WIDTH - left - 0.2) / _ACROSS - gap
    down = side + 0.6
    height = top + math.ceil(len(panels) / _ACROSS) * down - 0.6 + bottom

    def draw(figure: "SubFigure") -> None:
        for number, (name, found, errors) in enumerate(panels):
            row, column = divmod(number, _ACROSS)
            corner = left + column * (side + gap), height - top - side - row * down
            place = (corner[0] / WIDTH, corner[1] / height, side / WIDTH, side / height)
            axes = figure.add_axes(place, xlim=(0.0, 1.0), ylim=(0.0, 1.0))
            axes.tick_params(labelleft=column == 0, labelbottom=number + _ACROSS >= len(panels), labelsize=8)
            axes.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
            axes.set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
            key = _scattered(axes, name, found)
            error, again = (fmean(column) for column in zip(*errors, strict=True))
            above: Any = {"xytext": (0, 5), "textcoords": "offset points", "xycoords": "axes fraction"}
            axes.annotate(f"{points(error)}, reference {points(again)}", (0, 1), fontsize=8, color=QUIET, **above)
        figure.text((left + 2 * (side + gap)) / WIDTH, (bottom - 0.42) / height, "realised", ha="center")
        middle = (height - top + bottom) / 2 / height
        figure.text(0.25 / WIDTH, middle, "estimated", va="center", rotation=90)
        lines = [f"{len(evaluations)} pairs; a mark for each class. Under each name the mean absolute error in points"]
        _frame(figure, height, lines, key)

    return Part(height, draw)


def _said(found: Iterable[Compared]) -> list[Compared]:
    return [one for one in found if one.error is not None and one.reference_error is not None]


def _scattered(axes: "Axes", title: str, found: Sequence[Compared]) -> list[Any]:
    (equal,) = axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, label="estimate = realised")
    realised = [one.realised or 0.0 for one in found]
    marks: Any = {"clip_on": False}
    repeated = axes.scatter(
        realised, [one.reference or 0.0 for one in found], label="the reference's value", **_RING, **marks
    )
    estimated = axes.scatter(
        realised, [one.value or 0.0 for one in found], label="estimate", **_MARKS["estimate"], **marks
    )
    axes.set_title(title, fontsize=9, loc="left", pad=16)
    return [estimated, repeated, equal]


def _frame(figure: "SubFigure", height: float, lines: Sequence[str], key: Sequence[Any]) -> None:
    """Draw the heading, the legend and the note."""
    figure.text(0.2 / WIDTH, 1 - 0.15 / height, HEADING, fontsize=12, fontweight="bold", va="top")
    figure.text(0.2 / WIDTH, 1 - 0.43 / height, "\n".join(lines), color=QUIET, va="top")
    where = (0.1 / WIDTH, 0.2 / height)
    figure.legend(handles=list(key), loc="lower left", bbox_to_anchor=where, ncols=len(key), frameon=False)
    figure.text(0.2 / WIDTH, 0.1 / height, _NOTE, color=QUIET, fontsize=8)
