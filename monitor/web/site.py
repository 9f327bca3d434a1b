"""The data that pages and API read from the daemon, as functions. The server calls them on several threads at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.core.history import Series, Span
from monitor.core.report import ModelReport, Realised
from monitor.reference.reference import Reference
from monitor.settings.kinds import Setting
from monitor.sources.base import Lag
from monitor.state.commit_plan import RejectionEntry


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source as pages show it."""

    name: str
    kind: str
    """`directory` or `kafka`."""
    waits_for: str | None
    """What it waits for; None when it is ready."""
    lag: Lag = field(default_factory=Lag)
    records: int = 0
    """Records ingested since the state was created."""
    rejected: int = 0
    """Records rejected since the state was created."""
    partitions: int | None = None
    """Partitions assigned to this replica; None for a source without partitions."""


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

    reports: Callable[[], Mapping[str, ModelReport]]
    healthy: Callable[[], Sequence[str]]
    """Problems that only a restart can fix; empty when healthy."""
    ready: Callable[[], Sequence[str]]
    """Reasons why cpcmon is not ready; empty when it is."""
    now: Callable[[], float]
    version: str
    unevaluated: Callable[[], Sequence[str]] = lambda: ()
    """Models that have not been evaluated since the start."""
    evaluation_seconds: Callable[[], Sequence[float]] = lambda: ()
    """The configured evaluation intervals."""
    notices: Callable[[], Sequence[str]] = lambda: ()
    """Warnings that do not stop cpcmon."""
    history: Callable[[str, str, Span], Series | None] = lambda _model, _segment, _span: None
    """Of a model and a segment name; None when unknown."""
    realised: Callable[[str], Sequence[Realised]] = lambda _model: ()
    """Of a model, oldest first; empty without labels."""
    realised_remark: Callable[[str], str | None] = lambda _model: None
    """A problem with the file of realised accuracies; None without one."""
    sources: Callable[[], Sequence[SourceView]] = lambda: ()
    rejects: Callable[[], Rejects] = Rejects
    settings: Callable[[], Sequence[Setting]] = lambda: ()
    reference: Callable[[str], Reference | None] = lambda _model: None
    runbooks: Callable[[], str] = lambda: "docs/runbooks/"
    """The address or path of the runbooks, ending in a slash."""
