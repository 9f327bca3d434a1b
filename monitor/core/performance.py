"""Estimated performance beyond accuracy: sensitivity, specificity, predictive values, F1, AUROC, and the class mix.

Isotonic regression on the reference, of each class against the rest, turns a record's probabilities into the expected share of
each true class. Added up over a window, by decision, they are its expected confusion, from which the metrics follow. Assumes
that the curves of the reference hold in the window; does not detect confident errors.

The totals of a window are integers that add and subtract exactly, as in `core.totals`. No I/O, no clock.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.core.class_mix import MixSolver
from monitor.core.estimate import Interval, Why
from monitor.core.intervals import unseen_share, widened
from monitor.core.scores import (
    FIXED_POINT,
    FLOOR,
    MOST_TOGETHER,
    Floats,
    Integers,
    Singles,
    ThresholdGrid,
    in_blocks,
)

Numbers = NDArray[np.int64]

FEWEST_CASES = 10
"""Expected cases of a metric, in the window and in the reference: with fewer, it cannot be estimated."""
MOST_SHOWN = 20
"""With more classes, metrics are estimated for the watched ones, and averaged over all."""
MOST_MIXED = 50
"""With more classes there is no class mix."""
MIXED_ONE = 1 << 24
"""1.0 in the totals of scaled probabilities, which have single precision."""
# A block and what is derived from it fit in the CPU cache, and in memory that the allocator keeps.
_BLOCK_ELEMENTS = 1 << 15
_MOST_TABLE = 1 << 20
CELLS = 512
"""Cells of the score for AUROC, at quantiles of the reference."""


class Metric(StrEnum):
    """Metrics of decisions. The names are public: settings and label values."""

    SENSITIVITY = "sensitivity"
    SPECIFICITY = "specificity"
    PPV = "ppv"
    """Positive predictive value, or precision."""
    NPV = "npv"
    F1 = "f1"
    AUROC = "auroc"


WORDS = {
    Metric.SENSITIVITY: "sensitivity",
    Metric.SPECIFICITY: "specificity",
    Metric.PPV: "positive predictive value (PPV)",
    Metric.NPV: "negative predictive value (NPV)",
    Metric.F1: "F1",
    Metric.AUROC: "AUROC",
}
"""The metrics as people call them."""


def words_of(metric: Metric, of_class: str | None) -> str:
    """Return a metric of a class, by name, in words; without a class, of all."""
    if of_class is not None:
        return f"{WORDS[metric]} of {of_class}"
    return WORDS[metric] if metric is Metric.AUROC else f"{WORDS[metric]} (macro average)"


OF_CLASSES = (Metric.SENSITIVITY, Metric.SPECIFICITY, Metric.PPV, Metric.NPV, Metric.F1)
"""The metrics of one class against the rest; their mean over the classes is the macro average."""


class Target(NamedTuple):
    """What is estimated: a metric of a class, by index; without one, of all (a macro average, or AUROC)."""

    metric: Metric
    of_class: int | None = None


class Performance(NamedTuple):
    """The estimate of one target in one window; without a value, the reason."""

    target: Target
    value: float | None
    interval: Interval | None
    cases: float
    """The expected records that the metric is a share of; for an average over classes, see `_macro`."""
    why: Why | None = None


class MixedShare(NamedTuple):
    """The estimated share of a class in a window, if nothing but the class mix changed."""

    value: float
    interval: Interval


def targets(classes: int, watched: Sequence[int] = (), *, asked: bool = False) -> tuple[Target, ...]:
    """Return what is estimated: every class if they are few, else the watched ones; and averages over all.

    Measuring many classes is costly: nothing is estimated for them unless some are watched, or it is `asked` for.
    """
    many = classes > MOST_SHOWN
    if many and not (watched or asked):
        return ()
    found = [Target(metric, one) for one in (watched if many else range(classes)) for metric in OF_CLASSES]
    return (*found, *map(Target, OF_CLASSES), *([Target(Metric.AUROC)] if classes == 2 else []))


@dataclass(frozen=True)
class ClassCurves:
    """The frequency of each class on the reference by its probability: isotonic, linear between corners, constant outside."""

    starts: Numbers
    """The first corner of each class."""
    scores: Singles
    """The corners, class by class. The first of a class is where its curve leaves its lowest value."""
    values: Floats

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.starts)

    @cached_property
    def floors(self) -> Floats:
        """The lowest value of each curve."""
        return self.values[self.starts]

    @cached_property
    def floor(self) -> float:
        """The sum of the lowest values."""
        return float(self.floors.sum())

    @cached_property
    def _first_scores(self) -> Singles:
        return self.scores[self.starts]

    @cached_property
    def _keys(self) -> Numbers:
        """The corners in one ascending order: by class, then by score. The bits of positive floats ascend with them."""
        count = np.diff(np.append(self.starts, len(self.scores)))
        return (np.repeat(np.arange(self.classes), count) << 32) + self.scores.view(np.int32)

    @cached_property
    def _grid(self) -> ThresholdGrid:
        return ThresholdGrid(self.scores)

    @cached_property
    def _table(self) -> NDArray[np.int32] | None:
        """The last corner at or below the scores of each cell of the grid, by class; None if that is too much memory."""
        if self.classes * self._grid.cells > _MOST_TABLE:
            return None
        lowest = np.append(np.float32(0.0), self._grid.thresholds)
        keys = (np.arange(self.classes)[:, None] << 32) + lowest.view(np.int32)
        return (np.searchsorted(self._keys, keys.ravel(), side="right") - 1).astype(np.int32)

    def _corner(self, of_class: Integers, scores: Singles) -> Integers:
        """Return the last corner of a class at or below each score."""
        if self._table is None:
            return np.searchsorted(self._keys, (of_class << 32) + scores.view(np.int32), side="right") - 1
        return np.asarray(self._table[of_class * self._grid.cells + self._grid.cell(scores)])

    @cached_property
    def _slopes(self) -> Floats:
        rise, run = np.diff(self.values, append=0.0), np.diff(self.scores.astype(np.float64), append=0.0)
        last = np.append(self.starts[1:], len(self.scores)) - 1
        rise[last], run[last] = 0.0, 1.0
        return np.asarray(rise / run)

    def expected(self, vectors: Singles) -> "ExpectedClasses":
        """Return the expected true classes of records of shape (records, classes)."""
        records, classes = vectors.shape
        # Below, a curve has its lowest value: most of many classes are there.
        entries = np.flatnonzero(vectors > self._first_scores)
        record = entries // classes
        of_class = entries - record * classes
        scores = vectors.ravel()[entries]
        corner = self._corner(of_class, scores)
        above = self._slopes[corner] * (scores.astype(np.float64) - self.scores[corner]) + self.values[corner]
        above -= self.floors[of_class]
        total = np.bincount(record, above, records).astype(np.float64) + self.floor
        return ExpectedClasses(self, record, of_class, above, total)


@dataclass(frozen=True, slots=True)
class ExpectedClasses:
    """The expected share of each true class of records: what is above the lowest values of the curves, entry by entry."""

    curves: ClassCurves
    record: Integers
    of_class: Integers
    above: Floats
    total: Floats
    """The sum over the classes, by which each is divided; 0 if the curves exclude every class, which makes all equal."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which records have any expected class."""
        return np.asarray(self.total > 0.0)

    def of(self, classes: Integers) -> Floats:
        """Return the expected share of one class of each record."""
        value = self.curves.floors[classes]
        own = np.flatnonzero(self.of_class == classes[self.record])
        value[self.record[own]] += self.above[own]
        shares = np.full(len(value), 1.0 / self.curves.classes)
        return np.asarray(np.divide(value, self.total, out=shares, where=self.known))


