"""Sliding windows over shared records: the latest records of a model or segment, by count and age, with exact totals.

No I/O, no clock: `now` is passed in. Not thread-safe.

A record has one slot, however many windows it is in; a window is an order of slots, by event time, then by arrival. A late
record moves four bytes per later record and no vector. A window's clock is its largest event time: without new records,
none expire. Records are measured on demand, all windows together: those that came and went in between never are.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.core.calibration import Calibration
from monitor.core.change import EvidenceTable
from monitor.core.decisions import DecidedBy
from monitor.core.scores import MOST_RECORDS, MOST_TOGETHER, Booleans, Floats, Integers, Singles
from monitor.core.totals import (
    STREAMS,
    Gauge,
    Marks,
    MeasuredWindows,
    Numbers,
    TotalsTable,
    mean_confidences,
)

Slots = NDArray[np.int32]

_SLOT_BYTES = 8 + 8 + 8 + 1 + 4
"""Event time, arrival number, two derived numbers, the list of free slots."""
_BITS_BYTES, _ROW_BYTES, _ORDER_BYTES, _DECIDED_BYTES = 1, 4, 4, 4
"""By place, by split, in each window, and where records decide."""
# Spare room behind the order, so that it is compacted rarely.
_SLACK = 0.25
_FEWEST_SLOTS = 1024

# What a record is in a window: whether it is in it, and in which of its totals it is counted.
# In bits: inside, in the sums, in the raw curve, in the scaled curve; and whether it is still to count as evidence.
_INSIDE, _CURVES, _ALL_BITS, _EVIDENCE = 1, (4, 8), 15, 16

# Probabilities of records that left but are still counted; beyond that they are subtracted at once.
_MOST_LEFT_NUMBERS = 1 << 18
# Vectors are copied in pieces, to bound memory.
_GATHERED_NUMBERS = 1 << 19
_GATHERED_RECORDS = MOST_TOGETHER


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a window: the last `records`, those of the last `age_seconds`, or both."""

    records: int | None = None
    age_seconds: float | None = None
    tolerance_seconds: float = 300.0
    """How far an event time may be ahead of its arrival."""
    most_records: int = 1_000_000
    """The limit on records if only the age is limited."""

    @property
    def capacity(self) -> int:
        """The maximum number of records."""
        return self.most_records if self.records is None else self.records

    def believed(self, at: Floats, now: float) -> tuple[Floats, int]:
        """Return event times with unknown and future ones replaced by `now`, and the number of future ones."""
        unknown, future = np.isnan(at), at > now + self.tolerance_seconds
        return np.where(unknown | future, now, at), int(np.count_nonzero(future))


@dataclass(frozen=True, slots=True)
class Added:
    """The result of adding a batch, in records."""

    entered: int = 0
    late: int = 0
    """Older than the window; not added."""
    future: int = 0
    """Beyond arrival plus tolerance, also after the clock was set back; stamped with `now`."""
    evicted: int = 0
    """Older records that were removed."""

    def __add__(self, other: "Added") -> "Added":
        """Return the sum."""
        return Added(
            self.entered + other.entered,
            self.late + other.late,
            self.future + other.future,
            self.evicted + other.evicted,
        )


