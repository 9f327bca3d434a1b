"""Build the shipped rule files: `python -m deploy.prometheus.build_rules`.

The shipped rules work for any configuration: `cpcmon rules` writes kinds, thresholds and severities into its rules, these
read them from series. Matches use all labels of the target, so that daemons are kept apart, and the set operators `and`
and `unless`, which allow many series on either side.
"""  # noqa: INP001 - a script, no package

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from monitor.core.alerts import AUDITED_HIGH, AUDITED_LOW, HIGH, LOW, METRIC_HIGH, METRIC_LOW, AlertType, On
from monitor.core.change import Direction
from monitor.core.estimate import HEADLINE
from monitor.rules import descriptions as texts
from monitor.rules.builtin_rules import (
    DAEMON,
    KAFKA,
    LABELS,
    WATCHDOG,
    degraded_rule,
    down_rule,
    failing_rule,
    invalid_rule,
    merged_invalid_rule,
    stale_rule,
    warming_rule,
)
from monitor.rules.descriptions import ALL_REPLICAS, METRIC_THRESHOLD, ONE_DAEMON, PERCENT, if_query, if_series
from monitor.rules.replicas import (
    ALL_DOWN,
    COMPARED,
    ESTIMATE_RECORDS,
    FIELD_LEVEL,
    MODEL,
    THRESHOLD,
    WINDOW,
    changed,
    recording_rules,
)
from monitor.rules.rule import SEGMENT_LABELS, PrometheusRule, RecordingRule, bridged, group_text, recent
from monitor.rules.rule_file import DEFAULT_JOB

_DEPLOY = Path(__file__).resolve().parents[1]
RULES = _DEPLOY / "prometheus" / "cpcmon.rules.yml"
MANIFEST = _DEPLOY / "kubernetes" / "base" / "prometheusrule.yaml"
CHART = _DEPLOY / "helm" / "cpcmon" / "files" / "rules.yaml"

