"""The calibration from a labelled reference: accuracy, temperature, calibrated estimators, interval tables."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from monitor.core.baselines.output_drift import OutputReference
from monitor.core.decisions import Decision
from monitor.core.estimate import ADAPTIVE, CONSENSUS, Interval, NoEstimate, Result, Why
from monitor.core.estimators.confidence import DifferenceOfConfidences
from monitor.core.estimators.ensemble import (
    CalibratedEstimator,
    Ensemble,
    Estimates,
    Failed,
    Measured,
    Variants,
    by_confidence,
    calibrate_all,
    measure_vectors,
    side_by_side,
    weight_of,
)
from monitor.core.intervals import DEFAULT_LEVEL, IntervalTables, Progress, field_intervals
from monitor.core.performance import (
    ClassReference,
    MixedShare,
    Performance,
    PerformanceGauge,
    Target,
)
from monitor.core.performance_calibration import calibrate_performance
from monitor.core.replay import replay
from monitor.core.scores import Floats, Integers, LabelledOutputs, Singles

if TYPE_CHECKING:  # they are made with a calibration
    from monitor.core.baselines.labelled_baselines import SegmentBaselines

PAPER: Variants = {"doc": "absolute", "cpc_acc": "skip", "cpc_ac": "skip"}
"""The variants of the paper."""


@dataclass(frozen=True, slots=True)
class WindowEstimate(Mapping[str, Result]):
    """The results of all estimators for one window, by name."""

    records: int
    estimators: Mapping[str, Result]
    disagreement: float | None
    chance_disagreement: float | None
    """The disagreement explained by chance, at the interval level."""
    performance: tuple[Performance, ...] = ()
    """Metrics beyond accuracy; empty unless they are asked for, and for a reference of an older version."""
    field: tuple[Interval, ...] = ()
    """The field intervals of the headline, by level; empty without an estimate, and for a reference without `adaptive`."""
    class_mix: tuple[MixedShare | None, ...] = ()
    """The share of each class if nothing but the class mix changed; None for a class that the reference does not have."""

    def __getitem__(self, name: str) -> Result:
        """Return the result of an estimator."""
        if name not in self.estimators:
            raise KeyError(f"expected the name of an estimator ({', '.join(self.estimators)}), found {name!r}")
        return self.estimators[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the estimators."""
        return iter(self.estimators)

    def __len__(self) -> int:
        """Return the number of estimators."""
        return len(self.estimators)


def or_none(value: float) -> float | None:
    """Return a number of a column; None for NaN."""
    return None if math.isnan(value) else float(value)


