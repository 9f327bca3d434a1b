"""Alerts on cpcmon itself: when it is down, stuck, or cannot say, no news would look like good news."""

import re
from collections.abc import Iterator, Sequence

from monitor.configuration.config import Config, ModelConfig
from monitor.core.alert_rules import Kind, Severity
from monitor.sinks.labels import label_value, quoted
from monitor.sinks.prometheus_rule import PrometheusRule, duration
from monitor.sinks.replica_recording import ESTIMATE_RECORDS, WINDOW, WINDOW_RECORDS

_MINUTES, _HOURS = 60.0, 3600.0
_LEAST_STALE_SECONDS = 5 * _MINUTES
_FAILING_SECONDS = 15 * _MINUTES
_MODEL, _WINDOW = "{{ $labels.model }}", "{{ $labels.model }}, {{ $labels.segment }}"


def stale_rule(model: ModelConfig, longest_gap_seconds: float) -> PrometheusRule:
    """Return the alert on a model that is no longer evaluated, or never was."""
    name = label_value(model.name)
    series = f"cpcmon_last_evaluation_timestamp_seconds{{model={quoted(name)}}}"
    limit = max(2 * longest_gap_seconds, _LEAST_STALE_SECONDS)
    return PrometheusRule(
        "CpcmonEvaluationStale",
        f"time() - {series} > {limit:g} or absent({series})",
        Severity.CRITICAL,
        "A model is no longer evaluated.",
        f"{_MODEL}: no evaluation for more than {duration(limit)}, or never one. What is shown of it is of the past.",
        "evaluation_stale.md",
        5 * _MINUTES,
        {"model": name},
    )


def failing_rule(model: ModelConfig, longest_gap_seconds: float) -> PrometheusRule:
    """Return the alert on evaluations, or single estimators, that fail."""
    name = label_value(model.name)
    failures = f"cpcmon_evaluation_failures_total{{model={quoted(name)}}}"
    of_estimators = f"cpcmon_estimator_failures_total{{model={quoted(name)}}}"
    lately = duration(_FAILING_SECONDS)
    found = [
        f"increase({failures}[{lately}]) > 0",
        f"sum without (estimator) (increase({of_estimators}[{lately}])) > 0",
    ]
    if 1.5 * longest_gap_seconds > _FAILING_SECONDS:
        # A model that is evaluated once a night would fail unnoticed: most quarters of an hour see no evaluation at all.
        # Where a crontab line evaluates often and then rests, one failure among many is no news for so long.
        span = duration(1.5 * longest_gap_seconds)
        half = f"increase(cpcmon_evaluations_total{{model={quoted(name)}}}[{span}]) / 2"
        found += [
            f"(increase({failures}[{span}]) > 0) >= {half}",
            f"(sum without (estimator) (increase({of_estimators}[{span}])) > 0) >= {half}",
        ]
    return PrometheusRule(
        "CpcmonEvaluationFailing",
        " or ".join(found),
        Severity.WARNING,
        "Evaluations or estimators fail.",
        f"{_MODEL}: evaluations, or single estimators, have failed for a while. The log says why.",
        "evaluation_failing.md",
        _FAILING_SECONDS,
        {"model": name},
    )


def refused_rule(model: ModelConfig) -> Iterator[PrometheusRule]:
    """Yield the alert on refused records of a model, unless it has one of its own."""
    if any(rule.kind is Kind.DEGRADED_INPUT for rule in model.alerts):
        return
    name = label_value(model.name)
    yield PrometheusRule(
        "CpcmonInputDegraded",
        f"cpcmon_input_degraded{{model={quoted(name)}}} == 1",
        Severity.WARNING,
        "Many records of a model are refused or look odd.",
        f"{_MODEL}: so many of the latest records are refused, or look so odd, that its accuracy cannot be said.",
        "degraded_input.md",
        15 * _MINUTES,
        {"model": name},
    )


