"""What one transaction changes: records, checkpoints and counters, by shard.

A shard is what may move to another process as a whole, such as a partition of a topic. Sources without shards share one
that has no name, and whose records are kept under the name of the model alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitor.core.recent_ids import Hashes
from monitor.core.scores import Floats, Singles
from monitor.core.segments import Segment
from monitor.records.record_batch import Pointer
from monitor.state.history_table import HistoryChange

Shard = tuple[str, str]
"""A source, and the name that it gives the shard: `("stream", "predictions/3")`."""

COMMON: Shard = ("", "")
"""Shared by all sources that have no shards."""

# In no name of a model or source, since it cannot be typed.
_BETWEEN = "\x1f"


def stored_as(model: str, shard: Shard) -> str:
    """Return under which name a model's records of a shard are kept."""
    return model if shard == COMMON else _BETWEEN.join((model, *shard))


def parted(stored: str) -> tuple[str, Shard]:
    """Return the model and the shard of such a name."""
    model, *shard = stored.split(_BETWEEN, 2)
    return model, (shard[0], shard[1]) if len(shard) == len(COMMON) else COMMON


def told(stored: str) -> str:
    """Return such a name as people should read it."""
    model, (source, shard) = parted(stored)
    return f"{model} in {shard} of {source}" if source else model


WindowName = tuple[str, Segment]
"""A model, by the name under which a shard's records of it are kept (see `shard.stored_as`), and a segment."""

Refused = tuple[float, str, str, Pointer]
"""When, from which source and from where a refused record came, and where in it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one window that were committed together."""

    window: WindowName
    arrived: float
    """When they came."""
    at: Floats
    """Their event times as the window believed them: no NaN, none in the future."""
    vectors: Singles


@dataclass(frozen=True, slots=True)
class IdBatch:
    """Hashes of ids of one model and shard that were remembered together."""

    model: str
    """By the name under which it is kept."""
    number: int
    """Rises with every batch of the model; see `RecentIds`."""
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All totals of a window, so that a start need not measure its records again."""

    window: WindowName
    content: bytes | None
    """None to forget those of before."""


@dataclass(slots=True)
class StateChange:
    """One transaction."""

    chunks: list[Chunk] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    """Numbers of chunks of which no window holds a record any more."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """Totals through the last chunk that was committed before this change."""
    rewritten: dict[WindowName, list[Chunk]] = field(default_factory=dict)
    """Windows whose chunks are replaced by others, because too many of them hold too little."""
    forgotten: list[WindowName] = field(default_factory=list)
    ids: list[IdBatch] = field(default_factory=list)
    ids_needed: dict[str, int] = field(default_factory=dict)
    """For each model, the first batch of hashes that is needed; those before it may go."""
    ids_merged: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each model, the first and the last of small batches that become one."""
    positions: dict[str, Mapping[bytes, bytes | None]] = field(default_factory=dict)
    """For each source."""
    counters: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Their new values."""
    kept: Mapping[str, bytes | None] = field(default_factory=dict)
    """Small things that others want to find again: alert state, input health."""
    rejected: list[tuple[str, str, Pointer]] = field(default_factory=list)
    """Source, origin and place of refused records."""
    history: HistoryChange = field(default_factory=HistoryChange)
    events: list[str] = field(default_factory=list)
