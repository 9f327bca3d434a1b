"""The mean score inside conformal sets as a function of the threshold, for all thresholds at once.

With a record's probabilities sorted, its set at any threshold is its top k, so its mean score is a step function: it
changes by A_k - A_(k-1) where the threshold passes the k-th largest probability, A_k being the mean of the top k.
Adding every record's steps and summing from the top gives the curve.
"""

import numpy as np

from monitor.core.scores import Floats, Scores, Singles

# Sorting needs a copy of what it sorts, so a reference of a thousand classes is taken piece by piece.
_BLOCK_ELEMENTS = 1 << 20


def mean_scores_at(ranked: Singles, scores: Scores) -> Floats:
    """Return the records' mean score, empty sets counting 0, at each of the thresholds, which fall."""
    rising, back = np.unique(ranked, return_inverse=True)
    steps = np.zeros(len(rising) + 1)
    classes, records = scores.probabilities.shape
    rows = max(1, _BLOCK_ELEMENTS // classes)
    for start in range(0, records, rows):
        falling = -np.sort(-scores.probabilities[:, start : start + rows], axis=0)
        tops = np.cumsum(falling, axis=0) / np.arange(1, classes + 1)[:, None]
        # The number of thresholds at or below a probability: those at which the class is in the set.
        cell = np.searchsorted(rising, falling.astype(np.float32), side="right")
        steps += np.bincount(cell.ravel(), np.diff(tops, axis=0, prepend=0.0).ravel(), minlength=len(steps))
    # A step in cell c lifts the curve at every threshold with an index below c.
    curve = np.cumsum(steps[::-1])[::-1][1:] / records
    return np.asarray(curve[back], dtype=np.float64)
