"""All windows of one model: the whole, and one for each value of the fields that split its records.

A plain object without I/O or clock, like the windows it holds.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Floats, Integers, Singles
from monitor.core.totals import Gauge, WindowTotals
from monitor.core.window import Added, Bounds, SlidingWindow, bytes_per_window

ALL = "all"
"""The segment that holds every record of the model."""

Texts = NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Segmentation:
    """How a model's records are split, and how many segments there may be."""

    split_by: tuple[tuple[str, ...], ...] = ()
    """Sets of fields: `(("site",), ("site", "scanner"))` gives a window to each site and to each scanner of a site."""
    most_segments: int = 200
    """Past it, new values are counted and not stored: it protects memory and the metrics page."""
    forget_seconds: float | None = None
    """A segment that no record came to for this long is forgotten."""


@dataclass(frozen=True, slots=True)
class Records:
    """A batch of one model's records, as columns."""

    vectors: Singles
    at: Floats
    """Event times; NaN where unknown."""
    fields: Mapping[str, Texts] = field(default_factory=dict)
    """Values of the fields that split records; empty text where a record has none."""
    versions: Texts | None = None
    """Versions of the model that made each record; empty text where unknown."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch, in numbers of records."""

    added: Added = field(default_factory=Added)
    """Into the window of the whole model."""
    other_version: int = 0
    """Made by another version of the model than the reference's; kept out."""
    unstored_segments: int = 0
    """Entries in segments past the cap; they still count in the whole."""


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
        self._windows = {ALL: SlidingWindow(gauge, bounds)}
        self._last_seen: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the segments: `all` first, then `site=A`, `site=A,scanner=2` …."""
        return iter(self._windows)

    def __getitem__(self, segment: str) -> SlidingWindow:
        """Return a segment's window."""
        return self._windows[segment]

    def add(self, records: Records, now: float) -> Taken:
        """Take in a batch that arrived at `now`."""
        kept = self._of_the_right_version(records)
        other = len(records.at) - len(kept)
        vectors, at = records.vectors[kept], records.at[kept]
        added = self._windows[ALL].add(vectors, at, now)
        unstored = 0
        for names in self._segmentation.split_by:
            for segment, rows in _split(names, records.fields, kept):
                window = self._window(segment, now)
                if window is None:
                    unstored += len(rows)
                else:
                    window.add(vectors[rows], at[rows], now)
        return Taken(added, other, unstored)

    def forget(self, now: float) -> list[str]:
        """Forget the segments that no record came to for too long, and return their names."""
        patience = self._segmentation.forget_seconds
        if patience is None:
            return []
        silent = [segment for segment, seen in self._last_seen.items() if now - seen > patience]
        for segment in silent:
            del self._windows[segment], self._last_seen[segment]
        return silent

    def totals(self) -> dict[str, WindowTotals]:
        """Return a snapshot of every window's totals."""
        return {segment: window.totals() for segment, window in self._windows.items()}

    def most_bytes(self) -> int:
        """Return the most memory that the windows take, from the configuration alone."""
        windows = 1 + (self._segmentation.most_segments if self._segmentation.split_by else 0)
        return self._gauge.bytes_shared + windows * bytes_per_window(self._gauge, self._bounds)

    def _of_the_right_version(self, records: Records) -> Integers:
        if self._version is None or records.versions is None:
            return np.arange(len(records.at))
        return np.flatnonzero((records.versions == self._version) | (records.versions == ""))

    def _window(self, segment: str, now: float) -> SlidingWindow | None:
        if segment not in self._windows:
            if len(self._last_seen) >= self._segmentation.most_segments:
                self.forget(now)
            if len(self._last_seen) >= self._segmentation.most_segments:
                return None
            self._windows[segment] = SlidingWindow(self._gauge, self._bounds)
        self._last_seen[segment] = now
        return self._windows[segment]


def _split(names: Sequence[str], fields: Mapping[str, Texts], kept: Integers) -> Iterator[tuple[str, Integers]]:
    """Yield each combination of values that occurs, with its rows among those kept; a missing value makes no segment."""
    if not all(name in fields for name in names):
        return
    columns = [fields[name][kept] for name in names]
    present = np.flatnonzero(np.all([column != "" for column in columns], axis=0))
    code = np.zeros(len(present), dtype=np.int64)
    for column in columns:
        values, index = np.unique(column[present], return_inverse=True)
        code = code * len(values) + index
    order = np.argsort(code, kind="stable")
    edges = np.flatnonzero(np.diff(code[order], prepend=-1, append=-2))
    for start, end in itertools.pairwise(edges):
        rows = present[order[start:end]]
        yield ",".join(f"{name}={column[rows[0]]}" for name, column in zip(names, columns, strict=True)), rows
