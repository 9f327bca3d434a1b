"""Plots of `cpcmon evaluate` and `cpcmon estimate` as SVG, PNG, or HTML with tables.

Estimates against realised accuracy: one pair of sets has a row per estimator, several have a panel per estimator. Below them
the metrics beyond accuracy. matplotlib is the extra [plot], imported on use.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from monitor.cli.inputs import write_atomically
from monitor.cli.performance_plot import (
    BAND,
    BLUE,
    INK,
    LINE,
    LINE_CHARACTERS,
    QUIET,
    WIDTH,
    Part,
    by_class,
    of_pairs,
    printable,
)
from monitor.cli.performance_plot import HEADING as PERFORMANCE
from monitor.cli.performance_text import compared, metric_rows
from monitor.core.calibration import WindowEstimate
from monitor.core.intervals import DEFAULT_LEVEL
from monitor.errors import Problem, UsageError
from monitor.reference.offline import Evaluation
from monitor.reference.reference import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_SUFFIXES = (".svg", ".png", ".html")
# A ring around a smaller disc: raw and scaled stay visible where they coincide, and without colour.
_MARKS: dict[str, dict[str, Any]] = {
    "raw": {"label": "raw", "marker": "o", "s": 58, "facecolors": "white", "edgecolors": BLUE, "linewidths": 1.2},
    "scaled": {"label": "temperature-scaled", "marker": "o", "s": 20, "color": BLUE, "linewidths": 0},
    "only": {"label": "one form only", "marker": "D", "s": 34, "color": INK, "linewidths": 0},
}
_STYLE: Any = {
    "font.sans-serif": ["DejaVu Sans"],  # part of matplotlib
    "font.size": 9.0,
    "text.parse_math": False,  # a file name may contain a dollar sign
    "svg.fonttype": "none",
    "svg.hashsalt": "cpcmon",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.edgecolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}
_MOST_LINES = 60
_NEAR = 0.02  # the band around the realised accuracy


def check(path: Path) -> None:
    """Raise UsageError if the path cannot be plotted to; call it before a long evaluation."""
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(Problem("plot", f"a file ending in {', '.join(_SUFFIXES)}", repr(str(path))))
    if find_spec("matplotlib") is None:
        raise UsageError(Problem("plot", "matplotlib", "none; pip install 'cpcmon[plot]'"))


def draw(evaluations: Sequence[Evaluation], names: Sequence[str], path: Path, *, titles: Sequence[str]) -> None:
    """Plot the estimators `names` to a file; its extension selects the format.

    `titles` has one text per evaluation.
    """
    check(path)
    titles = [printable(title) for title in titles]
    if len(evaluations) == 1:
        (one,) = evaluations
        parts = [_rows(one, names, titles[0])]
        if one.performance:
            beyond = by_class(one.classes, one.shown, one.class_mix, titles[0], DEFAULT_LEVEL, labelled=True)
            parts.append(beyond)
    else:
        parts = [_panels(evaluations, names, titles), *filter(None, [of_pairs(evaluations)])]
    pairs = list(zip(evaluations, titles, strict=True))
    tables = [(title, one, _table_rows(one, names)) for one, title in pairs]
    metrics = [
        (title, *metric_rows(one.classes, one.shown, one.class_mix, labelled=True)) for one, title in pairs if one.shown
    ]
    write(path, parts, HEADING, {"command": "cpcmon evaluate", "tables": tables, "performance": metrics})


def draw_window(reference: Reference, window: WindowEstimate, path: Path, *, title: str) -> None:
    """Plot the metrics and the class mix of a window."""
    check(path)
    metrics, mix = compared(reference, window)
    if not metrics:
        raise UsageError(Problem("plot", "metrics beyond accuracy", "none: too few records, or an older reference"))
    level, title = reference.calibration.intervals.level, printable(title)
    part = by_class(reference.classes, metrics, mix, title, level, labelled=False)
    tables = [(title, *metric_rows(reference.classes, metrics, mix, labelled=False))]
    write(path, [part], PERFORMANCE, {"command": "cpcmon estimate", "tables": [], "performance": tables})


def write(path: Path, parts: Sequence[Part], heading: str, page: Mapping[str, object]) -> None:
    """Draw the parts, one below the other, to a file; with what the page of an HTML file says."""
    suffix = path.suffix.lower()
    content = _render(parts, heading, "png" if suffix == ".png" else "svg")
    if suffix == ".html":
        from monitor.web.pages.rendering import ENVIRONMENT  # noqa: PLC0415 - slow to import

        svg = content.decode()
        picture = svg[svg.index("<svg ") :].replace("<svg ", f'<svg role="img" aria-label="{heading}" ', 1)
        content = ENVIRONMENT.get_template("evaluation.html").render(heading=heading, picture=picture, **page).encode()
    write_atomically(path, content)


def _known(evaluations: Sequence[Evaluation], form: str) -> list[tuple[float, float]]:
    """Return pairs of realised and estimated accuracy."""
    answers = ((evaluation.target_accuracy, evaluation.estimates.get(form)) for evaluation in evaluations)
    return [(realised, value) for realised, value in answers if value is not None]


def _render(parts: Sequence[Part], heading: str, kind: str) -> bytes:
    import matplotlib as mpl  # noqa: PLC0415  an optional extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    # Independent of the user's style. A title may need missing glyphs.
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        heights = [part.height for part in parts]
        figure = Figure(dpi=150, figsize=(WIDTH, sum(heights)))
        places = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights, hspace=0.0)[:, 0]
        for part, place in zip(parts, places, strict=True):
            part.draw(place)
        # No date and no version: the output is reproducible.
        omitted = dict.fromkeys(["Software"] if kind == "png" else ["Date", "Creator", "Format", "Type"])
        file = io.BytesIO()
        figure.savefig(file, format=kind, metadata={"Title": heading} | omitted)
    return file.getvalue()


def _limits(evaluations: Sequence[Evaluation], names: Sequence[str], *also: float) -> tuple[float, float]:
    """Return axis limits within 0–1 that contain all values, with a margin."""
    drawn = [form for name in names for form in forms(evaluations, name).values()]
    values = [*also, *(evaluation.target_accuracy for evaluation in evaluations)]
    values += [value for form in drawn for _, value in _known(evaluations, form)]
    spread = max(values) - min(values)
    margin = max(0.03, 0.05 * spread, 0.1 - spread / 2)
    return max(0.0, min(values) - margin), min(1.0, max(values) + margin)


def _frame(figure: "SubFigure", height: float, lines: Sequence[str], key: Sequence[Any], key_at: float) -> None:
    """Draw the heading, and the legend `key_at` above the bottom."""
    figure.text(0.2 / WIDTH, 1 - 0.2 / height, HEADING, fontsize=12, fontweight="bold", va="top")
    figure.text(0.2 / WIDTH, 1 - 0.5 / height, "\n".join(lines), color=QUIET, va="top")
    where = (0.1 / WIDTH, key_at / height)
    figure.legend(handles=key, loc="lower left", bbox_to_anchor=where, ncols=len(key), frameon=False)


def _key(axes: "Axes", evaluations: Sequence[Evaluation], names: Sequence[str]) -> list[Any]:
    used = {kind for name in names for kind in forms(evaluations, name)}
    return [axes.scatter([], [], **mark) for kind, mark in _MARKS.items() if kind in used]


def _rows(evaluation: Evaluation, names: Sequence[str], title: str) -> Part:
    """Return one row per estimator, and the accuracies of source and target as vertical lines."""
    lines = textwrap.wrap(title, LINE_CHARACTERS)
    left, right, bottom, top = 1.8, 1.5, 0.95, 0.85 + LINE * len(lines)
    height = bottom + 0.3 * len(names) + top

    def draw(figure: "SubFigure") -> None:
        realised, source = evaluation.target_accuracy, evaluation.source_accuracy
        axes = figure.add_axes((left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height))
        low, high = _limits([evaluation], names, source)
        axes.set(xlim=(low, high), ylim=(len(names) - 0.5, -0.5), xlabel="accuracy")
        axes.set_yticks(range(len(names)), names, color=INK)
        axes.tick_params(axis="y", length=0, pad=10)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="y", color=BAND, linewidth=0.8)
        band = axes.axvspan(realised - _NEAR, realised + _NEAR, color=BAND, linewidth=0, label="within 2 points")
        axes.axvline(source, color=QUIET, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.axvline(realised, color=INK, linewidth=1.4)
        # The labels point away from each other, so they never overlap.
        sides = ("right", "left") if realised < source else ("left", "right")
        for text, at, colour, side in (("realised", realised, INK, sides[0]), ("source", source, QUIET, sides[1])):
            apart = (high - low) / (250 if side == "left" else -250)
            label = axes.text(at + apart, 1 + 0.15 / len(names), f"{text} {at:.3f}", color=colour, ha=side)
            label.set_transform(axes.get_xaxis_transform())
        for row, name in enumerate(names):
            _row(axes, row, evaluation, name)
        _frame(figure, height, lines, [*_key(axes, [evaluation], names), band], 0.1)

    return Part(height, draw)


def _row(axes: "Axes", row: int, evaluation: Evaluation, name: str) -> None:
    answers = {kind: evaluation.estimates.get(form) for kind, form in forms([evaluation], name).items()}
    found = {kind: value for kind, value in answers.items() if value is not None}
    axes.plot(list(found.values()), [row] * len(found), color=BLUE, linewidth=0.8)
    for kind, value in found.items():
        axes.scatter(value, row, clip_on=False, zorder=3, **_MARKS[kind])
    missing = [kind for kind in answers if kind not in found]
    if missing:
        text = f"{missing[0]}: no estimate" if found else "no estimate"
        axes.text(1.02, row, text, va="center", color=QUIET, transform=axes.get_yaxis_transform())


def _panels(evaluations: Sequence[Evaluation], names: Sequence[str], titles: Sequence[str]) -> Part:
    """Return one panel per estimator, and list the pairs by realised accuracy."""
    pairs = ["Pairs by realised accuracy"]
    for realised, title in sorted(zip([one.target_accuracy for one in evaluations], titles, strict=True)):
        pairs += textwrap.wrap(f"{realised:.3f}  {title}", LINE_CHARACTERS)
    if len(pairs) > _MOST_LINES:
        pairs[_MOST_LINES:] = ["…"]
    columns = math.ceil(len(names) / math.ceil(len(names) / 5))
    side, left, top, bottom = min(2.4, 8.0 / columns - 0.2), 0.8, 1.25, 1.25 + LINE * len(pairs)
    across, down = side + 0.2, side + 0.6
    height = top + math.ceil(len(names) / columns) * down - 0.6 + bottom

    def draw(figure: "SubFigure") -> None:
        limits = _limits(evaluations, names)
        for number, name in enumerate(names):
            row, column = divmod(number, columns)
            corner = (left + column * across) / WIDTH, (height - top - side - row * down) / height
            axes = figure.add_axes((*corner, side / WIDTH, side / height), xlim=limits, ylim=limits)
            axes.locator_params(nbins=4)
            axes.tick_params(labelleft=column == 0, labelbottom=number + columns >= len(names))
            guides = _panel(axes, evaluations, name)
        middle = (left + (columns * across - 0.2) / 2) / WIDTH, (height - top + bottom) / 2 / height
        figure.text(middle[0], (bottom - 0.42) / height, "realised accuracy", ha="center")
        figure.text(0.25 / WIDTH, middle[1], "estimated accuracy", va="center", rotation=90)
        figure.text(0.2 / WIDTH, (LINE * len(pairs) + 0.15) / height, "\n".join(pairs), color=QUIET, va="top")
        subtitle = f"{len(evaluations)} pairs; under each name its mean absolute error in points"
        _frame(figure, height, [subtitle], [*_key(axes, evaluations, names), *guides], bottom - 0.85)

    return Part(height, draw)


def _panel(axes: "Axes", evaluations: Sequence[Evaluation], name: str) -> list[Any]:
    edges = [-_NEAR, 1 - _NEAR, 1 + _NEAR, _NEAR]
    (near,) = axes.fill([0, 1, 1, 0], edges, color=BAND, linewidth=0, label="within 2 points")
    (equal,) = axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, label="estimate = realised")
    off = []
    for kind, form in forms(evaluations, name).items():
        known, mark = _known(evaluations, form), _MARKS[kind] | {"s": _MARKS[kind]["s"] * 0.55}
        axes.scatter([realised for realised, _ in known], [v for _, v in known], clip_on=False, zorder=3, **mark)
        # Only if every pair has an estimate: the missing pairs are the hard ones.
        complete = len(known) == len(evaluations)
        mean = f"{100 * fmean(abs(value - realised) for realised, value in known):.1f}" if complete else "–"
        off.append(mean if kind == "only" else f"{kind} {mean}")
    axes.set_title(name, fontsize=9, loc="left", pad=16)
    # In points like the title's padding, since panels differ in size.
    above: Any = {"xytext": (0, 5), "textcoords": "offset points", "xycoords": "axes fraction"}
    axes.annotate(", ".join(off), (0, 1), fontsize=8, color=QUIET, **above)
    return [equal, near]


HEADING = "Estimates against realised accuracy"


def forms(evaluations: Sequence[Evaluation], name: str) -> dict[str, str]:
    """Return the forms of an estimator: raw and scaled, or the only one."""
    both = any(f"{name}_ts" in evaluation.estimates for evaluation in evaluations)
    return {"raw": name, "scaled": f"{name}_ts"} if both else {"only": name}


def _table_rows(evaluation: Evaluation, names: Sequence[str]) -> list[tuple[str, list[str]]]:
    realised = evaluation.target_accuracy
    rows = []
    for name in names:
        cells: list[str] = []
        for form in forms([evaluation], name).values():
            value = evaluation.estimates.get(form)
            cells += ["no estimate", ""] if value is None else [f"{value:.3f}", f"{100 * (value - realised):+z.1f}"]
        # A single form goes into the scaled column, as in the table of `cpcmon evaluate`.
        rows.append((name, [f"{realised:.3f}", *[""] * (4 - len(cells)), *cells]))
    return rows
