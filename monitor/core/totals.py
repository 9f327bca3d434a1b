"""Totals of windows as integers that add and subtract exactly, and their means for all windows of a model together.

The contributions of a record are rounded to fixed point and are the same whenever they are computed, whatever other records
are measured with it. So the order of additions and subtractions makes no difference.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from monitor.core.baselines.output_drift import output_cells
from monitor.core.calibration import Calibration, WindowEstimate
from monitor.core.change import MEMBERS, MemberValues
from monitor.core.decisions import DecidedBy
from monitor.core.estimators.confidence import (
    AverageConfidence,
    CalibratedConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ThresholdedEntropy,
)
from monitor.core.estimators.conformal import AnchoredAtConfidence, Conformal, ConformalAtConfidence
from monitor.core.estimators.ensemble import CalibratedEstimator, Failed
from monitor.core.performance import MeasuredPerformance, PerformanceGauge, PerformanceMeasures, Target, targets
from monitor.core.scores import (
    FIXED_POINT,
    FLOOR,
    MOST_TOGETHER,
    TINY,
    Booleans,
    Floats,
    Integers,
    LinearCurve,
    Scores,
    Singles,
    ThresholdGrid,
    outputs,
)

Marks = NDArray[np.uint8]
Numbers = NDArray[np.int64]

ROWS = 4
"""Totals of conformal sets: mean scores, sizes, sets that are not empty, and the confidences of those."""

CELLS = 448
"""The most cells of a window's curve."""
_BELOW = 192
"""Cells of the curve below the threshold at which its range was chosen. Fewer are rebuilt more often, more cost more."""

# These numbers are arrays, because numpy converts a number at every call.
_FINER = np.array(1 << 30)
"""The extra resolution of confidence remainders."""
_HALVES, _ONES = np.array(2.0 * _FINER), np.array(float(FIXED_POINT))
_NONE, _ONE, _TWO = np.array(0), np.array(1), np.array(2)
_FIRST_RANK, _EPSILON = np.array(1.0), np.array(1e-9)

# A block of probabilities as float64, with its logarithms, fits in the CPU cache.
_BLOCK_ELEMENTS = 1 << 17
# With at most this many classes, sorting all is faster than selecting; also whatever else goes class by class.
_FEW_CLASSES = 16
_SORTED_ELEMENTS = 1 << 17
# Approximate entropies further than this from the threshold are on the right side of it.
_CLOSE = 1e-6

_COUNT, _CONFIDENCE, _REMAINDER, _FIRST = 0, 1, 3, 5
_WHOLE = np.array([[_COUNT, _CONFIDENCE], [_COUNT, _CONFIDENCE + 1]])
"""The totals of all records of which those of filled sets are a part, by stream."""
_MOST_EXACT = np.array((1 << 53) // FIXED_POINT)

STREAMS = np.array([[0], [1]])
"""Raw and scaled, as a column."""


class _LateScores(Scores):
    """Scores whose probabilities are computed only if they are used."""

    def __init__(self, confidence: Floats, make: Callable[[], Floats]) -> None:
        self.__dict__.update(confidence=confidence, _sets={}, _make=make)

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.confidence)

    @cached_property
    def probabilities(self) -> Floats:
        """Class-major probabilities."""
        made: Floats = self.__dict__["_make"]()
        return made


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of records' mean scores at thresholds, for one stream: those in cells at or above the floors, and some below."""

    record: Integers
    """The record of each step; the first steps of all records, those of their largest probabilities, come first."""
    cell: Integers
    step: Floats
    """An integer, in fixed point; the first step of a record is its confidence."""
    first: int
    """The number of first steps."""
    sure: Floats | None = None
    """The confidences of the decisions, by first step, in fixed point; None if they are the first steps."""


@dataclass(frozen=True, slots=True)
class GroupSteps:
    """The steps of groups of records that are in the same windows."""

    group: Integers
    cell: Integers
    totals: Numbers
    """The four totals of conformal sets, shape (4, steps)."""

    @classmethod
    def of(cls, steps: Steps, group: Integers, groups: int, lowest: int, highest: int) -> "GroupSteps":
        """Return the steps of records in these groups, those above the cell `highest` in it, those below `lowest` under it."""
        width = highest - lowest + 2
        cell = np.minimum(np.maximum(steps.cell, lowest - 1), highest) - (lowest - 1)
        first, rest = slice(None, steps.first), slice(steps.first, None)
        sure = steps.step[first] if steps.sure is None else steps.sure
        if groups * width > len(cell):
            totals = np.zeros((ROWS, len(cell)), dtype=np.int64)
            totals[0], totals[1], totals[2, first], totals[3, first] = steps.step, 1, 1, sure
            return cls(group[steps.record], cell + (lowest - 1), totals)
        # Groups of many records have many steps in each cell: added up once for all windows.
        place, size = group[steps.record] * width + cell, groups * width
        added = np.empty((ROWS, size))
        added[2] = np.bincount(place[first], minlength=size)
        added[3] = np.bincount(place[first], sure, size)
        largest = added[3] if steps.sure is None else np.bincount(place[first], steps.step[first], size)
        added[0] = np.bincount(place[rest], steps.step[rest], size) + largest
        added[1] = np.bincount(place[rest], minlength=size) + added[2]
        cells = np.tile(np.arange(lowest - 1, highest + 1), groups)
        return cls(np.repeat(np.arange(groups), width), cells, added.astype(np.int64))


@dataclass(frozen=True, slots=True)
class Measures:
    """The sums of records, shape (sums, records) without those of the sets at fixed thresholds, and decided classes."""

    sums: Floats
    """Integers, in fixed point."""
    predicted: Integers
    cells: Integers | None
    """The cells of the confidences; None if the reference is old."""
    top: Floats
    """The largest probabilities, raw."""
    confidences: list[Floats] | None
    """Of the decisions, raw and scaled; None if the largest probabilities decide."""
    performance: Iterable[PerformanceMeasures] = ()


