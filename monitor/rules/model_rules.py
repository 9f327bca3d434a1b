"""Alerts on windows without an estimate, and on evaluations that fail or are late."""

import re
from collections.abc import Iterator

from monitor.config.config import Config, ModelConfig
from monitor.core.alerts import AlertType, Severity
from monitor.core.label_values import label_value, quoted
from monitor.rules.replicas import ESTIMATE_RECORDS, WINDOW, WINDOW_RECORDS
from monitor.rules.rule import LATELY, PrometheusRule, duration, lately

_HALF_HOUR, _DAY = 1800.0, 86_400.0
_WINDOW = "{{ $labels.model }}, {{ $labels.segment }}"
_TOLD_ELSEWHERE = 'cpcmon_window_state{state=~"warming|catching_up|version_mismatch|no_reference|degraded_input"}'
"""States that have alerts of their own: one fault would be told once more for each segment."""


def invalid_rule(matchers: str = "", unless: str = "") -> PrometheusRule:
    """Return the alert on windows that cannot be judged; `unless` leaves out some more."""
    return PrometheusRule(
        "CpcmonEstimateInvalid",
        f"({lately(f'cpcmon_estimate_valid{{{matchers}}}')} == 0) unless ignoring (state)"
        f" ({lately(_TOLD_ELSEWHERE)} == 1){unless}",
        Severity.INFO,
        "The accuracy of a model cannot be said.",
        f"{_WINDOW}: nothing can be said"
        "{{ with query (printf `cpcmon_window_state{instance=%q,model=%q,segment=%q} == 1`"
        " $labels.instance $labels.model $labels.segment) }}"
        " ({{ . | first | label `state` }}){{ end }}. Alerts stay as they were.",
        "estimate_invalid.md",
        _HALF_HOUR,
    )


def warming_rule(matchers: str = "", unless: str = "") -> PrometheusRule:
    """Return the alert on models that never had enough records."""
    all_of = ",".join(['segment="all",state="warming"', *([matchers] if matchers else [])])
    return PrometheusRule(
        "CpcmonStillWarming",
        f"{lately(f'cpcmon_window_state{{{all_of}}}')} == 1{unless}",
        Severity.INFO,
        "A model has never had enough records.",
        "{{ $labels.model }}: for a day, fewer records than are needed to say anything.",
        "estimate_invalid.md",
        _DAY,
    )


def merged_invalid_rule(matchers: str = "", only: str = "") -> PrometheusRule:
    """Return the alert on windows that all replicas together cannot judge."""
    return PrometheusRule(
        "CpcmonMergedInvalid",
        f"{lately(f'{WINDOW_RECORDS}{{{matchers}}}')} unless on ({WINDOW}) {lately(ESTIMATE_RECORDS)}{only}",
        Severity.INFO,
        "The accuracy of a model that replicas share cannot be said.",
        f"{_WINDOW}: all replicas together hold {{{{ $value }}}} records, too few or too old to say anything, or cannot"
        " speak for them. Alerts stay as they were.",
        "estimate_invalid.md",
        _HALF_HOUR,
    )


_MINUTES = 60.0
_LEAST_STALE_SECONDS = 5 * _MINUTES
_FAILING_SECONDS = 15 * _MINUTES
_MODEL = "{{ $labels.model }}"


def stale_rule(model: ModelConfig, longest_gap_seconds: float, only: str = "") -> PrometheusRule:
    """Return the alert on a model that is no longer evaluated, or never was."""
    name = label_value(model.name)
    series = f"cpcmon_last_evaluation_timestamp_seconds{{{only}model={quoted(name)}}}"
    limit = max(2 * longest_gap_seconds, _LEAST_STALE_SECONDS)
    return PrometheusRule(
        "CpcmonEvaluationStale",
        f"time() - {lately(series)} > {limit:g} or absent_over_time({series}[{LATELY}])",
        Severity.CRITICAL,
        "A model is no longer evaluated.",
        f"{_MODEL}: no evaluation for more than {duration(limit)}, or never one. What is shown of it is of the past.",
        "evaluation_stale.md",
        5 * _MINUTES,
        {"model": name},
    )


def failing_rule(model: ModelConfig, longest_gap_seconds: float, only: str = "") -> PrometheusRule:
    """Return the alert on evaluations, or single estimators, that fail."""
    name = label_value(model.name)
    failures = f"cpcmon_evaluation_failures_total{{{only}model={quoted(name)}}}"
    of_estimators = f"cpcmon_estimator_failures_total{{{only}model={quoted(name)}}}"
    span = duration(_FAILING_SECONDS)
    found = [
        f"increase({failures}[{span}]) > 0",
        f"sum without (estimator) (increase({of_estimators}[{span}])) > 0",
    ]
    if 1.5 * longest_gap_seconds > _FAILING_SECONDS:
        # A model that is evaluated once a night would fail unnoticed: most quarters of an hour see no evaluation at all.
        # Where a crontab line evaluates often and then rests, one failure among many is no news for so long.
        span = duration(1.5 * longest_gap_seconds)
        half = f"increase(cpcmon_evaluations_total{{{only}model={quoted(name)}}}[{span}]) / 2"
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


def refused_rule(model: ModelConfig, only: str = "") -> Iterator[PrometheusRule]:
    """Yield the alert on refused records of a model, unless it has one of its own."""
    if any(rule.kind is AlertType.DEGRADED_INPUT for rule in model.alerts):
        return
    name = label_value(model.name)
    yield PrometheusRule(
        "CpcmonInputDegraded",
        f"{lately(f'cpcmon_input_degraded{{{only}model={quoted(name)}}}')} == 1",
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
        f"count by (job, instance, model, alert) ({' or '.join(map(lately, unknown))})",
        Severity.WARNING,
        "An alert of cpcmon is not passed on.",
        f"{_MODEL}: {{{{ $labels.alert }}}} is configured, but Prometheus has no rule for it. Run `cpcmon rules` again.",
        "rules_outdated.md",
        15 * _MINUTES,
    )
