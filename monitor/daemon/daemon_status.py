"""How the daemon stands: what its pages and its metrics are told. Asked on the web server's threads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from monitor.config.config import Config, Every
from monitor.daemon.build import References
from monitor.daemon.clock import CONFIRMED_SECONDS, Clock
from monitor.daemon.realised_file import RealisedFiles, RealisedProblem
from monitor.daemon.runner import Runner
from monitor.daemon.watchdog import Watchdog
from monitor.records.record_batch import Pointer
from monitor.reference.reference import Reference
from monitor.sinks.heartbeat import HeartbeatSink
from monitor.sinks.manager import SinkManager
from monitor.sinks.webhook import WebhookSink
from monitor.sources.base import Lag, Source
from monitor.sources.kafka.kafka_source import KafkaSource
from monitor.state.evaluation_history import History
from monitor.state.store import State
from monitor.telemetry import DaemonFacts, DeliveryFacts, HttpFacts, KafkaFacts, SourceFacts
from monitor.web.api import status_document
from monitor.web.site import RejectPointer, Rejects, Site, SourceView


@dataclass(slots=True)
class DaemonStatus:
    """What the daemon's own thread sets, one value at a time, and others read."""

    config: Config
    clock: Clock = field(default_factory=Clock)
    """The only one: it knows since when the wall clock is doubted, and outlives reloads."""
    outward: SinkManager = field(default_factory=SinkManager)
    progress: Watchdog = field(default_factory=Watchdog)
    busy: str | None = "starting"
    """What keeps it from being ready: starting, reloading, stopping."""
    history: History = field(default_factory=History)
    work: Runner | None = None
    state: State | None = None
    references: References = field(default_factory=dict)
    """Those of the configuration, by model; None where it names none."""
    realised: RealisedFiles = field(default_factory=RealisedFiles)

    def unhealthy(self) -> list[str]:
        """Say what only a restart can mend."""
        return self.progress.problems(self.clock().running)

    def not_ready(self) -> list[str]:
        """Say why it is not ready; nothing when it is."""
        work = self.work
        if self.busy is not None or work is None:
            return [self.busy or "starting"]
        problems = [f"{name} has not been evaluated yet" for name in work.unevaluated()]
        problems += [f"{name} {waits}" for name, waits in work.ingestion.waiting_for().items() if waits is not None]
        if work.ingestion.paused is not None:
            problems.append(work.ingestion.paused)
        return problems

    def notices(self) -> list[str]:
        """Say what somebody should look at, though cpcmon goes on and is ready."""
        ahead = self.clock().ahead
        if not ahead:
            return []
        which, minutes = "ahead of" if ahead > 0.0 else "behind", CONFIRMED_SECONDS / 60.0
        sentence = (
            f"clock jumped: this machine's clock is {abs(ahead):,.0f} seconds {which} the time that cpcmon goes on with;"
            f" set it right, or cpcmon uses it once it has kept this time for {minutes:.0f} minutes"
        )
        return [sentence]

    def sentence(self) -> str:
        """Say in one line how things are."""
        reports = self.outward.reports().values()
        firing = sum(alert.firing for report in reports for segment in report.segments for alert in segment.alerts)
        windows = sum(len(report.segments) for report in reports)
        problems = [*self.unhealthy(), *self.not_ready(), *self.notices()]
        return "; ".join(problems) or f"{windows} windows of {len(reports)} models, {firing} alerts firing"

    def document(self) -> bytes:
        """Return the last reports as JSON, with how the daemon itself is."""
        problems = self.not_ready()
        facts = {
            "cpcmon": version("cpcmon"),
            "config_digest": self.config.digest,
            "ready": not problems,
            "problems": [*self.unhealthy(), *problems, *self.notices()],
            "sources": [source_document(source) for source in self.sources()],
        }
        return status_document(self.outward.reports(), facts)

    def site(self) -> Site:
        """Return what the pages may ask for."""
        return Site(
            reports=self.outward.reports,
            healthy=self.unhealthy,
            ready=self.not_ready,
            notices=self.notices,
            now=lambda: self.clock().now,
            version=version("cpcmon"),
            unevaluated=self._unevaluated,
            evaluation_seconds=lambda: [
                one.evaluate.seconds for one in self.config.models if isinstance(one.evaluate, Every)
            ],
            realised=lambda model: self._realised(model).accuracies,
            realised_remark=lambda model: self._realised(model).remark,
            settings=lambda: self.config.settings,
            reference=self._reference,
            history=self.history.series,
            sources=self.sources,
            rejects=self.rejects,
            runbooks=lambda: self.config.runbooks,
        )

    def _unevaluated(self) -> list[str]:
        work = self.work
        return [] if self.busy is not None or work is None else work.unevaluated()

    def _reference(self, model: str) -> Reference | None:
        return self.references.get(model)

    def _realised(self, model: str) -> RealisedProblem:
        return self.realised.read(next((one.realised for one in self.config.models if one.name == model), None))

    def sources(self) -> list[SourceView]:
        """Return how each source is; none while nothing is at work."""
        work = self.work
        if work is None:
            return []
        ingestion = work.ingestion
        lags, counters = ingestion.lags(), ingestion.counters
        return [
            SourceView(
                source.name,
                "kafka" if isinstance(source, KafkaSource) else "directory",
                source.ready(),
                lags.get(source.name, Lag()),
                _counted(counters, "records_total", source.name),
                _counted(counters, "records_rejected_total", source.name),
                len(source.owned) if isinstance(source, KafkaSource) else None,
            )
            for source in ingestion.sources
        ]

    def rejects(self) -> Rejects:
        """Return what was refused; nothing while nothing is at work."""
        work = self.work
        if work is None:
            return Rejects()
        counters = work.ingestion.counters.items()
        counts = {(key[1], key[2]): count for key, count in counters if key[0] == "records_rejected_total" and count}
        return Rejects(counts, [_reject_pointer(*one) for one in work.ingestion.refused()])

    def facts(self, http: HttpFacts) -> DaemonFacts:
        """Return what the metrics page says of the daemon itself."""
        models, work, state = tuple(model.name for model in self.config.models), self.work, self.state
        if work is None or state is None:
            return DaemonFacts(models, {}, None, digest=self.config.digest, http=http, config=self.config)
        ingestion, at = work.ingestion, self.clock()
        now = at.now
        lags, age = ingestion.lags(), state.backup_age(now)
        return DaemonFacts(
            models,
            {
                source.name: SourceFacts(source.ready() is None, lags.get(source.name, Lag()), _kafka_facts(source))
                for source in ingestion.sources
            },
            ingestion.counters,
            ready=not self.not_ready(),
            catching_up=ingestion.catching_up(now, at.running),
            paused=ingestion.paused is not None,
            state_bytes=state.size,
            backup_at=None if math.isinf(age) else now - age,
            last_commit_at=ingestion.last_commit_at,
            digest=self.config.digest,
            http=http,
            webhook=_webhook_facts(self.outward.webhook),
            heartbeat=_heartbeat_facts(self.outward.heartbeat),
            config=self.config,
        )


