"""The report of one evaluation, and the snapshot it was made from.

A model may have thousands of windows, so a report holds columns; the report of one window is made when somebody looks at it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import overload

import numpy as np

from monitor.core.alerts import PHASES, AlertPhase, AlertStatus, Codes, Flags
from monitor.core.baselines.comparison import (
    KINDS,
    VERDICTS,
    Baseline,
    BaselineKind,
    ClassChange,
    Comparisons,
    OutputDrift,
    Verdict,
)
from monitor.core.calibration import WindowEstimates, or_none
from monitor.core.change import ChangeColumns, ChangeStatus, EvidenceSums
from monitor.core.decisions import Decision
from monitor.core.estimate import HEADLINE, STATES, Estimate, Interval, Result, Why, WindowState
from monitor.core.estimators.ensemble import headline_in
from monitor.core.input_health import Count, FoundProblem
from monitor.core.intervals import FIELD_LEVELS
from monitor.core.labels.realised import LabelColumns, LabelSnapshot, SegmentLabels
from monitor.core.labels.track_record import TrackRecord
from monitor.core.performance import ClassReference, MeasuredPerformance, MixedShare, Performance, Target
from monitor.core.scores import Floats, Integers
from monitor.core.segments import Segment, name_of
from monitor.core.totals import MeasuredWindows

_NONE: Mapping[str, Result] = MappingProxyType({})
_NO_PARTS: Mapping[str, Estimate] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The report of one window."""

    segment: Segment
    records: int
    state: WindowState
    results: Mapping[str, Result] = field(default_factory=lambda: _NONE)
    """Results by estimator, with their combinations. Empty without an estimate."""
    disagreement: float | None = None
    chance_disagreement: float | None = None
    """The disagreement explained by chance, at the interval level."""
    predicted: tuple[int, ...] = ()
    """The predictions per class; empty without an estimate."""
    last_record_at: float | None = None
    """The time of the newest record, in Unix seconds; None without records."""
    last_valid_at: float | None = None
    """The time of the last valid estimate, in Unix seconds."""
    alerts: tuple[AlertStatus, ...] = ()
    parts: Mapping[str, Estimate] = field(default_factory=lambda: _NO_PARTS)
    """Estimates by estimator, to be added up over the replicas that share the model's records.

    Present even if the records are too few or too old for a local estimate. Empty for a model without replicas.
    """
    fresh: bool = False
    """Whether the records of the parts are recent."""
    state_since: float | None = None
    """When the state began, in Unix seconds; None if unknown."""
    field: tuple[Interval, ...] = ()
    """The field intervals of the headline, by level; empty without an estimate, or if the reference is of an older version."""
    performance: tuple[Performance, ...] = ()
    """Estimates beyond accuracy; empty without an estimate, or if the reference is of an older version."""
    class_mix: tuple[MixedShare | None, ...] = ()
    """By class; empty without an estimate, or with many classes."""
    baseline: Baseline | None = None
    """None for a window without records or without a reference."""
    drift: tuple[OutputDrift, ...] = ()
    """Of the outputs, by measure; empty if unknown."""
    changed_class: ClassChange | None = None
    verdict: Verdict | None = None
    """None if it cannot be said."""
    changes: tuple[ChangeStatus, ...] = ()
    """What the detectors of changes say; empty without an alert of type change."""
    labels: SegmentLabels | None = None
    """What labels say; None if the model takes none."""
    track_record: TrackRecord | None = None
    """How far off its estimates have been; None if the model takes no labels."""

    @property
    def name(self) -> str:
        """The name of the segment."""
        return name_of(self.segment)

    @property
    def valid(self) -> bool:
        """Whether the estimate is valid."""
        return self.state is WindowState.OK

    def estimates(self) -> dict[str, Estimate]:
        """Return the results that are estimates."""
        return {name: result for name, result in self.results.items() if isinstance(result, Estimate)}


_OK, _ERROR = STATES.index(WindowState.OK), STATES.index(WindowState.ERROR)
_QUIET, _FIRING, _RECOVERING = map(PHASES.index, (AlertPhase.OK, AlertPhase.FIRING, AlertPhase.RECOVERING))


