"""The only two answers an estimator gives: an estimate, or the reason why there is none.

Named tuples, because an evaluation makes sixty of these values and they are made several times faster than dataclasses.
"""

from enum import StrEnum
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
