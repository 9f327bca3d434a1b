"""The state as one object: read at the start, then written one transaction at a time."""

import math
import os
import sqlite3
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.segments import ALL, Segment
from monitor.errors import Problem, StateLost, StatePaused
from monitor.records.record_batch import Pointer
from monitor.state.commit_plan import (
    CommitPlan,
    Forgotten,
    HistoryRow,
    IdBatch,
    RejectionEntry,
    StoredChunk,
    StoredCounters,
    WindowName,
    display_name,
    labels_name,
    predictions_name,
    split_stored_name,
)
from monitor.state.database import (
    BACKUPS,
    NAME,
    RECOVERED,
    OpenedDatabase,
    back_up,
    check_structure,
    check_version,
    delete_copies,
    open_database,
    translated,
)
from monitor.state.evaluation_history import read_history, write_history
from monitor.state.record_tables import (
    WindowTable,
    check_windows,
    checksum,
    forget_ids,
    read_ids,
    write_audit_ids,
    write_ids,
)
from monitor.state.schema import AUDIT_IDS_SINCE, check_sums, version_of
from monitor.state.state_folder import StateFolder, check_folder, filesystem_of

MOST_REJECTED = 10_000
MOST_EVENTS = 1_000
_LAST_COMMIT = 32
"""Offset of the last commit in `state.lock`, after the process id."""


class Transaction:
    """A `with` block that commits as a whole, or rolls back on any error."""

    def __init__(self, connection: sqlite3.Connection, folder: StateFolder, rolled_back: Callable[[], None]) -> None:
        self._connection, self._path, self._folder = connection, folder.path / NAME, folder
        self._inode = self._path.stat().st_ino
        self._rolled_back = rolled_back
        number = "SELECT crcs, rows FROM checksums WHERE name = 'commits'"
        self._database, self._commits = connection.execute(number).fetchone()

    @property
    def missing(self) -> int:
        """How many commits of this database are missing from it."""
        try:
            database, commits = map(int, os.pread(self._folder.lock, 42, _LAST_COMMIT).split())
        except (OSError, ValueError):
            return 0
        return max(0, commits - self._commits) if database == self._database else 0

    def __enter__(self) -> None:
        """Begin; raises StatePaused or StateLost."""
        try:
            found = os.stat(self._path).st_ino  # noqa: PTH116 - called for every batch
        except OSError:
            found = None
        if found != self._inode:
            # SQLite would go on writing to an unlinked file.
            raise StateLost(Problem(str(self._path), "the database that was opened", "it moved or deleted"))
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise translated(error, self._path.parent) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        """Commit or roll back; raises StatePaused or StateLost when SQLite fails."""
        try:
            if error is None:
                commits = self._commits + 1
                self._connection.execute("UPDATE checksums SET rows = ? WHERE name = 'commits'", (commits,))
                self._connection.execute("COMMIT")
                self._commits = commits
                # Outside the database, too. Not synced: the commit itself already is.
                with suppress(OSError):
                    os.pwrite(self._folder.lock, f"{self._database:>20} {commits:>20}\n".encode(), _LAST_COMMIT)
                return
        except sqlite3.Error as failure:
            self._roll_back()
            raise translated(failure, self._path.parent) from failure
        self._roll_back()
        if isinstance(error, sqlite3.Error):
            raise translated(error, self._path.parent) from error

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._rolled_back()


# The columns covered by each checksum, content last.
_CHECKED = {
    "models": ("name", "shape"),
    "ids": ("model", "batch", "content"),
    "positions": ("source", "key", "value"),
    "counters": ("name", "value"),
    "kept": ("name", "value"),
    "audit_ids": ("model", "hash", "at", "id"),
}

_KEY, _RECOVERED = "hash key", RECOVERED


