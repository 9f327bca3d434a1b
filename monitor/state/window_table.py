"""The window tables: chunks with checksums, totals, and which chunks a window still needs.

A chunk whose newest record is older than the window's oldest is not needed: a window is its latest records by time, so
dropping the chunk does not change the result of a restart.
"""

import sqlite3
import struct
import zlib
from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import msgspec
import numpy as np

from monitor.core.segments import Segment
from monitor.core.window import SlidingWindow
from monitor.state.change import Chunk, StateChange, TotalsUpdate, WindowName
from monitor.state.schema import checksum

_NO_TIME = -1e308
WORTH_TOTALS = 20_000
"""Records from which on totals are stored: smaller windows are recomputed in milliseconds."""
_FEWEST_CHUNKS = 64
_RECORDS_A_CHUNK = 64
_CHUNK_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as read from disk."""

    number: int
    chunk: Chunk
    newest: float


@dataclass(slots=True)
class StoredWindow:
    """A window as read from disk."""

    name: WindowName
    chunks: list[StoredChunk] = field(default_factory=list)
    """In order of arrival."""
    damaged: list[int] = field(default_factory=list)
    """Ids of chunks with a checksum mismatch."""
    totals: bytes | None = None
    through: int = 0
    """The last chunk included in the totals."""


@dataclass(frozen=True, slots=True)
class CommittedWindow:
    """The ids given to the chunks of a change."""

    chunks: list[int]
    rewritten: dict[WindowName, list[int]]


class WindowTable:
    """Reads and writes windows. Writes happen within a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[WindowName, int] = {}
        self.load()

    def load(self) -> None:
        """Load the window ids; also after a rollback."""
        rows = self._connection.execute("SELECT id, model, segment FROM windows")
        self._numbers = {(model, _segment(segment)): number for number, model, segment in rows}

    def names(self) -> list[WindowName]:
        """Return the window names, latest arrivals first."""
        rows = self._connection.execute(
            "SELECT model, segment, max(arrived) FROM windows"
            " LEFT JOIN chunks ON window = windows.id GROUP BY windows.id ORDER BY 3 DESC"
        )
        return [(model, _segment(segment)) for model, segment, _ in rows]

    def read(self, models: Container[str] | None = None) -> Iterator[StoredWindow]:
        """Yield the windows of some models, or of all, without damaged chunks."""
        for name, number in sorted(self._numbers.items()):
            if models is not None and name[0] not in models:
                continue
            window = StoredWindow(name)
            rows = self._connection.execute(
                "SELECT id, arrived, newest, records, crc, content FROM chunks WHERE window = ? ORDER BY id", (number,)
            )
            for chunk, arrived, newest, records, crc, content in rows:
                if crc != _crc_or_none(number, arrived, newest, records, content):
                    window.damaged.append(chunk)
                    continue
                at = np.frombuffer(content, dtype="<f8", count=records)
                vectors = np.frombuffer(content, dtype="<f4", offset=8 * records).reshape(records, -1)
                window.chunks.append(StoredChunk(chunk, Chunk(name, arrived, at, vectors), newest))
            totals = self._connection.execute(
                "SELECT through, crc, content FROM totals WHERE window = ?", (number,)
            ).fetchone()
            # The totals include the records of damaged chunks.
            if totals is not None and not window.damaged:
                through, crc, content = totals
                if isinstance(content, bytes) and checksum(content, number, through) == crc:
                    window.through, window.totals = through, content
            yield window

    def write(self, change: StateChange) -> CommittedWindow:
        """Write the window changes of a transaction."""
        self.delete(change.deleted_windows)
        self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in change.dropped))
        for update in change.totals:
            self._write_totals(self._number(update.window), update.content)
        rewritten = {}
        for name, chunks in change.rewritten.items():
            self._empty(self._number(name))
            rewritten[name] = [self._write_chunk(chunk) for chunk in chunks]
        return CommittedWindow([self._write_chunk(chunk) for chunk in change.chunks], rewritten)

    def delete(self, windows: list[WindowName]) -> None:
        """Delete windows with their chunks and totals."""
        for name in windows:
            number = self._numbers.pop(name, None)
            if number is not None:
                self._empty(number)
                self._connection.execute("DELETE FROM windows WHERE id = ?", (number,))

    def delete_damaged(self, window: StoredWindow) -> None:
        """Delete the damaged chunks of a window, and its totals."""
        self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in window.damaged))
        self._write_totals(self._numbers[window.name], None)

    def _number(self, name: WindowName) -> int:
        """Return the id of a window, creating it if necessary."""
        if name not in self._numbers:
            model, text = name[0], msgspec.json.encode(name[1]).decode()
            cursor = self._connection.execute(
                "INSERT INTO windows(model, segment, crc) VALUES (?, ?, ?)", (model, text, checksum(b"", model, text))
            )
            self._numbers[name] = int(cursor.lastrowid or 0)
        return self._numbers[name]

    def _empty(self, window: int) -> None:
        self._connection.execute("DELETE FROM chunks WHERE window = ?", (window,))
        self._write_totals(window, None)

    def _write_totals(self, window: int, content: bytes | None) -> None:
        if content is None:
            self._connection.execute("DELETE FROM totals WHERE window = ?", (window,))
            return
        last = "SELECT coalesce(max(id), 0) FROM chunks WHERE window = ?"
        (through,) = self._connection.execute(last, (window,)).fetchone()
        row = (window, through, checksum(content, window, through), content)
        self._connection.execute("INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?)", row)

    def _write_chunk(self, chunk: Chunk) -> int:
        window, records = self._number(chunk.window), len(chunk.at)
        newest = float(chunk.at.max()) if records else _NO_TIME
        content = chunk.at.astype("<f8").tobytes() + np.ascontiguousarray(chunk.vectors, dtype="<f4").tobytes()
        crc = _crc(window, chunk.arrived, newest, records, content)
        cursor = self._connection.execute(
            "INSERT INTO chunks(window, arrived, newest, records, crc, content) VALUES (?, ?, ?, ?, ?, ?)",
            (window, chunk.arrived, newest, records, crc, content),
        )
        return int(cursor.lastrowid or 0)


