"""Alerts on one window: ok, pending, firing, recovering. Time is passed in; nothing here knows a clock.

Dwell is counted in running time and in new records, both: without the first a burst would fire at once, without the
second silence alone would let a timer run out on the same data. For that reason it also ends only at a look to which
records came. A window of which nothing can be said now holds its
alerts as they are: what cannot be judged neither fires nor resolves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from monitor.core.alert_rules import CHANCE_MARGIN, Kind, On, Rule, Severity
from monitor.core.estimate import Estimate, Result
from monitor.core.estimators.consensus import CONSENSUS
from monitor.core.window_state import WindowState


class Phase(StrEnum):
    """Where an alert stands."""

    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    """Still firing, but above the threshold and its hysteresis for a while."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an evaluation knows of one window, for its alerts."""

    state: WindowState
    records: int
    """In the window."""
    new_records: int
    """That came since the evaluation before."""
    quiet_seconds: float
    """Running time since the last record came."""
    elapsed_seconds: float
    """Running time since the evaluation before; 0 for the first after a start."""
    results: Mapping[str, Result]
    disagreement: float | None = None
    chance_disagreement: float | None = None
    degraded: bool = False
    reference_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class AlertState:
    """What is remembered of an alert between evaluations and over restarts."""

    phase: Phase = Phase.OK
    since: float = 0.0
    """When it came into this phase, in Unix seconds; of recovering, since when it has been firing."""
    dwell_seconds: float = 0.0
    dwell_records: int = 0
    rule: str = ""
    """The fingerprint of the rule under which it came about: another rule starts its dwell anew."""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """What is shown of an alert."""

    alert: str
    kind: Kind
    severity: Severity
    phase: Phase
    since: float
    """When it came into this phase, in Unix seconds; 0 while nothing ever happened."""
    held: bool
    """Whether it cannot be judged now, and so stays as it is."""
    estimator: str | None = None
    """For accuracy only."""
    threshold: float | None = None
    """A ratio, for accuracy and disagreement only; None where it is not known now."""
    value: float | None = None
    """The ratio that was compared with the threshold; None when there was nothing."""
    upward: bool = False
    """Whether it fires over its threshold, not under it."""

    @property
    def firing(self) -> bool:
        """Whether somebody should look."""
        # Not by a set: pages ask this of thousands, and an enumeration's hash is slow.
        return self.phase is Phase.FIRING or self.phase is Phase.RECOVERING


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a rule says of a window now. Between `bad` and `well` lies the hysteresis, where neither is true."""

    bad: bool
    well: bool
    value: float | None = None


def step(rule: Rule, before: AlertState, facts: Facts, now: float) -> AlertState:
    """Take an alert one evaluation further. `now` is only remembered: no decision depends on it."""
    verdict = _judged(rule, facts)
    if verdict is None:
        return before
    fingerprint = rule.fingerprint
    if before.rule != fingerprint:
        before = _under(fingerprint, before, verdict, now)
    after = _moved(before, verdict, facts, now)
    if after.phase is Phase.PENDING and _has_dwelt(rule, after, facts):
        return AlertState(Phase.FIRING, now, rule=fingerprint)
    if after.phase is Phase.RECOVERING and (rule.kind is Kind.SILENT or _has_dwelt(rule, after, facts)):
        return AlertState(Phase.OK, now, rule=fingerprint)
    return after


def status(rule: Rule, state: AlertState, facts: Facts) -> AlertStatus:
    """Return what to show of an alert after its step."""
    verdict = _judged(rule, facts)
    return AlertStatus(
        alert=rule.name,
        kind=rule.kind,
        severity=rule.severity,
        phase=state.phase,
        since=state.since,
        held=verdict is None,
        estimator=rule.estimator if rule.kind is Kind.ACCURACY else None,
        threshold=_threshold(rule, facts),
        value=None if verdict is None else verdict.value,
        upward=rule.upward,
    )


def _under(fingerprint: str, before: AlertState, verdict: _Verdict, now: float) -> AlertState:
    """Return where an alert stands under a rule that means something else than the one that brought it there."""
    anew = AlertState(Phase.OK, now, rule=fingerprint)
    match before.phase:
        case Phase.OK:
            return replace(before, rule=fingerprint)
        case Phase.PENDING:
            return anew
        case Phase.FIRING | Phase.RECOVERING:
            return replace(anew, phase=Phase.FIRING, since=before.since) if verdict.bad else anew


def _moved(before: AlertState, verdict: _Verdict, facts: Facts, now: float) -> AlertState:
    """Return the phase that the verdict leads to, with what passed in it; that it may last long enough is not seen here."""
    match before.phase:
        case Phase.OK:
            # What came before this look made the condition true; only what comes after it can confirm it.
            return AlertState(Phase.PENDING, now, rule=before.rule) if verdict.bad else before
        case Phase.PENDING:
            return _longer(before, facts) if verdict.bad else AlertState(Phase.OK, now, rule=before.rule)
        case Phase.FIRING:
            return AlertState(Phase.RECOVERING, before.since, rule=before.rule) if verdict.well else before
        case Phase.RECOVERING:
            firing = AlertState(Phase.FIRING, before.since, rule=before.rule)
            return _longer(before, facts) if verdict.well else firing


def _longer(before: AlertState, facts: Facts) -> AlertState:
    return replace(
        before,
        dwell_seconds=before.dwell_seconds + facts.elapsed_seconds,
        dwell_records=before.dwell_records + facts.new_records,
    )


def _has_dwelt(rule: Rule, state: AlertState, facts: Facts) -> bool:
    if state.dwell_seconds < rule.for_seconds:
        return False
    if rule.kind in {Kind.SILENT, Kind.DEGRADED_INPUT}:
        return True
    # Records that came long ago must not let a later silence run the timer out.
    return facts.new_records > 0 and state.dwell_records >= rule.new_records_of(facts.records)


def _judged(rule: Rule, facts: Facts) -> _Verdict | None:
    """Compare; None when there is nothing that could be compared."""
    match rule.kind:
        case Kind.SILENT | Kind.DEGRADED_INPUT if facts.state is WindowState.CATCHING_UP:
            return None
        case Kind.SILENT:
            quiet = facts.quiet_seconds > rule.after_seconds
            # Not by new records: those that came while the alert was held would leave it stuck.
            return _Verdict(bad=quiet, well=not quiet)
        case Kind.DEGRADED_INPUT:
            return _Verdict(bad=facts.degraded, well=not facts.degraded)
        case Kind.ACCURACY | Kind.DISAGREEMENT:
            return _compared(rule, facts)


def _compared(rule: Rule, facts: Facts) -> _Verdict | None:
    # An error means that one estimator failed. The others still stand, and so do the rules on them.
    if facts.state not in {WindowState.OK, WindowState.ERROR}:
        return None
    value = _end(rule, facts) if rule.kind is Kind.ACCURACY else facts.disagreement
    threshold = _threshold(rule, facts)
    if value is None or threshold is None or not (math.isfinite(value) and math.isfinite(threshold)):
        return None
    # Never more than half way to the end of the scale, or an alert near 0 or 1 could not recover.
    if rule.upward:
        recovered = threshold - min(rule.hysteresis, threshold / 2.0)
        return _Verdict(bad=value > threshold, well=value <= recovered, value=value)
    recovered = threshold + min(rule.hysteresis, (1.0 - threshold) / 2.0)
    return _Verdict(bad=value < threshold, well=value >= recovered, value=value)


def _end(rule: Rule, facts: Facts) -> float | None:
    """Return the end of the estimate that the rule compares; None without an estimate."""
    found = facts.results.get(rule.estimator)
    if not isinstance(found, Estimate):
        return None
    if rule.on is On.VALUE or found.interval is None:
        return found.accuracy
    return found.interval.lower if rule.on is On.LOWER else found.interval.upper


def _threshold(rule: Rule, facts: Facts) -> float | None:
    if rule.kind is Kind.DISAGREEMENT and rule.above is None:
        return None if facts.chance_disagreement is None else CHANCE_MARGIN * facts.chance_disagreement
    return rule.threshold(facts.reference_accuracy)


__all__ = [
    "CONSENSUS",
    "AlertState",
    "AlertStatus",
    "Facts",
    "Kind",
    "On",
    "Phase",
    "Rule",
    "Severity",
    "status",
    "step",
]
