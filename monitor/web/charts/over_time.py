"""Over time: the estimate with interval, reference, thresholds, what labels say and gaps; blocks; the evidence of a change."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from monitor.core.estimate import Interval, WindowState
from monitor.core.history import Series
from monitor.core.intervals import field_intervals
from monitor.web.charts.svg import (
    Box,
    Linear,
    diamond,
    line,
    number,
    path,
    possible,
    rectangle,
    share_range,
    share_ticks,
    shortened,
    time_ticks,
    triangle,
    words,
)
from monitor.web.pages.wording import STATES, between, clock, per_cent, power, time_of_day

GAP_STEPS = 3.0
"""No line is drawn over a longer gap: cpcmon was not running."""


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation, or the last one of a step; None where there was no estimate."""

    at: float
    state: WindowState
    accuracy: float | None
    lower: float | None
    upper: float | None
    lowest: float | None
    disagreement: float | None
    records: int
    reference: str = ""
    """The reference in use; empty when unknown."""
    field: Interval | None = None
    """The widest field interval; None where it cannot be said."""
    evidence: float | None = None
    """Of a change, as a logarithm to base 10."""


def points_of(series: Series | None, accuracy: float | None = None, fingerprint: str = "") -> list[Point]:
    """Return the points of a series, without NaN and impossible times.

    With the accuracy and the fingerprint of a reference that has field intervals, its points have them.
    """
    if series is None:
        return []
    fields = field_intervals(series.accuracy, np.nan if accuracy is None else accuracy, series.disagreement)[-1]
    columns = (series.accuracy, series.lower, series.upper, series.lowest, series.disagreement)
    rows = zip(
        series.at.tolist(),
        series.states,
        *(column.tolist() for column in (*columns, *fields)),
        series.records.tolist(),
        series.references or [""] * len(series),
        [math.nan] * len(series) if series.evidence is None else series.evidence.tolist(),
        strict=True,
    )
    found = []
    for at, state, *shares, records, reference, evidence in rows:
        if possible(at):
            # Only the state ok has an estimate.
            known = state is WindowState.OK
            values = [share if known and math.isfinite(share) else None for share in shares]
            value, lower, upper, lowest, disagreement, least, most = values
            # A point of another reference started from another accuracy.
            own = reference != "" and fingerprint.startswith(reference)
            field = Interval(least, most) if own and least is not None and most is not None else None
            found.append(
                Point(
                    *(at, state, value, lower, upper, lowest, disagreement, int(records), reference, field),
                    evidence if math.isfinite(evidence) else None,
                )
            )
    return sorted(found, key=lambda point: point.at)


def step_of(points: list[Point], step_seconds: float | None) -> float:
    """Return the usual distance between points in seconds, above 0."""
    apart = [later.at - earlier.at for earlier, later in pairwise(points) if later.at > earlier.at]
    usual = statistics.median(apart) if apart else 30.0
    return max(usual, step_seconds or 0.0)


def replaced(points: list[Point]) -> list[Point]:
    """Return the first point of each new reference."""
    found: list[Point] = []
    before = ""
    for point in points:
        if before and point.reference and point.reference != before:
            found.append(point)
        before = point.reference or before
    return found


