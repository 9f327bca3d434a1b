"""The rules that work for any configuration: what the generated ones are told by it, these ask the daemon for.

Everything is matched by all labels of the target, so that two daemons are never mixed up; sets (`and`, `unless`) take
many series on either side.
"""

from collections.abc import Sequence

from monitor.core.alerts import HIGH, LOW, AlertType, On, Severity
from monitor.rules import alert_texts as words
from monitor.rules.model_rules import invalid_rule, merged_invalid_rule, warming_rule
from monitor.rules.replicas import ALL_DOWN, ESTIMATE_RECORDS, LOWER, MODEL, RATIO, UPPER, WINDOW, recording_rules
from monitor.rules.rule import PrometheusRule, RecordingRule, bridged, group_text, lately
from monitor.rules.self_rules import FIXED, KAFKA, WATCHDOG, down_rule

_MINUTES = 60.0
_FIRING = bridged("cpcmon_alert_firing")
_SHARED = f"{bridged('cpcmon_model_shared')} == 1"
_ALONE = f"unless ignoring (segment, alert, severity) {_SHARED}"
_MERGED_LOW = "CpcmonMergedAccuracyLow"
_COMPARED = {On.VALUE: RATIO, On.LOWER: LOWER, On.UPPER: UPPER}
_ESTIMATE = f"{WINDOW}, estimator, on"
_ALERT = f"{_ESTIMATE}, alert"
_VALUE = "cpcmon:alert_compared_ratio"
_LIMIT = "cpcmon:alert_threshold_ratio"
_SINCE = "cpcmon:alert_low_since_timestamp_seconds"

_HEAD = """\
# The rules of cpcmon for any configuration: alerts are those that the daemon says, with the severity that is configured.
# Load this file, or the one that `cpcmon rules` writes for your configuration, never both: docs/prometheus.md compares
# them. It is made by `python -m tests.rules.shipped_rules`; do not edit it. Set runbook_url to where you keep the pages.
"""


def generic_rule_file(job: str, runbooks: str) -> str:
    """Return the rule file; `job` is a regular expression for the job under which Prometheus scrapes cpcmon."""
    groups: dict[str, Sequence[PrometheusRule | RecordingRule]] = {
        "cpcmon": [down_rule(job), *_of_silence(), *FIXED, *KAFKA, WATCHDOG],
        "cpcmon replicas": recording_rules(job),
        "cpcmon models": [*_passed_on(), *_merged_low(), _stale(), _failing(), _refused()],
    }
    return _HEAD + "groups:\n" + "".join(group_text(name, rules, runbooks) for name, rules in groups.items())


def _info(kind: str, on: On | None = None) -> str:
    """Return the series that tells of which alerts the daemon says that they are of a kind."""
    matchers = [f'kind="{kind}"', *([] if on is None else [f'on="{on}"'])]
    return bridged(f"cpcmon_alert_info{{{','.join(matchers)}}}")


def _of_kind(kind: str) -> str:
    return f"and ignoring (segment, severity, kind, on) {_info(kind)}"


def _passed_on() -> list[PrometheusRule]:
    """Return the daemon's own alerts, by kind. Of a model that replicas share, one replica knows a share only."""
    silent, degraded = _of_kind(AlertType.SILENT), _of_kind(AlertType.DEGRADED_INPUT)
    # One replica that gets records is proof enough that they come.
    all_silent = (
        f"min by ({WINDOW}, alert, severity) ({_FIRING} {silent} and ignoring (segment, alert, severity) {_SHARED})"
    )
    return [
        PrometheusRule(
            "CpcmonAccuracyLow",
            f"{_FIRING} == 1 {_of_kind(LOW)} {_ALONE}",
            None,
            "The estimated accuracy of a model is too low.",
            words.ACCURACY_LOW,
            "accuracy.md",
        ),
        PrometheusRule(
            "CpcmonAccuracyHigh",
            f"{_FIRING} == 1 {_of_kind(HIGH)} {_ALONE}",
            None,
            "The estimated accuracy of a model is suspiciously high.",
            words.ACCURACY_HIGH,
            "accuracy_high.md",
        ),
        PrometheusRule(
            "CpcmonDisagreementHigh",
            f"{_FIRING} == 1 {_of_kind(AlertType.DISAGREEMENT)} {_ALONE}",
            None,
            "The estimators of a model disagree.",
            words.DISAGREEMENT,
            "disagreement.md",
        ),
        PrometheusRule(
            "CpcmonSegmentSilent",
            f"({_FIRING} == 1 {silent} {_ALONE}) or {all_silent} == 1",
            None,
            "No records of a model come in.",
            words.SILENT,
            "silent.md",
        ),
        PrometheusRule(
            "CpcmonInputRefused",
            f"{_FIRING} == 1 {degraded}",
            None,
            "Many records of a model are refused or look odd.",
            words.REFUSED,
            "degraded_input.md",
        ),
    ]


