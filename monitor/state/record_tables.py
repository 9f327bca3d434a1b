"""The tables of records: windows as chunks with checksums, their totals, and the id hashes."""

import sqlite3
import struct
import zlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from monitor.core.recent_ids import Hashes
from monitor.core.segments import Chunk, Segment
from monitor.state.commit_plan import ChunkIds, CommitPlan, IdBatch, WindowName

_NO_TIME = -1e308
_ID_BYTES_AT_ONCE = 1 << 19


def checksum(content: bytes, *beside: str | float | bytes) -> int:
    """Return the checksum of a row: its content and its other values."""
    return zlib.crc32(content, zlib.crc32(repr(beside).encode()))


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
                window.chunks.append(StoredChunk(chunk, Chunk(name[1], arrived, at, vectors), newest))
            totals = self._connection.execute(
                "SELECT through, crc, content FROM totals WHERE window = ?", (number,)
            ).fetchone()
            # The totals include the records of damaged chunks.
            if totals is not None and not window.damaged:
                through, crc, content = totals
                if isinstance(content, bytes) and checksum(content, number, through) == crc:
                    window.through, window.totals = through, content
            yield window

    def write(self, plan: CommitPlan) -> ChunkIds:
        """Write the windows of a plan."""
        self.delete(plan.deleted_windows)
        self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in plan.dropped))
        for name, content in plan.totals.items():
            self._write_totals(self._number(name), content)
        rewritten = {}
        for name, chunks in plan.rewritten.items():
            self._empty(self._number(name))
            rewritten[name] = [self._write_chunk(name[0], chunk) for chunk in chunks]
        return ChunkIds([self._write_chunk(model, chunk) for model, chunk in plan.chunks], rewritten)

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

    def _write_chunk(self, model: str, chunk: Chunk) -> int:
        window, records = self._number((model, chunk.segment)), len(chunk.at)
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


def read_ids(connection: sqlite3.Connection, models: Iterable[str]) -> Iterator[IdBatch]:
    """Yield the id hashes of some models in order, with small batches merged."""
    for model in sorted(models):
        rows = connection.execute("SELECT batch, content FROM ids WHERE model = ? ORDER BY batch", (model,))
        number, gathered = 0, bytearray()
        for number, content in rows:
            gathered += content
            if len(gathered) >= _ID_BYTES_AT_ONCE:
                yield IdBatch(model, number, _as_hashes(gathered))
                gathered = bytearray()
        if gathered:
            yield IdBatch(model, number, _as_hashes(gathered))


def write_ids(connection: sqlite3.Connection, plan: CommitPlan) -> None:
    """Write the id hashes of a plan."""
    for batch in plan.ids:
        _insert_ids(connection, batch.model, batch.number, batch.hashes.astype("<u8").tobytes())
    for model, (first, last) in plan.ids_merged.items():
        _merge_ids(connection, model, first, last)
    for model, needed in plan.ids_needed.items():
        connection.execute("DELETE FROM ids WHERE model = ? AND batch < ?", (model, needed))


def _merge_ids(connection: sqlite3.Connection, model: str, first: int, last: int) -> None:
    where = "FROM ids WHERE model = ? AND batch BETWEEN ? AND ?"
    rows = connection.execute(f"SELECT content {where} ORDER BY batch", (model, first, last)).fetchall()
    if len(rows) > 1:
        connection.execute(f"DELETE {where}", (model, first, last))
        # Stored under the last number: the merged batch is needed as long as its newest id is.
        _insert_ids(connection, model, last, b"".join(row[0] for row in rows))


def _insert_ids(connection: sqlite3.Connection, model: str, number: int, content: bytes) -> None:
    connection.execute(
        "INSERT INTO ids(model, batch, crc, content) VALUES (?, ?, ?, ?)",
        (model, number, checksum(content, model, number), content),
    )


def _as_hashes(content: bytearray) -> Hashes:
    return np.frombuffer(bytes(content), dtype="<u8").astype(np.uint64)
