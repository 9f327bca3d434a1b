"""The tables of records: windows, the chunks with their records, the id hashes, and the ids that wait for labels.

A chunk belongs to the window of all records of its model and shard. Its column `segments` lists the other windows of its
records: their number (4 bytes), their ids (4 bytes each) and last arrivals (8 bytes each), and then, for each record and
split, 0 or the place of a window in that list counted from 1 (2 bytes; 4 if there are many). If the chunk's own window is
in that list, only the records with its place are in it; otherwise all are. A chunk of schema version 3 or older has an empty
list, and its own window may be any.

The column `decided` has the index of the class that each record names as its decision (2 bytes); it is empty if the records
did not decide. The column `counted` has a bit for each record, set if it counts as evidence of a change; it is empty if all do.
"""

import sqlite3
import struct
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.core.labels.kept_predictions import WORDS_PER_LABEL, WORDS_PER_PREDICTION
from monitor.core.recent_ids import Hashes
from monitor.core.scores import Booleans
from monitor.core.segments import ALL, Chunk, Segment
from monitor.state.commit_plan import (
    AuditId,
    CommitPlan,
    Forgotten,
    IdBatch,
    StoredChunk,
    WindowName,
    is_of,
    split_ids_name,
)

_ID_BYTES_AT_ONCE = 1 << 19
_DECIDED = "<u2"
"""No model has 65,536 classes."""


def checksum(content: bytes, *beside: str | float | bytes) -> int:
    """Return the checksum of a row: its content and its other values."""
    return zlib.crc32(content, zlib.crc32(repr(beside).encode()))


