"""PromQL that the panels share.

A model that replicas share has a merged estimate from the recording rules (`cpcmon:…`, docs/scaling.md), and one of each
replica. Panels about models show the merged one where it exists. Of several jobs with a model of the same name, they show
the worst: the best would hide a problem.
"""

from monitor.core.estimate import HEADLINE, WindowState

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
"""Their positions, from 1, are the values of `state`."""


def series(name: str, *matchers: str, at: str = "") -> str:
    """Return the series of the selected daemons."""
    return f"{name}{{{','.join((JOB, INSTANCE, *matchers))}}}{at}"


def estimated(part: str, *matchers: str, at: str = "") -> str:
    """Return estimates, merged ones where they exist; `part` is the part of the name before `_ratio`."""
    merged = f"cpcmon:estimated_accuracy{part}_ratio{{{','.join((JOB, *matchers))}}}{at}"
    own = series(f"cpcmon_estimated_accuracy{part}_ratio", *matchers, at=at)
    return f"({merged} or on ({_OF_MODEL}, segment, estimator) {own})"


def field(end: str, *matchers: str) -> str:
    """Return an end of the 90% field interval, merged ones where they exist, if the chosen estimator has one."""
    name, level = f"estimated_accuracy_field_{end}_ratio", 'level="0.9"'
    merged = f"cpcmon:{name}{{{','.join((JOB, *matchers, level))}}}"
    own = series(f"cpcmon_{name}", *matchers, level)
    headline = estimated("", *matchers, ESTIMATOR, f'estimator="{HEADLINE}"')
    return f"(({merged} or on ({_OF_MODEL}, segment) {own}) and on ({_OF_MODEL}, segment) {headline})"


def evidence(part: str = "") -> str:
    """Return the evidence of a change, or its threshold, of all segments: merged ones where they exist."""
    name = f"change_evidence{part}"
    merged = f"cpcmon:{name}{{{JOB},{MODEL}}}"
    return f"({merged} or on ({_OF_MODEL}, segment, direction) {series(f'cpcmon_{name}', MODEL)})"


def change_began() -> str:
    """Return when changes began of which alerts fire, in Unix seconds."""
    of_change = series("cpcmon_alert_info", MODEL, 'kind="change"')
    firing = f"{series('cpcmon_alert_firing', MODEL)} == 1 and on (job, instance, model, alert) {of_change}"
    began = series("cpcmon_change_started_timestamp_seconds", MODEL)
    return f"{began} and on (job, instance, model, segment) ({firing})"


def lower_thresholds(*matchers: str) -> str:
    """Return the thresholds of alerts on low accuracy, without those on suspiciously high accuracy."""
    threshold = series("cpcmon_accuracy_threshold_ratio", *matchers)
    return f"({threshold} and on (job, instance, model, alert) {series('cpcmon_alert_info', LOW)})"


def state(by: str, *matchers: str) -> str:
    """Return the position of a window's state; of several replicas the best, of several jobs the last."""
    windows = (series("cpcmon_window_state", *matchers, f'state="{one}"') for one in STATES)
    best = " or ".join(
        f"{place} * max by (job, namespace, {by}) ({one} == 1)" for place, one in enumerate(windows, start=1)
    )
    return f"max by ({by}) ({best})"


def models(condition: str) -> str:
    """Return the estimate of each model for which a condition holds."""
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
    """Return the mean over replicas, weighted by records."""
    # Labels of one side only (class) are on the left.
    match = "on (job, instance, model, segment, estimator)"
    weighted = f"sum by ({by}) ({ratio} * {match} group_left () {records})"
    return f"{weighted} / sum by ({by}) (({ratio}) * 0 + {match} group_left () {records})"


def worst(place: int) -> str:
    """Return the estimate minus the baseline of the segment at a place, worst first, at the end of the range."""
    now = f"min by (segment) {estimated('', MODEL, ESTIMATOR, at=' @ end()')}"
    better = f" unless bottomk({place - 1}, {now})" if place > 1 else ""
    reference = f"max by (job, namespace) ({series('cpcmon_reference_accuracy_ratio', MODEL)})"
    baseline = f"max by (job, namespace, segment) ({series('cpcmon_baseline_accuracy_ratio', MODEL)})"
    estimate = estimated("", MODEL, ESTIMATOR)
    less = f"({estimate} - on (job, namespace, segment) group_left () {baseline})"
    # While a segment collects its baseline, the reference has to do.
    less += f" or ({estimate} - on (job, namespace) group_left () {reference})"
    return f"min by (segment) ({less}) and (bottomk({place}, {now}){better})"


def rate(counter: str, by: str) -> str:
    """Return the rate of a counter."""
    return f"sum by ({by}) (rate({series(counter)}[$__rate_interval]))"


def risen(counter: str, by: str) -> str:
    """Return the increase of a counter."""
    return f"sum by ({by}) (increase({series(counter)}[$__rate_interval]))"
