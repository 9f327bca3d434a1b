"""Alerts of one window, from its results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from monitor.core import alerts
from monitor.core.alerts import AlertRule, AlertState, AlertStatus, Dwell, On, WindowFacts, conditions
from monitor.core.calibration import or_none
from monitor.core.estimate import STATES, Estimate, Result, WindowState
from monitor.core.scores import Floats


@dataclass(frozen=True, slots=True)
class AlertFacts:
    """The input of alerts: one window at one evaluation."""

    state: WindowState
    records: int
    """Records in the window."""
    new_records: int
    """Records since the previous evaluation."""
    quiet_seconds: float
    """Running time since the last record."""
    elapsed_seconds: float
    """Running time since the previous evaluation; 0 for the first one."""
    results: Mapping[str, Result]
    disagreement: float | None = None
    chance_disagreement: float | None = None
    degraded: bool = False
    reference_accuracy: float | None = None


def step(rule: AlertRule, before: AlertState, facts: AlertFacts, now: float) -> AlertState:
    """Return the state of an alert after an evaluation."""
    found = conditions(rule, _column(facts))
    if not found.known[0]:
        return before
    dwell = Dwell(facts.records, facts.new_records, facts.elapsed_seconds)
    return alerts.step(rule, before, dwell, now, bad=bool(found.bad[0]), well=bool(found.well[0]))


def status(rule: AlertRule, state: AlertState, facts: AlertFacts) -> AlertStatus:
    """Return the status of an alert after its step."""
    found = conditions(rule, _column(facts))
    return replace(
        alerts.quiet(rule),
        phase=state.phase,
        since=state.since,
        held=not found.known[0],
        threshold=or_none(found.threshold[0]),
        value=or_none(found.value[0]),
    )


def _column(facts: AlertFacts) -> WindowFacts:
    """Return the facts of one window as columns."""

    def end(rule: AlertRule) -> Floats:
        found, on = facts.results.get(rule.estimator), rule.on
        if not isinstance(found, Estimate):
            return np.array([np.nan])
        value = found.accuracy if on is On.VALUE or found.interval is None else getattr(found.interval, on)
        return np.array([value])

    def number(value: float | None) -> Floats:
        return np.array([np.nan if value is None else value])

    return WindowFacts(
        np.array([STATES.index(facts.state)], dtype=np.uint8),
        number(facts.quiet_seconds),
        end,
        number(facts.disagreement),
        number(facts.chance_disagreement),
        facts.degraded,
        facts.reference_accuracy,
    )