def unbroken_runs(
    points: list[Point], step: float, of: Callable[[Point], float | None] = lambda point: point.accuracy
) -> Iterator[list[Point]]:
    """Yield runs of points with an estimate, or another number; no line connects two runs."""
    run: list[Point] = []
    first = {id(point) for point in replaced(points)}
    for point in points:
        apart = run and point.at - run[-1].at > GAP_STEPS * step
        if run and (apart or of(point) is None or id(point) in first):
            yield run
            run = []
        if of(point) is not None:
            run.append(point)
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time span of one state without an estimate."""

    start: float
    end: float
    state: WindowState


def without_estimate(points: list[Point], step: float) -> list[Stretch]:
    """Return the time spans without an estimate."""
    found: list[Stretch] = []
    for point in points:
        if point.accuracy is not None:
            continue
        start, end = point.at - step / 2.0, point.at + step / 2.0
        before = found[-1] if found else None
        if before is not None and before.state is point.state and start - before.end <= GAP_STEPS * step:
            between = any(one.accuracy is not None for one in points if before.end < one.at < start)
            if not between:
                found[-1] = Stretch(before.start, end, point.state)
                continue
        found.append(Stretch(start, end, point.state))
    return found


OTHER_REFERENCE = "other reference"
_WIDE = 7.0 * len(OTHER_REFERENCE)
"""The approximate width of the label."""


def other_reference(places: Sequence[float], box: Box) -> Iterable[str]:
    """Draw the marks, with a label where no other mark is in the way."""
    taken = box.left
    for index, at in enumerate(places):
        yield line("replaced", at, box.top, at, box.bottom)
        after = places[index + 1] if index + 1 < len(places) else box.right
        if at + 5 + _WIDE <= after:
            yield words("why", at + 5, box.top + 13, OTHER_REFERENCE)
            taken = at + 5 + _WIDE
        else:
            if at - 5 - _WIDE >= taken:
                yield words("why", at - 5, box.top + 13, OTHER_REFERENCE, "end")
            taken = at


_LETTER, _BOLD = 7.0, 8.1
"""The approximate width of a letter."""
_APART = 14.0
"""The least distance between two labels."""


BRIEFLY = {
    WindowState.OK: "no estimate",
    WindowState.WARMING: "collecting",
    WindowState.TOO_FEW_RECORDS: "too few records",
    WindowState.CATCHING_UP: "catching up",
    WindowState.STALE: "no new records",
    WindowState.NO_REFERENCE: "no reference",
    WindowState.VERSION_MISMATCH: "other version",
    WindowState.DEGRADED_INPUT: "bad records",
    WindowState.ERROR: "failed",
}
"""Short reasons for a missing estimate."""


@dataclass(frozen=True, slots=True)
class ChartSize:
    """The size of a chart. A phone gets its own chart, since scaled-down text could not be read."""

    box: Box
    time_labels: int
    share_labels: int
    named: bool
    """Whether there is room for names beside the lines."""


WIDE = ChartSize(Box(960, 340, 46, 790, 34, 290), 8, 7, named=True)
NARROW = ChartSize(Box(330, 290, 38, 280, 30, 244), 4, 6, named=False)
_LOW = {True: Box(960, 240, 46, 790, 34, 190), False: Box(330, 220, 46, 264, 30, 174)}
"""The boxes of evidence; on a screen as wide as those of the estimate, so that times are below each other."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A named value: a threshold, or the start of an alert."""

    name: str
    value: float


class RealisedPoint(NamedTuple):
    """What labels say of the records of some time, with its interval."""

    start: float
    end: float
    value: float
    lower: float
    upper: float
    labels: int
    audited: bool = False
    """Whether the labels are those of an audit; else it is the accuracy of labelled cases."""


class BlockPoint(NamedTuple):
    """The estimate of a block of records, and what labels say of it; None where that is unknown."""

    start: float
    end: float
    estimate: float | None
    interval: Interval | None
    realised: RealisedPoint | None


@dataclass(frozen=True, slots=True)
class OverTime:
    """The data of the chart."""

    series: Series | None
    now: float
    reference: float | None = None
    thresholds: Sequence[Mark] = ()
    alerts: Sequence[Mark] = ()
    """Active alerts, with the start of their phase."""
    fingerprint: str = ""
    """Of the reference; empty if it has no field intervals."""
    baseline: Mark | None = None
    """What the window is compared with, if it is not the reference."""
    began: Sequence[float] = ()
    """When changes most likely began."""
    budgets: Sequence[Mark] = ()
    """The evidence at which alerts fire, as logarithms to base 10."""
    realised: Sequence[RealisedPoint] = ()

    @property
    def compared(self) -> Mark | None:
        """The level that the estimate is compared with."""
        return self.baseline or (None if self.reference is None else Mark("reference", self.reference))

    def points(self) -> list[Point]:
        """Return the points of the series."""
        return points_of(self.series, self.reference, self.fingerprint)


