"""The database file: open, verify, back up, and recover from damage.

A damaged database is replaced by its backup, or by an empty one. Damage never prevents a start and is always reported
in `OpenedDatabase.events`.
"""

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from monitor.errors import Problem, StateError, StateInUse, StateLost, StatePaused, StateRefused
from monitor.state.commit_plan import AuditId
from monitor.state.record_tables import checksum, read_audit_ids
from monitor.state.schema import APPLICATION, AUDIT_IDS_SINCE, STEPS, migrate, schema_of, schemas, version_of
from monitor.state.state_folder import sync_folder

NAME = "state.db"
BACKUPS = ("state.db.bak", "state.db.bak.1")
"""Newest first."""

RECOVERED = "recovered"
"""The value that marks a recovered database, until a start has reported the recovery."""

_DAMAGED_KEPT = 2
_COPY, _COPY_TRIALS, _COPY_SECONDS, _WAL_HEADER_BYTES = "copy-", 20, 0.25, 32
# Environment errors. Any other error while opening means a damaged file: a flipped bit in the schema hides tables.
_NO_DAMAGE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}

# Offsets in SQLite's file header.
_VERSION_PLACE, _APPLICATION_PLACE, _HEADER_BYTES = slice(60, 64), slice(68, 72), 100
_WRITE_VERSION_PLACE, _WAL_VERSION = 18, 2


class _Damaged(Exception):
    """The database is damaged."""


@dataclass
class OpenedDatabase:
    """A verified database."""

    connection: sqlite3.Connection
    events: list[str] = field(default_factory=list)
    """Messages for the log."""


def open_database(
    folder: Path,
    *,
    networked: bool = False,
    verify: Callable[[sqlite3.Connection], None] = lambda _: None,
    steps: Sequence[str] = STEPS,
    repair: bool = True,
) -> OpenedDatabase:
    """Open the database of a state folder.

    `verify` raises ValueError for untrustworthy content; it also runs before a migration. Raises StateRefused for a
    file of a newer cpcmon. Raises StateLost when the disk does not support what SQLite needs, or when the file is
    damaged and `repair` is false.
    """
    path = folder / NAME
    events: list[str] = []
    if not repair:
        try:
            return OpenedDatabase(_open(path, networked=networked, verify=verify, steps=steps))
        except (_Damaged, FileNotFoundError) as damage:
            raise StateLost(Problem(str(path), "a database of cpcmon", f"damage: {damage}")) from damage
    if path.exists():
        try:
            return OpenedDatabase(_open(path, networked=networked, verify=verify, steps=steps))
        except _Damaged as damage:
            aside = _set_aside(path)
            events.append(f"state damaged: {damage}; kept as {aside}")
    elif any(folder.glob(f"{NAME}.corrupt-*")) or any(one.exists() for one in _companions(path)):
        # Killed during a recovery.
        events.append("state missing, with traces of an earlier one")
    recovered = _from_backup(folder, events, networked=networked, verify=verify, steps=steps)
    if recovered is not None:
        return OpenedDatabase(recovered, events)
    if events:
        events.append("no usable backup: started with empty windows; files still present are read again")
    return OpenedDatabase(_create(path, networked=networked, steps=steps, events=events), events)


def check_version(folder: Path) -> None:
    """Raise StateRefused for a database of a newer cpcmon. Damage passes: `open_database` recovers from it."""
    with suppress(_Damaged, OSError):
        _check_header(folder / NAME, STEPS)


def back_up(
    connection: sqlite3.Connection, folder: Path, verify: Callable[[sqlite3.Connection], None] = lambda _: None
) -> None:
    """Write a backup next to the database, and keep the previous one.

    `verify` checks the copy first and raises ValueError for damage, so that a damaged copy never replaces a good
    backup.
    """
    newest, older = (folder / name for name in BACKUPS)
    temporary = folder / f"{BACKUPS[0]}.tmp"
    temporary.unlink(missing_ok=True)
    try:
        _touch_private(temporary)
        target = _connect(temporary)
        try:
            connection.backup(target)
            # The copy inherits the journal mode; a backup must be a single file.
            target.execute("PRAGMA journal_mode = MEMORY").fetchone()
            if version_of(target) >= AUDIT_IDS_SINCE:
                # Ids are in one place only.
                target.execute("PRAGMA secure_delete = ON").fetchone()
                target.execute("DELETE FROM audit_ids")
            verify(target)
        except (ValueError, TypeError, OverflowError) as damage:
            found = f"damage: {damage}: the next start verifies it"
            raise StateLost(Problem(str(folder / NAME), "a database to back up", found)) from damage
        finally:
            target.close()
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if newest.exists():
            newest.replace(older)
        temporary.replace(newest)
        sync_folder(folder)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise translated(error, folder) from error
        raise StatePaused(Problem(str(folder), "to write a backup", str(error.strerror))) from error
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_audit_ids_of(folder: Path) -> list[AuditId]:
    """Return the ids that wait for their labels, oldest first, whether a daemon uses the folder or not. Changes nothing.

    The daemon locks its database, so it is copied. The copy is consistent unless the write-ahead log began anew meanwhile:
    whatever is moved from it to the database is still in it.
    """
    path = folder / NAME
    for _ in range(_COPY_TRIALS):
        with TemporaryDirectory(prefix=_COPY, dir=folder) as made:
            copy, before = Path(made) / NAME, _stamp(path)
            for one in (path, *_companions(path)):
                if one.name.endswith("-shm") or not one.exists():
                    continue
                if 2 * one.stat().st_size > shutil.disk_usage(folder).free:
                    raise StatePaused(Problem(str(folder), f"free disk space for a copy of {NAME}", "too little"))
                shutil.copyfile(one, copy.with_name(one.name))
            try:
                with closing(_connect(copy)) as connection:
                    # Read before the comparison: a copy that is not consistent may look damaged.
                    found = list(read_audit_ids(connection)) if version_of(connection) >= AUDIT_IDS_SINCE else []
                damage = None
            except (sqlite3.Error, ValueError) as error:
                found, damage = [], error
            if before == _stamp(path):
                if damage is not None:
                    raise StateLost(Problem(str(path), "a database of cpcmon", f"damage: {damage}")) from damage
                return found
        time.sleep(_COPY_SECONDS)
    raise StateInUse(Problem(str(path), "a moment without many commits", "none: try again later"))


