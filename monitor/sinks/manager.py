"""The contract of a sink, and the manager that passes each report to all sinks."""

import threading
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from monitor.config.config import Config, Heartbeat, HttpTarget
from monitor.core.report import Report
from monitor.sinks.http_sender import HttpSender
from monitor.sinks.notifications import HeartbeatSink, Key, MessageQueue, WebhookSink
from monitor.sinks.prometheus_page import MetricsPage, PrometheusSink


class Sink(Protocol):
    """A destination of reports."""

    def publish(self, report: Report) -> None:
        """Take a report. Calls come from evaluation threads, one at a time; it must not block."""

    def forget(self, model: str) -> None:
        """Drop a model that is no longer configured."""

    def close(self) -> None:
        """Release everything, after a second or two for pending deliveries."""


class SinkManager:
    """Passes reports to the sinks of the configuration. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: Mapping[str, Report] = {}
        """Replaced, never changed: readers take no lock."""
        self._prometheus = PrometheusSink()
        self._settings: tuple[HttpTarget | None, Heartbeat | None] = (None, None)
        self._started = False
        self.webhook: WebhookSink | None = None
        self.heartbeat: HeartbeatSink | None = None

    def configured(self, config: Config, notified: Iterable[Key] = (), unsure: Iterable[Key] = ()) -> None:
        """Apply a configuration; `notified` and `unsure` are those of a `WebhookSink` when the daemon starts."""
        with self._lock:
            wanted = {model.name for model in config.models}
            for gone in self._reports.keys() - wanted:
                for sink in self._sinks():
                    sink.forget(gone)
            self._reports = {name: report for name, report in self._reports.items() if name in wanted}
            if config.segment_series is not self._prometheus.segment_series:
                self._prometheus.segment_series = config.segment_series
                for report in self._reports.values():
                    self._prometheus.publish(report)
            webhook, heartbeat = self._settings
            if config.webhook != webhook:
                self._replace_webhook(config.webhook, notified, unsure)
            if self.webhook is not None:
                self.webhook.links = config.links
            if config.heartbeat != heartbeat:
                self._replace_heartbeat(config.heartbeat)
            if self.webhook is not None:
                # Models that were removed while the daemon was stopped never had a report.
                for gone in self.webhook.models() - wanted:
                    self.webhook.forget(gone)
            self._settings, self._started = (config.webhook, config.heartbeat), True

    def publish(self, report: Report) -> None:
        """Pass a report to all sinks."""
        with self._lock:
            self._reports = {**self._reports, report.model: report}
            for sink in self._sinks():
                sink.publish(report)

    def retract(self, report: Report) -> None:
        """Show a report without estimates. It resolves no alert and causes no heartbeat."""
        with self._lock:
            self._reports = {**self._reports, report.model: report}
            self._prometheus.publish(report)

    def reports(self) -> Mapping[str, Report]:
        """Return the last report of each model."""
        return self._reports

    def notified(self) -> AbstractSet[Key] | None:
        """Return the alerts whose start was delivered and whose end was not; None without a webhook.

        A queued message counts as not sent. So the alerts differ from those that fire, and a restart sends it again.
        """
        with self._lock:
            return None if self.webhook is None else self.webhook.firing ^ self.webhook.queue.undelivered()

    def metrics(self) -> MetricsPage:
        """Return the part of the metrics page that shows reports."""
        return self._prometheus.page()

    def close(self) -> None:
        """Close all sinks."""
        with self._lock:
            for sink in self._sinks():
                sink.close()
            self.webhook = self.heartbeat = None

    def _replace_webhook(self, settings: HttpTarget | None, notified: Iterable[Key], unsure: Iterable[Key]) -> None:
        if self._started:
            # Messages that the previous webhook did not deliver are sent by the new one.
            notified, unsure = ((), ()) if self.webhook is None else self.webhook.delivered()
        if self.webhook is not None:
            self.webhook.close()
        self.webhook = (
            None if settings is None else WebhookSink(MessageQueue("webhook", HttpSender(settings)), notified, unsure)
        )

    def _replace_heartbeat(self, settings: Heartbeat | None) -> None:
        if self.heartbeat is not None:
            self.heartbeat.close()
        self.heartbeat = None
        if settings is not None:
            # A late heartbeat would report a past evaluation, so it is never retried.
            queue = MessageQueue("heartbeat", HttpSender(settings.target), retry_seconds=0.0)
            self.heartbeat = HeartbeatSink(queue, settings.every_seconds)

    def _sinks(self) -> list[Sink]:
        return [sink for sink in (self._prometheus, self.webhook, self.heartbeat) if sink is not None]
