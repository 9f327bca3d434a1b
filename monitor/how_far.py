"""How far something long has come, told in the log about every ten seconds: silence would be taken for a hang."""

import logging
import time
from collections.abc import Callable, Mapping

from monitor.sources.base import Lag

log = logging.getLogger("cpcmon")

TELL_SECONDS = 10.0


class HowFar:
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


class Rebuilding:
    """Tells how many windows, and records in them, are back in memory."""

    def __init__(self, windows: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._all = clock, windows
        self._windows = self._records = 0
        self._how_far = HowFar(clock())

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


class Backlog:
    """Tells how much is unread while that is so much that estimates are of the past, and when it is over."""

    def __init__(self) -> None:
        self._how_far: HowFar | None = None
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
            self._how_far = HowFar(running - TELL_SECONDS)
        self._how_far.tell(running, lambda: self._sentence(unread))

    def _sentence(self, unread: Mapping[str, Lag]) -> str:
        sources = "; ".join(f"{source}: {_amount(lag)}" for source, lag in sorted(unread.items()))
        return f"catching up: {self._records:,} records taken in, unread at {sources}"


def _amount(lag: Lag) -> str:
    """Return how much is unread; a source whose parts have no size counts only them."""
    size = f", {lag.bytes / 1e6:,.1f} MB" if lag.bytes else ""
    return f"{lag.files:,} {'files' if lag.bytes else 'parts'}{size}"
