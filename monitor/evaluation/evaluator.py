"""The evaluation of a model: a snapshot of its windows, estimators, alerts with their stored state, one immutable report."""

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType
from typing import Protocol, cast

import numpy as np

from monitor.config.config import CLASS_MIX, ModelConfig, target_of
from monitor.core.alerts import (
    PHASES,
    AlertPhase,
    AlertRule,
    AlertState,
    AlertType,
    ChangeFacts,
    Codes,
    Dwell,
    Flags,
    On,
    WindowFacts,
    conditions,
    quiet,
    step,
)
from monitor.core.baselines.comparison import (
    VERDICTS,
    BaselineAction,
    BaselineKind,
    BaselineMode,
    Baselines,
    Comparisons,
    Verdict,
    WindowTimes,
    change_upper,
)
from monitor.core.calibration import WindowEstimates
from monitor.core.change import ChangeColumns, ChangeEvidence, Detector
from monitor.core.estimate import AUDITED, HEADLINE, STATES, Why, WindowState
from monitor.core.estimators.ensemble import headline_in
from monitor.core.input_health import FEWEST, Count, FoundProblem, RecentInput, VersionCounts, far_mix
from monitor.core.labels.realised import SCOPES, LabelColumns, Scope
from monitor.core.labels.track_record import TrackRecord
from monitor.core.performance import MeasuredPerformance, Target
from monitor.core.report import (
    AlertColumns,
    InputFacts,
    ReferenceFacts,
    Report,
    SegmentReport,
    Snapshot,
    WindowReports,
    no_estimates,
)
from monitor.core.scores import Floats
from monitor.core.segments import ALL, Segment, name_of
from monitor.errors import Problem, UnknownName, UsageError
from monitor.evaluation.stored_values import (
    AlertMemory,
    WindowAlertState,
    baselines_as_bytes,
    baselines_from_bytes,
    changes_as_bytes,
    changes_from_bytes,
)
from monitor.evaluation.track_records import TrackRecords
from monitor.reference.reference import NO_ADAPTIVE, Reference

log = logging.getLogger("cpcmon")

_MIN_STALE_SECONDS = 3600.0
_GAPS_UNTIL_STALE = 3.0
_OK, _ERROR = STATES.index(WindowState.OK), STATES.index(WindowState.ERROR)
_WARMING, _TOO_FEW, _STALE = map(STATES.index, (WindowState.WARMING, WindowState.TOO_FEW_RECORDS, WindowState.STALE))
_PART_OF_A_WHOLE = (_WARMING, _TOO_FEW, _STALE)
"""States with good records that are too few or too old for an estimate of their own."""
_NOT_COUNTED = [STATES.index(one) for one in (WindowState.VERSION_MISMATCH, WindowState.DEGRADED_INPUT)]
"""States in which records are not what the reference is about, so that they are no evidence."""
_HOLDS = VERDICTS.index(Verdict.HOLDS)
_FAILED = 1 + list(Why).index(Why.ERROR)
_TIED_REFERENCE = 0.5
"""With such a share of tied confidences in the reference, the model rounds its outputs, and one-hot vectors are normal."""

LONGEST_MAINTENANCE = 366 * 86400.0
"""Of one command, in seconds."""
NOT_COMPLETE = Problem("confirm", "a complete own baseline", "one that is still collected")

PERFORMANCE = "performance"
"""The name of estimates beyond accuracy, in counts of failures."""


class Snapshots(Protocol):
    """The windows, as `ingest.IngestView` provides them."""

    def snapshot(self, model: str, now: float, running: float) -> Snapshot:
        """Return a consistent snapshot of all windows of a model."""
        ...

    def begin_evidence(self, model: str, means: Mapping[Segment, Floats], now: float) -> None:
        """Begin the evidence of changes of some segments anew, with other means."""
        ...


@dataclass(slots=True)
class _TrackedWindow:
    """A window between evaluations."""

    memory: WindowAlertState
    name: str
    applies: tuple[bool, ...]
    """Which of the model's alerts it has."""
    entered: int = 0
    base_seconds: float = 0.0
    """Time without records before the first evaluation, as far as known."""
    first_seen: float = 0.0


@dataclass(frozen=True, slots=True)
class _Moment:
    """The time of an evaluation."""

    now: float
    running: float
    elapsed: float


@dataclass(frozen=True, slots=True)
class _Estimated:
    """The estimates of all windows, and what they mean for each."""

    estimates: WindowEstimates
    states: Codes
    shown: Flags
    part: Flags

    @property
    def headline(self) -> Floats:
        """The headline of each window; NaN without estimates."""
        names = self.estimates.names
        name = headline_in(names)
        return self.estimates.accuracy[names.index(name)] if name in names else np.full(len(self.states), np.nan)


