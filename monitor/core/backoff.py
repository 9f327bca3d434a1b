"""Exponential backoff. The caller passes the time of a monotonic clock."""

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """The delay between attempts: it doubles with each failure, up to a limit, and ends with a success."""

    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    failures: int = 0
    until: float = -math.inf
    """The time of the next attempt."""

    @property
    def seconds(self) -> float:
        """The length of the current delay; 0 without one."""
        # The exponent is limited, or the power would overflow.
        return (
            min(self.longest_seconds, self.first_seconds * 2.0 ** min(self.failures - 1, 60)) if self.failures else 0.0
        )

    def left(self, now: float) -> float:
        """Return the rest of the delay, in seconds."""
        return max(0.0, self.until - now)

    def failed(self, now: float) -> None:
        """Start a delay, longer than the last one."""
        self.failures += 1
        self.until = now + self.seconds

    def succeeded(self) -> None:
        """End the delays."""
        self.failures, self.until = 0, -math.inf
