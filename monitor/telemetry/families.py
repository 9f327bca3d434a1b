"""The daemon's metric families about itself, and the facts they are collected from at each scrape."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitor.config.config import Config
from monitor.core.alerts import AlertType, kind_label
from monitor.evaluation.crontab import longest_gap_seconds
from monitor.records.rejections import Reason
from monitor.sources.base import ShardStatus, SourceStatus
from monitor.sources.registry import SOURCE_TYPES
from monitor.state.commit_plan import Counters

_NOTHING: Mapping[str, int] = MappingProxyType({})

MAX_PARTITIONS = 100
"""A source with more shows those with the largest lag: it limits the size of the page. Sums are over all."""

_CODE_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_FIXED: Mapping[str, tuple[str, ...]] = {"reason": tuple(Reason), "from": ("backup", "empty")}
"""Labels with a fixed set of values: each is exported as 0 before its first event."""
_OF_FIELDS = ("model", "fields")
"""Labels of a set of segment fields."""
_OF_MODEL = ("model",)
_OF_LABELS = "labels_"
"""How the names of counters of labels begin; only models that take labels have them."""

_HELP: Mapping[str, str] = {
    "records_total": "Records ingested into windows.",
    "records_rejected_total": "Records rejected.",
    "records_normalised_total": "Records whose probabilities were normalised after rounding.",
    "records_argmax_mismatch_total": "Records that name another class than the one decided from their probabilities.",
    "records_future_total": "Records with a time in the future, ingested with the current time.",
    "records_behind_total": "Records with a time more than a day before their arrival.",
    "records_referred_total": "Records that the device referred to a person, not ingested.",
    "records_other_version_total": "Records of another version of the model, not ingested.",
    "records_duplicate_total": "Records with an id that was counted before, not ingested.",
    "records_without_segment_total": "Records that lack a field of a configured segment, counted in other segments only.",
    "records_without_group_total": "Records without the field in `group_by` of a change alert, each counted as evidence.",
    "records_unstored_segment_total": "Records of segments beyond the limit, counted in `all` only.",
    "records_late_total": "Records older than the window, not ingested.",
    "records_evicted_total": "Records that left the window of the segment `all`.",
    "labels_total": "Labels accepted.",
    "labels_repeated_total": "Labels that say what was known, or are older than what was known.",
    "labels_corrected_total": "Labels of another class than the one before.",
    "labels_without_prediction_total": "Labels that had no prediction here when they came. They wait for it.",
    "source_events_total": "Events of a source: docs/directory.md and docs/kafka.md.",
    "state_recovered_total": "Starts with a damaged state, which was replaced.",
    "state_damaged_chunks_total": "Damaged batches of records dropped from the state.",
    "resumed_total": "Times that writing the state resumed after a pause.",
}
"""Of the counters of ingestion."""


@dataclass(frozen=True, slots=True)
class HttpFacts:
    """The web server."""

    connections: int = 0
    """Open connections."""
    requests: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Requests by class of status: `2xx`."""
    closed: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Connections closed by the server, by reason."""
    config_ok: bool = True
    """Whether the last reload of the web configuration succeeded."""


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """Webhook messages or heartbeats by outcome."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0
    redirected: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """Everything that the metrics page reads at a scrape."""

    models: tuple[str, ...]
    sources: Mapping[str, SourceStatus]
    counters: Counters | None
    """None before the state was read.

    Without it no counter is exported: a jump from 0 to the stored value would look like new events.
    """
    ready: bool = False
    catching_up: bool = False
    paused: bool = False
    """Whether the state cannot be written."""
    state_bytes: int = 0
    backup_at: float | None = None
    """Time of the last backup, in Unix seconds."""
    last_commit_at: float | None = None
    digest: str = ""
    """Of the configuration."""
    http: HttpFacts = field(default_factory=HttpFacts)
    webhook: DeliveryFacts | None = None
    """None when none is configured."""
    heartbeat: DeliveryFacts | None = None
    config: Config | None = None


