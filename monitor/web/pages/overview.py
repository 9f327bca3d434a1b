"""The page at `/`: overall status, alerts, the windows of every model, sources."""

from collections.abc import Mapping, Sequence
from typing import Any

from monitor.core.alerts import AlertStatus
from monitor.core.baselines.comparison import BaselineKind, Verdict
from monitor.core.baselines.output_drift import Measure
from monitor.core.estimate import HEADLINE
from monitor.core.report import Report, SegmentReport
from monitor.evaluation.alert_history import Transition
from monitor.reference.reference import NO_ADAPTIVE
from monitor.web.charts.small_charts import Scale, bar
from monitor.web.pages.from_labels import brief_audited, doubt_words, missing_words
from monitor.web.pages.rendering import render
from monitor.web.pages.status import (
    SEVERITIES,
    Fired,
    Urgency,
    Within,
    active_alerts,
    alert_urgency,
    audited_of,
    baseline_accuracy,
    fired_changes,
    fired_in,
    headline_of,
    is_doubted,
    overall_status,
    rank,
    ranked,
    ranked_models,
    severity_suffix,
    suspected,
    thresholds_of,
    urgencies_of,
    urgency_of,
    within,
)
from monitor.web.pages.wording import (
    STATES,
    ago,
    brief_baseline,
    class_change,
    moment,
    oddities,
    per_cent,
    plural,
    verdict_words,
)
from monitor.web.server.request import Response
from monitor.web.site import Site

MOST_ALERTS = 100
MOST_ENDED = 20
_DAY_SECONDS = 86400.0
MOST_ROWS = 200
"""Segments shown of one model, the most urgent first."""
MOST_ROWS_IN_ALL = 1000
"""Segments shown of all models: the page is asked for again every few seconds."""
LEAST_ROWS = 10
"""Segments shown of each model, however many models there are."""


