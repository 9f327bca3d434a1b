"""The table of id hashes: a row for each batch that was remembered, small ones put together now and then."""

import sqlite3
from collections.abc import Iterable, Iterator

import numpy as np

from monitor.core.recent_ids import Hashes
from monitor.state.change import IdBatch, StateChange
from monitor.state.checksum import checksum

_BYTES_AT_ONCE = 1 << 19


def read_ids(connection: sqlite3.Connection, models: Iterable[str]) -> Iterator[IdBatch]:
    """Yield the remembered hashes of some models in the order they were remembered, small batches put together."""
    for model in sorted(models):
        rows = connection.execute("SELECT batch, content FROM ids WHERE model = ? ORDER BY batch", (model,))
        number, gathered = 0, bytearray()
        for number, content in rows:
            gathered += content
            if len(gathered) >= _BYTES_AT_ONCE:
                yield IdBatch(model, number, _as_hashes(gathered))
                gathered = bytearray()
        if gathered:
            yield IdBatch(model, number, _as_hashes(gathered))


def write_ids(connection: sqlite3.Connection, change: StateChange) -> None:
    """Write what a change says of ids."""
    for batch in change.ids:
        _insert(connection, batch.model, batch.number, batch.hashes.astype("<u8").tobytes())
    for model, (first, last) in change.ids_merged.items():
        _merge(connection, model, first, last)
    for model, needed in change.ids_needed.items():
        connection.execute("DELETE FROM ids WHERE model = ? AND batch < ?", (model, needed))


def _merge(connection: sqlite3.Connection, model: str, first: int, last: int) -> None:
    where = "FROM ids WHERE model = ? AND batch BETWEEN ? AND ?"
    rows = connection.execute(f"SELECT content {where} ORDER BY batch", (model, first, last)).fetchall()
    if len(rows) > 1:
        connection.execute(f"DELETE {where}", (model, first, last))
        # Under the last number: the batch may go only when its youngest id may.
        _insert(connection, model, last, b"".join(row[0] for row in rows))


def _insert(connection: sqlite3.Connection, model: str, number: int, content: bytes) -> None:
    connection.execute(
        "INSERT INTO ids(model, batch, crc, content) VALUES (?, ?, ?, ?)",
        (model, number, checksum(content, model, number), content),
    )


def _as_hashes(content: bytearray) -> Hashes:
    return np.frombuffer(bytes(content), dtype="<u8").astype(np.uint64)
