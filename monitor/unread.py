"""How much the sources hold that was not taken in yet, and whether that is known: estimates are of the past while it is much."""

import threading
from collections.abc import Mapping

from monitor.sources.base import Lag


class Unread:
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
