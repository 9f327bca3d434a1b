"""The evaluation: a snapshot of all windows of a model, estimators, alerts, and one immutable report.

One object a model. Its owner calls it from one thread at a time; what it remembers between evaluations, and over
restarts, it gives away as bytes.
"""

import logging
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from monitor.config.config import ModelConfig
from monitor.core.alerts import AlertFacts, AlertRule, AlertState, AlertStatus, status, step
from monitor.core.estimate import Estimate, WindowState
from monitor.core.estimators.consensus import CONSENSUS
from monitor.core.report import InputFacts, ModelReport, ModelSnapshot, ReferenceFacts, SegmentReport, WindowSnapshot
from monitor.core.segments import ALL, Segment, name_of
from monitor.evaluation.alert_state import AlertMemory, ModelAlertState, Versions
from monitor.reference.reference import Reference

log = logging.getLogger("cpcmon")

_LEAST_STALE_SECONDS = 3600.0
_GAPS_UNTIL_STALE = 3.0
_PART_OF_A_WHOLE = {WindowState.WARMING, WindowState.TOO_FEW_RECORDS, WindowState.STALE}
"""States in which the records are good, but too few or too old for an answer of their own."""
_TIED_REFERENCE = 0.5
"""Where so many records of the reference share their confidence, rounded outputs look one-hot and yet are meant."""


class Snapshots(Protocol):
    """Where an evaluation finds the windows; see `pipeline.Ingestion`."""

    def snapshot(self, model: str, now: float, running: float) -> ModelSnapshot:
        """Return all windows of a model at one instant."""
        ...


@dataclass(slots=True)
class _Watched:
    """What is remembered of a window while the process runs."""

    kept: ModelAlertState
    entered: int = 0
    base_seconds: float = 0.0
    """How long no record had come when this object first saw it, as far as is known at all."""
    first_seen: float = 0.0