@dataclass(frozen=True, slots=True, eq=False)
class AlertColumns:
    """The alerts of windows: a row for each alert, a column for each window."""

    quiet: tuple[AlertStatus, ...]
    """Each alert as if it had never fired."""
    applies: Flags
    """Whether a window has the alert. The other rows say nothing where it has not."""
    phases: Codes
    """Indexes into PHASES."""
    since: Floats
    held: Flags
    threshold: Floats
    """NaN if unknown."""
    value: Floats
    """NaN if there is none."""
    kinds: Codes
    """The kinds of baselines compared with, as indexes into KINDS."""

    @property
    def firing(self) -> Flags:
        """Which alerts are firing or recovering."""
        found: Flags = self.applies & ((self.phases == _FIRING) | (self.phases == _RECOVERING))
        return found

    @property
    def active(self) -> Flags:
        """Which alerts are not quiet."""
        found: Flags = self.applies & (self.phases != _QUIET)
        return found

    def window(self, index: int) -> tuple[AlertStatus, ...]:
        """Return the alerts of one window."""
        return tuple(
            AlertStatus(
                one.alert,
                one.kind,
                one.severity,
                PHASES[self.phases[row, index]],
                float(self.since[row, index]),
                bool(self.held[row, index]),
                one.estimator,
                or_none(self.threshold[row, index]),
                or_none(self.value[row, index]),
                one.upward,
                one.metric,
                one.of_class,
                KINDS[self.kinds[row, index]],
                one.direction,
            )
            for row, one in enumerate(self.quiet)
            if self.applies[row, index]
        )

    @classmethod
    def of(cls, windows: Sequence[Sequence[AlertStatus]]) -> "AlertColumns":
        """Return the columns of the alerts of each window."""
        rows: list[AlertStatus] = []
        cells = []
        for index, alerts in enumerate(windows):
            place = 0
            for one in alerts:
                quiet = replace(
                    one, phase=AlertPhase.OK, since=0.0, held=False, threshold=None, value=None, baseline=None
                )
                if quiet not in rows:
                    # After the one before it: in every window they have the same order.
                    rows.insert(place, quiet)
                place = rows.index(quiet) + 1
                cells.append((quiet, index, one))
        shape = len(rows), len(windows)
        found = cls(
            tuple(rows),
            np.zeros(shape, dtype=np.bool_),
            np.zeros(shape, dtype=np.uint8),
            np.zeros(shape),
            np.zeros(shape, dtype=np.bool_),
            np.full(shape, np.nan),
            np.full(shape, np.nan),
            np.zeros(shape, dtype=np.uint8),
        )
        for quiet, index, one in cells:
            row = rows.index(quiet)
            found.applies[row, index], found.held[row, index] = True, one.held
            found.phases[row, index], found.since[row, index] = PHASES.index(one.phase), one.since
            found.threshold[row, index], found.value[row, index] = _or_nan(one.threshold), _or_nan(one.value)
            found.kinds[row, index] = KINDS.index(None if one.baseline is None else BaselineKind(one.baseline))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class WindowReports(Sequence[SegmentReport]):
    """The reports of windows, as columns. An item is the report of one window, made on demand."""

    segments: tuple[Segment, ...]
    names: tuple[str, ...]
    """The names of the segments."""
    records: Integers
    states: Codes
    """Indexes into STATES."""
    estimates: WindowEstimates
    """Of all windows, whether they may show them or not."""
    shown: Flags
    """Whether the estimates are results of the window."""
    part: Flags
    """Whether the estimates are parts, to be added up over replicas."""
    fresh: Flags
    predicted: Integers
    """The predictions per class, a row for each window."""
    last_record_at: Floats
    """Times are NaN if unknown."""
    last_valid_at: Floats
    state_since: Floats
    alerts: AlertColumns
    performance: MeasuredPerformance | None = None
    """Of all windows, whether they may show it or not; None if the reference is of an older version."""
    comparisons: Comparisons | None = None
    """With the baselines; None without a reference."""
    changes: ChangeColumns | None = None
    """None without an alert of type change."""
    labels: LabelColumns | None = None
    """None if the model takes no labels."""
    track_records: tuple[TrackRecord, ...] = ()
    """By window; empty if the model takes no labels. Windows that are missing now have none."""

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.segments)

    @overload
    def __getitem__(self, index: int) -> SegmentReport: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SegmentReport, ...]: ...
    def __getitem__(self, index: int | slice) -> SegmentReport | tuple[SegmentReport, ...]:
        """Return the report of one window, or of several."""
        if isinstance(index, slice):
            return tuple(self[one] for one in range(len(self))[index])
        shown, part = self.shown[index], self.part[index]
        found = self.estimates.window(index) if shown or part else None
        parts = {} if found is None or not part else found.estimators
        compared = self.comparisons
        beyond = None if self.performance is None or not shown else self.performance.at(index)
        return SegmentReport(
            self.segments[index],
            int(self.records[index]),
            STATES[self.states[index]],
            _NONE if found is None or not shown else MappingProxyType(dict(found.estimators)),
            None if found is None or not shown else found.disagreement,
            None if found is None or not shown else found.chance_disagreement,
            tuple(self.predicted[index].tolist()) if shown else (),
            or_none(self.last_record_at[index]),
            or_none(self.last_valid_at[index]),
            self.alerts.window(index),
            MappingProxyType({name: one for name, one in parts.items() if isinstance(one, Estimate)}),
            bool(self.fresh[index]),
            or_none(self.state_since[index]),
            found.field if found is not None and shown else (),
            () if beyond is None else beyond.estimates().window(0),
            () if beyond is None else beyond.class_mix().window(0),
            None if compared is None else compared.baseline(index),
            () if compared is None or not shown else compared.drift(index),
            None if compared is None or not shown else compared.changed_class(index),
            None if compared is None else VERDICTS[compared.verdicts[index]],
            () if self.changes is None else self.changes.window(index),
            None if self.labels is None else self.labels.window(index),
            self.track_records[index] if index < len(self.track_records) else None,
        )

    @property
    def has_results(self) -> Flags:
        """Which windows show results. Where one estimator failed, those of the others still hold."""
        found: Flags = self.shown & ((self.states == _OK) | (self.states == _ERROR))
        return found

    @property
    def valid(self) -> Flags:
        """Which windows have a valid estimate."""
        found: Flags = self.states == _OK
        return found

    @property
    def failed(self) -> bool:
        """Whether every window is in state error."""
        return bool(np.all(self.states == _ERROR))

    def headline(self, column: Floats) -> Floats:
        """Return the row of the headline in a column of the estimates; NaN where a window has no valid one."""
        names = self.estimates.names
        if (name := headline_in(names)) not in names:
            return np.full(len(self), np.nan)
        row = names.index(name)
        return np.where(self.valid & self.shown & (self.estimates.why[row] == 0), column[row], np.nan)

    def without_performance(self) -> "WindowReports":
        """Return the windows without what is costly to make for each: all about classes."""
        return replace(self, performance=None, labels=None if self.labels is None else self.labels.without_classes())

    def in_error(self, now: float) -> "WindowReports":
        """Return the windows in state error, without estimates and with their alerts held."""
        known = (self.states == _ERROR) & ~np.isnan(self.state_since)
        none = np.zeros(len(self), dtype=np.bool_)
        return replace(
            self,
            states=np.full(len(self), _ERROR, dtype=np.uint8),
            estimates=no_estimates(len(self)),
            shown=none,
            part=none,
            fresh=none,
            predicted=np.zeros((len(self), 0), dtype=np.int64),
            performance=None,
            comparisons=None,
            changes=None,
            state_since=np.where(known, self.state_since, now),
            alerts=replace(self.alerts, held=np.ones_like(self.alerts.held)),
        )

    @classmethod
    def of(cls, reports: Iterable[SegmentReport]) -> "WindowReports":
        """Return the columns of some reports."""
        windows = tuple(reports)
        classes = max((len(one.predicted) for one in windows), default=0)
        return cls(
            tuple(one.segment for one in windows),
            tuple(one.name for one in windows),
            np.array([one.records for one in windows], dtype=np.int64),
            np.array([STATES.index(one.state) for one in windows], dtype=np.uint8),
            _estimates_of(windows),
            np.array([bool(one.results) for one in windows], dtype=np.bool_),
            np.array([bool(one.parts) for one in windows], dtype=np.bool_),
            np.array([one.fresh for one in windows], dtype=np.bool_),
            np.array(
                [one.predicted if len(one.predicted) == classes else (0,) * classes for one in windows], dtype=np.int64
            ).reshape(len(windows), classes),
            np.array([_or_nan(one.last_record_at) for one in windows]),
            np.array([_or_nan(one.last_valid_at) for one in windows]),
            np.array([_or_nan(one.state_since) for one in windows]),
            AlertColumns.of([one.alerts for one in windows]),
            changes=_changes_of([one.changes for one in windows]),
        )