class WindowTable:
    """Reads and writes windows and chunks. Writes happen within a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, dict[Segment, int]] = {}
        """The ids of the windows, by stored name of the model."""
        self.load()

    def load(self) -> None:
        """Load the window ids; also after a rollback."""
        self._numbers = {}
        for number, model, segment in self._connection.execute("SELECT id, model, segment FROM windows"):
            self._numbers.setdefault(model, {})[_segment(segment)] = number

    def names(self) -> list[WindowName]:
        """Return the window names, sorted."""
        return sorted((model, segment) for model, segments in self._numbers.items() for segment in segments)

    def records(self, models: Container[str]) -> int:
        """Return the number of stored records of some models."""
        rows = self._connection.execute(
            "SELECT model, sum(records) FROM chunks JOIN windows ON window = windows.id GROUP BY model"
        )
        return sum(int(records) for model, records in rows if model in models)

    def read(self, model: str, without: Container[Segment] = (), after: int = 0) -> Iterator[StoredChunk | int]:
        """Yield the chunks of a model after an id in order of arrival, as if some windows did not exist; ids of damaged ones."""
        windows = {number: one for one, number in self._numbers.get(model, {}).items() if one not in without}
        # The ids first: sorting the chunks themselves would hold them all in memory.
        numbers = self._connection.execute(
            "SELECT chunks.id FROM windows JOIN chunks ON window = windows.id WHERE model = ? AND chunks.id > ?"
            " ORDER BY chunks.id",
            (model, after),
        ).fetchall()
        for (number,) in numbers:
            window, arrived, newest, records, crc, *contents = self._connection.execute(
                "SELECT window, arrived, newest, records, crc, content, segments, decided, counted FROM chunks"
                " WHERE id = ?",
                (number,),
            ).fetchone()
            if crc != _crc_or_none(window, arrived, newest, records, contents):
                yield number
            elif window in windows:
                content, segments, decided, counted = contents
                at = np.frombuffer(content, dtype="<f8", count=records)
                vectors = np.frombuffer(content, dtype="<f4", offset=8 * records).reshape(records, -1)
                named = np.frombuffer(decided, dtype=_DECIDED).astype(np.int32) if decided else None
                chunk = Chunk(
                    arrived, at, vectors, *_memberships(windows[window], records), named, _counted(counted, records)
                )
                yield _with_segments(
                    StoredChunk(chunk, np.full(len(chunk.segments), arrived), number), segments, windows
                )

    def write(self, plan: CommitPlan) -> list[int]:
        """Write the windows of a plan; return the ids of its chunks."""
        self.delete(plan.deleted_windows)
        for model, change in plan.maintenance.items():
            self.delete_chunks([*change.deleted, *(one.number for one in change.rewritten)])
            for one in change.rewritten:
                self._write_chunk(model, one)
        return [
            self._write_chunk(model, StoredChunk(chunk, np.full(len(chunk.segments), chunk.arrived)))
            for model, chunk in plan.chunks
        ]

    def delete(self, windows: Iterable[WindowName]) -> None:
        """Delete windows. Their ids are never used again, so that chunks may still contain them."""
        for model, segment in windows:
            number = self._numbers.get(model, {}).pop(segment, None)
            if number is not None:
                self._connection.execute("DELETE FROM chunks WHERE window = ?", (number,))
                self._connection.execute("DELETE FROM windows WHERE id = ?", (number,))

    def delete_chunks(self, numbers: Sequence[int]) -> None:
        """Delete chunks."""
        self._connection.executemany("DELETE FROM chunks WHERE id = ?", ((number,) for number in numbers))

    def _number(self, model: str, segment: Segment) -> int:
        """Return the id of a window, creating it if necessary."""
        numbers = self._numbers.setdefault(model, {})
        if segment not in numbers:
            text = msgspec.json.encode(segment).decode()
            cursor = self._connection.execute(
                "INSERT INTO windows(model, segment, crc) VALUES (?, ?, ?)", (model, text, checksum(b"", model, text))
            )
            numbers[segment] = int(cursor.lastrowid or 0)
        return numbers[segment]

    def _write_chunk(self, model: str, stored: StoredChunk) -> int:
        """Write a chunk, under its id or a new one; return the id."""
        chunk, window, records = stored.chunk, self._number(model, ALL), len(stored.chunk.at)
        newest = float(chunk.at.max())
        content = chunk.at.astype("<f8").tobytes() + np.ascontiguousarray(chunk.vectors, dtype="<f4").tobytes()
        segments = b""
        if chunk.segments:
            numbers = np.array([self._number(model, segment) for segment in chunk.segments], dtype="<u4")
            codes = (chunk.codes + 1).astype(_width(len(numbers)))
            segments = struct.pack("<I", len(numbers)) + b"".join(
                (numbers.tobytes(), stored.arrivals.astype("<f8").tobytes(), codes.tobytes())
            )
        decided = b"" if chunk.decided is None else chunk.decided.astype(_DECIDED).tobytes()
        counted = b"" if chunk.counted is None or chunk.counted.all() else np.packbits(chunk.counted).tobytes()
        crc = _crc(window, chunk.arrived, newest, records, (content, segments, decided, counted))
        cursor = self._connection.execute(
            "INSERT INTO chunks(id, window, arrived, newest, records, crc, content, segments, decided, counted)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (stored.number or None, window, chunk.arrived, newest, records, crc, content, segments, decided, counted),
        )
        return int(cursor.lastrowid or 0)


def _memberships(window: Segment, records: int) -> tuple[tuple[Segment, ...], NDArray[np.int32]]:
    """Return segments and codes of records that are all in one window."""
    if window == ALL:
        return (), np.empty((records, 0), dtype=np.int32)
    # Not in the window of all records.
    return (window, ALL), np.zeros((records, 1), dtype=np.int32)


def _counted(content: bytes, records: int) -> Booleans | None:
    """Return the content of the column `counted`."""
    if not content:
        return None
    return np.unpackbits(np.frombuffer(content, dtype=np.uint8), count=records).astype(np.bool_)


def _width(windows: int) -> str:
    """Return the type of the codes."""
    return "<u2" if windows < 1 << 16 else "<u4"


def _with_segments(stored: StoredChunk, content: bytes, windows: dict[int, Segment]) -> StoredChunk:
    """Return a chunk with the content of its column `segments`; unknown windows are left out."""
    if not content:
        return stored
    (count,) = struct.unpack_from("<I", content)
    numbers = np.frombuffer(content, dtype="<u4", count=count, offset=4)
    arrivals = np.frombuffer(content, dtype="<f8", count=count, offset=4 + 4 * count)
    codes = np.frombuffer(content, dtype=_width(count), offset=4 + 12 * count).reshape(len(stored.chunk.at), -1)
    known = [place for place, number in enumerate(numbers.tolist()) if number in windows]
    # From a place counted from 1, 0 for none, to the index of a known window, -1 for none.
    index = np.full(count + 1, -1, dtype=np.int32)
    index[np.array(known, dtype=np.int64) + 1] = np.arange(len(known))
    segments = tuple(windows[int(numbers[place])] for place in known)
    codes = index[codes] if known else np.empty((len(codes), 0), dtype=np.int32)
    return replace(stored, chunk=replace(stored.chunk, segments=segments, codes=codes), arrivals=arrivals[known])


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return chunks as one, in this order, with the arrival of the last."""
    if len(chunks) == 1:
        return chunks[0]
    everywhere = not any(ALL in chunk.segments for chunk in chunks)
    segments = dict.fromkeys(() if everywhere else (ALL,)) | dict.fromkeys(s for one in chunks for s in one.segments)
    places = {segment: place for place, segment in enumerate(segments)}
    columns: dict[tuple[str, ...], int] = {}
    for segment in segments:
        columns.setdefault(_split_of(segment), len(columns))
    codes = np.full((sum(len(one.at) for one in chunks), len(columns)), -1, dtype=np.int32)
    end = 0
    for one in chunks:
        start, end = end, end + len(one.at)
        if not everywhere and ALL not in one.segments:
            codes[start:end, columns[()]] = places[ALL]
        if one.segments:
            column = np.array([columns[_split_of(segment)] for segment in one.segments])
            place = np.array([places[segment] for segment in one.segments], dtype=np.int32)
            rows, old = np.nonzero(one.codes >= 0)
            code = one.codes[rows, old]
            codes[start + rows, column[code]] = place[code]
    at, vectors = (np.concatenate([getattr(one, name) for one in chunks]) for name in ("at", "vectors"))
    decided = [one.decided for one in chunks if one.decided is not None]
    named = np.concatenate(decided) if len(decided) == len(chunks) else None
    counted = None
    if any(one.counted is not None for one in chunks):
        each = [np.ones(len(one.at), dtype=np.bool_) if one.counted is None else one.counted for one in chunks]
        counted = np.concatenate(each)
    return Chunk(chunks[-1].arrived, at, vectors, tuple(segments), codes, named, counted)


