"""The summary of a reference: classes, calibration, warnings."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from monitor.core.scores import FLOOR, LOG_TEMPERATURE_RANGE, Floats, LabelledOutputs

BINS = 15
"""Bins of equal width, for reliability and calibration error."""
_FEW_RECORDS = 500
_FEW_OF_A_CLASS = 10
_ENOUGH_BY_CHANCE = 10
_NOTABLE_SHARE = 0.01


class Concern(StrEnum):
    """Warnings about a reference. A closed list."""

    FEW_RECORDS = "few_records"
    RARE_CLASS = "rare_class"
    TIED_SCORES = "tied_scores"
    ZEROS_UNDER_FLOOR = "zeros_under_floor"
    BELOW_LARGEST_CLASS = "below_largest_class"
    CLASSES_MIXED_UP = "classes_mixed_up"
    TEMPERATURE_AT_BOUND = "temperature_at_bound"
    NO_ADAPTIVE = "no_adaptive"
    """It is of an older version; only `Reference.warnings` knows."""


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The records with a confidence in one bin."""

    records: int
    right: int
    confidence: float
    """Their mean confidence; 0 without records."""


@dataclass(frozen=True, slots=True)
class ReferenceSummary:
    """Counts and shares of a reference."""

    class_records: tuple[int, ...]
    """Records by true class."""
    class_right: tuple[int, ...]
    """Right decisions by true class."""
    class_predicted: tuple[int, ...]
    """Records by decided class."""
    calibration_error: float
    calibration_error_scaled: float
    tied_share: float
    """The share of records with a confidence that occurs more than once."""
    floored_share: float
    """The share of records with a probability below the floor of the temperature fit."""
    temperature_at_bound: bool
    """Whether the fit ended at a bound: every prediction right, or worse than chance."""
    reliability: tuple[ReliabilityBin, ...] = ()
    """Over 15 bins, unscaled; empty in references of older releases."""
    reliability_scaled: tuple[ReliabilityBin, ...] = ()
    """After temperature scaling."""
    by_argmax: bool = True
    """Whether the device decides for the most probable class."""

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(self.class_records)

    def _is_mixed_up(self, index: int) -> bool:
        """Return whether a class is predicted for its own records less than half as often as by chance."""
        by_chance = self.class_records[index] * self.class_predicted[index] / self.records
        return by_chance >= _ENOUGH_BY_CHANCE and self.class_right[index] < by_chance / 2

    def warnings(self) -> dict[Concern, str]:
        """Return the warnings with their messages."""
        largest, right = max(self.class_records), sum(self.class_right)
        mixed_up = sum(map(self._is_mixed_up, range(len(self.class_records))))
        rare = sum(count < _FEW_OF_A_CLASS for count in self.class_records)
        found = {
            Concern.FEW_RECORDS: (
                self.records < _FEW_RECORDS,
                f"{self.records} records: with fewer than {_FEW_RECORDS}, intervals are wide",
            ),
            Concern.RARE_CLASS: (
                rare > 0,
                (
                    f"{rare} of {len(self.class_records)} classes have fewer than {_FEW_OF_A_CLASS} records:"
                    " a shift towards them cannot be detected"
                ),
            ),
            Concern.TIED_SCORES: (
                self.tied_share > _NOTABLE_SHARE,
                (
                    f"{self.tied_share:.1%} of records share their confidence with another (vote shares, 8-bit or saturated"
                    " outputs): thresholds cannot separate them"
                ),
            ),
            Concern.ZEROS_UNDER_FLOOR: (
                self.floored_share > _NOTABLE_SHARE,
                (
                    f"{self.floored_share:.1%} of records have a probability below {FLOOR:g}: T depends on that floor,"
                    " so prefer the raw estimators"
                ),
            ),
            Concern.BELOW_LARGEST_CLASS: (
                # A device that must not miss a case gives up accuracy on purpose.
                right < largest and self.by_argmax,
                (
                    f"the accuracy {right / self.records:.3f} is below the largest class's share {largest / self.records:.3f}:"
                    " always predicting that class would be better (are the classes in the right order, and do labels count from 0?)"
                ),
            ),
            Concern.CLASSES_MIXED_UP: (
                # If nearly all classes are in the wrong order, BELOW_LARGEST_CLASS covers it.
                (right >= largest or not self.by_argmax) and mixed_up > 0,
                (
                    f"{mixed_up:,} of {len(self.class_records):,} classes are predicted for their own records less than half as"
                    " often as by chance: are the classes in the right order?"
                ),
            ),
            Concern.TEMPERATURE_AT_BOUND: (
                self.temperature_at_bound,
                "T is at the end of its range (every prediction right, or worse than chance): prefer the raw estimators",
            ),
        }
        return {warning: sentence for warning, (holds, sentence) in found.items() if holds}


def summarise(reference: LabelledOutputs) -> ReferenceSummary:
    """Return the summary of a reference."""
    raw, classes = reference.outputs.raw, len(reference.outputs.raw.probabilities)
    _, seen = np.unique(raw.confidence.astype(np.float32), return_counts=True)

    bins = _reliability(raw.confidence, reference.correct)
    scaled = _reliability(reference.outputs.scaled.confidence, reference.correct)

    def counts(of: np.ndarray) -> tuple[int, ...]:
        return tuple(int(count) for count in np.bincount(of, minlength=classes))

    return ReferenceSummary(
        class_records=counts(reference.labels),
        class_right=counts(reference.labels[reference.correct]),
        class_predicted=counts(reference.decided),
        calibration_error=_calibration_error(bins),
        calibration_error_scaled=_calibration_error(scaled),
        tied_share=float(seen[seen > 1].sum() / reference.records),
        floored_share=float(np.any(raw.probabilities < FLOOR, axis=0).mean()),
        temperature_at_bound=abs(math.log(reference.temperature)) > LOG_TEMPERATURE_RANGE[1] - 1e-6,
        reliability=bins,
        reliability_scaled=scaled,
        by_argmax=raw.decided is None,
    )


def _reliability(confidence: Floats, correct: np.ndarray) -> tuple[ReliabilityBin, ...]:
    """Return the reliability bins."""
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    records = np.bincount(places, minlength=BINS)
    right = np.bincount(places[correct], minlength=BINS)
    sums = np.bincount(places, weights=confidence, minlength=BINS)
    return tuple(
        # Rounding may give a mean above 1.
        ReliabilityBin(int(count), int(hits), min(float(total / count), 1.0) if count else 0.0)
        for count, hits, total in zip(records, right, sums, strict=True)
    )


def _calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Return the expected calibration error."""
    gaps = sum(abs(one.records * one.confidence - one.right) for one in bins)
    return gaps / sum(one.records for one in bins)
