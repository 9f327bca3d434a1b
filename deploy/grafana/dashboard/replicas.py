"""Row 8, collapsed: Kafka and replicas. Empty without a source of type kafka."""

from collections.abc import Iterator

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q

TITLE = "Kafka and replicas (only with a source of type kafka)"


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield _shares()
    yield p.panel(
        p.lines().min(0),
        "Partitions of each replica",
        "Partitions assigned to each process, and to none. A process that stays at 0 is one too many for the partitions.",
        p.over_time("partitions", q.series("cpcmon_kafka_assigned_partitions"), "{{instance}}: {{source}}"),
        p.over_time(
            "unassigned", f"max by (source) ({q.series('cpcmon_kafka_unassigned_partitions')})", "no process: {{source}}"
        ),
        unit="none", span=12, runbook="kafka_no_partitions",
    )  # fmt: skip
    yield p.panel(
        p.lines().min(0),
        "Lag in time",
        "The largest lag of the partitions of each replica.",
        p.over_time("seconds", q.series("cpcmon_kafka_lag_seconds"), "{{instance}}: {{source}}"),
        unit="s", span=12, runbook="kafka_lag",
    )  # fmt: skip
    yield p.panel(
        p.lines().min(0),
        "Lag in messages",
        "Unread offsets of each partition, an upper limit of the unread messages; of many partitions, those with the largest lag.",
        p.over_time("messages", q.series("cpcmon_kafka_partition_lag_records"), "{{topic}}/{{partition}}"),
        unit="none", span=12, runbook="kafka_lag",
    )  # fmt: skip
    yield p.panel(
        p.lines().min(0).no_value("None in this time"),
        "Rebalances, stalls and errors",
        "Rebalances of the group, partitions without progress, and errors of the cluster or of the connection to it.",
        p.over_time("rebalances", q.risen("cpcmon_kafka_rebalances_total", "source"), "{{source}}: rebalances"),
        p.over_time("stalls", q.risen("cpcmon_kafka_stalls_total", "source"), "{{source}}: stalls"),
        p.over_time("errors", q.risen("cpcmon_kafka_poll_errors_total", "source, type"), "{{source}}: {{type}}"),
        unit="none", span=12, runbook="kafka_stalled",
    )  # fmt: skip
    yield p.panel(
        p.lines().min(0).no_value("None in this time"),
        "Messages lost",
        "Messages that were deleted before they were read, or were unreadable. Windows lack them.",
        p.over_time("lost", q.risen("cpcmon_kafka_records_lost_total", "source, reason"), "{{source}}: {{reason}}"),
        unit="none", span=12, runbook="kafka_records_lost",
    )  # fmt: skip


def _shares() -> Builder[dashboard.Panel]:
    chosen = (q.MODEL, q.SEGMENT, q.ESTIMATOR)
    total, count = q.series("cpcmon_estimate_summed", *chosen), q.series("cpcmon_estimate_records", *chosen)
    merged = f"cpcmon:estimated_accuracy_ratio{{{','.join((q.JOB, *chosen))}}}"
    found = p.panel(
        p.lines(),
        "Each replica, and all together: $model, $segment",
        "The estimate of each replica for its own records, and that of all together. Rely on the latter only: the records of"
        " one replica may be few, or of one group of patients.",
        p.over_time("share", f"clamp({total} / {count}, 0, 1)", "{{instance}}"),
        p.over_time("together", f"max by (model) ({merged})", "all together"),
        unit=p.ACCURACY_UNIT, span=12, runbook="accuracy",
    )  # fmt: skip
    return found.override_by_query("together", [p.colour(p.BLUE), p.is_("custom.lineWidth", 3)])
