"""The words of a webhook message: a summary for a pager's title, and a description with the numbers."""

import math
from datetime import UTC, datetime
from typing import NamedTuple

from monitor.core.alerts import AlertStatus, AlertType
from monitor.core.change import ChangeStatus, Direction
from monitor.core.estimate import AUDITED, HEADLINE, Estimate, Interval
from monitor.core.estimators.ensemble import headline_in
from monitor.core.report import Report, SegmentReport

NOT_MONITORED = "it is no longer monitored, which does not mean that the model is fine"
_COMPARED = {AlertType.ACCURACY, AlertType.CHANGE, AlertType.BASELINE_GAP}
_KINDS = {
    AlertType.CHANGE: "evidence of a change of the accuracy",
    AlertType.ACCURACY: "accuracy",
    AlertType.DISAGREEMENT: "the estimators disagree",
    AlertType.OUTPUT_DRIFT: "the model answers differently than it did",
    AlertType.BASELINE_GAP: "far below the reference",
    AlertType.SILENT: "no records",
    AlertType.DEGRADED_INPUT: "records are rejected or look wrong",
}
_RESOLVED = {
    AlertType.DISAGREEMENT: "the estimators agree again",
    AlertType.OUTPUT_DRIFT: "the outputs are within their limit again",
    AlertType.SILENT: "records arrive again",
    AlertType.DEGRADED_INPUT: "records are accepted again",
}
_DIRECTIONS = {Direction.DOWN: "drop", Direction.UP: "rise"}


class _Found(NamedTuple):
    """What an alert is about: the estimate that it compares, or an end of whose interval it compares."""

    what: str
    value: float
    interval: Interval | None
    of: str
    """What it rests on."""


def summary(report: Report, window: SegmentReport, status: AlertStatus) -> str:
    """Return one line: `density, Northlake N2: estimated accuracy 66.5%, was 89.3%`."""
    where = f"{report.model}, {' '.join(value for _, value in window.segment) or 'all records'}"
    said = _now(report, window, status) if status.firing else f"resolved, {_after(report, window, status)}"
    return f"{where}: {said}"


def description(report: Report, window: SegmentReport, status: AlertStatus, fired_at: float | None) -> str:
    """Return the numbers of a window in sentences, and since when the alert fires, or from when to when it fired."""
    if status.firing:
        when = f"{status.alert} ({status.severity}) fires since {_time(status.since)}."
    elif fired_at is None:
        when = f"{status.alert} ({status.severity}) resolved at {_time(report.at)}."
    else:
        when = f"{status.alert} ({status.severity}) fired from {_time(fired_at)} to {_time(report.at)}."
    change = next((one for one in window.changes if one.direction is status.direction), None)
    return " ".join([when, _estimate(report, window, status), *_comparison(window, status), *_change(change, status)])


def _now(report: Report, window: SegmentReport, status: AlertStatus) -> str:
    """Say what is wrong, with the number that tells it and what it was."""
    if status.kind not in _COMPARED:
        return _KINDS[status.kind] + _since(window, status) + _rejected(report, status) + _distance(status)
    found = _found(report, window, status)
    if found is None:
        return f"{_name(status)} unknown" if _is_of_its_own(status) else _KINDS[status.kind]
    value = f"{found.what} {_per_cent(found.value)}"
    if _is_of_its_own(status):
        return value if status.threshold is None else f"{value}, threshold {_per_cent(status.threshold)}"
    if status.kind is AlertType.BASELINE_GAP:
        return value if report.reference is None else f"{value}, reference {_per_cent(report.reference.accuracy)}"
    baseline = window.baseline
    return value if baseline is None or baseline.accuracy is None else f"{value}, was {_per_cent(baseline.accuracy)}"


def _after(report: Report, window: SegmentReport, status: AlertStatus) -> str:
    """Say what is true now that an alert has resolved."""
    if status.kind not in _COMPARED:
        return _RESOLVED[status.kind] + _rejected(report, status) + _distance(status)
    found = _found(report, window, status)
    return f"{_name(status)} unknown now" if found is None else f"{found.what} {_per_cent(found.value)} now"


