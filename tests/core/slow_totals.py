"""The totals of records by a slow computation: all entries sorted, every threshold kept, plain Python integers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from monitor.core.decisions import DecidedBy
from monitor.core.estimators.conformal import Conformal
from monitor.core.estimators.ensemble import CalibratedEstimator
from monitor.core.scores import FIXED_POINT, Integers, Outputs, Scores, Singles, fixed, outputs
from monitor.core.totals import Gauge, MeasuredWindows

_FINER = 1 << 30


@dataclass(frozen=True)
class SlowTotals:
    """One window; the same numbers as `MeasuredWindows`, computed from scratch."""

    gauge: Gauge
    vectors: Singles
    decided: Integers | None = None

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.vectors)

    @cached_property
    def _outputs(self) -> Outputs:
        # A single column would be summed in another order.
        more = outputs(np.concatenate([self.vectors, self.vectors[:1]]), self.gauge.calibration.temperature)
        decided = self.gauge.calibration.decision.column(self.vectors, self.decided)
        return Outputs(*(Scores(one.probabilities[:, :-1], decided=decided) for one in (more.raw, more.scaled)))

    def mean_confidence(self, *, scaled: bool) -> float:
        """Return the mean confidence, rounded once."""
        total = 0
        for confidence in self._outputs.scores(scaled=scaled).confidence.tolist():
            coarse = int(np.rint(confidence * FIXED_POINT))
            total += coarse * _FINER + int(np.rint((confidence * FIXED_POINT - coarse) * _FINER))
        return total / (self.records * FIXED_POINT * _FINER)

    def means(self, one: CalibratedEstimator) -> list[float]:
        """Return the means of an estimator's contributions."""
        scores, ones = self._outputs.scores(scaled=one.form.scaled), FIXED_POINT * self.records
        if not isinstance(one.estimator, Conformal):
            return [int(sum(row)) / ones for row in fixed(one.estimator.contributions(scores, 0.0)).tolist()]
        threshold = one.estimator.threshold(np.array([self.mean_confidence(scaled=one.form.scaled)]))[0]
        score = size = empty = unsure = 0
        for record, confidence in zip(scores.probabilities.T, scores.confidence.tolist(), strict=True):
            # Sorted by value, summed from the largest.
            chosen = sorted((float(p) for p in record if np.float32(p) >= threshold), reverse=True)
            size += len(chosen)
            empty += not chosen
            unsure += 0 if chosen else int(np.rint(confidence * FIXED_POINT))
            total = 0.0
            for p in chosen:
                total += p
            score += int(np.rint(total / max(1, len(chosen)) * FIXED_POINT))
        return [score / ones, size / self.records, empty / self.records, unsure / ones]

    def performance(self, decided: Integers) -> list[int]:
        """Return the totals of performance: those of each record, measured alone."""
        gauge, denominators = self.gauge.performance, self.gauge.derive(self.vectors)[0]
        totals = [0] * (0 if gauge is None else gauge.totals)
        for row in range(self.records if gauge is not None else 0):
            one = slice(row, row + 1)
            assert gauge is not None
            (found,) = gauge.measure(self.vectors[one], decided[one], denominators[one])
            for column, value in zip(found.column.tolist(), found.value.tolist(), strict=True):
                totals[column] += value
            for column, value in enumerate(found.scaled[:, 0].tolist(), gauge.mixed.start):
                totals[column] += value
        return totals


def assert_equal(measured: MeasuredWindows, index: int, vectors: Singles, decided: Integers | None = None) -> None:
    """Raise unless a window's totals equal a slow computation from its records, to the bit."""
    slow, gauge = SlowTotals(measured.gauge, vectors, decided), measured.gauge
    assert measured.records[index] == slow.records
    classes = gauge.calibration.classes
    decision = gauge.calibration.decision
    decided = decided if decision.by is DecidedBy.FIELD else decision.decided(vectors)
    wanted = np.bincount(np.zeros(0, dtype=np.int64) if decided is None else decided, minlength=classes)
    assert measured.predicted[index].tolist() == wanted.tolist()
    if slow.records == 0:
        assert not measured.of_performance[index].any()
        return
    assert decided is not None
    outputs = gauge.calibration.outputs
    assert outputs is not None
    cells = [int(np.sum(outputs.edges < vector[one])) for vector, one in zip(vectors, decided, strict=True)]
    assert measured.confidence[index].tolist() == np.bincount(cells, minlength=len(outputs.confidence)).tolist()
    assert measured.of_performance[index].tolist() == slow.performance(decided)
    for scaled in (False, True):
        assert measured.mean_confidence(scaled=scaled)[index] == slow.mean_confidence(scaled=scaled)
    for one in gauge.calibration.estimators:
        assert measured.means(one)[:, index].tolist() == slow.means(one), one.form.name


def same(one: MeasuredWindows, other: MeasuredWindows) -> bool:
    """Return whether two measurements of windows are equal to the bit."""
    columns = ("totals", "counts", "of_performance")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