@dataclass(frozen=True, slots=True, eq=False)
class WindowEstimates(Estimates):
    """The estimates of all estimators, then the consensus, for windows of one model, with intervals."""

    lower: Floats
    upper: Floats
    disagreement: Floats
    """By window; NaN if there is none."""
    chance_disagreement: Floats
    field: Floats
    """The field intervals of the headline, shape (levels, ends, windows); NaN if there are none."""

    def window(self, index: int) -> WindowEstimate:
        """Return the results for one window."""
        bounds = zip(self.lower[:, index].tolist(), self.upper[:, index].tolist(), strict=True)
        results = self.results(index, [Interval(*pair) for pair in bounds])
        spread, chance = or_none(self.disagreement[index]), or_none(self.chance_disagreement[index])
        return WindowEstimate(int(self.records[index]), results, spread, chance, field=self.field_of(index))

    def field_of(self, index: int) -> tuple[Interval, ...]:
        """Return the field intervals of one window by level; empty if there are none."""
        ends = self.field[:, :, index].tolist()
        # NaN differs from itself.
        return tuple(Interval(*one) for one in ends) if ends[0][0] == ends[0][0] else ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration of a reference; contains no records."""

    records: int
    right: int
    classes: int
    temperature: float
    estimators: tuple[CalibratedEstimator, ...] = field(repr=False)
    intervals: IntervalTables = field(repr=False)
    decision: Decision = field(default_factory=Decision)
    performance: ClassReference | None = field(default=None, repr=False)
    """None for a reference of an older version."""
    adaptive_weight: float | None = None
    """The weight of ATC in `adaptive`; None for a reference of an older version that does not hold what it needs."""
    outputs: OutputReference | None = field(default=None, repr=False)
    """None for a reference of an older version."""
    segments: "SegmentBaselines | None" = field(default=None, repr=False)
    """The labelled baselines of segments; None without any."""
    _ensembles: dict[tuple[tuple[str, str], ...], Ensemble] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """By variants, of which there are few choices."""

    @property
    def accuracy(self) -> float:
        """The reference accuracy `A`."""
        return self.right / self.records

    @property
    def headline(self) -> str:
        """The name of the estimate that people see first."""
        return CONSENSUS if self.adaptive_weight is None else ADAPTIVE

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all estimates: those of the estimators, then the combinations."""
        return self._ensemble({}).names

    @property
    def confidence(self) -> float | None:
        """The unscaled mean confidence of the reference, from DOC."""
        kept = (one.estimator for one in self.estimators if not one.form.scaled)
        return next((one.confidence for one in kept if isinstance(one, DifferenceOfConfidences)), None)

    def estimate(
        self,
        probabilities: Singles,
        variants: Variants | None = None,
        minimum_records: int = 1,
        decided: Integers | None = None,
        wanted: Sequence[Target] = (),
    ) -> WindowEstimate:
        """Return all estimates for a window of vectors, shape (records, classes).

        `decided` are the classes that the records name; required if they decide, otherwise ignored. With `wanted`, these
        metrics and the class mix are estimated too.
        """
        named = None if decided is None else [decided]
        (found,) = self.estimate_each([probabilities], variants, minimum_records, named, wanted)
        return found

    def estimate_each(
        self,
        windows: Sequence[Singles],
        variants: Variants | None = None,
        minimum_records: int = 1,
        decided: Sequence[Integers] | None = None,
        wanted: Sequence[Target] = (),
    ) -> Iterator[WindowEstimate]:
        """Yield all estimates for each of some windows; faster than one by one."""
        of_each: Sequence[Integers | None] = [None] * len(windows) if decided is None else decided
        enough = [
            (one, self.decision.column(one, named))
            for one, named in zip(windows, of_each, strict=True)
            if len(one) >= minimum_records
        ]
        measured = [measure_vectors(self.estimators, one, self.temperature, taken) for one, taken in enough]
        found = self.estimate_windows(side_by_side(measured), variants) if measured else None
        metrics, mix = None, None
        if self.performance is not None and measured and wanted:
            gauge = PerformanceGauge(self.performance, self.temperature, tuple(wanted))
            beyond = gauge.measured_vectors(*zip(*enough, strict=True))
            metrics, mix = beyond.estimates(), beyond.class_mix()
        place = 0
        for one in windows:
            if found is not None and len(one) >= minimum_records:
                window = found.window(place)
                if metrics is not None and mix is not None:
                    window = replace(window, performance=metrics.window(place), class_mix=mix.window(place))
                yield window
                place += 1
            else:
                none = NoEstimate(Why.TOO_FEW_RECORDS, len(one), minimum_records=minimum_records)
                yield WindowEstimate(len(one), dict.fromkeys(self.names, none), None, None)

    def estimate_windows(
        self, windows: Measured, variants: Variants | None = None, failed: Failed | None = None
    ) -> WindowEstimates:
        """Return all estimates for measured windows.

        With `failed`, it is called for each estimator that fails, and the others still return results.
        """
        ensemble = self._ensemble(variants or {})
        columns, why, disagreement = ensemble.estimate(windows, failed)
        lower, upper, chance = self.intervals.bounds(ensemble.full_names, columns[0], windows.records)
        accuracy, unclipped, sizes, empty = columns
        return WindowEstimates(
            ensemble.names,
            windows.records,
            accuracy,
            unclipped,
            sizes,
            empty,
            why,
            lower,
            upper,
            disagreement,
            chance,
            self._field(accuracy[-1], disagreement),
        )

    def _field(self, headline: Floats, disagreement: Floats) -> Floats:
        """Return the field intervals of the last estimate; NaN if it is not `adaptive`."""
        known = headline if self.adaptive_weight is not None else np.full_like(headline, np.nan)
        return field_intervals(known, self.accuracy, disagreement)

    def _ensemble(self, variants: Variants) -> Ensemble:
        chosen = tuple(sorted(variants.items()))
        found = self._ensembles.get(chosen)
        if found is None:
            found = self._ensembles[chosen] = Ensemble(self.estimators, variants, self.adaptive_weight)
        return found


def calibrate(
    reference: LabelledOutputs,
    *,
    level: float = DEFAULT_LEVEL,
    progress: Progress | None = None,
    decision: Decision | None = None,
) -> Calibration:
    """Calibrate all estimators on a labelled reference, whose decisions were taken by `decision`; argmax by default."""
    estimators, reported = calibrate_all(reference), progress or (lambda _: None)
    intervals, outputs = replay(reference, estimators, level, lambda share: reported(0.7 * share))
    return Calibration(
        records=reference.records,
        right=reference.right,
        classes=len(reference.outputs.raw.probabilities),
        temperature=reference.temperature,
        estimators=estimators,
        intervals=intervals,
        decision=decision or Decision(),
        performance=calibrate_performance(reference, level, lambda share: reported(0.7 + 0.3 * share)),
        adaptive_weight=weight_of(*by_confidence(reference), reference.correct),
        outputs=outputs,
    )