class Gauge:
    """The measuring of records for one reference. Immutable, and shared by all windows of the reference.

    A record's costly part, which needs all its logarithms, is derived once and kept: the softmax denominator of the scaled
    stream, and which side of the entropy thresholds it is on.
    """

    def __init__(self, calibration: Calibration, shown: Sequence[Target] | None = None) -> None:
        self.calibration = calibration
        ranked = [_ranked(calibration, scaled=scaled) for scaled in (False, True)]
        cuts = [_cut(calibration, some, scaled=scaled) for scaled, some in zip((False, True), ranked, strict=True)]
        self.grids = tuple(ThresholdGrid(np.append(some, cut)) for some, cut in zip(ranked, cuts, strict=True))
        self.cells = tuple(min(CELLS, grid.cells - 1) for grid in self.grids)
        """The cells of a window's curve, by stream. Cell 0 of the grid is below every threshold."""
        wanted = targets(calibration.classes) if shown is None else tuple(shown)
        self.performance = None
        """The measuring of performance, for the targets that are shown; None if there are none, or the reference is old."""
        if calibration.performance is not None and wanted:
            self.performance = PerformanceGauge(calibration.performance, calibration.temperature, wanted)
        # By rank from 1, first raw, then scaled.
        ranks = len(ranked[0])
        self._ranks, self._last_rank, self._levels = np.array(ranks), np.array(float(ranks)), np.array(ranks + 1.0)
        above = [np.searchsorted(grid.thresholds, some) + 1 for grid, some in zip(self.grids, ranked, strict=True)]
        self._above = np.concatenate([[0], *above])
        self._log_floor = float(np.log(np.array([FLOOR]))[0])
        self.fixed_cells = [
            int(np.searchsorted(grid.thresholds, cut)) + 1 for grid, cut in zip(self.grids, cuts, strict=True)
        ]
        """The first cell above the fixed threshold of each stream."""
        self._slices: dict[str, slice] = {}
        self._summed: list[CalibratedEstimator] = []
        self._entropies: list[CalibratedEstimator] = []
        self._thresholded: list[tuple[CalibratedEstimator, np.float32]] = []
        self._interpolated: list[tuple[CalibratedEstimator, LinearCurve]] = []
        place = self._place_sums()
        self._calibrated = next(
            one.estimator for one in calibration.estimators if isinstance(one.estimator, CalibratedConfidence)
        )
        self.members = None if calibration.adaptive_weight is None else MemberValues(calibration)
        """What detectors of changes watch; None if the reference is old."""
        self._sets = [slice(place, place + ROWS), slice(place + ROWS, place + 2 * ROWS)]
        self.sums = place + 2 * ROWS
        """The number of sums of a window."""
        self.moving = [slice(self.sums, self.sums + ROWS), slice(self.sums + ROWS, self.sums + 2 * ROWS)]
        """By stream, the totals of the sets at the threshold of cpc_ac, behind the sums."""
        self.totals = self.sums + 2 * ROWS
        for one in calibration.estimators:
            if isinstance(one.estimator, Conformal):
                self._slices[one.form.name] = (self.moving if _moves(one) else self._sets)[one.form.scaled]
        # For means of sets: sizes and shares are counts; mean scores and confidences are rounded once.
        sets = np.array([some.start for some in (*self._sets, *self.moving)])
        self._ones = np.full((self.totals, 1), FIXED_POINT)
        self._ones[np.concatenate([sets + 1, sets + 2])] = 1
        self._rounded = np.concatenate([sets, sets + 3])

    def _place_sums(self) -> int:
        """Choose how each estimator without conformal sets is summed, and where; return the place behind their sums."""
        place = _FIRST
        one_record = Scores(np.ones((self.calibration.classes, 1)))
        for one in self.calibration.estimators:
            scaled, estimator = one.form.scaled, one.estimator
            if isinstance(estimator, Conformal):
                continue
            # Subclasses may contribute something else.
            if type(estimator) in {AverageConfidence, DifferenceOfConfidences}:
                self._slices[one.form.name] = slice(_CONFIDENCE + scaled, _CONFIDENCE + scaled + 1)
                continue
            curve = _curve(one)
            if curve is not None:
                self._interpolated.append((one, curve))
            elif type(estimator) is ThresholdedConfidence:
                self._thresholded.append((one, np.float32(estimator.threshold)))
            else:
                (self._entropies if type(estimator) is ThresholdedEntropy else self._summed).append(one)
            rows = len(estimator.contributions(one_record, 1.0))
            self._slices[one.form.name] = slice(place, place + rows)
            place += rows
        return place

    @property
    def counts(self) -> int:
        """The number of counts of a window: of decided classes, and of cells of confidences, which an old reference lacks."""
        kept = self.calibration.outputs
        return self.calibration.classes + (0 if kept is None else len(kept.confidence))

    @property
    def bytes_per_window(self) -> int:
        """The memory of one window's totals."""
        performance = 0 if self.performance is None else self.performance.totals
        return 8 * (self.sums + ROWS * sum(self.cells) + performance + 2) + 4 * self.counts

    @property
    def bytes_shared(self) -> int:
        """The memory of the shared tables."""
        return sum(grid.nbytes for grid in self.grids) + self._above.nbytes

    def derive(self, vectors: Singles) -> tuple[Floats, Marks]:
        """Return what is kept of each record: softmax denominators, and marks of the entropies."""
        denominators, marks = np.empty(len(vectors)), np.zeros(len(vectors), dtype=np.uint8)
        for rows in self._blocks(len(vectors)):
            denominators[rows], marks[rows] = self._derive(vectors[rows])
        return denominators, marks

    def _blocks(self, records: int) -> Iterator[slice]:
        rows = max(16, _BLOCK_ELEMENTS // self.calibration.classes)
        return (slice(start, start + rows) for start in range(0, records, rows))

    def _derive(self, vectors: Singles) -> tuple[Floats, Marks]:
        if len(vectors) == 1:
            # A single column would be summed in another order.
            denominators, marks = self._derive(np.repeat(vectors, 2, axis=0))
            return denominators[:1], marks[:1]
        # As `scale` and `Scores.negative_entropy` compute it, to the bit, with one logarithm for all.
        products = np.empty(vectors.shape[::-1])
        products[...] = vectors.T
        logs = np.maximum(products, TINY)
        np.log(logs, out=logs)
        products *= logs
        entropy = np.add.reduce(products, axis=0)
        np.maximum(logs, self._log_floor, out=logs)
        logs /= self.calibration.temperature
        logs -= np.max(logs, axis=0)
        np.exp(logs, out=products)
        denominators = np.add.reduce(products, axis=0)
        products *= logs
        scaled_entropy = np.add.reduce(products, axis=0) / denominators - np.log(denominators)
        marks = np.zeros(len(vectors), dtype=np.uint8)
        for bit, one in enumerate(self._entropies):
            threshold = np.float32(cast("ThresholdedEntropy", one.estimator).threshold)
            score = (scaled_entropy if one.form.scaled else entropy).astype(np.float32)
            if one.form.scaled:
                # This one is approximate.
                close = np.flatnonzero(np.abs(scaled_entropy - threshold) <= _CLOSE * max(1.0, abs(float(threshold))))
                if len(close):
                    exact = outputs(vectors[np.append(close, close[0])], self.calibration.temperature).scaled
                    score[close] = exact.negative_entropy[:-1]
            marks |= ((score > threshold) << (2 * bit)).astype(np.uint8)
            marks |= ((score == threshold) << (2 * bit + 1)).astype(np.uint8)
        return denominators, marks

    def measure(
        self, vectors: Singles, denominators: Floats, marks: Marks, decided: Integers | None = None
    ) -> Measures:
        """Return the sums of records, except those of conformal sets; `decided` is needed only if records decide."""
        largest, predicted = _largest(vectors)
        top, decision = largest.astype(np.float64), self.calibration.decision
        confidences, sure = [top, 1.0 / denominators], None
        if decision.by is not DecidedBy.ARGMAX:
            predicted = decision.taken(vectors, decided)
            confidences = sure = self._confidences(vectors, top, denominators, predicted)
        sums = np.empty((self._sets[0].start, len(vectors)))
        sums[_COUNT] = 1.0
        late: list[Scores] = []
        for stream, confidence in enumerate(confidences):
            exact = confidence * FIXED_POINT
            coarse = np.rint(exact, out=sums[_CONFIDENCE + stream])
            exact -= coarse
            exact *= _FINER
            np.rint(exact, out=sums[_REMAINDER + stream])
            late.append(_LateScores(confidence, lambda stream=stream: self._probabilities(vectors)[stream]))  # type: ignore[misc]
        for bit, one in enumerate(self._entropies):
            rows = sums[self._slices[one.form.name]]
            rows[0] = (marks >> (2 * bit)) & 1
            rows[1] = (marks >> (2 * bit + 1)) & 1
            rows *= FIXED_POINT
        singles = [confidence.astype(np.float32) for confidence in confidences]
        for one, threshold in self._thresholded:
            rows, score = sums[self._slices[one.form.name]], singles[one.form.scaled]
            rows[0], rows[1] = score > threshold, score == threshold
            rows *= FIXED_POINT
        for one, curve in self._interpolated:
            values = curve(singles[one.form.scaled])
            values *= FIXED_POINT
            np.rint(values, out=sums[self._slices[one.form.name].start])
        for one in self._summed:
            # Only conformal forms use the mean confidence, and they are not summed here.
            rows = sums[self._slices[one.form.name]]
            np.multiply(one.estimator.contributions(late[one.form.scaled], 0.0), FIXED_POINT, out=rows)
            np.rint(rows, out=rows)
        performance = (
            () if self.performance is None else list(self.performance.measure(vectors, predicted, denominators))
        )
        kept = self.calibration.outputs
        cells = None if kept is None else output_cells(kept.edges, singles[0])
        return Measures(sums, predicted, cells, top, sure, performance)

    def _confidences(self, vectors: Singles, top: Floats, denominators: Floats, decided: Integers) -> list[Floats]:
        """Return the probabilities of the decided classes, raw and scaled, as `outputs` computes them, to the bit."""
        raw = vectors[np.arange(len(vectors)), decided].astype(np.float64)
        scaled = np.log(np.maximum(raw, FLOOR))
        scaled /= self.calibration.temperature
        highest = np.log(np.maximum(top, FLOOR))
        highest /= self.calibration.temperature
        scaled -= highest
        np.exp(scaled, out=scaled)
        scaled /= denominators
        return [raw, scaled]

    def calibrated(self, vectors: Singles, named: Integers | None = None) -> tuple[Integers, Floats]:
        """Return the decision of each record, and the accuracy of the reference at its confidence."""
        decision, calibrated = self.calibration.decision, self._calibrated
        if decision.by is DecidedBy.ARGMAX:
            confidence, decided = _largest(vectors)
        else:
            decided = decision.taken(vectors, named)
            confidence = vectors[np.arange(len(vectors)), decided]
        curve = next((curve for one, curve in self._interpolated if one.estimator is calibrated), None)
        if curve is not None:
            return decided, curve(confidence)
        return decided, np.interp(confidence.astype(np.float64), calibrated.confidence, calibrated.accuracy)

    def summed(self, measures: Measures, starts: Integers) -> Numbers:
        """Return the sums of groups of consecutive records, shape (sums, groups), with 0 for those of conformal sets."""
        found = np.zeros((self.sums, len(starts)), dtype=np.int64)
        each = measures.sums
        found[: len(each)] = each if len(starts) == each.shape[1] else np.add.reduceat(each, starts, axis=1)
        return found

    def member_values(self, measures: Measures, scaled: Steps) -> Floats:
        """Return what detectors watch of each record; from its steps of the scaled stream, those above the threshold."""
        if self.members is None:
            raise TypeError("totals: expected a reference with `adaptive`, found an old one")
        inside = np.flatnonzero(scaled.cell >= self.fixed_cells[1])
        scores = np.bincount(scaled.record[inside], scaled.step[inside], measures.sums.shape[1])
        calibrated, atc = (self._slices[name].start for name in ("calibrated_confidence", "atc_mc_ts"))
        sums = measures.sums
        passed = sums[atc] + self.members.tie_weight * sums[atc + 1]
        found = (sums[calibrated], passed, sums[_CONFIDENCE + 1], scores)
        return self.members.values(*(one / FIXED_POINT for one in found))

    def _probabilities(self, vectors: Singles) -> tuple[Floats, Floats]:
        both = outputs(np.concatenate([vectors, vectors[:1]]), self.calibration.temperature)
        return both.raw.probabilities[:, :-1], both.scaled.probabilities[:, :-1]

    def steps(
        self, vectors: Singles, measures: Measures, denominators: Floats, floors: Sequence[Integers]
    ) -> list[Steps]:
        """Return by stream the steps of records in cells at or above `floors`, which are given by stream and record.

        Little below the floors is sorted or placed.
        """
        bounds = [grid.thresholds[floor - 1] for grid, floor in zip(self.grids, floors, strict=True)]
        least = np.minimum(bounds[0], self._raw_bound(bounds[1], measures.top, denominators))
        found: list[list[Steps]] = [[], []]
        for rows, sizes, falling in self._selected(vectors, least):
            wide = falling.astype(np.float64)
            record = np.concatenate([rows[:size] for size in sizes])
            found[0].append(self._steps_of(0, wide.copy(), falling, sizes, record))
            np.maximum(wide, FLOOR, out=wide)
            np.log(wide, out=wide)
            wide /= self.calibration.temperature
            highest = np.log(np.maximum(measures.top, FLOOR))
            highest /= self.calibration.temperature
            wide -= highest[record]
            np.exp(wide, out=wide)
            wide /= denominators[record]
            found[1].append(self._steps_of(1, wide, wide.astype(np.float32), sizes, record))
        return [
            _joined(some, None if measures.confidences is None else measures.confidences[stream])
            for stream, some in enumerate(found)
        ]

    def _raw_bound(self, bound: Singles, top: Floats, denominators: Floats) -> Singles:
        """Return a raw probability below which the scaled one is certainly below a bound."""
        with np.errstate(over="ignore"):
            raw = (1.0 - _CLOSE) * top * (bound * (1.0 - _CLOSE) * denominators) ** self.calibration.temperature
            # Near the floor of logarithms all probabilities are equal.
            return np.where(raw <= 2 * FLOOR, -1.0, raw).astype(np.float32)

    def _selected(self, vectors: Singles, least: Singles) -> Iterator[tuple[Integers, list[int], Singles]]:
        """Yield records with their probabilities at or above `least`: all the largest, then all the second, and so on.

        The records are in falling order of how many they have, so that each rank is of the first few: of the given sizes.
        """
        records, classes = vectors.shape
        if classes <= _FEW_CLASSES:
            falling = _sorted(vectors)
            inside = np.array([some >= least for some in falling])
            rows = np.argsort(np.add.reduce(inside.view(np.int8), axis=0, dtype=np.int8), kind="stable")[::-1]
            sizes = [size for size in np.add.reduce(inside, axis=1).tolist() if size]
            if sizes:
                yield rows, sizes, np.concatenate([falling[rank][rows[:size]] for rank, size in enumerate(sizes)])
            return
        place = np.concatenate(
            [
                np.flatnonzero(vectors[rows] >= least[rows, None]) + rows.start * classes
                for rows in self._blocks(records)
            ]
        )
        record = place // classes
        counts = np.bincount(record, minlength=records)
        chosen = vectors.ravel()[place]
        column = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        # Records with about as many are sorted together, so that little is filled.
        order = np.argsort(counts, kind="stable")
        group = np.empty(records, dtype=np.int64)
        group[order] = _groups(counts[order])
        for number in range(int(group.max(initial=-1)) + 1):
            rows_ = order[group[order] == number][::-1]
            most = int(counts[rows_[0]])
            if not most:
                continue
            local = np.zeros(records, dtype=np.int64)
            local[rows_] = np.arange(len(rows_))
            inside_ = slice(None) if len(rows_) == records else np.flatnonzero(group[record] == number)
            padded = np.zeros((len(rows_), most), dtype=np.float32)
            padded[local[record[inside_]], column[inside_]] = chosen[inside_]
            padded.sort(axis=1)
            sizes = (len(rows_) - np.searchsorted(counts[rows_[::-1]], np.arange(1, most + 1))).tolist()
            yield rows_, sizes, np.concatenate([padded[:size, -1 - rank] for rank, size in enumerate(sizes)])

    def _steps_of(
        self, stream: int, falling: Floats, comparable: Singles, sizes: Sequence[int], record: Integers
    ) -> Steps:
        """Return the steps of one stream; `falling` is overwritten."""
        falling *= FIXED_POINT
        ends = np.cumsum(sizes).tolist()
        # Each rank, and the same records one rank before.
        ranks = [
            (slice(end, end + size), slice(start, start + size))
            for start, end, size in zip([0, *ends], ends, sizes[1:], strict=False)
        ]
        for here, before in ranks:
            falling[here] += falling[before]
        for rank, (here, _) in enumerate(ranks, 2):
            falling[here] /= rank
        np.rint(falling, out=falling)
        # Steps are differences of rounded means, so they add up exactly. From the last, so that the means before are there.
        for here, before in reversed(ranks):
            falling[here] -= falling[before]
        return Steps(record, self.grids[stream].cell(comparable), falling, sizes[0])

    @property
    def places(self) -> Mapping[str, slice]:
        """The totals of each estimator by name."""
        return self._slices

    def place_of(self, one: CalibratedEstimator) -> slice:
        """Return the totals of an estimator."""
        if one.form.name not in self._slices:
            raise TypeError(f"totals: expected an estimator of this reference, found {one.form.name!r}")
        return self._slices[one.form.name]

    def means(self, totals: Numbers) -> Floats:
        """Return the means of the totals of windows, shape (windows, totals), as the estimators need them, transposed."""
        records, changed = totals[:, _COUNT], totals.T.copy()
        # The number and confidences of empty sets instead of the others, by threshold and stream.
        others = changed[self._sets[0].start :].reshape(2, 2, ROWS, -1)[:, :, 2:]
        np.subtract(changed.take(_WHOLE, axis=0), others, out=others)
        ones = self._ones * np.maximum(records, _ONE)
        means = np.empty((len(changed) + 1, len(records)))
        means[-1] = np.nan
        np.divide(changed, ones, out=means[:-1])
        # numpy rounds totals above 2**53 before it divides; those of sets are rounded once.
        large = records > _MOST_EXACT
        if np.count_nonzero(large):
            some = np.ix_(self._rounded, large)
            pairs = zip(changed[some].ravel().tolist(), ones[some].ravel().tolist(), strict=True)
            means[some] = np.reshape([total / one for total, one in pairs], (len(self._rounded), -1))
        return means

    def sets(self, stream: int) -> slice:
        """Return the sums of the sets at the fixed threshold of a stream."""
        return self._sets[stream]

    def asked(self, stream: int | Integers, confidence: Floats) -> Integers:
        """Return the first cell above the threshold of cpc_ac in windows with these mean confidences.

        With the column `STREAMS`, for both.
        """
        # The epsilon absorbs rounding errors.
        rank = np.ceil(confidence * self._levels - _EPSILON)
        rank = np.minimum(np.maximum(rank, _FIRST_RANK), self._last_rank).astype(np.int64)
        return np.asarray(self._above.take(rank + stream * self._ranks))


def _largest(vectors: Singles) -> tuple[Singles, Integers]:
    """Return the largest number of each row, and the first place that has it."""
    if vectors.shape[1] > _FEW_CLASSES:
        place = np.argmax(vectors, axis=1)
        return vectors[np.arange(len(vectors)), place], place
    # The same, faster for few.
    columns = vectors.T.copy()
    largest, found = np.maximum.reduce(columns, axis=0), np.zeros(len(vectors), dtype=np.bool_)
    before = np.zeros(len(vectors), dtype=np.int8)
    for column in columns:
        found |= column == largest
        before += ~found
    return largest, before.astype(np.int64)


def _sorted(vectors: Singles) -> list[Singles]:
    """Return the largest number of each row, the second, and so on, with a sorting network: faster than `sort` for few."""
    columns, spare = list(vectors.T.copy()), np.empty(len(vectors), dtype=np.float32)
    for upper, lower in _network(len(columns)):
        one, other = columns[upper], columns[lower]
        np.minimum(one, other, out=spare)
        np.maximum(one, other, out=one)
        columns[lower], spare = spare, other
    return columns


@cache
def _network(size: int) -> list[tuple[int, int]]:
    """Return the pairs of places that Batcher's odd-even mergesort compares."""
    spans = [1 << power for power in range((size - 1).bit_length())]
    return [
        (place, place + distance)
        for span in spans
        for distance in reversed(spans[: spans.index(span) + 1])
        for start in range(distance % span, size - distance, 2 * distance)
        for place in range(start, min(start + distance, size - distance))
        if place // (2 * span) == (place + distance) // (2 * span)
    ]


def _groups(counts: Integers) -> Integers:
    """Return the group of each of some ascending counts: a group padded to its largest has a limited size."""
    group, start, number = np.zeros(len(counts), dtype=np.int64), 0, 0
    while start < len(counts):
        # Padded to the count at the end, those from the start fit.
        ends = np.arange(start + 1, len(counts) + 1)
        fits = int(np.searchsorted((ends - start) * counts[start:], _SORTED_ELEMENTS, side="right"))
        end = start + max(1, fits)
        group[start:end] = number
        start, number = end, number + 1
    return group


def _joined(some: Sequence[Steps], confidence: Floats | None) -> Steps:
    """Return steps of several records together, with the confidences of their decisions, unless they are the largest."""
    steps = _one_after_another(some)
    return steps if confidence is None else replace(steps, sure=_rounded(confidence[steps.record[: steps.first]]))


def _rounded(values: Floats) -> Floats:
    """Return numbers in fixed point, as floats."""
    return np.rint(values * FIXED_POINT)


def _one_after_another(some: Sequence[Steps]) -> Steps:
    if len(some) == 1:
        return some[0]
    parts = [(slice(None, one.first), one) for one in some] + [(slice(one.first, None), one) for one in some]
    record, cell = (
        np.concatenate([np.empty(0, dtype=np.int64), *(getattr(one, name)[part] for part, one in parts)])
        for name in ("record", "cell")
    )
    step = np.concatenate([np.empty(0), *(one.step[part] for part, one in parts)])
    return Steps(record, cell, step, sum(one.first for one in some))


def _curve(one: CalibratedEstimator) -> LinearCurve | None:
    """Return the curve of an estimator that interpolates one, at confidences in single precision."""
    if type(one.estimator) is not CalibratedConfidence:
        return None
    corners = one.estimator.confidence.astype(np.float32)
    return LinearCurve(corners, one.estimator.accuracy) if np.array_equal(corners, one.estimator.confidence) else None


def _moves(one: CalibratedEstimator) -> bool:
    return isinstance(one.estimator, ConformalAtConfidence | AnchoredAtConfidence)


def _ranked(calibration: Calibration, *, scaled: bool) -> Singles:
    """Return the calibration scores, which are all possible thresholds."""
    for one in calibration.estimators:
        if isinstance(one.estimator, ConformalAtConfidence) and one.form.scaled is scaled:
            return one.estimator.ranked
    raise LookupError("estimators: expected cpc_ac, found none")


def _cut(calibration: Calibration, ranked: Singles, *, scaled: bool) -> np.float32:
    """Return the fixed threshold; raises LookupError if a conformal form has another, or other calibration scores."""
    cuts = set()
    for one in calibration.estimators:
        if isinstance(one.estimator, Conformal) and one.form.scaled is scaled:
            levels = np.array([0.0, 0.5, 1.0])
            wanted = ConformalAtConfidence(ranked).threshold(levels)
            found = one.estimator.threshold(levels)
            if not _moves(one):
                cuts.add(np.float32(found[0]))
                wanted = np.full_like(found, found[0])
            if not np.array_equal(found, wanted):
                raise LookupError(
                    f"estimators: expected thresholds of cpc_acc or cpc_ac, found others of {one.form.name}"
                )
    if len(cuts) != 1:
        raise LookupError(f"estimators: expected one threshold of cpc_acc, found {len(cuts)}")
    return cuts.pop()


class TotalsTable:
    """The totals of many windows, one row each: sums, counts of decided classes and of confidences, and a curve of conformal sets for each stream.

    A curve has a range of consecutive cells of the grid: everything above is in its last cell, and everything below is left
    out. A threshold outside the range is answered after the curve was rebuilt from the window's records.
    """

    def __init__(self, gauge: Gauge) -> None:
        self.gauge = gauge
        self.rows = 0
        """The number of rows, some of them free."""
        self._free: list[int] = []
        self.sums = np.zeros((0, gauge.sums), dtype=np.int64)
        self.counts = np.zeros((0, gauge.counts), dtype=np.int32)
        self.performance = np.zeros((0, gauge.performance.totals if gauge.performance else 0), dtype=np.int64)
        # With a spare row behind, so that the end of a curve is a place in the table.
        self.curves = [np.zeros((1, ROWS, cells), dtype=np.int64) for cells in gauge.cells]
        self._arrays: list[tuple[NDArray[Any], int]] = [
            (self.sums, 0),
            (self.counts, 0),
            (self.performance, 0),
            *((curve, 1) for curve in self.curves),
        ]
        self._cells = np.array(gauge.cells)[:, None]
        self.low = np.zeros((2, 0), dtype=np.int64)
        """The first cell of each curve, by stream and row; 0 if no range was chosen."""

    def new(self) -> int:
        """Return a row of zeros."""
        if not self._free:
            rows = self.rows + max(1, self.rows >> 3)
            for array, spare in self._arrays:
                array.resize((rows + spare, *array.shape[1:]), refcheck=False)
            self.low = np.concatenate([self.low, np.zeros((2, rows - self.rows), dtype=np.int64)], axis=1)
            self._free = list(range(rows - 1, self.rows - 1, -1))
            self.rows = rows
        return self._free.pop()

    def release(self, row: int) -> None:
        """Give a row back."""
        for array, _ in self._arrays:
            array[row] = 0
        self.low[:, row] = 0
        self._free.append(row)

    def add(self, sums: Numbers, rows: Integers, signs: Integers) -> None:
        """Add the sums of groups of records, shape (sums, groups), to windows.

        Rows of windows and signs, 1, -1, or 0 for not at all, are given by place and group.
        """
        place, group = np.nonzero(signs)
        added = sums.T[group] * signs[place, group][:, None]
        where = rows[place, group][:, None] * self.gauge.sums + np.arange(self.gauge.sums)
        np.add.at(self.sums.reshape(-1), where.reshape(-1), added.reshape(-1))

    def add_counts(self, measures: Measures, group: Integers, rows: Integers, signs: Integers) -> None:
        """Add the decided classes and the cells of confidences of records in these groups."""
        width, groups, column = self.counts.shape[1], rows.shape[1], measures.predicted
        if measures.cells is not None:
            column = np.concatenate([column, measures.cells + self.gauge.calibration.classes])
            group = np.concatenate([group, group])
        count = np.ones(len(group), dtype=np.int32)
        if groups * width <= len(group):
            found = np.bincount(group * width + column)
            used = np.flatnonzero(found)
            group, column = np.divmod(used, width)
            count = found[used].astype(np.int32)
        for row, sign in zip(rows, signs.astype(np.int32), strict=True):
            np.add.at(self.counts.reshape(-1), row[group] * width + column, sign[group] * count)

    def add_performance(
        self, measures: Iterable[PerformanceMeasures], group: Integers, rows: Integers, signs: Integers
    ) -> None:
        """Add the performance of records in these groups."""
        width, groups, flat = self.performance.shape[1], rows.shape[1], self.performance.reshape(-1)
        for some in measures:
            column, value, of_group = some.column, some.value, group[some.rows]
            entry = of_group[some.record]
            if groups * width <= len(entry):
                # Groups of many records have many entries in each column: added up once for all windows, exactly.
                found = np.bincount(entry * width + column, value)
                used = np.flatnonzero(found)
                entry, column = np.divmod(used, width)
                value = found[used].astype(np.float64)
            added = value.astype(np.int64)
            starts = np.flatnonzero(np.diff(of_group, prepend=-1))
            scaled = np.add.reduceat(some.scaled, starts, axis=1, dtype=np.int64)
            mixed = np.arange(width - len(scaled), width)
            for row, sign in zip(rows, signs, strict=True):
                np.add.at(flat, row[entry] * width + column, added * sign[entry])
                some_rows, some_signs = row[of_group[starts]], sign[of_group[starts]]
                np.add.at(flat, (some_rows * width + mixed[:, None]).ravel(), (scaled * some_signs).ravel())

    def choose_ranges(self, stream: int, sums: Numbers, rows: Integers, signs: Integers) -> None:
        """Choose a range for windows that have none, around the threshold for their share of some records."""
        place, group = np.nonzero((signs > 0) & (self.low[stream, rows] == 0))
        if not len(group):
            return
        new, window = np.unique(rows[place, group], return_inverse=True)
        records, confidence = (np.bincount(window, sums[row, group]) for row in (_COUNT, _CONFIDENCE + stream))
        self.low[stream, new] = np.maximum(1, self.gauge.asked(stream, confidence / FIXED_POINT / records) - _BELOW)

    def steps(
        self,
        vectors: Singles,
        measures: Measures,
        denominators: Floats,
        group: Integers,
        rows: Integers,
        signs: Sequence[Integers],
    ) -> tuple[list[GroupSteps], Steps]:
        """Return by stream the steps that the windows of groups of records need, with signs by stream.

        And those of the records themselves, scaled.
        """
        needed = [self._needed(stream, rows, some) for stream, some in enumerate(signs)]
        found = self.gauge.steps(vectors, measures, denominators, [floors[group] for floors, _ in needed])
        grouped = [
            GroupSteps.of(steps, group, rows.shape[1], int(floors.min()), highest)
            for steps, (floors, highest) in zip(found, needed, strict=True)
        ]
        return grouped, found[1]

    def _needed(self, stream: int, rows: Integers, signs: Integers) -> tuple[Integers, int]:
        """Return for each group the lowest cell that is needed of it, and the highest that is needed of any."""
        low, cut = self.low[stream, rows], self.gauge.fixed_cells[stream]
        floors = np.minimum.reduce(np.where(signs, low, cut), axis=0)
        highest = max(cut, int(low.max()) + self.gauge.cells[stream] - 1)
        return np.minimum(floors, cut), min(highest, len(self.gauge.grids[stream].thresholds))

    def add_sets(self, steps: Sequence[GroupSteps], rows: Integers, signs: Integers) -> None:
        """Add the totals of the sets at the fixed thresholds, which are the steps above them."""
        groups = rows.shape[1]
        found = np.zeros((self.gauge.sums, groups), dtype=np.int64)
        for stream, some in enumerate(steps):
            inside = np.flatnonzero(some.cell >= self.gauge.fixed_cells[stream])
            for row, totals in zip(found[self.gauge.sets(stream)], some.totals, strict=True):
                np.add.at(row, some.group[inside], totals[inside])
        self.add(found, rows, signs)

    def add_steps(self, stream: int, steps: GroupSteps, rows: Integers, signs: Integers) -> None:
        """Add steps to the curves of windows."""
        cells, low = self.gauge.cells[stream], self.low[stream][rows]
        flat = self.curves[stream].reshape(-1)
        # By place and group: the lowest cell that is counted, and the place of cell 0 in the table.
        lowest = np.where(signs, low, len(self.gauge.grids[stream].thresholds) + 1)
        origin = rows * (ROWS * cells) - low
        for least, start, sign in zip(lowest, origin, signs, strict=True):
            kept = np.flatnonzero(steps.cell >= least[steps.group])
            group = steps.group[kept]
            place = np.minimum(steps.cell[kept], least[group] + (cells - 1)) + start[group]
            factor = sign[group]
            for number, totals in enumerate(steps.totals):
                np.add.at(flat[number * cells :], place, totals[kept] * factor)

    def cells_at(self, rows: Integers, asked: Integers) -> tuple[Integers, Booleans]:
        """Return the cells of thresholds in the curves of windows, shape (2, windows), and which are outside of them."""
        low = self.low.take(rows, axis=1)
        # A window without a range has no records.
        cells = (asked - low) * np.minimum(low, _ONE)
        return cells, np.asarray((cells < _NONE) | (cells >= self._cells))

    def clear(self, stream: int, row: int, asked: int) -> None:
        """Empty a curve, to be rebuilt in a range around a threshold."""
        self.curves[stream][row] = 0
        self.low[stream, row] = max(1, asked - _BELOW)

    def zero(self) -> None:
        """Empty all totals."""
        for array, _ in self._arrays:
            array[...] = 0

    def sets_at(self, rows: Integers, cells: Integers) -> Numbers:
        """Return the totals of the sets at a cell of each window by stream, shape (windows, 8)."""
        found = np.empty((len(rows), 2 * ROWS), dtype=np.int64)
        if len(rows) == 1:
            sets = found.reshape(2, ROWS)
            for stream, curve in enumerate(self.curves):
                np.add.reduce(curve[rows.item(), :, cells.item(stream) :], axis=1, out=sets[stream])
        elif len(rows):
            # Between the end of one and the start of the next everything is summed too, so in the order of the table.
            order = np.argsort(rows, kind="stable")
            starts = rows[order, None] * ROWS + np.arange(ROWS)
            for stream, curve in enumerate(self.curves):
                pairs = np.empty((len(rows), ROWS, 2), dtype=np.int64)
                pairs[:, :, 0] = starts * curve.shape[2] + cells[stream, order, None]
                pairs[:, :, 1] = (starts + 1) * curve.shape[2]
                places = pairs.reshape(-1)
                flat = curve.reshape(-1)[places[0] : places[-1] + 1]
                sums = np.add.reduceat(flat, places - places[0])[::2].reshape(-1, ROWS)
                found[order, stream * ROWS : (stream + 1) * ROWS] = sums
        return found


def mean_confidences(sums: Numbers) -> Floats:
    """Return the mean confidences of windows by stream, correctly rounded; 0 for a window without records."""
    columns = sums.T
    records = np.maximum(columns[_COUNT], _ONE)
    whole, left = np.divmod(columns[_CONFIDENCE : _CONFIDENCE + 2], records)
    finer, rest = np.divmod(left * _FINER + columns[_REMAINDER : _REMAINDER + 2], records)
    # What is left after that matters only in being more than nothing: halves of the result are far above it.
    halves = finer * _TWO + np.minimum(rest, _ONE)
    return np.asarray((whole + halves / _HALVES) / _ONES)


@dataclass(frozen=True, eq=False)
class MeasuredWindows:
    """A snapshot of the totals of several windows, and their means."""

    gauge: Gauge
    totals: Numbers
    """The sums, then the totals of the sets at the threshold of cpc_ac; shape (windows, totals)."""
    confidences: Floats
    """Mean confidences, raw and scaled."""
    counts: Numbers
    """The decisions per class, then the confidences per cell, shape (windows, counts)."""
    of_performance: Numbers
    """The totals of performance, shape (windows, totals)."""

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.totals)

    @property
    def records(self) -> Numbers:
        """Records of each window."""
        return self.totals[:, _COUNT]

    @property
    def predicted(self) -> Numbers:
        """The decisions per class, shape (windows, classes)."""
        return self.counts[:, : self.gauge.calibration.classes]

    @property
    def confidence(self) -> Numbers:
        """The confidences per cell, shape (windows, cells); no cells if the reference is old."""
        return self.counts[:, self.gauge.calibration.classes :]

    def mean_confidence(self, *, scaled: bool) -> Floats:
        """Return the mean confidences."""
        return np.asarray(self.confidences[int(scaled)])

    def performance(self) -> MeasuredPerformance | None:
        """Return the expected confusion; None for a reference without it."""
        gauge = self.gauge.performance
        return None if gauge is None else gauge.measured(self.of_performance, self.records, self.predicted)

    @cached_property
    def _means(self) -> Floats:
        return self.gauge.means(self.totals)

    def means(self, one: CalibratedEstimator) -> Floats:
        """Return the means of an estimator's contributions, shape (contributions, windows)."""
        return self._means[self.gauge.place_of(one)]

    def all_means(self) -> tuple[Floats, Mapping[str, slice]]:
        """Return the means of all estimators, behind them a row of NaN; and the rows of each form."""
        return self.gauge.means(self.totals), self.gauge.places

    def estimate(self, index: int = 0, failed: Failed | None = None) -> WindowEstimate:
        """Return all estimates of one window."""
        return self.gauge.calibration.estimate_windows(self, failed=failed).window(index)


