"""What one transaction writes and what the windows then take: records, ids, checkpoints and counts, by shard.

A shard is the unit that moves between processes, such as a Kafka partition. Sources without shards share one unnamed
shard, whose records are stored under the model's name alone.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.core.history import Frame, Place
from monitor.core.input_health import InputHealth
from monitor.core.labels.kept_predictions import (
    FORGOTTEN_LABEL,
    FORGOTTEN_PREDICTION,
    WORDS_PER_LABEL,
    WORDS_PER_PREDICTION,
)
from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.scores import Floats, Integers
from monitor.core.segments import ALL, Chunk, ModelWindows, Segment
from monitor.records.record_batch import Pointer

Shard = tuple[str, str]
"""Source and shard name: `("stream", "predictions/3")`."""

COMMON: Shard = ("", "")
"""The shard of all sources without shards."""

# Control characters: they cannot appear in a model or source name.
_BETWEEN, _OF_GROUPS, _OF_PREDICTIONS, _OF_LABELS = "\x1f", "\x1egroups", "\x1epredictions", "\x1elabels"

_ID_ROWS = {
    "": (1, NO_ID),
    _OF_PREDICTIONS: (WORDS_PER_PREDICTION, FORGOTTEN_PREDICTION),
    _OF_LABELS: (WORDS_PER_LABEL, FORGOTTEN_LABEL),
}

# The largest merged chunk, in records and in numbers (4 MiB): a merge must not delay a commit noticeably.
_MOST_RECORDS, _MOST_NUMBERS = 1 << 16, 1 << 20
# How many chunks of one size are merged into one of the next: a record is rewritten at most three times for this.
_FAN = 128
# Stored records beyond twice those that some window holds.
_SPARE_RECORDS = 10_000


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


def groups_name(stored: str) -> str:
    """Return the name under which the group hashes of a model and shard are stored, among the id hashes."""
    return stored + _OF_GROUPS


def predictions_name(stored: str) -> str:
    """Return the name under which the kept predictions of a model and shard are stored, among the id hashes."""
    return stored + _OF_PREDICTIONS


def labels_name(stored: str) -> str:
    """Return the name under which the labels of a model are stored, among the id hashes."""
    return stored + _OF_LABELS


def places_key(model: str) -> str:
    """Return the key of the segments that kept predictions name, among the values."""
    return f"places:{model}"


def split_stored_name(stored: str) -> tuple[str, Shard]:
    """Return the model and the shard of a stored name."""
    model, *shard = stored.split(_BETWEEN, 2)
    return model, (shard[0], shard[1]) if len(shard) == len(COMMON) else COMMON


def is_of(model: str, stored: str) -> bool:
    """Return whether a stored name is of a model, in any shard."""
    return split_stored_name(stored)[0] == model


def split_ids_name(name: str) -> tuple[str, tuple[int, int] | None]:
    """Return the stored name of a name among the id hashes; and, of ids, the words in a row and what replaces a forgotten one."""
    stored, mark, kind = name.partition("\x1e")
    return stored, _ID_ROWS.get(mark + kind)


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
_FROM, _NONE, _FIELDS = {"labels": ("from",)}, {"labels": ()}, {"labels": ("model", "fields")}


@dataclass(slots=True)
class Counters:
    """Counts since the state was created, or those of one commit. The order is that of the metrics page."""

    records: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_SOURCE_MODEL)
    records_rejected: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_REASON)
    records_normalised: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_argmax_mismatch: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_future: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_behind: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_referred: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_other_version: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_duplicate: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_without_segment: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_FIELDS)
    records_without_group: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_unstored_segment: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_late: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    records_evicted: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    labels: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=_SOURCE_MODEL)
    labels_repeated: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    labels_corrected: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
    labels_without_prediction: Counter[str] = field(default_factory=Counter, metadata=_MODEL)
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
    """One batch of id hashes of a model and shard, or of rows that begin with one."""

    model: str
    """The stored name, or that of its groups, kept predictions or labels."""
    number: int
    """Increases with every batch of the model; see `RecentIds` and `RowLog`."""
    hashes: Hashes


class AuditId(NamedTuple):
    """The id of an audited record that waits for its label."""

    model: str
    """The stored name."""
    hash: int
    at: float
    """The time of the record."""
    id: str


class Forgotten(NamedTuple):
    """What was deleted of some ids."""

    found: int
    """Ids of which anything was stored."""
    predictions: int
    labels: int
    audit_ids: int
    """Ids that waited for their labels."""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk with what the state knows beside its records."""

    chunk: Chunk
    arrivals: Floats
    """By segment of the chunk, the last arrival of its records."""
    number: int = 0
    """Its id."""


