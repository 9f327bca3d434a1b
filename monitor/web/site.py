"""The data that pages and API read from the daemon, as functions. The server calls them on several threads at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.config.config import Links
from monitor.core.history import Series, Span
from monitor.core.report import Report
from monitor.evaluation.alert_history import Transition
from monitor.reference.reference import Reference
from monitor.settings.kinds import Setting
from monitor.sources.base import SourceStatus
from monitor.state.commit_plan import RejectionEntry


@dataclass(frozen=True, slots=True)
class Health:
    """The health of the daemon at one moment, in sentences for people."""

    unhealthy: Sequence[str] = ()
    """Problems that only a restart can fix."""
    not_ready: Sequence[str] = ()
    """Reasons why it is not ready."""
    notices: Sequence[str] = ()
    """Warnings that do not affect readiness."""
    unevaluated: Sequence[str] = ()
    """The models that have not been evaluated since the start."""

    @property
    def problems(self) -> list[str]:
        """All sentences."""
        return [*self.unhealthy, *self.not_ready, *self.notices]


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source, with its records or labels since the state was created."""

    status: SourceStatus
    records: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Rejects:
    """Rejected records."""

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By source and reason, since the state was created."""
    latest: Sequence[RejectionEntry] = ()
    """Time, source, origin (`file#3fa2c81b`, or a partition) and pointer; newest first, the last few hundred."""


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that pages and API show. Unknown values are empty."""

    reports: Callable[[], Mapping[str, Report]]
    now: Callable[[], float]
    version: str
    unhealthy: Callable[[], Sequence[str]] = tuple
    """Problems that only a restart can fix; answers while everything else hangs."""
    health: Callable[[], Health] = Health
    evaluation_seconds: Callable[[], Sequence[float]] = lambda: ()
    """The configured evaluation intervals."""
    history: Callable[[str, str, Span], Series | None] = lambda _model, _segment, _span: None
    """Of a model and a segment name; None when unknown."""
    alert_rows: Callable[[], Mapping[str, Sequence[Transition]]] = dict
    """The alert history of each model, oldest first."""
    sources: Callable[[], Sequence[SourceView]] = lambda: ()
    rejects: Callable[[], Rejects] = Rejects
    settings: Callable[[], Sequence[Setting]] = lambda: ()
    reference: Callable[[str], Reference | None] = lambda _model: None
    links: Callable[[], Links] = Links
