"""AC: a model that says 90% should be right in 90% of cases."""

from dataclasses import dataclass
from typing import ClassVar, Self

from monitor.core.estimate import Estimate
from monitor.core.estimators.base import Means
from monitor.core.scores import Floats, LabelledOutputs, Scores


@dataclass(frozen=True, slots=True)
class AverageConfidence:
    """Mean confidence of the window.

    Assumes calibrated probabilities. An overconfident network looks better than it is, on its own reference too; the
    scaled form mends that for the reference. Blind to confident mistakes.
    """

    returns_reference_accuracy: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Learn nothing: confidence is taken at its word."""
        del reference, scaled
        return cls()

    def contributions(self, scores: Scores, mean_confidence: float) -> Floats:
        """Return each record's confidence."""
        del mean_confidence
        return scores.confidence[None]

    def estimate(self, means: Means, records: int, mean_confidence: float) -> Estimate:
        """Return the mean confidence."""
        del mean_confidence
        return Estimate(means[0], records)
