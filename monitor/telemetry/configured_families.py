"""What is configured, as series: rules that work for any configuration learn from them what they cannot know."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from monitor.configuration.config import Config
from monitor.core.alert_rules import Kind, Rule
from monitor.sinks.alert_words import kind_label
from monitor.sinks.cron_gap import longest_wait_seconds


def configured_families(config: Config) -> Iterator[Metric]:
    """Yield what Prometheus must know of each model and each of its alerts."""
    gap = GaugeMetricFamily(
        "cpcmon_evaluation_gap_seconds", "Longest time that the schedule leaves between evaluations.", labels=["model"]
    )
    shared = GaugeMetricFamily(
        "cpcmon_model_shared", "1 when other processes may read other records of the model, else 0.", labels=["model"]
    )
    info = GaugeMetricFamily("cpcmon_alert_info", "What an alert looks at.", labels=["model", "alert", "kind", "on"])
    hold = GaugeMetricFamily(
        "cpcmon_alert_for_seconds", "How long a condition must hold before the alert fires.", labels=["model", "alert"]
    )
    for model in config.models:
        gap.add_metric([model.name], longest_wait_seconds(model.evaluate))
        shared.add_metric([model.name], config.is_shared(model.name))
        for rule in model.alerts:
            info.add_metric([model.name, rule.name, kind_label(rule), _compared(rule)], 1)
            hold.add_metric([model.name, rule.name], rule.for_seconds)
    yield from (gap, shared, info, hold)


def _compared(rule: Rule) -> str:
    return str(rule.on) if rule.kind is Kind.ACCURACY else ""
