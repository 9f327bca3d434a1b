"""Scores of probability vectors: confidence, entropy, conformal sets and their totals; temperature scaling; labelled outputs.

Arrays are class-major, shape (classes, records). Reducing over the first axis then adds whole rows, which is several
times faster than reducing short vectors one by one, and makes a record's numbers independent of its neighbours.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.integer[Any]]

FLOOR = 1e-12
"""The lower bound of probabilities before a logarithm."""

TINY = float(np.finfo(np.float64).tiny)
"""Keeps log(0) finite, so that 0 log 0 is 0."""

LOG_TEMPERATURE_RANGE = (-4.0, 4.0)

# If one entry in more than this many is in a conformal set, adding all is faster than adding those.
_FEW_INSIDE = 16

# A block of this size, with its derived scores, fits in the CPU cache.
_BLOCK_ELEMENTS = 1 << 16

# Arrays, because numpy converts a number at every call.
_RANK_EPSILON, _FIRST_PLACE = np.array(1e-9), np.array(1.0)


@dataclass(frozen=True, slots=True)
class ConformalSets:
    """The conformal sets of records at one threshold."""

    mean_score: Floats
    """The mean probability in the set; 0 for an empty set."""
    size: Floats
    empty: Booleans


@dataclass(frozen=True)
class Scores:
    """Probabilities of records, raw or scaled, with derived scores."""

    probabilities: Floats
    _sets: dict[float, ConformalSets] = field(default_factory=dict, repr=False, compare=False)
    decided: Integers | None = None
    """The class that was decided for each record; None for the most probable one."""

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.probabilities.shape[1])

    @cached_property
    def confidence(self) -> Floats:
        """The probability of each record's decision: the largest, or that of the decided class."""
        if self.decided is not None:
            return self.probabilities[self.decided, np.arange(self.records)]
        return np.asarray(np.max(self.probabilities, axis=0), dtype=np.float64)

    @cached_property
    def negative_entropy(self) -> Floats:
        """The sum of p log p of each record, where 0 log 0 is 0."""
        known = vars(self).pop("_logs", None)
        terms = _log_from(self.probabilities, TINY) if known is None else known
        terms *= self.probabilities
        return np.asarray(np.add.reduce(terms, axis=0), dtype=np.float64)

    @cached_property
    def comparable(self) -> Singles:
        """Probabilities as float32, for comparison with thresholds."""
        return self.probabilities.astype(np.float32)

    def knowing(self, **derived: Floats) -> Self:
        """Return the scores, with some that were derived before."""
        vars(self).update(derived)
        return self

    def sets_at(self, threshold: Singles | np.float32) -> ConformalSets:
        """Return the conformal sets {j : p_j >= threshold} of every record."""
        key = float(threshold)
        if key not in self._sets:
            inside = self.comparable >= threshold
            # Numbers of one record alone would be added in another order.
            if self.records > 1 and np.count_nonzero(inside) * _FEW_INSIDE < inside.size:
                entries = np.flatnonzero(inside)
                self._sets[key] = _few_added(entries % self.records, self.probabilities.ravel()[entries], self.records)
            else:
                # 16-bit counts are several times faster than floats; no vector has 32,768 classes.
                size = np.add.reduce(inside.view(np.int8), axis=0, dtype=np.int16).astype(np.float64)
                total = np.add.reduce(self.probabilities * inside, axis=0)
                self._sets[key] = ConformalSets(total / np.maximum(size, 1.0), size, size == 0.0)
        return self._sets[key]

    def of_classes(self, classes: Integers) -> Singles:
        """Return the probability of one class of each record, for comparison with thresholds."""
        return self.probabilities[classes, np.arange(self.records)].astype(np.float32)

    def mean_scores_at(self, ranked: Singles) -> Floats:
        """Return the mean score of all records at each threshold, with 0 for empty sets."""
        return mean_scores_at(ranked, self)


