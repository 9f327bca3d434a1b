"""The urgency of each window, their order, and the overall status in one sentence.

A window that cannot be evaluated is never called ok.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.baselines.comparison import Verdict
from monitor.core.change import Direction
from monitor.core.estimate import AUDITED, Estimate, Interval
from monitor.core.estimators.ensemble import headline_in
from monitor.core.report import Report, SegmentReport
from monitor.core.segments import ALL, name_of
from monitor.evaluation.alert_history import Transition
from monitor.web.pages.wording import fired_words, place, plural
from monitor.web.site import Health

SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


class Urgency(IntEnum):
    """The urgency of a window or an alert, most urgent first; with a sign for readers who do not see colours."""

    sign: str
    words: str

    ALERT = 0, "▲", "Alert"
    PENDING = 1, "◆", "Pending"
    UNKNOWN = 2, "?", "Unknown"
    PROBLEM = 3, "!", "Input problem"
    """The input of the model has a problem, so that no alert fires says little."""
    DOUBTED = 4, "✗", "Labels disagree"
    """No alert, but the labels of the latest judged block disagree with the estimates."""
    CHANGED = 5, "≠", "Changed"
    """No alert, but the estimate fell or the outputs drifted since the baseline."""
    INFO = 6, "○", "Info"
    """Only alerts of severity info fire or are pending."""
    UNVERIFIED = 7, "◌", "No alert, baseline unverified"
    """Compared with its own first records, and nobody has confirmed those."""
    UNWATCHED = 8, "–", "No alert configured"
    """No alert is configured, so that none fires says nothing."""
    FINE = 9, "✓", "No alert"

    def __new__(cls, value: int, sign: str, words: str) -> Self:
        """Return a member with its sign and words."""
        one = int.__new__(cls, value)
        one._value_, one.sign, one.words = value, sign, words
        return one

    @property
    def kind(self) -> str:
        """The CSS class."""
        return self.name.lower()

    @property
    def heading(self) -> str:
        """The sign and the words."""
        return f"{self.sign} {self.words}"


def headline_of(segment: SegmentReport) -> Estimate | None:
    """Return the headline; None when the window has no valid estimate."""
    result = segment.results.get(headline_in(segment.results)) if segment.valid else None
    return result if isinstance(result, Estimate) else None


def audited_of(segment: SegmentReport) -> Estimate | None:
    """Return the audited accuracy of the horizon; None without one."""
    found = None if segment.labels is None else segment.labels.horizon.audited
    return None if found is None else Estimate(found.value, found.labels, Interval(found.lower, found.upper))


def compared_of(alert: AlertStatus, segment: SegmentReport) -> Estimate | None:
    """Return the accuracy that an alert compares, or an end of whose interval it compares."""
    return audited_of(segment) if alert.estimator == AUDITED else headline_of(segment)


def is_doubted(segment: SegmentReport) -> bool:
    """Return whether the labels of the latest judged block disagree with the estimates."""
    found = segment.track_record
    return found is not None and found.summary(headline_in(found.names)).wrong


def urgency_of(segment: SegmentReport) -> Urgency:
    """Return how urgent a window is."""
    # A loop, not min(): a page calls this for thousands of windows.
    worst = Urgency.FINE if segment.alerts else Urgency.UNWATCHED
    for alert in segment.alerts:
        urgency = alert_urgency(alert)
        if urgency is Urgency.ALERT:
            return urgency
        worst = min(worst, urgency)
    # Without an estimate a window is not ok, whatever its alerts were before.
    if headline_of(segment) is None:
        return Urgency.UNKNOWN
    if is_doubted(segment):
        return min(worst, Urgency.DOUBTED)
    if segment.verdict is Verdict.FELL or segment.verdict is Verdict.DRIFTED:
        return min(worst, Urgency.CHANGED)
    return worst if segment.baseline is None or segment.baseline.verified else min(worst, Urgency.UNVERIFIED)


def alert_urgency(alert: AlertStatus) -> Urgency:
    """Return how urgent an alert is: one of severity info is no emergency."""
    if alert.phase is AlertPhase.OK:
        return Urgency.FINE
    if alert.severity is Severity.INFO:
        return Urgency.INFO
    return Urgency.PENDING if alert.phase is AlertPhase.PENDING else Urgency.ALERT


def worst_severity(segment: SegmentReport) -> Severity | None:
    """Return the highest severity among firing alerts, else among pending ones; None when all are quiet."""
    if all(alert.phase is AlertPhase.OK for alert in segment.alerts):
        return None
    firing = {alert.severity for alert in segment.alerts if alert.firing}
    found = firing or {alert.severity for alert in segment.alerts if alert.phase is AlertPhase.PENDING}
    return next((one for one in SEVERITIES if one in found), None)


def severity_suffix(segment: SegmentReport) -> str:
    """Return `, critical` after the heading of a window with a firing or pending alert; else nothing."""
    severity = worst_severity(segment)
    return f", {severity}" if severity is not None and urgency_of(segment) in {Urgency.ALERT, Urgency.PENDING} else ""


def active_alerts(segment: SegmentReport) -> list[AlertStatus]:
    """Return the alerts that are not quiet: firing before pending, then by severity, changes before others."""
    active = [alert for alert in segment.alerts if alert.phase is not AlertPhase.OK]
    return sorted(
        active,
        key=lambda alert: (not alert.firing, SEVERITIES.index(alert.severity), alert.kind is not AlertType.CHANGE),
    )


def fired_changes(segment: SegmentReport, now: float) -> list[str]:
    """Say what the firing alerts of type change found."""
    by_direction = {one.direction: one for one in segment.changes}
    firing = [one for one in segment.alerts if one.kind is AlertType.CHANGE and one.firing]
    return [fired_words(one, by_direction.get(one.direction or Direction.DOWN), now) for one in firing]


def urgency_key(segment: SegmentReport) -> tuple[Urgency, int]:
    """Return a sort key: urgency, then severity."""
    worst = worst_severity(segment)
    return urgency_of(segment), len(SEVERITIES) if worst is None else SEVERITIES.index(worst)


Rank = tuple[Urgency, int, float, str]


def rank(segment: SegmentReport, report: Report) -> Rank:
    """Return a sort key: urgency, severity, margin over the threshold, name."""
    return (*urgency_key(segment), _margin(segment, report), segment.name)


def ranked(report: Report) -> list[SegmentReport]:
    """Return the windows of a model, worst first."""
    return sorted(report.segments, key=lambda segment: rank(segment, report))


def ranked_models(reports: Sequence[Report]) -> list[Report]:
    """Return the models by their worst windows; a model without windows is unknown."""
    nothing: Rank = (Urgency.UNKNOWN, 0, math.inf, "")
    problem: Rank = (Urgency.PROBLEM, 0, math.inf, "")
    worst = {id(report): min((rank(one, report) for one in report.segments), default=nothing) for report in reports}
    worst |= {id(one): min(worst[id(one)], problem) for one in reports if one.input.problems}
    return sorted(reports, key=lambda report: (*worst[id(report)][:3], report.model))


def thresholds_of(segment: SegmentReport) -> list[float]:
    """Return the thresholds of a window's alerts on accuracy, lowest first."""
    found = {alert.threshold for alert in segment.alerts if alert.estimator is not None and alert.threshold is not None}
    return sorted(found)