_HEAD = """\
# cpcmon's rules for any configuration. Alerts have the severity that the configuration of the daemon gives them.
# Load either this file or the output of `cpcmon rules` for your configuration, never both: docs/prometheus.md compares
# them. Links are those of `links` in the configuration of the daemon; where they are not set, they are empty.
# Built by `python -m deploy.prometheus.build_rules`. Do not edit.
"""
_COPY_HEAD = "# Built by `python -m deploy.prometheus.build_rules`. Do not edit.\n"
_MANIFEST_HEAD = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: cpcmon
spec:
"""

_FIRING = bridged("cpcmon_alert_firing")
_SHARED = f"{bridged('cpcmon_model_shared')} == 1"
_NOT_SHARED = f"unless ignoring (segment, alert, severity) {_SHARED}"
_CHANGE, _MERGED_CHANGE = "CpcmonAccuracyChange", "CpcmonMergedAccuracyChange"
_MERGED_LOW = "CpcmonMergedAccuracyLow"
_ESTIMATE = f"{WINDOW}, estimator, on"
_ALERT = f"{_ESTIMATE}, alert"
_VALUE = "cpcmon:alert_compared_ratio"
_LIMIT = "cpcmon:alert_threshold_ratio"
_SINCE = "cpcmon:alert_low_since_timestamp_seconds"


def build() -> dict[Path, str]:
    """Return the content of each shipped file."""
    groups: dict[str, Sequence[PrometheusRule | RecordingRule]] = {
        "cpcmon": [down_rule(DEFAULT_JOB), *_without_estimate(), *DAEMON, *LABELS, *KAFKA, WATCHDOG],
        "cpcmon replicas": recording_rules(DEFAULT_JOB),
        "cpcmon models": [*_configured(), *_merged_low(), _stale(), _failing(), _degraded()],
    }
    rules = "groups:\n" + "".join(group_text(name, group, None) for name, group in groups.items())
    copy = yaml.safe_dump(yaml.safe_load(rules), sort_keys=False, allow_unicode=True, width=1 << 20)
    indented = "".join(f"  {line}" if line.strip() else line for line in copy.splitlines(keepends=True))
    return {RULES: _HEAD + rules, MANIFEST: _COPY_HEAD + _MANIFEST_HEAD + indented, CHART: _COPY_HEAD + copy}


def _info(kind: str, on: str | None = None) -> str:
    """Return the series of the alerts of a kind."""
    matchers = [f'kind="{kind}"', *([] if on is None else [f'on="{on}"'])]
    return bridged(f"cpcmon_alert_info{{{','.join(matchers)}}}")


def _of_kind(kind: str, on: str | None = None) -> str:
    return f"and ignoring (segment, severity, kind, on) {_info(kind, on)}"


def _configured() -> list[PrometheusRule]:
    """Return the daemon's alerts by kind. A replica of a shared model has only a part of its records."""
    silent = _of_kind(AlertType.SILENT)
    # One replica with records shows that they arrive.
    all_silent = (
        f"min by ({WINDOW}, alert, severity) ({_FIRING} {silent} and ignoring (segment, alert, severity) {_SHARED})"
    )
    where = "{{ $labels.model }}, {{ $labels.segment }}: "
    state = texts.SINCE + texts.HELD
    place, actions = texts.PLACE, texts.ACTIONS
    estimate, (metric, metric_found) = _estimate(), _metric()
    audited_title = f"{place}: audited accuracy{texts.audited_value(ONE_DAEMON)}{_threshold(ONE_DAEMON.threshold)}"
    return [
        *(rule for direction in Direction for rule in _change(direction)),
        PrometheusRule(
            "CpcmonAccuracyLow",
            f"{_FIRING} == 1 {_of_kind(LOW)} {_NOT_SHARED}",
            None,
            f"{place}: {texts.accuracy_title(estimate[0], ONE_DAEMON)}",
            f"{where}{_accuracy('below')}{texts.baseline(ONE_DAEMON)}{state} {actions[AlertType.ACCURACY]}",
            "accuracy.md",
        ),
        PrometheusRule(
            "CpcmonAccuracyHigh",
            f"{_FIRING} == 1 {_of_kind(HIGH)} {_NOT_SHARED}",
            None,
            f"{place}: {texts.accuracy_title(estimate[0], ONE_DAEMON, high=True)}",
            f"{where}{_accuracy('above')}{texts.baseline(ONE_DAEMON)}{state} {texts.ACTION_HIGH}",
            "accuracy_high.md",
        ),
        # Metrics of replicas do not add up: each alerts on its own records.
        PrometheusRule(
            "CpcmonPerformanceLow",
            f"{_FIRING} == 1 {_of_kind(METRIC_LOW)}",
            None,
            f"{place}: estimated {metric}{metric_found[0]}{_threshold(METRIC_THRESHOLD)}",
            f"{where}estimated {metric}{''.join(metric_found)}{texts.records(ONE_DAEMON)}. {_stayed('below', METRIC_THRESHOLD)}{state} {actions[AlertType.ACCURACY]}",
            "accuracy.md",
        ),
        PrometheusRule(
            "CpcmonPerformanceHigh",
            f"{_FIRING} == 1 {_of_kind(METRIC_HIGH)}",
            None,
            f"{place}: estimated {metric}{metric_found[0]}{_threshold(METRIC_THRESHOLD)}",
            f"{where}estimated {metric}{''.join(metric_found)}{texts.records(ONE_DAEMON)}. {_stayed('above', METRIC_THRESHOLD)}{state} {texts.ACTION_HIGH}",
            "accuracy_high.md",
        ),
        # Each replica audits its own partitions.
        PrometheusRule(
            "CpcmonAuditedLow",
            f"{_FIRING} == 1 {_of_kind(AUDITED_LOW)}",
            None,
            audited_title,
            f"{where}{texts.audited(ONE_DAEMON)} {_stayed('below', ONE_DAEMON.threshold)}{state} {texts.ACTION_AUDITED}",
            "accuracy.md",
        ),
        PrometheusRule(
            "CpcmonAuditedHigh",
            f"{_FIRING} == 1 {_of_kind(AUDITED_HIGH)}",
            None,
            audited_title,
            f"{where}{texts.audited(ONE_DAEMON)} {_stayed('above', ONE_DAEMON.threshold)}{state} {texts.ACTION_AUDITED_HIGH}",
            "accuracy_high.md",
        ),
        PrometheusRule(
            "CpcmonDisagreementHigh",
            f"{_FIRING} == 1 {_of_kind(AlertType.DISAGREEMENT)} {_NOT_SHARED}",
            None,
            f"{place}: {texts.disagreement_title(ONE_DAEMON)}",
            f"{where}{texts.disagreement(ONE_DAEMON)}{state} {actions[AlertType.DISAGREEMENT]}",
            "disagreement.md",
        ),
        # Each replica has its own baseline.
        PrometheusRule(
            "CpcmonOutputDrift",
            f"{_FIRING} == 1 {_of_kind(AlertType.OUTPUT_DRIFT)}",
            None,
            f"{place}: {texts.drift_title(ONE_DAEMON)}",
            f"{where}{texts.output_drift(ONE_DAEMON)}{state} {actions[AlertType.OUTPUT_DRIFT]}",
            "output_drift.md",
        ),
        PrometheusRule(
            "CpcmonBaselineGap",
            f"{_FIRING} == 1 {_of_kind(AlertType.BASELINE_GAP)}",
            None,
            f"{place}: {texts.gap_title(ONE_DAEMON)}",
            f"{where}{texts.baseline_gap(ONE_DAEMON)}{state} {actions[AlertType.BASELINE_GAP]}",
            "baseline_gap.md",
        ),
        PrometheusRule(
            "CpcmonSegmentSilent",
            f"({_FIRING} == 1 {silent} {_NOT_SHARED}) or {all_silent} == 1",
            None,
            f"{place}: {texts.SILENT_TITLE}",
            f"{where}no records for longer than configured.{texts.LATEST_RECORD}{texts.SINCE}"
            f" {actions[AlertType.SILENT]}",
            "silent.md",
        ),
        PrometheusRule(
            "CpcmonInputRefused",
            f"{_FIRING} == 1 {_of_kind(AlertType.DEGRADED_INPUT)}",
            None,
            f"{{{{ $labels.model }}}}: {texts.degraded_title(ONE_DAEMON)}",
            f"{{{{ $labels.model }}}}: {texts.degraded_input(ONE_DAEMON)}{texts.SINCE} {actions[AlertType.DEGRADED_INPUT]}",
            "degraded_input.md",
        ),
    ]