@dataclass(frozen=True)
class ClassReference:
    """What the estimates of performance keep of a reference."""

    curves: ClassCurves
    cases: Numbers
    """Records of each class."""
    right: Numbers
    """Records decided as their class, by class."""
    decided: Numbers
    """Records decided as each class."""
    auroc: float
    """NaN unless there are two classes."""
    edges: Singles
    """The lower ends of the cells of the second class's probability, for AUROC; empty unless there are two classes."""
    profiles: Floats
    """The mean scaled probabilities of the records of each class, a column a class; empty without a class mix."""
    level: float
    low: Singles
    """Quantiles of the errors by chance, in the order of `every_target`, then of the class mix; NaN if unknown."""
    high: Singles

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.cases)

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.cases.sum())

    @cached_property
    def own(self) -> "Confusion":
        """The realised confusion of the reference, as one window."""
        cases, right = self.cases[:, None].astype(np.float64), self.right[:, None].astype(np.float64)
        return Confusion(np.array([self.records]), cases, right, self.decided[:, None], np.array([self.auroc]))

    def value(self, target: Target) -> float | None:
        """Return the reference's own value of a target; None with too few cases."""
        value, cases = (float(one[0, 0]) for one in self.own.values([target]))
        return None if math.isnan(value) or cases < FEWEST_CASES else value

    @cached_property
    def mixes(self) -> MixSolver:
        """The solver of the class mix."""
        return MixSolver(self.profiles, self.cases[: len(self.profiles)] > 0)


