"""What the daemon knows of itself at the instant of a scrape."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.config.config import Config
from monitor.sources.base import Lag
from monitor.sources.kafka.health import PartitionLag

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """A member of a consumer group."""

    lags: Mapping[str, PartitionLag] = field(default_factory=dict)
    """By partition: `predictions/3`."""
    assigned: int = 0
    """Partitions that are ours."""
    with_gap: int = 0
    """Those whose windows hold records from before a loss."""
    restore_seconds: float = 0.0
    """For how long windows have been rebuilt from the log since the start, all partitions together."""
    unassigned: int | None = None
    """Partitions of the topics that are assigned to no member of the group; None when it is not known."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """One source."""

    ready: bool
    lag: Lag = field(default_factory=Lag)
    kafka: KafkaFacts | None = None
    """None for a source of another type."""


@dataclass(frozen=True, slots=True)
class HttpFacts:
    """The server that answers scrapes."""

    connections: int = 0
    """Open now."""
    requests: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Answered, by the class of their status: `2xx`."""
    closed: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Connections that the server closed, by reason: a closed list of its own."""
    config_ok: bool = True
    """Whether the web configuration is in force as its files stand."""


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """Something that is sent out: webhook messages, or heartbeats."""

    sent: int = 0
    failed: int = 0
    """Given up: refused, or tried for too long."""
    dropped: int = 0
    """Given up because too many waited, or at a stop."""
    redirected: int = 0
    """Given up because the answer was a redirection, which is never followed."""
    waiting: int = 0
    """Not sent yet."""


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """Everything that is asked for, not told, when the metrics page is made."""

    models: tuple[str, ...]
    sources: Mapping[str, SourceFacts]
    counters: Mapping[tuple[str, ...], int] | None
    """A snapshot of `Ingestion.counters`, by name and labels; None before the state was read.

    Then no counter is shown: a 0 that soon becomes what the state remembers would look like so many new events.
    """
    ready: bool = False
    catching_up: bool = False
    paused: bool = False
    """Whether the state cannot be written for the moment."""
    state_bytes: int = 0
    backup_at: float | None = None
    """When the state was last copied, in Unix seconds."""
    last_commit_at: float | None = None
    digest: str = ""
    """Tells one configuration from another."""
    http: HttpFacts = field(default_factory=HttpFacts)
    webhook: DeliveryFacts | None = None
    """None when none is configured."""
    heartbeat: DeliveryFacts | None = None
    config: Config | None = None
    """None where nothing is said of what is configured."""
