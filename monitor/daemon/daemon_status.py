"""The status of the daemon for pages, metrics and systemd. Read on the web server's threads."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version

from monitor.config.config import Config, Every
from monitor.daemon.build import References
from monitor.daemon.clock import CONFIRMED_SECONDS, Clock
from monitor.daemon.runner import Runner
from monitor.daemon.watchdog import Watchdog
from monitor.evaluation.alert_history import AlertHistory
from monitor.sinks.manager import SinkManager
from monitor.sinks.notifications import HeartbeatSink, WebhookSink
from monitor.state.evaluation_history import History
from monitor.state.store import State
from monitor.telemetry import DaemonFacts, DeliveryFacts, HttpFacts
from monitor.web.api import status_document
from monitor.web.site import Health, Rejects, Site, SourceView


@dataclass(slots=True)
class DaemonStatus:
    """Set by the daemon's thread, one attribute at a time, and read by others."""

    config: Config
    clock: Clock = field(default_factory=Clock)
    """One for the whole process: it remembers clock jumps across reloads."""
    sinks: SinkManager = field(default_factory=SinkManager)
    watchdog: Watchdog = field(default_factory=Watchdog)
    busy: str | None = "starting"
    """Why it is not ready: starting, reloading or stopping."""
    history: History = field(default_factory=History)
    alert_histories: Mapping[str, AlertHistory] = field(default_factory=dict)
    """By model."""
    runner: Runner | None = None
    state: State | None = None
    references: References = field(default_factory=dict)
    """By model; None for a model without one."""

    def unhealthy(self) -> list[str]:
        """Return the problems that need a restart. Takes no lock that a stuck loop may hold."""
        stuck = self.watchdog.stuck(self.clock().running)
        return [f"{loop} has made no progress for {seconds:.0f} seconds" for loop, seconds in stuck.items()]

    def health(self) -> Health:
        """Return the health, in sentences for people."""
        at, runner = self.clock(), self.runner
        unhealthy = self.unhealthy()
        notices = []
        if at.ahead:
            which, minutes = "ahead of" if at.ahead > 0.0 else "behind", CONFIRMED_SECONDS / 60.0
            message = (
                f"clock jumped: the system clock is {abs(at.ahead):,.0f} seconds {which} the time that cpcmon uses"
            )
            notices = [f"{message}; correct it, or cpcmon follows it after {minutes:.0f} minutes"]
        if self.busy is not None or runner is None:
            return Health(unhealthy, [self.busy or "starting"], notices)
        unevaluated = runner.unevaluated()
        not_ready = [f"{name} has not been evaluated yet" for name in unevaluated]
        not_ready += [f"{one.name} {one.waits_for}" for one in runner.ingestion.sources() if one.waits_for is not None]
        if runner.ingestion.paused is not None:
            not_ready.append(runner.ingestion.paused)
        return Health(unhealthy, not_ready, notices, unevaluated)

    def line(self) -> str:
        """Return the status as one line."""
        reports = self.sinks.reports().values()
        firing = sum(int(report.windows.alerts.firing.sum()) for report in reports)
        windows = sum(len(report.segments) for report in reports)
        suspects = sum(len(report.input.problems) for report in reports)
        found = f"{windows} windows of {len(reports)} models, {firing} alerts firing"
        return "; ".join(self.health().problems) or (f"{found}, {suspects} input problems" if suspects else found)

    def document(self) -> bytes:
        """Return the last reports and the status of the daemon as JSON."""
        health = self.health()
        facts = {
            "cpcmon": version("cpcmon"),
            "config_digest": self.config.digest,
            "ready": not health.not_ready,
            "problems": health.problems,
        }
        return status_document(self.sinks.reports(), self.sources(), facts)

    def site(self) -> Site:
        """Return the data for the pages."""
        return Site(
            reports=self.sinks.reports,
            now=lambda: self.clock().now,
            version=version("cpcmon"),
            unhealthy=self.unhealthy,
            health=self.health,
            evaluation_seconds=lambda: [
                one.evaluate.seconds for one in self.config.models if isinstance(one.evaluate, Every)
            ],
            settings=lambda: self.config.settings,
            reference=lambda model: self.references.get(model),  # noqa: PLW0108 - replaced on reload
            history=self.history.series,
            alert_rows=lambda: {name: one.rows for name, one in self.alert_histories.items()},
            sources=self.sources,
            rejects=self.rejects,
            links=lambda: self.config.links,
        )

    def sources(self) -> list[SourceView]:
        """Return the status of each source."""
        runner = self.runner
        if runner is None:
            return []
        ingestion = runner.ingestion
        counters = ingestion.counters()
        return [
            SourceView(
                status,
                _counted(counters.records, status.name) + _counted(counters.labels, status.name),
                _counted(counters.records_rejected, status.name),
            )
            for status in ingestion.sources()
        ]

    def rejects(self) -> Rejects:
        """Return the rejected records."""
        runner = self.runner
        if runner is None:
            return Rejects()
        rejected = runner.ingestion.counters().records_rejected
        counts = {key: count for key, count in rejected.items() if count}
        return Rejects(counts, runner.ingestion.rejected_records())

    def facts(self, http: HttpFacts) -> DaemonFacts:
        """Return the values of the daemon's own metrics."""
        models, runner, state = tuple(model.name for model in self.config.models), self.runner, self.state
        if runner is None or state is None:
            return DaemonFacts(models, {}, None, digest=self.config.digest, http=http, config=self.config)
        ingestion, at = runner.ingestion, self.clock()
        now = at.now
        age = state.backup_age(now)
        return DaemonFacts(
            models,
            {status.name: status for status in ingestion.sources()},
            ingestion.counters(),
            ready=not self.health().not_ready,
            catching_up=ingestion.catching_up(now, at.running),
            paused=ingestion.paused is not None,
            state_bytes=state.size,
            backup_at=None if math.isinf(age) else now - age,
            last_commit_at=ingestion.last_commit_at,
            digest=self.config.digest,
            http=http,
            webhook=_delivery_facts(self.sinks.webhook),
            heartbeat=_delivery_facts(self.sinks.heartbeat),
            config=self.config,
        )


def _counted(counter: Mapping[tuple[str, str], int], source: str) -> int:
    return sum(count for (name, _), count in counter.items() if name == source)


def _delivery_facts(sink: WebhookSink | HeartbeatSink | None) -> DeliveryFacts | None:
    return None if sink is None else DeliveryFacts(**asdict(sink.queue.counters()))
