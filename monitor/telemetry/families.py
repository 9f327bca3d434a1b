"""The daemon's metric families about itself, collected at each scrape."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitor.config.config import Config
from monitor.core.alerts import AlertRule, AlertType, kind_label
from monitor.evaluation.schedule import longest_gap_seconds
from monitor.records.rejections import Reason
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.kafka.events import KafkaEvent
from monitor.sources.kafka.failures import FailureKind
from monitor.sources.kafka.health import PartitionLag
from monitor.telemetry.facts import DaemonFacts, DeliveryFacts, HttpFacts, KafkaFacts


def configured_families(config: Config) -> Iterator[Metric]:
    """Yield the settings of models and alerts that rules need."""
    gap = GaugeMetricFamily(
        "cpcmon_evaluation_gap_seconds", "Longest time between two evaluations of the schedule.", labels=["model"]
    )
    shared = GaugeMetricFamily(
        "cpcmon_model_shared", "1 when several processes may share the records of the model, else 0.", labels=["model"]
    )
    info = GaugeMetricFamily(
        "cpcmon_alert_info",
        "Kind of an alert, and the value that it compares.",
        labels=["model", "alert", "kind", "on"],
    )
    hold = GaugeMetricFamily(
        "cpcmon_alert_for_seconds",
        "Time that the condition of an alert must hold before it fires.",
        labels=["model", "alert"],
    )
    for model in config.models:
        gap.add_metric([model.name], longest_gap_seconds(model.evaluate))
        shared.add_metric([model.name], config.is_shared(model.name))
        for rule in model.alerts:
            info.add_metric([model.name, rule.name, kind_label(rule), _compared(rule)], 1)
            hold.add_metric([model.name, rule.name], rule.for_seconds)
    yield from (gap, shared, info, hold)


def _compared(rule: AlertRule) -> str:
    return str(rule.on) if rule.kind is AlertType.ACCURACY else ""


MAX_PARTITIONS = 100
"""A source with more shows those with the largest lag: it limits the size of the page. Sums are over all."""

_LOST = {"retention": KafkaEvent.RECORDS_LOST, "unreadable": KafkaEvent.OFFSETS_UNREADABLE}


def kafka_families(facts: DaemonFacts) -> Iterator[Metric]:
    """Yield the families of Kafka sources; nothing without one."""
    members = {name: source.kafka for name, source in facts.sources.items() if source.kafka is not None}
    if not members:
        return
    yield from _members(members)
    yield from _partitions(members)
    if facts.counters is not None:
        yield from _counters(members, facts.counters)


def _members(members: Mapping[str, KafkaFacts]) -> Iterator[Metric]:
    assigned = _kafka_gauge("assigned_partitions", "Partitions assigned to this process.")
    unassigned = _kafka_gauge("unassigned_partitions", "Partitions of the topics that are assigned to no process.")
    records = _kafka_gauge(
        "lag_records", "Unread offsets of all assigned partitions, an upper limit of the unread messages."
    )
    seconds = _kafka_gauge("lag_seconds", "Largest lag of the assigned partitions.")
    restoring = _kafka_gauge("restoring_records", "Unread offsets that only rebuild windows from the log.")
    gaps = _kafka_gauge("gap_partitions", "Partitions whose windows lack lost records.")
    restored = CounterMetricFamily(
        "cpcmon_kafka_restore_seconds",
        "Time spent on rebuilding windows from the log since the start, over all partitions.",
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
    records = _kafka_gauge(
        "partition_lag_records", "Unread offsets of a partition, an upper limit of the unread messages.", labels
    )
    seconds = _kafka_gauge(
        "partition_lag_seconds", "Age of the last message read, while there are unread ones.", labels
    )
    for name, member in members.items():
        for shard, lag in _furthest_behind(member.lags):
            topic, _, partition = shard.rpartition("/")
            records.add_metric([name, topic, partition], lag.records)
            seconds.add_metric([name, topic, partition], lag.seconds)
    yield from (records, seconds)


def _furthest_behind(lags: Mapping[str, PartitionLag]) -> list[tuple[str, PartitionLag]]:
    ranked = sorted(lags.items(), key=lambda one: (-one[1].records, -one[1].seconds, one[0]))
    return ranked[:MAX_PARTITIONS]


def _counters(members: Mapping[str, KafkaFacts], counted: Mapping[tuple[str, ...], int]) -> Iterator[Metric]:
    def of(source: str, event: KafkaEvent) -> int:
        return counted.get(("source_events_total", source, event), 0)

    rebalances = _kafka_counter("rebalances", "Rebalances of the group that this process took part in.")
    stalls = _kafka_counter("stalls", "Times that a partition with unread messages made no progress.")
    errors = _kafka_counter("poll_errors", "Errors of the cluster or of the connection to it.", ("source", "type"))
    lost = _kafka_counter(
        "records_lost", "Offsets that could not be read, an upper limit of the lost messages.", ("source", "reason")
    )
    for name in members:
        rebalances.add_metric([name], of(name, KafkaEvent.REBALANCES))
        stalls.add_metric([name], of(name, KafkaEvent.STALLS))
        for kind in FailureKind:
            errors.add_metric([name, kind], of(name, kind.counted))
        for reason, event in _LOST.items():
            lost.add_metric([name, reason], of(name, event))
    yield from (rebalances, stalls, errors, lost)


def _kafka_gauge(name: str, help_: str, labels: tuple[str, ...] = ("source",)) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cpcmon_kafka_{name}", help_, labels=labels)


def _kafka_counter(name: str, help_: str, labels: tuple[str, ...] = ("source",)) -> CounterMetricFamily:
    return CounterMetricFamily(f"cpcmon_kafka_{name}", help_, labels=labels)


_CLOSED: Mapping[str, tuple[str, ...]] = {
    "reason": tuple(Reason),
    "from": ("backup", "empty"),
}
"""Labels with a fixed set of values: each is exported as 0 before its first event."""


@dataclass(frozen=True, slots=True)
class _Counter:
    name: str
    labels: tuple[str, ...]
    help: str


_COUNTERS = (
    _Counter("records_total", ("source", "model"), "Records ingested into windows."),
    _Counter("records_rejected_total", ("source", "reason"), "Records rejected."),
    _Counter(
        "records_normalised_total",
        ("model",),
        "Records whose probabilities did not sum to 1 by a rounding error, and were normalised.",
    ),
    _Counter(
        "records_argmax_mismatch_total", ("model",), "Records whose named class is not that of the largest probability."
    ),
    _Counter("records_future_total", ("model",), "Records with a time in the future, ingested with the current time."),
    _Counter(
        "records_other_version_total", ("model",), "Records of another version of the model, not ingested into windows."
    ),
    _Counter(
        "records_unstored_segment_total",
        ("model",),
        "Records of segments beyond the limit, counted in the segment `all` only.",
    ),
    _Counter("records_late_total", ("model",), "Records older than the window, not ingested."),
    _Counter("records_evicted_total", ("model",), "Records that left the window of the segment `all`."),
    _Counter(
        "source_events_total",
        ("source", "event"),
        "Events of a source: docs/directory.md and docs/kafka.md.",
    ),
    _Counter("state_recovered_total", ("from",), "Starts with a damaged state, which was replaced."),
    _Counter("state_damaged_chunks_total", (), "Damaged batches of records dropped from the state."),
    _Counter("resumed_total", (), "Times that writing the state resumed after a pause."),
)


def pipeline_families(facts: DaemonFacts) -> Iterator[CounterMetricFamily]:
    """Yield the counters of configured models and sources, 0 before the first event."""
    if facts.counters is None:
        return
    for counter in _COUNTERS:
        family = CounterMetricFamily(f"cpcmon_{counter.name}", counter.help, labels=counter.labels)
        known = dict.fromkeys(_known(counter, facts), 0)
        counted = {key[1:]: count for key, count in facts.counters.items() if key[0] == counter.name}
        for labels, count in (known | counted).items():
            if _is_configured(dict(zip(counter.labels, labels, strict=True)), facts):
                family.add_metric(labels, count)
        yield family


def _known(counter: _Counter, facts: DaemonFacts) -> list[tuple[str, ...]]:
    if counter.labels == ("source", "event"):
        return [
            (name, event)
            for name, source in facts.sources.items()
            for event in (DirectoryEvent if source.kafka is None else KafkaEvent)
        ]
    values: Mapping[str, tuple[str, ...]] = {"source": tuple(facts.sources), "model": facts.models, **_CLOSED}
    return [*product(*(values[label] for label in counter.labels))]


def _is_configured(labels: Mapping[str, str], facts: DaemonFacts) -> bool:
    # The state keeps counters of removed models and sources.
    model, source = labels.get("model"), labels.get("source")
    return (model is None or model in facts.models) and (source is None or source in facts.sources)


_CODE_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")


class FactsCollector:
    """Yields the facts as metric families."""

    def __init__(self, facts: Callable[[], DaemonFacts]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        facts = self._facts()
        yield from pipeline_families(facts)
        yield from _daemon(facts)
        if facts.config is not None:
            yield from configured_families(facts.config)
        yield from _sources(facts)
        yield from kafka_families(facts)
        yield from _http(facts.http)
        if facts.webhook is not None:
            yield from _webhook(facts.webhook)
        if facts.heartbeat is not None:
            failed = facts.heartbeat.failed + facts.heartbeat.redirected
            yield _counter("cpcmon_heartbeat_sent", "Heartbeats sent.", facts.heartbeat.sent)
            yield _counter("cpcmon_heartbeat_failures", "Heartbeats that failed.", failed)


def _daemon(facts: DaemonFacts) -> Iterator[Metric]:
    yield _gauge(
        "cpcmon_ready", "1 when all sources are read and all models evaluated at least once, else 0.", facts.ready
    )
    yield _gauge(
        "cpcmon_catching_up",
        "1 when the backlog is so large that estimates would be out of date, else 0.",
        facts.catching_up,
    )
    yield _gauge(
        "cpcmon_paused", "1 when the state cannot be written and no records are ingested, else 0.", facts.paused
    )
    yield _gauge("cpcmon_state_bytes", "Size of the state on disk.", facts.state_bytes)
    yield _gauge("cpcmon_state_backup_timestamp_seconds", "Time of the last backup of the state.", facts.backup_at)
    yield _gauge("cpcmon_last_commit_timestamp_seconds", "Time of the last commit.", facts.last_commit_at)
    info = GaugeMetricFamily("cpcmon_config_info", "The configuration in use.", labels=["digest"])
    info.add_metric([facts.digest], 1)
    yield info


def _sources(facts: DaemonFacts) -> Iterator[Metric]:
    ready = GaugeMetricFamily("cpcmon_source_ready", "1 when the source can be read, else 0.", labels=["source"])
    unread_bytes = GaugeMetricFamily("cpcmon_source_lag_bytes", "Unread bytes.", labels=["source"])
    unread_files = GaugeMetricFamily(
        "cpcmon_source_lag_files", "Files or partitions with unread data.", labels=["source"]
    )
    oldest = GaugeMetricFamily(
        "cpcmon_source_oldest_unread_timestamp_seconds",
        "Time since which data has been unread. Absent when all is read.",
        labels=["source"],
    )
    for name, source in facts.sources.items():
        labels = [name]
        ready.add_metric(labels, source.ready)
        unread_bytes.add_metric(labels, source.lag.bytes)
        unread_files.add_metric(labels, source.lag.files)
        if source.lag.oldest_unread is not None:
            oldest.add_metric(labels, source.lag.oldest_unread)
    yield from (ready, unread_bytes, unread_files, oldest)


def _http(http: HttpFacts) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "cpcmon_http_requests", "Requests answered, by class of status.", labels=["code_class"]
    )
    for code_class, count in (dict.fromkeys(_CODE_CLASSES, 0) | dict(http.requests)).items():
        requests.add_metric([code_class], count)
    yield requests
    yield _gauge("cpcmon_http_connections", "Open connections.", http.connections)
    yield _gauge(
        "cpcmon_web_config_last_reload_successful",
        "1 when the last reload of the web configuration succeeded, else 0.",
        http.config_ok,
    )
    closed = CounterMetricFamily(
        "cpcmon_http_connections_closed", "Connections closed by the server.", labels=["reason"]
    )
    for reason, count in http.closed.items():
        closed.add_metric([reason], count)
    yield closed


def _webhook(webhook: DeliveryFacts) -> Iterator[Metric]:
    yield _counter("cpcmon_webhook_sent", "Alert messages sent.", webhook.sent)
    yield _counter(
        "cpcmon_webhook_failures", "Alert messages rejected by the receiver, or retried for too long.", webhook.failed
    )
    yield _counter("cpcmon_webhook_dropped", "Alert messages dropped from a full queue, or at a stop.", webhook.dropped)
    yield _counter(
        "cpcmon_webhook_redirects",
        "Alert messages answered with a redirect, which is never followed.",
        webhook.redirected,
    )
    yield _gauge("cpcmon_webhook_waiting", "Alert messages in the queue.", webhook.waiting)


def _counter(name: str, help_: str, value: int) -> Metric:
    return CounterMetricFamily(name, help_, value=value)


def _gauge(name: str, help_: str, value: float | None) -> Metric:
    """Return a gauge without labels, and without a sample if the value is None."""
    family = GaugeMetricFamily(name, help_)
    if value is not None:
        family.add_metric([], value)
    return family
