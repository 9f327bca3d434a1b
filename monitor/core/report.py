"""The report of one evaluation, the snapshot it was made from, and accuracies from late labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.core.alerts import AlertStatus
from monitor.core.estimate import Estimate, Result, WindowState
from monitor.core.segments import Segment, name_of
from monitor.core.totals import MeasuredWindows


@dataclass(frozen=True, slots=True)
class Realised:
    """The realised accuracy of some records."""

    at: float
    """The time of the newest record, in Unix seconds."""
    segment: str
    """The name: `all`, or `site=A`."""
    records: int
    """At least one."""
    right: int

    @property
    def accuracy(self) -> float:
        """The share of right predictions."""
        return self.right / self.records


_NONE: Mapping[str, Result] = MappingProxyType({})
_NO_PARTS: Mapping[str, Estimate] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The report of one window."""

    segment: Segment
    records: int
    state: WindowState
    results: Mapping[str, Result] = field(default_factory=lambda: _NONE)
    """Results by estimator, including the consensus. Empty without an estimate."""
    disagreement: float | None = None
    chance_disagreement: float | None = None
    """The disagreement explained by chance, at the interval level."""
    predicted: tuple[int, ...] = ()
    """The predictions per class; empty without an estimate."""
    last_record_at: float | None = None
    """The time of the newest record, in Unix seconds; None without records."""
    last_valid_at: float | None = None
    """The time of the last valid estimate, in Unix seconds."""
    alerts: tuple[AlertStatus, ...] = ()
    parts: Mapping[str, Estimate] = field(default_factory=lambda: _NO_PARTS)
    """Estimates by estimator, to be added up over the replicas that share the model's records.

    Present even if the records are too few or too old for a local estimate. Empty for a model without replicas.
    """
    fresh: bool = False
    """Whether the records of the parts are recent."""
    state_since: float | None = None
    """When the state began, in Unix seconds; None if unknown."""

    @property
    def name(self) -> str:
        """The name of the segment."""
        return name_of(self.segment)

    @property
    def valid(self) -> bool:
        """Whether the estimate is valid."""
        return self.state is WindowState.OK

    def estimates(self) -> dict[str, Estimate]:
        """Return the results that are estimates."""
        return {name: result for name, result in self.results.items() if isinstance(result, Estimate)}


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """The reference of a report."""

    version: str
    created: str
    fingerprint: str
    classes: tuple[str, ...]
    records: int
    accuracy: float
    temperature: float
    confidence: float | None = None
    """The unscaled mean confidence."""
    predicted: tuple[int, ...] = ()
    """The predictions per class."""


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The health of a model's input; see `core.input_health`."""

    rejected_share: float | None = None
    """None without records."""
    degraded: bool = False
    one_hot: bool = False
    constant: bool = False
    hints: tuple[str, ...] = ()
    """Probable causes of rejections, such as logits or percentages."""


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one evaluation of a model."""

    model: str
    at: float
    """The time of the evaluation, in Unix seconds."""
    seconds: float
    """The duration of the evaluation."""
    reference: ReferenceFacts | None
    segments: tuple[SegmentReport, ...]
    """The segment of all records first."""
    input: InputFacts = field(default_factory=InputFacts)
    most_segments: int = 0
    errors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Failures by estimator, in windows."""
    minimum_records: int | None = None
    """The minimum of records for an estimate; None without a reference."""


@dataclass(frozen=True, slots=True)
class WindowSnapshot:
    """A snapshot of one window."""

    totals: MeasuredWindows
    newest_at: float | None
    """The event time of the newest record, in Unix seconds."""
    usual_gap_seconds: float
    """The mean time between records; 0 with fewer than two."""
    entered: int
    """Records added since the start or the last reload."""
    came_at: float | None
    """The arrival of the last of them, as monotonic time; None if there is none."""
    came_before: float | None
    """The arrival of the last record before that, in Unix seconds; None if there is none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of all windows of a model, and of its input health."""

    windows: Mapping[Segment, WindowSnapshot]
    input: InputFacts
    right_version: int
    """All records of the reference's version so far."""
    other_version: int
    """All records of other versions so far."""
    catching_up: bool
    """Whether the backlog is too large, or unknown."""