@dataclass(slots=True)
class Evaluator:
    """Evaluates one model. Not safe for use by several threads."""

    config: ModelConfig
    reference: Reference | None
    snapshots: Snapshots
    fired: tuple[tuple[str, str, str], ...] = ()
    """Alerts that were firing before the start: model, segment and name."""
    shared: bool = False
    """Whether several processes share the records of the model."""
    _windows: dict[Segment, _TrackedWindow] = field(default_factory=dict)
    _missing: dict[Segment, WindowAlertState] = field(default_factory=dict)
    """Windows that are not here now: not restored yet, or moving between processes."""
    _versions: VersionCounts = field(init=False)
    _exported: tuple[Target, ...] = field(init=False)
    """What the metrics page shows beyond accuracy."""
    _baselines: Baselines | None = field(init=False)
    """None without a reference."""
    _tracks: TrackRecords | None = field(init=False)
    """None if the model takes no labels."""
    _changes: ChangeEvidence = field(init=False)
    _changes_lost: bool = False
    """Whether it is unknown which records counted before: then all evidence begins anew."""
    _change_rules: tuple[AlertRule, ...] = field(init=False)
    _detectors: tuple[Detector, ...] = field(init=False)
    _budgets: tuple[float, ...] = field(init=False)
    """The evidence to alarm at of each, as a logarithm to base 10."""
    _counted: tuple[int, int] | None = None
    _input: RecentInput = field(default_factory=RecentInput)
    _unmatched: tuple[str, ...] = ()
    """Alerts that match no window."""
    _far_mix: FoundProblem | None = None
    _counts: Mapping[str, Count] = field(default_factory=dict)
    """Records until the last evaluation, by what may be wrong with them."""
    _after_backlog: bool = True
    """Whether records since the last evaluation may be of a backlog: it was catching up, or this is the first evaluation."""
    _held_until: dict[str, float] = field(default_factory=dict)
    """Until when records are no evidence of a change, by the name of the segment; `*` for all."""
    _last: float | None = None
    retracted_at: float | None = None
    """When the caller retracted the last report: since then its windows are in state `error`."""

    def __post_init__(self) -> None:
        """Set up the counts of versions, and what is exported."""
        if self.reference is not None and (headline := self.reference.calibration.headline) != HEADLINE:
            # An old reference: its alerts go on, on what it has.
            log.warning("%s: its reference was %s", self.name, NO_ADAPTIVE)
            alerts = tuple(one.with_headline(headline) for one in self.config.alerts)
            self.config = replace(self.config, alerts=alerts)
        self._versions = VersionCounts(of=self._version)
        self._tracks = None
        if self.config.labels is not None and self.reference is not None:
            self._tracks = TrackRecords(self.config.bounds, self.config.most_windows, self.reference.fingerprint)
        self._baselines = None
        if self.reference is not None:
            bounds = self.config.bounds
            self._baselines = Baselines(
                self.reference.calibration,
                self.config.baseline,
                self.reference.fingerprint,
                bounds.records,
                bounds.age_seconds,
            )
        self._exported = () if self.reference is None else self.config.exported(self.reference.classes)
        self._change_rules, self._detectors = self.config.change_rules, self.config.detectors
        self._budgets = tuple(math.log10(self.config.evidence_budget(rule)) for rule in self._change_rules)
        self._changes = ChangeEvidence(len(self._detectors))

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.config.name

    @property
    def _version(self) -> str:
        """The version of the reference; empty when any is accepted."""
        return "" if self.reference is None or self.config.versions_alike else self.reference.version

    def restore(self, content: bytes | None) -> None:
        """Restore the alert state. Invalid bytes count as none."""
        if content is None:
            return
        memory = AlertMemory.from_bytes(content)
        if memory is None:
            log.warning("%s: stored alert state is invalid, starting without it", self.name)
            self._changes_lost = True
            return
        if memory.versions.of == self._version:
            self._versions = memory.versions
        self._input, self._held_until = memory.input, memory.held_until
        if memory.changes and (changes := changes_from_bytes(memory.changes, len(self._detectors))):
            self._changes = changes
        self._missing = {one.segment: one for one in memory.windows}
        self.fired = tuple((self.name, segment, alert) for segment, alert in memory.firing())

    def alert_state_bytes(self) -> bytes:
        """Return the alert state as bytes."""
        windows = {**self._missing, **{segment: tracked.memory for segment, tracked in self._windows.items()}}
        memory = AlertMemory(
            self._versions,
            tuple(windows.values()),
            input=self._input,
            changes=changes_as_bytes(self._changes) if self._changes.detectors else b"",
            held_until=self._held_until,
        )
        return memory.to_bytes()

    def restore_baselines(self, content: bytes | None) -> None:
        """Restore the own baselines. Those of another reference are collected anew."""
        if content is None or self._baselines is None:
            return
        try:
            stored = baselines_from_bytes(content)
        except ValueError:
            log.warning("%s: stored baselines are invalid, starting without them", self.name)
            return
        for segment, one in stored:
            if one.of == self._baselines.of:
                self._baselines.own[segment] = one
        if len(self._baselines.own) < len(stored):
            self._baselines.changed = True
            log.info("%s: the reference changed, so own baselines start anew", self.name)

    def changed_baselines(self) -> bytes | None:
        """Return the own baselines as bytes if they changed since the last call; otherwise None."""
        baselines = self._baselines
        if baselines is None or not baselines.changed:
            return None
        baselines.changed = False
        return baselines_as_bytes(list(baselines.own.items()))

    def restore_tracks(self, content: bytes | None) -> None:
        """Restore the track records. Those of another reference say nothing of the estimates now."""
        if content is None or self._tracks is None:
            return
        try:
            if not self._tracks.restore(content):
                log.info("%s: the reference changed, so track records start anew", self.name)
        except ValueError:
            log.warning("%s: stored track records are invalid, starting without them", self.name)

    def changed_tracks(self, now: float) -> bytes | None:
        """Return the track records as bytes if they should be stored; otherwise None."""
        return None if self._tracks is None else self._tracks.changed(now)

    def change_baseline(self, name: str, action: BaselineAction) -> None:
        """Reset or confirm the own baseline of a segment; raises UsageError. It is used from the next evaluation on."""
        baselines = self._baselines
        if baselines is None:
            raise UsageError(Problem("model", "one with a reference", "one without"))
        segment = segment_named(name, (*self._windows, *self._missing, *baselines.own))
        kind = baselines.kind(segment)
        if kind is not BaselineKind.OWN:
            raise UsageError(Problem("segment", "one with an own baseline", f"one with baseline {kind}"))
        if action is BaselineAction.RESET:
            baselines.reset(segment)
        elif not baselines.confirm(segment):
            raise UsageError(NOT_COMPLETE)
        log.info("%s, %s: own baseline: %s by command", self.name, name, action)

    def hold_changes(self, until: float, name: str | None) -> None:
        """Let records be no evidence of a change until a time, in a segment or everywhere; 0.0 ends it. Raises UsageError."""
        if not self.config.change_rules:
            raise UsageError(Problem("model", "one with an alert of type change", "one without"))
        if name is not None:
            segment_named(name, (*self._windows, *self._missing))
        if until == 0.0:
            # Without a name that of each segment ends too: otherwise one that is forgotten stays blind.
            for one in list(self._held_until) if name is None else [name]:
                self._held_until.pop(one, None)
            log.info("%s, %s: maintenance ended by command", self.name, name or "all windows")
            return
        self._held_until["*" if name is None else name] = until
        shown = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(until))
        log.info("%s, %s: maintenance until %s by command", self.name, name or "all windows", shown)

    def in_maintenance(self, rule: AlertRule, now: float, segment: Segment) -> bool:
        """Return whether records of a segment are no evidence of a change now: it, or a segment around it, is in maintenance."""
        if any(begin <= now < end for begin, end in rule.maintenance):
            return True
        around = (name_of(some) for size in range(1, len(segment)) for some in combinations(segment, size))
        return any(now < self._held_until.get(one, 0.0) for one in ("*", name_of(segment), *around))

    def evaluate(self, now: float, running: float, awake: float) -> Report:
        """Evaluate all windows at `now`, Unix time.

        `running` is the monotonic clock of record arrivals. `awake` stops while the machine sleeps: alerts wait by it,
        since nothing could arrive meanwhile.
        """
        start = time.perf_counter()
        self._apply_retraction()
        if self.reference is None:
            return Report(self.name, now, time.perf_counter() - start, None, self._without_reference(now))
        snapshot = self.snapshots.snapshot(self.name, now, running)
        self._count_versions(snapshot)
        input_ = replace(snapshot.input, degraded=self._degraded(snapshot.input, self.reference))
        elapsed = 0.0 if self._last is None else max(0.0, awake - self._last)
        self._last = awake
        errors: Counter[str] = Counter()
        windows = self._evaluate_windows(snapshot, input_, _Moment(now, running, elapsed), self.reference, errors)
        input_ = replace(input_, problems=self._input_problems(snapshot, windows, self.reference, now))
        missing = self._missing_reports(snapshot, now)
        return Report(
            self.name,
            now,
            time.perf_counter() - start,
            _facts_of(self.reference),
            _joined(windows, missing) if missing else windows,
            input_,
            self.config.segmentation.most_segments if self.config.segmentation.split_by else 0,
            MappingProxyType(dict(errors)),
            self.config.minimum_records,
            self._exported,
            CLASS_MIX in self.config.performance,
        )

    def _apply_retraction(self) -> None:
        """Set windows to `error` since the time when their report was retracted."""
        at, self.retracted_at = self.retracted_at, None
        if at is not None:
            for memory in (*self._missing.values(), *(tracked.memory for tracked in self._windows.values())):
                _set_state(memory, WindowState.ERROR, at)

    def _missing_reports(self, snapshot: Snapshot, now: float) -> list[SegmentReport]:
        """Return reports of missing windows. While the daemon catches up they may still come, and their alerts are held."""
        for segment in self._windows.keys() - set(snapshot.segments):
            self._missing[segment] = self._windows.pop(segment).memory
        most = self.config.segmentation.most_segments if snapshot.catching_up else 0
        for segment in list(self._missing)[: max(0, len(self._missing) - most)]:
            del self._missing[segment]
        return [self._held(memory, WindowState.CATCHING_UP, now) for memory in self._missing.values()]

    def not_evaluated(self) -> Report:
        """Return the report before the first evaluation, for the case that it fails: alerts from before are held."""
        segments = {ALL: None, **dict.fromkeys(self._missing)}
        memories = (self._missing.get(segment) or WindowAlertState(segment) for segment in segments)
        return Report(self.name, 0.0, 0.0, None, tuple(self._held(one, WindowState.ERROR) for one in memories))

    def _without_reference(self, now: float) -> tuple[SegmentReport, ...]:
        """Return the reports of a model without a reference. Alerts that fired when it had one are held."""
        for segment in {ALL: None, **dict.fromkeys(self._missing)}:
            if segment not in self._windows:
                memory = self._missing.get(segment) or WindowAlertState(segment)
                self._windows[segment] = _TrackedWindow(memory, name_of(segment), ())
        return tuple(self._held(tracked.memory, WindowState.NO_REFERENCE, now) for tracked in self._windows.values())

    def _held(self, memory: WindowAlertState, state: WindowState, now: float | None = None) -> SegmentReport:
        """Return the report of a window without records, whose alerts are held; without `now` it is not evaluated."""
        name = name_of(memory.segment)
        held = [
            (rule, memory.alerts.get(rule.name, AlertState())) for rule in self.config.alerts if rule.applies_to(name)
        ]
        alerts = tuple(
            replace(quiet(rule), phase=one.phase, since=one.since, held=True, threshold=rule.fixed_threshold)
            for rule, one in held
        )
        if now is not None:
            _set_state(memory, state, now)
        since = None if now is None else memory.state_since
        return SegmentReport(
            memory.segment, 0, state, last_valid_at=memory.last_valid_at, alerts=alerts, state_since=since
        )

    def _evaluate_windows(
        self, snapshot: Snapshot, input_: InputFacts, at: _Moment, reference: Reference, errors: Counter[str]
    ) -> WindowReports:
        """Return the reports of all windows of a snapshot."""
        arrivals = zip(snapshot.segments, snapshot.came_before.tolist(), strict=True)
        tracked = [self._windows.get(segment) or self._track(segment, before, at) for segment, before in arrivals]
        new = np.maximum(0, snapshot.entered - np.array([one.entered for one in tracked], dtype=np.int64))
        without_records = _without_records(snapshot, tracked, at)
        quiet_seconds = np.array([one.memory.quiet_seconds for one in tracked]) + at.elapsed
        quiet_seconds = np.fmin(quiet_seconds, np.where(np.isnan(snapshot.came_at), np.nan, without_records))
        records = snapshot.measured.records
        had_enough = np.array([one.memory.had_enough for one in tracked]) | (records >= self.config.minimum_records)
        stale = without_records > self._stale_after(snapshot.usual_gap_seconds)
        states = self._states(snapshot, had_enough, stale, degraded=input_.degraded)
        found = self._estimated(snapshot, states, errors)
        performance = self._performance(snapshot, errors)
        seen = (snapshot.entered.tolist(), quiet_seconds.tolist(), had_enough.tolist(), found.states.tolist())
        for one, entered, seconds, enough, state in zip(tracked, *seen, strict=True):
            one.entered = entered
            one.memory.quiet_seconds, one.memory.had_enough = seconds, enough
            if state == _OK:
                one.memory.last_valid_at = at.now
            _set_state(one.memory, STATES[state], at.now)
        compared = self._compare(snapshot, found, at.now)
        changes = self._detect(snapshot, found.states, at.now)
        labels, tracks = self._labels(snapshot, found, reference)
        facts = WindowFacts(
            found.states,
            quiet_seconds,
            lambda rule: _ends(found, rule, compared, labels),
            np.where(found.shown, found.estimates.disagreement, np.nan),
            np.where(found.shown, found.estimates.chance_disagreement, np.nan),
            input_.degraded,
            reference.calibration.accuracy,
            compared.of,
            compared.kinds,
            np.where(found.shown, found.headline, np.nan),
            compared.own & ~compared.verified,
            compared.furthest_drift(found.shown),
            lambda rule: _compared_metric(rule, performance, found.shown, reference.classes),
            None if changes is None else lambda rule: self._change_of(rule, changes, snapshot, found, compared),
        )
        alerts = self._alerts(
            tracked,
            facts,
            [Dwell(*one, at.elapsed) for one in zip(records.tolist(), new.tolist(), strict=True)],
            at.now,
        )
        doubted = np.array([bool(one.summary(reference.calibration.headline).wrong) for one in tracks], dtype=np.bool_)
        if changes is not None:
            self._note_alarms(alerts, changes, snapshot.newest_at)
            fires = alerts.firing[[self.config.alerts.index(rule) for rule in self._change_rules]].any(axis=0)
            doubted = np.asarray(fires | doubted if tracks else fires)
        if len(doubted):
            # The window's estimate may still hold, but nobody should read that as all-clear.
            verdicts = np.where(doubted & (compared.verdicts == _HOLDS), np.uint8(0), compared.verdicts)
            compared = replace(compared, verdicts=verdicts)
        return WindowReports(
            tuple(snapshot.segments),
            tuple(one.name for one in tracked),
            records,
            found.states,
            found.estimates,
            found.shown,
            found.part,
            found.part & ~stale,
            snapshot.measured.predicted,
            snapshot.newest_at,
            _times(one.memory.last_valid_at for one in tracked),
            _times(one.memory.state_since for one in tracked),
            alerts,
            performance,
            compared,
            changes,
            labels,
            tracks,
        )

    def _labels(
        self, snapshot: Snapshot, found: _Estimated, reference: Reference
    ) -> tuple[LabelColumns | None, tuple[TrackRecord, ...]]:
        """Return what labels say of the windows, and their track records."""
        if snapshot.labels is None or self._tracks is None:
            return None, ()
        labels = snapshot.labels.columns(len(snapshot.segments), len(reference.classes))
        valid = found.shown & (found.states == _OK)
        return labels, self._tracks.update(snapshot, snapshot.labels, labels.sums, found.estimates, valid)

    def _detect(self, snapshot: Snapshot, states: Codes, now: float) -> ChangeColumns | None:
        """Take the evidence of the records since the last evaluation; None if nothing looks for changes."""
        evidence, changes, baselines = snapshot.evidence, self._changes, cast("Baselines", self._baselines)
        if evidence is None:
            return None
        segments, rules = tuple(snapshot.segments), self._change_rules
        # What has sums keeps what was taken of them: a partition may come back with its segments.
        changes.select(segments, snapshot.evidence_of)
        held = self._held_changes(segments, now) | np.isin(states, _NOT_COUNTED)[:, None]
        new = changes.update(evidence, snapshot.newest_at, held)
        before = baselines.expectations(segments, self._detectors)
        for window in np.flatnonzero(before.is_own & ~held.any(axis=1)).tolist():
            baselines.add_block(segments[window], new[window], float(snapshot.newest_at[window]))
        expected = baselines.expectations(segments, self._detectors)
        same = (expected.means == evidence.means) | (np.isnan(expected.means) & np.isnan(evidence.means))
        differ = ~np.all(same, axis=(1, 2)) | self._changes_lost
        self._changes_lost = False
        if differ.any():
            begun = {segments[window]: expected.means[window] for window in np.flatnonzero(differ).tolist()}
            self.snapshots.begin_evidence(self.name, begun, now)
            changes.restart(differ)
        value = np.where(differ[:, None], np.nan, changes.value).T
        began_at, records_since = (np.where(value > 0.0, one.T, np.nan) for one in changes.began())
        return ChangeColumns(
            tuple(rule.direction for rule in rules),
            value,
            self._budgets,
            np.array([one.effective(expected.smallest_tolerance) for one in self._detectors]),
            began_at,
            records_since,
            expected.blocks,
            held.T,
        )

    def _held_changes(self, segments: Sequence[Segment], now: float) -> Flags:
        """Return which detectors are in maintenance, shape (windows, detectors)."""
        rules = self._change_rules
        by_command = any(now < until for until in self._held_until.values())
        if not by_command and not any(rule.maintenance for rule in rules):
            return np.zeros((len(segments), len(rules)), dtype=np.bool_)
        return np.array([[self.in_maintenance(rule, now, one) for rule in rules] for one in segments])

    def _change_of(
        self, rule: AlertRule, changes: ChangeColumns, snapshot: Snapshot, found: _Estimated, compared: Comparisons
    ) -> ChangeFacts:
        """Return the evidence of a rule, and where an alarm may end.

        It ends when the window has only records since the alarm, and its estimate is back within the tolerance.
        """
        row = self._change_rules.index(rule)
        after = snapshot.oldest_at > self._changes.alarm_at[:, row]
        margin = changes.tolerance[row] - np.minimum(rule.hysteresis, changes.tolerance[row] / 2.0)
        below = self._detectors[row].sign * (compared.accuracy - np.where(found.shown, found.headline, np.nan))
        # Without a baseline there is nothing to compare with: somebody has reset it.
        well = np.isnan(changes.tolerance[row]) | (after & (below <= margin))
        return ChangeFacts(changes.evidence[row], changes.thresholds[row], well, changes.held[row])

    def _note_alarms(self, alerts: AlertColumns, changes: ChangeColumns, newest_at: Floats) -> None:
        """Note where an alarm has begun; where it has ended, evidence starts at 0."""
        for detector, rule in enumerate(self._change_rules):
            row, alarm_at = self.config.alerts.index(rule), self._changes.alarm_at[:, detector]
            firing = alerts.firing[row]
            # Without a baseline nothing is watched: that must not look like all is well.
            alerts.held[row] |= np.isnan(changes.tolerance[detector])
            self._changes.restart(~firing & ~np.isnan(alarm_at), detector)
            # The clock was set back: an alarm in the future could not end.
            np.copyto(alarm_at, newest_at, where=alarm_at > newest_at)
            began = firing & np.isnan(self._changes.alarm_at[:, detector])
            self._changes.alarm_at[began, detector] = newest_at[began]

    def _compare(self, snapshot: Snapshot, found: _Estimated, now: float) -> Comparisons:
        """Compare the windows with their baselines."""
        baselines = cast("Baselines", self._baselines)
        valid = found.shown & (found.states == _OK)
        times = WindowTimes(snapshot.oldest_at, snapshot.newest_at)
        compared = baselines.compare(snapshot.segments, snapshot.measured, found.estimates, valid, times, now)
        segmentation = self.config.segmentation
        forget = segmentation.forget_seconds
        baselines.forget(-np.inf if forget is None else now - forget, 2 * segmentation.most_segments + 1)
        for segment in baselines.completed:
            own = baselines.own[segment]
            accuracy = own.estimates.get(headline_in(tuple(own.estimates)))
            log.info(
                "%s, %s: own baseline is complete: estimated accuracy %s over %d records, unverified until confirmed with"
                " cpcmon baseline",
                self.name,
                name_of(segment),
                "unknown" if accuracy is None else f"{accuracy:.1%}",
                own.records,
            )
        baselines.completed.clear()
        return compared

    def _performance(self, snapshot: Snapshot, errors: Counter[str]) -> MeasuredPerformance | None:
        """Return the expected confusion of all windows; None if it is not measured."""
        try:
            return snapshot.measured.performance()
        except Exception as error:  # noqa: BLE001 - accuracies still hold
            self._log_failure(PERFORMANCE, error)
            errors[PERFORMANCE] = len(snapshot.segments)
            return None

    def _track(self, segment: Segment, came_before: float, at: _Moment) -> _TrackedWindow:
        memory = self._missing.pop(segment, None) or WindowAlertState(segment)
        name = name_of(segment)
        applies = tuple(rule.applies_to(name) for rule in self.config.alerts)
        memory.alerts = {
            rule.name: memory.alerts.get(rule.name, AlertState())
            for rule, wanted in zip(self.config.alerts, applies, strict=True)
            if wanted
        }
        # fmax: NaN if no record came before the start.
        base_seconds = float(np.fmax(memory.quiet_seconds, at.now - came_before))
        self._windows[segment] = _TrackedWindow(memory, name, applies, 0, base_seconds, at.running)
        return self._windows[segment]

    def _stale_after(self, usual_gap_seconds: Floats) -> Floats:
        if self.config.stale_after_seconds is not None:
            return np.full(len(usual_gap_seconds), self.config.stale_after_seconds)
        return np.maximum(_MIN_STALE_SECONDS, _GAPS_UNTIL_STALE * usual_gap_seconds)

    def _states(self, snapshot: Snapshot, had_enough: Flags, stale: Flags, *, degraded: bool) -> Codes:
        """Return whether each window has an estimate; of several reasons against it, the one that explains the others."""
        records = snapshot.measured.records
        for reason, holds in (
            (WindowState.CATCHING_UP, snapshot.catching_up),
            (WindowState.VERSION_MISMATCH, self._versions.mismatch),
            (WindowState.DEGRADED_INPUT, degraded),
        ):
            if holds:
                return np.full(len(records), STATES.index(reason), dtype=np.uint8)
        few = records < max(1, self.config.minimum_records)
        return np.select([few & had_enough, few, stale], [_TOO_FEW, _WARMING, _STALE], _OK).astype(np.uint8)

    def _estimated(self, snapshot: Snapshot, states: Codes, errors: Counter[str]) -> _Estimated:
        """Return the estimates. A window without an estimate of its own adds only its part of a shared model."""
        ok, none = states == _OK, np.zeros(len(states), dtype=np.bool_)
        wanted = ok
        if self.shared:
            wanted = ok | (np.isin(states, _PART_OF_A_WHOLE) & (snapshot.measured.records > 0))
        if self.reference is None or not wanted.any():
            return _Estimated(no_estimates(len(states)), states, none, none)
        failures: dict[str, Exception] = {}

        def failed(estimator: str, error: Exception, _windows: int) -> None:
            failures[estimator] = error

        try:
            found = self.reference.calibration.estimate_windows(snapshot.measured, failed=failed)
        except Exception as error:  # noqa: BLE001 - one model that fails must not affect the others
            self._log_failure(HEADLINE, error)
            errors[HEADLINE] = int(np.count_nonzero(wanted))
            return _Estimated(no_estimates(len(states)), np.where(ok, np.uint8(_ERROR), states), none, none)
        for estimator, failure in failures.items():
            count = int(np.count_nonzero(wanted & (found.why[found.names.index(estimator)] == _FAILED)))
            if count:
                self._log_failure(estimator, failure)
                errors[estimator] = count
        if self.config.baseline.mode is BaselineMode.AUTO and self.reference.calibration.segments is not None:
            found = self.reference.calibration.segments.corrected(found, snapshot.segments)
        has_headline = found.why[found.names.index(headline_in(found.names))] == 0
        part = wanted & (found.why == 0).any(axis=0) if self.shared else none
        return _Estimated(found, np.where(ok & ~has_headline, np.uint8(_ERROR), states), ok, part)

    def _log_failure(self, estimator: str, error: Exception) -> None:
        log.error("estimator %s of %s failed: %s: %s", estimator, self.name, type(error).__name__, error)

    def _alerts(
        self, tracked: Sequence[_TrackedWindow], facts: WindowFacts, dwells: Sequence[Dwell], now: float
    ) -> AlertColumns:
        """Step every alert of every window."""
        rules = self.config.alerts
        shape = len(rules), len(tracked)
        applies = np.array([one.applies for one in tracked], dtype=np.bool_).reshape(shape[::-1]).T
        phases, since = np.zeros(shape, dtype=np.uint8), np.zeros(shape)
        held, threshold, value = np.zeros(shape, dtype=np.bool_), np.full(shape, np.nan), np.full(shape, np.nan)
        for row, rule in enumerate(rules):
            found = conditions(rule, facts)
            held[row], threshold[row], value[row] = ~found.known, found.threshold, found.value
            fingerprint = rule.fingerprint
            bad, well, known = found.bad.tolist(), found.well.tolist(), found.known.tolist()
            for window in np.flatnonzero(applies[row]).tolist():
                alerts = tracked[window].memory.alerts
                state = alerts[rule.name]
                settled = state.phase is AlertPhase.OK and not bad[window] and state.rule == fingerprint
                if known[window] and not settled:
                    state = step(rule, state, dwells[window], now, bad=bad[window], well=well[window])
                    alerts[rule.name] = state
                if state.phase is not AlertPhase.OK:
                    phases[row, window] = PHASES.index(state.phase)
                since[row, window] = state.since
        kinds = np.zeros(shape, dtype=np.uint8)
        for row, rule in enumerate(rules):
            if facts.kinds is not None and (rule.uses_baseline or rule.kind is AlertType.BASELINE_GAP):
                kinds[row] = facts.kinds
        return AlertColumns(tuple(map(quiet, rules)), applies, phases, since, held, threshold, value, kinds)

    def _count_versions(self, snapshot: Snapshot) -> None:
        counted = snapshot.right_version, snapshot.other_version
        if self._counted is not None:
            self._versions.add(counted[0] - self._counted[0], counted[1] - self._counted[1])
        self._counted = counted

    def _input_problems(
        self, snapshot: Snapshot, windows: WindowReports, reference: Reference, now: float
    ) -> tuple[FoundProblem, ...]:
        """Return the problems with the input. While catching up, windows are incomplete and their problems stay."""
        # What arrived while cpcmon did not run is old, too: before the first start, and in the rest of a backlog.
        self._input.add(self._counts, snapshot.counts, catching_up=snapshot.catching_up or self._after_backlog)
        self._counts, self._after_backlog = snapshot.counts, snapshot.catching_up
        if not snapshot.catching_up:
            self._unmatched = ()
            # Of a shared model, another process may have the segments.
            if not self.shared and windows.records[0] >= FEWEST:
                matches = windows.alerts.applies
                self._unmatched = tuple(
                    rule.name for row, rule in enumerate(self.config.alerts) if not matches[row].any()
                )
            predicted = snapshot.measured.predicted[0]
            self._far_mix = far_mix(reference.classes, predicted, reference.summary.class_predicted)
        seen = {",".join(name for name, _ in segment) for segment in snapshot.segments}
        return self._input.problems(seen, self._unmatched, self._far_mix, now)

    @staticmethod
    def _degraded(found: InputFacts, reference: Reference) -> bool:
        # With argmaxes in place of probabilities, every estimator based on confidence would report 100%.
        argmax = found.one_hot and reference.summary.tied_share < _TIED_REFERENCE
        return found.degraded or found.constant or argmax


