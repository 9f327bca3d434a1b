"""The evaluation of a model: a snapshot of its windows, estimators, alerts with their stored state, one immutable report."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

import msgspec

from monitor.config.config import ModelConfig
from monitor.core.alerts import AlertFacts, AlertPhase, AlertRule, AlertState, AlertStatus, status, step
from monitor.core.estimate import CONSENSUS, Estimate, WindowState
from monitor.core.report import InputFacts, ReferenceFacts, Report, SegmentReport, Snapshot, WindowSnapshot
from monitor.core.segments import ALL, Segment, name_of
from monitor.reference.reference import Reference

log = logging.getLogger("cpcmon")

_MIN_STALE_SECONDS = 3600.0
_GAPS_UNTIL_STALE = 3.0
_PART_OF_A_WHOLE = {WindowState.WARMING, WindowState.TOO_FEW_RECORDS, WindowState.STALE}
"""States with good records that are too few or too old for an estimate of their own."""
_TIED_REFERENCE = 0.5
"""With such a share of tied confidences in the reference, the model rounds its outputs, and one-hot vectors are normal."""

_FORMAT = 1
_MIN_VERSION_RECORDS = 100
_MAX_VERSION_RECORDS = 400
"""Number of recent records over which the share of other versions is taken."""


AlertKey = tuple[str, str, str]
"""Model, segment and name of an alert."""

NOTIFIED_KEY = "told"
"""The key of the notified alerts in the state."""


def notified_as_bytes(alerts: Iterable[AlertKey]) -> bytes:
    """Return notified alerts as bytes."""
    return msgspec.json.encode(sorted(alerts))


def notified_from_bytes(content: bytes) -> list[AlertKey]:
    """Return notified alerts; none from invalid bytes, so that they are notified again."""
    try:
        return msgspec.json.decode(content, type=list[AlertKey])
    except (msgspec.DecodeError, ValueError):
        return []


class WindowAlertState(msgspec.Struct, array_like=True):
    """The alert state of a window."""

    segment: Segment
    quiet_seconds: float = 0.0
    """Time without records, by the running clock."""
    had_enough: bool = False
    """Whether it ever held enough records for an estimate."""
    last_valid_at: float | None = None
    alerts: dict[str, AlertState] = msgspec.field(default_factory=dict)
    state: str = ""
    """The last reported window state; empty in a state of an older cpcmon."""
    state_since: float | None = None

    def set_state(self, state: str, now: float) -> None:
        """Set the window state, and since when it holds."""
        if state != self.state:
            self.state, self.state_since = state, now
        elif self.state_since is not None:
            # The clock was set back: the time must not be in the future.
            self.state_since = min(self.state_since, now)


@dataclass(slots=True)
class VersionCounts:
    """Recent records with the version of the reference, and with others."""

    right: int = 0
    other: int = 0
    of: str = ""
    """The version of the reference; empty when any is accepted."""

    def add(self, right: int, other: int) -> None:
        """Count records; older ones fade."""
        self.right, self.other = self.right + right, self.other + other
        total = self.right + self.other
        if total > _MAX_VERSION_RECORDS:
            self.right = self.right * _MAX_VERSION_RECORDS // total
            self.other = self.other * _MAX_VERSION_RECORDS // total

    @property
    def mismatch(self) -> bool:
        """Whether most recent records have another version."""
        return self.right + self.other >= _MIN_VERSION_RECORDS and self.other > self.right


@dataclass(frozen=True, slots=True)
class AlertMemory:
    """The alert state of a model, as it is stored."""

    versions: VersionCounts
    windows: tuple[WindowAlertState, ...]
    version: int = _FORMAT

    def to_bytes(self) -> bytes:
        """Return the bytes to store."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> "AlertMemory | None":
        """Return the stored state; None if the bytes are invalid."""
        try:
            memory = msgspec.json.decode(content, type=AlertMemory)
        except (msgspec.DecodeError, ValueError):
            return None
        return memory if memory.version == _FORMAT else None

    def firing(self) -> list[tuple[str, str]]:
        """Return segment and name of the firing alerts."""
        return [
            (name_of(window.segment), alert)
            for window in self.windows
            for alert, state in window.alerts.items()
            if state.phase in {AlertPhase.FIRING, AlertPhase.RECOVERING}
        ]


class Snapshots(Protocol):
    """The windows, as `ingest.IngestView` provides them."""

    def snapshot(self, model: str, now: float, running: float) -> Snapshot:
        """Return a consistent snapshot of all windows of a model."""
        ...


@dataclass(slots=True)
class _TrackedWindow:
    """A window between evaluations."""

    memory: WindowAlertState
    entered: int = 0
    base_seconds: float = 0.0
    """Time without records before the first evaluation, as far as known."""
    first_seen: float = 0.0


