"""Last arrivals, the backlog of the sources, backoff while the disk is full, and progress messages."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from monitor.errors import StatePaused
from monitor.sources.base import Lag
from monitor.state.change import WindowName

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
log = logging.getLogger("cpcmon")
REPORT_SECONDS = 10.0


class LastArrivals:
    """When records last arrived at each window. Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self._since: dict[WindowName, float] = {}
        self._before: dict[WindowName, float] = {}

    def restore(self, before: Mapping[WindowName, float]) -> None:
        """Load the arrivals before the start, in Unix seconds."""
        self._before.update(before)

    def record(self, windows: Iterable[WindowName], running: float) -> None:
        """Record an arrival at these windows, on the monotonic clock."""
        self._since.update(dict.fromkeys(windows, running))

    def remove(self, windows: Iterable[WindowName]) -> None:
        """Remove these windows."""
        for name in windows:
            self._since.pop(name, None)
            self._before.pop(name, None)

    def since_start(self, windows: Iterable[WindowName]) -> float | None:
        """Return the latest arrival since the start, on the monotonic clock; None without one."""
        return max((self._since[name] for name in windows if name in self._since), default=None)

    def before_start(self, windows: Iterable[WindowName]) -> float | None:
        """Return the latest arrival before the start, in Unix seconds; None without one."""
        return max((self._before[name] for name in windows if name in self._before), default=None)


class DiskFullBackoff:
    """Delays attempts while the state cannot be written."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why ingestion is paused; None while it is not."""
        self._failures = 0
        self._retry_at = 0.0

    def is_active(self, monotonic: float) -> bool:
        """Return whether it is too early for another attempt."""
        return self.reason is not None and monotonic < self._retry_at

    def begin(self, cause: StatePaused, monotonic: float) -> bool:
        """Start or extend the pause; return whether it is a new one."""
        is_new = self.reason is None
        self._retry_at = monotonic + RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1
        self.reason = str(cause)
        return is_new

    def end(self) -> None:
        """End the pause."""
        self.reason, self._failures = None, 0


class Backlog:
    """The lag of each source, as of the last complete poll. Updated by one thread, read by any."""

    def __init__(self, most_bytes: int, most_files: int, most_age_seconds: float) -> None:
        self._most_bytes, self._most_files, self._most_age_seconds = most_bytes, most_files, most_age_seconds
        self._lags: dict[str, Lag] = {}
        self._lock = threading.Lock()
        self._invalidations, self._covered = 1, 0
        """How often the lags were invalidated, and up to which invalidation a complete poll has refreshed them."""
        self._next_poll: float | None = None
        """When the next poll is due, on the monotonic clock."""

    def invalidate(self) -> None:
        """Consider the lags unknown until a poll that starts after this call has ended."""
        with self._lock:
            self._invalidations += 1

    def begin_poll(self) -> int:
        """Start a poll; return the invalidations that it will cover."""
        return self._invalidations

    def update(self, source: str, lag: Lag) -> None:
        """Store the lag of a source."""
        self._lags[source] = lag

    def end_poll(self, covered: int, next_poll: float) -> None:
        """End a poll of all sources. Invalidations since its start stay: the machine may have slept meanwhile."""
        self._covered, self._next_poll = covered, next_poll

    def lags(self) -> Mapping[str, Lag]:
        """Return the lag of each source."""
        return dict(self._lags)

    def exceeds_limits(self, now: float, running: float | None = None) -> bool:
        """Return whether the backlog exceeds the limits, or may: `running` is the monotonic clock; None means as of the last poll."""
        if self._covered != self._invalidations:
            return True
        # The next poll is overdue: ingestion is paused or hangs, and the backlog may be as old.
        due = self._next_poll
        if running is not None and due is not None and running - due > self._most_age_seconds:
            return True
        return any(
            lag.rebuilding
            or lag.bytes > self._most_bytes
            or lag.files > self._most_files
            or (lag.oldest_unread is not None and now - lag.oldest_unread > self._most_age_seconds)
            for lag in self.lags().values()
        )


class ProgressLog:
    """Logs a message at most once per interval, and nothing within the first."""

    def __init__(self, running: float, every_seconds: float = REPORT_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._next = running + every_seconds
        self.reported = False
        """Whether anything was logged."""

    def report(self, running: float, message: Callable[[], str]) -> None:
        """Log the message if the interval has passed; `running` is the monotonic clock."""
        if running >= self._next:
            self._next = running + self._every_seconds
            self.reported = True
            log.info("%s", message())


class RestoreProgress:
    """Logs how many windows and records are restored."""

    def __init__(self, windows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._all = clock, windows
        self._windows = self._records = 0
        self._progress = ProgressLog(clock())

    def window_restored(self, records: int) -> None:
        """Count a restored window with its records."""
        self._windows += 1
        self._records += records
        self._progress.report(self._clock(), self._message)

    def _message(self) -> str:
        return (
            f"rebuilding windows: {self._windows:,} of {self._all:,} windows done, with {self._records:,} records;"
            " no estimates until this ends"
        )


class BacklogProgress:
    """Logs the backlog while it exceeds the limits, and the end of it."""

    def __init__(self) -> None:
        self._progress: ProgressLog | None = None
        self._records = 0

    def report(self, running: float, *, behind: bool, records: int, lags: Mapping[str, Lag]) -> None:
        """Report one poll: whether the backlog exceeds the limits, the records read, and the lag of each source."""
        unread = {source: lag for source, lag in lags.items() if lag.files or lag.bytes}
        if not behind or not unread:
            if self._progress is not None and self._progress.reported:
                log.info("caught up: %s records read in the meantime", f"{self._records + records:,}")
            self._progress, self._records = None, 0
            return
        self._records += records
        if self._progress is None:
            # Log at once: a large backlog takes a while.
            self._progress = ProgressLog(running - REPORT_SECONDS)
        self._progress.report(running, lambda: self._message(unread))

    def _message(self, unread: Mapping[str, Lag]) -> str:
        sources = "; ".join(f"{source}: {_amount(lag)}" for source, lag in sorted(unread.items()))
        return f"catching up: {self._records:,} records read, unread at {sources}"


def _amount(lag: Lag) -> str:
    """Return the size of a lag; sources without byte counts count partitions only."""
    size = f", {lag.bytes / 1e6:,.1f} MB" if lag.bytes else ""
    return f"{lag.files:,} {'files' if lag.bytes else 'parts'}{size}"
