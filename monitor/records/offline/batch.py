"""What decoding yields: columns of accepted outputs, what was refused, and what to tell the user."""

from dataclasses import dataclass

from monitor.records.labels import Indices
from monitor.records.rejections import Rejections
from monitor.records.vectors import Singles


@dataclass(frozen=True)
class Batch:
    """Columns of accepted outputs."""

    probabilities: Singles
    """Shape (records, classes); each row was divided by its own sum."""
    labels: Indices | None
    """The index of each record's true class; None when labels were not read."""
    classes: tuple[str, ...]
    """The names of the classes; empty when no record was accepted and nothing else names them."""
    normalised: int
    """Accepted vectors whose sum was further from 1 than float32 rounding explains."""


@dataclass(frozen=True)
class Decoded:
    """What a file or array held."""

    batch: Batch
    rejections: Rejections
    hints: tuple[str, ...]
    """What probably went wrong, and what to do about it."""
    unusable: str | None = None
    """Why not even the accepted records may be used, and what to do; None when they may."""
