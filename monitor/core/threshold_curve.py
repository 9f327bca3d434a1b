"""Exact totals of conformal sets for every threshold at once, kept while records come and go.

With a record's probabilities sorted, its set at any threshold is its top k, so all that is wanted of the set (mean score,
size, whether it is empty) is a step function of the threshold with steps where it passes a probability. The thresholds
are known beforehand: they are the reference's calibration scores. So a record adds, for each of its probabilities, the
step it makes to the cell between two calibration scores into which the probability falls, and the totals at any
threshold are the sum of the cells above it. Everything is an integer: what is added can be taken away again exactly.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Floats, Scores, Singles

FIXED_POINT = 1 << 40
"""One, in fixed point. Rounding to it is off by less than 5e-13."""

MOST_RECORDS = (1 << 23) - 1
"""Totals of more records, of one window or of several merged, could exceed 64 bits."""

ROWS = 4
"""Totals kept for each cell: steps of the mean score, set sizes, records by their top score, confidences likewise."""

Totals = NDArray[np.int64]
Cells = NDArray[np.intp]

# Numbers that share their upper bits share a slot of the table. Finer is faster until the table leaves the cache.
_SHIFT = 10
_BLOCK_ELEMENTS = 1 << 20
# Stepping through more calibration scores than this in one slot is slower than a binary search over all of them.
_MOST_STEPS = 8


def fixed(values: Floats) -> Totals:
    """Turn numbers into fixed point."""
    return np.rint(values * FIXED_POINT).astype(np.int64)


class ThresholdGrid:
    """The thresholds that a reference allows, rising, and a table that finds a probability's cell among them.

    The cell of a probability is the number of thresholds at or below it. The table is indexed by the upper bits of
    the probability's distance from 0 or from 1, whichever is nearer, because scores crowd at both ends.
    """

    def __init__(self, thresholds: Singles) -> None:
        self.thresholds = np.unique(thresholds)
        self.place = {float(threshold): index for index, threshold in enumerate(self.thresholds)}
        """Where each threshold stands; looking it up is quicker than searching for it."""
        self._middle = int(np.float32(0.5).view(np.int32)) >> _SHIFT
        held = np.bincount(self._slot(self.thresholds), minlength=2 * self._middle + 2)
        self._first = np.concatenate([[0], np.cumsum(held)[:-1]]).astype(np.int32)
        self._steps = int(held.max())
        # No probability reaches the sentinel, so stepping past the last threshold ends by itself.
        self._bounded = np.append(self.thresholds, np.float32(2.0))

    @property
    def cells(self) -> int:
        """Number of cells: one more than there are thresholds."""
        return len(self.thresholds) + 1

    @property
    def nbytes(self) -> int:
        """Memory of the table, which all windows of a reference share."""
        looked_up = sys.getsizeof(self.place) + sum(sys.getsizeof(one) for pair in self.place.items() for one in pair)
        return self.thresholds.nbytes + self._bounded.nbytes + self._first.nbytes + looked_up

    def cell(self, probabilities: Singles) -> Cells:
        """Return the number of thresholds at or below each probability."""
        if self._steps > _MOST_STEPS:
            return np.searchsorted(self.thresholds, probabilities, side="right")
        cell = self._first[self._slot(probabilities)].astype(np.intp)
        for _ in range(self._steps):
            cell += self._bounded[cell] <= probabilities
        return cell

    def _slot(self, probabilities: Singles) -> NDArray[np.int32]:
        # Minus zero is no probability's bits, but some producers write it: adding zero makes it plain.
        probabilities = probabilities + np.float32(0.0)
        low = probabilities < np.float32(0.5)
        # Exact: for a number from one half to one, its distance from one is a float32, too.
        near = np.where(low, probabilities, np.float32(1.0) - probabilities).view(np.int32) >> _SHIFT
        return np.where(low, near, 2 * self._middle + 1 - near)


def add_sets(curve: Totals, grid: ThresholdGrid, scores: Scores, sign: int) -> None:
    """Add (sign 1) or take away (sign -1) the records' steps to the cells of a curve, shape (4, cells)."""
    falling = -np.sort(-scores.probabilities, axis=0)
    tops = np.cumsum(falling, axis=0)
    tops /= np.arange(1, len(falling) + 1)[:, None]
    # The record's mean score at k classes is rounded once; steps are differences of rounded numbers, so they add up.
    steps = np.diff(fixed(tops), axis=0, prepend=0) * sign
    cell = grid.cell(falling.astype(np.float32))
    np.add.at(curve[0], cell, steps)
    np.add.at(curve[1], cell, sign)
    np.add.at(curve[2], cell[0], sign)
    np.add.at(curve[3], cell[0], fixed(scores.confidence) * sign)


def totals_at(curve: Totals, grid: ThresholdGrid, threshold: np.float32) -> Totals:
    """Return the four totals of the sets at a threshold of the grid."""
    return np.asarray(np.add.reduce(curve[:, grid.place[float(threshold)] + 1 :], axis=1))


def mean_scores_at(ranked: Singles, scores: Scores) -> Floats:
    """Return the records' mean score, empty sets counting 0, at each of the thresholds."""
    grid = ThresholdGrid(ranked)
    curve = np.zeros((ROWS, grid.cells), dtype=np.int64)
    classes, records = scores.probabilities.shape
    # Sorting needs copies of what it sorts, so a reference of a thousand classes is taken piece by piece.
    rows = max(1, _BLOCK_ELEMENTS // classes)
    for start in range(0, records, rows):
        add_sets(curve, grid, Scores(scores.probabilities[:, start : start + rows]), 1)
    above = np.cumsum(curve[0, ::-1])[::-1]
    place = np.searchsorted(grid.thresholds, ranked)
    return np.asarray(above[place + 1] / (FIXED_POINT * records), dtype=np.float64)
