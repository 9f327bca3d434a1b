"""Alerts: rules, and the state machine of one alert: ok, pending, firing, recovering. `now` is passed in.

An alert fires or resolves after a dwell in both running time and new records: without the first, a burst would fire at
once; without the second, a timer would expire on the same data. The dwell ends only at an evaluation with new records.
While a window cannot be evaluated, its alerts keep their phase.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.core.change import Detector, Direction
from monitor.core.estimate import AUDITED, HEADLINE, STATES, WindowState
from monitor.core.performance import Metric, words_of
from monitor.core.scores import Floats

Flags = NDArray[np.bool_]
Codes = NDArray[np.uint8]
"""Indexes into a list of names."""

_OK, _ERROR, _CATCHING_UP = map(STATES.index, (WindowState.OK, WindowState.ERROR, WindowState.CATCHING_UP))

_NOT_OWN_RECORDS = [
    STATES.index(one) for one in (WindowState.CATCHING_UP, WindowState.VERSION_MISMATCH, WindowState.DEGRADED_INPUT)
]
"""States in which records are incomplete, or not what the reference is about."""

_WHOLE = "all"
CHANCE_MARGIN = 1.5
"""Disagreement fires above this multiple of the chance level.

The chance level covers 95% of windows, so a healthy model exceeds it every few days. docs/alerts.md has measured rates.
"""


class AlertType(StrEnum):
    """Types of alerts."""

    CHANGE = "change"
    """The evidence of a change of the accuracy reached the budget for false alarms."""
    ACCURACY = "accuracy"
    DISAGREEMENT = "disagreement"
    OUTPUT_DRIFT = "output_drift"
    """The outputs are unlike those of the baseline."""
    BASELINE_GAP = "baseline_gap"
    """A segment without labels has been far below the reference from the start."""
    SILENT = "silent"
    DEGRADED_INPUT = "degraded_input"


class Severity(StrEnum):
    """The severity of an alert, as usual in Prometheus rules."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class On(StrEnum):
    """The value compared with the threshold: the estimate, or an end of its interval or of its field interval."""

    VALUE = "value"
    LOWER = "lower"
    UPPER = "upper"
    FIELD_LOWER = "field_lower"
    FIELD_UPPER = "field_upper"

    @property
    def of_field(self) -> bool:
        """Whether it is an end of the field interval, which only the headline has."""
        return self in {On.FIELD_LOWER, On.FIELD_UPPER}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One configured alert of a model; `config.models` checks it. Exactly one of `below`, `drop` and `above` for accuracy.

    With a metric it compares that in place of the accuracy.
    """

    name: str
    kind: AlertType = AlertType.ACCURACY
    severity: Severity = Severity.WARNING
    estimator: str = HEADLINE
    below: float | None = None
    """Fires below this accuracy."""
    drop: float | None = None
    """Fires this far below the baseline; 0.05 is five points. For a baseline gap, below the reference accuracy."""
    above: float | None = None
    """Fires above this accuracy, disagreement or drift. For the last two, None means a multiple of that of chance."""
    on: On = On.UPPER
    for_seconds: float = 1800.0
    hysteresis: float = 0.01
    """The distance from the threshold needed to recover."""
    new_records: float = 0.2
    """New records needed to fire or recover, as a share of the window; 1.5 is one and a half windows."""
    after_seconds: float = 0.0
    """For type silent: the time without a record."""
    segments: tuple[str, ...] = ("*",)
    """Names of segments, such as `all` and `site=A`. A * matches anything but a comma; a single * matches every segment. Ignored for degraded input, which applies to `all`."""
    metric: Metric | None = None
    of_class: str | None = None
    """The class of the metric, by name; None for the macro average, and for AUROC."""
    tolerance: float | None = None
    """For type change: a smaller change is none; None for the smallest that is allowed."""
    direction: Direction = Direction.DOWN
    false_alarm_seconds: float = 90 * 86400.0
    """For type change: the time between false alarms, over all windows of the rule."""
    group_by: str | None = None
    """For type change: of the records with the same value of this field, only the first counts."""
    maintenance: tuple[tuple[float, float], ...] = ()
    """For type change: times at which records do not count."""

    @property
    def detector(self) -> Detector:
        """What a rule of type change looks for."""
        return Detector(self.direction, self.tolerance)

    @property
    def upward(self) -> bool:
        """Whether it fires above its threshold, not below."""
        return self.above is not None or self.kind in {
            AlertType.CHANGE,
            AlertType.DISAGREEMENT,
            AlertType.OUTPUT_DRIFT,
        }

    @property
    def compared(self) -> str:
        """What an accuracy alert compares, in words."""
        return "accuracy" if self.metric is None else words_of(self.metric, self.of_class)

    def with_headline(self, headline: str) -> "AlertRule":
        """Return the rule for a reference with this headline: an old one does not have `adaptive`."""
        return replace(self, estimator=headline) if self.estimator == HEADLINE else self

    @property
    def fingerprint(self) -> str:
        """Changes with the meaning of the rule, but not with its name, severity or segments."""
        numbers = {
            "below": self.below,
            "drop": self.drop,
            "above": self.above,
            "for": self.for_seconds,
            "hysteresis": self.hysteresis,
            "new_records": self.new_records,
            "after": self.after_seconds,
        }
        parts = [f"{key}={float(number)!r}" for key, number in numbers.items() if number is not None]
        if self.metric is not None:
            parts += [f"metric={self.metric}", f"class={self.of_class!r}"]
        if self.kind is AlertType.CHANGE:
            parts += [f"tolerance={self.tolerance!r}", f"direction={self.direction}", f"group_by={self.group_by!r}"]
        return " ".join([self.kind, f"estimator={self.estimator}", f"on={self.on}", *parts])

    @property
    def uses_baseline(self) -> bool:
        """Whether it compares a window with its baseline."""
        return self.kind is AlertType.OUTPUT_DRIFT or (
            self.kind is AlertType.ACCURACY and self.drop is not None and self.metric is None
        )

    @property
    def fixed_threshold(self) -> float | None:
        """The threshold, unless it depends on the reference, the baseline or the window."""
        return self.below if self.below is not None else self.above

    def applies_to(self, segment: str) -> bool:
        """Return whether the rule applies to a segment, by name."""
        if self.kind is AlertType.DEGRADED_INPUT:
            # Rejected records have no segment: one alert per model.
            return segment == _WHOLE
        return any(pattern == "*" or _matches(pattern, segment) for pattern in self.segments)

    def new_records_of(self, records: int) -> int:
        """Return the new records needed for a window of this size; at least one."""
        # The epsilon absorbs rounding errors.
        return max(1, math.ceil(self.new_records * records - 1e-9))


def _matches(pattern: str, segment: str) -> bool:
    """Match a whole name. * matches anything but a comma: `site=*` matches sites, not their scanners."""
    return re.fullmatch("[^,]*".join(map(re.escape, pattern.split("*"))), segment) is not None


def runbook(kind: AlertType, *, upward: bool) -> str:
    """Return the file name of the runbook."""
    return "accuracy_high.md" if kind is AlertType.ACCURACY and upward else f"{kind}.md"


LOW, HIGH = "accuracy_low", "accuracy_high"
"""Label values of accuracy alerts."""
METRIC_LOW, METRIC_HIGH = "performance_low", "performance_high"
"""Label values of accuracy alerts with a metric."""
AUDITED_LOW, AUDITED_HIGH = "audited_low", "audited_high"
"""Label values of alerts on the audited accuracy."""


def is_high(rule: AlertRule) -> bool:
    """Return whether a rule fires on an implausibly high accuracy or metric."""
    return rule.kind is AlertType.ACCURACY and rule.above is not None


def kind_label(rule: AlertRule) -> str:
    """Return the label value of the rule's type."""
    if rule.kind is AlertType.ACCURACY:
        low, high = (LOW, HIGH) if rule.metric is None else (METRIC_LOW, METRIC_HIGH)
        if rule.estimator == AUDITED:
            low, high = AUDITED_LOW, AUDITED_HIGH
        return high if is_high(rule) else low
    return str(rule.kind)