def _joined(windows: WindowReports, missing: Sequence[SegmentReport]) -> WindowReports:
    """Return the windows, and behind them those that are missing."""
    performance = windows.performance
    # Made one by one, windows would compute theirs in vain.
    found = WindowReports.of([*replace(windows, performance=None), *missing])
    return replace(
        found,
        changes=None if windows.changes is None else windows.changes.padded(len(missing)),
        labels=windows.labels,
        track_records=windows.track_records,
        performance=None if performance is None else performance.padded(len(missing)),
        comparisons=None if windows.comparisons is None else windows.comparisons.padded(len(missing)),
    )


def _without_records(snapshot: Snapshot, tracked: Sequence[_TrackedWindow], at: _Moment) -> Floats:
    """Return the time without records, as far as known, with time asleep and time between runs."""
    base, first_seen = (np.array([getattr(one, name) for one in tracked]) for name in ("base_seconds", "first_seen"))
    unseen = base + np.maximum(0.0, at.running - first_seen)
    return np.where(np.isnan(snapshot.came_at), unseen, np.maximum(0.0, at.running - snapshot.came_at))


def _ends(found: _Estimated, rule: AlertRule, compared: Comparisons, labels: LabelColumns | None) -> Floats:
    """Return the value or an end of an interval of the rule's estimator; NaN without an estimate."""
    estimates, estimator, on = found.estimates, rule.estimator, rule.on
    if estimator == AUDITED and labels is not None and labels.audited is not None:
        # Of the horizon: it holds whatever the window is like now.
        ends = {On.LOWER: labels.audited.lower, On.UPPER: labels.audited.upper}.get(on, labels.audited.value)
        return np.asarray(ends[SCOPES.index(Scope.HORIZON)])
    if estimator not in estimates.names:
        return np.full(len(found.states), np.nan)
    row = estimates.names.index(estimator)
    if on.of_field:
        # Of the widest level.
        end = estimates.field[-1, int(on is On.FIELD_UPPER)]
    elif rule.uses_baseline and on is On.UPPER:
        end = change_upper(compared, estimates, estimator)
    else:
        end = {On.VALUE: estimates.accuracy, On.LOWER: estimates.lower, On.UPPER: estimates.upper}[on][row]
    return np.where(found.shown, end, np.nan)