def every_target(classes: int) -> tuple[Target, ...]:
    """Return all targets, in the order in which a reference keeps their errors."""
    of_classes = [Target(metric, one) for metric in OF_CLASSES for one in (*range(classes), None)]
    return (*of_classes, *([Target(Metric.AUROC)] if classes == 2 else []))


@dataclass(frozen=True, eq=False)
class Confusion:
    """Decisions and true classes of windows, expected or realised. Matrices have shape (classes, windows)."""

    records: Integers
    cases: Floats
    """Records of each class."""
    right: Floats
    """Records decided as their class."""
    decided: Integers
    """Records decided as each class."""
    auroc: Floats | None = None

    def metric(self, metric: Metric) -> tuple[Floats, Floats]:
        """Return a metric of each class, and the number of records that it is a share of; NaN if there are none."""
        others, rejected = self.records - self.cases, self.records - self.decided
        if metric is Metric.SENSITIVITY:
            share, of = self.right, self.cases
        elif metric is Metric.SPECIFICITY:
            share, of = others - self.decided + self.right, others
        elif metric is Metric.PPV:
            share, of = self.right, self.decided.astype(np.float64)
        elif metric is Metric.NPV:
            share, of = others - self.decided + self.right, rejected.astype(np.float64)
        else:
            share, of = self.right, (self.cases + self.decided) / 2.0
        # The rounding of each record may leave a little more than nothing, or less.
        some = of > _NOTHING * self.records
        return np.divide(share, of, out=np.full(of.shape, np.nan), where=some).clip(0.0, 1.0), of

    def values(self, wanted: Sequence[Target]) -> tuple[Floats, Floats]:
        """Return targets and the number of records that each is a share of, shape (targets, windows)."""
        values, of = np.full((2, len(wanted), len(self.records)), np.nan)
        for metric in dict.fromkeys(target.metric for target in wanted):
            rows = [row for row, target in enumerate(wanted) if target.metric is metric]
            if metric is Metric.AUROC:
                values[rows] = np.nan if self.auroc is None else self.auroc
                of[rows] = self.cases.min(axis=0)
                continue
            found, denominators = self.metric(metric)
            for row in rows:
                one = wanted[row].of_class
                if one is None:
                    values[row], of[row] = _macro(found, denominators)
                else:
                    values[row], of[row] = found[one], denominators[one]
        return values, of


def _macro(values: Floats, of: Floats) -> tuple[Floats, Floats]:
    """Return the mean over the classes that have a metric, and how many records a share of equal standard error is of.

    Rare classes decide that: with `d` records of each of `K` classes, it is K² / Σ(1/d).
    """
    has = ~np.isnan(values)
    classes = has.sum(axis=0)
    parts = np.divide(1.0, of, out=np.zeros(of.shape), where=has)
    mean, records = np.full(len(classes), np.nan), np.zeros(len(classes))
    np.divide(_added(np.where(has, values, 0.0)), classes, out=mean, where=classes > 0)
    np.divide(classes * classes, _added(parts), out=records, where=classes > 0)
    return mean, records


def _added(matrix: Floats) -> Floats:
    """Return the sums over the classes, shape (classes, windows): in the same order for one window as among others."""
    return np.asarray(np.add.accumulate(matrix, axis=0)[-1])


@dataclass(frozen=True, slots=True, eq=False)
class PerformanceEstimates:
    """Estimates of targets in windows, shape (targets, windows); NaN with too few cases."""

    targets: tuple[Target, ...]
    value: Floats
    lower: Floats
    upper: Floats
    cases: Floats

    def window(self, index: int) -> tuple[Performance, ...]:
        """Return the estimates of one window."""
        columns = (self.value, self.lower, self.upper, self.cases)
        rows = zip(self.targets, *(column[:, index].tolist() for column in columns), strict=True)
        return tuple(
            # NaN differs from itself.
            Performance(target, value, Interval(lower, upper), cases)
            if value == value  # noqa: PLR0124
            else Performance(target, None, None, cases, Why.TOO_FEW_CASES)
            for target, value, lower, upper, cases in rows
        )


