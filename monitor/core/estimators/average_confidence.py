"""AC: average confidence."""

from dataclasses import dataclass
from typing import ClassVar, Self

from monitor.core.estimate import Estimate
from monitor.core.estimators.base import Means
from monitor.core.scores import Floats, LabelledOutputs, Scores


@dataclass(frozen=True, slots=True)
class AverageConfidence:
    """Mean confidence of the window.

    Assumes calibrated probabilities: it overestimates an overconfident model. The scaled form corrects that on the reference.
    Does not detect confident errors.
    """

    returns_reference_accuracy: ClassVar[bool] = False

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Return the estimator; nothing to learn."""
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
