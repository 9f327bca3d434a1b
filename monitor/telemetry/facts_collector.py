"""The daemon's facts as series, made anew at each scrape."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitor.telemetry.configured_families import configured_families
from monitor.telemetry.facts import DaemonFacts, DeliveryFacts, HttpFacts
from monitor.telemetry.kafka_families import kafka_families
from monitor.telemetry.pipeline_counters import pipeline_families

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
            yield _counter("cpcmon_heartbeat_sent", "Heartbeats sent.", facts.heartbeat.sent)
            yield _counter("cpcmon_heartbeat_failures", "Heartbeats that failed.", facts.heartbeat.failed)


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
