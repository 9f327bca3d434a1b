"""All windows of one model and shard: one for all records, and one per segment.

No I/O, no clock.
"""

import itertools
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from monitor.core.change import BYTES_PER_WINDOW, EvidenceTable
from monitor.core.input_health import FAR_BEHIND_SECONDS
from monitor.core.record_columns import Records, Texts
from monitor.core.scores import Booleans, Floats, Integers, Singles
from monitor.core.totals import Gauge, Numbers
from monitor.core.window import (
    Added,
    Bounds,
    Entering,
    SharedRecords,
    SlidingWindow,
    by_code,
    bytes_per_record,
    bytes_per_window,
    enter,
)

Segment = tuple[tuple[str, str], ...]
"""Fields and their values: `(("site", "A"), ("scanner", "2"))`. A tuple, so that no value can imitate another segment."""

ALL: Segment = ()
"""The segment of all records of the model."""


def name_of(segment: Segment) -> str:
    """Return the name of a segment: `all`, `site=A`, `site=A,scanner=2`."""
    return ",".join(f"{field}={value}" for field, value in segment) or "all"


MOST_CHARACTERS = 200
"""The longest label value."""
_MARK = "~"
"""Precedes the digest of a value that was changed."""
_DIGEST_BYTES = 4


def label_value(text: str) -> str:
    """Return a string as a label value."""
    return _shown(text, text, ambiguous=False)


def segment_label(segment: Segment) -> str:
    """Return a segment as a label value."""
    # `site=A,scanner=2` may be two fields, or one field with an odd value.
    ambiguous = any(sign in part for pair in segment for part in pair for sign in ",=")
    return _shown(name_of(segment), repr(segment), ambiguous=ambiguous)


def quoted(value: str) -> str:
    """Return a label value in quotes, for the metrics page and PromQL."""
    escaped = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'"{escaped}"'


def _shown(text: str, identity: str, *, ambiguous: bool) -> str:
    plain = text.isprintable() and len(text) <= MOST_CHARACTERS and _MARK not in text
    if plain and not ambiguous:
        return text
    # Cleaning may make two values equal, and Prometheus rejects a page with a duplicate series. The digest depends only
    # on the value, so that a label is stable.
    digest = blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    printable = "".join(sign if sign.isprintable() else "_" for sign in text)
    return f"{printable[: MOST_CHARACTERS - len(digest) - 1]}{_MARK}{digest}"


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How records are split into segments, and the limit on segments."""

    split_by: tuple[tuple[str, ...], ...] = ()
    """Sets of fields: `(("site",), ("site", "scanner"))` makes a window per site and per scanner of a site."""
    most_segments: int = 200
    """Records of further segments are counted, but get no window."""
    forget_seconds: float | None = None
    """A segment without records for this long is removed."""

    def __post_init__(self) -> None:
        """Raise ValueError for invalid splits."""
        if any(not names or len(set(names)) < len(names) for names in self.split_by):
            raise ValueError(f"segments: expected sets of different fields, found {self.split_by!r}")
        if len({frozenset(names) for names in self.split_by}) < len(self.split_by):
            raise ValueError(f"segments: expected each set of fields once, found {self.split_by!r}")


Codes = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one model that arrive together, with the windows that they enter."""

    arrived: float
    """Arrival time."""
    at: Floats
    """Event times as the windows use them: no NaN, none in the future."""
    vectors: Singles
    segments: tuple[Segment, ...] = ()
    codes: Codes = field(default_factory=lambda: np.empty((0, 0), dtype=np.int32))
    """By record and split the index of its segment among `segments`, -1 for none; shape (records, splits).

    Every record enters the window of all records, unless that is among `segments`: then only those with its index.
    """
    decided: Integers | None = None
    """The class that each record names, if they decide."""
    counted: Booleans | None = None
    """Which records count as evidence of a change; None for all."""

    def taken(self, rows: Integers | slice) -> "Chunk":
        """Return some of the records."""
        decided = None if self.decided is None else self.decided[rows]
        counted = None if self.counted is None else self.counted[rows]
        codes = self.codes[rows]
        return replace(
            self, at=self.at[rows], vectors=self.vectors[rows], codes=codes, decided=decided, counted=counted
        )


