"""Alerts on cpcmon itself, on its sources, and on models that it cannot evaluate."""

import re
from collections.abc import Iterator

from monitor.config.config import Config, ModelConfig
from monitor.core.alerts import AlertType, Severity
from monitor.core.labels.realised import ENOUGH_CAME
from monitor.core.segments import label_value, quoted
from monitor.rules.descriptions import ONE_DAEMON, PERCENT, PLACE, TIME, degraded_title, if_series
from monitor.rules.replicas import ESTIMATE_RECORDS, WINDOW, WINDOW_RECORDS
from monitor.rules.rule import RECENT, PrometheusRule, duration, recent

_MINUTES, _HOURS = 60.0, 3600.0
_MODEL = "{{ $labels.model }}"
_WINDOW = "{{ $labels.model }}, {{ $labels.segment }}"
_DAEMON = "cpcmon{{ with $labels.instance }} at {{ . }}{{ end }}"
_SOURCE = "{{ $labels.source }}{{ with $labels.instance }} at {{ . }}{{ end }}"
_STALE_SECONDS = 5 * _MINUTES
_FAILING_SECONDS = 15 * _MINUTES

# Rules for any configuration


def down_rule(job: str) -> PrometheusRule:
    """Return the alert on a daemon that Prometheus cannot scrape."""
    up = f"up{{job=~{quoted(job)}}}"
    return PrometheusRule(
        "CpcmonDown",
        # For a target that is gone, such as a pod that cannot be scheduled, keep its last labels: inhibition needs them.
        f"{up} == 0 or absent({up}) or (last_over_time({up}[1h]) and on () absent({up}))",
        Severity.CRITICAL,
        f"{_DAEMON}: cannot be scraped",
        f"{_DAEMON} cannot be scraped. No model is monitored.",
        "down.md",
        5 * _MINUTES,
    )


def risen(counter: str) -> str:
    """Return the condition that a counter kept in the state rose within an hour, or over a break before it.

    A damaged state often comes with hours of downtime, which `increase` does not see. The counter may also fall: an empty
    state counts from 1 again.
    """
    before = f"last_over_time({counter}[1w] offset 1h)"
    return f"increase({counter}[1h]) > 0 or ({recent(counter)} > 0 and {recent(counter)} != {before})"


WATCHDOG = PrometheusRule(
    "CpcmonWatchdog",
    "vector(1)",
    Severity.INFO,
    "Alerts of cpcmon are delivered",
    "This alert always fires. Have an outside system notify you when it stops arriving.",
    "watchdog.md",
)