def _compared_metric(
    rule: AlertRule, performance: MeasuredPerformance | None, shown: Flags, classes: Sequence[str]
) -> tuple[Floats, float | None]:
    """Return what a rule with a metric compares, and the reference's own value; NaN where it cannot be said."""
    target = target_of(rule, classes)
    if performance is None or target is None:
        return np.full(len(shown), np.nan), None
    found = performance.estimates([target])
    column = {On.VALUE: found.value, On.LOWER: found.lower, On.UPPER: found.upper}[rule.on]
    return np.where(shown, column[0], np.nan), performance.reference.value(target)


def _times(times: Iterable[float | None]) -> Floats:
    return np.array([np.nan if one is None else one for one in times])


def _facts_of(reference: Reference) -> ReferenceFacts:
    calibration = reference.calibration
    return ReferenceFacts(
        reference.version,
        reference.created,
        reference.fingerprint,
        reference.classes,
        calibration.records,
        calibration.accuracy,
        calibration.temperature,
        calibration.confidence,
        reference.summary.class_predicted,
        calibration.decision,
        calibration.performance,
        calibration.headline,
    )


def _set_state(memory: WindowAlertState, state: str, now: float) -> None:
    """Set the state of a window, and since when it holds."""
    if state != memory.state:
        memory.state, memory.state_since = state, now
    elif memory.state_since is not None:
        # The clock was set back: the time must not be in the future.
        memory.state_since = min(memory.state_since, now)


def segment_named(name: str, segments: Iterable[Segment]) -> Segment:
    """Return the segment with a name, as pages show it; raises UnknownName unless there is exactly one."""
    found = [segment for segment in dict.fromkeys(segments) if name_of(segment) == name]
    if len(found) != 1:
        raise UnknownName(
            Problem("segment", "the name of one segment of the model", f"{len(found) or 'none'} of that name")
        )
    return found[0]
