"""The history of a model: one frame per evaluation, aggregated into coarser resolutions.

One object per evaluation, not per point: two thousand segments take about forty-five megabytes.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import floor
from sys import intern
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from monitor.core.estimate import STATES, WindowState
from monitor.core.report import Report
from monitor.core.scores import Floats, Integers, Singles
from monitor.core.segments import ALL, name_of


class Span(StrEnum):
    """The resolutions of the history."""

    RECENT = "recent"
    """Every evaluation, the last few hundred."""
    DAYS = "days"
    """One point per 15 minutes, for three days."""
    MONTH = "month"
    """One point per four hours, for thirty days."""


@dataclass(frozen=True, slots=True)
class Series:
    """One window over time. All columns have the same length; NaN where there is no estimate."""

    at: Floats
    """Times of the evaluations in Unix seconds, ascending."""
    states: tuple[WindowState, ...]
    accuracy: Floats
    """The headline: the last estimate in the interval of a point."""
    lower: Floats
    upper: Floats
    lowest: Floats
    """The lowest estimate in the interval of a point."""
    disagreement: Floats
    records: Integers
    step_seconds: float | None = None
    """The interval of a point; None if each point is one evaluation."""
    references: tuple[str, ...] = ()
    """The truncated fingerprint of the reference of each point, the last one in its interval; empty if none or unknown.
    `()` if all are unknown."""
    evidence: Floats | None = None
    """Of a change, in either direction, as a logarithm to base 10: the largest in the interval of a point. NaN where there is
    none; None if nowhere is any."""

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.at)


MOST_SEGMENTS = 2_000
"""Only the first segments have a history."""
_FINGERPRINT_DIGITS = 12
_MOST_RECORDS = np.iinfo(np.uint32).max
_ACCURACY, _LOWER, _UPPER, _DISAGREEMENT, _LOWEST = range(5)
POINT_ROWS, STRETCH_ROWS = _LOWEST, _LOWEST + 1


@dataclass(frozen=True, slots=True)
class Frame:
    """One point of every window of a model. All columns have the length of `names`."""

    at: float
    """The time of the (last) evaluation."""
    through: int
    """The number of that evaluation."""
    names: tuple[str, ...]
    """Segment names; shared by frames of the same segments."""
    states: NDArray[np.uint8]
    """Indexes into STATES."""
    numbers: Singles
    """Rows: accuracy, lower, upper, disagreement, and in aggregates the lowest accuracy. NaN without an estimate."""
    records: NDArray[np.uint32]
    reference: str = ""
    """The truncated fingerprint of the (last) reference; empty if none or unknown."""
    evidence: Singles | None = None
    """Of a change, as a logarithm to base 10, the largest; NaN where there is none. None for a model without an alert of type change."""

    def row(self, row: int) -> Singles:
        """Return a row; in one evaluation, the lowest accuracy is the accuracy."""
        found: Singles = self.numbers[row if row < len(self.numbers) else _ACCURACY]
        return found


def frame_of(report: Report, at: float, through: int, names: tuple[str, ...] = ()) -> Frame:
    """Return the frame of a report; `names` are those of the previous frame, shared if equal."""
    windows = report.windows
    found, estimates = windows.names[:MOST_SEGMENTS], windows.estimates
    spread = np.where(np.isnan(windows.headline(estimates.accuracy)), np.nan, estimates.disagreement)
    numbers = [*map(windows.headline, (estimates.accuracy, estimates.lower, estimates.upper)), spread]
    changes = windows.changes
    return Frame(
        at,
        through,
        names if found == names else tuple(map(intern, found)),
        windows.states[:MOST_SEGMENTS].copy(),
        np.array(numbers, dtype=np.float32)[:, :MOST_SEGMENTS].copy(),
        np.minimum(windows.records[:MOST_SEGMENTS], _MOST_RECORDS).astype(np.uint32),
        "" if report.reference is None else intern(report.reference.fingerprint[:_FINGERPRINT_DIGITS]),
        None
        if changes is None
        else np.fmax.reduce(changes.evidence[:, :MOST_SEGMENTS], axis=0, dtype=np.float64).astype(np.float32),
    )


def folded(stretch: Frame | None, new: Frame) -> Frame:
    """Return an aggregate with one more frame: an evaluation or a finer aggregate.

    Keeps the last estimate of each window, or the last state if there was none, the lowest estimate, and the largest evidence
    of a change. Idempotent, and independent of intermediate aggregates.
    """
    lasting = np.concatenate([new.numbers[:POINT_ROWS], new.row(_LOWEST)[np.newaxis]])
    if stretch is None:
        return replace(new, numbers=lasting)
    names = _together(new.names, stretch.names)
    before, after = _placed(stretch.names, names), _placed(new.names, names)
    numbers = np.full((STRETCH_ROWS, len(names)), np.nan, dtype=np.float32)
    states, records = np.zeros(len(names), dtype=np.uint8), np.zeros(len(names), dtype=np.uint32)
    kept = before >= 0
    numbers[:, before[kept]] = stretch.numbers[:, kept]
    states[before[kept]], records[before[kept]] = stretch.states[kept], stretch.records[kept]
    lowest = numbers[_LOWEST].copy()
    speaks = ~np.isnan(new.row(_ACCURACY)) | np.isnan(numbers[_ACCURACY, after])
    numbers[:POINT_ROWS, after[speaks]] = new.numbers[:POINT_ROWS, speaks]
    states[after[speaks]], records[after[speaks]] = new.states[speaks], new.records[speaks]
    numbers[_LOWEST, after] = np.fmin(lowest[after], new.row(_LOWEST))
    evidence = None
    if stretch.evidence is not None or new.evidence is not None:
        evidence = np.full(len(names), np.nan, dtype=np.float32)
        if stretch.evidence is not None:
            evidence[before[kept]] = stretch.evidence[kept]
        if new.evidence is not None:
            evidence[after] = np.fmax(evidence[after], new.evidence)
    return Frame(new.at, new.through, names, states, numbers, records, new.reference or stretch.reference, evidence)


def _together(new: tuple[str, ...], old: tuple[str, ...]) -> tuple[str, ...]:
    """Return the union of the names, new ones first, up to the limit; shared if equal to one of the two."""
    if new is old:
        return new
    known = set(new)
    names = (*new, *(name for name in old if name not in known))[:MOST_SEGMENTS]
    return new if len(names) == len(new) else old if names == old else names


def _placed(names: tuple[str, ...], among: tuple[str, ...]) -> Integers:
    """Return the index of each name among others; -1 if missing."""
    if names is among:
        return np.arange(len(names))
    places = {name: place for place, name in enumerate(among)}
    return np.array([places.get(name, -1) for name in names], dtype=np.intp)


CAPACITY = MappingProxyType({Span.RECENT: 360, Span.DAYS: 288, Span.MONTH: 180})
"""The number of frames of each resolution."""
STEP_SECONDS = MappingProxyType({Span.DAYS: 900.0, Span.MONTH: 14_400.0})
"""The interval of an aggregate. The longer is built from the shorter, so it is a multiple of it."""
_WRITE_AFTER = CAPACITY[Span.RECENT] // 2
"""Evaluations after which an unfinished aggregate is stored; later ones are restored from recent frames."""

Place = tuple[Span, int]
"""A frame, by its sequence number."""


class ModelHistory:
    """The history of one model."""

    def __init__(self) -> None:
        self._rings: dict[Span, dict[int, Frame]] = {span: {} for span in Span}
        self._evaluations = 0
        self._written_through = 0

    def note(self, report: Report, at: float) -> list[Place]:
        """Add a report; return the frames to store."""
        last = self._newest(Span.RECENT)
        self._evaluations += 1
        frame = frame_of(report, at, self._evaluations, () if last is None else last.names)
        self._put(Span.RECENT, self._evaluations, frame)
        places: list[Place] = [(Span.RECENT, self._evaluations)]
        for span in STEP_SECONDS:
            before = next(reversed(self._rings[span]), None)
            number = self._fold(span, frame)
            if before is not None and number != before:
                places.append((span, before))
                if span is Span.DAYS:
                    self._written_through = self._evaluations - 1
            elif span is Span.DAYS and self._evaluations - self._written_through >= _WRITE_AFTER:
                places.append((span, number))
                self._written_through = self._evaluations
        return places

    def frame(self, place: Place) -> Frame | None:
        """Return a frame; None if it was dropped."""
        span, number = place
        return self._rings[span].get(number)

    def restore(self, frames: Iterable[tuple[Place, Frame]]) -> list[Place]:
        """Load stored frames, in any order.

        Aggregates that were not stored completely are built again from finer ones, and returned to be stored.
        """
        for (span, number), frame in sorted(frames, key=lambda one: one[0][1]):
            self._put(span, number, frame)
            self._evaluations = max(self._evaluations, frame.through)
        self._written_through = self._evaluations
        made: dict[Place, None] = {}
        for span, finer in ((Span.DAYS, Span.RECENT), (Span.MONTH, Span.DAYS)):
            newest = self._newest(span)
            for frame in list(self._rings[finer].values()):
                if newest is None or frame.through > newest.through:
                    made[span, self._fold(span, frame)] = None
        return list(made)

    def series(self, segment: str, span: Span) -> Series | None:
        """Return the series of a segment; None if it is unknown."""
        found = [(frame, place) for frame, place in self._places(segment, span) if place is not None]
        if not found and segment != name_of(ALL):
            return None

        def column(row: int) -> Floats:
            return np.array([frame.row(row)[place] for frame, place in found], dtype=np.float64)

        return Series(
            np.array([frame.at for frame, _ in found], dtype=np.float64),
            tuple(STATES[frame.states[place]] for frame, place in found),
            column(_ACCURACY),
            column(_LOWER),
            column(_UPPER),
            column(_LOWEST),
            column(_DISAGREEMENT),
            np.array([frame.records[place] for frame, place in found], dtype=np.int64),
            STEP_SECONDS.get(span),
            tuple(frame.reference for frame, _ in found),
            None
            if all(frame.evidence is None for frame, _ in found)
            else np.array(
                [np.nan if one.evidence is None else one.evidence[place] for one, place in found], np.float64
            ),
        )

    def _places(self, segment: str, span: Span) -> Iterable[tuple[Frame, int | None]]:
        """Yield each frame of a resolution with the index of the segment."""
        names: tuple[str, ...] = ()
        place: int | None = None
        for frame in rising(list(self._rings[span].values())):
            if frame.names is not names:
                names = frame.names
                place = names.index(segment) if segment in names else None
            yield frame, place

    def _fold(self, span: Span, frame: Frame) -> int:
        """Add a frame to its aggregate, a new one if needed; return its number."""
        number, last = next(reversed(self._rings[span].items()), (0, None))
        step = STEP_SECONDS[span]
        if last is None or floor(last.at / step) != floor(frame.at / step):
            number, last = number + 1, None
        self._put(span, number, folded(last, frame))
        return number

    def _put(self, span: Span, number: int, frame: Frame) -> None:
        ring = self._rings[span]
        ring[number] = frame
        while ring and next(iter(ring)) <= number - CAPACITY[span]:
            del ring[next(iter(ring))]

    def _newest(self, span: Span) -> Frame | None:
        return next(reversed(self._rings[span].values()), None)


def rising(frames: Sequence[Frame]) -> list[Frame]:
    """Return the longest ascending sequence of frames that ends with the newest; all of them if no clock was set back.

    Leaves out frames with times later than now after the clock was set back. Nothing is deleted, since either time may be
    the wrong one.
    """
    if all(one.at < other.at for one, other in pairwise(frames)):
        return list(frames)
    newest = frames[-1]
    ends: list[float] = []
    last_of: list[int] = []
    before: dict[int, int | None] = {}
    for place, frame in enumerate(frames[:-1]):
        if frame.at < newest.at:
            length = bisect_left(ends, frame.at)
            before[place] = last_of[length - 1] if length else None
            ends[length : length + 1], last_of[length : length + 1] = [frame.at], [place]
    found = [newest]
    place_before = last_of[-1] if last_of else None
    while place_before is not None:
        found.append(frames[place_before])
        place_before = before[place_before]
    return found[::-1]