DAEMON = (
    PrometheusRule(
        "CpcmonVersionMismatch",
        recent('cpcmon_window_state{segment="all",state="version_mismatch"}') + " == 1",
        Severity.WARNING,
        f"{_MODEL}: not monitored, its records have another version than the reference",
        f"{_MODEL}: most records have another version than the reference. There is no accuracy estimate, and no accuracy"
        " alert can fire, until the new version has a reference.",
        "version_mismatch.md",
        30 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonReferenceMissing",
        recent('cpcmon_window_state{segment="all",state="no_reference"}') + " == 1",
        Severity.WARNING,
        f"{_MODEL}: no reference, so no estimate",
        f"{_MODEL}: there is no reference to compare its outputs with. There is no accuracy estimate, and no accuracy alert"
        " can fire, until the configuration names one.",
        "reference_missing.md",
        30 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonInputOdd",
        # Input that is bad enough to suppress estimates has its own alert.
        f"({recent('cpcmon_input_one_hot')} == 1 or {recent('cpcmon_input_constant')} == 1)"
        f" unless {recent('cpcmon_input_degraded')} == 1",
        Severity.WARNING,
        f"{_MODEL}: the outputs do not look like probabilities",
        f"{_MODEL}: recent outputs are all zeros and ones, or all the same. Do not trust estimates from them.",
        "input_odd.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonInputProblem",
        recent("cpcmon_input_problem") + " == 1",
        Severity.WARNING,
        f"{_MODEL}: the records are not as expected, {{{{ $labels.problem }}}}",
        f"{_MODEL}: {{{{ $labels.problem }}}}. That no alert fires is no all-clear. The page of the model, and the log, say what"
        " was expected and found.",
        "input_problem.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonSegmentsDropped",
        "increase(cpcmon_records_unstored_segment_total[1h]) > 0",
        Severity.WARNING,
        f"{_MODEL}: {{{{ $value | printf `%.0f` }}}} records in an hour of segments that are not monitored",
        f"{_MODEL}: there are more segments than `segments.limit` allows. The newest count only in the segment `all`.",
        "segments_dropped.md",
    ),
    PrometheusRule(
        "CpcmonSourceNotReady",
        recent("cpcmon_source_ready") + " == 0",
        Severity.WARNING,
        f"{_SOURCE}: the source cannot be read",
        f"{_SOURCE}: the source cannot be read. See /-/ready and the log for the reason.",
        "source_not_ready.md",
        10 * _MINUTES,
    ),
    PrometheusRule(
        # Directories only: topics have no byte counts, and an alert of their own.
        "CpcmonSourceLagGrowing",
        f"time() - {recent('cpcmon_source_oldest_unread_timestamp_seconds')} > 600"
        " and deriv(cpcmon_source_lag_bytes[15m]) > 0",
        Severity.WARNING,
        f"{_SOURCE}: {{{{ $value | humanizeDuration }}}} behind, and the backlog grows",
        f"{_SOURCE}: the oldest unread data is {{{{ $value | humanizeDuration }}}} old, and the backlog grows."
        " Estimates fall behind.",
        "source_lag.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonCatchingUp",
        recent("cpcmon_catching_up") + " == 1",
        Severity.WARNING,
        f"{_DAEMON}: far behind its sources",
        "The backlog has been too large for an hour. Until it is read, there are no estimates and alerts keep their state.",
        "catching_up.md",
        1 * _HOURS,
    ),
    PrometheusRule(
        "CpcmonStatePaused",
        recent("cpcmon_paused") + " == 1",
        Severity.CRITICAL,
        f"{_DAEMON}: cannot write its state",
        "The disk is full or read-only. cpcmon ingests no records until it can write again.",
        "state_paused.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonStateRecovered",
        f"sum without (from) ({risen('cpcmon_state_recovered_total')}) or {risen('cpcmon_state_damaged_chunks_total')}",
        Severity.WARNING,
        f"{_DAEMON}: the state was damaged",
        "cpcmon runs on a backup, on an empty state, or without the damaged parts. See the log for which.",
        "state_recovered.md",
    ),
    PrometheusRule(
        "CpcmonReloadFailed",
        recent("cpcmon_config_last_reload_successful") + " == 0",
        Severity.WARNING,
        f"{_DAEMON}: the configuration could not be reloaded",
        "The previous configuration is still in use. `cpcmon check-config` reports the errors in the new one.",
        "reload_failed.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonWebConfigFailed",
        recent("cpcmon_web_config_last_reload_successful") + " == 0",
        Severity.WARNING,
        f"{_DAEMON}: the web configuration could not be reloaded",
        "The previous certificates and passwords are still in use, even if they have expired or were revoked."
        " See the log for the reason.",
        "web_config.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonWebhookFailing",
        f"{recent('cpcmon_webhook_waiting')} > 0 or increase(cpcmon_webhook_failures_total[1h]) > 0"
        " or increase(cpcmon_webhook_dropped_total[1h]) > 0 or increase(cpcmon_webhook_redirects_total[1h]) > 0",
        Severity.WARNING,
        f"{_DAEMON}: the webhook does not deliver",
        "Alert messages are queued or were dropped. People who rely on the webhook alone have not received them.",
        "webhook.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonTelemetryFailing",
        recent("cpcmon_telemetry_errors") + " > 0",
        Severity.WARNING,
        f"{_DAEMON}: a part of the metrics is missing",
        "Series about cpcmon itself are missing, and alerts on them cannot fire.",
        "telemetry_failing.md",
        5 * _MINUTES,
    ),
)

