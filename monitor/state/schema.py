"""The tables, and how older ones become them: each step in one transaction, so that no start ever finds half of it."""

import sqlite3
from collections.abc import Sequence

APPLICATION = 0x63_70_63_6D  # "cpcm", in the header of the file

# Each step leads from the version before it. Never change one that was released: add another.
STEPS: tuple[str, ...] = (
    """
    CREATE TABLE models(name TEXT PRIMARY KEY, crc INTEGER NOT NULL, shape BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE windows(
      id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, segment TEXT NOT NULL, crc INTEGER NOT NULL, UNIQUE(model, segment));
    CREATE TABLE chunks(
      id INTEGER PRIMARY KEY AUTOINCREMENT, window INTEGER NOT NULL, arrived REAL NOT NULL, newest REAL NOT NULL,
      records INTEGER NOT NULL, crc INTEGER NOT NULL, content BLOB NOT NULL);
    CREATE INDEX chunks_of_window ON chunks(window, id);
    CREATE TABLE totals(window INTEGER PRIMARY KEY, through INTEGER NOT NULL, crc INTEGER NOT NULL, content BLOB NOT NULL);
    CREATE TABLE ids(
      id INTEGER PRIMARY KEY, model TEXT NOT NULL, batch INTEGER NOT NULL, crc INTEGER NOT NULL, content BLOB NOT NULL);
    CREATE INDEX ids_of_model ON ids(model, batch);
    CREATE TABLE positions(
      source TEXT NOT NULL, key BLOB NOT NULL, crc INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(source, key)) WITHOUT ROWID;
    CREATE TABLE counters(name TEXT PRIMARY KEY, crc INTEGER NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE kept(name TEXT PRIMARY KEY, crc INTEGER NOT NULL, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE rejected(id INTEGER PRIMARY KEY, at REAL NOT NULL, source TEXT NOT NULL, pointer BLOB NOT NULL);
    CREATE TABLE events(id INTEGER PRIMARY KEY, at REAL NOT NULL, event TEXT NOT NULL);
    """,
    """
    CREATE TABLE history(
      model TEXT NOT NULL, span TEXT NOT NULL, slot INTEGER NOT NULL, at REAL NOT NULL, crc INTEGER NOT NULL,
      content BLOB NOT NULL, PRIMARY KEY(model, span, slot));
    """,
)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Bring the tables to the newest version, in one transaction."""
    before = version_of(connection)
    if before == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[before:]:
            for statement in step.split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
