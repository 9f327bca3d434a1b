"""Evaluation history of all models: added by evaluations, read by pages, written by ingestion."""

import logging
import threading
from collections.abc import Iterable
from itertools import islice

from monitor.core.history import Past, Place, Series, Span
from monitor.core.report import ModelReport
from monitor.state.history_table import HistoryChange, HistoryRow

log = logging.getLogger("cpcmon")

_ROWS_AT_ONCE, _PARTS = 64, 4
"""Rows written in one transaction: this many, or this fraction of all if larger.

After hours on a full disk hundreds of rows are pending, and must not delay records; but with many models, evaluated
often, writing must keep up.
"""


class History:
    """The history of all models. Thread-safe; survives reloads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, Past] = {}
        self._unwritten: dict[tuple[str, Place], None] = {}
        """In order of arrival. Only names: rows dropped from memory are dropped here too, so that it does not grow on a full disk."""
        self._only: frozenset[str] | None = None
        self._strangers = False
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
            self._strangers = bool(unreadable)
            for name, some in found.items():
                self._models[name] = Past()
                made = self._models[name].restore((row.place, row.frame) for row in some)
                self._unwritten.update(dict.fromkeys((name, place) for place in made))

    def configured(self, models: Iterable[str]) -> None:
        """Remove all models but these."""
        with self._lock:
            names = frozenset(models)
            gone = self._models.keys() - names
            for name in names - self._models.keys():
                self._models[name] = Past()
            for name in gone:
                del self._models[name]
            self._forget_unwritten()
            if self._only is not None:
                # Pending deletions stay pending, although a model of that name is back. An equal set keeps its identity, so that
                # `written` recognises the transaction in progress.
                only = self._only & names
                self._only = self._only if only == self._only else only
            elif gone or self._strangers:
                self._only = names
            self._strangers = False

    def note(self, report: ModelReport, at: float) -> None:
        """Add a report to the history of its model."""
        with self._lock:
            places = self._models.setdefault(report.model, Past()).note(report, at)
            self._unwritten.update(dict.fromkeys((report.model, place) for place in places))
            self._forget_unwritten()

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

    def _forget_unwritten(self) -> None:
        """Drop entries that are no longer in memory."""
        gone = [
            (model, place)
            for model, place in self._unwritten
            if model not in self._models or self._models[model].frame(place) is None
        ]
        for one in gone:
            del self._unwritten[one]