@dataclass(frozen=True, slots=True)
class Admitted:
    """A batch assigned to the windows of a model."""

    chunk: Chunk | None
    """None for no records."""
    unstored: int = 0
    """Records of segments over the limit; they are only in the window of all records."""
    forgotten: list[Segment] = field(default_factory=list)
    """Idle segments to be removed for new ones."""
    late: int = 0
    """Records that are not in the chunk: later ones of the same batch fill all their windows."""
    without_segment: tuple[int, ...] = ()
    """By set of segment fields, how many records lack one of them."""
    whole: Chunk | None = None
    """With all records, also those that are not in the chunk."""


@dataclass(frozen=True, slots=True)
class Entered:
    """The result of a chunk that entered."""

    first: int
    """The arrival number of its first record; the others follow, including those too late for every window."""
    added: Mapping[Segment, Added]
    """By window, that of all records first."""


class ModelWindows:
    """The windows of one model and shard: each record is kept and measured once, for all windows that it is in."""

    def __init__(
        self,
        gauge: Gauge,
        bounds: Bounds,
        segmentation: Segmentation | None = None,
        *,
        version: str = "",
        versions_alike: bool = False,
        evidence: EvidenceTable | None = None,
    ) -> None:
        self._gauge, self._bounds = gauge, bounds
        self._segmentation = segmentation or Segmentation()
        # Without a version in the reference, every version counts.
        self._version = None if versions_alike or not version else version
        # The place of all records is 0.
        self._places = {names: place for place, names in enumerate(self._segmentation.split_by, 1)}
        self._evidence = evidence
        self._records = SharedRecords(gauge, bounds, 1 + len(self._places), evidence)
        self._windows: dict[Segment, SlidingWindow] = {}
        self._create(ALL, 0, -math.inf)
        self._last_seen: dict[Segment, float] = {}
        self._entered: Counter[Segment] = Counter()

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments, that of all records first."""
        return iter(self._windows)

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self._windows)

    def __contains__(self, segment: object) -> bool:
        """Return whether a segment has a window."""
        return segment in self._windows

    def __getitem__(self, segment: Segment) -> SlidingWindow:
        """Return a segment's window."""
        return self._windows[segment]

    def admit(self, records: Records, now: float) -> Admitted:
        """Assign a batch that arrived at `now` to windows without changing them, so that it can be committed first."""
        if not len(records):
            return Admitted(None)  # even an empty batch could restamp records
        idle, unstored = self._idle(now), 0
        known = set(self._last_seen)
        segments: list[Segment] = []
        without = [len(records)] * len(self._places)
        codes = np.full((len(records), len(self._places)), -1, dtype=np.int32)
        for split, names in enumerate(self._places):
            for segment, rows in rows_by_segment(names, records.fields):
                without[split] -= len(rows)
                if segment not in known and len(known) >= self._segmentation.most_segments:
                    # Idle segments are removed only when room is needed.
                    known -= set(idle) - set(segments)
                    if len(known) >= self._segmentation.most_segments:
                        unstored += len(rows)
                        continue
                known.add(segment)
                codes[rows, split] = len(segments)
                segments.append(segment)
        decided = None if self._records.decided is None else records.decided
        counted = None
        if self._evidence is not None:
            counted = self.in_time(records.at, now)
            if records.counted is not None:
                counted &= records.counted
        chunk = Chunk(now, records.at, records.vectors, tuple(segments), codes, decided, counted)
        forgotten = [segment for segment in idle if segment not in known]
        if len(records) <= self._bounds.capacity:
            return Admitted(chunk, unstored, forgotten, 0, tuple(without), chunk)
        rows = _lasting(chunk, self._bounds.capacity)
        if counted is not None:
            rows = np.union1d(rows, np.flatnonzero(counted))
        return Admitted(chunk.taken(rows), unstored, forgotten, len(records) - len(rows), tuple(without), chunk)

    def in_time(self, at: Floats, now: float) -> Booleans:
        """Return which records of a batch that arrived at `now` are recent enough to count as evidence."""
        bounds, clock = self._bounds, self._windows[ALL].clock
        # The clock of a window may be ahead, if that of the machine was set back.
        newest = np.maximum(np.maximum.accumulate(at), min(clock, now + bounds.tolerance_seconds))
        return np.asarray(at >= newest - (FAR_BEHIND_SECONDS if bounds.age_seconds is None else bounds.age_seconds))

    def settle_evidence(self) -> None:
        """Count all records as evidence that are still to count."""
        self._records.settle_evidence()

    def enter(self, chunk: Chunk, seen: Mapping[Segment, float] | None = None) -> Entered:
        """Add a chunk, admitted or restored; the forgotten segments were removed before, and no other chunk came since.

        `seen` is the last arrival of its segments, if it is not that of the chunk.
        """
        segments = [segment for segment in chunk.segments if segment == ALL or self._place(segment)]
        windows = {segment: self.place(segment, (seen or {}).get(segment, chunk.arrived)) for segment in segments}
        everywhere = ALL not in chunk.segments
        places, names = ([Entering([self._windows[ALL]])], [ALL]) if everywhere else ([], [])
        for column in chunk.codes.T:
            found = np.flatnonzero(np.bincount(column + 1, minlength=1)[1:]).tolist()
            used = [code for code in found if chunk.segments[code] in windows]
            if used:
                chosen = np.full(len(chunk.segments) + 1, -1, dtype=np.int64)
                chosen[used] = np.arange(len(used))
                places.append(Entering([windows[chunk.segments[code]] for code in used], chosen[column]))
                names += [chunk.segments[code] for code in used]
        first = self._records.next_arrival
        windows_of_all = self._windows.values()
        added = enter(
            self._records, windows_of_all, chunk.vectors, chunk.at, chunk.arrived, places, chunk.decided, chunk.counted
        )
        by_segment = dict(zip(names, added, strict=True))
        for segment, one in by_segment.items():
            # Without late records, which are not in the window.
            self._entered[segment] += one.entered
        return Entered(first, by_segment)

    def reserve(self, records: int, windows: int) -> None:
        """Prepare for stored records of so many windows."""
        self._records.reserve(min(records, windows * self._bounds.capacity))

    def place(self, segment: Segment, seen: float) -> SlidingWindow:
        """Return the window of a segment with records at `seen`, created if needed."""
        if segment not in self._windows:
            place = self._place(segment)
            if not place:
                raise ValueError(f"segment: expected one of the configured splits, found {name_of(segment)!r}")
            self._create(segment, place, seen)
        if segment != ALL:
            self._last_seen[segment] = seen
        return self._windows[segment]

    def _create(self, segment: Segment, place: int, now: float) -> None:
        window = self._windows[segment] = SlidingWindow(self._gauge, self._bounds, self._records, place)
        if self._evidence is not None:
            self._records.counts_in(window, self._evidence.row(segment, now))

    def _place(self, segment: Segment) -> int:
        """Return the place of a segment's window; 0 if records are not split by its fields."""
        return self._places.get(tuple(name for name, _ in segment), 0)

    def entered(self, segment: Segment) -> int:
        """Return how many records were added to a window since it was created or restored."""
        return self._entered[segment]

    def restored(self) -> None:
        """Call after stored records were added: they do not count as entered."""
        self._entered.clear()
        # The order in which chunks name them changes from start to start.
        self._windows = {segment: self._windows[segment] for segment in sorted(self._windows)}

    def last_seen(self, segment: Segment) -> float:
        """Return the last arrival of a segment's records, other than ALL."""
        return self._last_seen[segment]

    @property
    def next_arrival(self) -> int:
        """The arrival number of the next record."""
        return self._records.next_arrival

    def would_restamp(self, now: float) -> bool:
        """Return whether a chunk that arrives at `now` would change the times of records in windows."""
        return self._records.clock > now + self._bounds.tolerance_seconds

    def take_freed(self) -> Numbers:
        """Return the arrival numbers, ascending, of records that are in no window any more, since the last call."""
        return self._records.take_freed()

    def live(self, first: int, stop: int, without: Container[Segment] = ()) -> Chunk:
        """Return the records in any window with an arrival number from `first` to before `stop`, in order of arrival.

        They are not said to be in the windows `without`. The arrival time is left 0.
        """
        records = self._records
        slots = np.flatnonzero((records.arrival >= first) & (records.arrival < stop)).astype(np.int32)
        slots = slots[np.logical_or.reduce(records.inside(slots), axis=0)]
        slots = slots[np.argsort(records.arrival[slots])]
        inside, segments = records.inside(slots), list(self._windows)
        code_of_row = np.full(max(one.row for one in self._windows.values()) + 1, -1, dtype=np.int32)
        for code, (segment, window) in enumerate(self._windows.items()):
            code_of_row[window.row] = -1 if segment in without else code
        codes = np.full((len(slots), 1 + len(self._places)), -1, dtype=np.int32)
        codes[inside[0], 0] = 0
        for place in self._places.values():
            rows = records.rows(place, slots)
            codes[inside[place], place] = code_of_row[rows[inside[place]]]
        everywhere = bool(inside[0].all())
        codes = codes[:, everywhere:]
        used = np.union1d(codes[codes >= 0], [] if everywhere else [0]).astype(np.int64)
        shorter = np.full(len(segments) + 1, -1, dtype=np.int32)
        shorter[used] = np.arange(len(used))
        named = tuple(segments[code] for code in used.tolist())
        decided = None if records.decided is None else records.decided[slots]
        return Chunk(0.0, records.at[slots], records.vectors[slots], named, shorter[codes], decided)

    def arrivals(self, segment: Segment) -> Numbers:
        """Return the arrival numbers of a window's records, oldest first."""
        return self._records.arrival[self._windows[segment].slots]

    def measure_some(self, limit: int) -> bool:
        """Measure at most about `limit` waiting records; return whether there are more."""
        return self._records.measure_some(limit)

    def idle(self, now: float) -> list[Segment]:
        """Return the idle segments that may be removed."""
        if self._segmentation.forget_seconds is None:
            return []
        # A time in the future means that the clock was set back: start waiting again.
        self._last_seen = {segment: min(seen, now) for segment, seen in self._last_seen.items()}
        return self._idle(now)

    def forget(self, segment: Segment) -> None:
        """Remove a segment."""
        self._records.drop(self._windows.pop(segment))
        del self._last_seen[segment]
        self._entered.pop(segment, None)

    def clock_jumped(self, seconds: float) -> None:
        """Adjust idle times after the clock was set forward or back."""
        self._last_seen = {segment: seen + seconds for segment, seen in self._last_seen.items()}

    @property
    def most_windows(self) -> int:
        """The maximum number of windows."""
        return 1 + (self._segmentation.most_segments if self._segmentation.split_by else 0)

    def most_bytes(self) -> int:
        """Return the maximum memory of the windows."""
        return self._gauge.bytes_shared + self.most_windows * self._window_bytes

    def memory(self) -> str:
        """Return the memory of the windows, for the log."""
        record = bytes_per_record(self._gauge.calibration, len(self._places))
        return (
            f"windows of at most {self._bounds.capacity:,} records: {record:.0f} bytes a record,"
            f" {self._window_bytes / 1e6:.1f} MB a window, {self.most_bytes() / 1e6:.1f} MB at most in all"
        )

    @property
    def _window_bytes(self) -> int:
        detectors = 0 if self._evidence is None else len(self._evidence.detectors)
        return bytes_per_window(self._gauge, self._bounds, len(self._places)) + detectors * BYTES_PER_WINDOW

    def of_the_right_version(self, records: Records) -> Integers:
        """Return the rows with the reference's model version or none."""
        if self._version is None or records.versions is None:
            return np.arange(len(records.at))
        return np.flatnonzero(records.versions.are(self._version) | records.versions.are(""))

    def _idle(self, now: float) -> list[Segment]:
        limit = self._segmentation.forget_seconds
        if limit is None:
            return []
        return [segment for segment, seen in self._last_seen.items() if now - seen > limit]


