"""The database schema, its migrations and checksums. A migration is one transaction."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache

from monitor.state.record_tables import checksum

APPLICATION = 0x63_70_63_6D  # "cpcm", the application id in the file header
_SUMS_SINCE, _TOTALS_UNTIL = 3, 3
"""The first schema version with table checksums, and the last with totals."""


# The tables with checksums, and the row number of each; 0 where rows have none. The table of totals is gone.
_SUMMED = {
    "models": "0",
    "windows": "id",
    "chunks": "id",
    "totals": "window",
    "ids": "id",
    "positions": "0",
    "counters": "0",
    "kept": "0",
    "rejected": "id",
    "events": "id",
    "history": "rowid",
}


# Tables that came later, with the first schema version of each.
AUDIT_IDS_SINCE = 7
_SUMMED_LATER = {"audit_ids": ("0", AUDIT_IDS_SINCE)}

# SQLite stores the highest id ever used in these.
_AUTOINCREMENT = ("windows", "chunks")


def _summed(table: str, number: str) -> str:
    """Return statements that checksum a table, and keep the checksum current with triggers.

    A lost row, or a row of an older transaction, passes its own checksum. The checksum of the table does not match
    then.
    """
    new, old = (f"{row}.{number}" if number != "0" else "0" for row in ("NEW", "OLD"))
    return f"""
    INSERT INTO checksums SELECT '{table}', count(*), coalesce(sum(crc), 0), coalesce(sum({number}), 0),
      coalesce(max({number}), 0) FROM {table};
    CREATE TRIGGER {table}_inserted AFTER INSERT ON {table} BEGIN
      UPDATE checksums SET rows = rows + 1, crcs = crcs + NEW.crc, numbers = numbers + {new}, last = max(last, {new})
        WHERE name = '{table}';
    END;
    CREATE TRIGGER {table}_deleted AFTER DELETE ON {table} BEGIN
      UPDATE checksums SET rows = rows - 1, crcs = crcs - OLD.crc, numbers = numbers - {old} WHERE name = '{table}';
    END;
    """  # noqa: S608 - our own


# Each step migrates from the version before it. Never change a released step: add another.
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
    # The row `commits` counts transactions; its `crcs` is a random number that identifies the database. The checksum of
    # totals did not cover `through`: they are deleted and recomputed.
    f"""
    CREATE TABLE checksums(
      name TEXT PRIMARY KEY, rows INTEGER NOT NULL, crcs INTEGER NOT NULL, numbers INTEGER NOT NULL, last INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO checksums VALUES ('commits', 0, abs(random() / 2), 0, 0);
    DELETE FROM totals;
    ALTER TABLE rejected ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE events ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    UPDATE rejected SET crc = checksum(CAST(pointer AS BLOB), at, source);
    UPDATE events SET crc = checksum(CAST(event AS BLOB), at);
    {"".join(_summed(*one) for one in _SUMMED.items())}
    UPDATE checksums SET last = coalesce((SELECT seq FROM sqlite_sequence WHERE sqlite_sequence.name = checksums.name), last);
    """,  # noqa: S608 - our own
    # A record is stored once, with all its windows; before, once in each window. Such chunks stay valid.
    """
    ALTER TABLE chunks ADD COLUMN segments BLOB NOT NULL DEFAULT x'';
    DROP TABLE totals;
    DELETE FROM checksums WHERE name = 'totals';
    """,
    # The decisions that records name; empty where they do not decide, and in older chunks.
    """
    ALTER TABLE chunks ADD COLUMN decided BLOB NOT NULL DEFAULT x'';
    """,
    # Which records count as evidence of a change; empty where all do, and in older chunks.
    """
    ALTER TABLE chunks ADD COLUMN counted BLOB NOT NULL DEFAULT x'';
    """,
    # The ids of audited records that wait for their labels, of models that keep them. `model` is a stored name.
    f"""
    CREATE TABLE audit_ids(
      model TEXT NOT NULL, hash INTEGER NOT NULL, at REAL NOT NULL, crc INTEGER NOT NULL, id BLOB NOT NULL,
      PRIMARY KEY(hash, model)) WITHOUT ROWID;
    {_summed("audit_ids", "0")}
    """,
)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the schema version."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def schema_of(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return the statements that define the tables, indexes and triggers."""
    return sorted(connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))


@cache
def schemas(steps: tuple[str, ...]) -> list[list[tuple[str, ...]]]:
    """Return the schema of every version, starting with the empty database."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        found = [schema_of(connection)]
        for version in range(len(steps)):
            migrate(connection, steps[: version + 1])
            found.append(schema_of(connection))
    return found


def check_sums(connection: sqlite3.Connection) -> None:
    """Raise ValueError when rows of a table are missing or out of date."""
    version = version_of(connection)
    if version < _SUMS_SINCE:
        return
    tables = {table: number for table, number in _SUMMED.items() if table != "totals" or version <= _TOTALS_UNTIL}
    tables |= {table: number for table, (number, since) in _SUMMED_LATER.items() if version >= since}
    sequences = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    expected = {name: sums for name, *sums in connection.execute("SELECT * FROM checksums")}
    whole = all(isinstance(value, int) for sums in expected.values() for value in sums)
    if not whole or expected.keys() != {"commits", *tables}:
        raise ValueError("the table checksums does not have one row per table")
    for table, number in tables.items():
        query = f"SELECT count(*), coalesce(sum(crc), 0), coalesce(sum({number}), 0) FROM {table} NOT INDEXED"  # noqa: S608
        *sums, last = expected[table]
        if list(connection.execute(query).fetchone()) != sums:
            raise ValueError(f"the rows of the table {table} do not match the last commit")
        if table in _AUTOINCREMENT and sequences.get(table, 0) != last:
            raise ValueError(f"the highest id of the table {table} does not match the last commit")


def migrate(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Migrate to the newest version in one transaction."""
    before = version_of(connection)
    if before == len(steps):
        return
    connection.create_function("checksum", -1, checksum)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[before:]:
            for statement in _statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(step: str) -> Iterator[str]:
    """Yield the statements of a step; a trigger contains semicolons."""
    statement = ""
    for part in step.rstrip("; \n").split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