@dataclass(slots=True)
class Maintenance:
    """Changes to the stored chunks of a model and shard. Only records that no window holds disappear."""

    deleted: list[int] = field(default_factory=list)
    """Ids of chunks that are empty, or that became part of another."""
    rewritten: list[StoredChunk] = field(default_factory=list)
    """Chunks that replace those of the same id."""


@dataclass(slots=True)
class CommitPlan:
    """One transaction. Nothing in memory changes before it is committed."""

    chunks: list[tuple[str, Chunk]] = field(default_factory=list)
    """Records to enter windows, each with the stored name of its model; in this order."""
    maintenance: dict[str, Maintenance] = field(default_factory=dict)
    """Changes to chunks committed before, by the stored name of the model."""
    deleted_windows: list[WindowName] = field(default_factory=list)
    """Before anything else is written."""
    ids: list[IdBatch] = field(default_factory=list)
    ids_needed: dict[str, int] = field(default_factory=dict)
    """By model, the first batch of hashes still needed; earlier ones are deleted."""
    ids_merged: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By model, the first and last of the small batches to merge."""
    audit_ids: list[AuditId] = field(default_factory=list)
    """Ids to keep until they are labelled."""
    labelled: dict[str, Hashes] = field(default_factory=dict)
    """By model, the hashes of kept ids to delete."""
    audit_ids_needed: dict[str, float] = field(default_factory=dict)
    """By stored name of a model, the time from which kept ids are still needed; earlier ones are deleted."""
    checkpoints: dict[str, Mapping[bytes, bytes | None]] = field(default_factory=dict)
    """By source."""
    counted: Counters = field(default_factory=Counters)
    """Increments, added to the counters in memory after the commit."""
    counters: StoredCounters = field(default_factory=dict)
    """New values, to be written."""
    health: Mapping[str, InputHealth] = field(default_factory=dict)
    """By model, for memory; its bytes are among `values`."""
    places: dict[str, int] = field(default_factory=dict)
    """By model, how many places of kept predictions are among `values`."""
    evidence_to: dict[str, int] = field(default_factory=dict)
    """By stored name of a model, the id of the last chunk whose evidence is among `values`."""
    values: Mapping[str, bytes | None] = field(default_factory=dict)
    """Named values: alert state, input health."""
    rejected: list[tuple[str, str, Pointer]] = field(default_factory=list)
    """Source, origin and pointer of each rejected record."""
    history: HistoryChange = field(default_factory=HistoryChange)
    events: list[str] = field(default_factory=list)


_LOGGED = np.dtype([("start", "i8"), ("id", "i8"), ("stored", "i8"), ("live", "i8"), ("arrived", "f8")])
"""Of a chunk: the arrival number of its first record, its id, its records, those that some window holds, its arrival."""


class ChunkLog:
    """The stored chunks of a model and shard, in order of arrival, and how many of their records some window still holds.

    A restart replays the chunks. A window is its latest records by time. So records that no window holds may be missing
    from the replay or not: the windows are the same. Only after the clock was set back this is not so: then the chunks
    are rewritten with the changed times before any record is left out.
    """

    def __init__(self, name: str, classes: int) -> None:
        self.name = name
        """The stored name of the model."""
        self.restamped = False
        """Whether the times of stored records changed."""
        self._most = max(1, min(_MOST_RECORDS, _MOST_NUMBERS // classes))
        self._chunks, self._count = np.empty(0, dtype=_LOGGED), 0
        self._arrived = 0.0
        """The last arrival."""
        self._settled = True
        """Whether there is nothing to do."""
        self._evidence_to: int | None = None

    @property
    def last(self) -> int:
        """The id of the last chunk; 0 without any."""
        return int(self._chunks["id"][self._count - 1]) if self._count else 0

    def keep_after(self, number: int) -> None:
        """Keep the chunks after this one whole: their evidence is not stored yet, and is taken from them after a restart."""
        self._evidence_to, self._settled = number, False

    @property
    def keeps_much(self) -> bool:
        """Whether evidence should be stored, because of what is kept for it."""
        kept = self._chunks[: self._count][self._chunks["id"][: self._count] > (self._evidence_to or 0)]
        return len(kept) >= _FAN or int((kept["stored"] - kept["live"]).sum()) > _SPARE_RECORDS or self.restamped

    def added(self, number: int, start: int, records: int, arrived: float) -> None:
        """Add a committed chunk; `number` is its id, and `start` the arrival number of its first record."""
        if self._count == len(self._chunks):
            self._chunks = np.concatenate([self._chunks, np.empty(max(64, self._count), dtype=_LOGGED)])
        self._chunks[self._count] = start, number, records, records, arrived
        self._count += 1
        self._arrived, self._settled = arrived, False

    def maintain(self, windows: ModelWindows, plan: CommitPlan) -> None:
        """Plan the maintenance. Called between batches, when windows and disk agree."""
        chunks = self._chunks[: self._count]
        if len(freed := windows.take_freed()):
            places = np.searchsorted(chunks["start"], freed, side="right") - 1
            chunks["live"] -= np.bincount(places, minlength=self._count)
            self._settled = False
        if self._settled and not self.restamped:
            return
        # Windows deleted in the same commit must not come back; their records leave after it.
        deleted = {segment for name, segment in plan.deleted_windows if name == self.name}
        evidence_to = plan.evidence_to.get(self.name, self._evidence_to)
        free = np.full(self._count, fill_value=True) if evidence_to is None else chunks["id"] <= evidence_to
        empty = chunks["live"] == 0
        change, held = Maintenance(chunks["id"][empty & free].tolist()), np.flatnonzero(~empty & free)
        if self.restamped:
            change.rewritten = self._rewritten(windows, chunks[held], deleted)
        elif (run := self._run(chunks[held])) is not None:
            first, end = int(held[run.start]), int(held[run.stop - 1]) + 1
            change.rewritten = [self._merged(windows, first, end, deleted)]
            change.deleted += chunks["id"][held[run][1:]].tolist()
        if change.deleted or change.rewritten or self.restamped:
            plan.maintenance[self.name] = change
        else:
            self._settled = True

    def maintained(self, change: Maintenance) -> None:
        """Apply committed maintenance."""
        chunks = self._chunks[: self._count]
        for one in change.rewritten:
            place = int(np.flatnonzero(chunks["id"] == one.number)[0])
            chunks["stored"][place] = chunks["live"][place] = len(one.chunk.at)
            chunks["arrived"][place] = one.chunk.arrived
        self._chunks = chunks[~np.isin(chunks["id"], change.deleted)]
        self._count = len(self._chunks)
        self.restamped = False

    def _run(self, chunks: NDArray[np.void]) -> slice | None:
        """Return neighbouring chunks to merge: mostly unneeded ones, or small and many ones."""
        stored, live = chunks["stored"], chunks["live"]
        if stored.sum() > 2 * live.sum() + _SPARE_RECORDS:
            # The newest chunk may soon be unneeded as a whole.
            for run in _runs(2 * live[:-1] < stored[:-1]):
                return self._limited(live, run)
        most, smallest = max(2, self._most // 2), 1
        while smallest < most:
            size = min(smallest * _FAN, most)
            for run in _runs(live < size):
                alike = np.flatnonzero(live[run] >= smallest)
                if len(alike) >= _FAN:
                    return self._limited(live, slice(run.start, run.start + int(alike[-1]) + 1))
            smallest = size
        return None

    def _limited(self, live: Integers, run: slice) -> slice:
        """Return a run, shortened to what one commit may write; at least one chunk."""
        fitting = int(np.count_nonzero(np.cumsum(live[run]) <= self._most))
        return slice(run.start, run.start + max(1, fitting))

    def _merged(self, windows: ModelWindows, first: int, end: int, deleted: Container[Segment]) -> StoredChunk:
        """Return the records of some chunks as one."""
        chunks = self._chunks[first:end]
        stop = int(self._chunks["start"][end]) if end < self._count else windows.next_arrival
        records = windows.live(int(chunks["start"][0]), stop, deleted)
        return _stored(windows, records, float(chunks["arrived"].max()), int(chunks["id"][0]))

    def _rewritten(
        self, windows: ModelWindows, chunks: NDArray[np.void], deleted: Container[Segment]
    ) -> list[StoredChunk]:
        """Return all records, in the same chunks."""
        records = windows.live(0, windows.next_arrival, deleted)
        ends = np.cumsum(chunks["live"]).tolist()
        parts = zip(chunks["id"].tolist(), [0, *ends], ends, strict=False)
        return [
            _stored(windows, records.taken(slice(start, end)), self._arrived, number) for number, start, end in parts
        ]


def _stored(windows: ModelWindows, records: Chunk, arrived: float, number: int) -> StoredChunk:
    seen = (arrived if segment == ALL else windows.last_seen(segment) for segment in records.segments)
    arrivals = np.fromiter(seen, dtype=np.float64, count=len(records.segments))
    return StoredChunk(replace(records, arrived=arrived), arrivals, number)


def _runs(these: NDArray[np.bool_]) -> Iterator[slice]:
    """Yield each run of true values."""
    edges = np.flatnonzero(np.diff(these, prepend=False, append=False)).tolist()
    yield from map(slice, edges[::2], edges[1::2])
