"""What the pages say in words, for people who do not know cpcmon: states, alerts, times."""

import math
import re
from datetime import UTC, datetime
from enum import IntEnum

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.estimate import Estimate, WindowState
from monitor.core.estimators.consensus import CONSENSUS
from monitor.core.report import InputFacts, SegmentReport

STATES = {
    WindowState.OK: "The estimators have no answer",
    WindowState.WARMING: "Still collecting its first records",
    WindowState.TOO_FEW_RECORDS: "Too few recent records to judge",
    WindowState.CATCHING_UP: "Still reading older records; what is known is of the past",
    WindowState.STALE: "No new records for too long; what is known is of the past",
    WindowState.NO_REFERENCE: "This model has no reference yet to judge it by",
    WindowState.VERSION_MISMATCH: "Most records come from another version of the model than its reference",
    WindowState.DEGRADED_INPUT: "Too many records are refused or look odd to trust the rest",
    WindowState.ERROR: "The estimate failed; the log says why",
}
_KINDS = {
    AlertType.ACCURACY: "estimated accuracy",
    AlertType.DISAGREEMENT: "disagreement of the estimators",
    AlertType.SILENT: "no new records",
    AlertType.DEGRADED_INPUT: "records refused or odd",
}

_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


class Mood(IntEnum):
    """How urgently somebody should look, most urgent first."""

    ALERT = 0
    PENDING = 1
    UNKNOWN = 2
    INFO = 3
    """Only alerts of severity info fire or are pending."""
    UNWATCHED = 4
    """Nobody asked for an alert, so that there is none says nothing."""
    FINE = 5


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
    """Return the estimate that people look at; None when nothing can be said."""
    result = segment.results.get(CONSENSUS) if segment.valid else None
    return result if isinstance(result, Estimate) else None


def mood_of(segment: SegmentReport) -> Mood:
    """Return how urgently somebody should look at a segment."""
    # A loop, not min(): a page asks this of thousands.
    loudest = Mood.FINE if segment.alerts else Mood.UNWATCHED
    for alert in segment.alerts:
        mood = alert_mood(alert)
        if mood is Mood.ALERT:
            return mood
        loudest = min(loudest, mood)
    # What cannot be judged is no all-clear, whatever its alerts were before.
    return Mood.UNKNOWN if consensus_of(segment) is None else loudest


def alert_mood(alert: AlertStatus) -> Mood:
    """Return how urgently somebody should look at an alert: one of severity info is no emergency."""
    if alert.phase is AlertPhase.OK:
        return Mood.FINE
    if alert.severity is Severity.INFO:
        return Mood.INFO
    return Mood.PENDING if alert.phase is AlertPhase.PENDING else Mood.ALERT


def urgency_of(segment: SegmentReport) -> tuple[Mood, int]:
    """Return what to sort by: among windows that fire, or wait to, a critical alert comes before an informative one."""
    mood = mood_of(segment)
    worst = worst_severity(segment)
    return mood, len(_SEVERITIES) if worst is None else _SEVERITIES.index(worst)


def worst_severity(segment: SegmentReport) -> Severity | None:
    """Return the highest severity of what fires; of what is pending when nothing fires; None when all is quiet."""
    if all(alert.phase is AlertPhase.OK for alert in segment.alerts):
        return None
    firing = {alert.severity for alert in segment.alerts if alert.firing}
    found = firing or {alert.severity for alert in segment.alerts if alert.phase is AlertPhase.PENDING}
    return next((one for one in _SEVERITIES if one in found), None)


def loud_alerts(segment: SegmentReport) -> list[AlertStatus]:
    """Return the alerts that are not quiet, those that fire first, and of them the most severe."""
    loud = [alert for alert in segment.alerts if alert.phase is not AlertPhase.OK]
    return sorted(loud, key=lambda alert: (not alert.firing, _SEVERITIES.index(alert.severity)))


def alert_words(alert: AlertStatus, estimate: Estimate | None, now: float) -> str:
    """Return a sentence on an alert that is not quiet."""
    return f"{alert.alert} ({alert.severity}): {_what(alert, estimate)}; {phase_words(alert, now)}"


def phase_words(alert: AlertStatus, now: float) -> str:
    """Say since when an alert that is not quiet has been so, and what it waits for."""
    text = f"{'pending' if alert.phase is AlertPhase.PENDING else 'firing'} since {moment(alert.since, now)}"
    if alert.held:
        return f"{text}; cannot be judged now, so it stays"
    return f"{text}; ends when this has lasted" if alert.phase is AlertPhase.RECOVERING else text


def _what(alert: AlertStatus, estimate: Estimate | None) -> str:
    """Say what was compared with what; the end of an interval that was is named, since the value itself is another."""
    if alert.kind not in {AlertType.ACCURACY, AlertType.DISAGREEMENT} or alert.threshold is None or alert.value is None:
        return _KINDS[alert.kind]
    side = "under" if alert.value < alert.threshold else "over" if alert.value > alert.threshold else "at"
    end = ""
    if alert.kind is AlertType.ACCURACY and estimate is not None and estimate.interval is not None:
        end = {estimate.interval.upper: "upper end of the ", estimate.interval.lower: "lower end of the "}.get(
            alert.value, ""
        )
    return f"{end}{_KINDS[alert.kind]}, {per_cent(alert.value)}, is {side} the threshold of {per_cent(alert.threshold)}"


def per_cent(ratio: float) -> str:
    """Return a ratio for people."""
    return f"{100.0 * ratio:.1f}%"


def clock(at: float, *, seconds: bool = True) -> str:
    """Return a time in UTC; clocks that are set wrong may send any."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "an impossible time"


def moment(at: float, now: float) -> str:
    """Return a time as an absolute one, and how long ago that is."""
    shown = clock(at, seconds=False)
    return f"{shown} ({ago(now - at)})" if shown[0].isdigit() else shown


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")


def unbroken(html: str) -> str:
    """Return HTML in which no line breaks within a time."""
    return _MOMENT.sub(r'<span class="time">\g<0></span>', html)


def ago(seconds: float) -> str:
    """Return how long ago something was, in the largest unit that says enough."""
    if not math.isfinite(seconds):
        return "at an impossible time"
    if seconds < -60.0:
        return "in the future"
    for unit, length in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2.0 * length or (unit == "minute" and seconds >= length):
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def lasting(seconds: float) -> str:
    """Return for how long something has been so."""
    told = ago(seconds)
    return f"for {told.removesuffix(' ago')}" if told.endswith(" ago") else f"since {told}"


def oddities(records: InputFacts) -> list[str]:
    """Say what makes an estimate worth less than it looks."""
    found = list(records.hints)
    if records.degraded:
        found.append("So many records are refused, or look odd, that the rest cannot speak for them.")
    if records.one_hot:
        found.append("Nearly all records are certain of one class: the answer was sent, not the probabilities.")
    if records.constant:
        found.append("The records are all alike: the model may be stuck.")
    return found


def place(name: str) -> str:
    """Return what the page calls a segment."""
    return "all records" if name == "all" else name.replace("=", " ").replace(",", ", ")
