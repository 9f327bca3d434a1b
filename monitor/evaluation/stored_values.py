"""What evaluators store: alert states, evidence of changes, notified alerts and own baselines, as named values of the state."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from monitor.core.alerts import AlertPhase, AlertState
from monitor.core.baselines.comparison import OwnBaseline
from monitor.core.change import ChangeEvidence
from monitor.core.input_health import RecentInput, VersionCounts
from monitor.core.segments import Segment, name_of

_FORMAT = 1

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


StoredBaseline = tuple[Segment, OwnBaseline]


def baselines_as_bytes(stored: Sequence[StoredBaseline]) -> bytes:
    """Return own baselines as bytes."""
    return msgspec.msgpack.encode(stored)


def baselines_from_bytes(content: bytes) -> list[StoredBaseline]:
    """Return stored own baselines; raises ValueError."""
    try:
        return msgspec.msgpack.decode(content, type=list[StoredBaseline])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


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


class _StoredChanges(msgspec.Struct, array_like=True):
    """The evidence of changes between evaluations, as it is stored."""

    detectors: int
    segments: list[Segment]
    columns: list[bytes]


def changes_as_bytes(evidence: ChangeEvidence) -> bytes:
    """Return the evidence of changes as bytes."""
    away = list(evidence.away.items())
    columns = [
        np.concatenate(
            [one, np.array([row[number] for _, row in away], dtype=one.dtype).reshape(len(away), *one.shape[1:])]
        )
        for number, one in enumerate(evidence.columns)
    ]
    segments = [*evidence.segments, *(segment for segment, _ in away)]
    return msgspec.msgpack.encode(_StoredChanges(evidence.detectors, segments, [one.tobytes() for one in columns]))


def changes_from_bytes(content: bytes, detectors: int) -> ChangeEvidence | None:
    """Return stored evidence; None if it is of another number of detectors, or invalid."""
    evidence = ChangeEvidence(detectors)
    try:
        stored = msgspec.msgpack.decode(content, type=_StoredChanges)
        if stored.detectors != detectors:
            return None
        columns = [
            np.frombuffer(one, dtype=empty.dtype).reshape(len(stored.segments), *empty.shape[1:]).copy()
            for one, empty in zip(stored.columns, evidence.columns, strict=True)
        ]
    except (msgspec.DecodeError, ValueError):
        return None
    evidence.put(stored.segments, columns)
    return evidence


@dataclass(frozen=True, slots=True)
class AlertMemory:
    """The alert state of a model, as it is stored."""

    versions: VersionCounts
    windows: tuple[WindowAlertState, ...]
    version: int = _FORMAT
    input: RecentInput = field(default_factory=RecentInput)
    changes: bytes = b""
    """See `changes_as_bytes`."""
    held_until: dict[str, float] = field(default_factory=dict)
    """Until when records are no evidence of a change, by the name of the segment; `*` for all."""

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
        return memory if memory.version == _FORMAT else None

    def active(self) -> list[tuple[str, str, AlertState]]:
        """Return the alerts that are not quiet: name of the segment, name of the alert, state."""
        return [
            (name_of(window.segment), alert, state)
            for window in self.windows
            for alert, state in window.alerts.items()
            if state.phase is not AlertPhase.OK
        ]

    def firing(self) -> list[tuple[str, str]]:
        """Return segment and name of the firing alerts."""
        return [(segment, alert) for segment, alert, one in self.active() if one.phase is not AlertPhase.PENDING]


def baselines_key_of(model: str) -> str:
    """Return the key of a model's own baselines in the state."""
    return f"baselines:{model}"


def key_of(model: str) -> str:
    """Return the key of a model's alert state in the state."""
    return f"alerts:{model}"
