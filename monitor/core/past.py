"""The frames of one model, in rings: each evaluation, and stretches of time that say less and reach further back."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import floor
from types import MappingProxyType

import numpy as np

from monitor.core.frame import STATES, Frame, folded, frame_of
from monitor.core.history import Series, Span
from monitor.core.report import ModelReport
from monitor.core.scores import Floats, Singles
from monitor.core.segments import ALL, name_of

CAPACITY = MappingProxyType({Span.RECENT: 360, Span.DAYS: 288, Span.MONTH: 180})
"""How many frames of each span are kept."""
STEP_SECONDS = MappingProxyType({Span.DAYS: 900.0, Span.MONTH: 14_400.0})
"""How long a stretch is. The longer is made from the shorter, so it is a multiple of it."""
_WRITE_AFTER = CAPACITY[Span.RECENT] // 2
"""Evaluations after which a stretch is written though it goes on: what follows is made again from recent frames."""

Place = tuple[Span, int]
"""A frame, by its running number."""


class Past:
    """One model over time."""

    def __init__(self) -> None:
        self._rings: dict[Span, dict[int, Frame]] = {span: {} for span in Span}
        self._evaluations = 0
        self._written_through = 0

    def note(self, report: ModelReport, at: float) -> list[Place]:
        """Take in a report as of `at`; return which frames are to be written."""
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
        """Return a frame, if it is still kept."""
        span, number = place
        return self._rings[span].get(number)

    def restore(self, frames: Iterable[tuple[Place, Frame]]) -> list[Place]:
        """Take over frames that were written, in any order.

        Stretches that had not been written, or not to their end, are made again from shorter ones, and returned: they are
        to be written.
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
        """Return a window over time; None when it is not known."""
        found = [(frame, place) for frame, place in self._places(segment, span) if place is not None]
        if not found and segment != name_of(ALL):
            return None

        def column(numbers: Callable[[Frame], Singles]) -> Floats:
            return np.array([numbers(frame)[place] for frame, place in found], dtype=np.float64)

        return Series(
            np.array([frame.at for frame, _ in found], dtype=np.float64),
            tuple(STATES[frame.states[place]] for frame, place in found),
            column(lambda frame: frame.accuracy),
            column(lambda frame: frame.lower),
            column(lambda frame: frame.upper),
            column(lambda frame: frame.lowest),
            column(lambda frame: frame.disagreement),
            np.array([frame.records[place] for frame, place in found], dtype=np.int64),
            STEP_SECONDS.get(span),
            tuple(frame.reference for frame, _ in found),
        )

    def _places(self, segment: str, span: Span) -> Iterable[tuple[Frame, int | None]]:
        """Yield each frame of a span with where it has the segment."""
        names: tuple[str, ...] = ()
        place: int | None = None
        for frame in rising(list(self._rings[span].values())):
            if frame.names is not names:
                names = frame.names
                place = names.index(segment) if segment in names else None
            yield frame, place

    def _fold(self, span: Span, frame: Frame) -> int:
        """Let a frame into the stretch that it belongs to, a new one if it is not the last; returns its number."""
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
    """Return the most frames whose times rise and end with the newest, all of them where no clock was set back.

    After a clock that was ahead was put right, what it had dated later than now is left out; after one that was behind
    for a while, the little that it dated. Nothing is deleted for it: who knows which of the two was the wrong one.
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
