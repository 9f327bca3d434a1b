"""Intervals of estimates, from the errors by chance that the replays of the reference found."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from monitor.core.scores import Floats, Integers

Progress = Callable[[float], None]
"""Called with the completed share of the work."""

DEFAULT_LEVEL = 0.95
LEVELS = (0.5, 0.99)
"""The supported levels: above the upper one, too few errors decide."""

# Arrays, because numpy converts a number at every call.
_ZERO, _ONE = np.array(0.0), np.array(1.0)

FIELD_LEVELS: Mapping[float, float] = {0.8: 0.48, 0.9: 0.84}
"""The levels of field intervals, with their factors.

Measured over 173 pairs of a reference and a shifted target, in 50 families: the conformal quantiles of |error| / R, each
family weighing the same. Leaving one family out at a time, 81% and 91% of families were covered; of 60 pairs built
afterwards, 80% and 88%. docs/methods.md says how to read them.
"""
FIELD_CHANCE, FIELD_LEAST = 0.2, 0.01
"""What R adds to the visible shift: a share of the spread of one record, and a constant."""


_FIELD_SPREAD, _FIELD_SHIFT = np.array(FIELD_CHANCE), np.array(FIELD_LEAST)
_FIELD_FACTORS = np.array([[-factor, factor] for factor in FIELD_LEVELS.values()])[:, :, None]


def field_intervals(headline: Floats, accuracy: Floats | float, disagreement: Floats) -> Floats:
    """Return the field intervals of windows, from their headline estimate: shape (levels, ends, windows).

    They say how far estimates have been off in real shifts; no theory can. `accuracy` is what the estimate started from: that
    of the reference, or of the segment in it. NaN without an estimate.
    """
    reach = np.sqrt(headline - headline * headline)
    reach *= _FIELD_SPREAD
    reach += disagreement
    reach += np.abs(accuracy - headline)
    reach += _FIELD_SHIFT
    ends = _FIELD_FACTORS * reach
    ends += headline
    return np.asarray(np.minimum(_ONE, np.maximum(_ZERO, ends, out=ends), out=ends))


def by_level(field: Sequence[tuple[float, float]]) -> dict[str, tuple[float, float]] | None:
    """Return field intervals by their level in per cent, for JSON; None if there are none."""
    return {f"{100 * level:g}": ends for level, ends in zip(FIELD_LEVELS, field, strict=True)} if field else None


@dataclass(frozen=True, slots=True)
class ErrorQuantiles:
    """An estimator's errors in the replays, by window size, in units of sqrt(1/n + 1/m)."""

    bias: float
    low: Floats
    high: Floats


