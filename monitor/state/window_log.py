"""Which chunks on disk a window still needs, and when they should be put in order.

A chunk whose newest record is older than the oldest of the window holds nothing that the window needs. Dropping it
changes nothing about what a restart rebuilds: a window is the last so many records by time, whatever else is offered.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

from monitor.core.window import SlidingWindow
from monitor.state.change import Change, Chunk, Snapshot, WindowName
from monitor.state.window_table import Committed

WORTH_TOTALS = 20_000
"""Records from which on totals are stored: below, measuring a window again at the start takes milliseconds."""

_FEWEST_CHUNKS = 64
_RECORDS_A_CHUNK = 64
_CHUNK_RECORDS = 10_000


@dataclass(slots=True)
class WindowLog:
    """The chunks of one window, oldest first."""

    name: WindowName
    chunks: deque[tuple[int, float, int]] = field(default_factory=deque)
    """Number, newest event time and number of records of each."""
    stored: int = 0
    """Records in all chunks together."""
    since_totals: int = 0
    """Records that came since totals were stored."""
    arrived: float = 0.0
    """When the last records came."""
    has_totals: bool = False
    """Whether there are totals on disk."""
    restamped: bool = False
    """Whether the window changed the times of records that are on disk: a rewrite must note that before any is dropped."""

    def added(self, number: int, newest: float, records: int, arrived: float) -> None:
        """Note a chunk that was committed."""
        self.chunks.append((number, newest, records))
        self.stored += records
        self.since_totals += records
        self.arrived = arrived

    def tidy(self, window: SlidingWindow, change: Change, *, stopping: bool = False) -> None:
        """Put into a change what keeps the chunks in order; called between batches, when window and disk agree."""
        too_many = len(self.chunks) > max(_FEWEST_CHUNKS, len(window) // _RECORDS_A_CHUNK)
        if self.restamped or too_many or self.stored > 2 * len(window) + _CHUNK_RECORDS:
            change.rewritten[self.name] = _pieces(self.name, window, self.arrived)
            return
        with_totals = len(window) >= WORTH_TOTALS
        # Totals on disk count the records that were in the window then: until new ones are written, all must stay.
        if with_totals and not stopping and self.since_totals < len(window) // 4:
            return
        oldest = float(window.times[0]) if len(window) else float("inf")
        dead = [number for number, _, _ in takewhile(lambda chunk: chunk[1] < oldest, self.chunks)]
        change.dropped.extend(dead)
        if self.has_totals and not with_totals:
            # They count records that may be going now.
            change.snapshots.append(Snapshot(self.name, None))
        elif with_totals and self.since_totals:
            # A window that was filled anew since then is not worth measuring before somebody asks for an estimate.
            is_new = self.since_totals >= len(window) and not stopping
            change.snapshots.append(Snapshot(self.name, None if is_new else window.totals().to_bytes()))

    def tidied(self, change: Change, committed: Committed) -> None:
        """Note that a change was committed."""
        if self.name in change.rewritten:
            chunks = change.rewritten[self.name]
            numbers = committed.rewritten[self.name]
            self.chunks = deque((n, float(c.at.max()), len(c.at)) for n, c in zip(numbers, chunks, strict=True))
            self.restamped = self.has_totals = False
            # The totals went with the old chunks, so the next occasion writes new ones.
            self.stored = self.since_totals = sum(records for _, _, records in self.chunks)
            return
        gone = set(change.dropped)
        while self.chunks and self.chunks[0][0] in gone:
            self.stored -= self.chunks.popleft()[2]
        for snapshot in change.snapshots:
            if snapshot.window == self.name:
                self.since_totals, self.has_totals = 0, snapshot.content is not None


def _pieces(name: WindowName, window: SlidingWindow, arrived: float) -> list[Chunk]:
    """Cut a whole window into chunks, oldest first."""
    vectors, times = window.vectors(), window.times.copy()
    return [
        Chunk(name, arrived, times[start : start + _CHUNK_RECORDS], vectors[start : start + _CHUNK_RECORDS])
        for start in range(0, len(times), _CHUNK_RECORDS)
    ]