def baseline_accuracy(segment: SegmentReport, report: Report) -> float | None:
    """Return the accuracy that a window is compared with: that of the reference while its own baseline is collected."""
    if segment.baseline is not None and segment.baseline.accuracy is not None:
        return segment.baseline.accuracy
    return None if report.reference is None else report.reference.accuracy


def _margin(segment: SegmentReport, report: Report) -> float:
    """Return how far the interval's upper end lies above the highest lower threshold; without one, the estimate above the baseline."""
    estimate = headline_of(segment)
    thresholds = sorted(
        one.threshold
        for one in segment.alerts
        if one.estimator is not None and one.threshold is not None and not one.upward
    )
    if estimate is None:
        return math.inf
    if thresholds:
        return (estimate.interval.upper if estimate.interval else estimate.accuracy) - thresholds[-1]
    baseline = baseline_accuracy(segment, report)
    return math.inf if baseline is None else estimate.accuracy - baseline


MOST_NAMED = 5
_VERBS = {
    Urgency.ALERT: ("is alerting", "are alerting"),
    Urgency.PENDING: ("is pending", "are pending"),
    Urgency.UNKNOWN: ("cannot be evaluated", "cannot be evaluated"),
    Urgency.DOUBTED: ("has labels that disagree with its estimates", "have labels that disagree with their estimates"),
    Urgency.CHANGED: ("has changed since its baseline", "have changed since their baselines"),
}


@dataclass(frozen=True, slots=True)
class NotableParts:
    """Narrower windows of one urgency within a window."""

    count: int
    total: int
    verb: str
    named: Sequence[SegmentReport]
    """The first few."""

    @property
    def more(self) -> int:
        """How many are not named."""
        return self.count - len(self.named)