class AlertPhase(StrEnum):
    """The phase of an alert."""

    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    """Still firing, but beyond the threshold and its hysteresis."""


PHASES = tuple(AlertPhase)
"""Columns hold phases as indexes into it."""


@dataclass(frozen=True, slots=True)
class Dwell:
    """What a dwell is measured by: one window at one evaluation."""

    records: int
    """Records in the window."""
    new_records: int
    """Records since the previous evaluation."""
    elapsed_seconds: float
    """Running time since the previous evaluation; 0 for the first one."""


class ChangeFacts(NamedTuple):
    """The evidence of a change in each window, for one rule."""

    evidence: Floats
    """As a logarithm to base 10; NaN if there is none."""
    threshold: float
    """The evidence to alarm at."""
    well: Flags
    """Whether an alarm may end."""
    held: Flags
    """Whether records do not count now."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowFacts:
    """The input of alerts: the windows of a model at one evaluation, as columns."""

    states: Codes
    """Indexes into STATES."""
    quiet_seconds: Floats
    ends: Callable[[AlertRule], Floats]
    """Returns what a rule on the accuracy compares: the value or an end of an interval of its estimator; NaN without an estimate."""
    disagreement: Floats
    """NaN for none."""
    chance_disagreement: Floats
    degraded: bool = False
    reference_accuracy: float | None = None
    baseline: Callable[[str], Floats] | None = None
    """Returns the baselines of an estimator; NaN while they are collected. None: the reference accuracy is that of all windows."""
    kinds: Codes | None = None
    """The kinds of these baselines, as indexes; None for none."""
    gap: Floats | None = None
    """What an unverified baseline is judged by, the headline; NaN where there is none. Other windows have no gap."""
    unverified: Flags | None = None
    drift: tuple[Floats, Floats] | None = None
    """The distance of the outputs that is furthest above its limit, and the limit; NaN if unknown."""
    metric: Callable[[AlertRule], tuple[Floats, float | None]] | None = None
    """Returns what a rule with a metric compares, NaN where it cannot be said, and the reference's own value of the metric."""
    change: Callable[[AlertRule], ChangeFacts] | None = None
    """Returns the evidence for a rule of type change."""


