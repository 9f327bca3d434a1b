"""The result of an estimator: an estimate, or a reason for none; the state of a window; the exact interval of a ratio.

Named tuples, which are created several times faster than dataclasses.
"""

from enum import StrEnum
from functools import lru_cache
from math import exp, lgamma, log, log1p
from typing import NamedTuple

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

_TINY = 1e-300
_EXACT = 1e-15
_MOST_TERMS = 1_000_000
_HALVINGS = 48
"""Bisection steps, to an error below 4e-15."""


# One takes a millisecond or more. Labels need those of thousands of windows, of which few change at a time: 4 MB.
@lru_cache(maxsize=1 << 14)
def share_interval(right: int, records: int, level: float) -> Interval:
    """Return the exact (Clopper-Pearson) interval of a share."""
    tail = (1.0 - level) / 2.0
    lower = _quantile(tail, right, records - right + 1) if right > 0 else 0.0
    upper = _quantile(1.0 - tail, right + 1, records - right) if right < records else 1.0
    return Interval(lower, upper)


def _quantile(probability: float, a: int, b: int) -> float:
    """Return a quantile of the beta distribution, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if _beta(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _beta(x: float, a: int, b: int) -> float:
    """Return the regularised incomplete beta function."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: int, b: int) -> float:
    """Return the continued fraction (DLMF 8.17.22), by Lentz's method."""
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