def source_document(source: SourceView) -> dict[str, Any]:
    """Return a source as `/api/v1/status` says it."""
    return {
        "source": source.name,
        "type": source.kind,
        "ready": source.waits_for is None,
        "waits_for": source.waits_for,
        "unread_bytes": source.lag.bytes,
        "unread_files": source.lag.files,
        "oldest_unread_at": source.lag.oldest_unread,
        "rebuilding": source.lag.rebuilding,
        "records": source.records,
        "rejected": source.rejected,
        "partitions": source.partitions,
    }


def _counted(counters: Mapping[tuple[str, ...], int], name: str, source: str) -> int:
    return sum(count for key, count in counters.items() if key[:2] == (name, source))


def _reject_pointer(at: float, source: str, origin: str, pointer: Pointer) -> RejectPointer:
    return RejectPointer(
        at,
        source,
        origin,
        str(pointer.reason),
        pointer.number,
        pointer.offset,
        pointer.length,
        pointer.digest,
        pointer.shape,
    )


def _kafka_facts(source: Source) -> KafkaFacts | None:
    if not isinstance(source, KafkaSource):
        return None
    return KafkaFacts(
        source.partition_lags(), len(source.owned), len(source.gaps()), source.restore_seconds, source.unassigned
    )


def _webhook_facts(webhook: WebhookSink | None) -> DeliveryFacts | None:
    if webhook is None:
        return None
    counters = webhook.counters()
    return DeliveryFacts(
        counters.sent, counters.failed, counters.dropped, counters.redirected, waiting=webhook.waiting()
    )


def _heartbeat_facts(heartbeat: HeartbeatSink | None) -> DeliveryFacts | None:
    return None if heartbeat is None else DeliveryFacts(heartbeat.counters().sent, heartbeat.counters().failed)
