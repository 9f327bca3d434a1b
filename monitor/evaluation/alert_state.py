"""The alert state of a model between evaluations and over restarts, and its bytes."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from monitor.core.alerts import AlertPhase, AlertState
from monitor.core.segments import Segment, name_of

_VERSION = 1
_MIN_VERSION_RECORDS = 100
_MAX_VERSION_RECORDS = 400
"""Number of recent records over which the share of other versions is taken."""


AlertKey = tuple[str, str, str]
"""Model, segment and name of an alert."""

NOTIFIED_KEY = "told"
"""The key of the notified alerts in the state."""


def notified_as_bytes(alerts: Iterable[AlertKey]) -> bytes:
    """Return notified alerts as bytes."""
    return msgspec.json.encode(sorted(alerts))


def notified_from_bytes(content: bytes) -> list[AlertKey]:
    """Return notified alerts; none from invalid bytes, so that they are notified again."""
    try:
        return msgspec.json.decode(content, type=list[AlertKey])
    except (msgspec.DecodeError, ValueError):
        return []


class WindowAlertState(msgspec.Struct, array_like=True):
    """The alert state of a window."""

    segment: Segment
    quiet_seconds: float = 0.0
    """Time without records, by the running clock."""
    had_enough: bool = False
    """Whether it ever held enough records for an estimate."""
    last_valid_at: float | None = None
    alerts: dict[str, AlertState] = msgspec.field(default_factory=dict)
    state: str = ""
    """The last reported window state; empty in a state of an older cpcmon."""
    state_since: float | None = None

    def set_state(self, state: str, now: float) -> None:
        """Set the window state, and since when it holds."""
        if state != self.state:
            self.state, self.state_since = state, now
        elif self.state_since is not None:
            # The clock was set back: the time must not be in the future.
            self.state_since = min(self.state_since, now)


@dataclass(slots=True)
class VersionCounts:
    """Recent records with the version of the reference, and with others."""

    right: int = 0
    other: int = 0
    of: str = ""
    """The version of the reference; empty when any is accepted."""

    def add(self, right: int, other: int) -> None:
        """Count records; older ones fade."""
        self.right, self.other = self.right + right, self.other + other
        total = self.right + self.other
        if total > _MAX_VERSION_RECORDS:
            self.right = self.right * _MAX_VERSION_RECORDS // total
            self.other = self.other * _MAX_VERSION_RECORDS // total

    @property
    def mismatch(self) -> bool:
        """Whether most recent records have another version."""
        return self.right + self.other >= _MIN_VERSION_RECORDS and self.other > self.right


@dataclass(frozen=True, slots=True)
class AlertMemory:
    """The alert state of a model, as it is stored."""

    versions: VersionCounts
    windows: tuple[WindowAlertState, ...]
    version: int = _VERSION

    def to_bytes(self) -> bytes:
        """Return the bytes to store."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> "AlertMemory | None":
        """Return the stored state; None if the bytes are invalid."""
        try:
            memory = msgspec.json.decode(content, type=AlertMemory)
        except (msgspec.DecodeError, ValueError):
            return None
        return memory if memory.version == _VERSION else None

    def firing(self) -> list[tuple[str, str]]:
        """Return segment and name of the firing alerts."""
        return [
            (name_of(window.segment), alert)
            for window in self.windows
            for alert, state in window.alerts.items()
            if state.phase in {AlertPhase.FIRING, AlertPhase.RECOVERING}
        ]
