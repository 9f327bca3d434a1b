"""PromQL that the panels share.

A model that replicas share has a merged estimate from the recording rules (`cpcmon:…`, docs/scaling.md), and one of each
replica. Panels about models show the merged one where it exists. Of several jobs with a model of the same name, they show
the worst: the best would hide a problem.
"""

from monitor.core.baselines.comparison import Verdict
from monitor.core.estimate import CONSENSUS, HEADLINE, WindowState

JOB = 'job=~"$job"'
INSTANCE = 'instance=~"$instance"'
MODEL = 'model="$model"'
SEGMENT = 'segment="$segment"'
ESTIMATOR = 'estimator="$estimator"'
ALL = 'segment="all"'
"""The whole of a model."""
LOW = 'kind="accuracy_low"'

OF_MODEL = "job, namespace, model"
WINDOW = f"{OF_MODEL}, segment"
STATES = tuple(WindowState)
"""Their positions, from 1, are the values of `state`."""

# The watchdog always fires. CpcmonDown of an unknown target has no job.
_ALERTS = 'alertname=~"Cpcmon.+",alertname!="CpcmonWatchdog",alertstate="firing",job=~"$job|"'
CHANGED = f'verdict=~"{Verdict.FELL}|{Verdict.DRIFTED}"'


def series(name: str, *matchers: str, at: str = "") -> str:
    """Return the series of the selected daemons."""
    return f"{name}{{{','.join((JOB, INSTANCE, *matchers))}}}{at}"


CLASS_PLACES = f"max by (class) ({series('cpcmon_reference_class_position', MODEL)})"
"""The place of each class in the reference."""
PLACE = "Value #place"
"""Its column."""


def either(name: str, by: str, *matchers: str, at: str = "") -> str:
    """Return merged series where they exist, else those of the daemons; `name` is the part after `cpcmon_`."""
    merged = f"cpcmon:{name}{{{','.join((JOB, *matchers))}}}{at}"
    return f"({merged} or on ({by}) {series(f'cpcmon_{name}', *matchers, at=at)})"


def estimated(part: str, *matchers: str, at: str = "") -> str:
    """Return estimates; `part` is the part of the name before `_ratio`."""
    return either(f"estimated_accuracy{part}_ratio", f"{WINDOW}, estimator", *matchers, at=at)


def headline(part: str, *matchers: str, at: str = "") -> str:
    """Return the estimates of the main number by window: of the consensus with a reference of an older version."""
    first, second = (estimated(part, *matchers, f'estimator="{one}"', at=at) for one in (HEADLINE, CONSENSUS))
    return f"min by ({WINDOW}) ({first} or on ({WINDOW}) {second})"


def field(end: str, *matchers: str) -> str:
    """Return an end of the 90% field interval."""
    return either(f"estimated_accuracy_field_{end}_ratio", WINDOW, *matchers, 'level="0.9"')


def field_of_chosen(end: str, *matchers: str) -> str:
    """Return an end of the field interval, if the chosen estimator has one."""
    chosen = estimated("", *matchers, ESTIMATOR, f'estimator="{HEADLINE}"')
    return f"({field(end, *matchers)} and on ({WINDOW}) {chosen})"


def evidence(part: str = "", *matchers: str) -> str:
    """Return the evidence of a change, or its threshold, of all segments."""
    return either(f"change_evidence{part}", f"{WINDOW}, direction", MODEL, *matchers)


def change_began() -> str:
    """Return when changes began of which alerts fire, in Unix seconds."""
    of_change = series("cpcmon_alert_info", MODEL, 'kind="change"')
    firing = f"{series('cpcmon_alert_firing', MODEL)} == 1 and on (job, instance, model, alert) {of_change}"
    began = series("cpcmon_change_started_timestamp_seconds", MODEL)
    return f"{began} and on (job, instance, model, segment) ({firing})"


def lower_thresholds(*matchers: str) -> str:
    """Return the highest threshold of each window's alerts on low accuracy, without those on suspiciously high accuracy."""
    threshold = either("accuracy_threshold_ratio", WINDOW, *matchers)
    return f"max by ({WINDOW}) ({threshold} and on ({OF_MODEL}, alert) {series('cpcmon_alert_info', LOW)})"


def baselines(*matchers: str) -> str:
    """Return the accuracy of the baseline of each window."""
    return f"max by ({WINDOW}) {either('baseline_accuracy_ratio', WINDOW, *matchers)}"


def compared(*matchers: str) -> str:
    """Return what a window is compared with: its threshold, else its baseline."""
    # A daemon of an older version exports no baselines.
    reference = f"max by ({OF_MODEL}) ({series('cpcmon_reference_accuracy_ratio')})"
    of_all = f'label_replace({reference}, "segment", "all", "", "")'
    return f"({lower_thresholds(*matchers)} or {baselines(*matchers)} or {of_all})"


def state(by: str, *matchers: str) -> str:
    """Return the position of a window's state; of several replicas the best, of several jobs the last."""
    windows = (series("cpcmon_window_state", *matchers, f'state="{one}"') for one in STATES)
    best = " or ".join(
        f"{place} * max by (job, namespace, {by}) ({one} == 1)" for place, one in enumerate(windows, start=1)
    )
    return f"max by ({by}) ({best})"


def alerts(*matchers: str) -> str:
    """Return the firing alerts in Prometheus."""
    return f"ALERTS{{{','.join((_ALERTS, *matchers))}}}"


