"""The report of one evaluation, the snapshot it was made from, and accuracies from late labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.core.alerts import AlertStatus
from monitor.core.estimate import Estimate, Result, WindowState
from monitor.core.segments import Segment, name_of
from monitor.core.totals import WindowTotals


@dataclass(frozen=True, slots=True)
class Realised:
    """How many of some records turned out right."""

    at: float
    """When the newest of them was made, in Unix seconds."""
    segment: str
    """As the page calls it: `all`, or `site=A`."""
    records: int
    """At least one."""
    right: int

    @property
    def accuracy(self) -> float:
        """The share of them that turned out right."""
        return self.right / self.records


_NONE: Mapping[str, Result] = MappingProxyType({})
_NO_PARTS: Mapping[str, Estimate] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One window: the whole of a model, or one of its segments."""

    segment: Segment
    records: int
    state: WindowState
    results: Mapping[str, Result] = field(default_factory=lambda: _NONE)
    """By estimator, the consensus among them. Empty when nothing can be said of the window."""
    disagreement: float | None = None
    chance_disagreement: float | None = None
    """What the disagreement stays below when only chance separates the window from the reference."""
    predicted: tuple[int, ...] = ()
    """How often each class was predicted; empty when nothing can be said of the window."""
    last_record_at: float | None = None
    """When the newest record was made, in Unix seconds; None before any came."""
    last_valid_at: float | None = None
    """When the window was last judged and something could be said, in Unix seconds."""
    alerts: tuple[AlertStatus, ...] = ()
    parts: Mapping[str, Estimate] = field(default_factory=lambda: _NO_PARTS)
    """By estimator, what the records here add to the answer over all processes that share the model's records.

    There also where they are too few, or too old, for an answer of their own. Empty for a model that nobody else reads.
    """
    fresh: bool = False
    """Whether records came so lately that the parts speak of the present."""
    state_since: float | None = None
    """When it came into its state, in Unix seconds; None where that is not known."""

    @property
    def name(self) -> str:
        """What people call the segment."""
        return name_of(self.segment)

    @property
    def valid(self) -> bool:
        """Whether the accuracy can be said."""
        return self.state is WindowState.OK

    def estimates(self) -> dict[str, Estimate]:
        """Return the estimators that have an answer, with it."""
        return {name: result for name, result in self.results.items() if isinstance(result, Estimate)}


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """What a reader of a report wants to know of the reference behind it."""

    version: str
    created: str
    fingerprint: str
    classes: tuple[str, ...]
    records: int
    accuracy: float
    temperature: float
    confidence: float | None = None
    """Mean confidence, before it is scaled."""
    predicted: tuple[int, ...] = ()
    """How often each class was predicted."""


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What the latest records of a model look like; see `core.input_health`."""

    rejected_share: float | None = None
    """None before any record came."""
    degraded: bool = False
    one_hot: bool = False
    constant: bool = False
    hints: tuple[str, ...] = ()
    """Sentences on what the refused records might be: logits, percentages, milliseconds."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One evaluation of one model."""

    model: str
    at: float
    """When, in Unix seconds."""
    seconds: float
    """How long it took."""
    reference: ReferenceFacts | None
    segments: tuple[SegmentReport, ...]
    """The whole first."""
    input: InputFacts = field(default_factory=InputFacts)
    most_segments: int = 0
    errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """For each estimator that failed in this evaluation, in how many windows."""
    minimum_records: int | None = None
    """How many a window must hold before its accuracy is said; None where nothing could be said anyway."""


@dataclass(frozen=True, slots=True)
class WindowSnapshot:
    """One window."""

    totals: WindowTotals
    newest_at: float | None
    """When its newest record was made, in Unix seconds."""
    usual_gap_seconds: float
    """Mean time between its records; 0 when it holds fewer than two."""
    entered: int
    """Records that entered it since the process, or this configuration, started."""
    came_at: float | None
    """When the last of them came, on the steady clock; None when none has."""
    came_before: float | None
    """When the last record before that start came, in Unix seconds; None when there was none."""


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """All windows of a model, and what is known of its input."""

    windows: Mapping[Segment, WindowSnapshot]
    input: InputFacts
    right_version: int
    """Records of the reference's version that ever came."""
    other_version: int
    """Records of another version that ever came."""
    catching_up: bool
    """Whether so much is unread, or so little is known of what is, that all of it is of the past."""
