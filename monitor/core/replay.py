"""The error of an estimate by chance, from replaying the reference against itself.

Each replay splits the reference into a pseudo-reference and held-out records, calibrates every estimator on the first, and
estimates windows of several sizes from the second, whose accuracy is known. The bias of an estimator on its own reference
is subtracted in the replay and in use. So the spread of the errors includes every effect of chance: on the window, on the
thresholds, and on the bias itself.

The interval covers chance, not shift. The temperature is not fitted again in each replay: its effect cancels to first
order between the window and the bias, and does not show in the coverage measured by `benchmarks/coverage.py`.

The scores of a record are derived once for all replays, and a replay estimates all its windows in one call.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from monitor.core.baselines.output_drift import (
    MEASURES,
    BaselineOutputs,
    OutputReference,
    counted,
    edges_of,
    output_cells,
    shares,
)
from monitor.core.estimate import ADAPTIVE, CONSENSUS
from monitor.core.estimators.ensemble import (
    MEMBERS,
    MIXED,
    CalibratedEstimator,
    Estimates,
    MeasuredRecords,
    by_confidence,
    combine,
    estimate_forms,
    measure,
    mix,
    weight_of,
    with_variants,
)
from monitor.core.intervals import ErrorQuantiles, IntervalTables, Progress, outward_quantiles
from monitor.core.scores import (
    ConformalSets,
    Floats,
    Integers,
    LabelledOutputs,
    Outputs,
    Scores,
    Singles,
    ThresholdGrid,
)

_REPLAYS = 200
_WINDOWS_PER_SIZE = 3
_FEWEST_RECORDS = 20
"""With a smaller reference, intervals are the whole range."""
_FEWEST_ERRORS = 40
_SEED = 20220722
_SORTED_ELEMENTS = 1 << 18
_FEW_CLASSES = 64
_COMBINED = 3
"""Rows behind those of the forms: the consensus, `adaptive`, and the disagreement."""


def replay(
    reference: LabelledOutputs, ready: Sequence[CalibratedEstimator], level: float, progress: Progress
) -> tuple[IntervalTables, OutputReference]:
    """Replay the reference against itself.

    Return the error quantiles of the estimators, in all their variants, and how far its outputs drift by chance.
    """
    forms = with_variants(ready)
    biases = _biases(forms, reference)
    outputs = _Outputs(reference)
    errors = _errors(reference, ready, outputs, progress) if reference.records >= _FEWEST_RECORDS else {}
    shape = len(errors), len(forms) + _COMBINED + len(MEASURES)
    tail = (1.0 - level) / 2.0
    low, high, chance = (
        np.reshape([_quantiles(of_size, share) for of_size in errors.values()], shape).T
        for share in (tail, 1.0 - tail, level)
    )
    quantiles = {
        one.form.full_name: ErrorQuantiles(float(biases[row]), low[row], high[row]) for row, one in enumerate(forms)
    }
    # Every member returns the reference accuracy on the reference; so do the combinations.
    for row, name in enumerate((CONSENSUS, ADAPTIVE), len(forms)):
        quantiles[name] = ErrorQuantiles(0.0, low[row], high[row])
    sizes, disagreement = np.array(list(errors), dtype=np.int64), chance[len(forms) + 2]
    tables = IntervalTables(level, reference.records, sizes, quantiles, disagreement)
    return tables, outputs.reference(sizes, chance[len(forms) + _COMBINED :])


class _Outputs:
    """The decided class and the cell of the confidence of each record, as counts need them."""

    def __init__(self, reference: LabelledOutputs) -> None:
        self._edges, self._decided = edges_of(reference), reference.decided
        self._cells = output_cells(self._edges, reference.outputs.raw.confidence.astype(np.float32))
        self._classes = len(reference.outputs.raw.probabilities)

    def counts(self, rows: Integers, lengths: Integers) -> tuple[Integers, Integers]:
        """Return the counts of decided classes and of cells in windows, one after the other, a row for each."""
        decided, cells = self._decided[rows], self._cells[rows]
        return counted(decided, lengths, self._classes), counted(cells, lengths, len(self._edges) + 1)

    def drift(self, windows: Integers, lengths: Integers, pseudo: Integers) -> Floats:
        """Return the distances of windows from a pseudo-reference."""
        baseline = BaselineOutputs.of(*self.counts(pseudo, np.array([len(pseudo)])))
        return baseline.distances(*map(shares, self.counts(windows, lengths)))

    def reference(self, sizes: Integers, chance: Floats) -> OutputReference:
        """Return the outputs of the whole reference."""
        decided, cells = self.counts(np.arange(len(self._cells)), np.array([len(self._cells)]))
        return OutputReference(self._edges, cells[0], decided[0], sizes, chance)


def _errors(
    reference: LabelledOutputs, ready: Sequence[CalibratedEstimator], outputs: _Outputs, progress: Progress
) -> Mapping[int, Floats]:
    """Return the errors of all forms, of the consensus and of `adaptive`, the disagreement, and the drift of the outputs.

    By window size, a row for each, in units of sqrt(1/n + 1/m).
    """
    records, classes = reference.records, len(reference.outputs.raw.probabilities)
    # Enough records for stable errors, few enough for a thousand classes.
    taken = min(records, max(1000, min(20_000, 1_000_000 // classes)))
    held = taken // 4
    sizes = [size for power in range(6) for size in (10**power, 2 * 10**power, 5 * 10**power) if size <= held]
    windows = [range(i * size, (i + 1) * size) for size in sizes for i in range(min(_WINDOWS_PER_SIZE, held // size))]
    places, lengths = np.concatenate(windows), np.array([len(window) for window in windows])
    random = np.random.default_rng(_SEED)
    drawn = [random.permutation(records)[:taken].astype(np.int32) for _ in range(_REPLAYS)]
    forms = [one.form for one in with_variants(ready)]
    errors = np.empty((len(forms), _REPLAYS, len(windows)))
    adaptive, drift = np.empty((_REPLAYS, len(windows))), np.empty((len(MEASURES), _REPLAYS, len(windows)))
    ranks, count = by_confidence(reference)
    for scaled in (False, True):
        # Made again for each stream, so that the steps of only one are in memory.
        streams = [_Stream(reference, scaled=one) for one in (False, True)]
        members = [one.form for one in ready if one.form.scaled == scaled]
        places_of_forms = [place for place, form in enumerate(forms) if form.scaled == scaled]
        for done, rows in enumerate(drawn):
            pseudo = _sample(reference, streams, rows[held:])
            again = with_variants(
                CalibratedEstimator(form, form.member.family.calibrate(pseudo, scaled=scaled)) for form in members
            )
            found, realised = _windows(again, _sample(reference, streams, rows[places], lengths), lengths)
            errors[places_of_forms, done] = found.accuracy - realised - _biases(again, pseudo)[:, None]
            if scaled:
                weight = weight_of(ranks[rows[held:]], count, reference.correct[rows[held:]])
                mixed = mix(found.unclipped[[found.names.index(name) for name in MIXED]], weight)
                adaptive[done] = np.clip(mixed, 0.0, 1.0) - realised
            else:
                drift[:, done] = outputs.drift(rows[places], lengths, rows[held:])
            progress((scaled * _REPLAYS + done + 1) / (2 * _REPLAYS))
    names = [form.full_name for form in forms]
    # The members have no bias, so the consensus of their errors is its error.
    consensus, spread = combine(errors[[names.index(member) for member in MEMBERS]])
    errors = np.concatenate([errors, [consensus, adaptive, spread], drift])
    errors /= np.sqrt(1.0 / lengths + 1.0 / (taken - held))
    return {size: errors[:, :, lengths == size].reshape(len(errors), -1) for size in sizes}


def _windows(
    forms: Sequence[CalibratedEstimator], sample: LabelledOutputs, lengths: Integers
) -> tuple[Estimates, Floats]:
    """Return the estimates and the accuracies of windows of these lengths, one after the other in the sample."""
    starts = np.cumsum(lengths) - lengths
    raw, scaled = sample.outputs.raw, sample.outputs.scaled
    confidence = np.add.reduceat([raw.confidence, scaled.confidence], starts, axis=1)
    means = confidence / lengths
    sums: dict[str, Floats] = {}
    # Variants share their sums.
    for name, one in {one.form.name: one for one in forms}.items():
        rows = one.estimator.contributions(sample.scores(scaled=one.form.scaled), means[int(one.form.scaled)])
        sums[name] = np.add.reduceat(rows, starts, axis=1)
    found = estimate_forms(forms, MeasuredRecords(lengths, confidence, sums))
    return found, np.add.reduceat(sample.correct, starts, dtype=np.float64) / lengths


def _biases(forms: Sequence[CalibratedEstimator], reference: LabelledOutputs) -> Floats:
    """Return the bias of each form on its own reference."""
    exact = np.array([one.estimator.returns_reference_accuracy for one in forms])
    biased = [one for one in forms if not one.estimator.returns_reference_accuracy]
    found = estimate_forms(biased, measure(biased, lambda: (reference.outputs,)))
    biases = np.zeros(len(forms))
    biases[~exact] = found.accuracy[:, 0] - reference.accuracy
    return biases


def _quantiles(errors: Floats, share: float) -> Floats:
    """Return the quantile of each row, rounded outward; infinite with too few values."""
    found = outward_quantiles(errors, share, _FEWEST_ERRORS)
    return np.where(np.isnan(found), np.copysign(np.inf, share - 0.5), found)


class _Stream:
    """The raw or scaled scores of the whole reference, with the steps of each record's conformal sets."""

    def __init__(self, reference: LabelledOutputs, *, scaled: bool) -> None:
        self.scores = reference.scores(scaled=scaled)
        self.thresholds = np.unique(self.scores.of_classes(reference.labels))

    @cached_property
    def steps(self) -> tuple[NDArray[np.int32], Floats]:
        """The cells of each record's classes, by falling probability; the mean score of its first 0, 1, 2 and so on."""
        classes, records = self.scores.probabilities.shape
        grid = ThresholdGrid(self.thresholds)
        # Adding is faster by class if there are few, taking rows is faster by record.
        order: Literal["C", "F"] = "F" if classes <= _FEW_CLASSES else "C"
        cells = np.empty((records, classes), dtype=np.int32, order=order)
        means = np.zeros((records, classes + 1), order=order)
        # In blocks, since sorting copies.
        rows = max(1, _SORTED_ELEMENTS // classes)
        for start in range(0, records, rows):
            block = slice(start, start + rows)
            falling = -np.sort(-self.scores.probabilities[:, block].T, axis=1)
            cells[block] = grid.cell(falling.astype(np.float32))
            means[block, 1:] = np.cumsum(falling, axis=1) / np.arange(1, classes + 1)
        return cells, means


class _SampledScores(Scores):
    """Scores of some of the records, taken from those of all: one window, or several of these lengths."""

    _stream: _Stream
    _rows: Integers
    _lengths: Integers | None
    _found: dict[bytes, ConformalSets]

    def __init__(self, stream: _Stream, rows: Integers, lengths: Integers | None) -> None:
        # Scores are frozen.
        vars(self).update(_stream=stream, _rows=rows, _lengths=lengths, _found={})

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self._rows)

    @cached_property
    def probabilities(self) -> Floats:
        """The probabilities."""
        return self._stream.scores.probabilities[:, self._rows]

    @cached_property
    def confidence(self) -> Floats:
        """The confidence of each record."""
        return self._stream.scores.confidence[self._rows]

    @cached_property
    def negative_entropy(self) -> Floats:
        """The negative entropy of each record."""
        return self._stream.scores.negative_entropy[self._rows]

    def of_classes(self, classes: Integers) -> Singles:
        """Return the probability of one class of each record."""
        return self._stream.scores.probabilities[classes, self._rows].astype(np.float32)

    @cached_property
    def _cells(self) -> NDArray[np.int32]:
        return _take(self._stream.steps[0], self._rows)

    def sets_at(self, threshold: Singles | np.float32) -> ConformalSets:
        """Return the conformal sets at a threshold of the reference, the same or one for each window."""
        key = threshold.tobytes()
        if key not in self._found:
            place = np.searchsorted(self._stream.thresholds, threshold).astype(np.int32)
            of_records = place if self._lengths is None else np.repeat(place, self._lengths)[:, None]
            inside = self._cells > of_records
            size = np.add.reduce(inside.view(np.int8), axis=1, dtype=np.int16)
            mean = self._stream.steps[1][self._rows, size]
            self._found[key] = ConformalSets(mean, size.astype(np.float64), size == 0)
        return self._found[key]

    def mean_scores_at(self, ranked: Singles) -> Floats:
        """Return the mean score of all records at each threshold."""
        steps = np.diff(_take(self._stream.steps[1], self._rows), axis=1)
        cells = len(self._stream.thresholds) + 1
        curve = np.bincount(self._cells.ravel(order="K"), weights=steps.ravel(order="K"), minlength=cells)
        above = np.cumsum(curve[::-1])[::-1]
        return above[np.searchsorted(self._stream.thresholds, ranked) + 1] / self.records


def _take(matrix: NDArray[Any], rows: Integers) -> NDArray[Any]:
    """Return rows of a matrix, in its memory layout."""
    # Faster than indexing.
    return matrix.take(rows, axis=0) if matrix.flags.c_contiguous else matrix.T.take(rows, axis=1).T


def _sample(
    reference: LabelledOutputs, streams: Sequence[_Stream], rows: Integers, lengths: Integers | None = None
) -> LabelledOutputs:
    """Return some of the records: one window, or several of these lengths."""
    raw, scaled = (_SampledScores(stream, rows, lengths) for stream in streams)
    sample = LabelledOutputs(Outputs(raw, scaled), reference.labels[rows], reference.temperature)
    vars(sample).update(decided=reference.decided[rows], correct=reference.correct[rows])
    return sample