@dataclass(frozen=True, slots=True)
class AlertState:
    """The state of an alert between evaluations, kept across restarts."""

    phase: AlertPhase = AlertPhase.OK
    since: float = 0.0
    """When this phase began, in Unix seconds; for recovering, when it began to fire."""
    dwell_seconds: float = 0.0
    dwell_records: int = 0
    rule: str = ""
    """The fingerprint of the rule; a changed rule restarts the dwell."""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """An alert for display."""

    alert: str
    kind: AlertType
    severity: Severity
    phase: AlertPhase
    since: float
    """When this phase began, in Unix seconds; 0 if it never changed."""
    held: bool
    """Whether it cannot be evaluated now and keeps its phase."""
    estimator: str | None = None
    """For accuracy only, without a metric."""
    threshold: float | None = None
    """For accuracy and disagreement only; None if unknown."""
    value: float | None = None
    """The value compared with the threshold; None if there is none."""
    upward: bool = False
    """Whether it fires above its threshold, not below."""
    metric: Metric | None = None
    """What it compares in place of the accuracy."""
    of_class: str | None = None
    """The class of the metric, by name; None for the macro average, and for AUROC."""
    baseline: str | None = None
    """The kind of baseline that it compares with; None if it compares with none."""
    direction: Direction | None = None
    """For type change only."""

    @property
    def compared(self) -> str:
        """What an accuracy alert compares, in words."""
        return "accuracy" if self.metric is None else words_of(self.metric, self.of_class)

    @property
    def firing(self) -> bool:
        """Whether it is firing or recovering."""
        # Faster than a set: hashing an enum is slow.
        return self.phase is AlertPhase.FIRING or self.phase is AlertPhase.RECOVERING


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """The condition of a rule in each window. Within the hysteresis it is neither bad nor well."""

    known: Flags
    """Whether it can be evaluated."""
    bad: Flags
    well: Flags
    value: Floats
    """The value compared; NaN if there is none, or it cannot be compared."""
    threshold: Floats
    """NaN if there is none, or it is unknown."""


