"""Drift of the outputs themselves: how far the decisions and confidences of a window are from those of a baseline.

An accuracy estimated from confidences does not see a model that answers differently with the same confidence, such as one
that stopped predicting a class. Two distances do, from counts that add up over windows and processes: Jensen-Shannon of the
decided classes, and Kolmogorov-Smirnov of the confidences, at the edges of cells that are quantiles of the reference.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from monitor.core.scores import Floats, Integers, LabelledOutputs, Singles

CELLS = 64
"""The most cells of confidences."""


class Measure(StrEnum):
    """What is compared. A closed list of label values."""

    CLASS_MIX = "class_mix"
    CONFIDENCE = "confidence"


MEASURES = tuple(Measure)
"""Columns hold measures in this order."""


@dataclass(frozen=True, slots=True)
class OutputReference:
    """The outputs of the reference, and how far its own records are from it by chance."""

    edges: Singles
    """Rising; a confidence is in the cell whose number is that of the edges below it."""
    confidence: Integers
    """Records by cell, one more than edges."""
    decided: Integers
    """Records by decided class."""
    sizes: Integers
    """Window sizes of the replays."""
    chance: Floats
    """Distances that windows of each size exceed by chance only, in units of sqrt(1/n + 1/m); shape (measures, sizes)."""

    def distances_by_chance(self, records: Integers, baseline_records: Integers) -> Floats:
        """Return the distances by chance between windows and baselines of these sizes, shape (measures, windows).

        NaN where one is empty, or the reference was too small for replays.
        """
        known = (records > 0) & (baseline_records > 0)
        if not len(self.sizes):
            return np.full((len(MEASURES), len(records)), np.nan)
        n, b = np.maximum(records, 1), np.maximum(baseline_records, 1)
        # With rare classes, distances do not shrink as fast as the units: the smaller side decides.
        place, at = np.log(np.minimum(n, b)), np.log(self.sizes)
        units = np.where(known, np.sqrt(1.0 / n + 1.0 / b), np.nan)
        return np.asarray(np.minimum(1.0, np.array([np.interp(place, at, row) for row in self.chance]) * units))


def output_cells(edges: Singles, confidence: Singles) -> Integers:
    """Return the cell of each confidence."""
    return np.searchsorted(edges, confidence)


def edges_of(reference: LabelledOutputs) -> Singles:
    """Return the edges of cells, quantiles of the reference's confidences."""
    rising = np.sort(reference.outputs.raw.confidence.astype(np.float32))
    places = np.arange(1, CELLS) * len(rising) // CELLS
    return np.unique(rising[places])


def shares(counts: Integers) -> Floats:
    """Return the shares of counts in each row; NaN for an empty one."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0))


class BaselineOutputs(NamedTuple):
    """The shares of decided classes in baselines, and those of confidences up to each cell; a row for each window, or one."""

    decided: Floats
    below: Floats

    @classmethod
    def of(cls, decided: Integers, confidence: Integers) -> "BaselineOutputs":
        """Return those of some counts."""
        return cls(shares(decided), np.cumsum(shares(confidence), axis=-1))

    def distances(self, decided: Floats, confidence: Floats) -> Floats:
        """Return how far the shares of windows are, a row for each: shape (measures, windows). NaN where one is empty.

        Kolmogorov-Smirnov is the largest difference of the shares up to a cell.
        """
        apart = np.abs(np.cumsum(confidence, axis=-1) - self.below)
        return np.array([jensen_shannon(decided, self.decided), np.max(apart, axis=-1)])


def jensen_shannon(one: Floats, other: Floats) -> Floats:
    """Return the distance of shares, with logarithms of base 2: 0 for equal ones, 1 for those without a common class."""
    divergence = _entropy((one + other) / 2.0) - (_entropy(one) + _entropy(other)) / 2.0
    return np.asarray(np.sqrt(np.clip(divergence, 0.0, 1.0)))


def _entropy(some: Floats) -> Floats:
    """Return the entropy of shares, in bits."""
    return np.asarray(-np.sum(some * np.log2(np.where(some > 0.0, some, 1.0)), axis=-1))


def counted(codes: Integers, lengths: Integers, width: int) -> Integers:
    """Return the counts of codes in consecutive windows of these lengths, a row for each."""
    window = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(window * width + codes, minlength=len(lengths) * width).reshape(-1, width)
