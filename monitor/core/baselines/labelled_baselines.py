"""Labelled baselines: what the labelled records of a segment say about its accuracy, and about each estimator there.

Hospitals differ. On the reference's records of a segment, the accuracy is known, and so is the bias of every estimator: its
answer minus that accuracy. Both are shrunk towards those of the whole reference, by how many records they rest on and by how
much segments differ (empirical Bayes; docs/methods.md). Estimates of the segment are corrected by its bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from monitor.core.baselines.output_drift import counted, output_cells
from monitor.core.calibration import Calibration, WindowEstimates
from monitor.core.estimate import ADAPTIVE, CONSENSUS
from monitor.core.estimators.ensemble import MEMBERS, combine, measure_vectors, side_by_side
from monitor.core.intervals import IntervalTables, field_intervals, widened
from monitor.core.record_columns import Records
from monitor.core.scores import Floats, Integers
from monitor.core.segments import Segment, rows_by_segment

FEWEST_RECORDS = 50
"""With fewer labelled records, chance alone moves the accuracy of a segment by ten points and more."""


class Shrunk(NamedTuple):
    """Values of segments, shrunk towards that of the whole; shape (quantities, segments)."""

    value: Floats
    variance: Floats
    """What remains unknown of each."""


@dataclass(frozen=True, slots=True)
class LabelledBaseline:
    """The baseline of one segment."""

    segment: Segment
    records: int
    right: int
    accuracy: float
    """Shrunk towards that of the whole reference."""
    decided: Integers
    """Records by decided class."""
    confidence: Integers
    """Records by cell of confidence."""


@dataclass(frozen=True, eq=False)
class SegmentBaselines:
    """The labelled baselines of a reference: of each segment with enough records."""

    names: tuple[str, ...]
    """The estimators, in their default variants."""
    segments: tuple[Segment, ...]
    records: Integers
    right: Integers
    own_bias: Floats
    """The answer of each estimator on the records of each segment, minus their accuracy; shape (estimators, segments)."""
    decided: Integers
    """Records by decided class, shape (segments, classes)."""
    confidence: Integers
    """Records by cell of confidence, shape (segments, cells)."""
    reference_right: int
    intervals: IntervalTables
    """Those of the whole reference."""

    @classmethod
    def of(
        cls, calibration: Calibration, records: Records, split_by: Sequence[Sequence[str]]
    ) -> "SegmentBaselines | None":
        """Return the baselines of the reference's own records, split by sets of fields; None if no segment has enough."""
        found = (pair for names in split_by for pair in rows_by_segment(names, records.fields))
        kept = sorted((pair for pair in found if len(pair[1]) >= FEWEST_RECORDS), key=lambda pair: pair[0])
        if not kept or records.labels is None:
            return None
        answers = estimate_rows(calibration, records, [rows for _, rows in kept])
        rows, lengths = np.concatenate([rows for _, rows in kept]), answers.records
        decided = calibration.decision.taken(records.vectors, records.decided)[rows]
        right = counted((decided == records.labels[rows]).astype(np.int64), lengths, 2)[:, 1]
        edges = np.empty(0, dtype=np.float32) if calibration.outputs is None else calibration.outputs.edges
        cells = output_cells(edges, records.vectors[rows, decided])
        return cls(
            names=answers.names,
            segments=tuple(segment for segment, _ in kept),
            records=lengths,
            right=right,
            own_bias=answers.unclipped - right / lengths,
            decided=counted(decided, lengths, calibration.classes),
            confidence=counted(cells, lengths, len(edges) + 1),
            reference_right=calibration.right,
            intervals=calibration.intervals,
        )

    def __len__(self) -> int:
        """Return the number of segments with a baseline."""
        return len(self.segments)

    def __contains__(self, segment: Segment) -> bool:
        """Return whether a segment has a baseline."""
        return _key(segment) in self._places

    def __getitem__(self, segment: Segment) -> LabelledBaseline:
        """Return the baseline of a segment, whatever the order of its fields; raises KeyError."""
        place = self._places[_key(segment)]
        return LabelledBaseline(
            segment,
            int(self.records[place]),
            int(self.right[place]),
            float(self.accuracy[place]),
            self.decided[place],
            self.confidence[place],
        )

    def places(self, segments: Sequence[Segment]) -> Integers:
        """Return the place of each segment in the columns; -1 without a baseline."""
        return np.array([self._places.get(_key(segment), -1) for segment in segments], dtype=np.int64)

    @cached_property
    def groups(self) -> tuple[Integers, ...]:
        """The places of the segments of each set of fields."""
        fields = [frozenset(name for name, _ in segment) for segment in self.segments]
        return tuple(np.flatnonzero([one == names for one in fields]) for names in dict.fromkeys(fields))

    @cached_property
    def accuracy(self) -> Floats:
        """The accuracy of each segment, shrunk towards that of the whole."""
        found: Floats = self._accuracy.value[0]
        return found

    @cached_property
    def accuracy_variance(self) -> Floats:
        """What remains unknown of it."""
        found: Floats = self._accuracy.variance[0]
        return found

    @cached_property
    def accuracy_reach(self) -> Floats:
        """How far the accuracy may be off, at the level of the intervals."""
        return np.asarray(self._outward * np.sqrt(self.accuracy_variance))

    @cached_property
    def bias(self) -> Floats:
        """The bias of each estimator in each segment, shrunk towards that of the whole."""
        return self._bias.value

    @cached_property
    def bias_variance(self) -> Floats:
        """What remains unknown of it."""
        return self._bias.variance

    def corrected(self, estimates: WindowEstimates, segments: Sequence[Segment]) -> WindowEstimates:
        """Return the estimates of windows of these segments, without the bias of those that have a baseline.

        The estimates are those of the default variants. Consensus and disagreement are those of the corrected members, as
        over several replicas. An interval lies around the corrected estimate, and is widened by what remains unknown of the
        bias; a field interval starts from the accuracy of the segment. Other windows stay as they are.
        """
        places = self.places(segments)
        windows = np.flatnonzero(places >= 0)
        if not len(windows):
            return estimates
        place, rows = places[windows], [self.names.index(name) for name in estimates.names]
        unclipped = estimates.unclipped[:, windows] - self.bias[rows][:, place]
        accuracy = np.clip(unclipped, 0.0, 1.0)
        of = estimates.names.index
        accuracy[of(CONSENSUS)], disagreement = combine(accuracy[[of(member) for member in MEMBERS]])
        unclipped[of(CONSENSUS)] = accuracy[of(CONSENSUS)]
        _, below, above, _ = self.intervals.around(estimates.names, estimates.records)
        unknown = self._outward * np.sqrt(self.bias_variance[rows][:, place])
        return replace(
            estimates,
            accuracy=_put(estimates.accuracy, windows, accuracy),
            unclipped=_put(estimates.unclipped, windows, unclipped),
            lower=_put(estimates.lower, windows, np.maximum(accuracy - _wider(below[:, windows], unknown), 0.0)),
            upper=_put(estimates.upper, windows, np.minimum(accuracy + _wider(above[:, windows], unknown), 1.0)),
            disagreement=_put(estimates.disagreement, windows, disagreement),
            field=_put(
                estimates.field, windows, field_intervals(accuracy[of(ADAPTIVE)], self.accuracy[place], disagreement)
            ),
        )

    @cached_property
    def _places(self) -> dict[Segment, int]:
        return {_key(segment): place for place, segment in enumerate(self.segments)}

    @property
    def _outward(self) -> float:
        """How many standard deviations the intervals reach from their centre."""
        return NormalDist().inv_cdf((1.0 + self.intervals.level) / 2.0)

    @cached_property
    def _accuracy(self) -> Shrunk:
        whole = self.intervals.reference_records
        # As if one more record were right and one more wrong, so that a perfect reference leaves something unknown.
        smooth = (self.reference_right + 1.0) / (whole + 2.0)
        noise = smooth * (1.0 - smooth) / self.records
        return self._shrunk((self.right / self.records)[None], np.array([[self.reference_right / whole]]), noise[None])

    @cached_property
    def _bias(self) -> Shrunk:
        whole = self.intervals.reference_records
        bias, below, above, _ = self.intervals.around(self.names, self.records)
        # The replays found how much chance moves an answer in a window of so many records, beside that of the reference.
        deviation = (below + above) / (2.0 * self._outward)
        noise = np.maximum(deviation**2 / (1.0 / self.records + 1.0 / whole), 1.0 / whole) / self.records
        return self._shrunk(self.own_bias, bias, noise)

    def _shrunk(self, own: Floats, whole: Floats, noise: Floats) -> Shrunk:
        """Return what each set of fields makes of its segments."""
        value, variance = np.empty(own.shape), np.empty(own.shape)
        for group in self.groups:
            share = self.records[group] / self.intervals.reference_records
            value[:, group], variance[:, group] = shrink(own[:, group], whole, noise[:, group], share)
        return Shrunk(value, variance)