def step(rule: AlertRule, before: AlertState, dwell: Dwell, now: float, *, bad: bool, well: bool) -> AlertState:
    """Return the state of an alert after an evaluation in which its condition is known.

    `now` is only stored; no decision depends on it.
    """
    fingerprint = rule.fingerprint
    if before.rule != fingerprint:
        before = _after_rule_change(fingerprint, before, now, bad=bad)
    after = _next(before, dwell, now, bad=bad, well=well)
    if after.phase is AlertPhase.PENDING and _has_dwelt(rule, after, dwell):
        return AlertState(AlertPhase.FIRING, now, rule=fingerprint)
    if after.phase is AlertPhase.RECOVERING and (rule.kind is AlertType.SILENT or _has_dwelt(rule, after, dwell)):
        return AlertState(AlertPhase.OK, now, rule=fingerprint)
    return after


def quiet(rule: AlertRule) -> AlertStatus:
    """Return the status of an alert that never fired."""
    return AlertStatus(
        alert=rule.name,
        kind=rule.kind,
        severity=rule.severity,
        phase=AlertPhase.OK,
        since=0.0,
        held=False,
        estimator=rule.estimator if rule.kind is AlertType.ACCURACY and rule.metric is None else None,
        upward=rule.upward,
        metric=rule.metric,
        of_class=rule.of_class,
        direction=rule.direction if rule.kind is AlertType.CHANGE else None,
    )


def _after_rule_change(fingerprint: str, before: AlertState, now: float, *, bad: bool) -> AlertState:
    """Return the state of an alert after its rule changed."""
    anew = AlertState(AlertPhase.OK, now, rule=fingerprint)
    match before.phase:
        case AlertPhase.OK:
            return replace(before, rule=fingerprint)
        case AlertPhase.PENDING:
            return anew
        case AlertPhase.FIRING | AlertPhase.RECOVERING:
            return replace(anew, phase=AlertPhase.FIRING, since=before.since) if bad else anew


def _next(before: AlertState, dwell: Dwell, now: float, *, bad: bool, well: bool) -> AlertState:
    """Return the next state, without checking the dwell."""
    match before.phase:
        case AlertPhase.OK:
            # Only records after this evaluation confirm the condition.
            return AlertState(AlertPhase.PENDING, now, rule=before.rule) if bad else before
        case AlertPhase.PENDING:
            return _extended(before, dwell) if bad else AlertState(AlertPhase.OK, now, rule=before.rule)
        case AlertPhase.FIRING:
            return AlertState(AlertPhase.RECOVERING, before.since, rule=before.rule) if well else before
        case AlertPhase.RECOVERING:
            firing = AlertState(AlertPhase.FIRING, before.since, rule=before.rule)
            return _extended(before, dwell) if well else firing


def _extended(before: AlertState, dwell: Dwell) -> AlertState:
    return replace(
        before,
        dwell_seconds=before.dwell_seconds + dwell.elapsed_seconds,
        dwell_records=before.dwell_records + dwell.new_records,
    )


def _has_dwelt(rule: AlertRule, state: AlertState, dwell: Dwell) -> bool:
    if rule.kind is AlertType.CHANGE:
        # The evidence is of many records; waiting for more would only delay it.
        return True
    if state.dwell_seconds < rule.for_seconds:
        return False
    # Labels come without new records, too.
    if rule.kind in {AlertType.SILENT, AlertType.DEGRADED_INPUT, AlertType.BASELINE_GAP} or rule.estimator == AUDITED:
        return True
    # Without new records the timer alone does not fire.
    return dwell.new_records > 0 and state.dwell_records >= rule.new_records_of(dwell.records)


def conditions(rule: AlertRule, facts: WindowFacts) -> Conditions:
    """Return the condition of a rule in each window."""
    nothing = np.full(len(facts.states), np.nan)
    if rule.kind in _COMPARED:
        return _compared(rule, facts)
    if rule.kind is AlertType.BASELINE_GAP:
        return _gap(rule, facts)
    if rule.kind is AlertType.CHANGE:
        return _changed(rule, facts)
    if rule.kind is AlertType.SILENT:
        # Not by new records: those that arrived while the alert was held would be missed.
        bad = facts.quiet_seconds > rule.after_seconds
    else:
        bad = np.full(len(facts.states), facts.degraded)
    return Conditions(facts.states != _CATCHING_UP, bad, ~bad, nothing, nothing)