class State:
    """Everything that survives a restart. Used by the ingestion thread only."""

    def __init__(self, folder: StateFolder, opened: OpenedDatabase, *, repair: bool = True) -> None:
        self._folder = folder
        self._connection = opened.connection
        self._windows = WindowTable(opened.connection)
        self._transaction = Transaction(opened.connection, folder, self._windows.load)
        self._repair = repair
        self.key = folder.key()
        """The key for all hashes."""
        values = self.values()
        self.recovered = values.get(_RECOVERED, b"backup" if opened.events else b"").decode()
        """`backup` or `empty` after a recovery from damage, until a start has reported it; else empty."""
        self.events = opened.events or ([f"recovered from: {self.recovered}"] if self.recovered else [])
        """Messages for the log."""
        missing = 0 if self.recovered else self._transaction.missing
        if missing:
            self.events.append(
                f"state.db lost its last {missing} commits (the write-ahead log is damaged, or the file was replaced);"
                " later records are read again from files still present"
            )
        if values.get(_KEY, _crc_of_key(self.key)) != _crc_of_key(self.key):
            self.events.append("hash.key does not belong to this state: earlier ids and files are not recognised")
        self._unerased = False
        """Whether the write-ahead log may contain ids that were deleted."""
        self.damaged_chunks = 0
        """Chunks dropped because of a checksum mismatch."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        allow_network: bool = False,
        filesystem: Callable[[Path], str] = filesystem_of,
        repair: bool = True,
    ) -> "State":
        """Lock a folder and open its database; raises StateInUse, StateRefused, StateLost or StatePaused.

        Without `repair`, damage raises StateLost and nothing is replaced.
        """
        folder = StateFolder.hold(path, allow_network=allow_network, filesystem=filesystem)
        try:
            opened = open_database(path, networked=folder.networked, verify=_verify, repair=repair)
            if repair:
                delete_copies(path)
                # Last: disk space freed for a migration must not be taken before the migration.
                folder.reserve_ballast()
            return cls(folder, opened, repair=repair)
        except BaseException:
            folder.close()
            raise

    @staticmethod
    def check(path: Path, *, allow_network: bool = False) -> None:
        """Raise what `open` would raise for an unusable folder, in use or not. Leaves nothing behind."""
        check_folder(path, allow_network=allow_network)
        check_version(path)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def size(self) -> int:
        """Size of the database and its write-ahead log."""
        files = (self.path / NAME, self.path / f"{NAME}-wal")
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Close the database and release the folder."""
        self._connection.close()
        self._folder.close()

    def backup_age(self, now: float) -> float:
        """Return the age of the newest backup in seconds; infinite without one."""
        try:
            return now - (self.path / BACKUPS[0]).stat().st_mtime
        except FileNotFoundError:
            return float("inf")

    def back_up(self) -> None:
        """Write a backup; raises StatePaused on a full disk."""
        back_up(self._connection, self.path, _verify_copy)

    # Reading, at the start.

    def models(self) -> dict[str, bytes]:
        """Return the stored shape of each model."""
        return dict(self._connection.execute("SELECT name, shape FROM models"))

    def window_names(self) -> list[WindowName]:
        """Return the window names, sorted."""
        return self._windows.names()

    def stored_records(self, models: Container[str]) -> int:
        """Return the number of stored records of some models, by stored name."""
        return self._windows.records(models)

    def last_arrivals(self, model: str) -> dict[Segment, float]:
        """Return the last arrival at each window of a model, by stored name."""
        found: dict[Segment, float] = {}
        for one in self._windows.read(model):
            if isinstance(one, StoredChunk):
                for segment, arrived in zip(one.chunk.segments, one.arrivals.tolist(), strict=True):
                    found[segment] = max(arrived, found.get(segment, arrived))
        return found

    def chunks(self, model: str, without: Container[Segment] = (), after: int = 0) -> Iterator[StoredChunk]:
        """Yield the chunks of a model, by stored name, after an id, in order of arrival, as if some windows did not exist.

        Damaged chunks are skipped, counted and deleted.
        """
        damaged = []
        for one in self._windows.read(model, without, after):
            if isinstance(one, StoredChunk):
                yield one
            else:
                damaged.append(one)
        if damaged:
            self.damaged_chunks += len(damaged)
            self.events.append(f"dropped {len(damaged)} damaged chunks of {display_name(model)}: checksum mismatch")
            if self._repair:
                # On a full disk they stay until the next start.
                with suppress(StatePaused), self._transaction:
                    self._windows.delete_chunks(damaged)

    def ids(self, models: Iterable[str]) -> Iterator[IdBatch]:
        """Yield the id hashes of some models in order."""
        return read_ids(self._connection, models)

    def oldest_audit_ids(self) -> dict[str, float]:
        """Return by stored name of a model the time of the oldest id that waits for its label."""
        return dict(self._connection.execute("SELECT model, min(at) FROM audit_ids GROUP BY model"))

    def checkpoints(self, source: str) -> dict[bytes, bytes]:
        """Return the checkpoints of a source."""
        return dict(self._connection.execute("SELECT key, value FROM positions WHERE source = ?", (source,)))

    def counters(self) -> StoredCounters:
        """Return all counters."""
        rows = self._connection.execute("SELECT name, value FROM counters")
        return {tuple(msgspec.json.decode(name, type=list[str])): value for name, value in rows}

    def values(self) -> dict[str, bytes]:
        """Return the named values."""
        return dict(self._connection.execute("SELECT name, value FROM kept"))

    def rejected(self, latest: int = MOST_REJECTED) -> list[RejectionEntry]:
        """Return the latest rejected records; damaged rows are skipped."""
        query = "SELECT at, source, crc, pointer FROM rejected ORDER BY id DESC LIMIT ?"
        rows = self._connection.execute(query, (latest,)).fetchall()
        found = []
        for at, source, crc, pointer in reversed(rows):
            with suppress(TypeError, msgspec.MsgspecError):
                if checksum(pointer, at, source) == crc:
                    found.append((at, source, *msgspec.json.decode(pointer, type=tuple[str, Pointer])))
        self._report_skipped("rejected", len(rows) - len(found))
        return found

    def history(self) -> Iterator[HistoryRow | None]:
        """Yield the history rows; None for an unreadable one."""
        return read_history(self._connection)

    def past_events(self) -> list[tuple[float, str]]:
        """Return the latest events; damaged rows are skipped."""
        rows = self._connection.execute("SELECT at, event, crc FROM events ORDER BY id").fetchall()
        found = [(at, event) for at, event, crc in rows if isinstance(event, str) and _crc_of_event(at, event) == crc]
        self._report_skipped("events", len(rows) - len(found))
        return found

    def _report_skipped(self, table: str, damaged: int) -> None:
        sentence = f"skipped {damaged} damaged rows of the table {table}"
        if damaged and sentence not in self.events:
            self.events.append(sentence)

    # Writing.

    def store_models(
        self,
        shapes: Mapping[str, bytes],
        dropped: list[WindowName],
        events: list[str],
        now: float,
        keep_ids: Container[str] = (),
        unfit: Iterable[str] = (),
    ) -> None:
        """Store the shapes of the configured models; delete windows that do not match, and ids of all models but `keep_ids`.

        `unfit` are models of which no stored record fits.

        Writes nothing when nothing changed: a start on a full disk must succeed.
        """
        values = self.values()
        unwanted = {one for one in self.oldest_audit_ids() if split_stored_name(one)[0] not in keep_ids}
        changed = shapes != self.models() or dropped or events or unwanted
        if not changed and {_KEY} == values.keys() & {_KEY, _RECOVERED}:
            return
        # Without their windows, as a source may be gone, labels still fit the model.
        without_labels = {*unfit, *(self.models().keys() - shapes.keys())}
        without_labels |= {stored for stored, segment in dropped if segment == ALL and stored in shapes}
        with self._transaction:
            self._connection.execute("DELETE FROM models")
            self._connection.executemany(
                "INSERT INTO models VALUES (?, ?, ?)",
                ((name, checksum(shape, name), shape) for name, shape in shapes.items()),
            )
            self._windows.delete(dropped)
            # Kept predictions and labels are of the same records.
            whole = {stored for stored, segment in dropped if segment == ALL}
            names = {predictions_name(one) for one in whole} | {labels_name(one) for one in without_labels}
            self._connection.executemany("DELETE FROM ids WHERE model = ?", ((name,) for name in names))
            needed = dict.fromkeys(unwanted | whole, math.inf)
            erased = write_audit_ids(self._connection, CommitPlan(audit_ids_needed=needed))
            # The recovery is in the events now.
            self._write_values({_RECOVERED: None, _KEY: _crc_of_key(self.key)})
            self._note_events(events, now)
        self._erase(erased)

    def commit(self, plan: CommitPlan, now: float) -> list[int]:
        """Write a plan, all or nothing; return the ids of its chunks.

        StatePaused: nothing was written, and a retry may succeed. StateLost: the process must stop.
        """
        with self._transaction:
            ids = self._windows.write(plan)
            write_ids(self._connection, plan)
            erased = write_audit_ids(self._connection, plan)
            for source, checkpoints in plan.checkpoints.items():
                self._write_checkpoints(source, checkpoints)
            self._write_counters(plan.counters)
            self._write_values(plan.values)
            self._write_rejected(plan.rejected, now)
            write_history(self._connection, plan.history)
            self._note_events(plan.events, now)
        self._erase(erased)
        return ids

    def forget(self, hashes: Hashes, model: str | None = None) -> Forgotten:
        """Delete what is stored of some ids, of one model or of all; raises like `commit`."""
        with self._transaction:
            found = forget_ids(self._connection, hashes[hashes != NO_ID], model)
        self._erase(found.found + found.audit_ids)
        return found

    def _erase(self, deleted: int) -> None:
        """Erase deleted ids from the write-ahead log, too, now or after a later commit."""
        self._unerased |= deleted > 0
        if self._unerased:
            # The rows are deleted, whether this succeeds or not.
            with suppress(sqlite3.Error):
                busy, *_ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._unerased = bool(busy)

    def _write_counters(self, counters: StoredCounters) -> None:
        named = ((msgspec.json.encode(name).decode(), value) for name, value in counters.items())
        self._connection.executemany(
            "INSERT OR REPLACE INTO counters VALUES (?, ?, ?)",
            ((name, checksum(repr(value).encode(), name), value) for name, value in named),
        )

    def _write_checkpoints(self, source: str, checkpoints: Mapping[bytes, bytes | None]) -> None:
        self._connection.executemany(
            "DELETE FROM positions WHERE source = ? AND key = ?",
            ((source, key) for key, value in checkpoints.items() if value is None),
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)",
            (
                (source, key, checksum(value, source, key), value)
                for key, value in checkpoints.items()
                if value is not None
            ),
        )

    def _write_values(self, values: Mapping[str, bytes | None]) -> None:
        for name, value in values.items():
            if value is None:
                self._connection.execute("DELETE FROM kept WHERE name = ?", (name,))
            else:
                crc = checksum(value, name)
                self._connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (name, crc, value))

    def _write_rejected(self, rejected: list[tuple[str, str, Pointer]], now: float) -> None:
        if not rejected:
            return
        latest, at = rejected[-MOST_REJECTED:], float(now)
        self._connection.executemany(
            "INSERT INTO rejected(at, source, crc, pointer) VALUES (?, ?, ?, ?)",
            (
                (at, source, checksum(content, at, source), content)
                for source, content in ((one[0], msgspec.json.encode(one[1:])) for one in latest)
            ),
        )
        oldest = "(SELECT max(id) FROM rejected) - ?"
        self._connection.execute(f"DELETE FROM rejected WHERE id <= {oldest}", (MOST_REJECTED,))  # noqa: S608

    def _note_events(self, events: list[str], now: float) -> None:
        if not events:
            return
        at = float(now)
        rows = ((at, event, _crc_of_event(at, event)) for event in events)
        self._connection.executemany("INSERT INTO events(at, event, crc) VALUES (?, ?, ?)", rows)
        self._connection.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (MOST_EVENTS,))


def _verify(connection: sqlite3.Connection) -> None:
    """Reject a database with damage outside of chunks: only an intact backup is consistent."""
    check_sums(connection)
    check_windows(connection)
    for table, columns in _CHECKED.items():
        if table == "audit_ids" and version_of(connection) < AUDIT_IDS_SINCE:
            continue
        *beside, content = columns
        for *values, crc in connection.execute(f"SELECT {', '.join(columns)}, crc FROM {table}"):  # noqa: S608 - our own
            last = values.pop()
            whole = last if isinstance(last, bytes) else repr(last).encode()
            if checksum(whole, *values) != crc:
                raise ValueError(f"checksum mismatch in the table {table} ({', '.join(beside)}, {content})")
    for (name,) in connection.execute("SELECT name FROM counters"):
        msgspec.json.decode(name, type=list[str])


def _verify_copy(connection: sqlite3.Connection) -> None:
    check_structure(connection)
    _verify(connection)


def _crc_of_event(at: float, event: str) -> int:
    return checksum(event.encode(errors="surrogateescape"), at)


def _crc_of_key(key: bytes) -> bytes:
    """Return a digest that identifies the key without revealing it."""
    return blake2b(b"cpcmon", key=key, digest_size=8).digest()
