"""What one transaction writes and what the windows then take: records, ids, checkpoints and counts, by shard.

A shard is the unit that moves between processes, such as a Kafka partition. Sources without shards share one unnamed
shard, whose records are stored under the model's name alone.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from typing import NamedTuple

from monitor.core.history import Frame, Place
from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import Hashes
from monitor.core.segments import Chunk, Segment
from monitor.core.window import SlidingWindow
from monitor.records.record_batch import Pointer

Shard = tuple[str, str]
"""Source and shard name: `("stream", "predictions/3")`."""

COMMON: Shard = ("", "")
"""The shard of all sources without shards."""

# A control character: it cannot appear in a model or source name.
_BETWEEN = "\x1f"

WORTH_TOTALS = 20_000
"""Records from which on totals are stored: smaller windows are recomputed in milliseconds."""
_FEWEST_CHUNKS = 64
_RECORDS_A_CHUNK = 64
_CHUNK_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One frame of a model."""

    model: str
    place: Place
    frame: Frame


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """History to write."""

    rows: Sequence[HistoryRow] = ()
    only: frozenset[str] | None = None
    """Delete the rows of all models but these; None deletes nothing."""

    def __bool__(self) -> bool:
        """Return whether there is anything to write."""
        return bool(self.rows) or self.only is not None


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


StoredCounters = dict[tuple[str, ...], int]
"""By name and labels, as the state stores them: `("records_total", "inbox", "density")`."""


_MODEL, _SOURCE_MODEL = {"labels": ("model",)}, {"labels": ("source", "model")}
_REASON, _EVENT = {"labels": ("source", "reason")}, {"labels": ("source", "event")}
_FROM, _NONE = {"labels": ("from",)}, {"labels": ()}


@dataclass(slots=True)
class Counters:
    """Counts since the state was created, or those of one commit. The order is that of the metrics page."""

    records: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_SOURCE_MODEL)
    records_rejected: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_REASON)
    records_normalised: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_argmax_mismatch: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_future: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_other_version: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_unstored_segment: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_late: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_evicted: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    source_events: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_EVENT)
    state_recovered: Counter[str] = field(default_factory=Counter, metadata=_FROM)
    state_damaged_chunks: Counter[tuple[()]] = field(default_factory=Counter, metadata=_NONE)
    resumed: Counter[tuple[()]] = field(default_factory=Counter, metadata=_NONE)

    @classmethod
    def from_stored(cls, stored: StoredCounters) -> "Counters":
        """Return stored counters; unknown ones, of another version of cpcmon, stay in the state only."""
        counters = cls()
        known = {stored_name: (getattr(counters, name), len(labels)) for name, stored_name, labels in _COUNTERS}
        for (name, *labels), count in stored.items():
            counter, expected = known.get(name, (None, 0))
            if counter is not None and len(labels) == expected:
                counter[labels[0] if len(labels) == 1 else tuple(labels)] = count
        return counters

    def stored(self) -> StoredCounters:
        """Return the counters as the state stores them."""
        return {(name, *labels): count for name, _, counts in self.families() for labels, count in counts.items()}

    def families(self) -> Iterator[tuple[str, tuple[str, ...], dict[tuple[str, ...], int]]]:
        """Yield the stored name of each counter, the names of its labels, and the counts by label values."""
        for name, stored_name, labels in _COUNTERS:
            counts = getattr(self, name).items()
            yield stored_name, labels, {key if isinstance(key, tuple) else (key,): count for key, count in counts}

    def add(self, other: "Counters") -> None:
        """Add other counts to these."""
        for name, _, _ in _COUNTERS:
            if added := getattr(other, name):
                getattr(self, name).update(added)

    def copy(self) -> "Counters":
        """Return a copy."""
        copy = Counters()
        copy.add(self)
        return copy


_COUNTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = tuple(
    (one.name, f"{one.name}_total", one.metadata["labels"]) for one in fields(Counters)
)
"""Name, stored name and labels of each."""


class IdBatch(NamedTuple):
    """One batch of id hashes of a model and shard."""

    model: str
    """The stored name."""
    number: int
    """Increases with every batch of the model; see `RecentIds`."""
    hashes: Hashes


