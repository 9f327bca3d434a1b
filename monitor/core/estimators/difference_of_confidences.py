"""DOC: difference of confidences (Guillory et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Self

from monitor.core.estimate import Estimate, clipped_estimate
from monitor.core.estimators.base import Means
from monitor.core.scores import Floats, LabelledOutputs, Scores


@dataclass(frozen=True, slots=True)
class DifferenceOfConfidences:
    """Reference accuracy plus the change in mean confidence.

    Assumes that accuracy changes by as much as confidence. `absolute` is the form printed in the paper, which never falls
    below the reference accuracy and so cannot detect a drop; only for reproducing the paper.
    """

    returns_reference_accuracy: ClassVar[bool] = True

    accuracy: float
    confidence: float
    absolute: bool = False

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Keep the reference's accuracy and mean confidence."""
        return cls(reference.accuracy, float(reference.scores(scaled=scaled).confidence.mean()))

    def contributions(self, scores: Scores, mean_confidence: float) -> Floats:
        """Return each record's confidence."""
        del mean_confidence
        return scores.confidence[None]

    def estimate(self, means: Means, records: int, mean_confidence: float) -> Estimate:
        """Shift the reference accuracy by the change in mean confidence."""
        del mean_confidence
        change = means[0] - self.confidence
        return clipped_estimate(self.accuracy + (abs(change) if self.absolute else change), records)
