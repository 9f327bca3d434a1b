"""All windows of a model at one evaluation, or over a stretch of time, as columns: what history is made of.

One object an evaluation and not one a point: two thousand segments over all spans stay at some forty megabytes.
"""

from dataclasses import dataclass
from math import nan
from sys import intern

import numpy as np
from numpy.typing import NDArray

from monitor.core.estimate import Estimate
from monitor.core.estimators.consensus import CONSENSUS
from monitor.core.report import ModelReport, SegmentReport
from monitor.core.scores import Integers, Singles
from monitor.core.window_state import WindowState

STATES = tuple(WindowState)
MOST_SEGMENTS = 2_000
"""Of a model with more, the first ones have a history: whatever is configured, it must fit."""
_FINGERPRINT_DIGITS = 12
_MOST_RECORDS = np.iinfo(np.uint32).max
_ACCURACY, _LOWER, _UPPER, _DISAGREEMENT, _LOWEST = range(5)
POINT_ROWS, STRETCH_ROWS = _LOWEST, _LOWEST + 1


@dataclass(frozen=True, slots=True)
class Frame:
    """One point of every window of a model. All columns are as long as `names`."""

    at: float
    """When it was evaluated; of a stretch, when it last was."""
    through: int
    """The number of that evaluation."""
    names: tuple[str, ...]
    """Of the segments, as people call them; frames of the same segments share it."""
    states: NDArray[np.uint8]
    """Their places in STATES."""
    numbers: Singles
    """A row each: accuracy, lower, upper, disagreement; of a stretch also the lowest accuracy. NaN: nothing to say."""
    records: NDArray[np.uint32]
    reference: str = ""
    """The first digits of the fingerprint of the reference that judged; of a stretch, of the last. Empty: not known, or none."""

    @property
    def accuracy(self) -> Singles:
        """Of the consensus."""
        return self._row(_ACCURACY)

    @property
    def lower(self) -> Singles:
        """The lower end of its interval."""
        return self._row(_LOWER)

    @property
    def upper(self) -> Singles:
        """The upper end of its interval."""
        return self._row(_UPPER)

    @property
    def disagreement(self) -> Singles:
        """Between the voices of the consensus."""
        return self._row(_DISAGREEMENT)

    @property
    def lowest(self) -> Singles:
        """The lowest accuracy in the stretch; of one evaluation, its own."""
        return self._row(_LOWEST if len(self.numbers) == STRETCH_ROWS else _ACCURACY)

    def _row(self, row: int) -> Singles:
        found: Singles = self.numbers[row]
        return found


def frame_of(report: ModelReport, at: float, through: int, names: tuple[str, ...] = ()) -> Frame:
    """Return what history keeps of a report; `names` are those of the frame before, to be shared where they are the same."""
    segments = report.segments[:MOST_SEGMENTS]
    found = tuple(intern(one.name) for one in segments)
    return Frame(
        at,
        through,
        names if found == names else found,
        np.array([STATES.index(one.state) for one in segments], dtype=np.uint8),
        np.array([_numbers(one) for one in segments], dtype=np.float32).reshape(-1, POINT_ROWS).T.copy(),
        np.array([min(one.records, _MOST_RECORDS) for one in segments], dtype=np.uint32),
        "" if report.reference is None else intern(report.reference.fingerprint[:_FINGERPRINT_DIGITS]),
    )


def _numbers(report: SegmentReport) -> tuple[float, float, float, float]:
    result = report.results.get(CONSENSUS)
    if not report.valid or not isinstance(result, Estimate):
        return nan, nan, nan, nan
    lower, upper = (nan, nan) if result.interval is None else result.interval
    return result.accuracy, lower, upper, nan if report.disagreement is None else report.disagreement


def folded(stretch: Frame | None, new: Frame) -> Frame:
    """Return a stretch of time with one more frame in it, an evaluation or a shorter stretch.

    Of each window the last answer stands, or, where there was none, the last state; the lowest answer beside it. What is
    folded in twice changes nothing, and it does not matter whether shorter stretches are put together or all they hold.
    """
    lasting = np.concatenate([new.numbers[:POINT_ROWS], new.lowest[np.newaxis]])
    if stretch is None:
        return Frame(new.at, new.through, new.names, new.states, lasting, new.records, new.reference)
    names = _together(new.names, stretch.names)
    before, after = _placed(stretch.names, names), _placed(new.names, names)
    numbers = np.full((STRETCH_ROWS, len(names)), np.nan, dtype=np.float32)
    states, records = np.zeros(len(names), dtype=np.uint8), np.zeros(len(names), dtype=np.uint32)
    kept = before >= 0
    numbers[:, before[kept]] = stretch.numbers[:, kept]
    states[before[kept]], records[before[kept]] = stretch.states[kept], stretch.records[kept]
    lowest = numbers[_LOWEST].copy()
    speaks = ~np.isnan(new.accuracy) | np.isnan(numbers[_ACCURACY, after])
    numbers[:POINT_ROWS, after[speaks]] = new.numbers[:POINT_ROWS, speaks]
    states[after[speaks]], records[after[speaks]] = new.states[speaks], new.records[speaks]
    numbers[_LOWEST, after] = np.fmin(lowest[after], new.lowest)
    return Frame(new.at, new.through, names, states, numbers, records, new.reference or stretch.reference)


def _together(new: tuple[str, ...], old: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both, the new ones first and as many as fit; one of the two where that is the same."""
    if new is old:
        return new
    known = set(new)
    names = (*new, *(name for name in old if name not in known))[:MOST_SEGMENTS]
    return new if len(names) == len(new) else old if names == old else names


def _placed(names: tuple[str, ...], among: tuple[str, ...]) -> Integers:
    """Return where each of the names stands among others; -1 where it does not."""
    if names is among:
        return np.arange(len(names))
    places = {name: place for place, name in enumerate(among)}
    return np.array([places.get(name, -1) for name in names], dtype=np.intp)