@dataclass(slots=True)
class CommitPlan:
    """One transaction. Nothing in memory changes before it is committed."""

    chunks: list[tuple[str, Chunk]] = field(default_factory=list)
    """Records to enter windows, each with the stored name of its model; in this order."""
    dropped: list[int] = field(default_factory=list)
    """Ids of chunks that no window needs any more."""
    totals: dict[WindowName, bytes | None] = field(default_factory=dict)
    """Totals up to the last chunk committed before, so that a restart need not recompute them; None deletes them."""
    rewritten: dict[WindowName, list[Chunk]] = field(default_factory=dict)
    """Windows whose chunks are compacted: replaced by fewer, larger ones."""
    deleted_windows: list[WindowName] = field(default_factory=list)
    """Before anything else is written."""
    ids: list[IdBatch] = field(default_factory=list)
    ids_needed: dict[str, int] = field(default_factory=dict)
    """By model, the first batch of hashes still needed; earlier ones are deleted."""
    ids_merged: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By model, the first and last of the small batches to merge."""
    checkpoints: dict[str, Mapping[bytes, bytes | None]] = field(default_factory=dict)
    """By source."""
    counted: Counters = field(default_factory=Counters)
    """Increments, added to the counters in memory after the commit."""
    counters: StoredCounters = field(default_factory=dict)
    """New values, to be written."""
    health: Mapping[str, InputHealth] = field(default_factory=dict)
    """By model, for memory; its bytes are among `values`."""
    values: Mapping[str, bytes | None] = field(default_factory=dict)
    """Named values: alert state, input health."""
    rejected: list[tuple[str, str, Pointer]] = field(default_factory=list)
    """Source, origin and pointer of each rejected record."""
    history: HistoryChange = field(default_factory=HistoryChange)
    events: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChunkIds:
    """The ids given to the chunks of a plan."""

    chunks: list[int]
    rewritten: dict[WindowName, list[int]]


@dataclass(slots=True)
class WindowLog:
    """The stored chunks of one window, oldest first.

    A chunk whose newest record is older than the window's oldest is not needed: a window is its latest records by time,
    so dropping the chunk does not change the result of a restart.
    """

    name: WindowName
    chunks: deque[tuple[int, float, int]] = field(default_factory=deque)
    """Id, newest event time and record count of each."""
    stored: int = 0
    """Records in all chunks."""
    since_totals: int = 0
    """Records since totals were stored."""
    arrived: float = 0.0
    """Time of the last arrival."""
    has_totals: bool = False
    """Whether totals are stored."""
    restamped: bool = False
    """Whether the window changed the times of stored records: a compaction must write them before any chunk is dropped."""

    def added(self, number: int, newest: float, records: int, arrived: float) -> None:
        """Add a committed chunk."""
        self.chunks.append((number, newest, records))
        self.stored += records
        self.since_totals += records
        self.arrived = arrived

    def maintain(self, window: SlidingWindow, plan: CommitPlan, *, stopping: bool = False) -> None:
        """Plan the maintenance of the chunks. Called between batches, when window and disk agree."""
        too_many = len(self.chunks) > max(_FEWEST_CHUNKS, len(window) // _RECORDS_A_CHUNK)
        if self.restamped or too_many or self.stored > 2 * len(window) + _CHUNK_RECORDS:
            plan.rewritten[self.name] = self._rechunked(window)
            return
        with_totals = len(window) >= WORTH_TOTALS
        # Stored totals include all records of that time, so no chunk is dropped before new totals are written.
        if with_totals and not stopping and self.since_totals < len(window) // 4:
            return
        oldest = float(window.times[0]) if len(window) else float("inf")
        plan.dropped.extend(number for number, _, _ in takewhile(lambda chunk: chunk[1] < oldest, self.chunks))
        if self.has_totals and not with_totals:
            # They include records that may be dropped now.
            plan.totals[self.name] = None
        elif with_totals and self.since_totals:
            # A window refilled since then is not worth measuring before an estimate is needed.
            is_new = self.since_totals >= len(window) and not stopping
            plan.totals[self.name] = None if is_new else window.totals().to_bytes()

    def maintained(self, plan: CommitPlan, ids: ChunkIds, dropped: frozenset[int]) -> None:
        """Apply a committed plan; `dropped` are its dropped chunks."""
        if self.name in plan.rewritten:
            chunks, numbers = plan.rewritten[self.name], ids.rewritten[self.name]
            self.chunks = deque((n, float(c.at.max()), len(c.at)) for n, c in zip(numbers, chunks, strict=True))
            self.restamped = self.has_totals = False
            # The totals were deleted with the old chunks; write new ones at the next opportunity.
            self.stored = self.since_totals = sum(records for _, _, records in self.chunks)
            return
        while self.chunks and self.chunks[0][0] in dropped:
            self.stored -= self.chunks.popleft()[2]
        if self.name in plan.totals:
            self.since_totals, self.has_totals = 0, plan.totals[self.name] is not None

    def _rechunked(self, window: SlidingWindow) -> list[Chunk]:
        """Split a whole window into chunks, oldest first."""
        vectors, times = window.vectors(), window.times.copy()
        return [
            Chunk(
                self.name[1],
                self.arrived,
                times[start : start + _CHUNK_RECORDS],
                vectors[start : start + _CHUNK_RECORDS],
            )
            for start in range(0, len(times), _CHUNK_RECORDS)
        ]