_OF_WINDOW = ("instance", "model", "segment")
_LATEST = "cpcmon_track_record_latest"
_REALISED = if_series(f"{_LATEST}_realised_ratio", f", labels say {PERCENT}", _OF_WINDOW)
_ESTIMATED = if_series(f"{_LATEST}_estimated_ratio", f", the estimate said {PERCENT}", _OF_WINDOW)
_CAME = if_series("cpcmon_audit_labels_ratio", PERCENT, _OF_WINDOW, otherwise="few")
_ENOUGH_PICKED = 30
"""Audited records, for an alert on their missing labels: of ten, two may just be late."""

LABELS = (
    PrometheusRule(
        "CpcmonEstimatesWrong",
        recent("cpcmon_estimates_wrong") + " == 1",
        Severity.WARNING,
        f"{PLACE}: the estimates were wrong{_REALISED}{_ESTIMATED}",
        f"{_WINDOW}: the estimates were wrong by more than their intervals{_REALISED}{_ESTIMATED}"
        + if_series(f"{_LATEST}_timestamp_seconds", f", in the latest judged block, until {TIME}", _OF_WINDOW)
        + ". Do not rely on the estimates of this window, or on their silence, until you know why.",
        "estimates_wrong.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonAuditLabelsMissing",
        f"{recent('cpcmon_audit_labels_ratio')} < {ENOUGH_CAME} and {recent('cpcmon_audit_picked_records')} >= {_ENOUGH_PICKED}",
        Severity.WARNING,
        f"{PLACE}: labels came for {_CAME} of the audited records",
        f"{_WINDOW}: labels came for {_CAME}"
        + if_series("cpcmon_audit_picked_records", " of {{ . | first | value | printf `%.0f` }}", _OF_WINDOW)
        + " audited records. If it is the hard cases that are missing, the audited accuracy is too high.",
        "audit_labels.md",
        1 * _HOURS,
    ),
)
"""For configurations with a model that takes labels."""

KAFKA = (
    PrometheusRule(
        "CpcmonKafkaLagGrowing",
        f"{recent('cpcmon_kafka_lag_seconds')} > 60 and deriv(cpcmon_kafka_lag_records[15m]) > 0",
        Severity.WARNING,
        f"{_SOURCE}: {{{{ $value | humanizeDuration }}}} behind, and the lag grows",
        f"{_SOURCE}: {{{{ $value | humanizeDuration }}}} behind, and the lag grows. Estimates fall behind.",
        "kafka_lag.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaRecordsLost",
        risen("cpcmon_kafka_records_lost_total"),
        Severity.WARNING,
        f"{_SOURCE}: records were deleted before they could be read",
        f"{_SOURCE}: retention deleted messages, or a batch was unreadable. Windows lack these records until they have"
        " rolled over.",
        "kafka_records_lost.md",
    ),
    PrometheusRule(
        "CpcmonKafkaStalled",
        f"{recent('cpcmon_kafka_lag_records')} > 0 and ignoring (event)"
        ' increase(cpcmon_source_events_total{event="messages_read"}[15m]) == 0'
        " or increase(cpcmon_kafka_stalls_total[1h]) > 2",
        Severity.WARNING,
        f"{_SOURCE}: partitions with unread messages make no progress",
        f"{_SOURCE}: nothing is read, or only after repeated reconnects.",
        "kafka_stalled.md",
        10 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaNoPartitions",
        recent("cpcmon_kafka_assigned_partitions") + " == 0",
        Severity.WARNING,
        f"{_SOURCE}: no partition is assigned",
        f"{_SOURCE}: no partition is assigned. It is not in the group, or there are more replicas than partitions.",
        "kafka_no_partitions.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaPartitionsUnassigned",
        f"max by (job, namespace, source) ({recent('cpcmon_kafka_unassigned_partitions')}) > 0",
        Severity.WARNING,
        f"{_SOURCE}: no replica reads {{{{ $value }}}} partitions",
        f"{_SOURCE}: {{{{ $value }}}} partitions are assigned to no member of the group. Estimates lack their records.",
        "kafka_unassigned.md",
        5 * _MINUTES,
    ),
)
"""For configurations with a source of type `kafka`."""