def _split_of(segment: Segment) -> tuple[str, ...]:
    return tuple(name for name, _ in segment)


def check_windows(connection: sqlite3.Connection) -> None:
    """Raise ValueError when the identity of a window, or the owner of a chunk, is uncertain."""
    for model, segment, crc in connection.execute("SELECT model, segment, crc FROM windows"):
        if checksum(b"", model, segment) != crc:
            raise ValueError("checksum mismatch in a window's name")
        _segment(segment)
    strays = "SELECT count(*) FROM chunks WHERE window NOT IN (SELECT id FROM windows)"
    if connection.execute(strays).fetchone()[0]:
        raise ValueError("some chunks belong to no window")


def _crc(window: int, arrived: float, newest: float, records: int, contents: Sequence[bytes]) -> int:
    """Return the checksum of a row; an empty content adds nothing, so that rows of older versions stay valid."""
    head = zlib.crc32(struct.pack("<qddq", window, arrived, newest, records))
    return reduce(lambda crc, content: zlib.crc32(content, crc), contents, head)


def _crc_or_none(
    window: int, arrived: object, newest: object, records: object, contents: Sequence[object]
) -> int | None:
    """Return the checksum of a row as read: a flipped bit may also change the type of a value."""
    if not (isinstance(arrived, float) and isinstance(newest, float) and isinstance(records, int)):
        return None
    parts = [content for content in contents if isinstance(content, bytes)]
    return _crc(window, arrived, newest, records, parts) if len(parts) == len(contents) else None


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