def over_time(data: OverTime, size: ChartSize = WIDE, *, pointed: bool = True) -> Markup:
    """Return the chart; with `pointed` each evaluation has a tooltip."""
    points = data.points()
    step = step_of(points, None if data.series is None else data.series.step_seconds)
    start, end = _times(points, data, step)
    realised = [one for one in data.realised if start <= one.end and one.start <= end]
    least, most = share_range(_shares(points, data, realised))
    box = size.box
    x, y = Linear(start, end, box.left, box.right), Linear(least, most, box.bottom, box.top)
    parts = [*_grid(size, x, y), *_no_estimate(points, step, x, box)]
    if data.series is not None and data.series.step_seconds is not None:
        for run in unbroken_runs(points, step):
            dips = [(x(one.at), y(one.lowest)) for one in run if one.lowest is not None]
            parts += [path("lowest", dips)] if len(dips) > 1 else []
    parts += _estimates(points, step, x, y)
    changes = [x(one.at) for one in replaced(points)]
    parts += _levels(data, size, y, changes[-1] if changes else box.left)
    parts += other_reference(changes, box)
    parts += _realised(realised, x, y)
    parts += _begun(data, size, x, start, end)
    if not points:
        parts.append(words("nothing", (box.left + box.right) / 2, (box.top + box.bottom) / 2, "No data yet", "middle"))
    if pointed:
        parts += _pointed(points, x, box)
    return box.svg(parts, label=_label(points, data, realised), kind="over-time")


_MOST_BUDGETS = 2.0
"""The axis of evidence ends at this multiple of the budget: how far beyond a line is says little."""


def evidence_over_time(data: OverTime, size: ChartSize = WIDE, *, pointed: bool = True) -> Markup:
    """Return the chart of the evidence of a change on a scale of powers of ten; with `pointed` each evaluation has a tooltip."""
    size = replace(size, box=_LOW[size.named])
    box, points = size.box, data.points()
    step = step_of(points, None if data.series is None else data.series.step_seconds)
    start, end = _times(points, data, step)
    known = [point for point in points if point.evidence is not None]
    found = max((point.evidence or 0.0 for point in known), default=0.0)
    budget = max((mark.value for mark in data.budgets), default=found)
    most = max(1.1 * budget, min(found, _MOST_BUDGETS * budget), 1.0)
    # Labels of the highest values stay below the names of alerts.
    x, y = Linear(start, end, box.left, box.right), Linear(0.0, most, box.bottom, box.top + _APART)
    parts = []
    apart = next(one for one in (1, 2, 5, 10, 20, 50, 100, 200) if most / one <= 6.0 or one == 200)
    for exponent in range(0, math.floor(most) + 1, apart):
        parts.append(line("grid", box.left, y(exponent), box.right, y(exponent)))
        parts.append(words("tick", box.left - 6, y(exponent) + 4, f"10^{exponent}" if exponent else "≤ 1", "end"))
    parts += _time_axis(size, x)
    for run in unbroken_runs(points, step, lambda point: point.evidence):
        drawn = [(x(one.at), y(one.evidence)) for one in run if one.evidence is not None]
        parts += [path("estimate", drawn)] if len(drawn) > 1 else []
    levels = [("threshold", mark.name, mark.value) for mark in data.budgets]
    parts += [line(kind, box.left, y(value), box.right, y(value)) for kind, _, value in levels]
    if known and known[-1] is points[-1]:
        last = known[-1].evidence or 0.0
        parts.append(f'<circle class="value" cx="{number(x(known[-1].at))}" cy="{number(y(last))}" r="3.5"/>')
        levels.append(("value", "now", last))
    parts += _labels(levels, size, y, power)
    parts += _begun(data, size, x, start, end)
    if not known:
        parts.append(
            words("nothing", (box.left + box.right) / 2, (box.top + box.bottom) / 2, "No evidence yet", "middle")
        )
    if pointed:
        parts += _pointed(points, x, box, _evidence_words)
    return box.svg(parts, label=_evidence_label(known, data), kind="over-time")


def _evidence_words(point: Point) -> str:
    found = "no evidence" if point.evidence is None else f"evidence {power(point.evidence)}"
    return f"{clock(point.at)}: {found}"


def _evidence_label(known: Sequence[Point], data: OverTime) -> str:
    """Describe the chart for screen readers."""
    values = [point.evidence for point in known if point.evidence is not None]
    budgets = "".join(f"; {mark.name} {power(mark.value)}" for mark in data.budgets)
    if not values:
        return f"Evidence of a change over time: none in this time{budgets}"
    between = f"from {clock(known[0].at)} to {clock(known[-1].at)}"
    found = f"highest {power(max(values))}, last {power(values[-1])}"
    began = "".join(f"; a change began about {clock(at)}" for at in data.began)
    return f"Evidence of a change over time, {between}: {found}{budgets}{began}"


