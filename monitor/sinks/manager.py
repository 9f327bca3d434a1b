"""The contract of a sink, and all sinks together: each report goes to every one of them."""

import threading
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from monitor.config.config import Config, Heartbeat, Webhook
from monitor.core.report import ModelReport
from monitor.sinks.heartbeat import HeartbeatSink
from monitor.sinks.prometheus_page import PrometheusSink
from monitor.sinks.webhook import WebhookSink


class Sink(Protocol):
    """Where reports go."""

    def publish(self, report: ModelReport) -> None:
        """Take a report. Called on the threads that evaluate, by one at a time; it must not wait for anybody."""

    def forget(self, model: str) -> None:
        """A model is no longer configured: show nothing of it any more."""

    def close(self) -> None:
        """Let go of everything; what can be delivered within a second or two still is."""


class SinkManager:
    """Where reports go. May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: dict[str, ModelReport] = {}
        self._prometheus = PrometheusSink()
        self._webhook: WebhookSink | None = None
        self._heartbeat: HeartbeatSink | None = None
        self._settings: tuple[Webhook | None, Heartbeat | None] = (None, None)
        self._started = False

    def configured(self, config: Config, told: Iterable[tuple[str, str, str]]) -> None:
        """Take over a configuration; `told` are the alerts that people had been told of before the start."""
        with self._lock:
            for gone in self._reports.keys() - {model.name for model in config.models}:
                del self._reports[gone]
                for sink in self._sinks():
                    sink.forget(gone)
            webhook, heartbeat = self._settings
            if config.webhook != webhook:
                self._replace_webhook(config.webhook, told)
            if config.heartbeat != heartbeat:
                if self._heartbeat is not None:
                    self._heartbeat.close()
                self._heartbeat = None if config.heartbeat is None else HeartbeatSink(config.heartbeat)
            self._settings, self._started = (config.webhook, config.heartbeat), True

    def publish(self, report: ModelReport) -> None:
        """Show a report, and tell whoever wants to be told."""
        with self._lock:
            self._reports[report.model] = report
            for sink in self._sinks():
                sink.publish(report)

    def retract(self, report: ModelReport) -> None:
        """Show that nothing can be said any more; nobody is told that all is well."""
        with self._lock:
            self._reports[report.model] = report
            self._prometheus.publish(report)

    def reports(self) -> Mapping[str, ModelReport]:
        """Return the last report of each model."""
        with self._lock:
            return dict(self._reports)

    def told(self) -> AbstractSet[tuple[str, str, str]] | None:
        """Return the alerts of which somebody was told that they fire, and not yet that they ended; None when nobody is told.

        A message that still waits has told nothing: what it says will have to be said after a restart.
        """
        with self._lock:
            return None if self._webhook is None else self._webhook.firing ^ self._webhook.undelivered()

    def metrics(self) -> bytes:
        """Return the part of the metrics page that comes from reports."""
        return self._prometheus.page()

    @property
    def webhook(self) -> WebhookSink | None:
        """The webhook; None when none is configured."""
        return self._webhook

    @property
    def heartbeat(self) -> HeartbeatSink | None:
        """The heartbeat; None when none is configured."""
        return self._heartbeat

    def close(self) -> None:
        """Deliver what can still be delivered quickly, and let go."""
        with self._lock:
            self._close_calls()
            self._prometheus.close()

    def _replace_webhook(self, config: Webhook | None, told: Iterable[tuple[str, str, str]]) -> None:
        if self._started:
            # Whom nobody told yet, by a webhook that is new or in vain, is told by the one that follows.
            told = set() if self._webhook is None else self._webhook.firing - self._webhook.undelivered()
        if self._webhook is not None:
            self._webhook.close()
        self._webhook = None if config is None else WebhookSink(config, already=told)

    def _sinks(self) -> list[Sink]:
        return [sink for sink in (self._prometheus, self._webhook, self._heartbeat) if sink is not None]

    def _close_calls(self) -> None:
        for sink in (self._webhook, self._heartbeat):
            if sink is not None:
                sink.close()
        self._webhook = self._heartbeat = None
