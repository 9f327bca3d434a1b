"""Everything that survives a restart, behind one object: read at the start, then one transaction a change."""

import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from monitor.decode.arrived import Pointer
from monitor.errors import StatePaused
from monitor.state.change import Change, IdBatch, WindowName
from monitor.state.database import NAME, Opened, back_up, open_database
from monitor.state.folder import StateFolder, filesystem_of
from monitor.state.id_table import read_ids, write_ids
from monitor.state.transaction import Transaction
from monitor.state.window_table import Committed, StoredWindow, WindowSummary, WindowTable

MOST_REJECTED = 10_000
MOST_EVENTS = 1_000


class State:
    """Everything that survives a restart. Used by one thread, the one that ingests."""

    def __init__(self, folder: StateFolder, opened: Opened) -> None:
        self._folder = folder
        self._connection = opened.connection
        self._windows = WindowTable(opened.connection)
        self._transaction = Transaction(opened.connection, folder.path, self._windows.find)
        self.key = folder.key()
        """For all keyed hashes."""
        self.recovered = opened.recovered
        """Empty, or what was used because the database was damaged: `backup` or `empty`."""
        self.events = opened.events
        """What happened while it was opened, for the log."""
        self.damaged_chunks = 0
        """Chunks that were dropped because their checksum did not fit."""

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
        """Return which windows there are, those that records came to last first."""
        return self._windows.summaries()

    def windows(self) -> Iterator[StoredWindow]:
        """Yield each window with its chunks, in the order they came; damaged ones are left out, counted and deleted."""
        for window in self._windows.read():
            if window.damaged:
                damaged = len(window.damaged)
                self.damaged_chunks += damaged
                self.events.append(
                    f"{damaged} damaged chunks of a window of {window.name[0]} dropped: their checksums do not fit"
                )
                # On a full disk they stay, and are found again at the next start.
                with suppress(StatePaused), self._transaction:
                    self._windows.forget_damaged(window)
            yield window

    def ids(self) -> Iterator[IdBatch]:
        """Yield the remembered hashes in the order they were remembered."""
        return read_ids(self._connection)

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
        """Note what the configured models look like, and forget what does not fit them.

        Nothing is written when nothing changed: a start on a full disk must succeed.
        """
        if shapes == self.models() and not dropped and not events:
            return
        with self._transaction:
            self._connection.execute("DELETE FROM models")
            self._connection.executemany("INSERT INTO models VALUES (?, ?)", shapes.items())
            self._windows.forget(dropped)
            self._note_events(events, now)

    def commit(self, change: Change, now: float) -> Committed:
        """Write a change, whole or not at all.

        StatePaused: nothing was written, and the same may succeed later. StateLost: stop.
        """
        with self._transaction:
            committed = self._windows.write(change)
            write_ids(self._connection, change)
            for source, positions in change.positions.items():
                self._write_positions(source, positions)
            self._connection.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?)",
                ((msgspec.json.encode(name).decode(), value) for name, value in change.counters.items()),
            )
            self._write_kept(change.kept)
            self._write_rejected(change, now)
            self._note_events(change.events, now)
        return committed

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
                crc = zlib.crc32(value)
                self._connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (name, crc, value))

    def _write_rejected(self, change: Change, now: float) -> None:
        if not change.rejected:
            return
        latest = change.rejected[-MOST_REJECTED:]
        self._connection.executemany(
            "INSERT INTO rejected(at, source, pointer) VALUES (?, ?, ?)",
            ((now, source, msgspec.json.encode((origin, pointer))) for source, origin, pointer in latest),
        )
        oldest = "(SELECT max(id) FROM rejected) - ?"
        self._connection.execute(f"DELETE FROM rejected WHERE id <= {oldest}", (MOST_REJECTED,))  # noqa: S608

    def _note_events(self, events: list[str], now: float) -> None:
        if not events:
            return
        rows = ((now, event) for event in events)
        self._connection.executemany("INSERT INTO events(at, event) VALUES (?, ?)", rows)
        self._connection.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (MOST_EVENTS,))


def _verify(connection: sqlite3.Connection) -> None:
    """Refuse a database whose positions, ids or kept things were damaged: only a whole backup agrees with itself."""
    for key, crc, value in connection.execute("SELECT key, crc, value FROM positions"):
        if zlib.crc32(value, zlib.crc32(key)) != crc:
            raise ValueError("the checksum of a source's position does not fit")
    for table, column in (("ids", "content"), ("kept", "value")):
        for crc, content in connection.execute(f"SELECT crc, {column} FROM {table}"):  # noqa: S608 - our own names
            if zlib.crc32(content) != crc:
                raise ValueError(f"a checksum in the table {table} does not fit")
