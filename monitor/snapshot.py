"""What an evaluation needs to know of a model, taken at one instant."""

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.core.report import InputFacts
from monitor.core.segments import Segment
from monitor.core.totals import WindowTotals


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