@dataclass(frozen=True)
class IntervalTables:
    """Error quantiles of every estimator form and of the combinations; the chance part of the disagreement."""

    level: float
    reference_records: int
    sizes: Integers
    errors: Mapping[str, ErrorQuantiles]
    disagreement: Floats

    def bounds(self, names: tuple[str, ...], accuracy: Floats, records: Integers) -> tuple[Floats, Floats, Floats]:
        """Return the lower and upper bounds of estimates, shape (names, windows), and the disagreement by chance.

        The last is that of each window at the level. NaN without an estimate, or without records.
        """
        if len(self.sizes) == 0:
            nothing, no_records = np.isnan(accuracy), records == 0
            return np.where(nothing, np.nan, 0.0), np.where(nothing, np.nan, 1.0), np.where(no_records, np.nan, 1.0)
        bias, below, above, chance = self.around(names, records)
        # The centre is clipped, the errors are not. NaN stays NaN.
        centre = np.minimum(np.maximum(accuracy - bias, _ZERO), _ONE)
        return np.maximum(centre - below, _ZERO), np.minimum(centre + above, _ONE), chance.copy()

    def around(self, names: tuple[str, ...], records: Integers) -> tuple[Floats, ...]:
        """Return biases, how far intervals reach below and above the centre, and the disagreement by chance.

        They depend only on the numbers of records, which do not change in full windows: the latest are kept.
        """
        known, found = self._latest.get(names, (None, ()))
        if known != records.tobytes():
            bias, errors, tails = self._tables(names)
            reach = self._reach(errors, tails, np.maximum(records, 1))
            chance = np.fmin(1.0, np.fmax(0.0, reach[-1]))
            chance[records == 0] = np.nan
            # An unknown reach ends at 0 or 1.
            reach[np.isnan(reach)] = np.inf
            found = bias, reach[: len(names)], reach[len(names) : -1], chance
            self._latest[names] = records.tobytes(), found
        return found

    @cached_property
    def _latest(self) -> dict[tuple[str, ...], tuple[bytes, tuple[Floats, ...]]]:
        """The latest numbers of records by names, and what was found for them."""
        return {}

    def _reach(self, errors: Floats, tails: Floats, records: Integers) -> Floats:
        """Return quantiles of the errors, shape (rows, windows), widened by errors that chance may have hidden."""
        after = np.searchsorted(self.sizes, records, side="right")
        before, after = np.maximum(after - 1, 0), np.minimum(after, len(self.sizes) - 1)
        share = _log(records / self.sizes[before]) / self._steps[before]
        low, high = errors[:, before], errors[:, after]
        # Unlike np.interp, keeps infinities: their difference is not used where they are equal.
        with np.errstate(invalid="ignore"):
            seen = low + np.where(low == high, 0.0, (high - low) * share)
        seen *= np.sqrt(1.0 / records + 1.0 / self.reference_records)
        unseen = unseen_share(tails, records, self.reference_records)
        finite = np.isfinite(seen)
        known = np.where(finite, seen, 0.0)
        return np.where(finite, widened(known, unseen), seen)

    def _tables(self, names: tuple[str, ...]) -> tuple[Floats, Floats, Floats]:
        """Return biases; errors below and above the centre and of the disagreement; and the logarithm of their tails."""
        found = self._stacked.get(names)
        if found is None:
            chosen = [self.errors[name] for name in names]
            errors = np.array([*(one.high for one in chosen), *(-one.low for one in chosen), self.disagreement])
            both, one_sided = math.log((1.0 - self.level) / 2.0), math.log(1.0 - self.level)
            tails = np.array([both] * (2 * len(names)) + [one_sided])[:, None]
            found = self._stacked[names] = np.array([one.bias for one in chosen]).reshape(-1, 1), errors, tails
        return found

    @cached_property
    def _stacked(self) -> dict[tuple[str, ...], tuple[Floats, Floats, Floats]]:
        """The tables by names: there are few choices of variants."""
        return {}

    @cached_property
    def _steps(self) -> Floats:
        """The logarithms of the ratios between sizes; 1 for the last, which has no next."""
        return np.append(_log(self.sizes[1:] / self.sizes[:-1]), 1.0)


def widened(known: Floats, unseen: Floats) -> Floats:
    """Return errors with an independent one added outward."""
    return np.asarray(known + np.sqrt(known * known + unseen * unseen) - np.abs(known))


def unseen_share(tails: Floats | float, records: Floats | Integers, reference_records: Floats | int) -> Floats:
    """Return the share of errors in a window that chance may have kept out of the reference; `tails` are logarithms.

    A reference without errors replays without errors, and would give intervals of width 0. So assume one more record in
    it, an error: the errors in a window then exceed k with a probability of at most (n / (n + m))^(k + 1). The share is
    that of the smallest k for which this is within the tail.
    """
    odds = _log(records / (records + reference_records))
    return np.asarray(np.maximum(0.0, np.ceil(tails / odds) - 1.0) / records)


def outward_quantiles(errors: Floats, share: float, fewest: int) -> Floats:
    """Return the quantile of each row, rounded outward; NaN with fewer than `fewest` values."""
    known = np.count_nonzero(~np.isnan(errors), axis=1)
    place = np.maximum(known - 1, 0) * share
    outward = (np.floor(place) if share < 0.5 else np.ceil(place)).astype(np.intp)
    # NaN is sorted last.
    found = np.take_along_axis(np.sort(errors, axis=1), outward[:, None], axis=1)[:, 0]
    return np.where(known >= fewest, found, np.nan)


def _log(values: Floats) -> Floats:
    """Return logarithms that are the same alone and among others, unlike those of numpy."""
    return np.reshape([math.log(value) for value in values.ravel().tolist()], values.shape)