# Rules on windows without an estimate. `matchers`, `unless` and `only` select models.

_OWN_ALERTS = 'cpcmon_window_state{state=~"warming|catching_up|version_mismatch|no_reference|degraded_input"}'
"""States with alerts of their own. This alert would repeat them for each segment."""


_STATE = if_series("cpcmon_window_state", " ({{ . | first | label `state` }})", _OF_WINDOW, condition=" == 1")


def invalid_rule(matchers: str = "", unless: str = "") -> PrometheusRule:
    """Return the alert on windows without an estimate."""
    return PrometheusRule(
        "CpcmonEstimateInvalid",
        f"({recent(f'cpcmon_estimate_valid{{{matchers}}}')} == 0) unless ignoring (state)"
        f" ({recent(_OWN_ALERTS)} == 1){unless}",
        Severity.INFO,
        f"{PLACE}: no accuracy estimate{_STATE}",
        f"{_WINDOW}: no accuracy estimate{_STATE}. Alerts keep their state.",
        "estimate_invalid.md",
        30 * _MINUTES,
    )


def warming_rule(matchers: str = "", unless: str = "") -> PrometheusRule:
    """Return the alert on models that never had enough records."""
    all_of = ",".join(['segment="all",state="warming"', *([matchers] if matchers else [])])
    return PrometheusRule(
        "CpcmonStillWarming",
        f"{recent(f'cpcmon_window_state{{{all_of}}}')} == 1{unless}",
        Severity.INFO,
        f"{_MODEL}: fewer records than `minimum_records` for a day",
        "{{ $labels.model }}: for a day, fewer records than `minimum_records`.",
        "estimate_invalid.md",
        24 * _HOURS,
    )


def merged_invalid_rule(matchers: str = "", only: str = "") -> PrometheusRule:
    """Return the alert on windows for which all replicas together have no estimate."""
    return PrometheusRule(
        "CpcmonMergedInvalid",
        f"{recent(f'{WINDOW_RECORDS}{{{matchers}}}')} unless on ({WINDOW}) {recent(ESTIMATE_RECORDS)}{only}",
        Severity.INFO,
        f"{PLACE}: no accuracy estimate, {{{{ $value }}}} records in all replicas",
        f"{_WINDOW}: all replicas together hold {{{{ $value }}}} records, which are too few, too old, or not usable."
        " Alerts keep their state.",
        "estimate_invalid.md",
        30 * _MINUTES,
    )


# Rules on the evaluation of a model. The texts do not depend on a configuration, the expressions do.


def stale_rule(expr: str, limit: str, labels: dict[str, str] | None = None) -> PrometheusRule:
    """Return the alert on a model that is no longer evaluated, or never was."""
    return PrometheusRule(
        "CpcmonEvaluationStale",
        expr,
        Severity.CRITICAL,
        f"{_MODEL}: no evaluation for {limit}",
        f"{_MODEL}: no evaluation for {limit}, or none at all. Its series and pages are out of date.",
        "evaluation_stale.md",
        5 * _MINUTES,
        labels or {},
    )


