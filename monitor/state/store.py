"""Reading and writing the tables: one transaction a change, a checksum for every row that matters."""

import os
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np

from monitor.core.segments import Segment
from monitor.decode.arrived import Hashes, Pointer
from monitor.errors import StateLost
from monitor.state.change import Change, Chunk, IdBatch, WindowName
from monitor.state.database import NAME, Opened, back_up, open_database, translated
from monitor.state.folder import StateFolder, filesystem_of

MOST_REJECTED = 10_000
MOST_EVENTS = 1_000
_IDS_BYTES_AT_ONCE = 1 << 19


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
    totals: bytes | None = None
    through: int = 0
    """The last chunk that the totals count."""


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """A window as it was found, without its records."""

    name: WindowName
    classes: int | None
    """None when it holds no record."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The numbers that a change's chunks were given."""

    chunks: list[int]
    rewritten: dict[WindowName, list[int]]


class State:
    """Everything that survives a restart. Used by one thread, the one that ingests."""

    def __init__(self, folder: StateFolder, opened: Opened) -> None:
        self._folder = folder
        self._connection = opened.connection
        self.key = folder.key()
        """For all keyed hashes."""
        self.recovered = opened.recovered
        """Empty, or what was used because the database was damaged: `backup` or `empty`."""
        self.events = opened.events
        """What happened while it was opened, for the log."""
        self.damaged_chunks = 0
        """Chunks that were dropped because their checksum did not fit."""
        self._inode = (self.path / NAME).stat().st_ino
        self._windows: dict[WindowName, int] = {}
        self._find_windows()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        allow_network: bool = False,
        filesystem: Callable[[Path], str] = filesystem_of,
        mend: bool = True,
    ) -> "State":
        """Hold a folder and open what is in it; raises StateInUse, StateRefused, StateLost or StatePaused.

        Without `mend`, for those who only want to look, damage is StateLost and nothing is replaced.
        """
        folder = StateFolder.hold(path, allow_network=allow_network, filesystem=filesystem)
        try:
            if mend:
                folder.keep_ballast()
            return cls(folder, open_database(path, networked=folder.networked, verify=_verify, mend=mend))
        except BaseException:
            folder.close()
            raise

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def size(self) -> int:
        """Size of the database and its log on disk."""
        files = (self.path / NAME, self.path / f"{NAME}-wal")
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Write the log back into the database and let go of the folder."""
        self._connection.close()
        self._folder.close()

    def back_up(self) -> None:
        """Write a copy beside the database; raises StatePaused when there is no room for it."""
        back_up(self._connection, self.path)

    # Reading, at the start.

    def models(self) -> dict[str, bytes]:
        """Return what was noted of each model."""
        return dict(self._connection.execute("SELECT name, shape FROM models"))

    def summaries(self) -> list[WindowSummary]:
        """Return what there is to be restored, those that records came to last first."""
        rows = self._connection.execute(
            "SELECT model, segment, max(arrived), records, length(content) FROM windows"
            " LEFT JOIN chunks ON window = windows.id GROUP BY windows.id ORDER BY 3 DESC"
        )
        return [
            WindowSummary((model, _segment(segment)), (size - 8 * records) // (4 * records) if records else None)
            for model, segment, _, records, size in rows
        ]

    def windows(self) -> Iterator[StoredWindow]:
        """Yield each window with its chunks, in the order they came; damaged chunks are left out and counted."""
        for name, number in sorted(self._windows.items()):
            window = StoredWindow(name)
            rows = self._connection.execute(
                "SELECT id, arrived, newest, records, crc, content FROM chunks WHERE window = ? ORDER BY id", (number,)
            )
            damaged = []
            for chunk, arrived, newest, records, crc, content in rows:
                if crc != _crc_of_chunk(number, arrived, newest, records, content) or len(content) % max(records, 1):
                    damaged.append(chunk)
                    continue
                at = np.frombuffer(content, dtype="<f8", count=records)
                vectors = np.frombuffer(content, dtype="<f4", offset=8 * records).reshape(records, -1)
                window.chunks.append(StoredChunk(chunk, Chunk(name, arrived, at, vectors), newest))
            totals = self._connection.execute(
                "SELECT through, crc, content FROM totals WHERE window = ?", (number,)
            ).fetchone()
            # Totals count records of damaged chunks too, which the window no longer has.
            if totals is not None and not damaged and zlib.crc32(totals[2]) == totals[1]:
                window.through, window.totals = totals[0], totals[2]
            if damaged:
                self._forget_damaged(name, damaged)
            yield window

    def ids(self) -> Iterator[IdBatch]:
        """Yield the remembered hashes in the order they were remembered, small batches put together."""
        rows = self._connection.execute("SELECT model, batch, content FROM ids ORDER BY model, batch")
        for model, batches in groupby(rows, key=lambda row: row[0]):
            number, gathered = 0, bytearray()
            for _, number, content in batches:
                gathered += content
                if len(gathered) >= _IDS_BYTES_AT_ONCE:
                    yield IdBatch(model, number, _as_hashes(gathered))
                    gathered = bytearray()
            if gathered:
                yield IdBatch(model, number, _as_hashes(gathered))

    def positions(self, source: str) -> dict[bytes, bytes]:
        """Return where a source stood."""
        return dict(self._connection.execute("SELECT key, value FROM positions WHERE source = ?", (source,)))

    def counters(self) -> dict[tuple[str, ...], int]:
        """Return all counters."""
        rows = self._connection.execute("SELECT name, value FROM counters")
        return {tuple(msgspec.json.decode(name, type=list[str])): value for name, value in rows}

    def kept(self) -> dict[str, bytes]:
        """Return the small things that were kept."""
        return dict(self._connection.execute("SELECT name, value FROM kept"))

    def rejected(self) -> list[tuple[float, str, str, Pointer]]:
        """Return when, from which source and from where the latest refused records came."""
        rows = self._connection.execute("SELECT at, source, pointer FROM rejected ORDER BY id")
        return [(at, source, *msgspec.json.decode(pointer, type=tuple[str, Pointer])) for at, source, pointer in rows]

    def past_events(self) -> list[tuple[float, str]]:
        """Return the latest events."""
        return list(self._connection.execute("SELECT at, event FROM events ORDER BY id"))

    # Writing.

    def describe_models(
        self, shapes: Mapping[str, bytes], dropped: list[WindowName], events: list[str], now: float
    ) -> None:
        """Note what the configured models look like, and forget what does not fit them."""
        with self._transaction():
            self._connection.execute("DELETE FROM models")
            self._connection.executemany("INSERT INTO models VALUES (?, ?)", shapes.items())
            self._forget(dropped)
            self._note_events(events, now)

    def commit(self, change: Change, now: float) -> Committed:
        """Write a change, whole or not at all.

        StatePaused: nothing was written, and the same may succeed later. StateLost: stop.
        """
        with self._transaction():
            self._forget(change.forgotten)
            self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in change.dropped))
            for snapshot in change.snapshots:
                window = self._number(snapshot.window)
                if snapshot.content is None:
                    self._connection.execute("DELETE FROM totals WHERE window = ?", (window,))
                    continue
                self._connection.execute(
                    "INSERT OR REPLACE INTO totals SELECT ?, coalesce(max(id), 0), ?, ? FROM chunks WHERE window = ?",
                    (window, zlib.crc32(snapshot.content), snapshot.content, window),
                )
            rewritten = {}
            for name, chunks in change.rewritten.items():
                self._connection.execute("DELETE FROM chunks WHERE window = ?", (self._number(name),))
                self._connection.execute("DELETE FROM totals WHERE window = ?", (self._number(name),))
                rewritten[name] = [self._write_chunk(chunk) for chunk in chunks]
            numbers = [self._write_chunk(chunk) for chunk in change.chunks]
            self._write_ids(change)
            for source, positions in change.positions.items():
                self._write_positions(source, positions)
            self._connection.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?)",
                ((msgspec.json.encode(name).decode(), value) for name, value in change.counters.items()),
            )
            self._write_kept(change.kept)
            self._write_rejected(change, now)
            self._note_events(change.events, now)
        return Committed(numbers, rewritten)

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._connection, self.path, self._inode, self._find_windows)

    def _find_windows(self) -> None:
        rows = self._connection.execute("SELECT id, model, segment FROM windows")
        self._windows = {(model, _segment(segment)): number for number, model, segment in rows}

    def _number(self, name: WindowName) -> int:
        """Return the number of a window, which is given one if it has none."""
        if name not in self._windows:
            model, segment = name
            cursor = self._connection.execute(
                "INSERT INTO windows(model, segment) VALUES (?, ?) ON CONFLICT DO UPDATE SET model = model RETURNING id",
                (model, msgspec.json.encode(segment).decode()),
            )
            self._windows[name] = int(cursor.fetchone()[0])
        return self._windows[name]

    def _write_chunk(self, chunk: Chunk) -> int:
        window, records = self._number(chunk.window), len(chunk.at)
        newest = float(chunk.at.max()) if records else -1e308
        content = chunk.at.astype("<f8").tobytes() + np.ascontiguousarray(chunk.vectors, dtype="<f4").tobytes()
        crc = _crc_of_chunk(window, chunk.arrived, newest, records, content)
        cursor = self._connection.execute(
            "INSERT INTO chunks(window, arrived, newest, records, crc, content) VALUES (?, ?, ?, ?, ?, ?)",
            (window, chunk.arrived, newest, records, crc, content),
        )
        return int(cursor.lastrowid or 0)

    def _write_ids(self, change: Change) -> None:
        for batch in change.ids:
            content = batch.hashes.astype("<u8").tobytes()
            self._connection.execute(
                "INSERT INTO ids(model, batch, crc, content) VALUES (?, ?, ?, ?)",
                (batch.model, batch.number, zlib.crc32(content), content),
            )
        for model, (first, last) in change.ids_merged.items():
            self._merge_ids(model, first, last)
        for model, needed in change.ids_needed.items():
            self._connection.execute("DELETE FROM ids WHERE model = ? AND batch < ?", (model, needed))

    def _merge_ids(self, model: str, first: int, last: int) -> None:
        where = "FROM ids WHERE model = ? AND batch BETWEEN ? AND ?"
        rows = self._connection.execute(f"SELECT content {where} ORDER BY batch", (model, first, last)).fetchall()
        if len(rows) > 1:
            content = b"".join(row[0] for row in rows)
            self._connection.execute(f"DELETE {where}", (model, first, last))
            # Under the last number: the batch may go only when its youngest id may.
            self._connection.execute(
                "INSERT INTO ids(model, batch, crc, content) VALUES (?, ?, ?, ?)",
                (model, last, zlib.crc32(content), content),
            )

    def _write_positions(self, source: str, positions: Mapping[bytes, bytes | None]) -> None:
        self._connection.executemany(
            "DELETE FROM positions WHERE source = ? AND key = ?",
            ((source, key) for key, value in positions.items() if value is None),
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)",
            (
                (source, key, zlib.crc32(value, zlib.crc32(key)), value)
                for key, value in positions.items()
                if value is not None
            ),
        )

    def _write_kept(self, kept: Mapping[str, bytes | None]) -> None:
        for name, value in kept.items():
            if value is None:
                self._connection.execute("DELETE FROM kept WHERE name = ?", (name,))
            else:
                self._connection.execute(
                    "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (name, zlib.crc32(value), value)
                )

    def _write_rejected(self, change: Change, now: float) -> None:
        if change.rejected:
            self._connection.executemany(
                "INSERT INTO rejected(at, source, pointer) VALUES (?, ?, ?)",
                (
                    (now, source, msgspec.json.encode((origin, pointer)))
                    for source, origin, pointer in change.rejected[-MOST_REJECTED:]
                ),
            )
            self._connection.execute(
                "DELETE FROM rejected WHERE id <= (SELECT max(id) FROM rejected) - ?", (MOST_REJECTED,)
            )

    def _note_events(self, events: list[str], now: float) -> None:
        if events:
            self._connection.executemany(
                "INSERT INTO events(at, event) VALUES (?, ?)", ((now, event) for event in events)
            )
            self._connection.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (MOST_EVENTS,))

    def _forget(self, windows: list[WindowName]) -> None:
        for name in windows:
            number = self._windows.pop(name, None)
            if number is not None:
                self._connection.execute("DELETE FROM chunks WHERE window = ?", (number,))
                self._connection.execute("DELETE FROM totals WHERE window = ?", (number,))
                self._connection.execute("DELETE FROM windows WHERE id = ?", (number,))

    def _forget_damaged(self, name: WindowName, chunks: list[int]) -> None:
        self.damaged_chunks += len(chunks)
        self.events.append(f"{len(chunks)} damaged chunks of a window of {name[0]} dropped: their checksums do not fit")
        with self._transaction():
            self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in chunks))
            self._connection.execute("DELETE FROM totals WHERE window = ?", (self._windows[name],))


class _Transaction:
    """All or nothing, with SQLite's errors turned into ours."""

    def __init__(
        self, connection: sqlite3.Connection, folder: Path, inode: int, rolled_back: Callable[[], None]
    ) -> None:
        self._connection, self._folder, self._inode = connection, folder, inode
        self._rolled_back = rolled_back

    def __enter__(self) -> None:
        try:
            found = os.stat(self._folder / NAME).st_ino  # noqa: PTH116 - called for every batch
        except OSError:
            found = None
        if found != self._inode:
            # SQLite would go on writing into a file that no name leads to.
            raise StateLost(f"{self._folder / NAME}: expected the database that was opened, found it moved or deleted")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise translated(error, self._folder) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        try:
            if error is None:
                self._connection.execute("COMMIT")
                return
        except sqlite3.Error as failure:
            self._roll_back()
            raise translated(failure, self._folder) from failure
        self._roll_back()
        if isinstance(error, sqlite3.Error):
            raise translated(error, self._folder) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        with suppress(sqlite3.Error):
            self._rolled_back()


def _crc_of_chunk(window: int, arrived: float, newest: float, records: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<qddq", window, arrived, newest, records)))


def _as_hashes(content: bytearray) -> Hashes:
    return np.frombuffer(bytes(content), dtype="<u8").astype(np.uint64)


def _segment(text: str) -> Segment:
    return msgspec.json.decode(text, type=Segment)


def _verify(connection: sqlite3.Connection) -> None:
    """Refuse a database whose positions, ids or kept things were damaged: only a whole backup agrees with itself."""
    for key, crc, value in connection.execute("SELECT key, crc, value FROM positions"):
        if zlib.crc32(value, zlib.crc32(key)) != crc:
            raise ValueError("the checksum of a source's position does not fit")
    for table, column in (("ids", "content"), ("kept", "value")):
        for crc, content in connection.execute(f"SELECT crc, {column} FROM {table}"):  # noqa: S608 - our own names
            if zlib.crc32(content) != crc:
                raise ValueError(f"a checksum in the table {table} does not fit")
