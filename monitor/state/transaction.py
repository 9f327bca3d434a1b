"""Transactions, with SQLite's errors translated."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress

from monitor.errors import StateLost
from monitor.state.database import NAME, translated
from monitor.state.state_folder import StateFolder


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
        database, commits = self._folder.last_commit()
        return max(0, commits - self._commits) if database == self._database else 0

    def __enter__(self) -> None:
        """Begin; raises StatePaused or StateLost."""
        try:
            found = os.stat(self._path).st_ino  # noqa: PTH116 - called for every batch
        except OSError:
            found = None
        if found != self._inode:
            # SQLite would go on writing to an unlinked file.
            raise StateLost(f"{self._path}: expected the database that was opened, found it moved or deleted")
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
                self._folder.note_commit(self._database, commits)
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
