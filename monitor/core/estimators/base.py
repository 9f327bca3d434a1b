"""The contract of an estimator: calibration, contributions of records, and the estimate from their means.

An estimator is a frozen dataclass of numbers and arrays, so that the reference file can store any of them. Called from one
thread at a time; never blocks.
"""

from typing import ClassVar, NamedTuple, Protocol, Self

from monitor.core.scores import Floats, LabelledOutputs, Scores


class Line(NamedTuple):
    """An estimate that is `accuracy + (means[0] + weight * means[row] - anchor)`, rounded in this order.

    An estimator may have a method `line` that returns it, or None if `estimate` is something else. Lines are computed for all
    estimators together, so that one window costs a few numpy calls instead of some for each estimator.
    """

    accuracy: float = 0.0
    anchor: float | Floats = 0.0
    """Or one for each calibration score: that of the threshold of `cpc_ac` counts."""
    weight: float = 0.0
    row: int = 0


class Estimator(Protocol):
    """Estimates accuracy without labels."""

    returns_reference_accuracy: ClassVar[bool]
    """Whether the estimate on the reference itself is exactly its accuracy."""

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Return the estimator calibrated on a reference, raw or scaled."""
        ...

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return the contributions of each record: one row per sum that the estimate needs.

        Each number is within 0 and 1, so that running totals cannot overflow. `mean_confidence` is that of the whole window,
        or, where `scores` has several windows, of each.
        Only conformal forms may use it: the contributions of the others must be the same when a record is removed as when it
        was added. Variants must have the same contributions and differ in `estimate` only.
        """
        ...

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return the estimated accuracy of each window, not clipped, from the means of its contributions.

        Elementwise: `means` has shape (rows, windows), the others (windows,). A number that is no accuracy, such as NaN, is a
        failure in that window, unless all its conformal sets are empty.
        """
        ...