def failing_rule(expr: str, labels: dict[str, str] | None = None) -> PrometheusRule:
    """Return the alert on evaluations, or single estimators, that fail."""
    return PrometheusRule(
        "CpcmonEvaluationFailing",
        expr,
        Severity.WARNING,
        f"{_MODEL}: evaluations or estimators fail",
        f"{_MODEL}: evaluations or single estimators keep failing. See the log for the reason.",
        "evaluation_failing.md",
        _FAILING_SECONDS,
        labels or {},
    )


def degraded_rule(expr: str, labels: dict[str, str] | None = None) -> PrometheusRule:
    """Return the alert on rejected and odd records of a model without an alert of type `degraded_input`."""
    return PrometheusRule(
        "CpcmonInputDegraded",
        expr,
        Severity.WARNING,
        f"{_MODEL}: {degraded_title(ONE_DAEMON)}",
        f"{_MODEL}: too many recent records are rejected or look wrong. No accuracy is reported.",
        "degraded_input.md",
        15 * _MINUTES,
        labels or {},
    )


def evaluation_rules(model: ModelConfig, longest_gap_seconds: float, only: str = "") -> Iterator[PrometheusRule]:
    """Yield the rules on the evaluation of a configured model."""
    name = label_value(model.name)
    labels = {"model": name}
    of_model = f"{{{only}model={quoted(name)}}}"
    evaluated = f"cpcmon_last_evaluation_timestamp_seconds{of_model}"
    limit = max(2 * longest_gap_seconds, _STALE_SECONDS)
    stale = f"time() - {recent(evaluated)} > {limit:g} or absent_over_time({evaluated}[{RECENT}])"
    yield stale_rule(stale, f"more than {duration(limit)}", labels)
    yield failing_rule(_failing(of_model, longest_gap_seconds), labels)
    if not any(rule.kind is AlertType.DEGRADED_INPUT for rule in model.alerts):
        yield degraded_rule(f"{recent(f'cpcmon_input_degraded{of_model}')} == 1", labels)


def _failing(of_model: str, longest_gap_seconds: float) -> str:
    def failures(span: str) -> tuple[str, str]:
        return (
            f"increase(cpcmon_evaluation_failures_total{of_model}[{span}]) > 0",
            f"sum without (estimator) (increase(cpcmon_estimator_failures_total{of_model}[{span}])) > 0",
        )

    found = [*failures(duration(_FAILING_SECONDS))]
    if 1.5 * longest_gap_seconds > _FAILING_SECONDS:
        # A model that is evaluated once a night has no evaluation in most quarters of an hour. Where a crontab line
        # evaluates often and then pauses, one failure among many must not fire for as long as the pause.
        span = duration(1.5 * longest_gap_seconds)
        half = f"increase(cpcmon_evaluations_total{of_model}[{span}]) / 2"
        found += [f"({one}) >= {half}" for one in failures(span)]
    return " or ".join(found)


def outdated_rule(config: Config, job: str) -> PrometheusRule:
    """Return the alert on alerts of the daemon for which the file has no rule."""
    of_job = f"job=~{quoted(job)}"
    models = "|".join(re.escape(label_value(model.name)) for model in config.models)
    unknown = [f"cpcmon_alert_firing{{{of_job},model!~{quoted(models)}}}"]
    for model in config.models:
        names = "|".join(re.escape(label_value(rule.name)) for rule in model.alerts)
        series = f"model={quoted(label_value(model.name))},alert!~{quoted(names)}"
        unknown.append(f"cpcmon_alert_firing{{{of_job},{series}}}")
    return PrometheusRule(
        "CpcmonRulesOutdated",
        f"count by (job, instance, model, alert) ({' or '.join(map(recent, unknown))})",
        Severity.WARNING,
        f"{_MODEL}: Prometheus has no rule for {{{{ $labels.alert }}}}",
        f"{_MODEL}: {{{{ $labels.alert }}}} is configured, but Prometheus has no rule for it. Run `cpcmon rules` again.",
        "rules_outdated.md",
        15 * _MINUTES,
    )