def estimate_rows(calibration: Calibration, records: Records, windows: Sequence[Integers]) -> WindowEstimates:
    """Return the estimates of windows, each of some of the records, before any correction."""
    decided = calibration.decision.column(records.vectors, records.decided)
    measured = [
        measure_vectors(
            calibration.estimators,
            records.vectors[rows],
            calibration.temperature,
            None if decided is None else decided[rows],
        )
        for rows in windows
    ]
    return calibration.estimate_windows(side_by_side(measured))


def shrink(own: Floats, whole: Floats, noise: Floats, share: Floats) -> Shrunk:
    """Return values of segments shrunk towards the whole, of which each has a share of the records.

    `noise` is the variance by chance of each value. The variance between segments is that which explains how far they are
    from the whole, beyond the noise: the moments of DerSimonian and Laird, around the whole.
    """
    apart = own - whole
    surplus = np.sum(apart**2 / noise, axis=1) - (len(share) - share.sum())
    # The whole contains the segment, so it follows it a little.
    scale = np.sum((1.0 - 2.0 * share + np.sum(share**2)) / noise, axis=1)
    between = np.maximum(0.0, np.divide(surplus, scale, out=np.zeros(len(own)), where=scale > 0.0))[:, None]
    trust = between / (between + noise)
    # Few segments tell little about how much they differ, and may seem not to differ at all (Morris 1983).
    unsure = 2.0 / max(1, len(share) - 1) * ((1.0 - trust) * apart) ** 2
    return Shrunk(whole + trust * apart, between * (1.0 - trust) + unsure)


def _key(segment: Segment) -> Segment:
    """Return a segment with its fields in one order."""
    return segment if len(segment) == 1 else tuple(sorted(segment))


def _wider(reach: Floats, unknown: Floats) -> Floats:
    """Return how far an interval reaches, widened by an independent error; an unknown reach stays infinite."""
    finite = np.isfinite(reach)
    return np.where(finite, widened(np.where(finite, reach, 0.0), unknown), reach)


def _put(column: Floats, windows: Integers, values: Floats) -> Floats:
    """Return a column with other values for some windows."""
    changed = column.copy()
    changed[..., windows] = values
    return changed
