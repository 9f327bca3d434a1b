"""A pause of intake while the state cannot be written: tried again ever more slowly, said once, ended by itself."""

from monitor.errors import StatePaused

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class Pause:
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
