"""The daemon's metrics about itself, collected at each scrape."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitor.config.config import Config
from monitor.core.alerts import AlertRule, AlertType, kind_label
from monitor.evaluation.schedule import longest_wait_seconds
from monitor.records.rejections import Reason
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.kafka.events import KafkaEvent
from monitor.sources.kafka.events import KafkaEvent as CountedByKafka
from monitor.sources.kafka.failures import FailureKind
from monitor.sources.kafka.health import PartitionLag
from monitor.telemetry.facts import DaemonFacts, DeliveryFacts, HttpFacts, KafkaFacts


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


def _compared(rule: AlertRule) -> str:
    return str(rule.on) if rule.kind is AlertType.ACCURACY else ""


MOST_PARTITIONS = 100
"""Of a source with more, those that are furthest behind are shown: it protects the page. The sums are over all."""

_LOST = {"retention": KafkaEvent.RECORDS_LOST, "unreadable": KafkaEvent.OFFSETS_UNREADABLE}


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
    assigned = _kafka_gauge("assigned_partitions", "Partitions that the group gave to this process.")
    unassigned = _kafka_gauge("unassigned_partitions", "Partitions of its topics that the group gave to no process.")
    records = _kafka_gauge("lag_records", "Unread offsets of all its partitions together: at most so many messages.")
    seconds = _kafka_gauge("lag_seconds", "How far behind the partition is that is furthest behind.")
    restoring = _kafka_gauge("restoring_records", "Those of the unread offsets that only rebuild windows from the log.")
    gaps = _kafka_gauge(
        "gap_partitions", "Partitions whose windows hold records from before a loss, and none of the lost."
    )
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
    records = _kafka_gauge("partition_lag_records", "Unread offsets of a partition: at most so many messages.", labels)
    seconds = _kafka_gauge(
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
    def of(source: str, event: KafkaEvent) -> int:
        return counted.get(("source_events_total", source, event), 0)

    rebalances = _kafka_counter(
        "rebalances", "Times that the group shared its partitions anew, as this process saw it."
    )
    stalls = _kafka_counter("stalls", "Times that a partition did not move although more was there.")
    errors = _kafka_counter("poll_errors", "Errors of the cluster or the connection to it.", ("source", "type"))
    lost = _kafka_counter(
        "records_lost", "Offsets that could never be read: at most so many messages.", ("source", "reason")
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
"""Labels whose values are known beforehand, so that each can be shown as 0 before it happens."""


@dataclass(frozen=True, slots=True)
class _Counter:
    name: str
    labels: tuple[str, ...]
    help: str


_COUNTERS = (
    _Counter("records_total", ("source", "model"), "Records taken into windows."),
    _Counter("records_rejected_total", ("source", "reason"), "Records refused."),
    _Counter(
        "records_normalised_total", ("model",), "Records whose probabilities were rounded, and divided by their sum."
    ),
    _Counter(
        "records_argmax_mismatch_total", ("model",), "Records that name another class than their largest probability."
    ),
    _Counter("records_future_total", ("model",), "Records stamped in the future, and taken as of now."),
    _Counter(
        "records_other_version_total", ("model",), "Records of another version of the model, kept out of windows."
    ),
    _Counter(
        "records_unstored_segment_total", ("model",), "Entries in segments past the limit, counted in the whole only."
    ),
    _Counter("records_late_total", ("model",), "Records older than the window reaches, left out."),
    _Counter("records_evicted_total", ("model",), "Records that left the window of the whole."),
    _Counter(
        "source_events_total",
        ("source", "event"),
        "What happened at a source; docs/directory.md and docs/kafka.md explain the events.",
    ),
    _Counter("state_recovered_total", ("from",), "Starts at which the state was damaged and replaced."),
    _Counter("state_damaged_chunks_total", (), "Batches of records dropped from the state because they were damaged."),
    _Counter("resumed_total", (), "Times that the state could be written again after a pause."),
)


def pipeline_families(facts: DaemonFacts) -> Iterator[CounterMetricFamily]:
    """Yield the counters of what is configured now, those of which nothing happened yet as 0."""
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
        # Each sort of source has a list of its own.
        lists = {
            name: DirectoryEvent if source.kafka is None else CountedByKafka for name, source in facts.sources.items()
        }
        return [(name, event) for name, events in lists.items() for event in events]
    values: Mapping[str, tuple[str, ...]] = {"source": tuple(facts.sources), "model": facts.models, **_CLOSED}
    return _combinations([values[label] for label in counter.labels])


def _combinations(values: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [()]
    for column in values:
        rows = [(*row, value) for row in rows for value in column]
    return rows


def _is_configured(labels: Mapping[str, str], facts: DaemonFacts) -> bool:
    # The state remembers counters of models and sources that are gone; nobody expects their series back.
    model, source = labels.get("model"), labels.get("source")
    return (model is None or model in facts.models) and (source is None or source in facts.sources)


_CODE_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")


class FactsCollector:
    """Asks for the facts and yields them as families."""

    def __init__(self, facts: Callable[[], DaemonFacts]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """Yield everything as of now."""
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
    yield _gauge("cpcmon_ready", "1 when everything is read and evaluated at least once, else 0.", facts.ready)
    yield _gauge(
        "cpcmon_catching_up", "1 when so much is unread that estimates would be of the past, else 0.", facts.catching_up
    )
    yield _gauge("cpcmon_paused", "1 when the state cannot be written and nothing is taken in, else 0.", facts.paused)
    yield _gauge("cpcmon_state_bytes", "Size of the state on disk.", facts.state_bytes)
    yield _gauge("cpcmon_state_backup_timestamp_seconds", "When the state was last copied.", facts.backup_at)
    yield _gauge("cpcmon_last_commit_timestamp_seconds", "When something was last committed.", facts.last_commit_at)
    info = GaugeMetricFamily("cpcmon_config_info", "The configuration that is in use.", labels=["digest"])
    info.add_metric([facts.digest], 1)
    yield info


def _sources(facts: DaemonFacts) -> Iterator[Metric]:
    ready = GaugeMetricFamily("cpcmon_source_ready", "1 when the source can be read, else 0.", labels=["source"])
    unread_bytes = GaugeMetricFamily("cpcmon_source_lag_bytes", "Bytes that are unread.", labels=["source"])
    unread_files = GaugeMetricFamily(
        "cpcmon_source_lag_files", "Files or partitions that hold something unread.", labels=["source"]
    )
    oldest = GaugeMetricFamily(
        "cpcmon_source_oldest_unread_timestamp_seconds",
        "Since when something has been unread. Absent when nothing is.",
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
    yield _gauge("cpcmon_http_connections", "Connections that are open.", http.connections)
    yield _gauge(
        "cpcmon_web_config_last_reload_successful",
        "1 when the web configuration is in force as its files stand, else 0: then those of before are.",
        http.config_ok,
    )
    closed = CounterMetricFamily(
        "cpcmon_http_connections_closed", "Connections that the server closed.", labels=["reason"]
    )
    for reason, count in http.closed.items():
        closed.add_metric([reason], count)
    yield closed


def _webhook(webhook: DeliveryFacts) -> Iterator[Metric]:
    yield _counter("cpcmon_webhook_sent", "Messages of alerts sent.", webhook.sent)
    yield _counter("cpcmon_webhook_failures", "Messages given up: refused, or tried for too long.", webhook.failed)
    yield _counter(
        "cpcmon_webhook_dropped", "Messages given up because too many waited, or at a stop.", webhook.dropped
    )
    yield _counter("cpcmon_webhook_redirects", "Messages given up because they were redirected.", webhook.redirected)
    yield _gauge("cpcmon_webhook_waiting", "Messages that wait to be sent.", webhook.waiting)


def _counter(name: str, help_: str, value: int) -> Metric:
    return CounterMetricFamily(name, help_, value=value)


def _gauge(name: str, help_: str, value: float | None) -> Metric:
    """Return a gauge without labels; without a sample when there is no value."""
    family = GaugeMetricFamily(name, help_)
    if value is not None:
        family.add_metric([], value)
    return family