def _found(report: Report, window: SegmentReport, status: AlertStatus) -> _Found | None:
    """Return what an alert compares, of other alerts the headline; None without it."""
    of = f"of {window.records:,} records"
    if status.estimator == AUDITED:
        audited = None if window.labels is None else window.labels.horizon.audited
        if audited is None:
            return None
        interval = Interval(audited.lower, audited.upper)
        return _Found(_name(status), audited.value, interval, f"from {audited.labels:,} labels")
    if status.metric is not None:
        classes = () if report.reference is None else report.reference.classes
        for one in window.performance:
            of_class = None if one.target.of_class is None else classes[one.target.of_class]
            if (one.target.metric, of_class) == (status.metric, status.of_class) and one.value is not None:
                return _Found(_name(status), one.value, one.interval, of)
        return None
    headline = headline_in(window.results)
    by = headline if status.estimator in {None, HEADLINE} else status.estimator
    estimate = window.results.get(by or headline) if window.valid else None
    name = _name(status) if by == headline else f"{_name(status)} by {by}"
    return _Found(name, estimate.accuracy, estimate.interval, of) if isinstance(estimate, Estimate) else None


def _is_of_its_own(status: AlertStatus) -> bool:
    """Return whether an alert compares something else than an estimate of the accuracy, which the baseline is not of."""
    return status.metric is not None or status.estimator == AUDITED


def _name(status: AlertStatus) -> str:
    return f"{'audited' if status.estimator == AUDITED else 'estimated'} {status.compared}"


def _since(window: SegmentReport, status: AlertStatus) -> str:
    return (
        f" since {_time(window.last_record_at)}"
        if status.kind is AlertType.SILENT and window.last_record_at is not None
        else ""
    )


def _rejected(report: Report, status: AlertStatus) -> str:
    share = report.input.rejected_share
    return f", rejected {_per_cent(share)}" if status.kind is AlertType.DEGRADED_INPUT and share is not None else ""


def _distance(status: AlertStatus) -> str:
    if status.value is None or status.threshold is None:
        return ""
    if status.kind is AlertType.DISAGREEMENT:
        return f": {100.0 * status.value:.1f} points, limit {100.0 * status.threshold:.1f}"
    return f": {status.value:.2f} from its baseline, limit {status.threshold:.2f}"


def _estimate(report: Report, window: SegmentReport, status: AlertStatus) -> str:
    found = _found(report, window, status)
    if found is None:
        why = "too few cases or labels" if window.valid else str(window.state)
        return f"No estimate: {why}; {window.records:,} records."
    interval = found.interval
    known = interval is not None and math.isfinite(interval.lower + interval.upper)
    between = (
        ""
        if interval is None or not known
        else f", interval {_per_cent(interval.lower)} to {_per_cent(interval.upper)}"
    )
    return f"{found.what[0].upper()}{found.what[1:]} {_per_cent(found.value)}{between}, {found.of}."


def _comparison(window: SegmentReport, status: AlertStatus) -> list[str]:
    found, baseline = [], window.baseline
    if status.kind in {AlertType.ACCURACY, AlertType.BASELINE_GAP} and status.threshold is not None:
        value = "" if status.value is None else f", compared with {_per_cent(status.value)}"
        found.append(f"Threshold {_per_cent(status.threshold)}{value}.")
    if baseline is not None and baseline.accuracy is not None and not _is_of_its_own(status):
        unverified = "" if baseline.verified else ", unverified"
        found.append(
            f"Baseline {_per_cent(baseline.accuracy)} of {baseline.records:,} records ({baseline.kind}{unverified})."
        )
    return found


def _change(change: ChangeStatus | None, status: AlertStatus) -> list[str]:
    if status.kind is not AlertType.CHANGE or status.value is None or status.threshold is None:
        return []
    noun = _DIRECTIONS[status.direction or Direction.DOWN]
    found = [f"Evidence of a {noun} 10^{status.value:.1f}, budget 10^{status.threshold:.1f}."]
    if status.firing and change is not None and change.began_at is not None:
        found.append(f"It began about {_time(change.began_at)}, {change.records_since or 0:,} records ago.")
    return found


def _per_cent(ratio: float) -> str:
    return f"{100.0 * ratio:.1f}%"


def _time(at: float) -> str:
    """Format a time in UTC. A record may carry any time, also an impossible one."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "an impossible time"
