"""The contract of an estimator: calibration, contributions of records, and the estimate from their means.

An estimator is a frozen dataclass of numbers and arrays, so that the reference file can store any of them. Called from one
thread at a time; never blocks.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

from monitor.core.estimate import Result
from monitor.core.scores import Floats, LabelledOutputs, Scores

Means = Sequence[float]
"""Means of an estimator's contributions over a window. Plain floats, faster than numpy for a few numbers."""


class Estimator(Protocol):
    """Estimates accuracy without labels."""

    returns_reference_accuracy: ClassVar[bool]
    """Whether the estimate on the reference itself is exactly its accuracy."""

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Return the estimator calibrated on a reference, raw or scaled."""
        ...

    def contributions(self, scores: Scores, mean_confidence: float) -> Floats:
        """Return the contributions of each record: one row per sum that the estimate needs.

        Each number is within 0 and 1, so that running totals cannot overflow. `mean_confidence` is that of the whole window.
        Only conformal forms may use it: the contributions of the others must be the same when a record is removed as when it
        was added. Variants must have the same contributions and differ in `estimate` only.
        """
        ...

    def estimate(self, means: Means, records: int, mean_confidence: float) -> Result:
        """Return the result for a window of at least one record from the means of its contributions."""
        ...
