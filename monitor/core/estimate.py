"""The only two answers an estimator gives: an estimate, or the reason why there is none."""

from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    """Why there is no estimate. A closed list: its values become labels."""

    TOO_FEW_RECORDS = "too_few_records"
    ALL_SETS_EMPTY = "all_sets_empty"


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the accuracy realised in the window lies, if only chance separates the window from the reference."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class PredictionSets:
    """The conformal warning signs beside a CPC value."""

    mean_size: float
    empty_share: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated accuracy, as a ratio from 0 to 1."""

    accuracy: float
    records: int
    interval: Interval | None = None
    prediction_sets: PredictionSets | None = None


@dataclass(frozen=True, slots=True)
class NoEstimate:
    """No estimate, and why."""

    why: Why
    records: int


Result = Estimate | NoEstimate
