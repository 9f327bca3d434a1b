"""Writes the state: each transaction takes along the values, counters and history that wait for one."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from monitor.errors import StatePaused
from monitor.state.commit_plan import ChunkIds, CommitPlan, Counters, RejectionEntry, StoredCounters
from monitor.state.evaluation_history import History
from monitor.state.state_folder import RejectionLog
from monitor.state.store import State

log = logging.getLogger("cpcmon")

MOST_SHOWN = 300
"""Rejected records whose location is in memory, for the web page."""


class PendingValues:
    """Named values that wait for the next commit, longer on a full disk. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[str, bytes | None] = {}
        self._lock = threading.Lock()

    def store(self, name: str, value: bytes | None) -> None:
        """Store a value with the next commit, or delete it with None."""
        with self._lock:
            self._values[name] = value

    def unwritten(self) -> dict[str, bytes | None]:
        """Return the values not written yet."""
        with self._lock:
            return dict(self._values)

    def written(self, values: Mapping[str, bytes | None]) -> None:
        """Mark values as written; one that was replaced meanwhile waits for the next commit."""
        with self._lock:
            for name, value in values.items():
                if self._values[name] is value:
                    del self._values[name]


class StateWriter:
    """Commits plans. Used by the ingestion thread; the latest rejected records are for any."""

    def __init__(self, state: State, stored: StoredCounters, history: History, backup_seconds: float) -> None:
        self._state, self._history, self._backup_seconds = state, history, backup_seconds
        self._stored = dict(stored)
        """The counters as they are in the state."""
        self._first: Callable[[], None] | None = None
        self._next_backup: float | None = None
        self._rejected_file = RejectionLog(state.path)
        self._lock = threading.Lock()
        self._rejected = deque(map(_without_content, state.rejected(MOST_SHOWN)), MOST_SHOWN)
        self.values = PendingValues()
        self.last_commit_at: float | None = None
        """In Unix seconds."""

    def rejected_records(self) -> list[RejectionEntry]:
        """Return the location of the latest rejected records, newest first, without content."""
        with self._lock:
            return list(reversed(self._rejected))

    def has_pending(self) -> bool:
        """Return whether values or history wait for a commit."""
        return bool(self.values.unwritten() or self._history.unwritten())

    def write_first(self, write: Callable[[], None]) -> None:
        """Write the result of the restore: now, or if that raises StatePaused, before the next commit."""
        self._first = write
        self._write_first()

    def commit(self, plan: CommitPlan, counters: Counters, now: float) -> ChunkIds:
        """Commit a plan; `counters` are those in memory, without the increments of the plan. Adds to the plan."""
        self._write_first()
        plan.counters = self._changed(counters, plan.counted)
        pending = self.values.unwritten()
        plan.values = {**plan.values, **pending}
        plan.history = self._history.unwritten()
        ids = self._state.commit(plan, now)
        self.last_commit_at = now
        self._stored |= plan.counters
        self._history.written(plan.history)
        self.values.written(pending)
        with self._lock:
            self._rejected.extend(_without_content((now, *one)) for one in plan.rejected[-MOST_SHOWN:])
        return ids

    def log_rejected(self, plan: CommitPlan, now: float) -> None:
        """Append the rejected records of a plan to `rejected.jsonl`."""
        try:
            self._rejected_file.append(plan.rejected, now)
        except OSError as error:
            log.warning("cannot write rejected.jsonl: %s", error.strerror)

    def back_up_if_due(self, running: float) -> None:
        """Write a backup once per interval, by the monotonic clock."""
        if self._next_backup is not None and running >= self._next_backup:
            try:
                self._state.back_up()
            except StatePaused as pause:
                log.warning("no backup: %s", pause)
        if self._next_backup is None or running >= self._next_backup:
            self._next_backup = running + self._backup_seconds

    def back_up_if_old(self, now: float) -> None:
        """Write a backup if the last one is older than the interval."""
        if self._state.backup_age(now) > self._backup_seconds:
            self._state.back_up()

    def _changed(self, counters: Counters, counted: Counters) -> StoredCounters:
        """Return the counters to write: those that differ from the state after the commit."""
        after = counters.stored()
        for name, count in counted.stored().items():
            after[name] = after.get(name, 0) + count
        return {name: count for name, count in after.items() if self._stored.get(name) != count}

    def _write_first(self) -> None:
        if self._first is not None:
            self._first()
            self._first = None


def _without_content(rejected: RejectionEntry) -> RejectionEntry:
    at, source, origin, pointer = rejected
    return at, source, origin, pointer if pointer.raw is None else replace(pointer, raw=None)