def check_windows(connection: sqlite3.Connection) -> None:
    """Raise ValueError when the identity of a window, or the owner of a chunk, is uncertain."""
    for model, segment, crc in connection.execute("SELECT model, segment, crc FROM windows"):
        if checksum(b"", model, segment) != crc:
            raise ValueError("checksum mismatch in a window's name")
        _segment(segment)
    strays = "SELECT count(*) FROM chunks WHERE window NOT IN (SELECT id FROM windows)"
    if connection.execute(strays).fetchone()[0]:
        raise ValueError("some chunks belong to no window")


def _crc(window: int, arrived: float, newest: float, records: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<qddq", window, arrived, newest, records)))


def _crc_or_none(window: int, arrived: object, newest: object, records: object, content: object) -> int | None:
    """Return the checksum of a row as read: a flipped bit may also change the type of a value."""
    if not (isinstance(arrived, float) and isinstance(newest, float) and isinstance(records, int)):
        return None
    return _crc(window, arrived, newest, records, content) if isinstance(content, bytes) else None


def _segment(text: str) -> Segment:
    return msgspec.json.decode(text, type=Segment)


@dataclass(slots=True)
class WindowLog:
    """The stored chunks of one window, oldest first."""

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

    def maintain(self, window: SlidingWindow, change: StateChange, *, stopping: bool = False) -> None:
        """Add the maintenance of the chunks to a change. Called between batches, when window and disk agree."""
        too_many = len(self.chunks) > max(_FEWEST_CHUNKS, len(window) // _RECORDS_A_CHUNK)
        if self.restamped or too_many or self.stored > 2 * len(window) + _CHUNK_RECORDS:
            change.rewritten[self.name] = _rechunked(self.name, window, self.arrived)
            return
        with_totals = len(window) >= WORTH_TOTALS
        # Stored totals include all records of that time, so no chunk is dropped before new totals are written.
        if with_totals and not stopping and self.since_totals < len(window) // 4:
            return
        oldest = float(window.times[0]) if len(window) else float("inf")
        unneeded = [number for number, _, _ in takewhile(lambda chunk: chunk[1] < oldest, self.chunks)]
        change.dropped.extend(unneeded)
        if self.has_totals and not with_totals:
            # They include records that may be dropped now.
            change.totals.append(TotalsUpdate(self.name, None))
        elif with_totals and self.since_totals:
            # A window refilled since then is not worth measuring before an estimate is needed.
            is_new = self.since_totals >= len(window) and not stopping
            change.totals.append(TotalsUpdate(self.name, None if is_new else window.totals().to_bytes()))

    def maintained(self, change: StateChange, committed: CommittedWindow) -> None:
        """Apply a committed change."""
        if self.name in change.rewritten:
            chunks = change.rewritten[self.name]
            numbers = committed.rewritten[self.name]
            self.chunks = deque((n, float(c.at.max()), len(c.at)) for n, c in zip(numbers, chunks, strict=True))
            self.restamped = self.has_totals = False
            # The totals were deleted with the old chunks; write new ones at the next opportunity.
            self.stored = self.since_totals = sum(records for _, _, records in self.chunks)
            return
        gone = set(change.dropped)
        while self.chunks and self.chunks[0][0] in gone:
            self.stored -= self.chunks.popleft()[2]
        for update in change.totals:
            if update.window == self.name:
                self.since_totals, self.has_totals = 0, update.content is not None


def _rechunked(name: WindowName, window: SlidingWindow, arrived: float) -> list[Chunk]:
    """Split a whole window into chunks, oldest first."""
    vectors, times = window.vectors(), window.times.copy()
    return [
        Chunk(name, arrived, times[start : start + _CHUNK_RECORDS], vectors[start : start + _CHUNK_RECORDS])
        for start in range(0, len(times), _CHUNK_RECORDS)
    ]
