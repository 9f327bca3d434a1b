"""Pieces of PromQL that the panels share.

A model whose records replicas share has one answer that the recording rules add up (`cpcmon:…`, docs/scaling.md), and
one of each replica for its part. Panels about models show the first where it exists.

Jobs may have models of the same name, and all jobs are shown at first. Where one number stands for them it is the worst
of them: the best would hide that a model is not well.
"""

from monitor.core.estimate import WindowState

JOB = 'job=~"$job"'
INSTANCE = 'instance=~"$instance"'
MODEL = 'model="$model"'
SEGMENT = 'segment="$segment"'
ESTIMATOR = 'estimator="$estimator"'
ALL = 'segment="all"'
"""The whole of a model."""
LOW = 'kind="accuracy_low"'

_OF_MODEL = "job, namespace, model"
STATES = tuple(WindowState)
"""Their places, counted from 1, are the values that `state` gives."""


def series(name: str, *matchers: str, at: str = "") -> str:
    """Return the series of the daemons that are chosen."""
    return f"{name}{{{','.join((JOB, INSTANCE, *matchers))}}}{at}"


def estimated(part: str, *matchers: str, at: str = "") -> str:
    """Return estimates, those of all replicas together where there are any; `part` is what stands before `_ratio`."""
    merged = f"cpcmon:estimated_accuracy{part}_ratio{{{','.join((JOB, *matchers))}}}{at}"
    own = series(f"cpcmon_estimated_accuracy{part}_ratio", *matchers, at=at)
    return f"({merged} or on ({_OF_MODEL}, segment, estimator) {own})"


def lower_thresholds(*matchers: str) -> str:
    """Return the thresholds under which an alert fires; there are others, of accuracies that are too good to be true."""
    threshold = series("cpcmon_accuracy_threshold_ratio", *matchers)
    return f"({threshold} and on (job, instance, model, alert) {series('cpcmon_alert_info', LOW)})"


def state(by: str, *matchers: str) -> str:
    """Return the place of a window's state in the list of states; of several replicas the best, of several jobs the last."""
    windows = (series("cpcmon_window_state", *matchers, f'state="{one}"') for one in STATES)
    best = " or ".join(
        f"{place} * max by (job, namespace, {by}) ({one} == 1)" for place, one in enumerate(windows, start=1)
    )
    return f"max by ({by}) ({best})"


def models(condition: str) -> str:
    """Return the estimate of each model's whole for which a condition holds."""
    estimate, upper = estimated("", ALL, ESTIMATOR), estimated("_upper", ALL, ESTIMATOR)
    threshold = f"max by ({_OF_MODEL}) {lower_thresholds(ALL)}"
    beside = f"on ({_OF_MODEL}) group_left () {threshold}"
    surely = f"on ({_OF_MODEL}, instance) ({upper} < {beside})"
    return {
        "below": f"{estimate} and {surely}",
        "perhaps below": f"({estimate} < {beside}) unless {surely}",
        "not below": f"{estimate} >= {beside}",
        "no threshold": f"{estimate} unless on ({_OF_MODEL}) {threshold}",
        "no estimate": (
            f"max by ({_OF_MODEL}, state) ({series('cpcmon_window_state', ALL)} == 1)"
            f" unless on ({_OF_MODEL}) {estimate}"
        ),
    }[condition]


def over_replicas(ratio: str, records: str, by: str) -> str:
    """Return the mean of what replicas say of their records, weighted by these."""
    # Labels that only one of them has (class) are on the left.
    match = "on (job, instance, model, segment, estimator)"
    weighted = f"sum by ({by}) ({ratio} * {match} group_left () {records})"
    return f"{weighted} / sum by ({by}) (({ratio}) * 0 + {match} group_left () {records})"


def worst(place: int) -> str:
    """Return the estimate, less the reference accuracy, of the segment that is now the worst, the second, and so on."""
    now = f"min by (segment) {estimated('', MODEL, ESTIMATOR, at=' @ end()')}"
    better = f" unless bottomk({place - 1}, {now})" if place > 1 else ""
    reference = f"max by (job, namespace) ({series('cpcmon_reference_accuracy_ratio', MODEL)})"
    less = f"{estimated('', MODEL, ESTIMATOR)} - on (job, namespace) group_left () {reference}"
    return f"min by (segment) ({less}) and (bottomk({place}, {now}){better})"


def rate(counter: str, by: str) -> str:
    """Return how fast a counter of the daemon rises."""
    return f"sum by ({by}) (rate({series(counter)}[$__rate_interval]))"


def risen(counter: str, by: str) -> str:
    """Return by how much a counter of the daemon rose."""
    return f"sum by ({by}) (increase({series(counter)}[$__rate_interval]))"
