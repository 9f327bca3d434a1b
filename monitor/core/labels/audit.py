"""Audited accuracy: records chosen at random by their hashes, and the estimate from their labels and all confidences.

The estimate is that of prediction-powered inference (Angelopoulos et al. 2023), in survey sampling the regression
estimator: the labels of a random sample decide, the confidences of all records only make the interval narrower. So it is
valid whatever shifted, and however wrong the confidences are.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from monitor.core.estimate import share_intervals
from monitor.core.intervals import DEFAULT_LEVEL
from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.scores import Booleans, Floats, Integers

FEWEST_OF_EACH = 10
"""The fewest right and wrong labels for the normal interval: with fewer it is too narrow."""

_HASHES = 2.0**64
_ROUNDING = 1e-9
"""Confidences whose spread is below this share of their squares do not vary: it may be rounding errors of the sums."""


def audited(hashes: Hashes, share: float) -> Booleans:
    """Return which records are audited: those whose keyed hash is below the share of all hashes. None without an id."""
    # Exact: a product with a power of two is not rounded.
    limit = math.ceil(share * _HASHES)
    chosen: Booleans = hashes != NO_ID
    return chosen if limit >= _HASHES else chosen & (hashes < np.uint64(limit))


@dataclass(frozen=True, slots=True)
class AuditSums:
    """What the audited accuracy of each window is computed from, of the records of a period. Arrays of any shape."""

    labels: Integers
    """The number of audited records whose labels came."""
    right: Integers
    """The number of those whose decision was right."""
    confidence: Floats
    """The sum of their calibrated confidences."""
    confidence_squared: Floats
    confidence_right: Floats
    """The sum of the calibrated confidences of those that were right."""
    records: Integers
    """The number of all records, audited or not."""
    all_confidence: Floats
    """The sum of the calibrated confidences of all records."""


class AuditedColumns(NamedTuple):
    """The audited accuracy of each window, with its interval; NaN without labels."""

    value: Floats
    lower: Floats
    upper: Floats
    powered: Booleans
    """Whether confidences took part; else there are too few right or wrong labels, and it is that of the labels alone."""


def prediction_powered(sums: AuditSums, level: float = DEFAULT_LEVEL) -> AuditedColumns:
    """Return the audited accuracy of each window."""
    powered: Booleans = (sums.right >= FEWEST_OF_EACH) & (sums.labels - sums.right >= FEWEST_OF_EACH)
    found = share_columns(sums.right, sums.labels, level, among=~powered)
    estimate, reach = _regression(sums, powered, level)
    for column, values in zip(found, (estimate, estimate - reach, estimate + reach), strict=True):
        column[powered] = np.clip(values, 0.0, 1.0)
    return AuditedColumns(*found, powered)


def _regression(sums: AuditSums, some: Booleans, level: float) -> tuple[Floats, Floats]:
    """Return the estimates of these windows, and how far their intervals reach to both sides."""
    n, right, records = (one[some].astype(np.float64) for one in (sums.labels, sums.right, sums.records))
    confidence, squared = sums.confidence[some], sums.confidence_squared[some]
    accuracy, mean = right / n, confidence / n
    # Sums of squares around the means; that of labels has no cancellation.
    of_labels = right * (n - right) / n
    of_confidence = squared - confidence * mean
    of_both = sums.confidence_right[some] - right * mean
    varies = of_confidence > _ROUNDING * squared
    slope = np.clip(np.divide(of_both, of_confidence, out=np.zeros(len(n)), where=varies), 0.0, 1.0)
    left = np.maximum(of_labels - slope * (2.0 * of_both - slope * of_confidence), 0.0)
    # All records labelled leave nothing to chance. With more labels than records they are of others, too: a block of records
    # has the labels of all with its times.
    variance = np.where(n > records, 1.0, 1.0 - n / records) * left / (n - 2.0) / n
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * np.sqrt(variance)
    return accuracy + slope * (sums.all_confidence[some] / records - mean), reach


def share_columns(
    right: Integers, records: Integers, level: float = DEFAULT_LEVEL, among: Booleans | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return the share that is right in each window, with its exact interval; NaN without records, or not among these."""
    value, lower, upper = (np.full(records.shape, np.nan) for _ in range(3))
    some: Booleans = records > 0 if among is None else (records > 0) & among
    value[some] = right[some] / records[some]
    # Many windows have the same few labels.
    pairs, place = np.unique(np.stack([right[some], records[some]]), axis=1, return_inverse=True)
    for column, bounds in zip((lower, upper), share_intervals(pairs[0], pairs[1], level), strict=True):
        column[some] = bounds[place]
    return value, lower, upper