def _fires_in_a_daemon() -> str:
    """Return the alerts that fire in daemons. Alone, a replica of a shared model has only a part of its records."""
    shared = f"{series('cpcmon_model_shared')} == 1"
    return f"{series('cpcmon_alert_firing')} == 1 unless on (job, instance, model) ({shared})"


def alerting() -> str:
    """Return the models with a firing alert, also where Prometheus has no rules."""
    named = 'model!=""'
    return f"max by ({OF_MODEL}) ({alerts(named)} or ({_fires_in_a_daemon()}))"


# CpcmonRulesOutdated is about a configured alert, which need not fire.
_CONFIGURED = 'alert!="",alertname!="CpcmonRulesOutdated"'
_BUILT_IN = ('alert=""', 'alertname="CpcmonRulesOutdated"')
_ALERT = f"{WINDOW}, alert"


def firing() -> str:
    """Return every firing alert once, with a label `runbook`: the kind of a configured alert, the name of others."""
    known = f"max by ({_ALERT}, severity)"
    configured = f"{known} ({alerts(_CONFIGURED)}) or on ({_ALERT}) {known} ({_fires_in_a_daemon()})"
    info = f"max by ({OF_MODEL}, alert, kind) (last_over_time({series('cpcmon_alert_info')}[15m]))"
    of_kind = f"({configured}) * on ({OF_MODEL}, alert) group_left (kind) {info}"
    others = f"max by ({WINDOW}, alertname, severity) ({' or '.join(map(alerts, _BUILT_IN))})"
    return (
        f'max by ({_ALERT}, severity, runbook) (label_join({of_kind}, "runbook", "", "kind")'
        f' or label_join(label_join({others}, "runbook", "", "alertname"), "alert", "", "alertname"))'
    )


def firing_since() -> str:
    """Return since when each alert fires, in Unix seconds."""
    since = f"max by ({_ALERT}) ({series('cpcmon_alert_since_timestamp_seconds')})"
    # Daemons do not know of alerts on all replicas together, nor of those on themselves.
    configured, *others = (
        f'ALERTS_FOR_STATE{{alertname=~"Cpcmon.+",job=~"$job|",{one}}}' for one in (_CONFIGURED, *_BUILT_IN)
    )
    began = f'{configured} or label_join({" or ".join(others)}, "alert", "", "alertname")'
    return f"0 * {firing()} + on ({_ALERT}) group_left () ({since} or min by ({_ALERT}) ({began}))"


def models(condition: str) -> str:
    """Return the estimate of the worst window of each model for which a condition holds."""
    estimate = headline("")
    worst = f"({estimate} and bottomk by ({OF_MODEL}) (1, {estimate} - {compared()}))"
    fell = f"max by ({OF_MODEL}) ({estimate} < {lower_thresholds()} or {series('cpcmon_window_verdict', CHANGED)} == 1)"
    state = f"max by ({OF_MODEL}, state) ({series('cpcmon_window_state', ALL)} == 1) unless on ({OF_MODEL}) {estimate}"
    match = f"on ({OF_MODEL})"
    return {
        "alert": f"{worst} and {match} {alerting()}",
        "below": f"{worst} and {match} {fell} unless {match} {alerting()}",
        "fine": f"{worst} unless {match} ({alerting()} or {fell})",
        "no estimate, alert": f"{state} and {match} {alerting()}",
        "no estimate": f"{state} unless {match} {alerting()}",
    }[condition]


def over_replicas(ratio: str, records: str, by: str) -> str:
    """Return the mean over replicas, weighted by records."""
    # Labels of one side only (class) are on the left.
    match = "on (job, instance, model, segment, estimator)"
    weighted = f"sum by ({by}) ({ratio} * {match} group_left () {records})"
    return f"{weighted} / sum by ({by}) (({ratio}) * 0 + {match} group_left () {records})"


def worst(place: int) -> str:
    """Return the estimate minus the baseline of the segment at a place, worst first, at the end of the range, in points."""
    now = f"min by (segment) ({headline('', MODEL, at=' @ end()')})"
    better = f" unless bottomk({place - 1}, {now})" if place > 1 else ""
    reference = f"max by ({OF_MODEL}) ({series('cpcmon_reference_accuracy_ratio', MODEL)})"
    estimate = headline("", MODEL)
    # While a segment collects its baseline, the reference has to do.
    less = f"({estimate} - {baselines(MODEL)}) or ({estimate} - on ({OF_MODEL}) group_left () {reference})"
    return f"100 * min by (segment) ({less}) and (bottomk({place}, {now}){better})"


def age(name: str, by: str, *matchers: str) -> str:
    """Return the age of a time when it was scraped: of several daemons, the oldest."""
    of = series(name, *matchers)
    return f"max by ({by}) (timestamp({of}) - {of})"


def rate(counter: str, by: str) -> str:
    """Return the rate of a counter."""
    return f"sum by ({by}) (rate({series(counter)}[$__rate_interval]))"


def rate_if_any(counter: str, by: str) -> str:
    """Return the rate of a counter, without series that do not rise in the time range."""
    return f"{rate(counter, by)} and {_rose(counter, by)}"


def risen(counter: str, by: str) -> str:
    """Return the increase of a counter, without series that do not rise in the time range."""
    return f"sum by ({by}) (increase({series(counter)}[$__rate_interval])) and {_rose(counter, by)}"


def _rose(counter: str, by: str) -> str:
    return f"sum by ({by}) (increase({series(counter)}[$__range] @ end())) > 0"
