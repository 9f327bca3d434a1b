"""Evaluation history of all models: added by evaluations, read by pages, written by ingestion.

Its table has one row per slot of each ring, overwritten in turn. An unreadable row is not an error: it is skipped, and
overwritten later.
"""

import logging
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from sys import intern

import msgspec
import numpy as np

from monitor.core.estimate import STATES, WindowState
from monitor.core.history import CAPACITY, POINT_ROWS, STRETCH_ROWS, Frame, ModelHistory, Place, Series, Span
from monitor.core.report import Report
from monitor.state.commit_plan import HistoryChange, HistoryRow
from monitor.state.record_tables import checksum

_COLUMNS = "CAST(model AS BLOB), CAST(span AS BLOB), slot, at, crc, content"
_QUICK = 1
log = logging.getLogger("cpcmon")
_ROWS_AT_ONCE, _PARTS = 64, 4
"""Rows written in one transaction: this many, or this fraction of all if larger.

After hours on a full disk hundreds of rows are pending, and must not delay records; but with many models, evaluated
often, writing must keep up.
"""


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
    """It and what follows is optional: rows written by older versions lack it, and older versions ignore it."""
    evidence: bytes | None = None


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
    reader = _RowReader()
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
        None if frame.evidence is None else frame.evidence.astype("<f4").tobytes(),
    )
    return zlib.compress(msgspec.msgpack.encode(content), _QUICK)


class _RowReader:
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
        evidence = None if content.evidence is None else np.frombuffer(content.evidence, "<f4").astype(np.float32)
        if not len(names) == len(states) == len(records) or (evidence is not None and len(evidence) != len(names)):
            raise ValueError("the columns differ in length")
        frame = Frame(at, content.through, names, states, numbers, records, intern(content.reference), evidence)
        return HistoryRow(name, (which, content.number), frame)

    def _shared(self, model: str, packed: bytes) -> tuple[str, ...]:
        before, names = self._last.get(model, (None, ()))
        if packed != before:
            names = tuple(map(intern, msgspec.msgpack.decode(packed, type=tuple[str, ...])))
            self._last[model] = packed, names
        return names


class History:
    """The history of all models. Thread-safe; survives reloads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, ModelHistory] = {}
        self._unwritten: dict[tuple[str, Place], None] = {}
        """In order of arrival. Only names: rows dropped from memory are dropped here too, so that it does not grow on a full disk."""
        self._only: frozenset[str] | None = None
        self._has_unknown_rows = False
        """Whether some stored rows belong to an unknown model."""

    def restore(self, rows: Iterable[HistoryRow | None]) -> None:
        """Load stored rows; None is an unreadable row."""
        found: dict[str, list[HistoryRow]] = {}
        unreadable = 0
        for row in rows:
            if row is None:
                unreadable += 1
            else:
                found.setdefault(row.model, []).append(row)
        if unreadable:
            log.warning("history has gaps: %d unreadable rows", unreadable)
        with self._lock:
            self._has_unknown_rows = bool(unreadable)
            for name, some in found.items():
                self._models[name] = ModelHistory()
                made = self._models[name].restore((row.place, row.frame) for row in some)
                self._unwritten.update(dict.fromkeys((name, place) for place in made))

    def configured(self, models: Iterable[str]) -> None:
        """Remove all models but these."""
        with self._lock:
            names = frozenset(models)
            gone = self._models.keys() - names
            for name in names - self._models.keys():
                self._models[name] = ModelHistory()
            for name in gone:
                del self._models[name]
            self._drop_stale()
            if self._only is not None:
                # Pending deletions stay pending, although a model of that name is back. An equal set keeps its
                # identity, so that `written` recognises the transaction in progress.
                only = self._only & names
                self._only = self._only if only == self._only else only
            elif gone or self._has_unknown_rows:
                self._only = names
            self._has_unknown_rows = False

    def note(self, report: Report, at: float) -> None:
        """Add a report to the history of its model."""
        with self._lock:
            places = self._models.setdefault(report.model, ModelHistory()).note(report, at)
            self._unwritten.update(dict.fromkeys((report.model, place) for place in places))
            self._drop_stale()

    def series(self, model: str, segment: str, span: Span) -> Series | None:
        """Return the series of a window; None for an unknown model or segment."""
        with self._lock:
            past = self._models.get(model)
            return None if past is None else past.series(segment, span)

    def unwritten(self) -> HistoryChange:
        """Return the rows for the next transaction."""
        with self._lock:
            rows = []
            most = max(_ROWS_AT_ONCE, len(self._unwritten) // _PARTS)
            for model, place in islice(self._unwritten, most):
                frame = self._models[model].frame(place)
                if frame is not None:
                    rows.append(HistoryRow(model, place, frame))
            return HistoryChange(rows, self._only)

    def written(self, change: HistoryChange) -> None:
        """Mark a change as written."""
        with self._lock:
            for row in change.rows:
                past = self._models.get(row.model)
                # A frame that was extended meanwhile is written again.
                if past is not None and past.frame(row.place) is row.frame:
                    self._unwritten.pop((row.model, row.place), None)
            if self._only is change.only:
                self._only = None

    def _drop_stale(self) -> None:
        """Drop entries that are no longer in memory."""
        gone = [
            (model, place)
            for model, place in self._unwritten
            if model not in self._models or self._models[model].frame(place) is None
        ]
        for one in gone:
            del self._unwritten[one]
