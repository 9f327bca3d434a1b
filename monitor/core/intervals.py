"""Intervals of estimates, from the errors by chance that the replays of the reference found."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from monitor.core.estimate import Interval, clipped
from monitor.core.scores import Floats, Integers

Progress = Callable[[float], None]
"""Called with the completed share of the work."""

DEFAULT_LEVEL = 0.95
LEVELS = (0.5, 0.99)
"""The supported levels: above the upper one, too few errors decide."""

_MOST_REACHES = 1024


@dataclass(frozen=True, slots=True)
class ErrorQuantiles:
    """An estimator's errors in the replays, by window size, in units of sqrt(1/n + 1/m)."""

    bias: float
    low: Floats
    high: Floats


@dataclass(frozen=True)
class IntervalTables:
    """Error quantiles of every estimator form and of the consensus; the chance part of the disagreement."""

    level: float
    reference_records: int
    sizes: Integers
    errors: Mapping[str, ErrorQuantiles]
    disagreement: Floats

    def interval(self, name: str, accuracy: float, records: int) -> Interval:
        """Return the interval for an estimate from a window of this many records."""
        if len(self.sizes) == 0:
            return Interval(0.0, 1.0)
        bias, below, above = self._reach(records)[name]
        # The centre is clipped, the errors are not.
        centre = clipped(accuracy - bias)
        lower, upper = centre - below, centre + above
        return Interval(lower if lower > 0.0 else 0.0, upper if upper < 1.0 else 1.0)  # noqa: FURB136  quicker

    def chance_disagreement(self, records: int) -> float:
        """Return the disagreement explained by chance at the level."""
        if len(self.sizes) == 0:
            return 1.0
        seen = self._at(records, self.disagreement[None]) * self._unit(records)
        return clipped(float(_widened(seen, self._unseen(records, 1.0 - self.level))[0]))

    def _reach(self, records: int) -> Mapping[str, tuple[float, float, float]]:
        """Return the bias of each estimator, and the reach of its interval below and above the centre."""
        # Cached: a full window always has the same number of records.
        found = self._reaches.get(records)
        if found is None:
            unit, unseen = self._unit(records), self._unseen(records, (1.0 - self.level) / 2.0)
            below = _widened(self._at(records, self._high) * unit, unseen).tolist()
            above = _widened(-self._at(records, self._low) * unit, unseen).tolist()
            biases = [error.bias for error in self.errors.values()]
            found = dict(zip(self.errors, zip(biases, below, above, strict=True), strict=True))
            if len(self._reaches) >= _MOST_REACHES:
                self._reaches.clear()
            self._reaches[records] = found
        return found

    @cached_property
    def _reaches(self) -> dict[int, Mapping[str, tuple[float, float, float]]]:
        return {}

    @cached_property
    def _low(self) -> Floats:
        return np.array([error.low for error in self.errors.values()])

    @cached_property
    def _high(self) -> Floats:
        return np.array([error.high for error in self.errors.values()])

    def _unit(self, records: int) -> float:
        return math.sqrt(1.0 / records + 1.0 / self.reference_records)

    def _at(self, records: int, quantiles: Floats) -> Floats:
        """Interpolate rows between window sizes. Unlike np.interp, keeps infinities."""
        after = int(np.searchsorted(self.sizes, records, side="right"))
        before, after = max(0, after - 1), min(after, len(self.sizes) - 1)
        low, high = quantiles[:, before], quantiles[:, after]
        if before == after:
            return low
        share = math.log(records / self.sizes[before]) / math.log(self.sizes[after] / self.sizes[before])
        same = low == high
        return low + np.where(same, 0.0, np.subtract(high, low, where=~same, out=np.zeros_like(low)) * share)

    def _unseen(self, records: int, tail: float) -> float:
        """Return the share of errors in a window that chance may have kept out of the reference.

        A reference without errors replays without errors, and would give intervals of width 0. So assume one more record in
        it, an error: the errors in a window then exceed k with a probability of at most (n / (n + m))^(k + 1). The share is
        that of the smallest k for which this is within the tail.
        """
        odds = math.log(records / (records + self.reference_records))
        return max(0, math.ceil(math.log(tail) / odds) - 1) / records


def _widened(errors: Floats, unseen: float) -> Floats:
    """Add an independent error to those of the replays, outward."""
    finite = np.isfinite(errors)
    known = np.where(finite, errors, 0.0)
    return np.where(finite, known + np.sqrt(known * known + unseen * unseen) - np.abs(known), errors)
