"""All windows of one model: one for all records, and one per segment.

No I/O, no clock.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from monitor.core.record_columns import Records, Texts
from monitor.core.scores import Floats, Integers, Singles
from monitor.core.totals import Gauge
from monitor.core.window import Added, Bounds, SlidingWindow, bytes_per_record, bytes_per_window

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


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that enter one window together."""

    segment: Segment
    arrived: float
    """Arrival time."""
    at: Floats
    """Event times as the window uses them: no NaN, none in the future."""
    vectors: Singles


@dataclass(frozen=True, slots=True)
class Admitted:
    """A batch assigned to the windows of a model."""

    chunks: list[Chunk]
    """First for the segment of all records, then for others, each at most once and none empty."""
    unstored: int = 0
    """Records of segments over the limit; they are only in the window of all records."""
    forgotten: list[Segment] = field(default_factory=list)
    """Idle segments to be removed for new ones."""


class ModelWindows:
    """The windows of one model."""

    def __init__(
        self,
        gauge: Gauge,
        bounds: Bounds,
        segmentation: Segmentation | None = None,
        *,
        version: str = "",
        versions_alike: bool = False,
    ) -> None:
        self._gauge, self._bounds = gauge, bounds
        self._segmentation = segmentation or Segmentation()
        # Without a version in the reference, every version counts.
        self._version = None if versions_alike or not version else version
        self._windows: dict[Segment, SlidingWindow] = {ALL: SlidingWindow(gauge, bounds)}
        self._last_seen: dict[Segment, float] = {}
        self._entered: Counter[Segment] = Counter()

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments, that of all records first."""
        return iter(self._windows)

    def __contains__(self, segment: object) -> bool:
        """Return whether a segment has a window."""
        return segment in self._windows

    def __getitem__(self, segment: Segment) -> SlidingWindow:
        """Return a segment's window."""
        return self._windows[segment]

    def admit(self, records: Records, now: float) -> Admitted:
        """Assign a batch that arrived at `now` to windows without changing them, so that it can be committed first."""
        at, vectors = records.at, records.vectors
        if not len(at):
            return Admitted([])  # even an empty batch could restamp records
        idle, unstored = self._idle(now), 0
        known = set(self._last_seen)
        chunks = [Chunk(ALL, now, at, vectors)]
        for names in self._segmentation.split_by:
            for segment, rows in _split(names, records.fields):
                if segment not in known and len(known) >= self._segmentation.most_segments:
                    # Idle segments are removed only when room is needed.
                    known -= set(idle) - {chunk.segment for chunk in chunks}
                    if len(known) >= self._segmentation.most_segments:
                        unstored += len(rows)
                        continue
                known.add(segment)
                chunks.append(Chunk(segment, now, at[rows], vectors[rows]))
        return Admitted(chunks, unstored, [segment for segment in idle if segment not in known])

    def enter(self, chunk: Chunk) -> Added:
        """Add an admitted chunk; the forgotten segments were removed before, and no other batch was added since."""
        window = self.place(chunk.segment, chunk.arrived)
        added = window.add(chunk.vectors, chunk.at, chunk.arrived)
        # Without late records, which are not in the window.
        self._entered[chunk.segment] += added.entered
        return added

    def place(self, segment: Segment, seen: float) -> SlidingWindow:
        """Return the window of a segment with records at `seen`, created if needed."""
        if segment not in self._windows:
            self._windows[segment] = SlidingWindow(self._gauge, self._bounds)
        if segment != ALL:
            self._last_seen[segment] = seen
        return self._windows[segment]

    def entered(self, segment: Segment) -> int:
        """Return how many records were added to a window since it was created or restored."""
        return self._entered[segment]

    def idle(self, now: float) -> list[Segment]:
        """Return the idle segments that may be removed."""
        # A time in the future means that the clock was set back: start waiting again.
        self._last_seen = {segment: min(seen, now) for segment, seen in self._last_seen.items()}
        return self._idle(now)

    def forget(self, segment: Segment) -> None:
        """Remove a segment."""
        del self._windows[segment], self._last_seen[segment]
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
        return self._gauge.bytes_shared + self.most_windows * bytes_per_window(self._gauge, self._bounds)

    def memory(self) -> str:
        """Return the memory of the windows, for the log."""
        record, window = bytes_per_record(self._gauge.calibration.classes), bytes_per_window(self._gauge, self._bounds)
        return (
            f"windows of at most {self._bounds.capacity:,} records: {record:.0f} bytes a record,"
            f" {window / 1e6:.1f} MB a window, {self.most_bytes() / 1e6:.1f} MB at most in all"
        )

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


def _split(names: Sequence[str], fields: Mapping[str, Texts]) -> Iterator[tuple[Segment, Integers]]:
    """Yield each combination of values with its rows; records with a missing value are skipped."""
    if not all(name in fields for name in names):
        return
    columns = [fields[name] for name in names]
    present = np.flatnonzero(~np.any([column.are("") for column in columns], axis=0))
    code = np.zeros(len(present), dtype=np.int64)
    for column in columns:
        code = code * len(column.values) + column.codes[present]
    order = np.argsort(code, kind="stable")
    edges = np.flatnonzero(np.diff(code[order], prepend=-1, append=-2))
    for start, end in itertools.pairwise(edges):
        rows = present[order[start:end]]
        yield (
            tuple((name, column.values[column.codes[rows[0]]]) for name, column in zip(names, columns, strict=True)),
            rows,
        )
