"""What is said of members of consumer groups: how far behind they are, what they own, what was lost."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitor.sources.kafka_counted import Counted
from monitor.sources.kafka_lag import PartitionLag
from monitor.sources.kafka_trouble import Kind
from monitor.telemetry.facts import DaemonFacts, KafkaFacts

MOST_PARTITIONS = 100
"""Of a source with more, those that are furthest behind are shown: it protects the page. The sums are over all."""

_LOST = {"retention": Counted.RECORDS_LOST, "unreadable": Counted.OFFSETS_UNREADABLE}


def kafka_families(facts: DaemonFacts) -> Iterator[Metric]:
    """Yield everything as of now; nothing where no source is of this type."""
    members = {name: source.kafka for name, source in facts.sources.items() if source.kafka is not None}
    if not members:
        return
    yield from _standing(members)
    yield from _partitions(members)
    if facts.counters is not None:
        yield from _counters(members, facts.counters)


def _standing(members: Mapping[str, KafkaFacts]) -> Iterator[Metric]:
    assigned = _gauge("assigned_partitions", "Partitions that the group gave to this process.")
    unassigned = _gauge("unassigned_partitions", "Partitions of its topics that the group gave to no process.")
    records = _gauge("lag_records", "Unread offsets of all its partitions together: at most so many messages.")
    seconds = _gauge("lag_seconds", "How far behind the partition is that is furthest behind.")
    restoring = _gauge("restoring_records", "Those of the unread offsets that only rebuild windows from the log.")
    gaps = _gauge("gap_partitions", "Partitions whose windows hold records from before a loss, and none of the lost.")
    restored = CounterMetricFamily(
        "cpcmon_kafka_restore_seconds",
        "For how long windows have been rebuilt from the log since the start, all partitions together.",
        labels=["source"],
    )
    for name, member in members.items():
        lags = member.lags.values()
        assigned.add_metric([name], member.assigned)
        if member.unassigned is not None:
            unassigned.add_metric([name], member.unassigned)
        records.add_metric([name], sum(lag.records for lag in lags))
        seconds.add_metric([name], max((lag.seconds for lag in lags), default=0.0))
        restoring.add_metric([name], sum(lag.restoring for lag in lags))
        gaps.add_metric([name], member.with_gap)
        restored.add_metric([name], member.restore_seconds)
    yield from (assigned, unassigned, records, seconds, restoring, gaps, restored)


def _partitions(members: Mapping[str, KafkaFacts]) -> Iterator[Metric]:
    labels = ("source", "topic", "partition")
    records = _gauge("partition_lag_records", "Unread offsets of a partition: at most so many messages.", labels)
    seconds = _gauge(
        "partition_lag_seconds", "How old the newest message is that was read, while there is more.", labels
    )
    for name, member in members.items():
        for shard, lag in _furthest_behind(member.lags):
            topic, _, partition = shard.rpartition("/")
            records.add_metric([name, topic, partition], lag.records)
            seconds.add_metric([name, topic, partition], lag.seconds)
    yield from (records, seconds)


def _furthest_behind(lags: Mapping[str, PartitionLag]) -> list[tuple[str, PartitionLag]]:
    ranked = sorted(lags.items(), key=lambda one: (-one[1].records, -one[1].seconds, one[0]))
    return ranked[:MOST_PARTITIONS]


def _counters(members: Mapping[str, KafkaFacts], counted: Mapping[tuple[str, ...], int]) -> Iterator[Metric]:
    def of(source: str, event: Counted) -> int:
        return counted.get(("source_events_total", source, event), 0)

    rebalances = _counter("rebalances", "Times that the group shared its partitions anew, as this process saw it.")
    stalls = _counter("stalls", "Times that a partition did not move although more was there.")
    errors = _counter("poll_errors", "Errors of the cluster or the connection to it.", ("source", "type"))
    lost = _counter("records_lost", "Offsets that could never be read: at most so many messages.", ("source", "reason"))
    for name in members:
        rebalances.add_metric([name], of(name, Counted.REBALANCES))
        stalls.add_metric([name], of(name, Counted.STALLS))
        for kind in Kind:
            errors.add_metric([name, kind], of(name, kind.counted))
        for reason, event in _LOST.items():
            lost.add_metric([name, reason], of(name, event))
    yield from (rebalances, stalls, errors, lost)


def _gauge(name: str, help_: str, labels: tuple[str, ...] = ("source",)) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cpcmon_kafka_{name}", help_, labels=labels)


def _counter(name: str, help_: str, labels: tuple[str, ...] = ("source",)) -> CounterMetricFamily:
    return CounterMetricFamily(f"cpcmon_kafka_{name}", help_, labels=labels)