def totals_of(gauge: Gauge, vectors: Singles, decided: Integers | None = None) -> MeasuredWindows:
    """Return the totals of records, as of one window; `decided` is needed only if records decide."""
    table = TotalsTable(gauge)
    row, (denominators, marks) = table.new(), gauge.derive(vectors)
    rows, signs = np.full((1, 1), row), np.ones((1, 1), dtype=np.int64)
    pieces = [slice(start, start + MOST_TOGETHER) for start in range(0, len(vectors), MOST_TOGETHER)]
    measured = []
    for piece in pieces:
        some = None if decided is None else decided[piece]
        measures = gauge.measure(vectors[piece], denominators[piece], marks[piece], some)
        group = np.zeros(len(measures.top), dtype=np.int64)
        table.add(gauge.summed(measures, group[:1]), rows, signs)
        table.add_counts(measures, group, rows, signs)
        table.add_performance(measures.performance, group, rows, signs)
        measured.append(measures)
    confidences = mean_confidences(table.sums[[row]])
    asked = gauge.asked(STREAMS, confidences)
    for stream in (0, 1):
        table.clear(stream, row, int(asked[stream, 0]))
    for piece, measures in zip(pieces, measured, strict=True):
        group = np.zeros(len(measures.top), dtype=np.int64)
        both, _ = table.steps(vectors[piece], measures, denominators[piece], group, rows, [signs, signs])
        table.add_sets(both, rows, signs)
        for stream, steps in enumerate(both):
            table.add_steps(stream, steps, rows, signs)
    counts, sets = table.counts[[row]].astype(np.int64), table.sets_at(rows[0], table.cells_at(rows[0], asked)[0])
    totals = np.concatenate([table.sums[rows[0]], sets], axis=1)
    return MeasuredWindows(gauge, totals, confidences, counts, table.performance[rows[0]])


def member_values(gauge: Gauge, vectors: Singles, decided: Integers | None = None) -> Floats:
    """Return what detectors of changes watch of each record, shape (members, records)."""
    denominators, marks = gauge.derive(vectors)
    found = [np.empty((len(MEMBERS), 0))]
    for start in range(0, len(vectors), MOST_TOGETHER):
        piece = slice(start, start + MOST_TOGETHER)
        some = None if decided is None else decided[piece]
        measures = gauge.measure(vectors[piece], denominators[piece], marks[piece], some)
        floors = [np.full(len(measures.top), cell) for cell in gauge.fixed_cells]
        found.append(
            gauge.member_values(measures, gauge.steps(vectors[piece], measures, denominators[piece], floors)[1])
        )
    return np.concatenate(found, axis=1)