def _insert_ids(
    connection: sqlite3.Connection, model: str, number: int, content: bytes, row: int | None = None
) -> None:
    connection.execute(
        "INSERT INTO ids(id, model, batch, crc, content) VALUES (?, ?, ?, ?, ?)",
        (row, model, number, checksum(content, model, number), content),
    )


def _as_hashes(content: bytearray) -> Hashes:
    return np.frombuffer(bytes(content), dtype="<u8").astype(np.uint64)


def write_audit_ids(connection: sqlite3.Connection, plan: CommitPlan) -> int:
    """Write the ids that wait for their labels; return how many are deleted."""
    deleted = 0
    for model, hashes in plan.labelled.items():
        deleted += len(_delete_audit_ids(connection, hashes, model))
    for stored, needed in plan.audit_ids_needed.items():
        deleted += connection.execute("DELETE FROM audit_ids WHERE model = ? AND at < ?", (stored, needed)).rowcount
    for one in plan.audit_ids:
        content, hash_ = one.id.encode("utf-8", "surrogatepass"), _signed(one.hash)
        row = (one.model, hash_, one.at, checksum(content, one.model, hash_, one.at), content)
        connection.execute("INSERT OR REPLACE INTO audit_ids(model, hash, at, crc, id) VALUES (?, ?, ?, ?, ?)", row)
    return deleted


def read_audit_ids(connection: sqlite3.Connection) -> Iterator[AuditId]:
    """Yield the ids that wait for their labels, oldest first; raises ValueError for a damaged row."""
    for model, hash_, at, crc, content in connection.execute(
        "SELECT model, hash, at, crc, id FROM audit_ids ORDER BY at, hash"
    ):
        if checksum(content, model, hash_, at) != crc:
            raise ValueError("checksum mismatch in the table audit_ids")
        yield AuditId(model, hash_ % 2**64, at, content.decode("utf-8", "surrogatepass"))


def forget_ids(connection: sqlite3.Connection, hashes: Hashes, model: str | None) -> Forgotten:
    """Delete what is stored of some ids, of one model or of all. Rows of predictions and labels stay, without their ids."""
    found: set[int] = set()
    rows = Counter[int]()
    for (name,) in connection.execute("SELECT DISTINCT model FROM ids").fetchall():
        stored, row = split_ids_name(name)
        if row is None or (model is not None and not is_of(model, stored)):
            continue
        words, blank = row
        for (number,) in connection.execute("SELECT id FROM ids WHERE model = ?", (name,)).fetchall():
            batch, content = connection.execute("SELECT batch, content FROM ids WHERE id = ?", (number,)).fetchone()
            rewritten = np.frombuffer(content, dtype="<u8").copy()
            ids = rewritten[::words]
            hit = np.isin(ids, hashes)
            if hit.any():
                found.update(ids[hit].tolist())
                rows[words] += int(np.count_nonzero(hit))
                ids[hit] = blank
                connection.execute("DELETE FROM ids WHERE id = ?", (number,))
                _insert_ids(connection, name, batch, rewritten.tobytes(), number)
    deleted = _delete_audit_ids(connection, hashes, model)
    return Forgotten(
        len(found.union(deleted)), rows[WORDS_PER_PREDICTION], rows[WORDS_PER_LABEL], audit_ids=len(deleted)
    )


def _delete_audit_ids(connection: sqlite3.Connection, hashes: Hashes, model: str | None) -> list[int]:
    """Delete kept ids, of one model or of all; return the hash of each."""
    deleted = []
    for hash_ in hashes.tolist():
        found = connection.execute("SELECT model FROM audit_ids WHERE hash = ?", (_signed(hash_),)).fetchall()
        for (stored,) in found:
            if model is None or is_of(model, stored):
                connection.execute("DELETE FROM audit_ids WHERE hash = ? AND model = ?", (_signed(hash_), stored))
                deleted.append(hash_)
    return deleted


def _signed(hash_: int) -> int:
    """Return a hash as SQLite stores integers."""
    return hash_ - 2**64 if hash_ >= 2**63 else hash_
