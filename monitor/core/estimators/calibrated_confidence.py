"""Calibrated confidence: the accuracy at this confidence on the reference (the idea of CBPE)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from monitor.core.estimate import Estimate, clipped_estimate
from monitor.core.estimators.base import Means
from monitor.core.scores import Floats, LabelledOutputs, Scores


@dataclass(frozen=True, slots=True)
class CalibratedConfidence:
    """The mean accuracy of the reference at each record's confidence.

    Uses an isotonic curve from confidence to accuracy. Assumes that the curve holds in the window. Does not detect confident
    errors; confidences below those of the reference take the end of the curve.
    """

    returns_reference_accuracy: ClassVar[bool] = True

    confidence: Floats
    accuracy: Floats

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Fit the curve; keep its corners."""
        confidence = _knot(reference.scores(scaled=scaled))
        knots, group, count = np.unique(confidence, return_inverse=True, return_counts=True)
        right = np.bincount(group, weights=reference.correct)
        from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow to import, and only calibration needs it

        fitted = np.asarray(isotonic_regression(right / count, weights=count).x, dtype=np.float64)
        # Only the ends of constant sections matter.
        rises = np.flatnonzero(np.diff(fitted) > 0.0)
        corners = np.unique(np.concatenate([[0], rises, rises + 1, [len(knots) - 1]]))
        return cls(knots[corners].astype(np.float64), fitted[corners])

    def contributions(self, scores: Scores, mean_confidence: float) -> Floats:
        """Return each record's accuracy on the curve."""
        del mean_confidence
        return np.interp(_knot(scores), self.confidence, self.accuracy)[None]

    def estimate(self, means: Means, records: int, mean_confidence: float) -> Estimate:
        """Return the mean of the fitted accuracies."""
        del mean_confidence
        return clipped_estimate(means[0], records)


def _knot(scores: Scores) -> Floats:
    """Return the confidence rounded to float32, so that ties are exact."""
    return scores.confidence.astype(np.float32).astype(np.float64)