class FactsCollector:
    """Yields the facts as metric families."""

    def __init__(self, facts: Callable[[], DaemonFacts]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        facts = self._facts()
        if facts.counters is not None:
            yield from _ingestion(facts, facts.counters)
        yield from _daemon(facts)
        if facts.config is not None:
            yield from _configured(facts.config)
        yield from _sources(facts)
        members = {name: source.shards for name, source in facts.sources.items() if source.shards is not None}
        if members:
            yield from _kafka_members(members)
            yield from _kafka_partitions(members)
        if facts.counters is not None:
            yield from _source_metrics(facts.sources, facts.counters)
        yield from _http(facts.http)
        if facts.webhook is not None:
            yield from _webhook(facts.webhook)
        if facts.heartbeat is not None:
            failed = facts.heartbeat.failed + facts.heartbeat.redirected
            yield _count("cpcmon_heartbeat_sent", "Heartbeats sent.", facts.heartbeat.sent)
            yield _count("cpcmon_heartbeat_failures", "Heartbeats that failed.", failed)


def _ingestion(facts: DaemonFacts, counters: Counters) -> Iterator[Metric]:
    """Yield the counters of configured models and sources, 0 before the first event."""
    # The state keeps counters of removed models and sources too.
    models, sources = {None, *facts.models}, {None, *facts.sources}
    for name, labels, counts in counters.families():
        family = _counter(f"cpcmon_{name}", _HELP[name], *labels)
        known = dict.fromkeys(
            _known_of_labels(labels, facts) if name.startswith(_OF_LABELS) else _known(labels, facts), 0
        )
        for values, count in (known | counts).items():
            found = dict(zip(labels, values, strict=True))
            if labels == _OF_FIELDS and values not in known:
                continue
            if found.get("model") in models and found.get("source") in sources:
                family.add_metric(values, count)
        if family.samples or not name.startswith(_OF_LABELS):
            yield family


def _known(labels: tuple[str, ...], facts: DaemonFacts) -> list[tuple[str, ...]]:
    if labels == ("source", "event"):
        return [
            (name, event) for name, source in facts.sources.items() for event in SOURCE_TYPES[source.type_name].EVENTS
        ]
    if labels == _OF_FIELDS:
        models = () if facts.config is None else facts.config.models
        return [(model.name, ",".join(fields)) for model in models for fields in model.segmentation.split_by]
    values: Mapping[str, tuple[str, ...]] = {"source": tuple(facts.sources), "model": facts.models, **_FIXED}
    return [*product(*(values[label] for label in labels))]


def _known_of_labels(labels: tuple[str, ...], facts: DaemonFacts) -> list[tuple[str, ...]]:
    """Return the models that take labels, with their sources if a counter has them."""
    if facts.config is None:
        return []
    models = [one.name for one in facts.config.models if one.labels is not None]
    if labels == _OF_MODEL:
        return [(model,) for model in models]
    return [(source.name, model) for source in facts.config.sources for model in models if source.labels(model)]


def _daemon(facts: DaemonFacts) -> Iterator[Metric]:
    ready = "1 when all sources are read and all models evaluated at least once, else 0."
    behind = "1 when the backlog is so large that estimates would be out of date, else 0."
    paused = "1 when the state cannot be written and no records are ingested, else 0."
    yield _value("cpcmon_ready", ready, facts.ready)
    yield _value("cpcmon_catching_up", behind, facts.catching_up)
    yield _value("cpcmon_paused", paused, facts.paused)
    yield _value("cpcmon_state_bytes", "Size of the state on disk.", facts.state_bytes)
    yield _value("cpcmon_state_backup_timestamp_seconds", "Time of the last backup of the state.", facts.backup_at)
    yield _value("cpcmon_last_commit_timestamp_seconds", "Time of the last commit.", facts.last_commit_at)
    info = _gauge("cpcmon_config_info", "The configuration in use.", "digest")
    info.add_metric([facts.digest], 1)
    yield info


def _configured(config: Config) -> Iterator[Metric]:
    """Yield the settings of models and alerts that rules need."""
    addresses = _gauge("cpcmon_links_info", "Addresses that notifications link to.", "runbooks", "dashboard", "page")
    addresses.add_metric([config.links.runbooks or "", config.links.dashboard or "", config.links.page or ""], 1)
    yield addresses
    gap = _gauge("cpcmon_evaluation_gap_seconds", "Longest time between two evaluations of the schedule.", "model")
    shared = _gauge("cpcmon_model_shared", "1 when several processes may share the records, else 0.", "model")
    info = _gauge("cpcmon_alert_info", "Kind of an alert, and the value it compares.", "model", "alert", "kind", "on")
    hold = _gauge("cpcmon_alert_for_seconds", "Time that a condition must hold to fire.", "model", "alert")
    for model in config.models:
        gap.add_metric([model.name], longest_gap_seconds(model.evaluate))
        shared.add_metric([model.name], config.is_shared(model.name))
        for rule in model.alerts:
            compared = {AlertType.ACCURACY: str(rule.on), AlertType.CHANGE: str(rule.direction)}.get(rule.kind, "")
            info.add_metric([model.name, rule.name, kind_label(rule), compared], 1)
            hold.add_metric([model.name, rule.name], rule.for_seconds)
    yield from (gap, shared, info, hold)


def _sources(facts: DaemonFacts) -> Iterator[Metric]:
    since = "Time since which data has been unread. Absent when all is read."
    ready = _gauge("cpcmon_source_ready", "1 when the source can be read, else 0.", "source")
    unread_bytes = _gauge("cpcmon_source_lag_bytes", "Unread bytes.", "source")
    unread_files = _gauge("cpcmon_source_lag_files", "Files or partitions with unread data.", "source")
    oldest = _gauge("cpcmon_source_oldest_unread_timestamp_seconds", since, "source")
    for name, source in facts.sources.items():
        ready.add_metric([name], source.waits_for is None)
        unread_bytes.add_metric([name], source.lag.bytes)
        unread_files.add_metric([name], source.lag.files)
        if source.lag.oldest_unread is not None:
            oldest.add_metric([name], source.lag.oldest_unread)
    yield from (ready, unread_bytes, unread_files, oldest)


def _kafka_members(members: Mapping[str, ShardStatus]) -> Iterator[Metric]:
    unread = "Unread offsets of all assigned partitions, an upper limit of the unread messages."
    none = "Partitions of the topics that are assigned to no process."
    rebuilding = "Time spent on rebuilding windows from the log since the start, over all partitions."
    assigned = _gauge("cpcmon_kafka_assigned_partitions", "Partitions assigned to this process.", "source")
    unassigned = _gauge("cpcmon_kafka_unassigned_partitions", none, "source")
    records = _gauge("cpcmon_kafka_lag_records", unread, "source")
    seconds = _gauge("cpcmon_kafka_lag_seconds", "Largest lag of the assigned partitions.", "source")
    restoring = _gauge("cpcmon_kafka_restoring_records", "Unread offsets that only rebuild windows.", "source")
    gaps = _gauge("cpcmon_kafka_gap_partitions", "Partitions whose windows lack lost records.", "source")
    restored = _counter("cpcmon_kafka_restore_seconds", rebuilding, "source")
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


def _kafka_partitions(members: Mapping[str, ShardStatus]) -> Iterator[Metric]:
    labels = ("source", "topic", "partition")
    unread = "Unread offsets of a partition, an upper limit of the unread messages."
    age = "Age of the last message read, while there are unread ones."
    records = _gauge("cpcmon_kafka_partition_lag_records", unread, *labels)
    seconds = _gauge("cpcmon_kafka_partition_lag_seconds", age, *labels)
    for name, member in members.items():
        ranked = sorted(member.lags.items(), key=lambda one: (-one[1].records, -one[1].seconds, one[0]))
        for shard, lag in ranked[:MAX_PARTITIONS]:
            topic, _, partition = shard.rpartition("/")
            records.add_metric([name, topic, partition], lag.records)
            seconds.add_metric([name, topic, partition], lag.seconds)
    yield from (records, seconds)


def _source_metrics(sources: Mapping[str, SourceStatus], counters: Counters) -> Iterator[Metric]:
    """Yield the metrics that a type of source brings along."""
    for type_ in SOURCE_TYPES.values():
        names = [name for name, source in sources.items() if source.type_name == type_.type_name]
        for metric in type_.METRICS if names else ():
            family = _counter(metric.name, metric.help, "source", *(() if metric.label is None else (metric.label,)))
            for name in names:
                for value, event in metric.events.items():
                    labels = [name] if metric.label is None else [name, value]
                    family.add_metric(labels, counters.source_events[name, event])
            yield family


def _http(http: HttpFacts) -> Iterator[Metric]:
    reloaded = "1 when the last reload of the web configuration succeeded, else 0."
    requests = _counter("cpcmon_http_requests", "Requests answered, by class of status.", "code_class")
    for code_class, count in (dict.fromkeys(_CODE_CLASSES, 0) | dict(http.requests)).items():
        requests.add_metric([code_class], count)
    yield requests
    yield _value("cpcmon_http_connections", "Open connections.", http.connections)
    yield _value("cpcmon_web_config_last_reload_successful", reloaded, http.config_ok)
    closed = _counter("cpcmon_http_connections_closed", "Connections closed by the server.", "reason")
    for reason, count in http.closed.items():
        closed.add_metric([reason], count)
    yield closed


def _webhook(webhook: DeliveryFacts) -> Iterator[Metric]:
    failed = "Alert messages rejected by the receiver, or retried for too long."
    redirected = "Alert messages answered with a redirect, which is never followed."
    yield _count("cpcmon_webhook_sent", "Alert messages sent.", webhook.sent)
    yield _count("cpcmon_webhook_failures", failed, webhook.failed)
    yield _count("cpcmon_webhook_dropped", "Alert messages dropped from a full queue, or at a stop.", webhook.dropped)
    yield _count("cpcmon_webhook_redirects", redirected, webhook.redirected)
    yield _value("cpcmon_webhook_waiting", "Alert messages in the queue.", webhook.waiting)


def _gauge(name: str, help_: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_, labels=labels)


def _counter(name: str, help_: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, help_, labels=labels)


def _count(name: str, help_: str, value: int) -> Metric:
    return CounterMetricFamily(name, help_, value=value)


def _value(name: str, help_: str, value: float | None) -> Metric:
    """Return a gauge without labels, and without a sample if the value is None."""
    family = GaugeMetricFamily(name, help_)
    if value is not None:
        family.add_metric([], value)
    return family