class SharedRecords:
    """The records of all windows of a model, one slot each, and the totals of the windows.

    A record is in at most one window of each `place`: place 0 is the window of all records, in row 0 of the totals, and each
    split into segments is another.
    """

    def __init__(self, gauge: Gauge, bounds: Bounds, places: int = 1, evidence: EvidenceTable | None = None) -> None:
        self.gauge, self.bounds = gauge, bounds
        self.table = TotalsTable(gauge)
        self.evidence = evidence
        """The evidence of changes, over all shards; None if nothing looks for them."""
        self.evidence_rows: Integers = np.zeros(0, dtype=np.int64)
        """By row of the totals, that of the evidence."""
        self.next_arrival = 0
        """The number of the next record that arrives."""
        self.vectors = np.empty((0, gauge.calibration.classes), dtype=np.float32)
        self.decided: Slots | None = None
        """The classes that records name, if they decide."""
        if gauge.calibration.decision.by is DecidedBy.FIELD:
            self.decided = np.empty(0, dtype=np.int32)
        self.at = np.empty(0)
        self.arrival = np.empty(0, dtype=np.int64)
        self._denominators = np.empty(0)
        self._marks = np.empty(0, dtype=np.uint8)
        self._bits = np.empty((places, 0), dtype=np.uint8)
        self._rows = np.empty((places - 1, 0), dtype=np.int32)
        # A stack of `_idle` free slots.
        self._free, self._idle = np.empty(0, dtype=np.int32), 0
        self.clock = -math.inf
        """The largest clock of its windows."""
        self._waiting = False
        """Whether records may be unmeasured that are not in the queue."""
        self._queue: Integers = np.empty(0, dtype=np.int64)
        self._left = 0
        self._piece = max(1, min(_GATHERED_RECORDS, _GATHERED_NUMBERS // gauge.calibration.classes))
        self._freed: list[Numbers] = []

    # Slots.

    def allot(self, vectors: Singles, at: Floats, arrival: Integers, decided: Integers | None = None) -> Slots:
        """Return new slots with these records, in no window yet."""
        self._make_room(len(at))
        self._idle -= len(at)
        slots = self._free[self._idle : self._idle + len(at)].copy()
        held = _index(slots)
        self.vectors[held], self.at[held], self.arrival[held] = vectors, at, arrival
        self._denominators[held] = 0.0
        if self.decided is not None and decided is not None:
            self.decided[held] = decided
        return slots

    def let_in(self, place: int, slots: Slots, rows: Integers | int, bits: Marks | int = _INSIDE) -> None:
        """Call when records enter windows of one place, or count there as evidence."""
        self._bits[place, slots] = bits
        if place:
            self._rows[place - 1, slots] = rows
        self._waiting = True

    def let_out(self, place: int, slots: Slots) -> None:
        """Call when records leave windows of one place."""
        bits = self._bits[place, slots] & ~np.uint8(_INSIDE)
        self._bits[place, slots] = bits
        self._left += int(np.count_nonzero(bits))
        self._waiting = True
        self._note_freed(slots)
        self._release_unused(slots)

    def never_entered(self, arrival: Integers) -> None:
        """Call for records that were too late for every window."""
        if len(arrival):
            self._freed.append(np.asarray(arrival, dtype=np.int64))

    def count_elsewhere(self, place: int, slots: Slots, rows: Integers) -> None:
        """Call for records that are too late for a window, but count there as evidence."""
        self.let_in(place, slots, rows, _EVIDENCE)
        self._left += len(slots)

    def counts_in(self, window: "SlidingWindow", row: int) -> None:
        """Let a window count as evidence in a row."""
        if window.row >= len(self.evidence_rows):
            self.evidence_rows = np.concatenate([self.evidence_rows, np.zeros(window.row + 8, dtype=np.int64)])
        self.evidence_rows[window.row] = row

    def settle_evidence(self) -> None:
        """Count what is still to count as evidence."""
        self._settle(np.bitwise_or.reduce(self._bits, axis=0) & _EVIDENCE)

    def drop(self, window: "SlidingWindow") -> None:
        """Remove the window of a segment, with its totals."""
        place, slots = window.place, window.slots
        of_window = self._rows[place - 1] == window.row
        # What has left it before may still be counted.
        left = of_window & (self._bits[place] & _INSIDE == 0) & (self._bits[place] != 0)
        self._left -= int(np.count_nonzero(left))
        self._bits[place, left] = 0
        self._release_unused(np.flatnonzero(left).astype(np.int32))
        self._bits[place, slots] = 0
        self._note_freed(slots)
        self._release_unused(slots)
        self.table.release(window.row)

    def take_freed(self) -> Numbers:
        """Return the arrival numbers, ascending, of records that have left every window since the last call."""
        freed, self._freed = self._freed, []
        return np.sort(np.concatenate(freed)) if freed else np.empty(0, dtype=np.int64)

    def settle_left(self) -> None:
        """Subtract records that have left, if they take much memory."""
        if self._left * self.vectors.shape[1] > _MOST_LEFT_NUMBERS:
            self._settle(np.logical_or.reduce((self._bits & _INSIDE == 0) & (self._bits != 0), axis=0))

    def _settle(self, these: NDArray[Any]) -> None:
        slots = self._by_windows(np.flatnonzero(these)).astype(np.int32)
        for start in range(0, len(slots), self._piece):
            self._measure(slots[start : start + self._piece])

    def inside(self, slots: Integers | slice) -> Booleans:
        """Return by place and slot which records are in a window."""
        return np.asarray(self._bits[:, slots] & _INSIDE != 0)

    def rows(self, place: int, slots: Slots) -> Integers:
        """Return the rows of the windows of records at a place other than 0."""
        return np.asarray(self._rows[place - 1, slots])

    def _note_freed(self, slots: Slots) -> None:
        """Note which records, that have just left a window, are in none now."""
        gone = slots[np.bitwise_or.reduce(self._bits.take(slots, axis=1), axis=0) & _INSIDE == 0]
        if len(gone):
            self._freed.append(self.arrival[gone])

    def _release_unused(self, slots: Slots) -> None:
        self._release(slots[np.bitwise_or.reduce(self._bits.take(slots, axis=1), axis=0) == 0])

    def _release(self, slots: Slots) -> None:
        self._free[self._idle : self._idle + len(slots)] = slots
        self._idle += len(slots)
        self.arrival[slots] = -1

    def reserve(self, count: int) -> None:
        """Make room for so many more records at once: growing costs time."""
        if self._idle < count:
            self._resize(len(self.at) - self._idle + count)

    def _make_room(self, count: int) -> None:
        if self._idle < count:
            known = len(self.at)
            # Doubling, then by an eighth of millions: windows that are not full take at most twice the memory of their records.
            grown = known + min(known, max(known >> 3, 1 << 18))
            self._resize(max(grown, known - self._idle + count, _FEWEST_SLOTS))

    def _resize(self, slots: int) -> None:
        known = len(self.at)
        arrays = (self.vectors, self.decided, self.at, self.arrival, self._denominators, self._marks, self._free)
        for array in arrays:
            if array is not None:
                array.resize((slots, *array.shape[1:]), refcheck=False)
        for name in ("_bits", "_rows"):
            old = getattr(self, name)
            grown = np.zeros((len(old), slots), dtype=old.dtype)
            grown[:, :known] = old
            setattr(self, name, grown)
        self.arrival[known:] = -1
        self._free[self._idle : self._idle + slots - known] = np.arange(known, slots)
        self._idle += slots - known

    # Measuring.

    def measure_some(self, limit: int) -> bool:
        """Measure at most `limit` waiting records, fewer of many classes; return whether there are more."""
        if not len(self._queue):
            if not self._waiting:
                return False
            self._queue, self._waiting = self._by_windows(np.flatnonzero(_unsettled(self._bits))), False
        some = self._queue[: min(limit, self._piece)]
        # Some may have been measured, or have left, since they were found.
        self._measure(some[_unsettled(self._bits.take(some, axis=1))].astype(np.int32))
        self._queue = self._queue[len(some) :]
        return self._waiting or len(self._queue) > 0

    def _by_windows(self, slots: Integers) -> Integers:
        """Return slots by the windows of their records, so that many of the same are measured together."""
        if not len(self._rows):
            return slots
        rows = self._rows.take(slots, axis=1)
        # Two bytes are sorted by radix.
        keys = rows.astype(np.uint16) if self.table.rows <= 1 << 16 else rows
        return slots[np.lexsort((*self._bits.take(slots, axis=1), *keys))]

    def rebuild(self, stream: int, window: "SlidingWindow", asked: int) -> None:
        """Empty the curve of a window, to be measured again in a range around a threshold. Nothing else is waiting."""
        self.table.clear(stream, window.row, asked)
        self._bits[window.place, window.slots] &= ~np.uint8(_CURVES[stream])
        self._waiting = True

    def _measure(self, slots: Slots) -> None:
        """Count records where they are, and no longer where they were."""
        if not len(slots):
            return
        gauge, table, held = self.gauge, self.table, _index(slots)
        vectors = self.vectors[held] if isinstance(held, slice) else self.vectors.take(held, axis=0)
        new = np.flatnonzero(self._denominators[held] == 0.0)
        if len(new) == len(slots):
            self._denominators[held], self._marks[held] = gauge.derive(vectors)
        elif len(new):
            self._denominators[slots[new]], self._marks[slots[new]] = gauge.derive(vectors[new])
        denominators = self._denominators[held]
        # Neighbours that are in the same windows, and counted in the same, are added up once for all windows.
        starts, group = _runs([some[held] for some in (*self._bits, *self._rows)])
        bits, rows = self._bits[:, slots[starts]].astype(np.int64), np.zeros((len(self._bits), len(starts)), np.int64)
        rows[1:] = self._rows[:, slots[starts]]
        inside = bits & _INSIDE
        summed, *on_curves = (inside - (bits >> bit & 1) for bit in (1, 2, 3))
        decided = None if self.decided is None else self.decided[held]
        measures = gauge.measure(vectors, denominators, self._marks[held], decided)
        sums = gauge.summed(measures, starts)
        for stream, signs in enumerate(on_curves):
            table.choose_ranges(stream, sums, rows, signs)
        both, scaled = table.steps(vectors, measures, denominators, group, rows, on_curves)
        taken = (bits & _EVIDENCE) != 0
        values = gauge.member_values(measures, scaled) if np.count_nonzero(taken) else None
        try:
            table.add(sums, rows, summed)
            table.add_counts(measures, group, rows, summed)
            table.add_performance(measures.performance, group, rows, summed)
            table.add_sets(both, rows, summed)
            for stream, steps in enumerate(both):
                table.add_steps(stream, steps, rows, on_curves[stream])
            # Last: it cannot be undone, and is added in one step.
            if self.evidence is not None and values is not None:
                self.evidence.add(values, starts, self.evidence_rows[rows], taken)
        except BaseException:
            self._start_again()
            raise
        records = np.diff(starts, append=len(slots))
        self._left -= int(records @ np.count_nonzero((inside == 0) & (bits != 0), axis=0))
        for some, settled in zip(self._bits, (inside * _ALL_BITS).astype(np.uint8), strict=True):
            some[held] = settled[group]
        self._release(slots[~np.logical_or.reduce(inside, axis=0)[group]])

    def _start_again(self) -> None:
        """Forget all totals after a failure halfway: everything is measured again."""
        self.table.zero()
        held = np.logical_or.reduce(self._bits != 0, axis=0)
        self._bits &= np.uint8(_INSIDE | _EVIDENCE)
        self._left, self._waiting = int(np.count_nonzero(self._bits == _EVIDENCE)), True
        self._release(np.flatnonzero(held & ~np.logical_or.reduce(self._bits != 0, axis=0)).astype(np.int32))


def _index(slots: Slots) -> Slots | slice:
    """Return slots as an index: a slice if they are consecutive, which copies less."""
    consecutive = len(slots) > 0 and bool(np.all(slots[1:] - slots[:-1] == 1))
    return slice(int(slots[0]), int(slots[-1]) + 1) if consecutive else slots


def _runs(columns: Sequence[NDArray[Any]]) -> tuple[Integers, Integers]:
    """Return where runs of equal neighbours start, and the number of the run of each."""
    starts = np.zeros(len(columns[0]), dtype=np.bool_)
    starts[:1] = True
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def _unsettled(bits: Marks) -> Booleans:
    """Return which records are not counted as where they are: their bits are neither all set nor none."""
    return np.asarray(
        np.bitwise_or.reduce(((bits + np.uint8(1)) & np.uint8(_ALL_BITS - 1)) | (bits & np.uint8(_EVIDENCE)), axis=0)
        != 0
    )


class SlidingWindow:
    """The latest records of one model and segment."""

    def __init__(self, gauge: Gauge, bounds: Bounds, records: SharedRecords | None = None, place: int = 0) -> None:
        self.gauge = gauge
        self.bounds = bounds
        self.clock = -math.inf
        """The largest event time so far."""
        self.records = records or SharedRecords(gauge, bounds)
        self.place = place
        self.row = self.records.table.new()
        """Its row in the totals."""
        self._slots = np.empty(0, dtype=np.int32)
        self._start = self._end = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return self._end - self._start

    @property
    def slots(self) -> Slots:
        """The slots of its records, oldest first. A view: do not keep it."""
        return self._slots[self._start : self._end]

    @property
    def times(self) -> Floats:
        """Event times, oldest first."""
        return self.records.at[self.slots]

    @property
    def oldest(self) -> float | None:
        """The event time of the oldest record."""
        return float(self.records.at[self._slots[self._start]]) if len(self) else None

    @property
    def newest(self) -> float | None:
        """The event time of the newest record."""
        return float(self.records.at[self._slots[self._end - 1]]) if len(self) else None

    def vectors(self) -> Singles:
        """Return the vectors, oldest first."""
        return self.records.vectors[self.slots]

    def decided(self) -> Integers | None:
        """Return the classes that the records name, oldest first, if they decide."""
        return None if self.records.decided is None else self.records.decided[self.slots]

    def totals(self) -> MeasuredWindows:
        """Return a snapshot of the totals."""
        return measured(self.gauge, [[self]])

    def add(self, vectors: Singles, at: Floats, now: float, decided: Integers | None = None) -> Added:
        """Add a batch of vectors with their event times; an unknown time, NaN, becomes the arrival time `now`.

        For a window alone. The result does not depend on how records are split into batches. An invalid batch raises before
        anything changes.
        """
        return enter(self.records, [self], vectors, at, now, [Entering([self])], decided)[0]

    def expire(self, clock: float) -> int:
        """Evict what is too old by a clock ahead of the window's; return the number of evicted records."""
        self.clock = max(self.clock, clock)
        # It may be wrong: when it is set back, the window's must follow.
        self.records.clock = max(self.records.clock, self.clock)
        evicted = self._slots[self._start : self._start + self._expired()].copy()
        self._start += len(evicted)
        if len(evicted):
            self.records.let_out(self.place, evicted)
        return len(evicted)

    def make_way(self, at: Floats) -> tuple[int, Slots]:
        """Remove what a sorted batch displaces; return how many of the batch are too late, and the slots removed."""
        if not len(at):
            return 0, self._slots[:0]
        self.clock = max(self.clock, float(at[-1]))
        expired = late = 0
        if self.bounds.age_seconds is not None:
            expired = self._expired()
            late = int(np.searchsorted(at, self.clock - self.bounds.age_seconds))
        excess = len(self) - expired + len(at) - late - self.bounds.capacity
        if excess > 0:
            from_window = self._crowded_out(at[late:], expired, excess)
            expired, late = expired + from_window, late + excess - from_window
        evicted = self._slots[self._start : self._start + expired]
        self._start += expired
        return late, evicted

    def take(self, slots: Slots, at: Floats) -> None:
        """Add records, sorted by time and newer than those of an earlier batch with the same time."""
        if not len(slots):
            return
        self._make_room(len(slots))
        newest, end = self.newest, self._end + len(slots)
        self._slots[self._end : end] = slots
        if newest is not None and at[0] < newest:
            place = self._start + bisect_right(self.slots, at[0], key=self.records.at.__getitem__)
            merged = self._slots[place:end]
            self._slots[place:end] = merged[np.argsort(self.records.at[merged], kind="stable")]
        self._end = end

    def restamped(self) -> None:
        """Call after times of records were changed."""
        slots = self.slots
        slots[:] = slots[np.lexsort((self.records.arrival[slots], self.records.at[slots]))]
        newest = self.newest
        self.clock = -math.inf if newest is None else newest

    def _expired(self) -> int:
        """Return how many records are too old by the window's clock."""
        if self.bounds.age_seconds is None or not len(self):
            return 0
        # A record exactly at the age limit stays.
        horizon, at = self.clock - self.bounds.age_seconds, self.records.at
        if at[self._slots[self._start]] >= horizon:
            return 0
        return bisect_left(self.slots, horizon, key=at.__getitem__)

    def _crowded_out(self, at: Floats, expired: int, excess: int) -> int:
        """Return how many of the `excess` oldest records, of the window and of a batch, are in the window."""
        newest = self.newest
        if newest is None or at[0] >= newest:
            return min(len(self) - expired, excess)
        oldest = self.records.at[self.slots[expired : expired + excess]]
        # Stable: of equal times, those in the window go first.
        ranked = np.argsort(np.concatenate([oldest, at[:excess]]), kind="stable")[:excess]
        return int(np.count_nonzero(ranked < len(oldest)))

    def _make_room(self, count: int) -> None:
        held, wanted = len(self), len(self) + count
        if self._end + count > len(self._slots):
            room = wanted + int(min(wanted, self.bounds.capacity) * _SLACK)
            order = np.empty(room, dtype=np.int32)
            order[:held] = self.slots
            self._slots, self._start, self._end = order, 0, held


@dataclass(frozen=True, slots=True)
class Entering:
    """Which windows of one place the records of a batch enter."""

    windows: Sequence[SlidingWindow]
    codes: Integers | None = None
    """By record the index of its window, -1 for none; None if all enter the first."""


def enter(
    records: SharedRecords,
    known: Iterable[SlidingWindow],
    vectors: Singles,
    at: Floats,
    now: float,
    places: Sequence[Entering],
    decided: Integers | None = None,
    counted: Booleans | None = None,
) -> list[Added]:
    """Add a batch to some of the `known` windows, which are all windows of the records; return the result of each, in order.

    `decided` are the classes that the records name; required if they decide, otherwise ignored. `counted` are the records
    that count as evidence, whether windows hold them or not; None for all.
    """
    _check(records.gauge, vectors, at, now)
    decided = None if records.decided is None else _checked_decisions(decided, vectors)
    bounds = records.bounds
    restamped = restamp(records, known, now + bounds.tolerance_seconds, now)
    future = at > now + bounds.tolerance_seconds
    at, future_records = bounds.believed(at, now)
    if len(at):
        records.clock = max(records.clock, float(at.max()))
    order = np.arange(len(at)) if np.all(at[1:] >= at[:-1]) else np.argsort(at, kind="stable")
    if counted is None or records.evidence is None:
        counted = np.full(len(at), records.evidence is not None)
    arrival, added = records.next_arrival, list[Added]()
    entered, kept = np.zeros((2, len(at)), dtype=np.bool_)
    records.next_arrival += len(at)
    entering: list[tuple[Integers, Floats, list[_Part]]] = []
    for place in places:
        rows, edges = _by_window(place, order)
        times, some, evicted = at[rows], [], []
        for window, start, end in zip(place.windows, edges, edges[1:], strict=False):
            late, gone = window.make_way(times[start:end])
            evicted.append(gone)
            some.append(_Part(window, start, start + late, end))
            kept[rows[start : start + late]] |= counted[rows[start : start + late]]
            entered[rows[start + late : end]] = True
            ahead = int(np.count_nonzero(future[rows[start:end]])) if future_records else 0
            added.append(Added(end - start - late, late, ahead + restamped.get(window.row, 0), len(gone)))
        records.let_out(place.windows[0].place, np.concatenate(evicted))
        entering.append((rows, times, some))
    slots = np.empty(len(at), dtype=np.int32)
    kept |= entered
    if kept.all():
        slots[:] = records.allot(vectors, at, arrival + np.arange(len(at)), decided)
    else:
        arrivals, decisions = arrival + np.flatnonzero(kept), None if decided is None else decided[kept]
        slots[kept] = records.allot(vectors[kept], at[kept], arrivals, decisions)
    if not entered.all():
        records.never_entered(arrival + np.flatnonzero(~entered))
    for rows, times, some in entering:
        _take(records, slots[rows], times, some, counted[rows])
    records.settle_left()
    return added


class _Part(NamedTuple):
    """The records of a batch for one window, by place in an order: the first are too late for it."""

    window: SlidingWindow
    first: int
    start: int
    end: int


def _take(records: SharedRecords, slots: Slots, times: Floats, parts: Sequence[_Part], counted: Booleans) -> None:
    """Let the records of a batch into the windows of one place; late ones may still count there as evidence."""
    place, all_of = parts[0].window.place, slice(parts[0].first, parts[-1].end)
    rows = np.repeat([part.window.row for part in parts], [part.end - part.first for part in parts])
    inside = np.zeros(len(slots), dtype=np.bool_)
    for part in parts:
        inside[part.start : part.end] = True
        part.window.take(slots[part.start : part.end], times[part.start : part.end])
    slots, inside, counted = slots[all_of], inside[all_of], counted[all_of]
    bits = counted * np.uint8(_EVIDENCE) | np.uint8(_INSIDE)
    records.let_in(place, slots[inside], rows[inside], bits[inside])
    if (late := counted & ~inside).any():
        records.count_elsewhere(place, slots[late], rows[late])


def _by_window(place: Entering, order: Integers) -> tuple[Integers, list[int]]:
    """Return the records by window, in order within each, and where each window starts and the last one ends."""
    if place.codes is None:
        return order, [0, len(order)]
    grouped, edges = by_code(place.codes[order], len(place.windows))
    return order[grouped], edges.tolist()


def by_code(codes: Integers, size: int) -> tuple[Integers, Integers]:
    """Return places by code, in order within each, and where each code starts and the last one ends; codes may be -1."""
    counts = np.bincount(codes + 1, minlength=size + 1)
    # Two bytes are sorted by radix.
    small = (codes + 1).astype(np.uint16) if size < 1 << 16 else codes
    return np.argsort(small, kind="stable"), np.cumsum(counts)


def restamp(records: SharedRecords, known: Iterable[SlidingWindow], limit: float, now: float) -> dict[int, int]:
    """Stamp records ahead of `limit` with `now`: the clock was set back. Returns how many, by row of their windows."""
    found: dict[int, int] = {}
    if records.clock <= limit:
        return found
    records.clock = -math.inf
    known = list(known)
    for window in known:
        if window.clock > limit:
            found[window.row] = int(np.count_nonzero(window.times > limit))
    records.at[records.at > limit] = now
    for window in known:
        if window.row in found:
            window.restamped()
        records.clock = max(records.clock, window.clock)
    return found


def _check(gauge: Gauge, vectors: Singles, at: Floats, now: float) -> None:
    classes = gauge.calibration.classes
    if vectors.shape != (len(at), classes) or at.ndim != 1:
        found = f"shapes {vectors.shape} and {at.shape}"
        raise ValueError(f"batch: expected a vector of {classes} and a time for each record, found {found}")
    if not math.isfinite(now):
        raise ValueError(f"now: expected a finite time, found {now!r}")


def _checked_decisions(decided: Integers | None, vectors: Singles) -> Integers:
    if decided is None or decided.shape != vectors.shape[:1]:
        found = "none" if decided is None else f"shape {decided.shape}"
        raise ValueError(f"batch: expected the decided class of each record, found {found}")
    if len(decided) and not 0 <= decided.min() <= decided.max() < vectors.shape[1]:
        found = f"{decided.min()} to {decided.max()}"
        raise ValueError(f"batch: expected decided classes from 0 to {vectors.shape[1] - 1}, found {found}")
    return decided


Parts = Sequence[Sequence[SlidingWindow]]
"""The windows of each segment: one for every shard that has it."""


class _Shard:
    """Those of some windows that share records."""

    def __init__(self, records: SharedRecords, windows: list[SlidingWindow], parts: list[int]) -> None:
        self.records, self.windows, self.parts = records, windows, parts
        self.rows = np.array([window.row for window in windows])
        self.cells: Integers = self.rows


class _Merged:
    """The totals of segments over all shards."""

    def __init__(self, gauge: Gauge, parts: Parts) -> None:
        self._gauge, self._parts = gauge, len(parts)
        shards: dict[SharedRecords, tuple[list[SlidingWindow], list[int]]] = defaultdict(lambda: ([], []))
        for part, some in enumerate(parts):
            for window in some:
                windows, places = shards[window.records]
                windows.append(window)
                places.append(part)
        self._shards = [_Shard(records, *both) for records, both in shards.items()]
        # One shard that has every part once needs no merging.
        self._alone = len(shards) == 1 and self._shards[0].parts == list(range(len(parts)))

    def measure_some(self, limit: int) -> bool:
        """Measure some of what is missing; return whether there is more."""
        if any(shard.records.measure_some(limit) for shard in self._shards):
            return True
        gauge = self._gauge
        self._sums = self._total(gauge.sums, lambda shard: shard.records.table.sums.take(shard.rows, axis=0))
        self._confidences = mean_confidences(self._sums)
        every = gauge.asked(STREAMS, self._confidences)
        more = False
        for shard in self._shards:
            asked = every if self._alone else every[:, shard.parts]
            shard.cells, outside = shard.records.table.cells_at(shard.rows, asked)
            if np.count_nonzero(outside):
                more = True
                for stream, index in np.argwhere(outside).tolist():
                    shard.records.rebuild(stream, shard.windows[index], int(asked[stream, index]))
        return more

    def measured(self) -> MeasuredWindows:
        """Return the totals after everything was measured."""
        records = self._sums[:, 0]
        if np.count_nonzero(records > MOST_RECORDS):
            found = records.max()
            raise OverflowError(f"totals: expected at most {MOST_RECORDS:,} records together, found {found:,}")
        gauge = self._gauge
        sets = self._total(gauge.totals - gauge.sums, lambda one: one.records.table.sets_at(one.rows, one.cells))
        totals = np.concatenate([self._sums, sets], axis=1)
        counts = self._total(
            gauge.counts,
            lambda one: one.records.table.counts.take(one.rows, axis=0).astype(np.int64),
        )
        performance = self._total(
            0 if gauge.performance is None else gauge.performance.totals,
            lambda one: one.records.table.performance.take(one.rows, axis=0),
        )
        return MeasuredWindows(gauge, totals, self._confidences, counts, performance)

    def _total(self, width: int, of: Callable[[_Shard], Numbers]) -> Numbers:
        if self._alone:
            return of(self._shards[0])
        total = np.zeros((self._parts, width), dtype=np.int64)
        for shard in self._shards:
            total[shard.parts] += of(shard)
        return total


def measured_after(gauge: Gauge, parts: Parts, limit: int) -> MeasuredWindows | None:
    """Measure about `limit` records of what `measured` needs; return the totals if that was all."""
    merged = _Merged(gauge, parts)
    return None if merged.measure_some(limit) else merged.measured()


def measured(gauge: Gauge, parts: Parts) -> MeasuredWindows:
    """Return the totals of segments over all their shards, after measuring what is left."""
    merged = _Merged(gauge, parts)
    while merged.measure_some(_GATHERED_RECORDS):
        pass
    return merged.measured()


def bytes_per_record(calibration: Calibration, splits: int = 0) -> float:
    """Return the memory of a record in a full window that is in no other, of a model with some splits into segments."""
    slot = 4 * calibration.classes + _SLOT_BYTES + _BITS_BYTES + splits * (_BITS_BYTES + _ROW_BYTES)
    slot += _DECIDED_BYTES * (calibration.decision.by is DecidedBy.FIELD)
    return slot + _ORDER_BYTES * (1.0 + _SLACK)


def bytes_per_window(gauge: Gauge, bounds: Bounds, splits: int = 0) -> int:
    """Return the maximum memory of one window."""
    return gauge.bytes_per_window + int(bounds.capacity * bytes_per_record(gauge.calibration, splits))


def rebuilt(
    gauge: Gauge, bounds: Bounds, vectors: Singles, at: Floats, decided: Integers | None = None
) -> SlidingWindow:
    """Return a window of records, in the order of their arrival."""
    window = SlidingWindow(gauge, bounds)
    window.add(vectors, at, float(np.max(at)) if len(at) else 0.0, decided)
    return window