def unruled_rule(config: Config, job: str) -> PrometheusRule:
    """Return the alert on alerts of the daemon's that this file does not pass on."""
    of_job = f"job=~{quoted(job)}"
    models = "|".join(re.escape(label_value(model.name)) for model in config.models)
    unknown = [f"cpcmon_alert_firing{{{of_job},model!~{quoted(models)}}}"]
    for model in config.models:
        names = "|".join(re.escape(label_value(rule.name)) for rule in model.alerts)
        series = f"model={quoted(label_value(model.name))},alert!~{quoted(names)}"
        unknown.append(f"cpcmon_alert_firing{{{of_job},{series}}}")
    return PrometheusRule(
        "CpcmonRulesOutdated",
        f"count by (job, instance, model, alert) ({' or '.join(unknown)})",
        Severity.WARNING,
        "An alert of cpcmon is not passed on.",
        f"{_MODEL}: {{{{ $labels.alert }}}} is configured, but Prometheus has no rule for it. Run `cpcmon rules` again.",
        "rules_outdated.md",
        15 * _MINUTES,
    )


def down_rule(job: str) -> PrometheusRule:
    """Return the alert on a daemon that Prometheus cannot scrape."""
    up = f"up{{job=~{quoted(job)}}}"
    return PrometheusRule(
        "CpcmonDown",
        f"{up} == 0 or absent({up})",
        Severity.CRITICAL,
        "cpcmon cannot be scraped.",
        "cpcmon{{ with $labels.instance }} at {{ . }}{{ end }} cannot be scraped: nothing is known of any model.",
        "down.md",
        5 * _MINUTES,
    )


def risen(counter: str) -> str:
    """Return what a counter that is kept in the state has risen by within an hour, a break before it included.

    What damages a state often keeps the machine down for longer than the hour, and `increase` knows nothing of before a
    break. Nor does the counter always rise: an empty state counts from 1 again.
    """
    before = f"last_over_time({counter}[1w] offset 1h)"
    return f"increase({counter}[1h]) > 0 or ({counter} > 0 and {counter} != {before})"


WATCHDOG = PrometheusRule(
    "CpcmonWatchdog",
    "vector(1)",
    Severity.INFO,
    "Alerts are delivered.",
    "This alert always fires. Let somebody outside notice when it stops coming.",
    "watchdog.md",
)


def invalid_rules(shared: Sequence[str]) -> Iterator[PrometheusRule]:
    """Yield the alerts on models of which nothing can be said; of those that replicas share, not even together."""
    names = quoted("|".join(re.escape(label_value(name)) for name in shared))
    # The share of one replica may be too small to say anything, and is still a part of the whole.
    alone, comma = (f"model!~{names}", ",") if shared else ("", "")
    yield PrometheusRule(
        "CpcmonEstimateInvalid",
        # The other states have alerts of their own: one fault would be told once more for each segment.
        f"(cpcmon_estimate_valid{{{alone}}} == 0) unless ignoring (state)"
        ' (cpcmon_window_state{state=~"warming|catching_up|version_mismatch|degraded_input"} == 1)',
        Severity.INFO,
        "The accuracy of a model cannot be said.",
        f"{_WINDOW}: nothing can be said"
        "{{ with query (printf `cpcmon_window_state{instance=%q,model=%q,segment=%q} == 1`"
        " $labels.instance $labels.model $labels.segment) }}"
        " ({{ . | first | label `state` }}){{ end }}. Alerts stay as they were.",
        "estimate_invalid.md",
        30 * _MINUTES,
    )
    yield PrometheusRule(
        "CpcmonStillWarming",
        f'cpcmon_window_state{{segment="all",state="warming"{comma}{alone}}} == 1',
        Severity.INFO,
        "A model has never had enough records.",
        f"{_MODEL}: for a day, fewer records than are needed to say anything.",
        "estimate_invalid.md",
        24 * _HOURS,
    )
    if shared:
        yield PrometheusRule(
            "CpcmonMergedInvalid",
            f"{WINDOW_RECORDS}{{model=~{names}}} unless on ({WINDOW}) {ESTIMATE_RECORDS}",
            Severity.INFO,
            "The accuracy of a model that replicas share cannot be said.",
            f"{_WINDOW}: all replicas together hold {{{{ $value }}}} records, too few or too old to say anything, or cannot"
            " speak for them. Alerts stay as they were.",
            "estimate_invalid.md",
            30 * _MINUTES,
        )