def _change(direction: Direction) -> Iterator[PrometheusRule]:
    """Yield the alerts on a change: of a daemon, and of all replicas of a shared model."""
    firing = f"{_FIRING} {_of_kind(AlertType.CHANGE, direction)}"
    one = f"{firing} {_NOT_SHARED}"
    of_shared = f"max by ({WINDOW}, alert, severity) ({firing} and ignoring (segment, alert, severity) {_SHARED})"
    matcher = f'direction="{direction}"'
    itself = f'ALERTS{{alertname="{_MERGED_CHANGE}",alertstate="firing",{matcher}}}'
    together = changed(of_shared, itself, matcher, ", alert, severity")
    where = "{{ $labels.model }}, {{ $labels.segment }}"
    rose = direction is Direction.UP
    action = texts.ACTION_HIGH if rose else texts.ACTIONS[AlertType.CHANGE]
    for name, expr, series, state in (
        (_CHANGE, f"({one}) == 1", ONE_DAEMON, texts.SINCE + texts.HELD),
        (_MERGED_CHANGE, together, ALL_REPLICAS, texts.since_replicas()),
    ):
        yield PrometheusRule(
            name,
            expr,
            None,
            f"{texts.PLACE}: {texts.change_title(series, direction)}",
            f"{where}{series.part}: {texts.change(series, direction)}{state} {action}",
            "change.md",
            labels={"direction": direction},
            templates=SEGMENT_LABELS,
        )


def _accuracy(side: str) -> str:
    """Return the text about an estimate and its threshold, of the estimator that the alert compares."""
    threshold = ONE_DAEMON.threshold
    estimator = if_series(threshold, ", by {{ . | first | label `estimator` }}", (*ONE_DAEMON.window, "alert"))
    found = f"{''.join(_estimate())}{estimator}{texts.records(ONE_DAEMON)}{_field(threshold)}"
    return f"estimated accuracy{found}. {_stayed(side, threshold)}"


def _estimate() -> list[str]:
    return _compared((ONE_DAEMON.ratio, ONE_DAEMON.lower, ONE_DAEMON.upper), "estimator", ONE_DAEMON.threshold)


