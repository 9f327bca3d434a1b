"""CPC: the mean score inside each record's conformal set (Lu, Ahmed, Singh and Kalpathy-Cramer 2022).

The conformal part is the least-ambiguous-set method of Sadinle, Lei and Wasserman: the reference's probabilities of the
true label, ranked, give for every coverage level a threshold, and a record's set is the classes at or above it.
`cpc_acc` takes the reference accuracy as the level, `cpc_ac` the window's mean confidence. The anchored forms subtract the
bias of CPC on the reference.

A less confident model has more empty sets; their contribution decides whether drift shows (`EmptySets`). Like every
estimator here, CPC does not detect confident errors.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from monitor.core.estimators.base import Line
from monitor.core.scores import Floats, LabelledOutputs, Scores, Singles, place_at

_Float = TypeVar("_Float", bound=np.floating[Any])


class EmptySets(StrEnum):
    """The contribution of a record with an empty conformal set."""

    TOP = "top"
    """Its confidence: the set becomes the predicted class. The default."""
    SKIP = "skip"
    """None: it is left out of the average, as in the paper. Can hide drift."""
    ZERO = "zero"


class Conformal(ABC):
    """The common part of all CPC forms: sets at a threshold, and their sums."""

    __slots__ = ()

    @abstractmethod
    def threshold(self, mean_confidence: Floats) -> Singles:
        """Return the least score of a class in the set, for each window."""

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return four rows: mean score in the set, its size, whether it is empty, and the confidence if it is."""
        sets = scores.sets_at(self.threshold(np.asarray(mean_confidence)))
        rows = np.empty((4, scores.records))
        rows[0] = sets.mean_score
        rows[1] = sets.size
        rows[2] = sets.empty
        np.multiply(scores.confidence, sets.empty, out=rows[3])
        return rows


class _Plain(Conformal):
    """The unanchored forms."""

    __slots__ = ()
    returns_reference_accuracy: ClassVar[bool] = False
    empty_sets: EmptySets

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return the mean score, with empty sets by the chosen rule; NaN if it is SKIP and all are empty."""
        del mean_confidence
        mean_score, _, empty, confidence_if_empty = means
        if self.empty_sets is EmptySets.SKIP:
            none = np.full_like(mean_score, np.nan)
            mean_score = np.divide(mean_score, 1.0 - empty, out=none, where=empty < 1.0)
        elif self.empty_sets is EmptySets.TOP:
            mean_score = mean_score + confidence_if_empty
        return np.asarray(mean_score)

    def line(self) -> Line | None:
        """Return the same as a line; None if empty sets are skipped."""
        weights = {EmptySets.TOP: 1.0, EmptySets.ZERO: 0.0}
        return Line(weight=weights[self.empty_sets], row=3) if self.empty_sets in weights else None


@dataclass(frozen=True, slots=True)
class ConformalAtAccuracy(_Plain):
    """`cpc_acc`: the coverage level is the reference accuracy, so the threshold is fixed."""

    cut: float
    empty_sets: EmptySets = EmptySets.TOP

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Take the (r+1)-th largest calibration score."""
        return cls(float(_cut_at_accuracy(reference, scaled=scaled)))

    def threshold(self, mean_confidence: Floats) -> Singles:
        """Return the fixed threshold."""
        return np.full_like(mean_confidence, self.cut, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class ConformalAtConfidence(_Plain):
    """`cpc_ac`: the coverage level is the window's mean confidence, so the threshold moves with the window."""

    ranked: Singles
    empty_sets: EmptySets = EmptySets.TOP

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Keep the ranked calibration scores."""
        return cls(reference.ranked_label_scores(scaled=scaled))

    def threshold(self, mean_confidence: Floats) -> Singles:
        """Return the calibration score at the window's level."""
        return at_level(self.ranked, mean_confidence)


class _Anchored(Conformal):
    """The reference accuracy plus the change in CPC at the same threshold, empty sets counting 0."""

    __slots__ = ()
    returns_reference_accuracy: ClassVar[bool] = True
    accuracy: float
    anchor: float | Floats

    @abstractmethod
    def reference_mean(self, mean_confidence: Floats) -> Floats | float:
        """Return CPC of the reference itself at each window's threshold."""

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Shift the reference accuracy by the change in CPC."""
        return np.asarray(self.accuracy + (means[0] - self.reference_mean(mean_confidence)))

    def line(self) -> Line:
        """Return the same as a line."""
        return Line(self.accuracy, self.anchor)


@dataclass(frozen=True, slots=True)
class AnchoredAtAccuracy(_Anchored):
    """`cpc_acc_anchored`."""

    accuracy: float
    cut: float
    anchor: float

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Take the threshold of `cpc_acc` and the reference's own mean there."""
        cut = _cut_at_accuracy(reference, scaled=scaled)
        return cls(reference.accuracy, float(cut), _mean_score(reference.scores(scaled=scaled), cut))

    def threshold(self, mean_confidence: Floats) -> Singles:
        """Return the fixed threshold."""
        return np.full_like(mean_confidence, self.cut, dtype=np.float32)

    def reference_mean(self, mean_confidence: Floats) -> float:
        """Return the fixed mean."""
        del mean_confidence
        return self.anchor


@dataclass(frozen=True, slots=True)
class AnchoredAtConfidence(_Anchored):
    """`cpc_ac_anchored`."""

    accuracy: float
    ranked: Singles
    anchor: Floats
    """The reference's own mean at every ranked threshold."""

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Keep the ranked calibration scores, and the reference's mean at each."""
        ranked, scores = reference.ranked_label_scores(scaled=scaled), reference.scores(scaled=scaled)
        return cls(reference.accuracy, ranked, scores.mean_scores_at(ranked))

    def threshold(self, mean_confidence: Floats) -> Singles:
        """Return the calibration score at the window's level."""
        return at_level(self.ranked, mean_confidence)

    def reference_mean(self, mean_confidence: Floats) -> Floats:
        """Return the reference's mean at each window's threshold."""
        return at_level(self.anchor, mean_confidence)


def _cut_at_accuracy(reference: LabelledOutputs, *, scaled: bool) -> np.float32:
    """Return the threshold at the level A: the rank ceil(A (m + 1)) is r + 1."""
    rank = min(reference.records, reference.right + 1)
    return np.float32(reference.ranked_label_scores(scaled=scaled)[rank - 1])


def at_level(ranked: NDArray[_Float], level: Floats) -> NDArray[_Float]:
    """Return what belongs to the calibration score at a level, of those for each score."""
    return np.asarray(ranked.take(place_at(level, len(ranked) + 1.0), mode="clip"))


def _mean_score(scores: Scores, threshold: np.float32) -> float:
    return float(scores.sets_at(threshold).mean_score.mean())