def no_estimates(windows: int) -> WindowEstimates:
    """Return the estimates of no estimator."""
    return _empty_estimates((), np.zeros(windows, dtype=np.int64))


def _empty_estimates(names: tuple[str, ...], records: Integers) -> WindowEstimates:
    """Return columns to be filled in."""
    shape = len(names), len(records)
    accuracy, unclipped, set_size, empty_share, lower, upper = np.full((6, *shape), np.nan)
    disagreement, chance_disagreement = np.full((2, len(records)), np.nan)
    field_ = np.full((len(FIELD_LEVELS), 2, len(records)), np.nan)
    return WindowEstimates(
        names=names,
        records=records,
        accuracy=accuracy,
        unclipped=unclipped,
        set_size=set_size,
        empty_share=empty_share,
        why=np.full(shape, 1, dtype=np.uint8),
        lower=lower,
        upper=upper,
        disagreement=disagreement,
        chance_disagreement=chance_disagreement,
        field=field_,
    )


def _headline(found: WindowEstimates) -> WindowEstimates:
    """Return the headline only."""
    name = headline_in(found.names)
    at = slice(0) if name not in found.names else slice(row := found.names.index(name), row + 1)
    columns = ("accuracy", "unclipped", "set_size", "empty_share", "why", "lower", "upper")
    return replace(found, names=found.names[at], **{name: getattr(found, name)[at] for name in columns})