def _field(threshold: str) -> str:
    """Return the field interval, if the alert compares the estimate that has one."""
    window, alert = ONE_DAEMON.window, (*ONE_DAEMON.window, "alert")
    of_window, of_alert = (",".join(f"{name}=%q" for name in names) for names in (window, alert))
    of_headline = f'and on ({", ".join(window)}) {threshold}{{{of_alert},estimator="{HEADLINE}"}}'
    words = (f", field interval {PERCENT}", f" to {PERCENT} ({texts.FIELD_MEANING})")
    return "".join(
        if_query(f"{one}{{{of_window},{FIELD_LEVEL}}} {of_headline}", text, (*window, *alert))
        for one, text in zip((ONE_DAEMON.field_lower, ONE_DAEMON.field_upper), words, strict=True)
    )


def _metric() -> tuple[str, list[str]]:
    """Return the name of the metric that the alert compares, and the texts about its value and interval."""
    name = if_series(
        METRIC_THRESHOLD,
        "{{ . | first | label `metric` }}{{ with . | first | label `class` }} of {{ . }}{{ end }}",
        (*ONE_DAEMON.window, "alert"),
        otherwise="metric",
    )
    series = [f"{texts.METRIC}{end}_ratio" for end in ("", "_lower", "_upper")]
    return name, _compared(series, "metric, class", METRIC_THRESHOLD)


def _compared(series: Sequence[str], labels: str, threshold: str) -> list[str]:
    """Return the texts about the estimate that an alert compares, and about its interval."""
    window, alert = ONE_DAEMON.window, (*ONE_DAEMON.window, "alert")
    of_window, of_alert = (",".join(f"{name}=%q" for name in names) for names in (window, alert))
    words = ((f" {PERCENT}", texts.UNKNOWN), (f", interval {PERCENT}", ""), (f" to {PERCENT}", ""))
    return [
        if_query(
            f"{one}{{{of_window}}} and on ({labels}) {threshold}{{{of_alert}}}", text, (*window, *alert), otherwise
        )
        for one, (text, otherwise) in zip(series, words, strict=True)
    ]


def _threshold(series: str) -> str:
    return if_series(series, f", threshold {PERCENT}", (*ONE_DAEMON.window, "alert"))


def _stayed(side: str, threshold: str) -> str:
    limit = if_series(threshold, f" {PERCENT}", (*ONE_DAEMON.window, "alert"), otherwise=" its threshold")
    return f"The compared value stayed {side}{limit} for as long as {{{{ $labels.alert }}}} requires."


