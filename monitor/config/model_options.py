"""A model as it is configured, and what decides whether its stored records still mean the same."""

from dataclasses import dataclass, field

import msgspec

from monitor.core.segments import ModelWindows, Segmentation
from monitor.core.totals import Gauge
from monitor.core.window import Bounds
from monitor.records.layout import OutputKind
from monitor.records.record_schema import ModelFormat
from monitor.reference.reference import Reference


class ModelShape(msgspec.Struct, frozen=True):
    """What decides whether records that were stored still mean the same."""

    classes: tuple[str, ...]
    kind: str
    version: str

    def difference(self, other: "ModelShape") -> str | None:
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
    kind: OutputKind = OutputKind.PROBS
    versions_alike: bool = False
    """Whether records of other versions than the reference's count too."""
    most_ids: int = 1_000_000

    @property
    def shape(self) -> ModelShape:
        """What is compared with what was stored."""
        version = "" if self.versions_alike else self.reference.version
        return ModelShape(self.reference.classes, str(self.kind), version)

    @property
    def format(self) -> ModelFormat:
        """What its records look like."""
        fields = dict.fromkeys(name for names in self.segmentation.split_by for name in names)
        return ModelFormat(self.name, self.reference.classes, self.kind, tuple(fields))

    def windows(self, gauge: Gauge) -> ModelWindows:
        """Return its windows, empty."""
        version = self.reference.version
        return ModelWindows(gauge, self.bounds, self.segmentation, version=version, versions_alike=self.versions_alike)
