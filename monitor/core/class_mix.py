"""The class mix of a window: the mix of the reference's classes whose mean probabilities come closest to those of the window.

BBSE (Lipton, Wang, Smola 2018) with temperature-scaled probabilities. It is right if nothing but the mix changed.
"""

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Floats

_ROUNDING = 1e-9
_MOST_KEPT = 64


class MixSolver:
    """Finds the mixes of known profiles (columns of a square matrix) that are nearest to mean vectors, by least squares.

    The shares are not negative and add up to 1. An active-set method: the inverses for the latest sets of free classes are kept.
    A window's mix is the same alone and among others, to the bit.
    """

    def __init__(self, profiles: Floats, known: NDArray[np.bool_]) -> None:
        self._known, self._matrix = known, profiles[:, known]
        self._gram = self._matrix.T @ self._matrix
        self._inverses: dict[bytes, Floats] = {}

    def solve(self, means: Floats) -> Floats:
        """Return the mix for each column of `means`, shape (classes, windows); 0 for classes without a profile."""
        mix = np.zeros(means.shape)
        if self._known.any():
            targets = _product(self._matrix.T, means)
            inverse = self._inverse(np.ones(len(self._gram), dtype=np.bool_))
            shares = _product(inverse[:, :-1], targets) + inverse[:, -1:]
            for column in np.flatnonzero((shares < 0.0).any(axis=0)).tolist():
                shares[:, column] = self._solve_one(targets[:, column])
            mix[self._known] = shares
        return mix

    def _inverse(self, free: NDArray[np.bool_]) -> Floats:
        """Return the matrix that gives the best shares of free classes which add up to 1, of whatever sign."""
        key = free.tobytes()
        if (inverse := self._inverses.get(key)) is None:
            size = int(np.count_nonzero(free))
            bordered = np.ones((size + 1, size + 1))
            bordered[:size, :size], bordered[size, size] = self._gram[np.ix_(free, free)], 0.0
            if len(self._inverses) >= _MOST_KEPT:
                self._inverses.clear()
            inverse = self._inverses[key] = np.asarray(np.linalg.pinv(bordered)[:-1], dtype=np.float64)
        return inverse

    def _solve_one(self, target: Floats) -> Floats:
        size = len(self._gram)
        free, shares = np.ones(size, dtype=np.bool_), np.full(size, 1.0 / size)
        for _ in range(10 * size):
            inverse, wanted = self._inverse(free), np.zeros(size)
            wanted[free] = inverse[:, :-1] @ target[free] + inverse[:, -1]
            if np.all(wanted[free] >= -_ROUNDING):
                shares = np.maximum(wanted, 0.0)
                slope = target - self._gram @ shares
                gain = np.where(free, -np.inf, slope - slope[free].max())
                best = int(np.argmax(gain))
                if gain[best] <= _ROUNDING:
                    break
                free[best] = True
                continue
            # As far as the shares stay positive; the first that does not is fixed at 0.
            falling = free & (wanted < shares)
            step = np.full(size, np.inf)
            step[falling] = shares[falling] / (shares[falling] - wanted[falling])
            first = int(np.argmin(step))
            shares = np.maximum(shares + min(1.0, float(step[first])) * (wanted - shares), 0.0)
            shares[first], free[first] = 0.0, False
        return np.asarray(shares / shares.sum())


def _product(matrix: Floats, columns: Floats) -> Floats:
    """Return the matrix product, where a column's result does not depend on the others, unlike that of numpy."""
    found = np.zeros((len(matrix), columns.shape[1]))
    for coefficients, row in zip(matrix.T, columns, strict=True):
        found += coefficients[:, None] * row
    return found