def overview_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page, from the last report of each model."""
    now, reports = site.now(), {name: report.summary() for name, report in site.reports().items()}
    health = site.health()
    models = ranked_models(list(reports.values()))
    urgencies = urgencies_of(reports, health)
    alerts = _alerts(models)
    ended = _ended(models, site.alert_rows(), now)
    return render(
        site,
        "overview.html",
        title="Overview",
        here="/",
        overall=overall_status(reports, health),
        counts=[(urgency, urgencies.count(urgency)) for urgency in Urgency if urgency in urgencies],
        health=health,
        problems=[(report.model, one) for report in models for one in report.input.problems],
        alerts=alerts[:MOST_ALERTS],
        more_alerts=len(alerts) - MOST_ALERTS,
        no_alerts="" if alerts else _no_alerts(models),
        ended=ended[:MOST_ENDED],
        more_ended=len(ended) - MOST_ENDED,
        models=_models(models, now),
        unevaluated=[name for name in health.unevaluated if name not in reports],
        unknown=Urgency.UNKNOWN,
        # Sources that cannot be read come first: their records are not seen.
        sources=sorted(site.sources(), key=lambda one: (one.status.waits_for is None, one.status.name)),
    )


def _alerts(reports: Sequence[Report]) -> list[tuple[Report, SegmentReport, AlertStatus]]:
    """Return the alerts that are not quiet: firing before pending, critical before warning, info last."""
    active = [
        (report, segment, alert)
        for report in reports
        for segment in report.segments
        for alert in active_alerts(segment)
    ]  # fmt: skip
    return sorted(
        active, key=lambda one: (alert_urgency(one[2]), SEVERITIES.index(one[2].severity), rank(one[1], one[0]))
    )


def _ended(reports: Sequence[Report], rows: Mapping[str, Sequence[Transition]], now: float) -> list[Fired]:
    """Return the alerts of all models that ceased to fire in the last day, latest first."""
    found = [one for report in reports for one in fired_in(report, rows.get(report.model, ()))]
    recent = [one for one in found if one.ended_at is not None and one.ended_at > now - _DAY_SECONDS]
    return sorted(recent, key=lambda one: -(one.ended_at or 0.0))


def _no_alerts(reports: Sequence[Report]) -> str:
    """Say what it means that all alerts are quiet: no all-clear where a window has no estimate."""
    segments = [segment for report in reports for segment in report.segments]
    if not any(segment.alerts for segment in segments):
        return "No alert is configured, so none can fire."
    if suspects := suspected(reports):
        return f"No alert fires, but {suspects}: this is no all-clear."
    if doubted := sum(map(is_doubted, segments)):
        return f"No alert fires, but labels disagree with the estimates of {plural(doubted, 'window')}: this is no all-clear."
    unknown = sum(headline_of(segment) is None for segment in segments)
    if unknown:
        return f"No alert fires, but {plural(unknown, 'window')} cannot be evaluated: this is no all-clear."
    return "No alert fires, and none is pending."


def _models(reports: Sequence[Report], now: float) -> list[dict[str, Any]]:
    left, sections = MOST_ROWS_IN_ALL, []
    for report in reports:
        most = max(LEAST_ROWS, min(MOST_ROWS, left))
        left -= min(most, len(report.segments))
        sections.append(_model(report, now, most))
    return sections


def _model(report: Report, now: float, most: int) -> dict[str, Any]:
    """Return a model with its whole window and at most so many segments."""
    whole = [segment for segment in report.segments if not segment.segment]
    parts = [segment for segment in ranked(report) if segment.segment]
    shown = [*whole, *parts[:most]]
    scale = _scale(shown, report)
    inside = within(report)
    return {
        "report": report,
        "urgency": min(
            (inside.get(one.name, Within()).urgency(urgency_of(one)) for one in report.segments),
            default=Urgency.UNKNOWN,
        ),
        "notes": _notes(report),
        "rows": [_row(segment, report, inside.get(segment.name, Within()), scale, now) for segment in shown],
        "audits": any(audited_of(segment) is not None for segment in shown),
        "more": len(parts) - most,
    }


def _notes(report: Report) -> list[str]:
    """Describe what makes the estimates less reliable than they look."""
    notes = oddities(report.input)
    if report.reference is not None and report.reference.headline != HEADLINE:
        notes.append(f"its reference was {NO_ADAPTIVE}")
    if report.input.rejected_share:
        notes.append(f"{per_cent(report.input.rejected_share)} of the latest records were rejected")
    return [*notes, *(f"{name} failed in {plural(count, 'window')}" for name, count in report.errors.items())]


def _scale(segments: Sequence[SegmentReport], report: Report) -> Scale:
    values = [] if report.reference is None else [report.reference.accuracy]
    values += [one.baseline.accuracy for one in segments if one.baseline and one.baseline.accuracy is not None]
    for segment in segments:
        estimate = headline_of(segment)
        if estimate is not None:
            values.append(estimate.interval.lower if estimate.interval else estimate.accuracy)
            values += [one.lower for one in segment.field]
            values += thresholds_of(segment)
        if (audited := audited_of(segment)) is not None and audited.interval is not None:
            values.append(audited.interval.lower)
    return Scale.around(values)


def _row(segment: SegmentReport, report: Report, inside: Within, scale: Scale, now: float) -> dict[str, Any]:
    own, estimate, thresholds = urgency_of(segment), headline_of(segment), thresholds_of(segment)
    reference, baseline = None if report.reference is None else report.reference.accuracy, segment.baseline
    field = segment.field[-1] if segment.field else None
    drawn = estimate and bar(
        estimate, baseline_accuracy(segment, report), thresholds, scale, field, audited_of(segment)
    )
    audited, doubt = None if segment.labels is None else segment.labels.horizon.audited, doubt_words(segment, now)
    return {
        "segment": segment,
        "urgency": inside.urgency(own),
        "heading": inside.heading(own) + severity_suffix(segment),
        "no_estimate": _no_estimate(segment, now) if estimate is None else "",
        "parts": inside.by_urgency(),
        "estimate": estimate,
        "field": field,
        "bar": drawn,
        "audited": audited,
        "audited_from": "" if audited is None else brief_audited(audited, now),
        "missing": missing_words(audited),
        "doubt": doubt,
        "disagreement": _disagreement(segment),
        "fired": (fired := fired_changes(segment, now)),
        # The estimate of a window holds while most of its records are from before the change.
        "verdict": ""
        if segment.verdict is None or ((fired or doubt) and segment.verdict is Verdict.HOLDS)
        else f"{verdict_words(segment.verdict, baseline)}.",
        "holds": segment.verdict is Verdict.HOLDS,
        "changed": _changed(segment, report),
        "compared": [
            *([] if baseline is None or baseline.kind is BaselineKind.REFERENCE else [brief_baseline(baseline)]),
            *([] if reference is None else [f"reference {per_cent(reference)}"]),
            *(f"threshold {per_cent(one)}" for one in thresholds),
        ],
    }


def _changed(segment: SegmentReport, report: Report) -> str:
    """Name the class that changed most, if the classes drifted."""
    change, drifted = segment.changed_class, {one.measure for one in segment.drift if one.drifted}
    if change is None or report.reference is None or Measure.CLASS_MIX not in drifted:
        return ""
    return class_change(report.reference.classes[change.class_index], change)


def _no_estimate(segment: SegmentReport, now: float) -> str:
    why = STATES[segment.state]
    if segment.state_since is not None:
        why += f"; since {moment(segment.state_since, now)}"
    if segment.last_valid_at is not None:
        why += f"; last estimate {ago(now - segment.last_valid_at)}"
    return f"{why}."


def _disagreement(segment: SegmentReport) -> str:
    found, chance = segment.disagreement, segment.chance_disagreement
    if found is None or chance is None or found <= chance:
        return ""
    # As many digits as it takes to tell them apart.
    digits = 1 if f"{100.0 * found:.1f}" != f"{100.0 * chance:.1f}" else 2
    return (
        f"The estimators disagree by {100.0 * found:.{digits}f} points; chance explains up to"
        f" {100.0 * chance:.{digits}f}. Trust the estimate less."
    )
