"""Running totals of the records in a window, measured when somebody asks, and not before.

Between two evaluations a busy window may be filled many times over. Records that came and went unasked are never
measured at all; those that were measured are taken out again exactly. Because totals are integers, when and in which
order that happens makes no difference.
"""

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Singles
from monitor.core.threshold_curve import Totals
from monitor.core.totals import Gauge

Slots = NDArray[np.int32]

_EMPTY, _WAITING, _MEASURED = 0, 1, 2

# What may be owed, so that an answer never waits for more than some tens of milliseconds.
_MOST_WAITING = 1 << 16
_MOST_LEFT_NUMBERS = 1 << 20
# Vectors are gathered in pieces, so that a burst does not double the window while it is measured.
_GATHERED = 1 << 14


class Measuring:
    """The totals of the records in some slots. Told of slots before they are emptied and after they are filled."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._totals = gauge.empty()
        self._states = np.zeros(0, dtype=np.uint8)
        self._waiting = 0
        self._left: list[Singles] = []
        self._left_records = 0

    def grow(self, slots: int) -> None:
        """Make room for more slots."""
        grown = np.zeros(slots, dtype=np.uint8)
        grown[: len(self._states)] = self._states
        self._states = grown

    def filled(self, slots: Slots, vectors: Singles) -> None:
        """Take note of slots that were filled; `vectors` are those of all slots."""
        self._states[slots] = _WAITING
        self._waiting += len(slots)
        if self._waiting > _MOST_WAITING:
            self._settle(vectors)

    def emptied(self, slots: Slots, vectors: Singles) -> None:
        """Take note of slots that are about to be emptied."""
        measured = slots[self._states[slots] == _MEASURED]
        if (len(measured) + self._left_records) * vectors.shape[1] > _MOST_LEFT_NUMBERS:
            change = self._gauge.empty()
            for start in range(0, len(measured), _GATHERED):
                self._gauge.measure(change, vectors[measured[start : start + _GATHERED]], -1)
            self._totals += change
        elif len(measured):
            self._left.append(vectors[measured])
            self._left_records += len(measured)
        self._waiting -= len(slots) - len(measured)
        self._states[slots] = _EMPTY

    def known(self, slots: Slots, totals: Totals) -> None:
        """Take note of slots that were filled with records whose totals are known; all others must be empty."""
        self._totals = totals.copy()
        self._states[slots] = _MEASURED

    def totals(self, vectors: Singles) -> Totals:
        """Return the totals of all filled slots."""
        self._settle(vectors)
        return self._totals.copy()

    def _settle(self, vectors: Singles) -> None:
        if not self._waiting and not self._left:
            return
        change = self._gauge.empty()
        waiting = np.flatnonzero(self._states == _WAITING)
        for start in range(0, len(waiting), _GATHERED):
            self._gauge.measure(change, vectors[waiting[start : start + _GATHERED]], 1)
        for left in self._left:
            self._gauge.measure(change, left, -1)
        # Nothing is noted before everything is measured: should that fail, it can be asked again.
        self._totals += change
        self._states[waiting] = _MEASURED
        self._waiting = 0
        self._left, self._left_records = [], 0
