"""The contract of an estimator: what it learns from the reference, what a record adds, what the sums mean.

An estimator is a frozen dataclass of plain numbers and arrays, so `calibrate` returns one that is ready and the
reference file can hold any member without knowing it. Called from one thread at a time; never blocks.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

from monitor.core.estimate import Result
from monitor.core.scores import Floats, LabelledOutputs, Scores

Means = Sequence[float]
"""Means of an estimator's contributions over a window. Plain floats: a handful of numbers is quickest without numpy."""


class Estimator(Protocol):
    """One way to tell accuracy without labels."""

    returns_reference_accuracy: ClassVar[bool]
    """Whether the reference, shown to itself, gives back its own accuracy exactly."""

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Learn what there is to learn from the labelled reference, raw or scaled."""
        ...

    def contributions(self, scores: Scores, mean_confidence: float) -> Floats:
        """Return what each record adds: one row of numbers for each sum the estimate needs.

        Each number lies within 0 and 1, so that running totals cannot overflow. `mean_confidence` is that of the whole
        window, and only conformal forms may heed it: the threshold of `cpc_ac` moves with it, and a window follows that
        by its curve; what other members contributed when a record came must still hold when it leaves. Variants of a member must contribute alike and differ in `estimate` only.
        """
        ...

    def estimate(self, means: Means, records: int, mean_confidence: float) -> Result:
        """Turn the contributions' means over a window of at least one record into an answer."""
        ...
