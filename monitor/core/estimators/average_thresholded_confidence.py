"""ATC: the share of records that score above a threshold fixed on the reference (Garg et al. 2022)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from monitor.core.estimate import Estimate, brought_within
from monitor.core.estimators.base import Means
from monitor.core.scores import Floats, LabelledOutputs, Scores

_OUT_OF_REACH = 2.0
"""No confidence exceeds 1, no negative entropy 0."""


@dataclass(frozen=True, slots=True)
class _ThresholdedScore(ABC):
    """Share of the window above a threshold that exactly `r` reference records pass.

    Records that tie with the threshold count for a fraction, so that the reference always gives back its own accuracy,
    saturated softmax and vote shares included. Assumes that the score ranks right before wrong equally well in the
    window; blind to confident mistakes.
    """

    returns_reference_accuracy: ClassVar[bool] = True

    threshold: float
    tie_weight: float

    @staticmethod
    @abstractmethod
    def score(scores: Scores) -> Floats:
        """Return the score that is cut."""

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Cut at the r-th largest reference score."""
        score = cls.score(reference.scores(scaled=scaled)).astype(np.float32)
        right = reference.right
        if right == 0:
            # Nothing was right, so there is no score to cut at: accept nothing.
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
        """Add the share above and the tied share's part."""
        del mean_confidence
        # The weight's rounding can carry a full window a hair past 1.
        return brought_within(means[0] + self.tie_weight * means[1], records)


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
