"""Exact totals of conformal sets for every threshold at once, updated as records are added and removed.

The set of a record at a threshold is its top k classes, so its mean score, size and emptiness are step functions of the
threshold, with steps at the probabilities. The possible thresholds are the reference's calibration scores. A record adds
each step to the cell between two calibration scores that contains the probability; the totals at a threshold are the sum of
the cells above it. Everything is an integer, so subtraction is exact.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Floats, Scores, Singles

FIXED_POINT = 1 << 40
"""1.0 in fixed point; the rounding error is below 5e-13."""

MOST_RECORDS = (1 << 23) - 1
"""Totals of more records could exceed 64 bits."""

ROWS = 4
"""Totals per cell: steps of the mean score, set sizes, records by top score, confidences by top score."""

Totals = NDArray[np.int64]
Cells = NDArray[np.intp]

# Numbers with the same upper bits share a slot. A finer table is faster until it exceeds the cache.
_SHIFT = 10
_BLOCK_ELEMENTS = 1 << 20
# With more calibration scores in one slot, a binary search is faster.
_MOST_STEPS = 8


def fixed(values: Floats) -> Totals:
    """Return numbers in fixed point."""
    return np.rint(values * FIXED_POINT).astype(np.int64)


class ThresholdGrid:
    """The sorted thresholds of a reference, and a table that finds the cell of a probability.

    The cell of a probability is the number of thresholds at or below it. The table is indexed by the upper bits of the
    distance from 0 or 1, whichever is nearer, because scores are dense at both ends.
    """

    def __init__(self, thresholds: Singles) -> None:
        self.thresholds = np.unique(thresholds)
        self.place = {float(threshold): index for index, threshold in enumerate(self.thresholds)}
        """The index of each threshold."""
        self._middle = int(np.float32(0.5).view(np.int32)) >> _SHIFT
        held = np.bincount(self._slot(self.thresholds), minlength=2 * self._middle + 2)
        self._first = np.concatenate([[0], np.cumsum(held)[:-1]]).astype(np.int32)
        self._steps = int(held.max())
        # A sentinel above every probability ends the stepping.
        self._bounded = np.append(self.thresholds, np.float32(2.0))

    @property
    def cells(self) -> int:
        """The number of cells: one more than thresholds."""
        return len(self.thresholds) + 1

    @property
    def nbytes(self) -> int:
        """The memory of the table."""
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
        # Turns -0.0 into 0.0.
        probabilities = probabilities + np.float32(0.0)
        low = probabilities < np.float32(0.5)
        # Exact in float32 for numbers from one half to one.
        near = np.where(low, probabilities, np.float32(1.0) - probabilities).view(np.int32) >> _SHIFT
        return np.where(low, near, 2 * self._middle + 1 - near)


def add_sets(curve: Totals, grid: ThresholdGrid, scores: Scores, sign: int) -> None:
    """Add (sign 1) or subtract (sign -1) the steps of records in the cells of a curve, shape (4, cells)."""
    falling = -np.sort(-scores.probabilities, axis=0)
    tops = np.cumsum(falling, axis=0)
    tops /= np.arange(1, len(falling) + 1)[:, None]
    # Steps are differences of rounded means, so they add up exactly.
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
    """Return the mean score of the records at each threshold, with 0 for empty sets."""
    grid = ThresholdGrid(ranked)
    curve = np.zeros((ROWS, grid.cells), dtype=np.int64)
    classes, records = scores.probabilities.shape
    # In blocks, since sorting copies.
    rows = max(1, _BLOCK_ELEMENTS // classes)
    for start in range(0, records, rows):
        add_sets(curve, grid, Scores(scores.probabilities[:, start : start + rows]), 1)
    above = np.cumsum(curve[0, ::-1])[::-1]
    place = np.searchsorted(grid.thresholds, ranked)
    return np.asarray(above[place + 1] / (FIXED_POINT * records), dtype=np.float64)
