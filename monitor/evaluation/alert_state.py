"""What an evaluation remembers of a model until the next one, and over restarts, as bytes."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from monitor.core.alerts import AlertPhase, AlertState
from monitor.core.segments import Segment, name_of

_VERSION = 1
_FEWEST_FOR_VERSION = 100
_MOST_FOR_VERSION = 400
"""Over how many records the share of other versions is taken, half of it at least."""


Told = tuple[str, str, str]
"""Model, segment and name of an alert."""

TOLD = "told"
"""Under which name it is kept which alerts somebody was told of."""


def told_as_bytes(told: Iterable[Told]) -> bytes:
    """Return alerts that somebody was told of as bytes."""
    return msgspec.json.encode(sorted(told))


def told_from_bytes(content: bytes) -> list[Told]:
    """Return alerts that somebody was told of; none when it cannot be understood, so that they are told again."""
    try:
        return msgspec.json.decode(content, type=list[Told])
    except (msgspec.DecodeError, ValueError):
        return []


class ModelAlertState(msgspec.Struct, array_like=True):
    """One window."""

    segment: Segment
    quiet_seconds: float = 0.0
    """For how long no record had come, in running time."""
    had_enough: bool = False
    """Whether it ever held enough records to be judged."""
    last_valid_at: float | None = None
    alerts: dict[str, AlertState] = msgspec.field(default_factory=dict)
    state: str = ""
    """As it was last reported; empty where an older cpcmon did not remember it."""
    state_since: float | None = None

    def is_in(self, state: str, now: float) -> None:
        """Take note of its state, and since when it has been in it."""
        if state != self.state:
            self.state, self.state_since = state, now
        elif self.state_since is not None:
            # A clock that was ahead was put right: it cannot have been so since a time that is still to come.
            self.state_since = min(self.state_since, now)


@dataclass(slots=True)
class Versions:
    """How many of the latest records were of the right version."""

    right: int = 0
    other: int = 0
    of: str = ""
    """Which version is the right one; empty when any is."""

    def add(self, right: int, other: int) -> None:
        """Count records; the older ones fade."""
        self.right, self.other = self.right + right, self.other + other
        total = self.right + self.other
        if total > _MOST_FOR_VERSION:
            self.right = self.right * _MOST_FOR_VERSION // total
            self.other = self.other * _MOST_FOR_VERSION // total

    @property
    def mismatch(self) -> bool:
        """Whether most records are of another version."""
        return self.right + self.other >= _FEWEST_FOR_VERSION and self.other > self.right


@dataclass(frozen=True, slots=True)
class AlertMemory:
    """One model."""

    versions: Versions
    windows: tuple[ModelAlertState, ...]
    version: int = _VERSION

    def to_bytes(self) -> bytes:
        """Return what the next start needs."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> "AlertMemory | None":
        """Return what was remembered; None when it cannot be understood."""
        try:
            memory = msgspec.json.decode(content, type=AlertMemory)
        except (msgspec.DecodeError, ValueError):
            return None
        return memory if memory.version == _VERSION else None

    def firing(self) -> list[tuple[str, str]]:
        """Return segment and name of the alerts that were firing."""
        return [
            (name_of(window.segment), alert)
            for window in self.windows
            for alert, state in window.alerts.items()
            if state.phase in {AlertPhase.FIRING, AlertPhase.RECOVERING}
        ]