def _merged_low() -> list[RecordingRule | PrometheusRule]:
    """Return the alert on what all replicas say together, and the series that it needs.

    A rule's own `for` is the same for every series, and each alert has another. So it is recorded since when a merged
    estimate has been too low, and the alert compares that with what the daemon exports. The series ends, with a stale
    marker, at the first evaluation at which the estimate is not too low: then the wait begins anew.
    """
    low = f"{_VALUE} < on ({_ESTIMATE}) group_right () {_LIMIT}"
    firing = f'ALERTS{{alertname="{_MERGED_LOW}",alertstate="firing"}}'
    hold = f"max by ({MODEL}, alert) ({bridged('cpcmon_alert_for_seconds')})"
    waiting = f"time() - {_SINCE} < on ({MODEL}, alert) group_left () {hold}"
    # A value that is only bridged confirms nothing: an alert begins to fire while the merged estimate is there.
    begins = f"({low}) and on ({WINDOW}) {ESTIMATE_RECORDS} unless on ({_ALERT}) ({waiting})"
    stays = f"({low}) and on ({_ALERT}) {firing}"
    # A merged number that is gone, as at night or with all replicas, is no recovery: what fires stays as it is. ALERTS is
    # what Prometheus remembers of it.
    down = f"max by ({_ALERT}, severity) ({firing}) and on (job, namespace) {ALL_DOWN}"
    held = f"({_LIMIT} and on ({_ALERT}) {firing} or {down}) unless on ({_ESTIMATE}) {_VALUE}"
    return [
        RecordingRule(_VALUE, " or ".join(_labelled(on, _value(series)) for on, series in _COMPARED.items())),
        RecordingRule(_LIMIT, " or ".join(_labelled(on, _limit(on)) for on in _COMPARED)),
        RecordingRule(_SINCE, f"{_SINCE} and ({low}) or ({low}) * 0 + time()"),
        PrometheusRule(
            _MERGED_LOW,
            f"{begins} or {stays} or ({held})",
            None,
            "The estimated accuracy of a model that replicas share is too low.",
            words.MERGED_LOW,
            "accuracy.md",
        ),
    ]


def _labelled(on: On, series: str) -> str:
    return f'label_replace({series}, "on", "{on}", "", "")'


def _value(series: str) -> str:
    return f"max by ({WINDOW}, estimator) ({bridged(series)})"


def _limit(on: On) -> str:
    thresholds = (
        f"{bridged('cpcmon_accuracy_threshold_ratio')} and ignoring (segment, severity, estimator, kind, on) {_info(LOW, on)}"
        f" and ignoring (segment, severity, estimator, alert) {_SHARED}"
    )
    return f"max by ({WINDOW}, estimator, alert, severity) ({thresholds})"


def _of_silence() -> list[PrometheusRule]:
    alone = f" unless ignoring (segment) {_SHARED}"
    in_groups = f" and on ({MODEL}) {_SHARED}"
    return [
        invalid_rule(unless=alone),
        warming_rule(unless=alone.replace("(segment)", "(segment, state)")),
        merged_invalid_rule(only=in_groups),
    ]


def _stale() -> PrometheusRule:
    evaluated = lately("cpcmon_last_evaluation_timestamp_seconds")
    return PrometheusRule(
        "CpcmonEvaluationStale",
        f"time() - {evaluated} > clamp_min(2 * {lately('cpcmon_evaluation_gap_seconds')}, 300)"
        # A model that is configured is counted from the start, also when it was never evaluated.
        f" or ({lately('cpcmon_evaluations_total')} unless {evaluated})",
        Severity.CRITICAL,
        "A model is no longer evaluated.",
        "{{ $labels.model }}: no evaluation for two of its periods, or never one. What is shown of it is of the past.",
        "evaluation_stale.md",
        5 * _MINUTES,
    )


def _failing() -> PrometheusRule:
    failures = ("cpcmon_evaluation_failures_total", "cpcmon_estimator_failures_total")
    found = []
    for counter in failures:
        of = "sum without (estimator) (increase(%s[%s])) > 0" if "estimator" in counter else "increase(%s[%s]) > 0"
        found.append(of % (counter, "15m"))
        # How often a model is evaluated is not known here: half of what there was in three hours, or in two nights.
        found += [
            f"({of % (counter, span)}) >= increase(cpcmon_evaluations_total[{span}]) / 2" for span in ("3h", "2d")
        ]
    return PrometheusRule(
        "CpcmonEvaluationFailing",
        " or ".join(found),
        Severity.WARNING,
        "Evaluations or estimators fail.",
        "{{ $labels.model }}: evaluations, or single estimators, have failed for a while. The log says why.",
        "evaluation_failing.md",
        15 * _MINUTES,
    )


def _refused() -> PrometheusRule:
    return PrometheusRule(
        "CpcmonInputDegraded",
        # Where the model has an alert of its own for it, that is passed on instead.
        f"{lately('cpcmon_input_degraded')} == 1 unless ignoring (alert, kind, on) {_info(AlertType.DEGRADED_INPUT)}",
        Severity.WARNING,
        "Many records of a model are refused or look odd.",
        "{{ $labels.model }}: so many of the latest records are refused, or look so odd, that its accuracy cannot be said.",
        "degraded_input.md",
        15 * _MINUTES,
    )
