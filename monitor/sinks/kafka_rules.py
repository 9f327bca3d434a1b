"""Alerts on members of consumer groups: behind, stuck, out of the group, or too late for records that are gone."""

from monitor.core.alert_rules import Severity
from monitor.sinks.fixed_rules import risen
from monitor.sinks.prometheus_rule import PrometheusRule, lately

_MINUTES = 60.0
_SOURCE = "{{ $labels.source }}{{ with $labels.instance }} at {{ . }}{{ end }}"

KAFKA = (
    PrometheusRule(
        "CpcmonKafkaLagGrowing",
        f"{lately('cpcmon_kafka_lag_seconds')} > 60 and deriv(cpcmon_kafka_lag_records[15m]) > 0",
        Severity.WARNING,
        "More is written to a topic than is read.",
        f"{_SOURCE}: {{{{ $value | humanizeDuration }}}} behind, and further every minute. Estimates will soon be of the"
        " past.",
        "kafka_lag.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaRecordsLost",
        risen("cpcmon_kafka_records_lost_total"),
        Severity.WARNING,
        "Records were gone before they could be read.",
        f"{_SOURCE}: retention deleted messages, or a batch could not be read. Windows lack them until they have rolled"
        " over.",
        "kafka_records_lost.md",
    ),
    PrometheusRule(
        "CpcmonKafkaStalled",
        f"{lately('cpcmon_kafka_lag_records')} > 0 and ignoring (event)"
        ' increase(cpcmon_source_events_total{event="messages_read"}[15m]) == 0'
        " or increase(cpcmon_kafka_stalls_total[1h]) > 2",
        Severity.WARNING,
        "Partitions do not move although there is more to read.",
        f"{_SOURCE}: nothing is read, or only after the connection was made anew again and again.",
        "kafka_stalled.md",
        10 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaNoPartitions",
        lately("cpcmon_kafka_assigned_partitions") + " == 0",
        Severity.WARNING,
        "A replica reads nothing.",
        f"{_SOURCE}: has no partition. It is not in the group, or there are more replicas than partitions.",
        "kafka_no_partitions.md",
        15 * _MINUTES,
    ),
    PrometheusRule(
        "CpcmonKafkaPartitionsUnassigned",
        f"max by (job, namespace, source) ({lately('cpcmon_kafka_unassigned_partitions')}) > 0",
        Severity.WARNING,
        "Partitions are read by no replica.",
        f"{_SOURCE}: {{{{ $value }}}} partitions are assigned to no member of the group. Estimates lack their records.",
        "kafka_unassigned.md",
        5 * _MINUTES,
    ),
)
"""For configurations with a source of type `kafka`."""
