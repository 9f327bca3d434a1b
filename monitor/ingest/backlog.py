"""Last arrivals, backlog, backoff while the disk is full, and progress of long work in the log."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from monitor.errors import StatePaused
from monitor.sources.base import Lag
from monitor.state.change import WindowName


class LastArrivals:
    """Last arrivals. Not safe for two threads at once; its owner holds a lock."""

    def __init__(self) -> None:
        self._since: dict[WindowName, float] = {}
        self._before: dict[WindowName, float] = {}

    def restore(self, before: Mapping[WindowName, float]) -> None:
        """Take over when records came before the start, in Unix seconds."""
        self._before.update(before)

    def note(self, windows: Iterable[WindowName], running: float) -> None:
        """Records came to these windows now, on the steady clock."""
        self._since.update(dict.fromkeys(windows, running))

    def forget(self, windows: Iterable[WindowName]) -> None:
        """These windows are gone."""
        for name in windows:
            self._since.pop(name, None)
            self._before.pop(name, None)

    def since_start(self, windows: Iterable[WindowName]) -> float | None:
        """Return when a record last came to any of these since the start, on the steady clock; None when none has."""
        return max((self._since[name] for name in windows if name in self._since), default=None)

    def before_start(self, windows: Iterable[WindowName]) -> float | None:
        """Return when the last record before the start came, in Unix seconds; None when there was none."""
        return max((self._before[name] for name in windows if name in self._before), default=None)


RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class DiskFullBackoff:
    """Whether intake is paused, and until when nothing is tried."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why nothing can be taken in for the moment; None when it can."""
        self._failures = 0
        self._retry_at = 0.0

    def holds(self, monotonic: float) -> bool:
        """Tell whether it is too early to try again."""
        return self.reason is not None and monotonic < self._retry_at

    def begin(self, cause: StatePaused, monotonic: float) -> bool:
        """Wait for a while; tell whether this is news."""
        news = self.reason is None
        self._retry_at = monotonic + RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1
        self.reason = str(cause)
        return news

    def end(self) -> None:
        """Go on."""
        self.reason, self._failures = None, 0


class Backlog:
    """What the last look at the sources found. One thread looks; any may doubt and ask."""

    def __init__(self, most_bytes: int, most_files: int, most_age_seconds: float) -> None:
        self._most_bytes, self._most_files, self._most_age_seconds = most_bytes, most_files, most_age_seconds
        self._lags: dict[str, Lag] = {}
        self._lock = threading.Lock()
        self._doubts, self._dispelled = 1, 0
        """How often it was doubted that what is unread is known, and how many of these doubts a look has dispelled."""
        self._look_due: float | None = None
        """When the sources should be looked at again, on the steady clock."""

    def doubt(self) -> None:
        """Take nothing for known until a look that begins after this is over."""
        with self._lock:
            self._doubts += 1

    def begin(self) -> int:
        """Return which doubts a look that begins now will have dispelled when it is over."""
        return self._doubts

    def found(self, source: str, lag: Lag) -> None:
        """Note how far behind a source is."""
        self._lags[source] = lag

    def end(self, dispelled: int, next_look: float) -> None:
        """A look at all sources is over; doubts that came in the meantime stay: the machine may have slept since it began."""
        self._dispelled, self._look_due = dispelled, next_look

    def lags(self) -> Mapping[str, Lag]:
        """Return how far behind each source is."""
        return dict(self._lags)

    def too_much(self, now: float, running: float | None = None) -> bool:
        """Tell whether so much is unread, or may be; without `running`, the steady clock, as of the last look."""
        if self._dispelled != self._doubts:
            return True
        # Nobody has looked for so long: intake is paused, or hangs. What is unread by now may be as old.
        due = self._look_due
        if running is not None and due is not None and running - due > self._most_age_seconds:
            return True
        return any(
            lag.rebuilding
            or lag.bytes > self._most_bytes
            or lag.files > self._most_files
            or (lag.oldest_unread is not None and now - lag.oldest_unread > self._most_age_seconds)
            for lag in self.lags().values()
        )


log = logging.getLogger("cpcmon")

TELL_SECONDS = 10.0


class ProgressLog:
    """Tells what it is given, unless it told something lately; what is short is never told."""

    def __init__(self, running: float, every_seconds: float = TELL_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._next = running + every_seconds
        self.told = False
        """Whether anything was told."""

    def tell(self, running: float, sentence: Callable[[], str]) -> None:
        """Tell, if it is time to; `running` is the steady clock."""
        if running >= self._next:
            self._next = running + self._every_seconds
            self.told = True
            log.info("%s", sentence())


class RestoreProgress:
    """Tells how many windows, and records in them, are back in memory."""

    def __init__(self, windows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._all = clock, windows
        self._windows = self._records = 0
        self._how_far = ProgressLog(clock())

    def done(self, records: int) -> None:
        """One more window was looked at, with so many records."""
        self._windows += 1
        self._records += records
        self._how_far.tell(self._clock(), self._sentence)

    def _sentence(self) -> str:
        return (
            f"rebuilding windows: {self._windows:,} of {self._all:,} windows done, with {self._records:,} records;"
            " nothing is estimated before the end"
        )


class BacklogProgress:
    """Tells how much is unread while that is so much that estimates are of the past, and when it is over."""

    def __init__(self) -> None:
        self._how_far: ProgressLog | None = None
        self._records = 0

    def look(self, running: float, *, behind: bool, records: int, lags: Mapping[str, Lag]) -> None:
        """Note what a tick found: whether too much is unread, what it took in, and what each source still holds."""
        unread = {source: lag for source, lag in lags.items() if lag.files or lag.bytes}
        if not behind or not unread:
            if self._how_far is not None and self._how_far.told:
                log.info("caught up: %s records were taken in since this began", f"{self._records + records:,}")
            self._how_far, self._records = None, 0
            return
        self._records += records
        if self._how_far is None:
            # What is large is told at once: it will take a while.
            self._how_far = ProgressLog(running - TELL_SECONDS)
        self._how_far.tell(running, lambda: self._sentence(unread))

    def _sentence(self, unread: Mapping[str, Lag]) -> str:
        sources = "; ".join(f"{source}: {_amount(lag)}" for source, lag in sorted(unread.items()))
        return f"catching up: {self._records:,} records taken in, unread at {sources}"


def _amount(lag: Lag) -> str:
    """Return how much is unread; a source whose parts have no size counts only them."""
    size = f", {lag.bytes / 1e6:,.1f} MB" if lag.bytes else ""
    return f"{lag.files:,} {'files' if lag.bytes else 'parts'}{size}"
