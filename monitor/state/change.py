"""The content of one transaction: records, checkpoints and counters, by shard.

A shard is the unit that moves between processes, such as a Kafka partition. Sources without shards share one unnamed
shard, whose records are stored under the model's name alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitor.core.recent_ids import Hashes
from monitor.core.scores import Floats, Singles
from monitor.core.segments import Segment
from monitor.records.record_batch import Pointer
from monitor.state.evaluation_history import HistoryChange

Shard = tuple[str, str]
"""Source and shard name: `("stream", "predictions/3")`."""

COMMON: Shard = ("", "")
"""The shard of all sources without shards."""

# A control character: it cannot appear in a model or source name.
_BETWEEN = "\x1f"


def stored_name(model: str, shard: Shard) -> str:
    """Return the name under which a model's records of a shard are stored."""
    return model if shard == COMMON else _BETWEEN.join((model, *shard))


def split_stored_name(stored: str) -> tuple[str, Shard]:
    """Return the model and the shard of a stored name."""
    model, *shard = stored.split(_BETWEEN, 2)
    return model, (shard[0], shard[1]) if len(shard) == len(COMMON) else COMMON


def display_name(stored: str) -> str:
    """Return a stored name for display."""
    model, (source, shard) = split_stored_name(stored)
    return f"{model} in {shard} of {source}" if source else model


WindowName = tuple[str, Segment]
"""The stored name of a model (see `stored_name`), and a segment."""

RejectionEntry = tuple[float, str, str, Pointer]
"""Time, source, origin and pointer of a rejected record."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one window from one commit."""

    window: WindowName
    arrived: float
    """Arrival time."""
    at: Floats
    """Event times as the window uses them: no NaN, none in the future."""
    vectors: Singles


@dataclass(frozen=True, slots=True)
class IdBatch:
    """One batch of id hashes of a model and shard."""

    model: str
    """The stored name."""
    number: int
    """Increases with every batch of the model; see `RecentIds`."""
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class TotalsUpdate:
    """The totals of a window, so that a restart need not recompute them."""

    window: WindowName
    content: bytes | None
    """None deletes the stored totals."""


@dataclass(slots=True)
class StateChange:
    """One transaction."""

    chunks: list[Chunk] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    """Ids of chunks that no window needs any more."""
    totals: list[TotalsUpdate] = field(default_factory=list)
    """Totals up to the last chunk committed before this change."""
    rewritten: dict[WindowName, list[Chunk]] = field(default_factory=dict)
    """Windows whose chunks are compacted: replaced by fewer, larger ones."""
    deleted_windows: list[WindowName] = field(default_factory=list)
    ids: list[IdBatch] = field(default_factory=list)
    ids_needed: dict[str, int] = field(default_factory=dict)
    """By model, the first batch of hashes still needed; earlier ones are deleted."""
    ids_merged: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By model, the first and last of the small batches to merge."""
    checkpoints: dict[str, Mapping[bytes, bytes | None]] = field(default_factory=dict)
    """By source."""
    counters: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """New values, not increments."""
    values: Mapping[str, bytes | None] = field(default_factory=dict)
    """Named values: alert state, input health."""
    rejected: list[tuple[str, str, Pointer]] = field(default_factory=list)
    """Source, origin and pointer of each rejected record."""
    history: HistoryChange = field(default_factory=HistoryChange)
    events: list[str] = field(default_factory=list)