def _times(points: Sequence[Point], data: OverTime, step: float) -> tuple[float, float]:
    """Return the ends of the time axis: from the first point to now, at least four steps."""
    now = data.now if possible(data.now) else 0.0
    end = max([now, *(point.at for point in points[-1:])])
    start = min([end - 4.0 * step, *(point.at for point in points[:1])])
    return (start, end) if possible(start) else (0.0, max(end, 60.0))


def _shares(points: Iterable[Point], data: OverTime, realised: Iterable[RealisedPoint]) -> Iterable[float]:
    for point in points:
        ends = (point.accuracy, point.lower, point.upper, point.lowest, *(point.field or ()))
        yield from (one for one in ends if one is not None)
    yield from (mark.value for mark in data.thresholds)
    yield from (share for one in realised for share in (one.lower, one.value, one.upper))
    if data.compared is not None:
        yield data.compared.value


def _grid(size: ChartSize, x: Linear, y: Linear) -> Iterable[str]:
    box = size.box
    ticks = share_ticks(y.least, y.most)
    for share in ticks if len(ticks) <= size.share_labels else ticks[::2]:
        yield line("grid", box.left, y(share), box.right, y(share))
        yield words("tick", box.left - 6, y(share) + 4, f"{share:.0%}", "end")
    yield from _time_axis(size, x)


def _time_axis(size: ChartSize, x: Linear) -> Iterable[str]:
    box = size.box
    yield line("axis", box.left, box.bottom, box.right, box.bottom)
    for tick in time_ticks(x.least, x.most, size.time_labels):
        at = x(tick.at)
        yield line("axis", at, box.bottom, at, box.bottom + 5)
        # Labels at either end are moved inside.
        half = _LETTER * len(tick.text) / 2
        middle = min(max(at, half + 1), box.width - half - 1)
        yield words("tick", middle, box.bottom + 19, tick.text, "middle")
        if tick.date:
            half = _LETTER * len(tick.date) / 2
            yield words("tick", min(max(at, half + 1), box.width - half - 1), box.bottom + 34, tick.date, "middle")
    yield words("tick", box.right + 23, box.bottom + 19, "UTC")


def _no_estimate(points: list[Point], step: float, x: Linear, box: Box) -> Iterable[str]:
    for stretch in without_estimate(points, step):
        left, right = x(stretch.start), x(stretch.end)
        reason = STATES[stretch.state]
        yield rectangle("no-estimate", left, box.top, max(right - left, 1.5), box.bottom - box.top, reason)
        room = int((right - left - 8) / _LETTER)
        if room >= len(BRIEFLY[stretch.state]):
            yield words("why", left + 5, box.bottom - 8, reason if room >= len(reason) else BRIEFLY[stretch.state])


def _estimates(points: list[Point], step: float, x: Linear, y: Linear) -> Iterable[str]:
    runs = list(unbroken_runs(points, step))
    for run in runs:
        yield from _band("field", [(x(one.at), *one.field) for one in run if one.field is not None], x, y)
    for run in runs:
        known = [(x(one.at), one.lower, one.upper) for one in run if one.lower is not None and one.upper is not None]
        yield from _band("band", known, x, y)
    for run in runs:
        drawn = [(x(one.at), y(one.accuracy)) for one in run if one.accuracy is not None]
        if len(drawn) > 1:
            yield path("estimate", drawn)
        if len(drawn) == 1 or run is runs[-1]:
            at, height = drawn[-1]
            yield f'<circle class="value" cx="{number(at)}" cy="{number(height)}" r="3.5"/>'


def _band(kind: str, known: Sequence[tuple[float, float, float]], x: Linear, y: Linear) -> Iterable[str]:
    """Draw an interval over time, from places with a lower and an upper end."""
    if len(known) > 1:
        upper = [(at, y(most)) for at, _, most in known]
        yield path(kind, [*upper, *((at, y(least)) for at, least, _ in reversed(known))], closed=True)
    for at, least, most in known if len(known) == 1 else ():
        yield rectangle(kind, min(max(at - 3, x.start), x.end - 6), y(most), 6, y(least) - y(most))


