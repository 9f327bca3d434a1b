"""What the pages ask the daemon for: plain functions, called on the server's threads, several at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.core.history import Series, Span
from monitor.core.report import ModelReport, Realised
from monitor.reference.reference import Reference
from monitor.settings.kinds import Setting
from monitor.sources.base import Lag


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source as the page shows it."""

    name: str
    kind: str
    """`directory` or `kafka`."""
    waits_for: str | None
    """A sentence; None when it can be read."""
    lag: Lag = field(default_factory=Lag)
    records: int = 0
    """Taken in since the state was made."""
    rejected: int = 0
    """Refused since the state was made."""
    partitions: int | None = None
    """How many are ours; None for a source without any."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """Where a refused record stands. Nothing of what it says."""

    at: float
    """When it was refused, in Unix seconds."""
    source: str
    origin: str
    """`file#3fa2c81b`, or a partition: `predictions/3`. Never a file's name."""
    reason: str
    number: int
    """The line, the row, or the record within its message, from 1."""
    offset: int | None = None
    length: int | None = None
    digest: str | None = None
    shape: str | None = None


@dataclass(frozen=True, slots=True)
class Rejects:
    """What was refused."""

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By source and reason, since the state was made."""
    latest: Sequence[RefusedRecord] = ()
    """Newest first; the last few hundred."""


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that pages and API are made from. What is not known yet is empty."""

    reports: Callable[[], Mapping[str, ModelReport]]
    healthy: Callable[[], Sequence[str]]
    """Sentences on what only a restart can mend."""
    ready: Callable[[], Sequence[str]]
    """Sentences on what is waited for."""
    now: Callable[[], float]
    version: str
    notices: Callable[[], Sequence[str]] = lambda: ()
    """Sentences on what somebody should look at, though cpcmon goes on."""
    history: Callable[[str, str, Span], Series | None] = lambda _model, _segment, _span: None
    """Of a model's segment, by its name; None where neither is known."""
    realised: Callable[[str], Sequence[Realised]] = lambda _model: ()
    """Of a model, oldest first; empty where nobody tells."""
    realised_remark: Callable[[str], str | None] = lambda _model: None
    """A sentence on what is wrong with the file of them; None when nothing is."""
    sources: Callable[[], Sequence[SourceView]] = lambda: ()
    rejects: Callable[[], Rejects] = Rejects
    settings: Callable[[], Sequence[Setting]] = lambda: ()
    reference: Callable[[str], Reference | None] = lambda _model: None
    runbooks: Callable[[], str] = lambda: "docs/runbooks/"
    """Where the pages for people on call stand: an address or a path, ending in a slash."""
