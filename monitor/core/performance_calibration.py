"""The calibration of performance estimates on a labelled reference, with the errors by chance from replaying it against itself.

Each replay fits the curves on a part of the reference, and compares estimates with realised values in windows of the rest. In
units of sqrt(1/d + 1/e), for a metric that is a share of d records of the window and e of the reference, the errors hardly depend
on the size of the window: so those of all sizes are pooled.
"""

import numpy as np
from numpy.typing import NDArray

from monitor.core.intervals import Progress, outward_quantiles
from monitor.core.performance import (
    CELLS,
    FEWEST_CASES,
    MOST_MIXED,
    MOST_SHOWN,
    ClassCurves,
    ClassReference,
    PerformanceGauge,
    every_target,
    realised,
    unit,
)
from monitor.core.scores import Floats, Integers, LabelledOutputs, Singles

_REPLAYS, _REPLAYS_OF_MANY_CLASSES = 60, 12
_WINDOWS_PER_SIZE = 2
_SIZES = (20, 50, 100, 200, 500, 1000)
_FEWEST_ERRORS = 40
_SEED = 20220722


def calibrate_performance(reference: LabelledOutputs, level: float, progress: Progress) -> ClassReference:
    """Calibrate the estimates of performance on a reference."""
    vectors = np.ascontiguousarray(reference.outputs.raw.probabilities.T, dtype=np.float32)
    scaled = reference.outputs.scaled.probabilities if vectors.shape[1] <= MOST_MIXED else np.empty((0, len(vectors)))
    everything = np.arange(len(vectors))
    sample = _Sample(vectors, scaled, reference.labels, reference.decided, reference.temperature)
    errors = _errors(sample, progress)
    tail = (1.0 - level) / 2.0
    low, high = (outward_quantiles(errors, share, _FEWEST_ERRORS).astype(np.float32) for share in (tail, 1.0 - tail))
    return sample.calibrated(everything, level, low, high)


class _Sample:
    """The labelled records."""

    def __init__(
        self, vectors: Singles, scaled: Floats, labels: Integers, decided: Integers, temperature: float
    ) -> None:
        self.vectors, self.labels, self.decided = vectors, labels, decided
        self._scaled, self._temperature = scaled, temperature
        # The largest power of the scaled softmax is 1.
        self.denominators = 1.0 / scaled.max(axis=0) if len(scaled) else np.ones(len(vectors))

    def calibrated(self, rows: Integers, level: float, low: Singles, high: Singles) -> ClassReference:
        """Return what is kept of some records."""
        vectors, labels, classes = self.vectors[rows], self.labels[rows], self.vectors.shape[1]
        own = realised(vectors, self.decided[rows], labels)
        cases, right = own.cases[:, 0].astype(np.int64), own.right[:, 0].astype(np.int64)
        edges = np.empty(0, dtype=np.float32)
        if classes == 2:
            inner = np.quantile(vectors[:, 1], np.arange(1, CELLS) / CELLS, method="inverted_cdf")
            edges = np.append(np.float32(0.0), np.unique(inner)).astype(np.float32)
        profiles = np.zeros((len(self._scaled), len(self._scaled)))
        for one in np.flatnonzero(cases[: len(profiles)]).tolist():
            profiles[:, one] = self._scaled[:, rows[labels == one]].mean(axis=1)
        decided, auroc = own.decided[:, 0].astype(np.int64), float("nan") if own.auroc is None else float(own.auroc[0])
        curves = fit_curves(vectors, labels)
        return ClassReference(curves, cases, right, decided, auroc, edges, profiles, level, low, high)

    def gauge(self, rows: Integers) -> PerformanceGauge:
        """Return the measuring by some records, for a replay."""
        none = np.empty(0, dtype=np.float32)
        return PerformanceGauge(self.calibrated(rows, 0.0, none, none), self._temperature)


def _errors(sample: _Sample, progress: Progress) -> Floats:
    """Return the errors of all targets, then of the class mix, in units; NaN if there is none."""
    records, classes = sample.vectors.shape
    wanted, random = every_target(classes), np.random.default_rng(_SEED)
    replays = _REPLAYS if classes <= MOST_SHOWN else _REPLAYS_OF_MANY_CLASSES
    # Enough records for rare classes, few enough for a thousand of them.
    taken = min(records, max(1000, min(20_000, 60_000 // classes)))
    held = taken // 4
    windows = [
        np.arange(number * size, (number + 1) * size)
        for size in _SIZES
        for number in range(min(_WINDOWS_PER_SIZE, held // size))
    ]
    mixed = classes if classes <= MOST_MIXED else 0
    if not windows:
        progress(1.0)
        return np.full((len(wanted) + mixed, 1), np.nan)
    places, lengths = np.concatenate(windows), np.array([len(window) for window in windows])
    found = []
    for done in range(replays):
        rows = random.permutation(records)[:taken]
        gauge, some = sample.gauge(rows[held:]), rows[places]
        columns = sample.vectors[some], sample.decided[some]
        estimated = gauge.measured_windows(*columns, sample.denominators[some], lengths)
        truth = realised(*columns, sample.labels[some], lengths)
        (value, cases), (true, _) = estimated.expected.values(wanted), truth.values(wanted)
        _, of_reference = gauge.reference.own.values(wanted)
        errors = (value - true) / unit(cases, of_reference)
        # Errors in units change little below the fewest cases.
        errors[cases < FEWEST_CASES / 2] = np.nan
        mix = (estimated.mix() - truth.cases[:mixed] / lengths) / unit(lengths, taken - held)
        found.append(np.concatenate([errors, mix]))
        progress((done + 1) / replays)
    return np.concatenate(found, axis=1)


def fit_curves(vectors: Singles, labels: Integers) -> ClassCurves:
    """Fit the curves on labelled records."""
    by_class = np.ascontiguousarray(vectors.T)
    corners = [_corners(scores, labels == one) for one, scores in enumerate(by_class)]
    sizes = [len(scores) for scores, _ in corners]
    return ClassCurves(
        np.cumsum([0, *sizes[:-1]], dtype=np.int64),
        # Turns -0.0 into 0.0, whose bits ascend.
        np.concatenate([scores for scores, _ in corners]) + np.float32(0.0),
        np.concatenate([values for _, values in corners]),
    )


def _corners(scores: Singles, cases: NDArray[np.bool_]) -> tuple[Singles, Floats]:
    """Return the corners of the isotonic curve of one class."""
    if not cases.any():
        return np.zeros(1, dtype=np.float32), np.zeros(1)
    # Below the lowest case the curve is 0, up to the highest score there.
    upper = scores >= scores[cases].min()
    knots, group, count = np.unique(scores[upper], return_inverse=True, return_counts=True)
    shares = np.bincount(group, weights=cases[upper]) / count
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow to import, and only calibration needs it

    fitted = np.asarray(isotonic_regression(shares, weights=count).x, dtype=np.float64)
    if len(scores) > np.count_nonzero(upper):
        knots, fitted = np.append(scores[~upper].max(), knots), np.append(0.0, fitted)
    # Only the ends of constant sections matter, and not the outer ones.
    rises = np.flatnonzero(np.diff(fitted) > 0.0)
    corners = np.union1d(rises, rises + 1) if len(rises) else np.zeros(1, dtype=np.int64)
    return knots[corners].astype(np.float32), fitted[corners]