def _lasting(chunk: Chunk, capacity: int) -> Integers:
    """Return which records are among the latest of their batch in any of their windows."""
    order = np.argsort(chunk.at, kind="stable")
    lasting = np.zeros(len(order), dtype=np.bool_)
    lasting[order[-capacity:]] = True
    for column in chunk.codes.T:
        grouped, edges = by_code(column[order], len(chunk.segments))
        for start, end in itertools.pairwise(edges.tolist()):
            lasting[order[grouped[max(start, end - capacity) : end]]] = True
    return np.flatnonzero(lasting)


def rows_by_segment(names: Sequence[str], fields: Mapping[str, Texts]) -> Iterator[tuple[Segment, Integers]]:
    """Yield each combination of values with its rows; records with a missing value are skipped."""
    if not all(name in fields for name in names):
        return
    columns = [fields[name] for name in names]
    present = np.flatnonzero(~np.any([column.are("") for column in columns], axis=0))
    code, size = np.zeros(len(present), dtype=np.int64), 1
    for column in columns:
        code = code * len(column.values) + column.codes[present]
        size *= len(column.values)
        if size > len(present):
            used, code = np.unique(code, return_inverse=True)
            size = len(used)
    order, edges = by_code(code, size)
    for start, end in itertools.pairwise(edges.tolist()):
        if start == end:
            continue
        rows = present[order[start:end]]
        yield (
            tuple((name, column.values[column.codes[rows[0]]]) for name, column in zip(names, columns, strict=True)),
            rows,
        )
