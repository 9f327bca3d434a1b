"""What was said of a window before now: one column for each thing that is drawn, oldest first."""

from dataclasses import dataclass
from enum import StrEnum

from monitor.core.scores import Floats, Integers
from monitor.core.window_state import WindowState


class Span(StrEnum):
    """How far back, and how finely."""

    RECENT = "recent"
    """Every evaluation, the last few hundred of them."""
    DAYS = "days"
    """A point for each quarter of an hour, for three days."""
    MONTH = "month"
    """A point for each four hours, for thirty days."""


@dataclass(frozen=True, slots=True)
class Series:
    """One window over time. All columns are equally long; NaN stands where nothing could be said, and never leaves as NaN."""

    at: Floats
    """When it was evaluated, in Unix seconds, rising."""
    states: tuple[WindowState, ...]
    accuracy: Floats
    """Of the consensus: the last answer in the stretch of time that a point stands for."""
    lower: Floats
    upper: Floats
    lowest: Floats
    """The lowest answer in that stretch, so that no dip is lost by looking from afar."""
    disagreement: Floats
    records: Integers
    step_seconds: float | None = None
    """How long the stretch of a point is; None where each point is an evaluation."""
    references: tuple[str, ...] = ()
    """The first digits of the fingerprint of the reference behind each point, of a stretch the last; empty where there was
    none or it is not known. `()`: not known of any."""

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.at)