FIXED = (
    PrometheusRule(
        # A night or a small site cannot make it so, and it does not pass by itself: more than information.
        "CpcmonVersionMismatch",
        'cpcmon_window_state{segment="all",state="version_mismatch"} == 1',
        Severity.WARNING,
        "Nobody watches a model since it was updated.",
        f"{_MODEL}: most records are of another version than the reference. Its accuracy cannot be said, and no alert on"
        " it can fire, until a reference for the new version is there.",
        "version_mismatch.md",
        30 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonInputOdd",
        # Where they look so odd that nothing is said, another alert tells of it.
        "(cpcmon_input_one_hot == 1 or cpcmon_input_constant == 1) unless cpcmon_input_degraded == 1",
        Severity.WARNING,
        "The outputs of a model do not look like probabilities.",
        f"{_MODEL}: the latest outputs are all ones and zeros, or all the same. No estimate from them deserves trust.",
        "input_odd.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonSegmentsDropped",
        "increase(cpcmon_records_unstored_segment_total[1h]) > 0",
        Severity.WARNING,
        "Some segments of a model are not watched.",
        f"{_MODEL}: there are more segments than the limit; the newest are counted in the whole only.",
        "segments_dropped.md",
    ),
    PrometheusRule(
        "CpcmonSourceNotReady",
        "cpcmon_source_ready == 0",
        Severity.WARNING,
        "A source of records cannot be read.",
        "{{ $labels.source }}: nothing can be read. /-/ready and the log say what it waits for.",
        "source_not_ready.md",
        10 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonCatchingUp",
        "cpcmon_catching_up == 1",
        Severity.WARNING,
        "cpcmon is far behind its sources.",
        "For an hour so much has been unread that nothing is said of any model, and alerts stay as they were.",
        "catching_up.md",
        1 * _HOURS,
    ),
    PrometheusRule(
        "CpcmonStatePaused",
        "cpcmon_paused == 1",
        Severity.CRITICAL,
        "The state of cpcmon cannot be written.",
        "The disk is full or read-only. Nothing is taken in until it can be written again.",
        "state_paused.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonStateRecovered",
        f"sum without (from) ({risen('cpcmon_state_recovered_total')}) or {risen('cpcmon_state_damaged_chunks_total')}",
        Severity.WARNING,
        "The state of cpcmon was damaged.",
        "A backup, an empty state, or the state without its damaged parts is in use. The log says which.",
        "state_recovered.md",
    ),
    PrometheusRule(
        "CpcmonReloadFailed",
        "cpcmon_config_last_reload_successful == 0",
        Severity.WARNING,
        "The configuration could not be reloaded.",
        "The configuration from before is still in use. `cpcmon check-config` says what is wrong with the new one.",
        "reload_failed.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonWebConfigFailed",
        "cpcmon_web_config_last_reload_successful == 0",
        Severity.WARNING,
        "The web configuration of cpcmon cannot be read.",
        "The certificates and passwords from before are still in use, also when they run out or were withdrawn."
        " The log says what is wrong.",
        "web_config.md",
        5 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonWebhookFailing",
        "cpcmon_webhook_waiting > 0 or increase(cpcmon_webhook_failures_total[1h]) > 0"
        " or increase(cpcmon_webhook_dropped_total[1h]) > 0 or increase(cpcmon_webhook_redirects_total[1h]) > 0",
        Severity.WARNING,
        "The webhook of cpcmon does not deliver.",
        "Messages of alerts wait, or were given up. Whoever is told by the webhook alone does not know of them.",
        "webhook.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonTelemetryFailing",
        "cpcmon_telemetry_errors > 0",
        Severity.WARNING,
        "A part of the metrics page of cpcmon is missing.",
        "Series about cpcmon itself are missing, and the alerts on them cannot fire.",
        "telemetry_failing.md",
        5 * _MINUTES,
    ),
)
"""Those that are the same for every configuration."""
