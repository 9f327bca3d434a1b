"""The history table: one row per slot of each ring, overwritten in turn.

An unreadable history row is not an error: it is skipped, and overwritten later.
"""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from sys import intern

import msgspec
import numpy as np

from monitor.core.estimate import WindowState
from monitor.core.history import CAPACITY, POINT_ROWS, STATES, STRETCH_ROWS, Frame, Place, Span
from monitor.state.checksum import checksum

_COLUMNS = "CAST(model AS BLOB), CAST(span AS BLOB), slot, at, crc, content"
_QUICK = 1


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One frame of a model."""

    model: str
    place: Place
    frame: Frame


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """History to write."""

    rows: Sequence[HistoryRow] = ()
    only: frozenset[str] | None = None
    """Delete the rows of all models but these; None deletes nothing."""

    def __bool__(self) -> bool:
        """Return whether there is anything to write."""
        return bool(self.rows) or self.only is not None


class _Content(msgspec.Struct, array_like=True):
    number: int
    through: int
    names: bytes
    """Names, packed separately: most rows have the same."""
    meaning: list[str]
    """The states by number, so that stored numbers keep their meaning when the list of states changes."""
    states: bytes
    numbers: bytes
    records: bytes
    reference: str = ""
    """Last and optional: rows written by older versions lack it, and older versions ignore it."""


def write_history(connection: sqlite3.Connection, change: HistoryChange) -> None:
    """Write frames, and delete those of removed models."""
    if change.only is not None:
        marks = ", ".join("?" * len(change.only))
        connection.execute(f"DELETE FROM history WHERE model NOT IN ({marks})", tuple(change.only))  # noqa: S608 - our own
    for row in change.rows:
        (span, number), content = row.place, _as_bytes(row)
        key = row.model, str(span), number % CAPACITY[span], row.frame.at
        crc = checksum(content, *key)
        connection.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?)", (*key, crc, content))


def read_history(connection: sqlite3.Connection) -> Iterator[HistoryRow | None]:
    """Yield all rows in order of writing; None for an unreadable one."""
    reader = _Reader()
    for row in connection.execute(f"SELECT {_COLUMNS} FROM history ORDER BY rowid"):  # noqa: S608 - our own
        try:
            yield reader.read(*row)
        except (ValueError, TypeError, KeyError, IndexError, zlib.error, msgspec.MsgspecError):
            yield None


def _as_bytes(row: HistoryRow) -> bytes:
    frame = row.frame
    content = _Content(
        row.place[1],
        frame.through,
        msgspec.msgpack.encode(frame.names),
        [str(state) for state in STATES],
        frame.states.tobytes(),
        frame.numbers.astype("<f4").tobytes(),
        frame.records.astype("<u4").tobytes(),
        frame.reference,
    )
    return zlib.compress(msgspec.msgpack.encode(content), _QUICK)


class _Reader:
    """Reads rows, and shares equal names between them."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        """By model: the names of the last row, packed and unpacked."""

    def read(self, model: bytes, span: bytes, slot: int, at: float, crc: int, packed: bytes) -> HistoryRow:
        name, which = model.decode(), Span(span.decode())
        if checksum(packed, name, str(which), slot, at) != crc:
            raise ValueError("the checksum does not match")
        content = msgspec.msgpack.decode(zlib.decompress(packed), type=_Content)
        if content.number % CAPACITY[which] != slot:
            raise ValueError("the row is in the wrong slot")
        rows = POINT_ROWS if which is Span.RECENT else STRETCH_ROWS
        names = self._shared(name, content.names)
        numbers = np.frombuffer(content.numbers, "<f4").reshape(rows, len(names)).astype(np.float32)
        meaning = np.array([STATES.index(WindowState(state)) for state in content.meaning], dtype=np.uint8)
        states = meaning[np.frombuffer(content.states, np.uint8)]
        records = np.frombuffer(content.records, "<u4").astype(np.uint32)
        if not len(names) == len(states) == len(records):
            raise ValueError("the columns differ in length")
        frame = Frame(at, content.through, names, states, numbers, records, intern(content.reference))
        return HistoryRow(name, (which, content.number), frame)

    def _shared(self, model: str, packed: bytes) -> tuple[str, ...]:
        before, names = self._last.get(model, (None, ()))
        if packed != before:
            names = tuple(map(intern, msgspec.msgpack.decode(packed, type=tuple[str, ...])))
            self._last[model] = packed, names
        return names