@dataclass(frozen=True, slots=True)
class Within:
    """The narrower windows within a window, and the notable ones among them."""

    parts: int = 0
    notable: Sequence[SegmentReport] = ()
    """Those that alert, are pending, have no estimate, are doubted, or changed; worst first."""
    problem: bool = False
    """Whether the input of the model has a problem."""

    @property
    def worst(self) -> Urgency:
        """The urgency of the worst part; fine without one."""
        return urgency_of(self.notable[0]) if self.notable else Urgency.FINE

    def urgency(self, own: Urgency) -> Urgency:
        """Return the urgency that a window shows: never fine while a part of it is not."""
        if own <= Urgency.UNKNOWN:
            return own
        if self.notable and self.worst < Urgency.UNKNOWN:
            return Urgency.PENDING
        own = min(own, Urgency.PROBLEM) if self.problem else own
        return min(own, Urgency.UNWATCHED) if self.notable else own

    def heading(self, own: Urgency) -> str:
        """Return the sign and the words for a window of that urgency."""
        return f"{self.urgency(own).sign} {self.words(own)}"

    def words(self, own: Urgency) -> str:
        """Return the words for a window of that urgency."""
        if self.problem and own > Urgency.PROBLEM:
            return Urgency.PROBLEM.words
        quiet = own in {Urgency.FINE, Urgency.UNVERIFIED}
        return "No alert of its own" if quiet and self.urgency(own) is not own else own.words

    def by_urgency(self) -> list[NotableParts]:
        """Return the notable parts, grouped by urgency."""
        groups = []
        for urgency, verbs in _VERBS.items():
            found = [one for one in self.notable if urgency_of(one) is urgency]
            if found:
                groups.append(NotableParts(len(found), self.parts, verbs[len(found) > 1], found[:MOST_NAMED]))
        return groups


def within(report: Report) -> Mapping[str, Within]:
    """Return the parts of each window that has narrower ones, by the window's name."""
    wholes = {frozenset(one.segment): one for one in report.segments}
    fields = {frozenset(name for name, _ in one.segment) for one in report.segments}
    counts: Counter[str] = Counter()
    notable: dict[str, list[SegmentReport]] = {}
    for one in report.segments:
        own = frozenset(name for name, _ in one.segment)
        is_notable = urgency_of(one) <= Urgency.CHANGED
        for wider in fields:
            whole = wholes.get(frozenset(pair for pair in one.segment if pair[0] in wider)) if wider < own else None
            if whole is not None:
                counts[whole.name] += 1
                notable.setdefault(whole.name, []).extend([one] if is_notable else ())
    found = {
        name: Within(count, sorted(notable[name], key=lambda one: rank(one, report))) for name, count in counts.items()
    }
    if report.input.problems:
        found[_WHOLE] = replace(found.get(_WHOLE, Within()), problem=True)
    return found


_MOST_NAMED_AT_TOP = 3
_WHOLE = name_of(ALL)


def urgencies_of(reports: Mapping[str, Report], health: Health) -> list[Urgency]:
    """Return the urgency of every window; a model without a report counts as one unknown window."""
    known = [_shown(segment, report) for report in reports.values() for segment in report.segments]
    return [*known, *(Urgency.UNKNOWN for name in health.unevaluated if name not in reports)]


def _shown(segment: SegmentReport, report: Report) -> Urgency:
    """Return the urgency of a window; that of all records has the problems of the input."""
    own = urgency_of(segment)
    return min(own, Urgency.PROBLEM) if report.input.problems and segment.segment == ALL else own


@dataclass(frozen=True, slots=True)
class OverallStatus:
    """The overall status."""

    urgency: Urgency
    sentence: str
    more: str
    """The counts behind it, and reasons to doubt it."""


def overall_status(reports: Mapping[str, Report], health: Health) -> OverallStatus:
    """Return the overall status: that of the worst window, and at best unknown while cpcmon is not ready."""
    urgencies = urgencies_of(reports, health)
    worst, sentence, more = min(urgencies, default=Urgency.UNKNOWN), _alerting(reports, len(urgencies)), []
    if worst is Urgency.ALERT:
        more.append(_counted(reports, urgencies))
    elif urgencies:
        # In the same sentence: no alert means nothing without the number of windows evaluated.
        sentence = f"{sentence} {_counted(reports, urgencies)}"
    if health.not_ready:
        worst = min(worst, Urgency.UNKNOWN)
        more.append("cpcmon is not ready; see below.")
    if health.unhealthy:
        more.insert(0, sentence)
        worst, sentence = Urgency.ALERT, "cpcmon is unhealthy: this page may be out of date."
    return OverallStatus(worst, sentence, " ".join(more))


