"""Drift of the outputs themselves: how far the decisions and confidences of a window are from those of a baseline.

An accuracy estimated from confidences does not see a model that answers differently with the same confidence, such as one
that stopped predicting a class. Two distances do, from counts that add up over windows and processes: Jensen-Shannon of the
decided classes, and Kolmogorov-Smirnov of the confidences, at the edges of cells that are quantiles of the reference.
"""

from dataclasses import dataclass
from enum import StrEnum

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


def output_cells(edges: Singles, confidence: Floats) -> Integers:
    """Return the cell of each confidence."""
    return np.searchsorted(edges, confidence.astype(np.float32))


def edges_of(reference: LabelledOutputs) -> Singles:
    """Return the edges of cells, quantiles of the reference's confidences."""
    rising = np.sort(reference.outputs.raw.confidence.astype(np.float32))
    places = np.arange(1, CELLS) * len(rising) // CELLS
    return np.unique(rising[places])


def distances(decided: Integers, confidence: Integers, baseline: tuple[Integers, Integers]) -> Floats:
    """Return the distances of windows from baselines, shape (measures, windows); NaN where one is empty.

    Counts have a row for each window; those of the baseline, decided and confidence, a row for each or one for all.
    """
    return np.array([_jensen_shannon(decided, baseline[0]), _kolmogorov_smirnov(confidence, baseline[1])])


def shares(counts: Integers) -> Floats:
    """Return the shares of counts in each row; NaN for an empty one."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0))


def _jensen_shannon(counts: Integers, baseline: Integers) -> Floats:
    """Return the distance with logarithms of base 2: 0 for equal shares, 1 for shares without a common class."""
    p, q = np.broadcast_arrays(shares(counts), shares(baseline))
    middle = (p + q) / 2.0
    divergence = np.zeros(p.shape[:-1])
    for side in (p, q):
        ratio = np.divide(side, middle, out=np.ones_like(middle), where=side > 0.0)
        divergence += np.sum(side * np.log2(ratio), axis=-1) / 2.0
    return np.sqrt(np.clip(divergence, 0.0, 1.0))


def _kolmogorov_smirnov(counts: Integers, baseline: Integers) -> Floats:
    """Return the largest difference between the shares below an edge."""
    return np.asarray(np.max(np.abs(np.cumsum(shares(counts) - shares(baseline), axis=-1)), axis=-1))


def counted(codes: Integers, lengths: Integers, width: int) -> Integers:
    """Return the counts of codes in consecutive windows of these lengths, a row for each."""
    window = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(window * width + codes, minlength=len(lengths) * width).reshape(-1, width)