def _stamp(path: Path) -> tuple[object, ...]:
    """Return what changes if a copy of a database may be inconsistent."""
    log, journal = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")
    head = b""
    with suppress(FileNotFoundError), log.open("rb") as file:
        head = file.read(_WAL_HEADER_BYTES)
    # Without a log nothing but the time tells whether the database was written.
    stat = path.stat()
    # A journal means that a transaction is under way: never the same as before.
    return (head, path) if head else (stat.st_mtime_ns, stat.st_size, object() if journal.exists() else None)


def delete_copies(folder: Path) -> None:
    """Delete copies that a killed process left behind: they contain ids."""
    for one in folder.glob(f"{_COPY}*"):
        shutil.rmtree(one, ignore_errors=True)


def translated(error: sqlite3.Error, folder: Path) -> StateError:
    """Translate a SQLite error into a StateError."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StateInUse(Problem(str(folder), "exclusive access to the database", "it locked by another program"))
    if code == sqlite3.SQLITE_FULL:
        return StatePaused(Problem(str(folder), "free disk space", "none: free some (`ballast` may be deleted)"))
    # SQLite reports many conditions as I/O errors; a test write shows whether the disk is the cause.
    found = _write_error(folder)
    if found in {errno.ENOSPC, errno.EDQUOT}:
        return StatePaused(Problem(str(folder), "free disk space", os.strerror(found).lower()))
    if found == errno.EROFS or code == sqlite3.SQLITE_READONLY:
        return StatePaused(Problem(str(folder), "a writable disk", "it read-only"))
    return StateLost(Problem(str(folder), "to write to the database", f"{error}: the next start verifies it"))


def _write_error(folder: Path) -> int:
    """Write a small test file. Return the errno of the failure, 0 for success."""
    probe = folder / "probe"
    try:
        handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, bytes(4096))
            os.fsync(handle)
        finally:
            os.close(handle)
        probe.unlink()
    except OSError as error:
        return error.errno or 0
    return 0


def _open(
    path: Path, *, networked: bool, verify: Callable[[sqlite3.Connection], None], steps: Sequence[str]
) -> sqlite3.Connection:
    _check_header(path, steps)
    connection = _connect(path)
    try:
        _configure(connection, path, networked=networked)
        _check(connection, path, steps)
        if version_of(connection) < len(steps):
            # Verify before the backup: a damaged copy would push out a good one.
            verify(connection)
            back_up(connection, path.parent)
            migrate(connection, steps)
        verify(connection)
    except (ValueError, TypeError, OverflowError) as error:
        connection.close()
        raise _Damaged(str(error)) from error
    except sqlite3.DatabaseError as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _NO_DAMAGE:
            raise _Damaged(f"SQLite reports {error}") from error
        raise translated(error, path.parent) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path, steps: Sequence[str]) -> None:
    version, schema, known = version_of(connection), schema_of(connection), schemas(tuple(steps))
    # The file header may be older than the content of the write-ahead log.
    if version > len(steps) and schema not in known:
        raise _too_new(path, version, len(steps))
    # A flipped bit in the schema can rename a column or break a checksum trigger.
    if version >= len(known) or schema != known[version]:
        raise _Damaged(f"the schema does not match version {version}")
    check_structure(connection)


def check_structure(connection: sqlite3.Connection) -> None:
    """Raise ValueError for corrupt pages, or an index that does not match its table."""
    # Not quick_check, which does not compare indexes with tables: most rows are found by an index.
    answer = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if answer != "ok":
        raise ValueError(f"SQLite reports {str(answer).splitlines()[-1]}")


def _check_header(path: Path, steps: Sequence[str]) -> None:
    """Check the file header without SQLite, which would create files next to a database that must not be touched."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(b"SQLite format 3\0"):
        raise _Damaged("the file is not a SQLite database" if header else "the file is empty")
    if int.from_bytes(header[_APPLICATION_PLACE], "big") != APPLICATION:
        raise _Damaged("the file is not a database of cpcmon")
    if header[_WRITE_VERSION_PLACE] > _WAL_VERSION:
        # SQLite would open it read-only.
        raise _Damaged("the header has an unknown write version")
    version = int.from_bytes(header[_VERSION_PLACE], "big")
    if version > len(steps):
        if _has_our_schema(path, steps):
            raise _Damaged(f"the header is of version {version}, the schema of an older one")
        raise _too_new(path, version, len(steps))


