"""The class mix of a window: the mix of the reference's classes whose mean probabilities come closest to those of the window.

BBSE (Lipton, Wang, Smola 2018) with temperature-scaled probabilities. It is right if nothing but the mix changed.
"""

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Floats

_ROUNDING = 1e-9


def mix_of(profiles: Floats, known: NDArray[np.bool_], means: Floats) -> Floats:
    """Return the mix of known profiles (columns) nearest to each mean vector, by least squares; shape (classes, windows)."""
    mix = np.zeros(means.shape)
    if known.any():
        mix[known] = _SimplexSolver(profiles[:, known]).solve(means)
    return mix


class _SimplexSolver:
    """Least squares over shares that are not negative and add up to 1: an active-set method, with the solutions of free sets kept."""

    def __init__(self, matrix: Floats) -> None:
        self._gram, self._matrix = matrix.T @ matrix, matrix
        self._inverses: dict[bytes, Floats] = {}

    def solve(self, vectors: Floats) -> Floats:
        """Return the shares for each column of `vectors`."""
        targets = self._matrix.T @ vectors
        free = np.ones(len(self._gram), dtype=np.bool_)
        shares = self._equal(free, targets)
        for column in np.flatnonzero((shares < 0.0).any(axis=0)).tolist():
            shares[:, column] = self._solve_one(targets[:, column])
        return shares

    def _equal(self, free: NDArray[np.bool_], target: Floats) -> Floats:
        """Return the best shares that add up to 1, of the free classes only, without regard to sign; and what ties them."""
        key = free.tobytes()
        if key not in self._inverses:
            size = int(np.count_nonzero(free))
            bordered = np.ones((size + 1, size + 1))
            bordered[:size, :size], bordered[size, size] = self._gram[np.ix_(free, free)], 0.0
            self._inverses[key] = np.asarray(np.linalg.pinv(bordered), dtype=np.float64)
        inverse = self._inverses[key]
        found = np.zeros(target.shape)
        found[free] = inverse[:-1, :-1] @ target[free] + inverse[:-1, -1:].reshape(-1, *[1] * (target.ndim - 1))
        return found

    def _solve_one(self, target: Floats) -> Floats:
        size = len(self._gram)
        free, shares = np.ones(size, dtype=np.bool_), np.full(size, 1.0 / size)
        for _ in range(10 * size):
            wanted = self._equal(free, target)
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
