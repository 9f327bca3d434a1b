"""The tables of windows: chunks with checksums, totals, and which chunks a window still needs.

A chunk whose newest record is older than the oldest of the window holds nothing that the window needs. Dropping it
changes nothing about what a restart rebuilds: a window is the last so many records by time, whatever else is offered.
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
from monitor.state.change import Chunk, Snapshot, StateChange, WindowName
from monitor.state.checksum import checksum

_NO_TIME = -1e308


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it was found."""

    number: int
    chunk: Chunk
    newest: float


@dataclass(slots=True)
class StoredWindow:
    """A window as it was found."""

    name: WindowName
    chunks: list[StoredChunk] = field(default_factory=list)
    """In the order they came."""
    damaged: list[int] = field(default_factory=list)
    """Numbers of chunks whose checksum does not fit."""
    totals: bytes | None = None
    through: int = 0
    """The last chunk that the totals count."""


@dataclass(frozen=True, slots=True)
class CommittedWindow:
    """The numbers that a change's chunks were given."""

    chunks: list[int]
    rewritten: dict[WindowName, list[int]]


class WindowTable:
    """Reads and writes windows; whoever writes has begun a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[WindowName, int] = {}
        self.find()

    def find(self) -> None:
        """Look which windows there are; also after a transaction that was rolled back."""
        rows = self._connection.execute("SELECT id, model, segment FROM windows")
        self._numbers = {(model, _segment(segment)): number for number, model, segment in rows}

    def names(self) -> list[WindowName]:
        """Return which windows there are, those that records came to last first."""
        rows = self._connection.execute(
            "SELECT model, segment, max(arrived) FROM windows"
            " LEFT JOIN chunks ON window = windows.id GROUP BY windows.id ORDER BY 3 DESC"
        )
        return [(model, _segment(segment)) for model, segment, _ in rows]

    def read(self, models: Container[str] | None = None) -> Iterator[StoredWindow]:
        """Yield each window of some models, or of all, with its chunks, without the damaged ones."""
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
            # Totals count records of damaged chunks too, which the window no longer has.
            if totals is not None and not window.damaged:
                through, crc, content = totals
                if isinstance(content, bytes) and checksum(content, number, through) == crc:
                    window.through, window.totals = through, content
            yield window

    def write(self, change: StateChange) -> CommittedWindow:
        """Write what a change says of windows."""
        self.forget(change.forgotten)
        self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in change.dropped))
        for snapshot in change.snapshots:
            self._write_totals(self._number(snapshot.window), snapshot.content)
        rewritten = {}
        for name, chunks in change.rewritten.items():
            self._empty(self._number(name))
            rewritten[name] = [self._write_chunk(chunk) for chunk in chunks]
        return CommittedWindow([self._write_chunk(chunk) for chunk in change.chunks], rewritten)

    def forget(self, windows: list[WindowName]) -> None:
        """Delete windows with all that belongs to them."""
        for name in windows:
            number = self._numbers.pop(name, None)
            if number is not None:
                self._empty(number)
                self._connection.execute("DELETE FROM windows WHERE id = ?", (number,))

    def forget_damaged(self, window: StoredWindow) -> None:
        """Delete the damaged chunks of a window."""
        self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in window.damaged))
        self._write_totals(self._numbers[window.name], None)

    def _number(self, name: WindowName) -> int:
        """Return the number of a window, which is given one if it has none."""
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
    """Raise ValueError when it is not certain which window is which, or whose a chunk is."""
    for model, segment, crc in connection.execute("SELECT model, segment, crc FROM windows"):
        if checksum(b"", model, segment) != crc:
            raise ValueError("the checksum of a window's name does not fit")
        _segment(segment)
    strays = "SELECT count(*) FROM chunks WHERE window NOT IN (SELECT id FROM windows)"
    if connection.execute(strays).fetchone()[0]:
        raise ValueError("there are chunks of no window")


def _crc(window: int, arrived: float, newest: float, records: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<qddq", window, arrived, newest, records)))


def _crc_or_none(window: int, arrived: object, newest: object, records: object, content: object) -> int | None:
    """Return the checksum of a row as it was found: a flipped bit may also change the type of a value."""
    if not (isinstance(arrived, float) and isinstance(newest, float) and isinstance(records, int)):
        return None
    return _crc(window, arrived, newest, records, content) if isinstance(content, bytes) else None


def _segment(text: str) -> Segment:
    return msgspec.json.decode(text, type=Segment)


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

    def tidy(self, window: SlidingWindow, change: StateChange, *, stopping: bool = False) -> None:
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

    def tidied(self, change: StateChange, committed: CommittedWindow) -> None:
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
