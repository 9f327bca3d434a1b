"""The state of the daemon at a scrape, for its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.config.config import Config
from monitor.sources.base import SourceStatus
from monitor.state.counters import Counters

_NOTHING: Mapping[str, int] = MappingProxyType({})


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
