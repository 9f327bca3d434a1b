"""Estimators from confidences: AC, DOC (Guillory et al. 2021), ATC (Garg et al. 2022), calibrated confidence (as CBPE)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from monitor.core.estimators.base import Line
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

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return each record's confidence."""
        del mean_confidence
        return scores.confidence[None]

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return the mean confidence."""
        del mean_confidence
        return np.asarray(means[0])

    def line(self) -> Line:
        """Return the same as a line."""
        return Line()


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

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return each record's confidence."""
        del mean_confidence
        return scores.confidence[None]

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Shift the reference accuracy by the change in mean confidence."""
        del mean_confidence
        change = means[0] - self.confidence
        return np.asarray(self.accuracy + (np.abs(change) if self.absolute else change))

    def line(self) -> Line | None:
        """Return the same as a line."""
        return None if self.absolute else Line(self.accuracy, self.confidence)


_OUT_OF_REACH = 2.0
"""Above every confidence and negative entropy."""


@dataclass(frozen=True, slots=True)
class _ThresholdedScore(ABC):
    """The share of the window above a threshold that exactly `r` reference records pass.

    Ties with the threshold count as a fraction, so that the reference returns its own accuracy, even with saturated softmax
    or vote shares. Assumes that the score separates right from wrong equally well in the window. Does not detect confident
    errors.
    """

    returns_reference_accuracy: ClassVar[bool] = True

    threshold: float
    tie_weight: float

    @staticmethod
    @abstractmethod
    def score(scores: Scores) -> Floats:
        """Return the score to compare with the threshold."""

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Take the r-th largest reference score as the threshold."""
        score = cls.score(reference.scores(scaled=scaled)).astype(np.float32)
        right = reference.right
        if right == 0:
            # No prediction is right: no record passes.
            return cls(_OUT_OF_REACH, 0.0)
        threshold = np.partition(score, reference.records - right)[reference.records - right]
        above = np.count_nonzero(score > threshold)
        ties = np.count_nonzero(score == threshold)
        return cls(float(threshold), float((right - above) / ties))

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return two rows: above the threshold, and tied with it."""
        del mean_confidence
        score = self.score(scores).astype(np.float32)
        threshold = np.float32(self.threshold)
        return np.array([score > threshold, score == threshold], dtype=np.float64)

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return the share above, plus the weighted share of ties."""
        del mean_confidence
        return np.asarray(means[0] + self.tie_weight * means[1])

    def line(self) -> Line:
        """Return the same as a line."""
        return Line(weight=self.tie_weight, row=1)


class ThresholdedConfidence(_ThresholdedScore):
    """ATC on the confidence."""

    __slots__ = ()

    @staticmethod
    def score(scores: Scores) -> Floats:
        """Return the confidence."""
        return scores.confidence


class ThresholdedEntropy(_ThresholdedScore):
    """ATC on the negative entropy."""

    __slots__ = ()

    @staticmethod
    def score(scores: Scores) -> Floats:
        """Return the negative entropy."""
        return scores.negative_entropy


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

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return each record's accuracy on the curve."""
        del mean_confidence
        return np.interp(_knot(scores), self.confidence, self.accuracy)[None]

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return the mean of the fitted accuracies."""
        del mean_confidence
        return np.asarray(means[0])

    def line(self) -> Line:
        """Return the same as a line."""
        return Line()


def _knot(scores: Scores) -> Floats:
    """Return the confidence rounded to float32, so that ties are exact."""
    return scores.confidence.astype(np.float32).astype(np.float64)