def _levels(data: OverTime, size: ChartSize, y: Linear, start: float) -> Iterable[str]:
    """Draw baseline and thresholds, from the last change of the reference on."""
    box = size.box
    levels = [("threshold", mark.name, mark.value) for mark in data.thresholds]
    if data.compared is not None:
        levels.append(("reference", data.compared.name, data.compared.value))
    yield from (line(kind, start, y(value), box.right, y(value)) for kind, _, value in levels)
    yield from _labels(levels, size, y, per_cent)


def _labels(
    levels: Sequence[tuple[str, str, float]], size: ChartSize, y: Linear, formatted: Callable[[float], str]
) -> Iterable[str]:
    """Write the values of levels beside the plot, with their names where there is room; labels do not overlap."""
    box = size.box
    labels: list[tuple[float, str, str]] = []
    for kind, name, value in sorted(levels, key=lambda level: -level[2]):
        at = y(value)
        most = int((box.width - box.right - 6) / _BOLD) - 6
        text = f"{formatted(value)} {shortened(name, most)}" if size.named else formatted(value)
        labels.append((max(at + 4, labels[-1][0] + _APART) if labels else at + 4, kind, text))
    # Labels below the plot would cover the times, so the whole column moves up.
    over = max(0.0, labels[-1][0] - (box.bottom + 4)) if labels else 0.0
    for at, kind, text in labels:
        if at - over >= 11:
            yield words(f"level {kind}-label", box.right + 6, at - over, text)


def _begun(data: OverTime, size: ChartSize, x: Linear, start: float, end: float) -> Iterable[str]:
    """Draw the starts of alerts, and where changes began, with a label where no other mark is in the way."""
    box = size.box
    alerts = [("begun", mark) for mark in data.alerts]
    changes = [
        ("began", Mark(f"began about {time_of_day(at, end)}" if size.named else "began", at)) for at in data.began
    ]
    marks = sorted((one for one in (*alerts, *changes) if start <= one[1].value <= end), key=lambda one: one[1].value)
    taken = 0.0
    for index, (kind, mark) in enumerate(marks):
        at = x(mark.value)
        yield line(kind, at, box.top - 4, at, box.bottom)
        text, label = mark.name, "level"
        if kind == "begun":
            yield triangle("flag", at, box.top - 4, f"{mark.name}: since {clock(mark.value, seconds=False)}")
            text, label = shortened(mark.name, 24), "level flag-label"
        wide = _BOLD * len(text)
        after = x(marks[index + 1][1].value) - 8 if index + 1 < len(marks) else box.width
        if at + 8 + wide <= after:
            yield words(label, at + 8, box.top - 5, text)
            taken = at + 8 + wide
        else:
            if at - 8 - wide >= taken:
                yield words(label, at - 8, box.top - 5, text, "end")
            taken = at + 8


def _pointed(
    points: Sequence[Point], x: Linear, box: Box, worded: Callable[[Point], str] | None = None
) -> Iterable[str]:
    """Yield invisible columns with a tooltip, one per point, that reach half-way to the neighbours."""
    places = [x(point.at) for point in points]
    edges = [box.left, *((one + other) / 2 for one, other in pairwise(places)), box.right]
    for index, point in enumerate(points):
        left, right = edges[index], edges[index + 1]
        title = (worded or point_words)(point)
        yield rectangle("pointed", left, box.top, right - left, box.bottom - box.top, title)


def point_words(point: Point) -> str:
    """Return the tooltip of a point."""
    if point.accuracy is None:
        return f"{clock(point.at)}: {STATES[point.state].lower()}"
    text = f"{clock(point.at)}: {per_cent(point.accuracy)}"
    if point.lower is not None and point.upper is not None:
        text += f", {per_cent(point.lower)} to {per_cent(point.upper)}"
    if point.field is not None:
        text += f", field interval {between(point.field)}"
    return f"{text}; {point.records:,} records"


def _realised(realised: Iterable[RealisedPoint], x: Linear, y: Linear, *, across: bool = True) -> Iterable[str]:
    """Draw each as a diamond in the middle of its time: a line across over that time, a line upwards over its interval."""
    for one in realised:
        left, right = x(one.start), x(one.end)
        at, height = (left + right) / 2, y(one.value)
        if across:
            yield line("whisker", left, height, right, height)
        yield line("whisker", at, y(one.lower), at, y(one.upper))
        yield diamond("realised", at, height, 5.5, _realised_words(one))


