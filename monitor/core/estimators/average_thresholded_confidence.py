"""ATC: the share of records above a threshold from the reference (Garg et al. 2022)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from monitor.core.estimate import Estimate, clipped_estimate
from monitor.core.estimators.base import Means
from monitor.core.scores import Floats, LabelledOutputs, Scores

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

    def contributions(self, scores: Scores, mean_confidence: float) -> Floats:
        """Return two rows: above the threshold, and tied with it."""
        del mean_confidence
        score = self.score(scores).astype(np.float32)
        threshold = np.float32(self.threshold)
        return np.array([score > threshold, score == threshold], dtype=np.float64)

    def estimate(self, means: Means, records: int, mean_confidence: float) -> Estimate:
        """Return the share above, plus the weighted share of ties."""
        del mean_confidence
        # Rounding of the weight may exceed 1.
        return clipped_estimate(means[0] + self.tie_weight * means[1], records)


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
