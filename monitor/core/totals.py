"""Running totals of a window as integers that add, subtract and merge exactly; computed on demand.

Between two evaluations a busy window may be replaced many times. Records that were added and evicted in between are never
measured. Because totals are integers, the order of additions and subtractions makes no difference.
"""

import dataclasses
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from monitor.core.calibration import Calibration, WindowEstimate
from monitor.core.ensemble import CalibratedEstimator, Failed
from monitor.core.estimators.conformal import Conformal, ConformalAtConfidence
from monitor.core.scores import (
    FIXED_POINT,
    MOST_RECORDS,
    ROWS,
    Floats,
    Integers,
    Outputs,
    Singles,
    ThresholdGrid,
    Totals,
    add_sets,
    fixed,
    in_blocks,
    totals_at,
)

_FINER = 1 << 30
"""The extra resolution of confidence remainders."""


class Gauge:
    """The layout of a window's totals for one reference, and their computation from records.

    The totals are one vector of 64-bit integers: the number of records; the confidences, raw and scaled; the predicted
    classes; the contributions of each estimator without conformal sets; and one curve of conformal sets each, raw and
    scaled. Immutable, and shared by all windows of a reference.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._grids = [ThresholdGrid(_ranked(calibration, scaled=scaled)) for scaled in (False, True)]
        self._summed = [one for one in calibration.estimators if not isinstance(one.estimator, Conformal)]
        one_record = next(in_blocks(np.full((1, calibration.classes), 1.0, dtype=np.float32), 1.0))
        place = 1
        # Sums of confidences, raw and scaled, and of their remainders after rounding: the threshold of cpc_ac is a rank
        # among m, so an error in its level counts m times.
        self.confidences = slice(place, place + 4)
        place = self.confidences.stop
        self.predicted = slice(place, place + calibration.classes)
        place = self.predicted.stop
        self._sums = {}
        for one in self._summed:
            rows = len(one.estimator.contributions(one_record.raw, 1.0))
            self._sums[one.form.name] = slice(place, place + rows)
            place += rows
        self.sums_end = place
        self._curves = []
        for grid in self._grids:
            self._curves.append(slice(place, place + ROWS * grid.cells))
            place += ROWS * grid.cells
        self.length = place
        self.identity = _identity(calibration)
        """Identifies the reference: only totals of the same reference can be added."""

    @property
    def bytes_per_window(self) -> int:
        """The memory of one window's totals."""
        return 8 * self.length

    @property
    def bytes_shared(self) -> int:
        """The memory of the shared tables."""
        return sum(grid.nbytes for grid in self._grids)

    def empty(self) -> Totals:
        """Return the totals of no records."""
        return np.zeros(self.length, dtype=np.int64)

    def measure(self, totals: Totals, probabilities: Singles, sign: int) -> None:
        """Add (sign 1) or subtract (sign -1) records, vectors of shape (records, classes).

        After a failure the totals are invalid: measure into an empty vector first.
        """
        for block in in_blocks(probabilities, self.calibration.temperature):
            self._measure(totals, block, sign)

    def _measure(self, totals: Totals, block: Outputs, sign: int) -> None:
        totals[0] += sign * block.records
        for total, scores in enumerate((block.raw, block.scaled), self.confidences.start):
            coarse = fixed(scores.confidence)
            totals[total] += sign * int(coarse.sum())
            left = np.rint((scores.confidence * FIXED_POINT - coarse) * _FINER).astype(np.int64)
            totals[total + 2] += sign * int(left.sum())
        classes = np.argmax(block.raw.probabilities, axis=0)
        totals[self.predicted] += sign * np.bincount(classes, minlength=self.calibration.classes)
        for one in self._summed:
            # Only conformal forms use the mean confidence, and they are not summed here.
            rows = one.estimator.contributions(block.scores(scaled=one.form.scaled), 0.0)
            totals[self._sums[one.form.name]] += sign * np.add.reduce(fixed(rows), axis=1)
        for grid, place, scores in zip(self._grids, self._curves, (block.raw, block.scaled), strict=True):
            add_sets(totals[place].reshape(ROWS, grid.cells), grid, scores, sign)

    def place_of(self, one: CalibratedEstimator) -> slice | None:
        """Return the slice of a form's sums; None for a conformal form, which uses the curve."""
        return self._sums.get(one.form.name)

    def sets_at(self, totals: Totals, threshold: np.float32, *, scaled: bool) -> Totals:
        """Return the totals of the conformal sets at a threshold."""
        grid = self._grids[scaled]
        return totals_at(totals[self._curves[scaled]].reshape(ROWS, grid.cells), grid, threshold)


