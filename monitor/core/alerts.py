"""Alerts: rules, and the state machine of one alert: ok, pending, firing, recovering. `now` is passed in.

Dwell is counted in running time and in new records, both: without the first a burst would fire at once, without the
second silence alone would let a timer run out on the same data. For that reason it also ends only at a look to which
records came. A window of which nothing can be said now holds its
alerts as they are: what cannot be judged neither fires nor resolves.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from monitor.core.estimate import Estimate, Result, WindowState
from monitor.core.estimators.consensus import CONSENSUS

_WHOLE = "all"
_DAYS = 86_400.0
_LONGEST_SECONDS = 366 * _DAYS
_MOST_WINDOWS = 10.0
CHANCE_MARGIN = 1.5
"""Disagreement fires over this many times what chance alone gives.

Chance stays below its bound in 95% of windows, so the bound itself is crossed every few days in health, and more often by
a model whose reference is a little off. docs/alerts.md has the rates that were measured.
"""


class AlertType(StrEnum):
    """What a rule looks at."""

    ACCURACY = "accuracy"
    DISAGREEMENT = "disagreement"
    SILENT = "silent"
    DEGRADED_INPUT = "degraded_input"


class Severity(StrEnum):
    """How urgent an alert is: the usual three words of Prometheus rules."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class On(StrEnum):
    """Which end of an estimate is compared with the threshold."""

    VALUE = "value"
    LOWER = "lower"
    UPPER = "upper"


_MAY_HAVE = {
    AlertType.ACCURACY: ("below", "drop", "above"),
    AlertType.DISAGREEMENT: ("above",),
    AlertType.SILENT: (),
    AlertType.DEGRADED_INPUT: (),
}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One configured alert of a model. Exactly one of `below`, `drop` and `above` for accuracy."""

    name: str
    kind: AlertType = AlertType.ACCURACY
    severity: Severity = Severity.WARNING
    estimator: str = CONSENSUS
    below: float | None = None
    """Fires under this accuracy."""
    drop: float | None = None
    """Fires this far under the accuracy of the reference: 0.05 is five points."""
    above: float | None = None
    """Fires over this accuracy; for disagreement, over this disagreement (None: over `CHANCE_MARGIN` times what chance alone gives)."""
    on: On = On.UPPER
    for_seconds: float = 1800.0
    hysteresis: float = 0.01
    """How far beyond the threshold it must be to recover."""
    new_records: float = 0.2
    """How much must have come since it became pending, or began to recover, as a share of the window; 1.5 is one and a half."""
    after_seconds: float = 0.0
    """For silence: how long without a record."""
    segments: tuple[str, ...] = ("*",)
    """To which segments it applies: names such as `all` and `site=A`, in which * stands for anything but a comma; a * alone for every segment. Degraded input is of the model: it applies to `all` whatever stands here."""

    def __post_init__(self) -> None:
        """Refuse a rule that could never fire, never end, or not be told what to compare."""
        if not self.name or not self.estimator:
            raise ValueError(f"alert: expected a name and an estimator, found {self.name!r} and {self.estimator!r}")
        self._check_thresholds()
        self._check("hysteresis", "a ratio from 0 up to, not including, 1", 0.0 <= self.hysteresis < 1.0)
        self._check("new_records", f"a ratio from 0 to {_MOST_WINDOWS:g}", 0.0 <= self.new_records <= _MOST_WINDOWS)
        self._check("for_seconds", "0 to 366 days", 0.0 <= self.for_seconds <= _LONGEST_SECONDS)
        if self.kind is AlertType.SILENT:
            self._check("after_seconds", "more than 0, up to 366 days", 0.0 < self.after_seconds <= _LONGEST_SECONDS)
        else:
            self._check("after_seconds", f"nothing for {self.kind}", self.after_seconds == 0.0)
        self._check("segments", "names of segments", bool(self.segments) and all(self.segments))

    def _check_thresholds(self) -> None:
        given = [key for key in ("below", "drop", "above") if getattr(self, key) is not None]
        found = " and ".join(given) or "none"
        if self.kind is AlertType.ACCURACY and len(given) != 1:
            raise ValueError(f"alert {self.name}: expected exactly one of below, drop and above, found {found}")
        if not set(given) <= set(_MAY_HAVE[self.kind]):
            may_have = " or ".join(_MAY_HAVE[self.kind]) or "no threshold"
            raise ValueError(f"alert {self.name}: expected {may_have} for {self.kind}, found {found}")
        # At the ends nothing can be under 0 or over 1: such a rule would be an all-clear for ever.
        self._check("below", "a ratio above 0, up to 1", self.below is None or 0.0 < self.below <= 1.0)
        self._check("drop", "a ratio from 0 up to, not including, 1", self.drop is None or 0.0 <= self.drop < 1.0)
        self._check("above", "a ratio from 0 up to, not including, 1", self.above is None or 0.0 <= self.above < 1.0)

    def _check(self, key: str, expected: str, holds: bool) -> None:  # noqa: FBT001  a verdict, not a switch
        if not holds:
            raise ValueError(f"alert {self.name}: {key}: expected {expected}, found {getattr(self, key)!r}")

    @property
    def upward(self) -> bool:
        """Whether it fires over its threshold, not under it."""
        return self.above is not None or self.kind is AlertType.DISAGREEMENT

    @property
    def fingerprint(self) -> str:
        """A text that changes when the rule's meaning does: not with its name, its severity or its segments."""
        numbers = {
            "below": self.below,
            "drop": self.drop,
            "above": self.above,
            "for": self.for_seconds,
            "hysteresis": self.hysteresis,
            "new_records": self.new_records,
            "after": self.after_seconds,
        }
        told = [f"{key}={float(number)!r}" for key, number in numbers.items() if number is not None]
        return " ".join([self.kind, f"estimator={self.estimator}", f"on={self.on}", *told])

    def threshold(self, reference_accuracy: float | None) -> float | None:
        """Return the ratio to compare with; None where there is none, or none that is known without the window."""
        if self.drop is not None:
            # Never below 0: where the reference is that poor, the rule cannot fire, and shows a threshold of 0.
            return None if reference_accuracy is None else max(0.0, reference_accuracy - self.drop)
        return self.below if self.below is not None else self.above

    def applies_to(self, segment: str) -> bool:
        """Tell whether the rule is for a segment, by its name."""
        if self.kind is AlertType.DEGRADED_INPUT:
            # Records are refused before anybody knows their segment: one fact of the model, one alert.
            return segment == _WHOLE
        return any(pattern == "*" or _matches(pattern, segment) for pattern in self.segments)

    def new_records_of(self, records: int) -> int:
        """Return how many records must be new in a window of this many. At least one: silence judges nothing."""
        # The small step keeps a product that is whole but for rounding from asking for one more.
        return max(1, math.ceil(self.new_records * records - 1e-9))


