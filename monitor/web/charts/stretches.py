"""What a series of points is cut into before it is drawn: lines that end where nothing is known, and stretches without an answer."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from monitor.core.history import Series
from monitor.core.window_state import WindowState
from monitor.web.charts.axes import possible

GAP_STEPS = 3.0
"""No line is drawn over a pause longer than this many steps: cpcmon was not running, and nobody knows."""


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation, or the last of a stretch of them; None where nothing could be said."""

    at: float
    state: WindowState
    accuracy: float | None
    lower: float | None
    upper: float | None
    lowest: float | None
    disagreement: float | None
    records: int
    reference: str = ""
    """Which one judged; empty where that is not known."""


def points_of(series: Series | None) -> list[Point]:
    """Return a series row by row, without NaN and without times that cannot be."""
    if series is None:
        return []
    columns = (series.accuracy, series.lower, series.upper, series.lowest, series.disagreement)
    rows = zip(
        series.at.tolist(),
        series.states,
        *(column.tolist() for column in columns),
        series.records.tolist(),
        series.references or [""] * len(series),
        strict=True,
    )
    found = []
    for at, state, *shares, records, reference in rows:
        if possible(at):
            # A state without an answer has no number, whatever stands in its columns.
            known = state is WindowState.OK
            told = [share if known and math.isfinite(share) else None for share in shares]
            accuracy, lower, upper, lowest, disagreement = told
            found.append(Point(at, state, accuracy, lower, upper, lowest, disagreement, int(records), reference))
    return sorted(found, key=lambda point: point.at)


def step_of(points: list[Point], step_seconds: float | None) -> float:
    """Return how far points usually are from each other, in seconds; more than 0."""
    apart = [later.at - earlier.at for earlier, later in pairwise(points) if later.at > earlier.at]
    usual = statistics.median(apart) if apart else 30.0
    return max(usual, step_seconds or 0.0)


def replaced(points: list[Point]) -> list[Point]:
    """Return the points that are the first of another reference than the one known before."""
    found: list[Point] = []
    before = ""
    for point in points:
        if before and point.reference and point.reference != before:
            found.append(point)
        before = point.reference or before
    return found


def unbroken(points: list[Point], step: float) -> Iterator[list[Point]]:
    """Yield runs of points with an answer, between which no line may be drawn."""
    run: list[Point] = []
    first = {id(point) for point in replaced(points)}
    for point in points:
        apart = run and point.at - run[-1].at > GAP_STEPS * step
        if run and (apart or point.accuracy is None or id(point) in first):
            yield run
            run = []
        if point.accuracy is not None:
            run.append(point)
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time over which one state held and nothing could be said."""

    start: float
    end: float
    state: WindowState


def unjudged(points: list[Point], step: float) -> list[Stretch]:
    """Return the stretches without an answer; of `ok` that the estimators had none."""
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
