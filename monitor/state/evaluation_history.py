"""What was said of all models before now: noted by whoever evaluates, shown to whoever asks, written by whoever ingests."""

import logging
import threading
from collections.abc import Iterable
from itertools import islice

from monitor.core.history import ModelHistory, Place, Series, Span
from monitor.core.report import ModelReport
from monitor.state.history_table import HistoryChange, HistoryRow

log = logging.getLogger("cpcmon")

_ROWS_AT_ONCE, _PARTS = 64, 4
"""In one transaction so many, or such a part of all if that is more: after hours on a full disk there are hundreds, and
records want to be taken in too; but many models, evaluated often, must not get ahead of what is written."""


class History:
    """All models over time. May be used by any thread, and outlives reloads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, ModelHistory] = {}
        self._unwritten: dict[tuple[str, Place], None] = {}
        """In the order they came. Names only, and those that left memory fall out: on a full disk it does not grow."""
        self._only: frozenset[str] | None = None
        self._strangers = False
        """Whether there are rows of which nobody knows the model."""

    def restore(self, rows: Iterable[HistoryRow | None]) -> None:
        """Take over what was written; None stands for a row that could not be read."""
        found: dict[str, list[HistoryRow]] = {}
        unreadable = 0
        for row in rows:
            if row is None:
                unreadable += 1
            else:
                found.setdefault(row.model, []).append(row)
        if unreadable:
            log.warning("history has gaps: rows that cannot be read: %d", unreadable)
        with self._lock:
            self._strangers = bool(unreadable)
            for name, some in found.items():
                self._models[name] = ModelHistory()
                made = self._models[name].restore((row.place, row.frame) for row in some)
                self._unwritten.update(dict.fromkeys((name, place) for place in made))

    def configured(self, models: Iterable[str]) -> None:
        """Forget all models but these."""
        with self._lock:
            names = frozenset(models)
            gone = self._models.keys() - names
            for name in names - self._models.keys():
                self._models[name] = ModelHistory()
            for name in gone:
                del self._models[name]
            self._forget_unwritten()
            if self._only is not None:
                # What was to be deleted still is, though a model of that name is back. The same object where it is the
                # same set: a transaction that is under way does it.
                only = self._only & names
                self._only = self._only if only == self._only else only
            elif gone or self._strangers:
                self._only = names
            self._strangers = False

    def note(self, report: ModelReport, at: float) -> None:
        """Keep what was said of a model at a time; also that nothing could be said any more."""
        with self._lock:
            places = self._models.setdefault(report.model, ModelHistory()).note(report, at)
            self._unwritten.update(dict.fromkeys((report.model, place) for place in places))
            self._forget_unwritten()

    def series(self, model: str, segment: str, span: Span) -> Series | None:
        """Return a window over time; None when the model or the segment is not known."""
        with self._lock:
            past = self._models.get(model)
            return None if past is None else past.series(segment, span)

    def unwritten(self) -> HistoryChange:
        """Return what the next transaction should write."""
        with self._lock:
            rows = []
            most = max(_ROWS_AT_ONCE, len(self._unwritten) // _PARTS)
            for model, place in islice(self._unwritten, most):
                frame = self._models[model].frame(place)
                if frame is not None:
                    rows.append(HistoryRow(model, place, frame))
            return HistoryChange(rows, self._only)

    def written(self, change: HistoryChange) -> None:
        """Take note that this was written."""
        with self._lock:
            for row in change.rows:
                past = self._models.get(row.model)
                # A stretch that has gone on in the meantime is written again.
                if past is not None and past.frame(row.place) is row.frame:
                    self._unwritten.pop((row.model, row.place), None)
            if self._only is change.only:
                self._only = None

    def _forget_unwritten(self) -> None:
        """Leave out what is no longer in memory."""
        gone = [
            (model, place)
            for model, place in self._unwritten
            if model not in self._models or self._models[model].frame(place) is None
        ]
        for one in gone:
            del self._unwritten[one]