def _matches(pattern: str, segment: str) -> bool:
    """Compare whole names, * standing for anything but a comma, so that `site=*` means each site and not its scanners."""
    return re.fullmatch("[^,]*".join(map(re.escape, pattern.split("*"))), segment) is not None


def runbook(kind: AlertType, *, upward: bool) -> str:
    """Return the name of the page for people on call: an accuracy too good to be true has one of its own."""
    return "accuracy_high.md" if kind is AlertType.ACCURACY and upward else f"{kind}.md"


LOW, HIGH = "accuracy_low", "accuracy_high"
"""Kinds of alerts on accuracy, as labels."""


def is_high(rule: AlertRule) -> bool:
    """Tell whether a rule looks for an accuracy that is too good to be true."""
    return rule.kind is AlertType.ACCURACY and rule.above is not None


def kind_label(rule: AlertRule) -> str:
    """Return the word by which Prometheus tells the alerts of one kind from others, whatever they are called."""
    if rule.kind is AlertType.ACCURACY:
        return HIGH if is_high(rule) else LOW
    return str(rule.kind)


class AlertPhase(StrEnum):
    """Where an alert stands."""

    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    """Still firing, but above the threshold and its hysteresis for a while."""


@dataclass(frozen=True, slots=True)
class AlertFacts:
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

    phase: AlertPhase = AlertPhase.OK
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
    kind: AlertType
    severity: Severity
    phase: AlertPhase
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
        return self.phase is AlertPhase.FIRING or self.phase is AlertPhase.RECOVERING


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a rule says of a window now. Between `bad` and `well` lies the hysteresis, where neither is true."""

    bad: bool
    well: bool
    value: float | None = None


def step(rule: AlertRule, before: AlertState, facts: AlertFacts, now: float) -> AlertState:
    """Take an alert one evaluation further. `now` is only remembered: no decision depends on it."""
    verdict = _judged(rule, facts)
    if verdict is None:
        return before
    fingerprint = rule.fingerprint
    if before.rule != fingerprint:
        before = _under(fingerprint, before, verdict, now)
    after = _moved(before, verdict, facts, now)
    if after.phase is AlertPhase.PENDING and _has_dwelt(rule, after, facts):
        return AlertState(AlertPhase.FIRING, now, rule=fingerprint)
    if after.phase is AlertPhase.RECOVERING and (rule.kind is AlertType.SILENT or _has_dwelt(rule, after, facts)):
        return AlertState(AlertPhase.OK, now, rule=fingerprint)
    return after


def status(rule: AlertRule, state: AlertState, facts: AlertFacts) -> AlertStatus:
    """Return what to show of an alert after its step."""
    verdict = _judged(rule, facts)
    return AlertStatus(
        alert=rule.name,
        kind=rule.kind,
        severity=rule.severity,
        phase=state.phase,
        since=state.since,
        held=verdict is None,
        estimator=rule.estimator if rule.kind is AlertType.ACCURACY else None,
        threshold=_threshold(rule, facts),
        value=None if verdict is None else verdict.value,
        upward=rule.upward,
    )


def _under(fingerprint: str, before: AlertState, verdict: _Verdict, now: float) -> AlertState:
    """Return where an alert stands under a rule that means something else than the one that brought it there."""
    anew = AlertState(AlertPhase.OK, now, rule=fingerprint)
    match before.phase:
        case AlertPhase.OK:
            return replace(before, rule=fingerprint)
        case AlertPhase.PENDING:
            return anew
        case AlertPhase.FIRING | AlertPhase.RECOVERING:
            return replace(anew, phase=AlertPhase.FIRING, since=before.since) if verdict.bad else anew


def _moved(before: AlertState, verdict: _Verdict, facts: AlertFacts, now: float) -> AlertState:
    """Return the phase that the verdict leads to, with what passed in it; that it may last long enough is not seen here."""
    match before.phase:
        case AlertPhase.OK:
            # What came before this look made the condition true; only what comes after it can confirm it.
            return AlertState(AlertPhase.PENDING, now, rule=before.rule) if verdict.bad else before
        case AlertPhase.PENDING:
            return _longer(before, facts) if verdict.bad else AlertState(AlertPhase.OK, now, rule=before.rule)
        case AlertPhase.FIRING:
            return AlertState(AlertPhase.RECOVERING, before.since, rule=before.rule) if verdict.well else before
        case AlertPhase.RECOVERING:
            firing = AlertState(AlertPhase.FIRING, before.since, rule=before.rule)
            return _longer(before, facts) if verdict.well else firing


def _longer(before: AlertState, facts: AlertFacts) -> AlertState:
    return replace(
        before,
        dwell_seconds=before.dwell_seconds + facts.elapsed_seconds,
        dwell_records=before.dwell_records + facts.new_records,
    )


def _has_dwelt(rule: AlertRule, state: AlertState, facts: AlertFacts) -> bool:
    if state.dwell_seconds < rule.for_seconds:
        return False
    if rule.kind in {AlertType.SILENT, AlertType.DEGRADED_INPUT}:
        return True
    # Records that came long ago must not let a later silence run the timer out.
    return facts.new_records > 0 and state.dwell_records >= rule.new_records_of(facts.records)


def _judged(rule: AlertRule, facts: AlertFacts) -> _Verdict | None:
    """Compare; None when there is nothing that could be compared."""
    match rule.kind:
        case AlertType.SILENT | AlertType.DEGRADED_INPUT if facts.state is WindowState.CATCHING_UP:
            return None
        case AlertType.SILENT:
            quiet = facts.quiet_seconds > rule.after_seconds
            # Not by new records: those that came while the alert was held would leave it stuck.
            return _Verdict(bad=quiet, well=not quiet)
        case AlertType.DEGRADED_INPUT:
            return _Verdict(bad=facts.degraded, well=not facts.degraded)
        case AlertType.ACCURACY | AlertType.DISAGREEMENT:
            return _compared(rule, facts)


def _compared(rule: AlertRule, facts: AlertFacts) -> _Verdict | None:
    # An error means that one estimator failed. The others still stand, and so do the rules on them.
    if facts.state not in {WindowState.OK, WindowState.ERROR}:
        return None
    value = _end(rule, facts) if rule.kind is AlertType.ACCURACY else facts.disagreement
    threshold = _threshold(rule, facts)
    if value is None or threshold is None or not (math.isfinite(value) and math.isfinite(threshold)):
        return None
    # Never more than half way to the end of the scale, or an alert near 0 or 1 could not recover.
    if rule.upward:
        recovered = threshold - min(rule.hysteresis, threshold / 2.0)
        return _Verdict(bad=value > threshold, well=value <= recovered, value=value)
    recovered = threshold + min(rule.hysteresis, (1.0 - threshold) / 2.0)
    return _Verdict(bad=value < threshold, well=value >= recovered, value=value)


def _end(rule: AlertRule, facts: AlertFacts) -> float | None:
    """Return the end of the estimate that the rule compares; None without an estimate."""
    found = facts.results.get(rule.estimator)
    if not isinstance(found, Estimate):
        return None
    if rule.on is On.VALUE or found.interval is None:
        return found.accuracy
    return found.interval.lower if rule.on is On.LOWER else found.interval.upper


def _threshold(rule: AlertRule, facts: AlertFacts) -> float | None:
    if rule.kind is AlertType.DISAGREEMENT and rule.above is None:
        return None if facts.chance_disagreement is None else CHANCE_MARGIN * facts.chance_disagreement
    return rule.threshold(facts.reference_accuracy)


__all__ = [
    "CONSENSUS",
    "AlertFacts",
    "AlertPhase",
    "AlertRule",
    "AlertState",
    "AlertStatus",
    "AlertType",
    "On",
    "Severity",
    "status",
    "step",
]
