"""Which window somebody should look at first."""

import math
from collections.abc import Sequence

from monitor.core.alerts import Kind
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.words import Mood, consensus_of, urgency_of

Rank = tuple[Mood, int, float, str]


def rank(segment: SegmentReport, report: ModelReport) -> Rank:
    """Return what to sort by: mood, severity, how far it lies under what is asked, name."""
    return (*urgency_of(segment), _margin(segment, report), segment.name)


def ranked(report: ModelReport) -> list[SegmentReport]:
    """Return the windows of a model, worst first."""
    return sorted(report.segments, key=lambda segment: rank(segment, report))


def ranked_models(reports: Sequence[ModelReport]) -> list[ModelReport]:
    """Return the models by their worst windows; one without any cannot be judged."""
    nothing: Rank = (Mood.UNKNOWN, 0, math.inf, "")
    worst = {id(report): min((rank(one, report) for one in report.segments), default=nothing) for report in reports}
    return sorted(reports, key=lambda report: (*worst[id(report)][:3], report.model))


def thresholds_of(segment: SegmentReport) -> list[float]:
    """Return the thresholds of a window's alerts on accuracy, lowest first."""
    found = {alert.threshold for alert in segment.alerts if alert.kind is Kind.ACCURACY and alert.threshold is not None}
    return sorted(found)


def _margin(segment: SegmentReport, report: ModelReport) -> float:
    """Return how far the upper end lies above the highest threshold that it must not fall under; without one, the estimate above the reference."""
    estimate = consensus_of(segment)
    thresholds = sorted(
        one.threshold
        for one in segment.alerts
        if one.kind is Kind.ACCURACY and one.threshold is not None and not one.upward
    )
    if estimate is None:
        return math.inf
    if thresholds:
        return (estimate.interval.upper if estimate.interval else estimate.accuracy) - thresholds[-1]
    return math.inf if report.reference is None else estimate.accuracy - report.reference.accuracy