def _alerting(reports: Mapping[str, Report], total: int) -> str:
    windows = [(report, segment) for report in reports.values() for segment in report.segments]
    urgencies = {urgency_of(segment) for _, segment in windows}
    if Urgency.ALERT in urgencies:
        firing = [
            (rank(segment, report), report.model) for report, segment in windows if urgency_of(segment) is Urgency.ALERT
        ]
        names = [f"{model}, {place(name)}" for (*_, name), model in sorted(firing)]
        more = f"; and {len(names) - _MOST_NAMED_AT_TOP} more" if len(names) > _MOST_NAMED_AT_TOP else ""
        alerts = "is alerting" if len(names) == 1 else "are alerting"
        return f"{len(names)} of {plural(total, 'window')} {alerts}: {'; '.join(names[:_MOST_NAMED_AT_TOP])}{more}."
    if not windows:
        return "No model has been evaluated yet."
    if urgencies == {Urgency.UNKNOWN}:
        return "No window can be evaluated."
    found = _quiet([urgency_of(segment) for _, segment in windows])
    if not any(segment.alerts and headline_of(segment) is not None for _, segment in windows):
        found = "No alert is configured, so none can fire"
    suspects = suspected(list(reports.values()))
    joined = "and" if {Urgency.DOUBTED, Urgency.CHANGED} & urgencies else "but"
    return f"{found}, {joined} {suspects}: this is no all-clear." if suspects else f"{found}."


def _quiet(urgencies: Sequence[Urgency]) -> str:
    """Describe windows none of which alerts."""
    quiet = "No critical or warning alert" if Urgency.INFO in urgencies else "No alert"
    some = {one: urgencies.count(one) for one in (Urgency.DOUBTED, Urgency.CHANGED)}
    found = [f"{plural(count, 'window')} {_VERBS[one][count > 1]}" for one, count in some.items() if count]
    return f"{quiet}, but {' and '.join(found)}" if found else quiet


def suspected(reports: Sequence[Report]) -> str:
    """Say which models have a problem with their input: the first few; empty if there is none."""
    names = sorted(report.model for report in reports if report.input.problems)
    if len(names) == 1:
        return f"the input of {names[0]} has a problem"
    more = f" and {len(names) - _MOST_NAMED_AT_TOP} more" if len(names) > _MOST_NAMED_AT_TOP else ""
    listed = f"{', '.join(names[:_MOST_NAMED_AT_TOP])}{more}"
    return f"the inputs of {len(names)} models have problems ({listed})" if names else ""


def _counted(reports: Mapping[str, Report], urgencies: Sequence[Urgency]) -> str:
    evaluated = sum(headline_of(segment) is not None for report in reports.values() for segment in report.segments)
    words = {
        Urgency.PENDING: "pending",
        Urgency.UNKNOWN: "unknown",
        Urgency.PROBLEM: "with an input problem",
        Urgency.INFO: "with info only",
        Urgency.UNVERIFIED: "with an unverified baseline",
        Urgency.UNWATCHED: "without an alert configured",
    }
    # Windows with a worse status count too: an alert does not confirm a baseline.
    unverified = sum(
        headline_of(one) is not None and one.baseline is not None and not one.baseline.verified
        for report in reports.values()
        for one in report.segments
    )
    numbers = {urgency: urgencies.count(urgency) for urgency in words} | {Urgency.UNVERIFIED: unverified}
    counts = [f"{numbers[urgency]} {name}" for urgency, name in words.items() if numbers[urgency]]
    return f"{', '.join([plural(evaluated, 'window') + ' evaluated', *counts])}."


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that fired, from its beginning to its end."""

    model: str
    segment: str
    alert: str
    severity: Severity | None
    since: float
    ended_at: float | None = None
    """None while it fires."""
    gone: bool = False
    """Whether it ended because it is no longer monitored."""
    there: bool = True
    """Whether its window still exists."""
    accuracy: float | None = None
    """The estimated accuracy when it fired; None if unknown."""
    accuracy_after: float | None = None
    """When it ended, or now."""


def fired_in(report: Report, rows: Sequence[Transition]) -> list[Fired]:
    """Return the alerts of a model that ceased to fire, latest first."""
    began = {(row.segment, row.alert, row.at): (row.severity, row.accuracy) for row in rows if row.fired}
    names, found = set(report.windows.names), []
    for row in reversed(rows):
        if row.ended:
            severity, accuracy = began.get((row.segment, row.alert, row.since), (row.severity, None))
            found.append(
                Fired(
                    report.model,
                    row.segment,
                    row.alert,
                    severity,
                    row.since,
                    row.at,
                    gone=row.after is None,
                    there=row.segment in names,
                    accuracy=accuracy,
                    accuracy_after=row.accuracy,
                )
            )
    return found


def fires_now(report: Report, rows: Sequence[Transition]) -> list[Fired]:
    """Return the alerts of a model that fire, the latest first."""
    began = {(row.segment, row.alert, row.at): row.accuracy for row in rows if row.fired}
    found = [
        Fired(
            report.model,
            segment.name,
            alert.alert,
            alert.severity,
            alert.since,
            accuracy=began.get((segment.name, alert.alert, alert.since)),
            accuracy_after=None if (estimate := headline_of(segment)) is None else estimate.accuracy,
        )
        for segment in report.segments
        for alert in segment.alerts
        if alert.firing
    ]
    return sorted(found, key=lambda one: -one.since)
