"""How urgent each window is, which one to look at first, and the overall status in one sentence.

A window that cannot be evaluated is never called ok.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.estimate import Estimate
from monitor.core.estimators.consensus import CONSENSUS
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.pages.wording import place, plural

SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


class Mood(IntEnum):
    """How urgently somebody should look, most urgent first."""

    ALERT = 0
    PENDING = 1
    UNKNOWN = 2
    INFO = 3
    """Only alerts of severity info fire or are pending."""
    UNWATCHED = 4
    """No alert is configured, so that none fires says nothing."""
    FINE = 5

    @property
    def kind(self) -> str:
        """The CSS class."""
        return self.name.lower()

    @property
    def sign(self) -> str:
        """One character, for readers who do not see colours."""
        return SIGNS[self]

    @property
    def heading(self) -> str:
        """The sign and a word or two."""
        return HEADINGS[self]


SIGNS = {
    Mood.ALERT: "▲",
    Mood.PENDING: "◆",
    Mood.UNKNOWN: "?",
    Mood.INFO: "○",
    Mood.UNWATCHED: "–",
    Mood.FINE: "✓",
}
HEADINGS = {
    Mood.ALERT: "▲ Alert",
    Mood.PENDING: "◆ Watch",
    Mood.UNKNOWN: "? Cannot say",
    Mood.INFO: "○ Info",
    Mood.UNWATCHED: "– No alert configured",
    Mood.FINE: "✓ No alert",
}


def consensus_of(segment: SegmentReport) -> Estimate | None:
    """Return the consensus; None when the window has no valid estimate."""
    result = segment.results.get(CONSENSUS) if segment.valid else None
    return result if isinstance(result, Estimate) else None


def mood_of(segment: SegmentReport) -> Mood:
    """Return how urgent a window is."""
    # A loop, not min(): a page calls this for thousands of windows.
    loudest = Mood.FINE if segment.alerts else Mood.UNWATCHED
    for alert in segment.alerts:
        mood = alert_mood(alert)
        if mood is Mood.ALERT:
            return mood
        loudest = min(loudest, mood)
    # Without an estimate a window is not ok, whatever its alerts were before.
    return Mood.UNKNOWN if consensus_of(segment) is None else loudest


def alert_mood(alert: AlertStatus) -> Mood:
    """Return how urgent an alert is: one of severity info is no emergency."""
    if alert.phase is AlertPhase.OK:
        return Mood.FINE
    if alert.severity is Severity.INFO:
        return Mood.INFO
    return Mood.PENDING if alert.phase is AlertPhase.PENDING else Mood.ALERT


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
    return f", {severity}" if severity is not None and mood_of(segment) in {Mood.ALERT, Mood.PENDING} else ""


def loud_alerts(segment: SegmentReport) -> list[AlertStatus]:
    """Return the alerts that are not quiet: firing before pending, then by severity."""
    loud = [alert for alert in segment.alerts if alert.phase is not AlertPhase.OK]
    return sorted(loud, key=lambda alert: (not alert.firing, SEVERITIES.index(alert.severity)))


def urgency_of(segment: SegmentReport) -> tuple[Mood, int]:
    """Return a sort key: mood, then severity."""
    worst = worst_severity(segment)
    return mood_of(segment), len(SEVERITIES) if worst is None else SEVERITIES.index(worst)


Rank = tuple[Mood, int, float, str]


def rank(segment: SegmentReport, report: ModelReport) -> Rank:
    """Return a sort key: mood, severity, margin over the threshold, name."""
    return (*urgency_of(segment), _margin(segment, report), segment.name)


def ranked(report: ModelReport) -> list[SegmentReport]:
    """Return the windows of a model, worst first."""
    return sorted(report.segments, key=lambda segment: rank(segment, report))


def ranked_models(reports: Sequence[ModelReport]) -> list[ModelReport]:
    """Return the models by their worst windows; a model without windows is unknown."""
    nothing: Rank = (Mood.UNKNOWN, 0, math.inf, "")
    worst = {id(report): min((rank(one, report) for one in report.segments), default=nothing) for report in reports}
    return sorted(reports, key=lambda report: (*worst[id(report)][:3], report.model))


def thresholds_of(segment: SegmentReport) -> list[float]:
    """Return the thresholds of a window's alerts on accuracy, lowest first."""
    found = {
        alert.threshold for alert in segment.alerts if alert.kind is AlertType.ACCURACY and alert.threshold is not None
    }
    return sorted(found)


def _margin(segment: SegmentReport, report: ModelReport) -> float:
    """Return how far the interval's upper end lies above the highest lower threshold; without one, the estimate above the reference."""
    estimate = consensus_of(segment)
    thresholds = sorted(
        one.threshold
        for one in segment.alerts
        if one.kind is AlertType.ACCURACY and one.threshold is not None and not one.upward
    )
    if estimate is None:
        return math.inf
    if thresholds:
        return (estimate.interval.upper if estimate.interval else estimate.accuracy) - thresholds[-1]
    return math.inf if report.reference is None else estimate.accuracy - report.reference.accuracy


MOST_NAMED = 5
_VERBS = {
    Mood.ALERT: ("alerts", "alert"),
    Mood.PENDING: ("is to watch", "are to watch"),
    Mood.UNKNOWN: ("cannot be judged", "cannot be judged"),
}