def _realised_words(one: RealisedPoint) -> str:
    kind, cases = ("audited", "labels") if one.audited else ("realised", "labelled cases")
    share = f"{per_cent(one.value)} {kind}, {per_cent(one.lower)} to {per_cent(one.upper)}"
    return f"{clock(one.start)} to {clock(one.end)}: {share}; {one.labels:,} {cases}"


def _label(points: list[Point], data: OverTime, realised: Sequence[RealisedPoint]) -> str:
    """Describe the chart for screen readers."""
    known = [point.accuracy for point in points if point.accuracy is not None]
    if not known:
        return "Estimated accuracy over time: no estimate in this time"
    text = (
        f"Estimated accuracy over time, from {clock(points[0].at)} to {clock(points[-1].at)}:"
        f" lowest {per_cent(min(known))}, highest {per_cent(max(known))}, last {per_cent(known[-1])}"
    )
    if data.compared is not None:
        text += f"; {data.compared.name} accuracy {per_cent(data.compared.value)}"
    text += "".join(f"; {OTHER_REFERENCE} from {clock(one.at)} on" for one in replaced(points))
    text += "".join(f"; threshold of {mark.name} {per_cent(mark.value)}" for mark in data.thresholds)
    text += f"; {count} audited accuracies" if (count := sum(one.audited for one in realised)) else ""
    return text + (f"; {count} realised accuracies of labelled cases" if (count := len(realised) - count) else "")


_LEAST_WIDTH, _BETWEEN = 4.0, 3.0
"""Of blocks, and between two of them."""


def block_by_block(blocks: Sequence[BlockPoint], size: ChartSize = WIDE) -> Markup:
    """Return the chart of estimates against labels: a bar over the time of each block, and a diamond."""
    shown = [one for one in blocks if possible(one.start) and possible(one.end)]
    known = [one for one in shown if one.estimate is not None]
    realised = [one.realised for one in shown if one.realised is not None]
    ends = [end for one in known for end in (one.estimate or 0.0, *(one.interval or ()))]
    least, most = share_range([*ends, *(end for one in realised for end in (one.lower, one.value, one.upper))])
    start = min((one.start for one in shown), default=0.0)
    end = max([start + 60.0, *(one.end for one in shown)])
    box = size.box
    x, y = Linear(start, end, box.left, box.right), Linear(least, most, box.bottom, box.top)
    parts = [*_grid(size, x, y)]
    for one in known:
        # With some space in between, but a short one can still be seen.
        wide = max(x(one.end) - x(one.start) - _BETWEEN, _LEAST_WIDTH)
        left = min(max((x(one.start) + x(one.end) - wide) / 2, box.left), box.right - wide)
        right = left + wide
        lower, upper = one.interval or (one.estimate or 0.0,) * 2
        parts.append(rectangle("band", left, y(upper), right - left, y(lower) - y(upper), _block_words(one)))
        parts.append(line("estimate", left, y(one.estimate or 0.0), right, y(one.estimate or 0.0)))
    parts += _realised(realised, x, y, across=False)
    judged = [one for one in known if one.realised is not None]
    if judged and (last := judged[-1].realised) is not None:
        levels = [("value", "estimate", judged[-1].estimate or 0.0), ("realised", "labels", last.value)]
        parts += _labels(levels, size, y, per_cent)
    return box.svg(parts, label=_blocks_label(shown, judged), kind="over-time")


def _block_words(one: BlockPoint) -> str:
    share = "" if one.interval is None else f", {between(one.interval)}"
    return f"{clock(one.start)} to {clock(one.end)}: estimated {per_cent(one.estimate or 0.0)}{share}"


def _blocks_label(blocks: Sequence[BlockPoint], judged: Sequence[BlockPoint]) -> str:
    """Describe the chart for screen readers."""
    text = f"Estimated against realised accuracy, {len(blocks)} blocks, {len(judged)} with labels"
    if judged and (last := judged[-1].realised) is not None:
        text += f"; the latest: estimated {per_cent(judged[-1].estimate or 0.0)}, labels say {per_cent(last.value)}"
    return text
