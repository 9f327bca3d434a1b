"""The backlog: the lag of each source, whether it makes estimates outdated, and the pause while the disk is full."""

import logging
import threading
from collections.abc import Mapping, Sequence

from monitor.config.config import IngestOptions
from monitor.core.backoff import Backoff
from monitor.errors import StatePaused
from monitor.sources.base import Lag, Source

log = logging.getLogger("cpcmon")
REPORT_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 30.0


class Backlog:
    """What the sources have not delivered yet, as of the last complete poll. Updated by one thread, read by any.

    Estimates wait only for the given sources.
    """

    def __init__(self, sources: Sequence[Source], limits: IngestOptions) -> None:
        self._sources, self._limits = sources, limits
        self._lags: dict[str, Lag] = {}
        self._shards: dict[str, int] = {}
        """Shards in memory by source."""
        self._lock = threading.Lock()
        self._invalidations, self._covered = 1, 0
        """How often the lags were invalidated, and up to which invalidation a complete poll has refreshed them."""
        self._next_poll: float | None = None
        """When the next poll is due, on the monotonic clock."""
        self.paused: str | None = None
        """Why ingestion is paused; None while it is not."""
        self._backoff = Backoff(longest_seconds=_LONGEST_PAUSE_SECONDS)

    # For any thread.

    def invalidate(self) -> None:
        """Consider the lags unknown until a poll that starts after this call has ended."""
        with self._lock:
            self._invalidations += 1

    def lags(self) -> Mapping[str, Lag]:
        """Return the lag of each source."""
        return dict(self._lags)

    def catching_up(self, now: float, running: float | None = None) -> bool:
        """Return whether the backlog, known or possible, makes estimates outdated.

        `running` is the monotonic clock; None means as of the last poll.
        """
        if self._covered != self._invalidations:
            return True
        # The next poll is overdue: ingestion is paused or hangs, and the backlog may be as old.
        due, limits = self._next_poll, self._limits
        if running is not None and due is not None and running - due > limits.catching_up_age_seconds:
            return True
        return any(map(self._awaits_assignment, self._sources)) or any(
            lag.rebuilding
            or lag.bytes > limits.catching_up_bytes
            or lag.files > limits.catching_up_files
            or (lag.oldest_unread is not None and now - lag.oldest_unread > limits.catching_up_age_seconds)
            for lag in (self._lags[one.name] for one in self._sources if one.name in self._lags)
        )

    def _awaits_assignment(self, source: Source) -> bool:
        """Return whether a source still waits for its assignment: its windows are missing until then."""
        return source.sharded and not self._shards.get(source.name) and source.status().waits_for is not None

    # For the ingestion thread.

    def begin_poll(self) -> int:
        """Start a poll; return the invalidations that it will cover."""
        return self._invalidations

    def polled(self, source: Source) -> None:
        """Update the lag of a source after its poll."""
        self._lags[source.name] = source.status().lag

    def assigned(self, source: str, shards: int) -> None:
        """Update how many shards of a source are in memory."""
        self._shards[source] = shards

    def end_poll(self, covered: int, next_poll: float) -> None:
        """End a poll of all sources. Invalidations since its start stay: the machine may have slept meanwhile."""
        self._covered, self._next_poll = covered, next_poll

    def is_waiting(self, running: float) -> bool:
        """Return whether it is too early for another attempt to write the state."""
        return self.paused is not None and self._backoff.left(running) > 0.0

    def pause(self, cause: StatePaused, running: float) -> None:
        """Start or extend the pause."""
        if self.paused is None:
            log.error("%s; ingestion is paused until then", cause)
        self.paused = str(cause)
        self._backoff.failed(running)

    def resume(self) -> None:
        """End the pause."""
        log.warning("state can be written again: ingestion resumed")
        self.paused = None
        self._backoff.succeeded()


class ProgressLog:
    """Logs a message at most once per interval, and nothing within the first."""

    def __init__(self, running: float) -> None:
        self._next = running + REPORT_SECONDS
        self.reported = False
        """Whether anything was logged."""

    def report(self, running: float, message: str) -> None:
        """Log the message if the interval has passed; `running` is the monotonic clock."""
        if running >= self._next:
            self._next = running + REPORT_SECONDS
            self.reported = True
            log.info("%s", message)


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
        self._progress.report(running, self._message(unread))

    def _message(self, unread: Mapping[str, Lag]) -> str:
        sources = "; ".join(f"{source}: {_amount(lag)}" for source, lag in sorted(unread.items()))
        return f"catching up: {self._records:,} records read, unread at {sources}"


def _amount(lag: Lag) -> str:
    """Return the size of a lag; sources without byte counts count partitions only."""
    size = f", {lag.bytes / 1e6:,.1f} MB" if lag.bytes else ""
    return f"{lag.files:,} {'files' if lag.bytes else 'parts'}{size}"