@dataclass(frozen=True, slots=True)
class NotableParts:
    """Narrower windows of one mood within a window."""

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
    """The narrower windows within a window, and those that somebody should look at."""

    parts: int = 0
    notable: Sequence[SegmentReport] = ()
    """Those that alert, are pending, or have no estimate; worst first."""

    @property
    def worst(self) -> Mood:
        """The mood of the worst part; fine without one."""
        return mood_of(self.notable[0]) if self.notable else Mood.FINE

    def mood(self, own: Mood) -> Mood:
        """Return the mood that a window shows: never fine while a part of it is not."""
        if own <= Mood.UNKNOWN or not self.notable:
            return own
        return Mood.PENDING if self.worst < Mood.UNKNOWN else min(own, Mood.UNWATCHED)

    def heading(self, own: Mood) -> str:
        """Return the sign and the words for a window of that mood."""
        shown = self.mood(own)
        words = "No alert of its own" if own is Mood.FINE and shown is not own else own.heading.split(" ", 1)[1]
        return f"{shown.sign} {words}"

    def by_mood(self) -> list[NotableParts]:
        """Return the notable parts, grouped by mood."""
        groups = []
        for mood, verbs in _VERBS.items():
            found = [one for one in self.notable if mood_of(one) is mood]
            if found:
                groups.append(NotableParts(len(found), self.parts, verbs[len(found) > 1], found[:MOST_NAMED]))
        return groups


def within(report: ModelReport) -> Mapping[str, Within]:
    """Return the parts of each window that has narrower ones, by the window's name."""
    wholes = {frozenset(one.segment): one for one in report.segments}
    fields = {frozenset(name for name, _ in one.segment) for one in report.segments}
    counts: Counter[str] = Counter()
    notable: dict[str, list[SegmentReport]] = {}
    for one in report.segments:
        own = frozenset(name for name, _ in one.segment)
        loud = mood_of(one) <= Mood.UNKNOWN
        for wider in fields:
            whole = wholes.get(frozenset(pair for pair in one.segment if pair[0] in wider)) if wider < own else None
            if whole is not None:
                counts[whole.name] += 1
                notable.setdefault(whole.name, []).extend([one] if loud else ())
    return {
        name: Within(count, sorted(notable[name], key=lambda one: rank(one, report))) for name, count in counts.items()
    }


_UNEVALUATED = " has not been evaluated yet"
_MOST_NAMED_AT_TOP = 3


@dataclass(frozen=True, slots=True)
class OverallStatus:
    """The inputs of the overview, read once so that they belong together."""

    reports: Mapping[str, ModelReport]
    unwell: Sequence[str]
    """What only a restart can repair."""
    waits: Sequence[str]
    """What cpcmon waits for."""

    @property
    def unevaluated(self) -> list[str]:
        """Models without a report."""
        found = [one.removesuffix(_UNEVALUATED) for one in self.waits if one.endswith(_UNEVALUATED)]
        return [name for name in found if name not in self.reports]

    def moods(self) -> list[Mood]:
        """Return the mood of every window; a model without a report counts as one unknown window."""
        known = [mood_of(segment) for report in self.reports.values() for segment in report.segments]
        return [*known, *(Mood.UNKNOWN for _ in self.unevaluated)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The overall status."""

    mood: Mood
    sentence: str
    more: str
    """The counts behind it, and reasons to doubt it."""


def verdict(status: OverallStatus) -> Verdict:
    """Return the overall status. Its mood is that of the worst window, and at best unknown while anything is amiss."""
    moods = status.moods()
    worst, sentence, more = min(moods, default=Mood.UNKNOWN), _alerting(status, len(moods)), []
    if worst is Mood.ALERT:
        more.append(_counted(status, moods))
    elif moods:
        # In the same sentence: no alert means nothing without the number of windows evaluated.
        sentence = f"{sentence} {_counted(status, moods)}"
    if status.waits:
        worst = min(worst, Mood.UNKNOWN)
        more.append("cpcmon waits for something; see below.")
    if status.unwell:
        more.insert(0, sentence)
        worst, sentence = Mood.ALERT, "cpcmon itself is not well: what stands here may be old or wrong."
    return Verdict(worst, sentence, " ".join(more))


def _alerting(status: OverallStatus, total: int) -> str:
    windows = [(report, segment) for report in status.reports.values() for segment in report.segments]
    moods = {mood_of(segment) for _, segment in windows}
    if Mood.ALERT in moods:
        loud = [(rank(segment, report), report.model) for report, segment in windows if mood_of(segment) is Mood.ALERT]
        names = [f"{model}, {place(name)}" for (*_, name), model in sorted(loud)]
        more = f"; and {len(names) - _MOST_NAMED_AT_TOP} more" if len(names) > _MOST_NAMED_AT_TOP else ""
        alerts = "alerts" if len(names) == 1 else "alert"
        return f"{len(names)} of {plural(total, 'window')} {alerts}: {'; '.join(names[:_MOST_NAMED_AT_TOP])}{more}."
    if not windows:
        return "No model has been evaluated yet."
    if moods == {Mood.UNKNOWN}:
        return "Nothing can be said of any window."
    if moods.isdisjoint({Mood.FINE, Mood.INFO, Mood.PENDING}):
        return "No alert is configured, so none can fire."
    return "No critical or warning alert." if Mood.INFO in moods else "No alert."


def _counted(status: OverallStatus, moods: Sequence[Mood]) -> str:
    evaluated = sum(
        consensus_of(segment) is not None for report in status.reports.values() for segment in report.segments
    )
    words = {
        Mood.PENDING: "to watch",
        Mood.UNKNOWN: "cannot say",
        Mood.INFO: "with info only",
        Mood.UNWATCHED: "without an alert configured",
    }
    counts = [f"{moods.count(mood)} {name}" for mood, name in words.items() if mood in moods]
    return f"{', '.join([plural(evaluated, 'window') + ' judged', *counts])}."
