"""The words of a webhook message: a summary for a pager's title, and a description with the numbers."""

import math
from datetime import UTC, datetime

from monitor.core.alerts import AlertStatus, AlertType
from monitor.core.change import ChangeStatus, Direction
from monitor.core.estimate import AUDITED, Estimate
from monitor.core.estimators.ensemble import headline_in
from monitor.core.report import SegmentReport

NOT_MONITORED = "it is no longer monitored, which does not mean that the model is fine"
_COMPARED = {AlertType.ACCURACY, AlertType.CHANGE, AlertType.BASELINE_GAP}
_KINDS = {
    AlertType.CHANGE: "evidence of a change of the accuracy",
    AlertType.ACCURACY: "accuracy",
    AlertType.DISAGREEMENT: "the estimators disagree",
    AlertType.OUTPUT_DRIFT: "the model answers differently than it did",
    AlertType.BASELINE_GAP: "far below the reference",
    AlertType.SILENT: "no new records",
    AlertType.DEGRADED_INPUT: "records are rejected or look wrong",
}
_RESOLVED = {
    AlertType.DISAGREEMENT: "the estimators agree again",
    AlertType.OUTPUT_DRIFT: "the outputs are within their limit again",
    AlertType.SILENT: "records arrive again",
    AlertType.DEGRADED_INPUT: "records are accepted again",
}
_DIRECTIONS = {Direction.DOWN: "drop", Direction.UP: "rise"}


def summary(model: str, window: SegmentReport, status: AlertStatus) -> str:
    """Return one line: `density, Northlake N2: estimated accuracy 66.5%, was 89.3%`."""
    where = f"{model}, {' '.join(value for _, value in window.segment) or 'all records'}"
    return f"{where}: {_now(window, status) if status.firing else f'resolved, {_after(window, status)}'}"


def description(window: SegmentReport, status: AlertStatus, at: float, fired_at: float | None) -> str:
    """Return the numbers of a window in sentences, and since when the alert fires, or from when to when it fired."""
    if status.firing:
        when = f"{status.alert} ({status.severity}) fires since {_time(status.since)}."
    elif fired_at is None:
        when = f"{status.alert} ({status.severity}) resolved at {_time(at)}."
    else:
        when = f"{status.alert} ({status.severity}) fired from {_time(fired_at)} to {_time(at)}."
    change = next((one for one in window.changes if one.direction is status.direction), None)
    return " ".join([when, *_estimate(window), *_comparison(window, status), *_change(change, status)])


def _now(window: SegmentReport, status: AlertStatus) -> str:
    """Say what is wrong, with the number that tells it and what it was."""
    if status.kind not in _COMPARED:
        return _KINDS[status.kind] + _distance(status)
    if status.metric is not None or status.estimator == AUDITED:
        return f"{_name(status)} {_number(status.value)}, threshold {_number(status.threshold)}"
    estimate, baseline = _headline(window), window.baseline
    if estimate is None:
        return _KINDS[status.kind]
    was = "" if baseline is None or baseline.accuracy is None else f", was {_per_cent(baseline.accuracy)}"
    return f"estimated accuracy {_per_cent(estimate.accuracy)}{was}"


def _after(window: SegmentReport, status: AlertStatus) -> str:
    """Say what is true now that an alert has resolved."""
    if status.kind not in _COMPARED:
        return _RESOLVED[status.kind] + _distance(status)
    if status.metric is not None or status.estimator == AUDITED:
        return f"{_name(status)} {_number(status.value)} now"
    estimate = _headline(window)
    return "no estimate now" if estimate is None else f"estimated accuracy {_per_cent(estimate.accuracy)} now"


def _name(status: AlertStatus) -> str:
    return f"{'audited' if status.estimator == AUDITED else 'estimated'} {status.compared}"


def _distance(status: AlertStatus) -> str:
    if status.value is None or status.threshold is None:
        return ""
    if status.kind is AlertType.DISAGREEMENT:
        return f": {100.0 * status.value:.1f} points, limit {100.0 * status.threshold:.1f}"
    return f": {status.value:.2f} from its baseline, limit {status.threshold:.2f}"


def _estimate(window: SegmentReport) -> list[str]:
    estimate = _headline(window)
    if estimate is None:
        return [f"No estimate: {window.state}; {window.records:,} records."]
    interval = estimate.interval
    known = interval is not None and math.isfinite(interval.lower + interval.upper)
    between = (
        ""
        if interval is None or not known
        else f", interval {_per_cent(interval.lower)} to {_per_cent(interval.upper)}"
    )
    return [f"Estimated accuracy {_per_cent(estimate.accuracy)}{between}, of {window.records:,} records."]


def _comparison(window: SegmentReport, status: AlertStatus) -> list[str]:
    found, baseline = [], window.baseline
    if status.kind in {AlertType.ACCURACY, AlertType.BASELINE_GAP} and status.threshold is not None:
        value = "" if status.value is None else f", compared with {_per_cent(status.value)}"
        what = "" if status.metric is None and status.estimator != AUDITED else f" of the {_name(status)}"
        found.append(f"Threshold{what} {_per_cent(status.threshold)}{value}.")
    if baseline is not None and baseline.accuracy is not None:
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


def _headline(window: SegmentReport) -> Estimate | None:
    found = window.results.get(headline_in(window.results)) if window.valid else None
    return found if isinstance(found, Estimate) else None


def _number(value: float | None) -> str:
    return "unknown" if value is None else _per_cent(value)


def _per_cent(ratio: float) -> str:
    return f"{100.0 * ratio:.1f}%"


def _time(at: float) -> str:
    """Format a time in UTC. A record may carry any time, also an impossible one."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "an impossible time"
