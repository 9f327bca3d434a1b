"""The answers of an estimator, an estimate or a reason for none; the state of a window; the exact interval of a ratio.

Named tuples, because an evaluation makes sixty of these values and they are made several times faster than dataclasses.
"""

from enum import StrEnum
from functools import lru_cache
from math import exp, lgamma, log, log1p
from typing import NamedTuple

MINIMUM_RECORDS = 200
"""Windows of fewer records get no estimate, offline as in the daemon, unless the user says otherwise."""


class Why(StrEnum):
    """Why there is no estimate. A closed list: its values become labels."""

    TOO_FEW_RECORDS = "too_few_records"
    ALL_SETS_EMPTY = "all_sets_empty"
    ERROR = "error"
    """The estimator failed."""


class Interval(NamedTuple):
    """Where the accuracy realised in the window lies, if only chance separates the window from the reference."""

    lower: float
    upper: float


class PredictionSets(NamedTuple):
    """The conformal warning signs beside a CPC value."""

    mean_size: float
    empty_share: float


class Estimate(NamedTuple):
    """An estimated accuracy, as a ratio from 0 to 1."""

    accuracy: float
    records: int
    interval: Interval | None = None
    prediction_sets: PredictionSets | None = None
    unclipped: float | None = None
    """The value before it was brought within 0 and 1; None where it lay there."""

    @property
    def total(self) -> float:
        """The estimate times its records, not clipped: what replicas add up, since a clipped sum is no sum of the clipped."""
        return self.records * (self.accuracy if self.unclipped is None else self.unclipped)

    def __str__(self) -> str:
        """Return the estimate with its interval, for reading."""
        interval = "" if self.interval is None else f" ({self.interval.lower:.3f} to {self.interval.upper:.3f})"
        return f"{self.accuracy:.3f}{interval}, {self.records:,} records"


class NoEstimate(NamedTuple):
    """No estimate, and why."""

    why: Why
    records: int
    prediction_sets: PredictionSets | None = None
    minimum_records: int | None = None
    """How many records there should have been; None where it is not a matter of number."""

    def __str__(self) -> str:
        """Return the reason, for reading."""
        needed = "" if self.minimum_records is None else f" of at least {self.minimum_records:,}"
        return f"no estimate: {self.why.value}, {self.records:,}{needed} records"


Result = Estimate | NoEstimate


def brought_within(value: float, records: int, prediction_sets: PredictionSets | None = None) -> Estimate:
    """Return the estimate nearest to a value that may lie beyond 0 or 1, and the value with it."""
    accuracy = clipped(value)
    return Estimate(accuracy, records, None, prediction_sets, None if accuracy == value else value)


def clipped(accuracy: float) -> float:
    """Return the nearest accuracy there can be."""
    return min(1.0, max(0.0, accuracy))


class WindowState(StrEnum):
    """Whether a window's accuracy can be said, or why not. A closed list: its values become labels."""

    OK = "ok"
    WARMING = "warming"
    """It has never held enough records yet."""
    TOO_FEW_RECORDS = "too_few_records"
    """It once held enough records, and no longer does."""
    CATCHING_UP = "catching_up"
    """So much is unread that its records are of the past."""
    STALE = "stale"
    """No record has come for so long that its records are of the past."""
    NO_REFERENCE = "no_reference"
    """The model has no reference yet to judge it by."""
    VERSION_MISMATCH = "version_mismatch"
    """Most records that come are of another version than the reference's, and are kept out."""
    DEGRADED_INPUT = "degraded_input"
    """So many records are refused, or look so odd, that the others cannot speak for them."""
    ERROR = "error"
    """The estimate itself failed."""


_TINY = 1e-300
_EXACT = 1e-15
_MOST_TERMS = 1_000_000
_HALVINGS = 48
"""Of the way from 0 to 1: what is left is under 4e-15."""


@lru_cache(maxsize=256)
def share_interval(right: int, records: int, level: float) -> Interval:
    """Return the exact (Clopper-Pearson) interval of a share. Remembered, since pages ask again and again."""
    tail = (1.0 - level) / 2.0
    lower = _quantile(tail, right, records - right + 1) if right > 0 else 0.0
    upper = _quantile(1.0 - tail, right + 1, records - right) if right < records else 1.0
    return Interval(lower, upper)


def _quantile(probability: float, a: int, b: int) -> float:
    """Return where the beta distribution reaches a probability, by halving: it always ends, and needs no derivative."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if _beta(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _beta(x: float, a: int, b: int) -> float:
    """Return the regularised incomplete beta function, on the side where its fraction converges fast."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: int, b: int) -> float:
    """Return the continued fraction of the function (DLMF 8.17.22), by the way of Lentz."""
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MOST_TERMS):
        before = value
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            value *= c * d
        if abs(value - before) <= _EXACT * abs(value):
            break
    return value


def _away(value: float) -> float:
    """Return a value that can be divided by."""
    return value if abs(value) > _TINY else _TINY
