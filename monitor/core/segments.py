"""All windows of one model: the whole, and one for each value of the fields that split its records.

A plain object without I/O or clock, like the windows it holds.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.core.record_columns import Records, Texts
from monitor.core.scores import Floats, Integers, Singles
from monitor.core.totals import Gauge, WindowTotals
from monitor.core.window import Added, Bounds, SlidingWindow, bytes_per_record, bytes_per_window

Segment = tuple[tuple[str, str], ...]
"""Fields and their values: `(("site", "A"), ("scanner", "2"))`. A tuple, so that no value can imitate another segment."""

ALL: Segment = ()
"""The segment that holds every record of the model."""


def name_of(segment: Segment) -> str:
    """Return what people call a segment: `all`, `site=A`, `site=A,scanner=2`."""
    return ",".join(f"{field}={value}" for field, value in segment) or "all"


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How a model's records are split, and how many segments there may be."""

    split_by: tuple[tuple[str, ...], ...] = ()
    """Sets of fields: `(("site",), ("site", "scanner"))` gives a window to each site and to each scanner of a site."""
    most_segments: int = 200
    """Past it, new values are counted and not stored: it protects memory and the metrics page."""
    forget_seconds: float | None = None
    """A segment that no record came to for this long is forgotten."""

    def __post_init__(self) -> None:
        """Refuse splits that make no sense."""
        if any(not names or len(set(names)) < len(names) for names in self.split_by):
            raise ValueError(f"segments: expected sets of different fields, found {self.split_by!r}")
        if len({frozenset(names) for names in self.split_by}) < len(self.split_by):
            raise ValueError(f"segments: expected each set of fields once, found {self.split_by!r}")
        if self.most_segments < 0 or (self.forget_seconds is not None and not self.forget_seconds > 0.0):
            found = f"{self.most_segments!r} and {self.forget_seconds!r}"
            raise ValueError(f"segments: expected a cap of 0 or more and a time above 0 seconds, found {found}")


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch, in numbers of records."""

    added: Added = field(default_factory=Added)
    """Into the window of the whole model."""
    other_version: int = 0
    """Made by another version of the model than the reference's; kept out."""
    in_segments: Added = field(default_factory=Added)
    """Into the windows of segments, all of them together."""
    unstored_segments: int = 0
    """Entries in segments past the cap; they still count in the whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """Those records of a batch that one window is given."""

    segment: Segment
    vectors: Singles
    at: Floats
    """Event times; NaN where unknown."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A batch on its way into the windows of a model."""

    now: float
    parts: list[Part]
    """For the whole first, then for segments, each at most once."""
    other_version: int = 0
    unstored_segments: int = 0
    forgotten: list[Segment] = field(default_factory=list)
    """Silent segments that make room for new ones."""


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
        # A reference without a version cannot tell another one.
        self._version = None if versions_alike or not version else version
        self._windows: dict[Segment, SlidingWindow] = {ALL: SlidingWindow(gauge, bounds)}
        self._last_seen: dict[Segment, float] = {}
        self._entered: Counter[Segment] = Counter()

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments, the whole first."""
        return iter(self._windows)

    def __contains__(self, segment: object) -> bool:
        """Tell whether a segment has a window."""
        return segment in self._windows

    def __getitem__(self, segment: Segment) -> SlidingWindow:
        """Return a segment's window."""
        return self._windows[segment]

    def add(self, records: Records, now: float) -> Taken:
        """Take in a batch that arrived at `now`."""
        return self.enter(self.admit(records, now))

    def admit(self, records: Records, now: float) -> "Admitted":
        """Decide which windows a batch will enter; nothing changes yet, so that it can be written down first."""
        kept = self.of_the_right_version(records)
        vectors, at = records.vectors[kept], records.at[kept]
        forgotten, unstored = self._silent(now), 0
        known = set(self._last_seen)
        parts = [Part(ALL, vectors, at)]
        for names in self._segmentation.split_by:
            for segment, rows in _split(names, records.fields, kept):
                if segment not in known and len(known) >= self._segmentation.most_segments:
                    # Room is made only when it is needed: a silent segment may still be of interest.
                    known -= set(forgotten) - {part.segment for part in parts}
                    if len(known) >= self._segmentation.most_segments:
                        unstored += len(rows)
                        continue
                known.add(segment)
                parts.append(Part(segment, vectors[rows], at[rows]))
        return Admitted(
            now,
            parts,
            other_version=len(records.at) - len(kept),
            unstored_segments=unstored,
            forgotten=[segment for segment in forgotten if segment not in known],
        )

    def enter(self, admitted: "Admitted") -> Taken:
        """Take in a batch as it was admitted; no other batch may have come in between."""
        for segment in admitted.forgotten:
            self._forget(segment)
        added, in_segments = Added(), Added()
        for part in admitted.parts:
            if not len(part.at):
                continue  # even an empty batch would take a clock that went back at its word
            window = self._windows[ALL] if part.segment == ALL else self._window(part.segment, admitted.now)
            became = window.add(part.vectors, part.at, admitted.now)
            # Without the late ones: what the window does not hold can confirm nothing about it.
            self._entered[part.segment] += became.entered
            if part.segment == ALL:
                added = became
            else:
                in_segments += became
        return Taken(added, admitted.other_version, in_segments, admitted.unstored_segments)

    def place(self, segment: Segment, seen: float) -> SlidingWindow:
        """Return a segment's window, which is made if there is none; used to build windows again after a restart."""
        return self._windows[ALL] if segment == ALL else self._window(segment, seen)

    def entered(self, segment: Segment) -> int:
        """Return how many records entered a segment's window since it was made or built again."""
        return self._entered[segment]

    def silent(self, now: float) -> list[Segment]:
        """Return the segments that no record came to for so long that they may be forgotten."""
        # Seen in what is now the future: this machine's clock went back, so the wait begins anew.
        self._last_seen = {segment: min(seen, now) for segment, seen in self._last_seen.items()}
        return self._silent(now)

    def forget(self, segments: Iterable[Segment]) -> None:
        """Forget segments."""
        for segment in segments:
            self._forget(segment)

    def clock_jumped(self, seconds: float) -> None:
        """Wait as long as before for silent segments, though this machine's clock was set forward or back."""
        self._last_seen = {segment: seen + seconds for segment, seen in self._last_seen.items()}

    def totals(self) -> dict[Segment, WindowTotals]:
        """Return a snapshot of every window's totals."""
        return {segment: window.totals() for segment, window in self._windows.items()}

    @property
    def most_windows(self) -> int:
        """The most windows that there can be."""
        return 1 + (self._segmentation.most_segments if self._segmentation.split_by else 0)

    def most_bytes(self) -> int:
        """Return the most memory that the windows take, from the configuration alone."""
        return self._gauge.bytes_shared + self.most_windows * bytes_per_window(self._gauge, self._bounds)

    def memory(self) -> str:
        """Say what the windows will cost, for the first lines of a log."""
        record, window = bytes_per_record(self._gauge.calibration.classes), bytes_per_window(self._gauge, self._bounds)
        return (
            f"windows of at most {self._bounds.capacity:,} records: {record:.0f} bytes a record,"
            f" {window / 1e6:.1f} MB a window, {self.most_bytes() / 1e6:.1f} MB at most in all"
        )

    def of_the_right_version(self, records: Records) -> Integers:
        """Return which records were made by the reference's version of the model, or do not say."""
        if self._version is None or records.versions is None:
            return np.arange(len(records.at))
        return np.flatnonzero(records.versions.are(self._version) | records.versions.are(""))

    def _silent(self, now: float) -> list[Segment]:
        patience = self._segmentation.forget_seconds
        if patience is None:
            return []
        return [segment for segment, seen in self._last_seen.items() if now - seen > patience]

    def _forget(self, segment: Segment) -> None:
        del self._windows[segment], self._last_seen[segment]
        self._entered.pop(segment, None)

    def _window(self, segment: Segment, now: float) -> SlidingWindow:
        if segment not in self._windows:
            self._windows[segment] = SlidingWindow(self._gauge, self._bounds)
        self._last_seen[segment] = now
        return self._windows[segment]


def _split(names: Sequence[str], fields: Mapping[str, Texts], kept: Integers) -> Iterator[tuple[Segment, Integers]]:
    """Yield each combination of values that occurs, with its rows among those kept; a missing value makes no segment."""
    if not all(name in fields for name in names):
        return
    columns = [fields[name].taken(kept) for name in names]
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