def _estimates_of(windows: Sequence[SegmentReport]) -> WindowEstimates:
    results: list[Mapping[str, Result]] = [one.results or one.parts for one in windows]
    names = tuple(dict.fromkeys(name for some in results for name in some))
    records = [next((one.records for one in some.values()), 0) for some in results]
    found = _empty_estimates(names, np.array(records, dtype=np.int64))
    for index, (window, some) in enumerate(zip(windows, results, strict=True)):
        found.disagreement[index] = _or_nan(window.disagreement)
        found.chance_disagreement[index] = _or_nan(window.chance_disagreement)
        if window.field:
            found.field[:, :, index] = window.field
        for name, one in some.items():
            cell = names.index(name), index
            if one.prediction_sets is not None:
                found.set_size[cell], found.empty_share[cell] = one.prediction_sets
            if isinstance(one, Estimate):
                found.why[cell], found.accuracy[cell] = 0, one.accuracy
                found.unclipped[cell] = one.accuracy if one.unclipped is None else one.unclipped
                if one.interval is not None:
                    found.lower[cell], found.upper[cell] = one.interval
            else:
                found.why[cell] = 1 + list(Why).index(one.why)
    return found


def _changes_of(windows: Sequence[Sequence[ChangeStatus]]) -> ChangeColumns | None:
    """Return the columns of what detectors say of each window; a window may be unknown to them."""
    rows = {one.direction: one.threshold for changes in windows for one in changes}
    if not rows:
        return None
    directions = tuple(rows)
    evidence, tolerance, began_at, records_since = np.full((4, len(rows), len(windows)), np.nan)
    blocks, held = np.zeros(len(windows), dtype=np.int64), np.zeros(evidence.shape, dtype=np.bool_)
    for index, changes in enumerate(windows):
        for one in changes:
            cell = directions.index(one.direction), index
            held[cell] = one.held
            evidence[cell], tolerance[cell] = _or_nan(one.evidence), _or_nan(one.tolerance)
            began_at[cell], records_since[cell] = _or_nan(one.began_at), _or_nan(one.records_since)
            blocks[index] = one.blocks
    return ChangeColumns(directions, evidence, tuple(rows.values()), tolerance, began_at, records_since, blocks, held)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """The reference of a report."""

    version: str
    created: str
    fingerprint: str
    classes: tuple[str, ...]
    records: int
    accuracy: float
    temperature: float
    confidence: float | None = None
    """The unscaled mean confidence."""
    predicted: tuple[int, ...] = ()
    """The decisions per class."""
    decision: Decision = field(default_factory=Decision)
    """How the device decides."""
    performance: ClassReference | None = field(default=None, repr=False, compare=False)
    """None for a reference of an older version."""
    headline: str = HEADLINE
    """The estimate that people see first."""


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The health of a model's input; see `core.input_health`."""

    rejected_share: float | None = None
    """None without records."""
    degraded: bool = False
    one_hot: bool = False
    constant: bool = False
    hints: tuple[str, ...] = ()
    """Probable causes of rejections, such as logits or percentages."""
    referred: int | None = None
    """Records that the device referred to a person, since the state was created; None unless records decide."""
    problems: tuple[FoundProblem, ...] = ()
    unmatched_labels: int | None = None
    """Labels without a prediction here when they came, since the state was created; None if the model takes no labels."""


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one evaluation of a model."""

    model: str
    at: float
    """The time of the evaluation, in Unix seconds."""
    seconds: float
    """The duration of the evaluation."""
    reference: ReferenceFacts | None
    segments: Sequence[SegmentReport]
    """The segment of all records first. Made on demand if they are `WindowReports`."""
    input: InputFacts = field(default_factory=InputFacts)
    most_segments: int = 0
    errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Failures by estimator, in windows."""
    minimum_records: int | None = None
    """The minimum of records for an estimate; None without a reference."""
    exported: tuple[Target, ...] = ()
    """What is exported to Prometheus beyond accuracy."""
    exports_class_mix: bool = False

    @property
    def windows(self) -> WindowReports:
        """The windows as columns."""
        return self.segments if isinstance(self.segments, WindowReports) else WindowReports.of(self.segments)

    def without_performance(self) -> Sequence[SegmentReport]:
        """Return the windows for a reader who looks at all of them, since what is beyond accuracy is costly to make for each."""
        found = self.segments
        return found.without_performance() if isinstance(found, WindowReports) else found

    def summary(self) -> "Report":
        """Return the report for a reader who looks at all windows, several times: the headline is their only result."""
        if not isinstance(self.segments, WindowReports):
            return self
        headline = _headline(self.segments.estimates)
        return replace(self, segments=tuple(replace(self.segments.without_performance(), estimates=headline)))


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A snapshot of all windows of a model, as columns, and of its input health."""

    segments: Sequence[Segment]
    """The segment of all records first."""
    measured: MeasuredWindows
    newest_at: Floats
    """The event time of the newest record, in Unix seconds; NaN without records."""
    oldest_at: Floats
    usual_gap_seconds: Floats
    """The mean time between records; 0 with fewer than two."""
    entered: Integers
    """Records added since the start or the last reload."""
    came_at: Floats
    """The arrival of the last of them, as monotonic time; NaN if there is none."""
    came_before: Floats
    """The arrival of the last record before that, in Unix seconds; NaN if there is none."""
    input: InputFacts
    right_version: int
    """All records of the reference's version so far."""
    other_version: int
    """All records of other versions so far."""
    catching_up: bool
    """Whether the backlog is too large, or unknown."""
    counts: Mapping[str, Count] = field(default_factory=dict)
    """Records since the start, by `input_health.count_key`."""
    evidence: EvidenceSums | None = None
    """The evidence of changes; None if nothing looks for them."""
    evidence_of: Collection[Segment] = ()
    """All segments with evidence, also those without a window now."""
    labels: LabelSnapshot | None = None
    """The predictions that may have labels; None if the model takes none."""