_COMPARED = (AlertType.ACCURACY, AlertType.DISAGREEMENT, AlertType.OUTPUT_DRIFT)


def _gap(rule: AlertRule, facts: WindowFacts) -> Conditions:
    """Compare windows with the reference whose own baseline is unverified; all others are well."""
    unknown = np.full(len(facts.states), np.nan)
    if facts.gap is None or facts.unverified is None or facts.reference_accuracy is None:
        return Conditions(np.zeros(len(unknown), dtype=np.bool_), unknown > 0, unknown > 0, unknown, unknown)
    threshold = np.full(len(unknown), max(0.0, facts.reference_accuracy - (rule.drop or 0.0)))
    value = np.where(facts.unverified, facts.gap, np.nan)
    bad = value < threshold
    well = ~facts.unverified | (value >= threshold + min(rule.hysteresis, (rule.drop or 0.0) / 2.0))
    known = ~facts.unverified | ((facts.states == _OK) & np.isfinite(value))
    return Conditions(known, bad, well, value, np.where(facts.unverified, threshold, np.nan))


def _changed(rule: AlertRule, facts: WindowFacts) -> Conditions:
    """Compare the evidence of a change with the budget. Without a baseline there is none, and nothing to end."""
    count = len(facts.states)
    if facts.change is None:
        none = np.zeros(count, dtype=np.bool_)
        return Conditions(none, none, none, np.full(count, np.nan), np.full(count, np.nan))
    value, threshold, well, held = facts.change(rule)
    known = ~np.isin(facts.states, _NOT_OWN_RECORDS) & ~held
    return Conditions(known, value >= threshold, well, value, np.full(count, threshold))


def _compared(rule: AlertRule, facts: WindowFacts) -> Conditions:
    value, of_reference = _values(rule, facts)
    threshold = _thresholds(rule, facts, of_reference)
    # In state error one estimator failed; rules on the others still apply.
    has_results = (facts.states == _OK) | (facts.states == _ERROR) | (rule.estimator == AUDITED)
    known: Flags = has_results & np.isfinite(value) & np.isfinite(threshold)
    value = np.where(known, value, np.nan)
    # At most half way to the end of the scale, or an alert near 0 or 1 could not recover.
    if rule.upward:
        recovered = threshold - np.minimum(rule.hysteresis, threshold / 2.0)
        return Conditions(known, value > threshold, value <= recovered, value, threshold)
    recovered = threshold + np.minimum(rule.hysteresis, (1.0 - threshold) / 2.0)
    return Conditions(known, value < threshold, value >= recovered, value, threshold)


def _values(rule: AlertRule, facts: WindowFacts) -> tuple[Floats, float | Floats | None]:
    """Return what a rule compares, and what it compares that with: the value of the baseline, or of the reference."""
    unknown = np.full(len(facts.states), np.nan)
    if rule.metric is not None:
        return facts.metric(rule) if facts.metric is not None else (unknown, None)
    if rule.kind is AlertType.DISAGREEMENT:
        return facts.disagreement, None
    if rule.kind is AlertType.OUTPUT_DRIFT:
        return facts.drift or (unknown, unknown)
    return facts.ends(rule), facts.reference_accuracy if facts.baseline is None else facts.baseline(rule.estimator)


def _thresholds(rule: AlertRule, facts: WindowFacts, of_baseline: float | Floats | None) -> Floats:
    if rule.above is None and rule.kind is AlertType.DISAGREEMENT:
        chance: Floats = CHANCE_MARGIN * facts.chance_disagreement
        return chance
    found = rule.fixed_threshold
    if found is None and of_baseline is not None:
        # At least 0, where the rule cannot fire.
        return np.maximum(0.0, np.full(len(facts.states), of_baseline) - (rule.drop or 0.0))
    return np.full(len(facts.states), np.nan if found is None else found)