@dataclass(frozen=True, eq=False)
class MeasuredPerformance:
    """The expected confusion of windows, and their mean scaled probabilities, shape (classes, windows)."""

    reference: ClassReference
    expected: Confusion
    scaled: Floats
    """Empty without a class mix."""
    targets: tuple[Target, ...] = ()
    """What a report shows."""

    def at(self, index: int) -> "MeasuredPerformance":
        """Return one of the windows."""
        one = slice(index, index + 1)
        found = self.expected
        auroc = None if found.auroc is None else found.auroc[one]
        expected = Confusion(found.records[one], found.cases[:, one], found.right[:, one], found.decided[:, one], auroc)
        return replace(self, expected=expected, scaled=self.scaled[:, one])

    def padded(self, windows: int) -> "MeasuredPerformance":
        """Return the windows, and some without records behind them."""
        found = self.expected

        def wider(matrix: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([matrix, np.zeros((*matrix.shape[:-1], windows), dtype=matrix.dtype)], axis=-1)

        auroc = None if found.auroc is None else wider(found.auroc)
        expected = Confusion(wider(found.records), wider(found.cases), wider(found.right), wider(found.decided), auroc)
        return replace(self, expected=expected, scaled=wider(self.scaled))

    def estimates(self, wanted: Sequence[Target] | None = None) -> PerformanceEstimates:
        """Return the estimates of targets with their intervals; without `wanted`, of those that a report shows."""
        wanted = self.targets if wanted is None else wanted
        reference = self.reference
        value, cases = self.expected.values(wanted)
        _, of_reference = reference.own.values(wanted)
        order = {target: place for place, target in enumerate(every_target(reference.classes))}
        places = [order[target] for target in wanted]
        low, high = reference.low[places, None], reference.high[places, None]
        value[(cases < FEWEST_CASES) | (of_reference < FEWEST_CASES) | np.isnan(low)] = np.nan
        # One more error takes a case from the others, and half a case from F1.
        weight = np.array([[0.5 if target.metric is Metric.F1 else 1.0] for target in wanted])
        lower, upper = _bounds(value, low, high, cases, of_reference, weight, reference.level)
        return PerformanceEstimates(tuple(wanted), value, lower, upper, cases)

    def mix(self) -> Floats:
        """Return the share of each class if nothing but the mix changed, shape (classes, windows); empty for many classes."""
        reference = self.reference
        value = reference.mixes.solve(self.scaled)
        value[:, self.expected.records == 0] = np.nan
        return value

    def class_mix(self) -> "ClassMix":
        """Return the class mix with its intervals."""
        reference, value = self.reference, self.mix()
        rows = slice(len(every_target(reference.classes)), None)
        low, high = reference.low[rows, None], reference.high[rows, None]
        value[(reference.cases[: len(value)] == 0) | np.isnan(low[:, 0])] = np.nan
        records, of_reference = self.expected.records[None], np.array([[reference.records]])
        lower, upper = _bounds(value, low, high, records, of_reference, np.ones((1, 1)), reference.level)
        return ClassMix(value, lower, upper)


@dataclass(frozen=True, slots=True, eq=False)
class ClassMix:
    """The share of each class in windows, shape (classes, windows), or empty; NaN for a class that the reference does not have."""

    value: Floats
    lower: Floats
    upper: Floats

    def window(self, index: int) -> tuple[MixedShare | None, ...]:
        """Return the share of each class in one window; None for a class that the reference does not have."""
        rows = zip(*(column[:, index].tolist() for column in (self.value, self.lower, self.upper)), strict=True)
        return tuple(
            # NaN differs from itself.
            MixedShare(value, Interval(lower, upper)) if value == value else None  # noqa: PLR0124
            for value, lower, upper in rows
        )


_NOTHING = 1e-9
_COUNTED = 1.0 / FIXED_POINT
"""What adds 1 to a total."""


def unit(cases: Floats | Integers, of_reference: Floats | Integers) -> Floats:
    """Return the unit of errors by chance, for a share of so many records in the window and in the reference."""
    return np.sqrt(1.0 / np.maximum(cases, _NOTHING) + 1.0 / np.maximum(of_reference, _NOTHING))


def _bounds(
    value: Floats,
    low: Singles,
    high: Singles,
    cases: Floats | Integers,
    of_reference: Floats | Integers,
    weight: Floats,
    level: float,
) -> tuple[Floats, Floats]:
    """Return the ends of intervals: errors by chance, widened by errors that chance may have hidden, each of some weight."""
    units = unit(cases, of_reference)
    tail = math.log((1.0 - level) / 2.0)
    unseen = weight * unseen_share(tail, np.maximum(cases, 1.0), np.maximum(of_reference, 1.0))
    below, above = widened(high * units, unseen), widened(-low * units, unseen)
    return np.clip(value - below, 0.0, 1.0), np.clip(value + above, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class PerformanceMeasures:
    """What a block of records adds to the totals of their windows."""

    rows: slice
    """The block."""
    record: Integers
    """The record of each entry, in the block."""
    column: Integers
    value: Floats
    """An integer: a share in fixed point, or 1 for a count."""
    scaled: NDArray[np.int32]
    """The scaled probabilities, shape (classes or 0, records), where `MIXED_ONE` is 1."""


class PerformanceGauge:
    """The measuring of records for one reference. Immutable, and shared by all windows of the reference.

    The totals of a window: by class the expected cases above the lowest values of the curves, and the expected right decisions;
    the share of the lowest values; records without any expected class; for AUROC, expected cases and records of each cell; for
    the class mix, the scaled probabilities.
    """

    def __init__(self, reference: ClassReference, temperature: float, shown: tuple[Target, ...] = ()) -> None:
        self.reference, self._temperature, self._shown = reference, temperature, shown
        classes = reference.classes
        self._right, self._floor, self._unknown, cells = classes, 2 * classes, 2 * classes + 1, 2 * classes + 2
        self._cells = slice(cells, cells + len(reference.edges))
        self._counts = slice(self._cells.stop, self._cells.stop + len(reference.edges))
        self.mixed = slice(self._counts.stop, self._counts.stop + len(reference.profiles))
        """The totals of scaled probabilities."""
        self.totals = self.mixed.stop
        """The number of totals of a window."""

    def measure(self, vectors: Singles, decided: Integers, denominators: Floats) -> Iterator[PerformanceMeasures]:
        """Yield what records add, in blocks; `denominators` are those of their scaled softmax."""
        rows = max(16, min(MOST_TOGETHER, _BLOCK_ELEMENTS // self.reference.classes))
        for start in range(0, len(vectors), rows):
            block = slice(start, start + rows)
            yield self._measure(start, vectors[block], decided[block], denominators[block])

    def _measure(self, start: int, vectors: Singles, decided: Integers, denominators: Floats) -> PerformanceMeasures:
        records, expected = np.arange(len(vectors)), self.reference.curves.expected(vectors)
        inverse = 1.0 / np.where(expected.known, expected.total, 1.0)
        entries = [
            (expected.record, expected.of_class, expected.above * inverse[expected.record]),
            (records, self._right + decided, expected.of(decided)),
        ]
        if self.reference.curves.floor:
            entries.append((records, np.full(len(records), self._floor), self.reference.curves.floor * inverse))
        if len(unknown := np.flatnonzero(~expected.known)):
            entries.append((unknown, np.full(len(unknown), self._unknown), np.full(len(unknown), _COUNTED)))
        if edges := len(self.reference.edges):
            cell = self._cells.start + np.searchsorted(self.reference.edges[1:], vectors[:, 1], side="right")
            entries.append((records, cell, expected.of(np.ones_like(decided))))
            entries.append((records, cell + edges, np.full(len(records), _COUNTED)))
        record, column, value = map(np.concatenate, zip(*entries, strict=True))
        value *= FIXED_POINT
        np.rint(value, out=value)
        block = slice(start, start + len(vectors))
        return PerformanceMeasures(block, record, column, value, self._scaled(vectors, denominators))

    def _scaled(self, vectors: Singles, denominators: Floats) -> NDArray[np.int32]:
        if not len(self.reference.profiles):
            return np.empty((0, len(vectors)), dtype=np.int32)
        # Single precision is enough for a class mix, and several times faster.
        powers = np.maximum(vectors.T, np.float32(FLOOR), order="C")
        np.log(powers, out=powers)
        powers -= np.max(powers, axis=0)
        powers *= np.float32(1.0 / self._temperature)
        np.exp(powers, out=powers)
        powers *= (MIXED_ONE / denominators).astype(np.float32)
        return np.rint(powers, out=powers).astype(np.int32)

    def measured(self, totals: Numbers, records: Integers, decided: Integers) -> MeasuredPerformance:
        """Return windows from their totals, shape (windows, totals), and the decisions by class, shape (windows, classes)."""
        reference, classes = self.reference, self.reference.classes
        shares = totals[:, : self._unknown].T / FIXED_POINT
        cases = shares[:classes] + totals[:, self._unknown] / classes
        if reference.curves.floor:
            cases += (reference.curves.floors / reference.curves.floor)[:, None] * shares[self._floor]
        cells = totals[:, self._cells] / FIXED_POINT
        auroc = _auroc(cells, totals[:, self._counts] - cells) if len(reference.edges) else None
        scaled = totals[:, self.mixed].T / (MIXED_ONE * np.maximum(records, 1))
        expected = Confusion(records, cases, shares[classes : 2 * classes], decided.T, auroc)
        return MeasuredPerformance(reference, expected, scaled, self._shown)

    def measured_windows(
        self, vectors: Singles, decided: Integers, denominators: Floats, lengths: Integers
    ) -> MeasuredPerformance:
        """Return windows of these lengths, one after the other."""
        totals = np.zeros((len(lengths), self.totals), dtype=np.int64)
        of_record = np.repeat(np.arange(len(lengths)), lengths)
        for some in self.measure(vectors, decided, denominators):
            rows = of_record[some.rows]
            np.add.at(totals, (rows[some.record], some.column), some.value.astype(np.int64))
            for column, scaled in zip(totals.T[self.mixed], some.scaled, strict=True):
                np.add.at(column, rows, scaled)
        counts = np.zeros((len(lengths), self.reference.classes), dtype=np.int64)
        np.add.at(counts, (of_record, decided), 1)
        return self.measured(totals, np.asarray(lengths), counts)

    def measured_vectors(self, windows: Sequence[Singles], decided: Sequence[Integers | None]) -> MeasuredPerformance:
        """Return windows of vectors, in bounded memory; `decided` unless by argmax."""
        totals = np.zeros((len(windows), self.totals), dtype=np.int64)
        counts = np.zeros((len(windows), self.reference.classes), dtype=np.int64)
        for vectors, given, row, count in zip(windows, decided, totals, counts, strict=True):
            start = 0
            for block in in_blocks(vectors, self._temperature):
                rows = slice(start, start + block.records)
                taken = np.argmax(vectors[rows], axis=1) if given is None else given[rows]
                # The largest power of the scaled softmax is 1.
                for some in self.measure(vectors[rows], taken, 1.0 / block.scaled.confidence):
                    row[:] += np.bincount(some.column, some.value, len(row)).astype(np.int64)
                    row[self.mixed] += some.scaled.sum(axis=1, dtype=np.int64)
                count[:] += np.bincount(taken, minlength=len(count))
                start = rows.stop
        return self.measured(totals, np.array([len(vectors) for vectors in windows]), counts)


def _auroc(cases: Floats, others: Floats) -> Floats:
    """Return the area under the ROC curve of windows, from cases and others by cell, shape (windows, cells); ties count half."""
    below = np.cumsum(others, axis=1) - others / 2.0
    pairs = cases.sum(axis=1) * others.sum(axis=1)
    ordered = np.add.reduce(cases * below, axis=1)
    return np.asarray(np.divide(ordered, pairs, out=np.full(len(pairs), np.nan), where=pairs > _NOTHING))


def realised(vectors: Singles, decided: Integers, labels: Integers, lengths: Integers | None = None) -> Confusion:
    """Return the confusion of labelled records: one window, or several of these lengths, one after the other."""
    classes = vectors.shape[1]
    lengths = np.array([len(labels)]) if lengths is None else lengths
    window = np.repeat(np.arange(len(lengths)), lengths)
    shape = len(lengths), classes

    def counted(of_class: Integers, rows: NDArray[np.bool_] | slice = slice(None)) -> Integers:
        counts = np.bincount(window[rows] * classes + of_class[rows], minlength=shape[0] * classes)
        return counts.reshape(shape).T

    ends = np.cumsum(lengths)
    auroc = None
    if classes == 2:
        auroc = np.array(
            [
                _exact_auroc(vectors[end - length : end, 1], labels[end - length : end])
                for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
            ]
        )
    right = counted(labels, decided == labels).astype(np.float64)
    return Confusion(lengths, counted(labels).astype(np.float64), right, counted(decided), auroc)


def _exact_auroc(scores: Singles, labels: Integers) -> float:
    _, cell = np.unique(scores, return_inverse=True)
    cases = np.bincount(cell, labels == 1).astype(np.float64)[None]
    return float(_auroc(cases, np.bincount(cell)[None] - cases)[0])
