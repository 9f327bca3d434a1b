"""A sliding window: the latest records of one model and segment, by count and age, with exact running totals.

No I/O, no clock: `now` is passed in. Not thread-safe.

Records are ordered by event time, then by arrival. A vector stays in its slot; the order is a separate list of times and
slots, so that a late record moves twelve bytes per later record and no vector. The window's clock is its largest event
time: without new records, none expire.
"""

import math
from dataclasses import dataclass

import numpy as np

from monitor.core.scores import Floats, Singles, Totals
from monitor.core.totals import Gauge, RunningTotals, WindowTotals

_ORDER_BYTES = 8 + 4
_FREE_BYTES = 4
_STATE_BYTES = 1
# Spare room behind the order, so that it is compacted rarely.
_SLACK = 0.25


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


class SlidingWindow:
    """The latest records of one model and segment."""

    def __init__(self, gauge: Gauge, bounds: Bounds) -> None:
        self.gauge = gauge
        self.bounds = bounds
        self.clock = -math.inf
        """The largest event time so far."""
        self._measuring = RunningTotals(gauge)
        self._vectors = np.empty((0, gauge.calibration.classes), dtype=np.float32)
        # A stack of `_idle` free slots.
        self._free, self._idle = np.empty(0, dtype=np.int32), 0
        self._times = np.empty(0, dtype=np.float64)
        self._slots = np.empty(0, dtype=np.int32)
        self._start = self._end = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return self._end - self._start

    @property
    def times(self) -> Floats:
        """Event times, oldest first. A view: do not keep it."""
        return self._times[self._start : self._end]

    def vectors(self) -> Singles:
        """Return the vectors, oldest first."""
        return self._vectors[self._slots[self._start : self._end]]

    def totals(self) -> WindowTotals:
        """Return a snapshot of the totals."""
        return WindowTotals(self.gauge, self._measuring.totals(self._vectors))

    def add(self, vectors: Singles, at: Floats, now: float) -> Added:
        """Add a batch of vectors with their event times; an unknown time, NaN, becomes the arrival time `now`.

        The result does not depend on how records are split into batches. An invalid batch raises before anything changes.
        """
        self._check(vectors, at, now)
        restamped = self._restamp_future(now)
        at, future = self.bounds.believed(at, now)
        order = np.argsort(at, kind="stable")
        at = at[order]
        clock = max(self.clock, float(at[-1])) if len(at) else self.clock
        expired, too_old = self._beyond_age(at, clock)
        crowded_out, too_many = self._beyond_count(at[too_old:], expired)
        late, evicted = too_old + too_many, expired + crowded_out
        self._evict(evicted)
        self._enter(vectors[order[late:]], at[late:])
        self.clock = clock
        return Added(len(at) - late, late, future + restamped, evicted)

    def expire(self, clock: float) -> int:
        """Evict what is too old by a clock ahead of the window's; return the number of evicted records."""
        self.clock = max(self.clock, clock)
        expired, _ = self._beyond_age(self.times[:0], self.clock)
        self._evict(expired)
        return expired

    def would_restamp(self, now: float) -> bool:
        """Return whether adding a batch at `now` would change the times of records in the window."""
        return self.clock > now + self.bounds.tolerance_seconds

    def load(self, vectors: Singles, at: Floats, totals: WindowTotals) -> bool:
        """Load records with known totals, in arrival order, into an empty window.

        Evicted records may be among them. Returns False, without effect, if the totals do not match.
        """
        order = np.argsort(at, kind="stable")
        ranked = at[order]
        clock = float(ranked[-1]) if len(ranked) else -math.inf
        _, too_old = self._beyond_age(ranked, clock)
        start = max(too_old, len(ranked) - self.bounds.capacity)
        if len(self) or len(ranked) - start != totals.records or totals.gauge is not self.gauge:
            return False
        self._enter(vectors[order[start:]], ranked[start:], totals.vector)
        self.clock = clock
        return True

    def _check(self, vectors: Singles, at: Floats, now: float) -> None:
        classes = self.gauge.calibration.classes
        if vectors.shape != (len(at), classes) or at.ndim != 1:
            found = f"shapes {vectors.shape} and {at.shape}"
            raise ValueError(f"batch: expected a vector of {classes} and a time for each record, found {found}")
        if not math.isfinite(now):
            raise ValueError(f"now: expected a finite time, found {now!r}")

    def _restamp_future(self, now: float) -> int:
        """Stamp records ahead of `now` with `now`: the clock was set back since they arrived."""
        if not self.would_restamp(now):
            return 0
        limit = now + self.bounds.tolerance_seconds
        ahead = int(np.searchsorted(self.times, limit, side="right"))
        moved = np.where(np.arange(len(self)) < ahead, self.times, now)
        order = np.argsort(moved, kind="stable")
        self._times[self._start : self._end] = moved[order]
        self._slots[self._start : self._end] = self._slots[self._start : self._end][order]
        self.clock = float(self.times[-1]) if len(self) else -math.inf
        return len(self) - ahead

    def _beyond_age(self, at: Floats, clock: float) -> tuple[int, int]:
        """Return how many records of the window and of the sorted batch are too old."""
        if self.bounds.age_seconds is None:
            return 0, 0
        # A record exactly at the age limit stays.
        horizon = clock - self.bounds.age_seconds
        return int(np.searchsorted(self.times, horizon)), int(np.searchsorted(at, horizon))

    def _beyond_count(self, at: Floats, expired: int) -> tuple[int, int]:
        """Return how many of the oldest records of the window and of the batch exceed the capacity."""
        excess = len(self) - expired + len(at) - self.bounds.capacity
        if excess <= 0:
            return 0, 0
        oldest = self.times[expired : expired + excess]
        # Stable: of equal times, those in the window go first.
        ranked = np.argsort(np.concatenate([oldest, at[:excess]]), kind="stable")[:excess]
        from_window = int(np.count_nonzero(ranked < len(oldest)))
        return from_window, excess - from_window

    def _evict(self, count: int) -> None:
        slots = self._slots[self._start : self._start + count]
        self._measuring.emptied(slots, self._vectors)
        self._free[self._idle : self._idle + count] = slots
        self._idle += count
        self._start += count

    def _enter(self, vectors: Singles, at: Floats, known: Totals | None = None) -> None:
        if len(at) == 0:
            return
        self._make_room(len(at))
        self._idle -= len(at)
        slots = self._free[self._idle : self._idle + len(at)]
        self._vectors[slots] = vectors
        place = self._start + int(np.searchsorted(self.times, at[0], side="right"))
        end = self._end + len(at)
        self._times[self._end : end], self._slots[self._end : end] = at, slots
        if place < self._end:
            ranked = np.argsort(self._times[place:end], kind="stable")
            self._times[place:end] = self._times[place:end][ranked]
            self._slots[place:end] = self._slots[place:end][ranked]
        self._end = end
        if known is None:
            self._measuring.filled(slots, self._vectors)
        else:
            self._measuring.known(slots, known)

    def _make_room(self, count: int) -> None:
        held, wanted = len(self), len(self) + count
        if self._idle < count:
            # Doubling: a window that is not full uses at most twice the memory of its records.
            known = len(self._vectors)
            slots = min(self.bounds.capacity, max(2 * known, wanted, 1024))
            grown, free = np.empty((slots, self._vectors.shape[1]), dtype=np.float32), np.empty(slots, dtype=np.int32)
            grown[:known] = self._vectors
            free[: self._idle] = self._free[: self._idle]
            free[self._idle : self._idle + slots - known] = np.arange(known, slots)
            self._measuring.grow(slots)
            self._vectors, self._free, self._idle = grown, free, self._idle + slots - known
        if self._end + count > len(self._times):
            room = max(wanted, int(len(self._vectors) * (1.0 + _SLACK)))
            times, order = np.empty(room), np.empty(room, dtype=np.int32)
            times[:held], order[:held] = self.times, self._slots[self._start : self._end]
            self._times, self._slots, self._start, self._end = times, order, 0, held


def bytes_per_record(classes: int) -> float:
    """Return the memory per record of a full window."""
    return 4 * classes + _ORDER_BYTES * (1.0 + _SLACK) + _FREE_BYTES + _STATE_BYTES


def bytes_per_window(gauge: Gauge, bounds: Bounds) -> int:
    """Return the maximum memory of one window."""
    return gauge.bytes_per_window + int(bounds.capacity * bytes_per_record(gauge.calibration.classes))


def rebuilt(gauge: Gauge, bounds: Bounds, vectors: Singles, at: Floats) -> SlidingWindow:
    """Return a window of records, oldest first."""
    window = SlidingWindow(gauge, bounds)
    window.add(vectors, at, now=float(np.max(at)) if len(at) else 0.0)
    return window