@dataclass(slots=True)
class Evaluator:
    """Evaluates one model. Not safe for use by several threads."""

    config: ModelConfig
    reference: Reference | None
    snapshots: Snapshots
    notified: tuple[tuple[str, str, str], ...] = ()
    """Alerts that were firing before the start: model, segment and name."""
    shared: bool = False
    """Whether several processes share the records of the model."""
    _windows: dict[Segment, _TrackedWindow] = field(default_factory=dict)
    _missing: dict[Segment, WindowAlertState] = field(default_factory=dict)
    """Windows that are not here now: not restored yet, or moving between processes."""
    _versions: VersionCounts = field(init=False)
    _counted: tuple[int, int] | None = None
    _last: float | None = None
    retracted_at: float | None = None
    """When the caller retracted the last report: since then its windows are in state `error`."""

    def __post_init__(self) -> None:
        """Set up the counts of versions."""
        self._versions = VersionCounts(of=self._version)

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
            return
        if memory.versions.of == self._version:
            self._versions = memory.versions
        self._missing = {one.segment: one for one in memory.windows}
        self.notified = tuple((self.name, segment, alert) for segment, alert in memory.firing())

    def alert_state_bytes(self) -> bytes:
        """Return the alert state as bytes."""
        windows = {**self._missing, **{segment: tracked.memory for segment, tracked in self._windows.items()}}
        return AlertMemory(self._versions, tuple(windows.values())).to_bytes()

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
        segments = []
        for segment, window in snapshot.windows.items():
            view = _WindowView(window, snapshot.catching_up, self._versions.mismatch, input_, now, running, elapsed)
            segments.append(self._evaluate_window(segment, view, self.reference, errors))
        segments += self._missing_reports(snapshot, now)
        return Report(
            self.name,
            now,
            time.perf_counter() - start,
            _facts_of(self.reference),
            tuple(segments),
            input_,
            self.config.segmentation.most_segments if self.config.segmentation.split_by else 0,
            MappingProxyType(dict(errors)),
            self.config.minimum_records,
        )

    def _apply_retraction(self) -> None:
        """Set windows to `error` since the time when their report was retracted."""
        at, self.retracted_at = self.retracted_at, None
        if at is not None:
            for memory in (*self._missing.values(), *(tracked.memory for tracked in self._windows.values())):
                memory.set_state(WindowState.ERROR, at)

    def _missing_reports(self, snapshot: Snapshot, now: float) -> list[SegmentReport]:
        """Return reports of missing windows. While the daemon catches up they may still come, and their alerts are held."""
        for segment in self._windows.keys() - snapshot.windows.keys():
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
            self._windows.setdefault(segment, _TrackedWindow(self._missing.get(segment) or WindowAlertState(segment)))
        return tuple(self._held(tracked.memory, WindowState.NO_REFERENCE, now) for tracked in self._windows.values())

    def _held(self, memory: WindowAlertState, state: WindowState, now: float | None = None) -> SegmentReport:
        """Return the report of a window without records, whose alerts are held; without `now` it is not evaluated."""
        facts = AlertFacts(state, 0, 0, 0.0, 0.0, {})
        alerts = tuple(
            replace(status(rule, memory.alerts.get(rule.name, AlertState()), facts), held=True)
            for rule in self.config.alerts
            if rule.applies_to(name_of(memory.segment))
        )
        if now is not None:
            memory.set_state(state, now)
        since = None if now is None else memory.state_since
        return SegmentReport(
            memory.segment, 0, state, last_valid_at=memory.last_valid_at, alerts=alerts, state_since=since
        )

    def _evaluate_window(
        self, segment: Segment, view: "_WindowView", reference: Reference, errors: Counter[str]
    ) -> SegmentReport:
        tracked = self._track(segment, view)
        window, memory = view.window, tracked.memory
        new = max(0, window.entered - tracked.entered)
        tracked.entered = window.entered
        without_records = _without_records(tracked, view)
        quiet = memory.quiet_seconds + view.elapsed
        if window.came_at is not None:
            quiet = min(quiet, without_records)
        memory.quiet_seconds = quiet
        records = window.totals.records
        memory.had_enough |= records >= self.config.minimum_records
        stale = without_records > self._stale_after(window)
        state = self._state(view, memory, stale=stale)
        report = SegmentReport(segment, records, state, last_record_at=window.newest_at)
        if state is WindowState.OK or (self.shared and records and state in _PART_OF_A_WHOLE):
            report = self._estimated(report, window, errors, fresh=not stale)
        if report.state is WindowState.OK:
            memory.last_valid_at = view.now
        memory.set_state(report.state, view.now)
        facts = AlertFacts(
            report.state,
            records,
            new,
            quiet,
            view.elapsed,
            report.results,
            report.disagreement,
            report.chance_disagreement,
            view.input.degraded,
            reference.calibration.accuracy,
        )
        alerts = self._alerts(memory, facts, name_of(segment), view.now)
        return replace(report, last_valid_at=memory.last_valid_at, alerts=alerts, state_since=memory.state_since)

    def _track(self, segment: Segment, view: "_WindowView") -> _TrackedWindow:
        if segment not in self._windows:
            memory = self._missing.pop(segment, None) or WindowAlertState(segment)
            before = view.window.came_before
            self._windows[segment] = _TrackedWindow(
                memory,
                base_seconds=max(memory.quiet_seconds, 0.0 if before is None else view.now - before),
                first_seen=view.running,
            )
        return self._windows[segment]

    def _stale_after(self, window: WindowSnapshot) -> float:
        if self.config.stale_after_seconds is not None:
            return self.config.stale_after_seconds
        return max(_MIN_STALE_SECONDS, _GAPS_UNTIL_STALE * window.usual_gap_seconds)

    def _state(self, view: "_WindowView", memory: WindowAlertState, *, stale: bool) -> WindowState:
        """Return whether a window has an estimate; of several reasons against it, the one that explains the others."""
        records = view.window.totals.records
        if view.catching_up:
            return WindowState.CATCHING_UP
        if view.version_mismatch:
            return WindowState.VERSION_MISMATCH
        if view.input.degraded:
            return WindowState.DEGRADED_INPUT
        if records < max(1, self.config.minimum_records):
            return WindowState.TOO_FEW_RECORDS if memory.had_enough else WindowState.WARMING
        return WindowState.STALE if stale else WindowState.OK

    def _estimated(
        self, report: SegmentReport, window: WindowSnapshot, errors: Counter[str], *, fresh: bool
    ) -> SegmentReport:
        """Add the estimates. A window without an estimate of its own adds only its part of a shared model."""

        def failed(estimator: str, error: Exception, windows: int = 1) -> None:
            if not errors[estimator]:
                log.error("estimator %s of %s failed: %s: %s", estimator, self.name, type(error).__name__, error)
            errors[estimator] += windows

        try:
            found = window.totals.estimate(failed)
        except Exception as error:  # noqa: BLE001 - one window that fails must not affect the others
            failed(CONSENSUS, error)
            return replace(report, state=WindowState.ERROR) if report.state is WindowState.OK else report
        if self.shared:
            parts = {name: one for name, one in found.estimators.items() if isinstance(one, Estimate)}
            report = replace(report, parts=MappingProxyType(parts), fresh=fresh)
        if report.state is not WindowState.OK:
            return report
        has_consensus = isinstance(found.estimators[CONSENSUS], Estimate)
        return replace(
            report,
            state=WindowState.OK if has_consensus else WindowState.ERROR,
            results=MappingProxyType(dict(found.estimators)),
            disagreement=found.disagreement,
            chance_disagreement=found.chance_disagreement,
            predicted=tuple(window.totals.predicted.tolist()),
        )

    def _alerts(self, memory: WindowAlertState, facts: AlertFacts, segment: str, now: float) -> tuple[AlertStatus, ...]:
        rules: list[AlertRule] = [rule for rule in self.config.alerts if rule.applies_to(segment)]
        memory.alerts = {
            rule.name: step(rule, memory.alerts.get(rule.name, AlertState()), facts, now) for rule in rules
        }
        return tuple(status(rule, memory.alerts[rule.name], facts) for rule in rules)

    def _count_versions(self, snapshot: Snapshot) -> None:
        counted = snapshot.right_version, snapshot.other_version
        if self._counted is not None:
            self._versions.add(counted[0] - self._counted[0], counted[1] - self._counted[1])
        self._counted = counted

    @staticmethod
    def _degraded(found: InputFacts, reference: Reference) -> bool:
        # With argmaxes in place of probabilities, every estimator based on confidence would report 100%.
        argmax = found.one_hot and reference.summary.tied_share < _TIED_REFERENCE
        return found.degraded or found.constant or argmax


@dataclass(frozen=True, slots=True)
class _WindowView:
    """A window, and the circumstances of the evaluation."""

    window: WindowSnapshot
    catching_up: bool
    version_mismatch: bool
    input: InputFacts
    now: float
    running: float
    elapsed: float


def _without_records(tracked: _TrackedWindow, view: _WindowView) -> float:
    """Return the time without records, as far as known, with time asleep and time between runs."""
    if view.window.came_at is not None:
        return max(0.0, view.running - view.window.came_at)
    return tracked.base_seconds + max(0.0, view.running - tracked.first_seen)


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
    )


def key_of(model: str) -> str:
    """Return the key of a model's alert state in the state."""
    return f"alerts:{model}"


__all__ = ["Evaluator", "Snapshots", "key_of"]