def _identity(calibration: Calibration) -> str:
    """Hash everything on which the meaning of totals depends."""
    digest = hashlib.sha256(struct.pack("<qqd", FIXED_POINT, calibration.classes, calibration.temperature))
    for one in calibration.estimators:
        digest.update(one.form.full_name.encode())
        for field in dataclasses.fields(cast("Any", one.estimator)):
            value = getattr(one.estimator, field.name)
            digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()


def _ranked(calibration: Calibration, *, scaled: bool) -> Singles:
    """Return the calibration scores, which are all possible thresholds."""
    for one in calibration.estimators:
        if isinstance(one.estimator, ConformalAtConfidence) and one.form.scaled is scaled:
            return one.estimator.ranked
    raise LookupError("estimators: expected cpc_ac, found none")


@dataclass(frozen=True, eq=False)
class WindowTotals:
    """A snapshot of a window's totals. Totals of two windows of one reference add up to those of their union."""

    gauge: Gauge
    vector: Totals

    def __add__(self, other: "WindowTotals") -> "WindowTotals":
        """Return the totals of both windows together."""
        if self.gauge.identity != other.gauge.identity:
            raise ValueError("totals: expected two windows of one reference, found two references")
        if self.records + other.records > MOST_RECORDS:
            found = self.records + other.records
            raise OverflowError(f"totals: expected at most {MOST_RECORDS:,} records together, found {found:,}")
        return WindowTotals(self.gauge, self.vector + other.vector)

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.vector[0])

    @property
    def predicted(self) -> Totals:
        """The predictions per class."""
        return self.vector[self.gauge.predicted].copy()

    def to_bytes(self) -> bytes:
        """Serialise the totals."""
        return bytes.fromhex(self.gauge.identity) + self.vector.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, gauge: Gauge, exported: bytes) -> "WindowTotals":
        """Return serialised totals; raises ValueError for another reference."""
        identity = bytes.fromhex(gauge.identity)
        if exported[: len(identity)] != identity or len(exported) != len(identity) + 8 * gauge.length:
            raise ValueError("totals: expected totals of this reference, found others")
        return cls(gauge, np.frombuffer(exported[len(identity) :], dtype="<i8").astype(np.int64))

    @cached_property
    def _means(self) -> list[float]:
        """The means of all fixed-point sums."""
        return (self.vector[: self.gauge.sums_end] / (FIXED_POINT * self.records)).tolist()  # type: ignore[no-any-return]

    @cached_property
    def _confidence(self) -> tuple[float, float]:
        """The mean confidences, raw and scaled. Python integers are exact, and the division rounds once."""
        raw, scaled, raw_left, scaled_left = self.vector[self.gauge.confidences].tolist()
        ones = self.records * FIXED_POINT * _FINER
        return (raw * _FINER + raw_left) / ones, (scaled * _FINER + scaled_left) / ones

    def mean_confidence(self, *, scaled: bool) -> float:
        """Return the mean confidence."""
        return self._confidence[scaled]

    @cached_property
    def _sets(self) -> dict[tuple[bool, float], Sequence[float]]:
        return {}

    def means(self, one: CalibratedEstimator) -> Sequence[float]:
        """Return the means of an estimator's contributions."""
        place = self.gauge.place_of(one)
        if place is not None:
            return self._means[place]
        scaled = one.form.scaled
        if not isinstance(one.estimator, Conformal):
            raise TypeError(f"totals: expected an estimator of this reference, found {one.form.name!r}")
        threshold = one.estimator.threshold(np.array([self.mean_confidence(scaled=scaled)]))[0]
        key = (scaled, float(threshold))
        if key not in self._sets:
            score, size, filled, sure = self.gauge.sets_at(self.vector, threshold, scaled=scaled).tolist()
            records = self.records
            unsure = int(self.vector[self.gauge.confidences.start + scaled]) - sure
            one_record = FIXED_POINT * records
            self._sets[key] = (score / one_record, size / records, (records - filled) / records, unsure / one_record)
        return self._sets[key]

    def estimate(self, failed: Failed | None = None) -> WindowEstimate:
        """Return all estimates, in a time that does not depend on the number of records."""
        return self.gauge.calibration.estimate_windows(_OneWindow(self), failed=failed).window(0)