@dataclass(slots=True)
class Evaluator:
    """Judges one model."""

    config: ModelConfig
    reference: Reference | None
    snapshots: Snapshots
    told: tuple[tuple[str, str, str], ...] = ()
    """Model, segment and name of the alerts that were firing before the start: people know of them."""
    shared: bool = False
    """Whether other processes read other records of the model, so that answers are put together from all."""
    _windows: dict[Segment, _Watched] = field(default_factory=dict)
    _absent: dict[Segment, ModelAlertState] = field(default_factory=dict)
    """Windows that are remembered and not there: not restored yet, or on their way from one process to another."""
    _versions: Versions = field(init=False)
    _counted: tuple[int, int] | None = None
    _last: float | None = None
    retracted_at: float | None = None
    """When the last report was taken back, set by whoever did: its windows have been in error since."""

    def __post_init__(self) -> None:
        """Begin to count versions."""
        self._versions = Versions(of=self._version)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.config.name

    @property
    def _version(self) -> str:
        """Which version records must be of; empty when any will do."""
        return "" if self.reference is None or self.config.versions_alike else self.reference.version

    def restore(self, content: bytes | None) -> None:
        """Go on from what was remembered; bytes that cannot be understood are a fresh start."""
        if content is None:
            return
        memory = AlertMemory.from_bytes(content)
        if memory is None:
            log.warning("what was remembered of the alerts of %s cannot be read: they start anew", self.name)
            return
        if memory.versions.of == self._version:
            # Otherwise what was another version then may be the right one now.
            self._versions = memory.versions
        self._absent = {one.segment: one for one in memory.windows}
        self.told = tuple((self.name, segment, alert) for segment, alert in memory.firing())

    def remembered(self) -> bytes:
        """Return what the next start needs."""
        kept = {**self._absent, **{segment: watched.kept for segment, watched in self._windows.items()}}
        return AlertMemory(self._versions, tuple(kept.values())).to_bytes()

    def evaluate(self, now: float, running: float, awake: float) -> ModelReport:
        """Judge all windows as of `now`, Unix time.

        `running` is the steady clock that the records' arrival was noted on, and `awake` the one that stands still while
        the machine sleeps: alerts wait by it, since nobody could have sent anything meanwhile.
        """
        began = time.perf_counter()
        self._take_back()
        if self.reference is None:
            return ModelReport(self.name, now, time.perf_counter() - began, None, self._unjudged(now))
        taken = self.snapshots.snapshot(self.name, now, running)
        self._count_versions(taken)
        look = replace(taken.input, degraded=self._degraded(taken.input, self.reference))
        elapsed = 0.0 if self._last is None else max(0.0, awake - self._last)
        self._last = awake
        errors: Counter[str] = Counter()
        segments = []
        for segment, window in taken.windows.items():
            view = _Look(window, taken.catching_up, self._versions.mismatch, look, now, running, elapsed)
            segments.append(self._judge(segment, view, self.reference, errors))
        segments += self._missing(taken, now)
        return ModelReport(
            self.name,
            now,
            time.perf_counter() - began,
            _facts_of(self.reference),
            tuple(segments),
            look,
            self.config.segmentation.most_segments if self.config.segmentation.split_by else 0,
            MappingProxyType(dict(errors)),
            self.config.minimum_records,
        )

    def _take_back(self) -> None:
        """Remember windows as they were shown, where their numbers were taken back since the last evaluation."""
        at, self.retracted_at = self.retracted_at, None
        if at is not None:
            for kept in (*self._absent.values(), *(watched.kept for watched in self._windows.values())):
                kept.is_in(WindowState.ERROR, at)

    def _missing(self, taken: ModelSnapshot, now: float) -> list[SegmentReport]:
        """Return windows that are remembered and not there, held until it is known that they will not come."""
        for segment in self._windows.keys() - taken.windows.keys():
            self._absent[segment] = self._windows.pop(segment).kept
        most = self.config.segmentation.most_segments if taken.catching_up else 0
        for segment in list(self._absent)[: max(0, len(self._absent) - most)]:
            del self._absent[segment]
        return [self._held(kept, WindowState.CATCHING_UP, now) for kept in self._absent.values()]

    def not_evaluated(self) -> ModelReport:
        """Return what is known before the first evaluation, should that fail: what fired before the start is held."""
        segments = {ALL: None, **dict.fromkeys(self._absent)}
        kept = (self._absent.get(segment) or ModelAlertState(segment) for segment in segments)
        return ModelReport(self.name, 0.0, 0.0, None, tuple(self._held(one, WindowState.ERROR) for one in kept))

    def _unjudged(self, now: float) -> tuple[SegmentReport, ...]:
        """Return windows of a model without a reference; what fired when it still had one is held."""
        for segment in {ALL: None, **dict.fromkeys(self._absent)}:
            self._windows.setdefault(segment, _Watched(self._absent.get(segment) or ModelAlertState(segment)))
        return tuple(self._held(watched.kept, WindowState.NO_REFERENCE, now) for watched in self._windows.values())

    def _held(self, kept: ModelAlertState, state: WindowState, now: float | None = None) -> SegmentReport:
        """Return a window of which nothing is known but what was remembered; `now` where it is evaluated."""
        alerts = self._statuses(kept, AlertFacts(state, 0, 0, 0.0, 0.0, {}))
        if now is not None:
            kept.is_in(state, now)
        since = None if now is None else kept.state_since
        return SegmentReport(kept.segment, 0, state, last_valid_at=kept.last_valid_at, alerts=alerts, state_since=since)

    def _statuses(self, kept: ModelAlertState, facts: AlertFacts) -> tuple[AlertStatus, ...]:
        """Return all alerts of a window as they are, none of which can be judged."""
        return tuple(
            replace(status(rule, kept.alerts.get(rule.name, AlertState()), facts), held=True)
            for rule in self.config.alerts
            if rule.applies_to(name_of(kept.segment))
        )

    def _judge(self, segment: Segment, look: "_Look", reference: Reference, errors: Counter[str]) -> SegmentReport:
        watched = self._watched(segment, look)
        window, kept = look.window, watched.kept
        new = max(0, window.entered - watched.entered)
        watched.entered = window.entered
        without_records = _without_records(watched, look)
        quiet = kept.quiet_seconds + look.elapsed
        if window.came_at is not None:
            quiet = min(quiet, without_records)
        kept.quiet_seconds = quiet
        records = window.totals.records
        kept.had_enough |= records >= self.config.minimum_records
        stale = without_records > self._stale_after(window)
        state = self._state(look, kept, stale=stale)
        report = SegmentReport(segment, records, state, last_record_at=window.newest_at)
        if state is WindowState.OK or (self.shared and records and state in _PART_OF_A_WHOLE):
            report = self._estimated(report, window, errors, fresh=not stale)
        if report.state is WindowState.OK:
            kept.last_valid_at = look.now
        kept.is_in(report.state, look.now)
        facts = AlertFacts(
            report.state,
            records,
            new,
            quiet,
            look.elapsed,
            report.results,
            report.disagreement,
            report.chance_disagreement,
            look.input.degraded,
            reference.calibration.accuracy,
        )
        alerts = self._alerts(kept, facts, name_of(segment), look.now)
        return replace(report, last_valid_at=kept.last_valid_at, alerts=alerts, state_since=kept.state_since)

    def _watched(self, segment: Segment, look: "_Look") -> _Watched:
        if segment not in self._windows:
            kept = self._absent.pop(segment, None) or ModelAlertState(segment)
            before = look.window.came_before
            self._windows[segment] = _Watched(
                kept,
                base_seconds=max(kept.quiet_seconds, 0.0 if before is None else look.now - before),
                first_seen=look.running,
            )
        return self._windows[segment]

    def _stale_after(self, window: WindowSnapshot) -> float:
        if self.config.stale_after_seconds is not None:
            return self.config.stale_after_seconds
        return max(_LEAST_STALE_SECONDS, _GAPS_UNTIL_STALE * window.usual_gap_seconds)

    def _state(self, look: "_Look", kept: ModelAlertState, *, stale: bool) -> WindowState:
        """Say whether a window can be judged; of several reasons why not, the one that explains the others."""
        records = look.window.totals.records
        if look.catching_up:
            return WindowState.CATCHING_UP
        if look.version_mismatch:
            return WindowState.VERSION_MISMATCH
        if look.input.degraded:
            return WindowState.DEGRADED_INPUT
        if records < max(1, self.config.minimum_records):
            return WindowState.TOO_FEW_RECORDS if kept.had_enough else WindowState.WARMING
        return WindowState.STALE if stale else WindowState.OK

    def _estimated(
        self, report: SegmentReport, window: WindowSnapshot, errors: Counter[str], *, fresh: bool
    ) -> SegmentReport:
        """Ask the estimators. Where nothing can be said of the window alone, they only give its part of the whole."""

        def failed(estimator: str, error: Exception) -> None:
            if not errors[estimator]:
                log.error("estimator %s of %s failed: %s: %s", estimator, self.name, type(error).__name__, error)
            errors[estimator] += 1

        try:
            found = window.totals.estimate(failed)
        except Exception as error:  # noqa: BLE001 - one window that fails must not silence the others
            failed(CONSENSUS, error)
            return replace(report, state=WindowState.ERROR) if report.state is WindowState.OK else report
        if self.shared:
            answers = {name: one for name, one in found.estimators.items() if isinstance(one, Estimate)}
            report = replace(report, parts=MappingProxyType(answers), fresh=fresh)
        if report.state is not WindowState.OK:
            return report
        said = isinstance(found.estimators[CONSENSUS], Estimate)
        return replace(
            report,
            state=WindowState.OK if said else WindowState.ERROR,
            results=MappingProxyType(dict(found.estimators)),
            disagreement=found.disagreement,
            chance_disagreement=found.chance_disagreement,
            predicted=tuple(window.totals.predicted.tolist()),
        )

    def _alerts(self, kept: ModelAlertState, facts: AlertFacts, segment: str, now: float) -> tuple[AlertStatus, ...]:
        rules: list[AlertRule] = [rule for rule in self.config.alerts if rule.applies_to(segment)]
        kept.alerts = {rule.name: step(rule, kept.alerts.get(rule.name, AlertState()), facts, now) for rule in rules}
        return tuple(status(rule, kept.alerts[rule.name], facts) for rule in rules)

    def _count_versions(self, taken: ModelSnapshot) -> None:
        counted = taken.right_version, taken.other_version
        if self._counted is not None:
            self._versions.add(counted[0] - self._counted[0], counted[1] - self._counted[1])
        self._counted = counted

    @staticmethod
    def _degraded(found: InputFacts, reference: Reference) -> bool:
        # An argmax that was logged in place of probabilities would make every estimator that goes by confidence say 100%.
        argmax = found.one_hot and reference.summary.tied_share < _TIED_REFERENCE
        return found.degraded or found.constant or argmax


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at one window."""

    window: WindowSnapshot
    catching_up: bool
    version_mismatch: bool
    input: InputFacts
    now: float
    running: float
    elapsed: float


def _without_records(watched: _Watched, look: _Look) -> float:
    """Return for how long no record has come, as far as is known at all: asleep or not, running or not."""
    if look.window.came_at is not None:
        return max(0.0, look.running - look.window.came_at)
    return watched.base_seconds + max(0.0, look.running - watched.first_seen)


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
    """Return under which name a model's alerts are kept."""
    return f"alerts:{model}"


__all__ = ["Evaluator", "Snapshots", "key_of"]
