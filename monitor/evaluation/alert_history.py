"""The alert history of a model: every transition of an alert, as a log line and as a stored row, the last thousand of them."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from monitor.core.alerts import PHASES, AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.calibration import or_none
from monitor.core.report import Report
from monitor.core.scores import Floats
from monitor.evaluation.stored_values import AlertMemory

log = logging.getLogger("cpcmon")

MOST_ROWS = 1000
"""Of one model."""
MOST_LINES = 20
"""In the log, of one evaluation."""
GONE = "gone"
"""In place of a phase: the segment expired, or the alert or the model left the configuration."""

_Key = tuple[str, str]
"""Name of the segment, name of the alert."""
_Phases = dict[_Key, tuple[AlertPhase, float]]
"""The alerts that are not quiet: phase, and since when; for a recovering one, when it began to fire."""
_FIRING = (AlertPhase.FIRING, AlertPhase.RECOVERING)


class Transition(msgspec.Struct, frozen=True, array_like=True):
    """An alert that passed from one phase to another."""

    at: float
    """The evaluation that found it."""
    segment: str
    alert: str
    before: AlertPhase
    after: AlertPhase | None
    """None if it is gone."""
    since: float
    """When `before` began; for recovering, when it began to fire. 0 if it was quiet."""
    kind: AlertType | None = None
    """None if it is gone, and so all below."""
    severity: Severity | None = None
    value: float | None = None
    """The value compared with the threshold."""
    threshold: float | None = None
    accuracy: float | None = None
    """The headline of the window then; None without an estimate."""
    records: int | None = None

    @property
    def seconds(self) -> float | None:
        """How long `before` lasted; None if it was quiet."""
        return None if self.before is AlertPhase.OK else max(0.0, self.at - self.since)

    @property
    def fired(self) -> bool:
        """Whether it began to fire."""
        return self.before not in _FIRING and self.after in _FIRING

    @property
    def ended(self) -> bool:
        """Whether it ceased to fire."""
        return self.before in _FIRING and self.after not in _FIRING


class AlertHistory:
    """The transitions of one model. Updated by its evaluations, one at a time; `rows` may be read on any thread."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.rows: tuple[Transition, ...] = ()
        """Oldest first. Replaced, never changed."""
        self._phases: _Phases = {}

    def restore(self, rows: bytes | None, alerts: bytes | None) -> None:
        """Restore the rows, and the phases that they led to from the stored alert state. Invalid bytes count as none."""
        self._phases = _phases_in(alerts)
        if rows is None:
            return
        try:
            self.rows = msgspec.msgpack.decode(rows, type=tuple[Transition, ...])
        except (msgspec.DecodeError, ValueError):
            log.warning("%s: stored alert history is invalid, starting without it", self.model)

    def to_bytes(self) -> bytes:
        """Return the bytes to store."""
        return msgspec.msgpack.encode(self.rows)

    def note(self, report: Report) -> Sequence[Transition]:
        """Add and log the transitions since the previous evaluation, and return them."""
        alerts, names = report.windows.alerts, report.windows.names
        places = np.argwhere(alerts.active).tolist()
        phases: _Phases = {
            (names[window], alerts.quiet[row].alert): (
                PHASES[alerts.phases[row, window]],
                float(alerts.since[row, window]),
            )
            for row, window in places
        }
        changed = [key for key in {**self._phases, **phases} if _phase(self._phases, key) is not _phase(phases, key)]
        before, self._phases = self._phases, phases
        if not changed:
            return ()
        accuracy = report.windows.headline(report.windows.estimates.accuracy)
        found = [_transition(report, before, key, now, accuracy) for key, now in _statuses(report, changed)]
        self.rows = _bounded((*self.rows, *found))
        log_transitions(self.model, found)
        return found


def _phase(phases: _Phases, key: _Key) -> AlertPhase:
    return phases[key][0] if key in phases else AlertPhase.OK


def _phases_in(alerts: bytes | None) -> _Phases:
    memory = None if alerts is None else AlertMemory.from_bytes(alerts)
    return (
        {} if memory is None else {(segment, alert): (one.phase, one.since) for segment, alert, one in memory.active()}
    )


def _statuses(report: Report, keys: Iterable[_Key]) -> Iterator[tuple[_Key, tuple[int, AlertStatus] | None]]:
    """Return where alerts are in a report and what it says of them; None for those that are gone."""
    windows = {name: window for window, name in enumerate(report.windows.names)}
    for segment, alert in keys:
        window = windows.get(segment)
        its = () if window is None else report.windows.alerts.window(window)
        yield (segment, alert), next(((window or 0, one) for one in its if one.alert == alert), None)


def _transition(
    report: Report, before: _Phases, key: _Key, now: tuple[int, AlertStatus] | None, accuracy: Floats
) -> Transition:
    phase, since = before.get(key, (AlertPhase.OK, 0.0))
    if now is None:
        return Transition(report.at, *key, phase, None, since)
    window, status = now
    return Transition(
        report.at,
        *key,
        phase,
        status.phase,
        since,
        status.kind,
        status.severity,
        status.value,
        status.threshold,
        or_none(accuracy[window]),
        int(report.windows.records[window]),
    )


def _bounded(rows: tuple[Transition, ...]) -> tuple[Transition, ...]:
    """Return the last rows. Those about pending and recovering go first: they may come at every evaluation."""
    excess = len(rows) - MOST_ROWS
    if excess <= 0:
        return rows
    minor = [place for place, row in enumerate(rows) if not (row.fired or row.ended)][:excess]
    dropped = set(minor)
    return tuple(row for place, row in enumerate(rows) if place not in dropped)[-MOST_ROWS:]


def log_transitions(model: str, found: Sequence[Transition]) -> None:
    """Write a line for each transition, the most important first; of many, a last line counts the others."""
    shown = sorted(found, key=lambda one: (not one.fired, not one.ended))
    for one in shown[:MOST_LINES]:
        fields = {
            "model": model,
            "segment": one.segment,
            "alert": one.alert,
            "severity": one.severity,
            "from": one.before,
            "to": one.after or GONE,
            "value": one.value,
            "threshold": one.threshold,
            "after_seconds": None if one.seconds is None else round(one.seconds),
        }
        log.log(
            logging.WARNING if one.fired else logging.INFO,
            "alert %s",
            "fired" if one.fired else GONE if one.after is None else "resolved" if one.ended else one.after,
            extra={"fields": {name: value for name, value in fields.items() if value is not None}},
        )
    if len(found) > MOST_LINES:
        log.info("%s: %d more alert transitions; /api/v1/alerts has them", model, len(found) - MOST_LINES)


def log_gone(model: str, alerts: bytes | None, now: float) -> None:
    """Log the end of the alerts of a model that left the configuration; its history goes with it."""
    gone = [Transition(now, *key, phase, None, since) for key, (phase, since) in _phases_in(alerts).items()]
    log_transitions(model, gone)


def alert_history_key_of(model: str) -> str:
    """Return the key of a model's alert history in the state."""
    return f"alert_history:{model}"
