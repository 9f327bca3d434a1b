"""The alerts that fire or wait to, of all models, in a list of their own: what somebody should do first."""

from collections.abc import Sequence
from html import escape

from monitor.core.alerts import AlertStatus, Severity
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.links import model_link, runbook_words
from monitor.web.ranking import Rank, rank
from monitor.web.words import HEADINGS, Mood, alert_mood, alert_words, consensus_of, loud_alerts, place, unbroken

MOST_ALERTS = 100
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_Loud = tuple[ModelReport, SegmentReport, AlertStatus]


def alert_list(reports: Sequence[ModelReport], now: float, runbooks: str) -> str:
    """Return the section, in which firing comes before pending, critical before warning, and info last."""
    loud = [
        (report, segment, alert)
        for report in reports
        for segment in report.segments
        for alert in loud_alerts(segment)
    ]  # fmt: skip
    ranked = sorted(loud, key=_urgency)
    items = "".join(_item(*one, now, runbooks) for one in ranked[:MOST_ALERTS])
    more = len(ranked) - MOST_ALERTS
    rest = f"<p>… and {more:,} more, none more urgent than these; all are in the metrics.</p>" if more > 0 else ""
    listed = f'<ul class="alerts">{items}</ul>{rest}' if items else f"<p>{_quiet(reports)}</p>"
    return f'<section id="alerts" class="{"loud" if items else "quiet"}"><h2>Alerts</h2>{listed}</section>'


def _quiet(reports: Sequence[ModelReport]) -> str:
    """Say what it means that no alert is loud; where something cannot be judged, that is no all-clear."""
    segments = [segment for report in reports for segment in report.segments]
    if not any(segment.alerts for segment in segments):
        return "No alert is configured for what has been evaluated, so none can fire."
    unknown = sum(consensus_of(segment) is None for segment in segments)
    if unknown:
        windows = "1 window" if unknown == 1 else f"{unknown:,} windows"
        return f"None fires, but {windows} cannot be judged now: this is no all-clear."
    return "None fires, and none is about to."


def _urgency(loud: _Loud) -> tuple[Mood, int, Rank]:
    report, segment, alert = loud
    return alert_mood(alert), _SEVERITIES.index(alert.severity), rank(segment, report)


def _item(report: ModelReport, segment: SegmentReport, alert: AlertStatus, now: float, runbooks: str) -> str:
    name, mood = escape(f"{report.model}, {place(segment.name)}"), alert_mood(alert)
    words = unbroken(escape(alert_words(alert, consensus_of(segment), now)))
    key = escape(f"alert {report.model} {segment.name} {alert.alert}")
    link = f'<a href="{model_link(report.model, segment.name)}" data-key="{key}">{name}</a>'
    return f'<li class="{mood.name.lower()}"><b class="mood">{HEADINGS[mood]}</b> <b>{link}</b> <span>{words}. What to do: {runbook_words(runbooks, alert)}</span></li>'