def _merged_low() -> list[RecordingRule | PrometheusRule]:
    """Return the alert on the merged estimate of all replicas, and the recording rules that it needs.

    `for` of a rule holds for all its series, but each alert has its own. So one rule records since when a merged estimate
    has been too low, and the alert compares that with the duration that the daemon exports. The recorded series ends, with
    a stale marker, at the first evaluation at which the estimate is not too low: then the wait starts again.
    """
    low = f"{_VALUE} < on ({_ESTIMATE}) group_right () {_LIMIT}"
    firing = f'ALERTS{{alertname="{_MERGED_LOW}",alertstate="firing"}}'
    hold = f"max by ({MODEL}, alert) ({bridged('cpcmon_alert_for_seconds')})"
    waiting = f"time() - {_SINCE} < on ({MODEL}, alert) group_left () {hold}"
    # A bridged value confirms nothing: the alert starts to fire only while the merged estimate is present.
    starts = f"({low}) and on ({WINDOW}) {ESTIMATE_RECORDS} unless on ({_ALERT}) ({waiting})"
    continues = f"({low}) and on ({_ALERT}) {firing}"
    # An absent merged estimate, as at night or with all replicas down, is no recovery: a firing alert keeps its state,
    # which the series ALERTS holds.
    down = f"max by ({_ALERT}, severity) ({firing}) and on (job, namespace) {ALL_DOWN}"
    held = f"({_LIMIT} and on ({_ALERT}) {firing} or {down}) unless on ({_ESTIMATE}) {_VALUE}"
    estimate, compared = (*ALL_REPLICAS.window, "estimator"), (*ALL_REPLICAS.window, "estimator", "on")
    value, lower, upper, field_lower, field_upper = (
        if_series(name, text, estimate, matcher=matcher, otherwise=otherwise)
        for name, text, matcher, otherwise in (
            (ALL_REPLICAS.ratio, f" {PERCENT}", "", texts.UNKNOWN),
            (ALL_REPLICAS.lower, f", interval {PERCENT}", "", ""),
            (ALL_REPLICAS.upper, f" to {PERCENT}", "", ""),
            (ALL_REPLICAS.field_lower, f", field interval {PERCENT}", FIELD_LEVEL, ""),
            (ALL_REPLICAS.field_upper, f" to {PERCENT} ({texts.FIELD_MEANING})", FIELD_LEVEL, ""),
        )
    )
    number = if_series(_VALUE, f", {PERCENT},", compared)
    limit = if_series(_LIMIT, f" {PERCENT}", (*compared, "alert"))
    of_alert = ",".join(f"{name}=%q" for name in (*compared, "alert"))
    since = texts.since(f"{_SINCE}{{{of_alert}}}", (*compared, "alert"), "It has been so since")
    wait = if_series(
        "cpcmon_alert_for_seconds",
        " for {{ . | first | value | humanizeDuration }}",
        (*ALL_REPLICAS.target, "model", "alert"),
    )
    return [
        RecordingRule(
            _VALUE,
            " or ".join(
                _labelled(on, f"max by ({WINDOW}, estimator) ({bridged(series)})") for on, series in COMPARED.items()
            ),
        ),
        RecordingRule(_LIMIT, " or ".join(_labelled(on, _limit(on)) for on in COMPARED)),
        RecordingRule(_SINCE, f"{_SINCE} and ({low}) or ({low}) * 0 + time()"),
        PrometheusRule(
            _MERGED_LOW,
            f"{starts} or {continues} or ({held})",
            None,
            f"{texts.PLACE}: {texts.accuracy_title(value, ALL_REPLICAS)}",
            f"{{{{ $labels.model }}}}, {{{{ $labels.segment }}}}, all replicas: estimated accuracy{value}"
            f" by {{{{ $labels.estimator }}}}{lower}{upper}{texts.records(ALL_REPLICAS)}{field_lower}{field_upper}."
            f" {{{{ $labels.alert }}}} compares the {{{{ $labels.on }}}}{number} which stayed below its threshold{limit}{wait}."
            f"{texts.baseline(ALL_REPLICAS)}{since} {texts.ACTIONS[AlertType.ACCURACY]}",
            "accuracy.md",
        ),
    ]


def _labelled(on: On, series: str) -> str:
    return f'label_replace({series}, "on", "{on}", "", "")'


def _limit(on: On) -> str:
    thresholds = f"{bridged(THRESHOLD)} and on ({MODEL}, alert) {_info(LOW, on)} and on ({MODEL}) {_SHARED}"
    return f"max by ({WINDOW}, estimator, alert, severity) ({thresholds})"


def _without_estimate() -> list[PrometheusRule]:
    return [
        invalid_rule(unless=f" unless ignoring (segment) {_SHARED}"),
        warming_rule(unless=f" unless ignoring (segment, state) {_SHARED}"),
        merged_invalid_rule(only=f" and on ({MODEL}) {_SHARED}"),
    ]


def _stale() -> PrometheusRule:
    evaluated = recent("cpcmon_last_evaluation_timestamp_seconds")
    return stale_rule(
        f"time() - {evaluated} > clamp_min(2 * {recent('cpcmon_evaluation_gap_seconds')}, 300)"
        # The counter is exported from the start, also for a model that was never evaluated.
        f" or ({recent('cpcmon_evaluations_total')} unless {evaluated})",
        "two of its periods",
    )


def _failing() -> PrometheusRule:
    failures = (
        "increase(cpcmon_evaluation_failures_total[%s]) > 0",
        "sum without (estimator) (increase(cpcmon_estimator_failures_total[%s])) > 0",
    )
    found = []
    for failed in failures:
        found.append(failed % "15m")
        # The evaluation interval is not known here: half of the evaluations in three hours, or in two days.
        found += [f"({failed % span}) >= increase(cpcmon_evaluations_total[{span}]) / 2" for span in ("3h", "2d")]
    return failing_rule(" or ".join(found))


def _degraded() -> PrometheusRule:
    # Unless the model has an alert of its own for it.
    return degraded_rule(
        f"{recent('cpcmon_input_degraded')} == 1 unless ignoring (alert, kind, on) {_info(AlertType.DEGRADED_INPUT)}"
    )


if __name__ == "__main__":
    for path, text in build().items():
        path.write_text(text, encoding="utf-8")
