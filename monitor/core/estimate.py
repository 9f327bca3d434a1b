"""The only two answers an estimator gives: an estimate, or the reason why there is none.

Named tuples, because an evaluation makes sixty of these values and they are made several times faster than dataclasses.
"""

from enum import StrEnum
from typing import NamedTuple


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


class NoEstimate(NamedTuple):
    """No estimate, and why."""

    why: Why
    records: int
    prediction_sets: PredictionSets | None = None


Result = Estimate | NoEstimate


def brought_within(value: float, records: int, prediction_sets: PredictionSets | None = None) -> Estimate:
    """Return the estimate nearest to a value that may lie beyond 0 or 1, and the value with it."""
    accuracy = clipped(value)
    return Estimate(accuracy, records, None, prediction_sets, None if accuracy == value else value)


def clipped(accuracy: float) -> float:
    """Return the nearest accuracy there can be."""
    return min(1.0, max(0.0, accuracy))