@dataclass(frozen=True, slots=True)
class _OneWindow:
    """The totals of a window as the estimators need them."""

    totals: WindowTotals

    @property
    def records(self) -> Integers:
        """Number of records."""
        return np.array([self.totals.records])

    def mean_confidence(self, *, scaled: bool) -> Floats:
        """Return the mean confidence."""
        return np.array([self.totals.mean_confidence(scaled=scaled)])

    def means(self, one: CalibratedEstimator) -> Floats:
        """Return the means of an estimator's contributions."""
        return np.array(self.totals.means(one))[:, None]


def totals_of(gauge: Gauge, probabilities: Singles) -> WindowTotals:
    """Return the totals of records."""
    vector = gauge.empty()
    gauge.measure(vector, probabilities, 1)
    return WindowTotals(gauge, vector)


Slots = NDArray[np.int32]

_EMPTY, _WAITING, _MEASURED = 0, 1, 2

# Limits on unmeasured records, so that `totals` takes at most tens of milliseconds.
_MOST_WAITING = 1 << 16
_MOST_LEFT_NUMBERS = 1 << 20
# Vectors are copied in pieces, to bound memory.
_GATHERED = 1 << 14


class RunningTotals:
    """The totals of the records in some slots, computed on demand."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._totals = gauge.empty()
        self._states = np.zeros(0, dtype=np.uint8)
        self._waiting = 0
        self._left: list[Singles] = []
        self._left_records = 0

    def grow(self, slots: int) -> None:
        """Grow to a number of slots."""
        grown = np.zeros(slots, dtype=np.uint8)
        grown[: len(self._states)] = self._states
        self._states = grown

    def filled(self, slots: Slots, vectors: Singles) -> None:
        """Call after slots were filled; `vectors` are those of all slots."""
        self._states[slots] = _WAITING
        self._waiting += len(slots)
        if self._waiting > _MOST_WAITING:
            self._measure_pending(vectors)

    def emptied(self, slots: Slots, vectors: Singles) -> None:
        """Call before slots are emptied."""
        measured = slots[self._states[slots] == _MEASURED]
        if (len(measured) + self._left_records) * vectors.shape[1] > _MOST_LEFT_NUMBERS:
            change = self._gauge.empty()
            for start in range(0, len(measured), _GATHERED):
                self._gauge.measure(change, vectors[measured[start : start + _GATHERED]], -1)
            self._totals += change
        elif len(measured):
            self._left.append(vectors[measured])
            self._left_records += len(measured)
        self._waiting -= len(slots) - len(measured)
        self._states[slots] = _EMPTY

    def known(self, slots: Slots, totals: Totals) -> None:
        """Call after an empty window was filled with records of known totals."""
        self._totals = totals.copy()
        self._states[slots] = _MEASURED

    def totals(self, vectors: Singles) -> Totals:
        """Return the totals of all filled slots."""
        self._measure_pending(vectors)
        return self._totals.copy()

    def _measure_pending(self, vectors: Singles) -> None:
        if not self._waiting and not self._left:
            return
        change = self._gauge.empty()
        waiting = np.flatnonzero(self._states == _WAITING)
        for start in range(0, len(waiting), _GATHERED):
            self._gauge.measure(change, vectors[waiting[start : start + _GATHERED]], 1)
        for left in self._left:
            self._gauge.measure(change, left, -1)
        # State changes only after everything is measured, so that a failure can be retried.
        self._totals += change
        self._states[waiting] = _MEASURED
        self._waiting = 0
        self._left, self._left_records = [], 0