class UpperScores(Scores):
    """The confidences of records and their probabilities at or above a floor, for conformal sets; at least two records."""

    def __init__(self, scores: Scores, floor: float) -> None:
        entries = np.flatnonzero(scores.comparable >= np.float32(floor))
        self.nbytes = scores.confidence.nbytes + entries.size * 20
        self.confidence = scores.confidence
        self._record, self._probability = entries % scores.records, scores.probabilities.ravel()[entries]
        self._comparable = scores.comparable.ravel()[entries]

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.confidence)

    def sets_at(self, threshold: Singles | np.float32) -> ConformalSets:
        """Return the conformal sets at a threshold that is not below the floor."""
        inside = self._comparable >= threshold
        return _few_added(self._record[inside], self._probability[inside], self.records)


def _few_added(record: Integers, probability: Floats, records: int) -> ConformalSets:
    """Return conformal sets of few probabilities, added by class as if there were all of them."""
    size = np.bincount(record, minlength=records).astype(np.float64)
    total = np.bincount(record, probability, records)
    return ConformalSets(total / np.maximum(size, 1.0), size, size == 0.0)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The same records, raw and temperature-scaled."""

    raw: Scores
    scaled: Scores

    @property
    def records(self) -> int:
        """Number of records."""
        return self.raw.records

    def scores(self, *, scaled: bool) -> Scores:
        """Return the scaled or the raw scores."""
        return self.scaled if scaled else self.raw


def outputs(probabilities: Singles, temperature: float, decided: Integers | None = None) -> Outputs:
    """Return raw and scaled scores of vectors of shape (records, classes); `decided` unless by argmax."""
    raw = np.ascontiguousarray(probabilities.T, dtype=np.float64)
    logs = _log_from(raw, TINY)
    # The logarithm of at least FLOOR, of numbers that were in single precision.
    scaled = np.maximum(logs, np.log(FLOOR))
    scaled /= temperature
    total = _to_softmax(scaled)
    if decided is not None:
        return Outputs(Scores(raw, decided=decided).knowing(_logs=logs), Scores(scaled, decided=decided))
    # The largest power is 1.
    return Outputs(Scores(raw).knowing(_logs=logs), Scores(scaled).knowing(confidence=1.0 / total))


def in_blocks(probabilities: Singles, temperature: float, decided: Integers | None = None) -> Iterator[Outputs]:
    """Yield raw and scaled scores in blocks of bounded size."""
    rows = max(1, _BLOCK_ELEMENTS // max(1, probabilities.shape[1]))
    for start in range(0, len(probabilities), rows):
        block = slice(start, start + rows)
        yield outputs(probabilities[block], temperature, None if decided is None else decided[block])


def scale(probabilities: Floats, temperature: float) -> Floats:
    """Return softmax(log p / T), which equals softmax(logits / T): no logits are needed."""
    logits = _log_from(probabilities, FLOOR)
    logits /= temperature
    _to_softmax(logits)
    return logits


def _to_softmax(logits: Floats) -> Floats:
    """Turn class-major logits into probabilities; return the sums that divide their powers."""
    # In place, to avoid allocations.
    logits -= np.max(logits, axis=0)
    np.exp(logits, out=logits)
    total: Floats = np.add.reduce(logits, axis=0)
    logits /= total
    return total


def _log_from(probabilities: Floats, floor: float) -> Floats:
    """Return the logarithm of probabilities, at least `floor`."""
    # In place, to avoid allocations.
    raised = np.maximum(probabilities, floor)
    return np.log(raised, out=raised)


def fit_temperature(probabilities: Floats, labels: Integers) -> float:
    """Return the T that minimises the mean negative log-likelihood of the labels.

    The likelihood is convex in 1/T, so its slope has one root, which is found faster and more precisely than the minimum.
    """
    log_p = _log_from(probabilities, FLOOR)
    log_p -= np.max(log_p, axis=0)
    of_label = log_p[labels, np.arange(log_p.shape[1])].mean()

    def slope(log_temperature: float) -> float:
        powers = log_p * np.exp(-log_temperature)
        np.exp(powers, out=powers)
        total = np.add.reduce(powers, axis=0)
        powers *= log_p
        return float((np.add.reduce(powers, axis=0) / total).mean() - of_label)

    coldest, hottest = LOG_TEMPERATURE_RANGE
    cold, hot = slope(coldest), slope(hottest)
    if cold == hot == 0.0:
        return 1.0  # every vector is uniform
    # No root: every prediction is right, or worse than chance.
    if cold <= 0.0:
        return float(np.exp(coldest))
    if hot >= 0.0:
        return float(np.exp(hottest))
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to import, and only calibration needs it

    root: Callable[..., float] = brentq
    return float(np.exp(root(slope, coldest, hottest, xtol=1e-12)))


@dataclass(frozen=True)
class LabelledOutputs:
    """Outputs with labels."""

    outputs: Outputs
    labels: Integers
    temperature: float
    _ranked: dict[bool, Singles] = field(default_factory=dict, repr=False, compare=False)

    @property
    def records(self) -> int:
        """The number of records `m`."""
        return self.outputs.records

    @cached_property
    def decided(self) -> Integers:
        """The decided class of each record: the first of the largest probabilities, unless it was given."""
        given = self.outputs.raw.decided
        return np.argmax(self.outputs.raw.probabilities, axis=0) if given is None else given

    @cached_property
    def correct(self) -> Booleans:
        """Whether each decision is right."""
        right: Booleans = self.decided == self.labels
        return right

    @property
    def right(self) -> int:
        """The number of right decisions `r`."""
        return int(np.count_nonzero(self.correct))

    @property
    def accuracy(self) -> float:
        """The accuracy `A`."""
        return self.right / self.records

    def scores(self, *, scaled: bool) -> Scores:
        """Return the scaled or the raw scores."""
        return self.outputs.scores(scaled=scaled)

    def ranked_label_scores(self, *, scaled: bool) -> Singles:
        """Return the calibration scores, the probabilities of the true labels, in descending order."""
        if scaled not in self._ranked:
            self._ranked[scaled] = np.sort(self.scores(scaled=scaled).of_classes(self.labels))[::-1]
        return self._ranked[scaled]


def label_outputs(
    probabilities: Singles, labels: Integers, temperature: float | None = None, decided: Integers | None = None
) -> LabelledOutputs:
    """Return vectors of shape (records, classes) with their labels; fits the temperature unless it is given.

    `decided` are the decided classes, unless by argmax.
    """
    raw: Floats = np.ascontiguousarray(probabilities.T, dtype=np.float64)
    fitted = fit_temperature(raw, labels) if temperature is None else temperature
    scores = Outputs(Scores(raw, decided=decided), Scores(scale(raw, fitted), decided=decided))
    return LabelledOutputs(scores, labels, fitted)


def place_at(level: Floats, ranks: float | Floats) -> NDArray[np.intp]:
    """Return the place of the rank ceil(level (m + 1)), where `ranks` is m + 1; to be clipped to those of the scores."""
    # The epsilon absorbs rounding errors.
    return np.asarray(np.ceil(level * ranks - _RANK_EPSILON) - _FIRST_PLACE).astype(np.intp)


# The set of a record at a threshold is its top k classes, so its mean score, size and emptiness are step functions of the
# threshold, with steps at the probabilities. The possible thresholds are the reference's calibration scores. A record adds
# each step to the cell between two calibration scores that contains the probability; the totals at a threshold are the sum of
# the cells above it. Everything is an integer, so subtraction is exact.

FIXED_POINT = 1 << 40
"""1.0 in fixed point; the rounding error is below 5e-13."""

MOST_RECORDS = (1 << 23) - 1
"""Totals of more records could exceed 64 bits."""

MOST_TOGETHER = 1 << 13
"""Records that may be measured together: float64 holds the sum of so many numbers in fixed point exactly."""

Cells = NDArray[np.intp]

# Numbers with the same upper bits share a slot. A finer table is faster until it exceeds the cache.
_SHIFT = 10
_SORTED_ELEMENTS = 1 << 20
# With more calibration scores in one slot, a binary search is faster.
_MOST_STEPS = 8


def fixed(values: Floats) -> NDArray[np.int64]:
    """Return numbers in fixed point."""
    return np.rint(values * FIXED_POINT).astype(np.int64)


class ThresholdGrid:
    """The sorted thresholds of a reference, and a table that finds the cell of a probability.

    The cell of a probability is the number of thresholds at or below it. The table is indexed by the upper bits of the
    distance from 0 or 1, whichever is nearer, because scores are dense at both ends.
    """

    def __init__(self, thresholds: Singles) -> None:
        self.thresholds = np.unique(thresholds)
        self._middle = int(np.float32(0.5).view(np.int32)) >> _SHIFT
        slots = self._slot(self.thresholds)
        # The table has only the slots from the lowest threshold to the highest: others are clipped to these.
        self._lowest = slots[0]
        held = np.bincount(slots - self._lowest)
        self._first = np.concatenate([[0], np.cumsum(held)[:-1]]).astype(np.int32)
        self._steps = int(held.max())
        # A sentinel above every probability ends the stepping.
        self._bounded = np.append(self.thresholds, np.float32(2.0))

    @property
    def cells(self) -> int:
        """The number of cells: one more than thresholds."""
        return len(self.thresholds) + 1

    @property
    def nbytes(self) -> int:
        """The memory of the table."""
        return self.thresholds.nbytes + self._bounded.nbytes + self._first.nbytes

    def cell(self, probabilities: Singles) -> Cells:
        """Return the number of thresholds at or below each probability."""
        if self._steps > _MOST_STEPS:
            return np.searchsorted(self.thresholds, probabilities, side="right")
        cell: Cells = self._first.take(self._slot(probabilities) - self._lowest, mode="clip").astype(np.intp)
        for _ in range(self._steps):
            cell += self._bounded[cell] <= probabilities
        return cell

    def _slot(self, probabilities: Singles) -> NDArray[np.int32]:
        # Turns -0.0 into 0.0.
        probabilities = probabilities + np.float32(0.0)
        low = probabilities < np.float32(0.5)
        # Exact in float32 for numbers from one half to one.
        near = np.where(low, probabilities, np.float32(1.0) - probabilities).view(np.int32) >> _SHIFT
        return np.where(low, near, 2 * self._middle + 1 - near)


class LinearCurve:
    """`np.interp` at numbers in single precision, to the bit but faster: a table finds the section."""

    def __init__(self, corners: Singles, values: Floats) -> None:
        self._grid = ThresholdGrid(corners)
        # Flat in front and behind.
        self._corners = np.append(corners[:1], corners).astype(np.float64)
        self._values = np.append(values[:1], values)
        self._slopes = np.zeros(len(self._values))
        self._slopes[1:-1] = np.diff(values) / np.diff(self._corners[1:])

    def __call__(self, numbers: Singles) -> Floats:
        """Return the value at each number."""
        section = self._grid.cell(numbers)
        found = numbers - self._corners[section]
        found *= self._slopes[section]
        found += self._values[section]
        return found


def mean_scores_at(ranked: Singles, scores: Scores) -> Floats:
    """Return the mean score of the records at each threshold, with 0 for empty sets."""
    grid = ThresholdGrid(ranked)
    curve = np.zeros(grid.cells, dtype=np.int64)
    classes, records = scores.probabilities.shape
    # In blocks, since sorting copies.
    rows = max(1, _SORTED_ELEMENTS // classes)
    for start in range(0, records, rows):
        falling = -np.sort(-scores.probabilities[:, start : start + rows], axis=0)
        tops = np.cumsum(falling, axis=0)
        tops /= np.arange(1, classes + 1)[:, None]
        # Steps are differences of rounded means, so they add up exactly.
        steps = np.diff(fixed(tops), axis=0, prepend=0)
        np.add.at(curve, grid.cell(falling.astype(np.float32)).ravel(), steps.ravel())
    above = np.cumsum(curve[::-1])[::-1]
    place = np.searchsorted(grid.thresholds, ranked)
    return np.asarray(above[place + 1] / (FIXED_POINT * records), dtype=np.float64)
