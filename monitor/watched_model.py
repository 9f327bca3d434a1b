"""One configured model, and everything that cpcmon holds in memory about it."""

from dataclasses import dataclass, field

import msgspec

from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import RecentIds
from monitor.core.segments import ALL, ModelWindows, Segment, Segmentation
from monitor.core.totals import Gauge
from monitor.core.window import Bounds
from monitor.decode.layout import Kind
from monitor.decode.record_format import ModelFormat
from monitor.reference_file import Reference
from monitor.state.shard import COMMON, Shard, stored_as
from monitor.state.window_log import WindowLog


class Shape(msgspec.Struct, frozen=True):
    """What decides whether records that were stored still mean the same."""

    classes: tuple[str, ...]
    kind: str
    version: str

    def difference(self, other: "Shape") -> str | None:
        """Say why records stored under this shape do not fit the other; None when they do."""
        if self.classes != other.classes:
            return "the classes of its reference are others"
        if self.kind != other.kind:
            return f"its outputs were taken for {self.kind}, and are now declared to be {other.kind}"
        if self.version != other.version:
            return f"its reference is of version {other.version or 'unknown'}, not {self.version or 'unknown'}"
        return None


@dataclass(frozen=True)
class ModelOptions:
    """A model as it is configured."""

    name: str
    reference: Reference
    bounds: Bounds = field(default_factory=lambda: Bounds(records=5000))
    segmentation: Segmentation = field(default_factory=Segmentation)
    kind: Kind = Kind.PROBS
    versions_alike: bool = False
    """Whether records of other versions than the reference's count too."""
    most_ids: int = 1_000_000

    @property
    def shape(self) -> Shape:
        """What is compared with what was stored."""
        version = "" if self.versions_alike else self.reference.version
        return Shape(self.reference.classes, str(self.kind), version)

    @property
    def format(self) -> ModelFormat:
        """What its records look like."""
        fields = dict.fromkeys(name for names in self.segmentation.split_by for name in names)
        return ModelFormat(self.name, self.reference.classes, self.kind, tuple(fields))

    def windows(self, gauge: Gauge) -> ModelWindows:
        """Return its windows, empty."""
        version = self.reference.version
        return ModelWindows(gauge, self.bounds, self.segmentation, version=version, versions_alike=self.versions_alike)


class WatchedModel:
    """A model's windows of one shard, what it remembers of ids, and how its input looks."""

    def __init__(self, options: ModelOptions, shard: Shard = COMMON, gauge: Gauge | None = None) -> None:
        self.options = options
        self.stored_as = stored_as(options.name, shard)
        """Its name in the state."""
        self.gauge = gauge or Gauge(options.reference.calibration)
        self.windows = options.windows(self.gauge)
        self.ids = RecentIds(options.most_ids)
        self.health = InputHealth()
        self.hints: tuple[str, ...] = ()
        self._logs: dict[Segment, WindowLog] = {}

    @property
    def name(self) -> str:
        """The model's name."""
        return self.options.name

    def in_shard(self, shard: Shard) -> "WatchedModel":
        """Return the same model without any record, for another shard."""
        return WatchedModel(self.options, shard, self.gauge)

    def holds(self, segment: Segment) -> bool:
        """Tell whether the configuration has a window for such a segment."""
        names = tuple(name for name, _ in segment)
        return segment == ALL or names in self.options.segmentation.split_by

    def log(self, segment: Segment) -> WindowLog:
        """Return the list of a window's chunks."""
        if segment not in self._logs:
            self._logs[segment] = WindowLog((self.stored_as, segment))
        return self._logs[segment]

    def forget_log(self, segment: Segment) -> None:
        """Forget the chunks of a window that is gone."""
        self._logs.pop(segment, None)
