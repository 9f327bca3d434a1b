"""The result of an estimator: an estimate, or a reason for none; the state of a window; the exact interval of a ratio.

Named tuples, which are created several times faster than dataclasses.
"""

from enum import StrEnum
from functools import lru_cache
from math import lgamma
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from monitor.core.scores import Floats, Integers

CONSENSUS = "consensus"
"""The name of the consensus among the estimators."""

ADAPTIVE = "adaptive"
"""The name of the weighted mean of ATC and anchored CPC."""

AUDITED = "audited"
"""The name of the audited accuracy, which alerts may compare like that of an estimator."""

HEADLINE = ADAPTIVE
"""The estimate that people see first, and that alerts compare unless they name another."""

MINIMUM_RECORDS = 200
"""The default minimum of records for an estimate."""


class Why(StrEnum):
    """Why there is no estimate. A closed list of label values."""

    TOO_FEW_RECORDS = "too_few_records"
    ALL_SETS_EMPTY = "all_sets_empty"
    ERROR = "error"
    """The estimator failed."""
    TOO_FEW_CASES = "too_few_cases"
    """Too few records of the class, expected in the window or in the reference."""


class Interval(NamedTuple):
    """The interval of the accuracy in the window, if the window differs from the reference only by chance."""

    lower: float
    upper: float


class PredictionSets(NamedTuple):
    """The size of conformal sets, beside a CPC estimate."""

    mean_size: float
    empty_share: float


class Estimate(NamedTuple):
    """An estimated accuracy, as a ratio from 0 to 1."""

    accuracy: float
    records: int
    interval: Interval | None = None
    prediction_sets: PredictionSets | None = None
    unclipped: float | None = None
    """The value before clipping; None if it was within 0 and 1."""

    @property
    def total(self) -> float:
        """The unclipped estimate times its records, which replicas can add up."""
        return self.records * (self.accuracy if self.unclipped is None else self.unclipped)

    def __str__(self) -> str:
        """Return the estimate with its interval."""
        interval = "" if self.interval is None else f" ({self.interval.lower:.3f} to {self.interval.upper:.3f})"
        return f"{self.accuracy:.3f}{interval}, {self.records:,} records"


class NoEstimate(NamedTuple):
    """The reason for no estimate."""

    why: Why
    records: int
    prediction_sets: PredictionSets | None = None
    minimum_records: int | None = None
    """The required number of records, if that is the reason."""

    def __str__(self) -> str:
        """Return the reason."""
        needed = "" if self.minimum_records is None else f" of at least {self.minimum_records:,}"
        return f"no estimate: {self.why.value}, {self.records:,}{needed} records"


Result = Estimate | NoEstimate


class WindowState(StrEnum):
    """Whether a window has a valid estimate, or why not. A closed list of label values."""

    OK = "ok"
    WARMING = "warming"
    """The window never had enough records yet."""
    TOO_FEW_RECORDS = "too_few_records"
    """The window no longer has enough records."""
    CATCHING_UP = "catching_up"
    """The backlog is so large that its records are old."""
    STALE = "stale"
    """No record has arrived for a long time."""
    NO_REFERENCE = "no_reference"
    """The model has no reference."""
    VERSION_MISMATCH = "version_mismatch"
    """Most records are of another model version than the reference's."""
    DEGRADED_INPUT = "degraded_input"
    """Too many records are rejected, or the outputs are suspicious."""
    ERROR = "error"
    """The estimation failed."""


STATES = tuple(WindowState)
"""Columns hold states as indexes into it."""

_TINY = 1e-290
_EXACT = 1e-14
_MOST_TERMS = 1_000_000
_MOST_STEPS = 60
_LAST_STEP = 1e-10
"""Newton's method squares the error, so the one after such a step is near rounding errors."""


@lru_cache(maxsize=256)
def share_interval(right: int, records: int, level: float) -> Interval:
    """Return the exact (Clopper-Pearson) interval of a share."""
    lower, upper = share_intervals(np.array([right]), np.array([records]), level)
    return Interval(float(lower[0]), float(upper[0]))


def share_intervals(right: Integers, records: Integers, level: float) -> tuple[Floats, Floats]:
    """Return the lower and upper bounds of the exact intervals of shares; 0 and 1 without records."""
    wrong, tail, count = records - right, (1.0 - level) / 2.0, len(records)
    # Where none or all are right, one bound is known; its numbers only have to be valid.
    a, b = np.concatenate([np.maximum(right, 1), right + 1]), np.concatenate([wrong + 1, np.maximum(wrong, 1)])
    found = _quantiles(np.repeat([tail, 1.0 - tail], count), a.astype(np.float64), b.astype(np.float64))
    return np.where(right > 0, found[:count], 0.0), np.where(wrong > 0, found[count:], 1.0)


def _quantiles(probability: Floats, a: Floats, b: Floats) -> Floats:
    """Return quantiles of beta distributions, by Newton's method within a bracket."""
    scale = np.array([lgamma(x + y) - lgamma(x) - lgamma(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    low, high = np.zeros(len(a)), np.ones(len(a))
    # The bounds of Wilson's interval are near.
    z = np.copysign(NormalDist().inv_cdf(np.max(probability, initial=0.5)), probability - 0.5)
    total = a + b - 1.0
    share, spread = (a - 0.5) / total, z / (2.0 * total)
    found = (share + z * (spread + np.sqrt(share * (1.0 - share) / total + spread**2))) / (1.0 + z * z / total)
    for _ in range(_MOST_STEPS):
        front = np.exp(scale + a * np.log(found) + b * np.log1p(-found))
        error = _beta(found, a, b, front) - probability
        low, high = np.where(error < 0.0, found, low), np.where(error < 0.0, high, found)
        step = found - error * found * (1.0 - found) / np.maximum(front, _TINY)
        before, found = found, np.where((step >= low) & (step <= high), step, (low + high) / 2.0)
        if (np.abs(found - before) <= _LAST_STEP).all():
            break
    return found


def _beta(x: Floats, a: Floats, b: Floats, front: Floats) -> Floats:
    """Return the regularised incomplete beta function; `front` is the power in it, over the complete one."""
    below = x < (a + 1.0) / (a + b + 2.0)
    first, second = np.where(below, a, b), np.where(below, b, a)
    share = front * _fraction(np.where(below, x, 1.0 - x), first, second) / first
    return np.where(below, share, 1.0 - share)


def _fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    """Return the continued fraction (DLMF 8.17.22), by Lentz's method."""
    c, d = np.ones(len(x)), 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MOST_TERMS):
        before = value
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            value = value * c * d
        if (np.abs(value - before) <= _EXACT * np.abs(value)).all():
            break
    return value


def _away(values: Floats) -> Floats:
    """Return values that can be divided by."""
    return np.where(np.abs(values) > _TINY, values, _TINY)