def _has_our_schema(path: Path, steps: Sequence[str]) -> bool:
    """Return whether the schema is of a known version, whatever the header contains. Writes nothing."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection,
    ):
        return schema_of(connection) in schemas(tuple(steps))
    return False


def _too_new(path: Path, version: int, ours: int) -> StateRefused:
    found = f"version {version}, made by a newer cpcmon: install that version again, or use another folder"
    return StateRefused(Problem(str(path), f"state of version {ours} or older", found))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    # REPLACE fires delete triggers only with this.
    connection.execute("PRAGMA recursive_triggers = ON")
    # Decode damaged text too; its checksum will not match.
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    return connection


def _configure(connection: sqlite3.Connection, path: Path, *, networked: bool) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
    wanted = "delete" if networked else "wal"
    # Compare the answer: SQLite silently falls back to another mode.
    found = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
    if found != wanted:
        raise StateLost(Problem(str(path), f"journal mode {wanted}", f"{found}: the disk does not support it"))
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cell_size_check = ON")
    # Overwrite deleted records. Debian's SQLite does so by default, others do not; FAST would leave most vectors on
    # disk.
    connection.execute("PRAGMA secure_delete = ON").fetchone()


def _mark(path: Path, recovered: str) -> None:
    """Mark a new database as the replacement of a damaged one, before it is moved into place."""
    connection = _connect(path)
    try:
        value = recovered.encode()
        row = (RECOVERED, checksum(value, RECOVERED), value)
        connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", row)
    finally:
        connection.close()


def _create(path: Path, *, networked: bool, steps: Sequence[str], events: list[str]) -> sqlite3.Connection:
    # Created under another name: an empty state.db then always means damage.
    new = path.with_name(f"{path.name}.new")
    for leftover in (new, *_companions(new), *_companions(path)):
        leftover.unlink(missing_ok=True)
    try:
        _touch_private(new)
        connection = _connect(new)
        try:
            migrate(connection, steps)
        finally:
            connection.close()
        if events:
            _mark(new, "empty")
        new.replace(path)
        sync_folder(path.parent)
        connection = _connect(path)
        _configure(connection, path, networked=networked)
    except sqlite3.Error as error:
        raise translated(error, path.parent) from error
    return connection


def _from_backup(
    folder: Path,
    events: list[str],
    *,
    networked: bool,
    verify: Callable[[sqlite3.Connection], None],
    steps: Sequence[str],
) -> sqlite3.Connection | None:
    path = folder / NAME
    for name in BACKUPS:
        backup = folder / name
        if not backup.exists():
            continue
        copy = path.with_name(f"{path.name}.new")
        for leftover in (*_companions(copy), *_companions(path)):
            leftover.unlink(missing_ok=True)
        age = time.time() - backup.stat().st_mtime
        try:
            _take_copy(backup, copy)
            copy.replace(path)
            sync_folder(folder)
            connection = _open(path, networked=networked, verify=verify, steps=steps)
        except _Damaged as damage:
            path.unlink(missing_ok=True)
            events.append(f"backup also damaged: {damage}")
            continue
        events.append(
            f"restored the backup of {age / 60:.0f} minutes ago; later records are read again from files still present"
        )
        return connection
    return None


def _take_copy(backup: Path, copy: Path) -> None:
    """Copy a backup and mark the copy. On a full disk, use the backup itself, unmarked."""
    try:
        shutil.copyfile(backup, copy)
        copy.chmod(0o600)
        _mark(copy, "backup")
        with copy.open("rb+") as file:
            os.fsync(file.fileno())
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _NO_DAMAGE:
            raise _Damaged(f"SQLite reports {error}") from error
        backup.replace(copy)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        backup.replace(copy)


def _set_aside(path: Path) -> str:
    """Rename a damaged database, for later analysis."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 0
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}.{number}")
    path.replace(aside)
    for companion in _companions(path):
        if companion.exists():
            companion.replace(aside.with_name(f"{aside.name}{companion.name.removeprefix(path.name)}"))
    every = sorted(path.parent.glob(f"{path.name}.corrupt-*"))
    damaged = [one for one in every if not one.name.endswith(("-wal", "-shm", "-journal"))]
    for old in damaged[:-_DAMAGED_KEPT]:
        for one in (old, *_companions(old)):
            one.unlink(missing_ok=True)
    sync_folder(path.parent)
    return aside.name


def _companions(path: Path) -> tuple[Path, ...]:
    return tuple(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm", "-journal"))


def _touch_private(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
