"""The wall clock, which may be set, and the steady clock, which counts through suspensions.

Records and reports get wall-clock time, as far as it is trusted. All waiting uses the steady clock.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_JUMP_SECONDS = 60.0
"""A time server may slew less than this."""
_SUSPENDED_SECONDS = 10.0
CONFIRMED_SECONDS = 600.0
"""How long the wall clock must keep a new time before it is trusted."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on all clocks."""

    now: float
    """Unix time, as far as it is trusted."""
    running: float
    """Steady clock: seconds since boot, suspensions included."""
    awake: float
    """The same without suspensions."""
    ahead: float = 0.0
    """Seconds by which the wall clock is ahead of `now`; 0 when it is trusted."""

    @property
    def wall(self) -> float:
        """The time of the wall clock."""
        return self.now + self.ahead


def moment() -> Moment:
    """Read the clocks."""
    return Moment(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic())


class Clock:
    """The clocks of this machine, with protection against short jumps of the wall clock. Thread-safe.

    A wall clock that is years ahead for some seconds would make every record too old for its window. So after a jump,
    `now` follows the steady clock, until the wall clock is back or has kept its new time for ten minutes. The first
    reading is trusted.
    """

    def __init__(self, read: Callable[[], Moment] = moment) -> None:
        self._read = read
        self._lock = threading.Lock()
        first = read()
        self._trusted = first.now - first.running
        """Wall clock minus steady clock."""
        self._untrusted: tuple[float, float] | None = None
        """The same after a jump, and when it was first seen on the steady clock."""

    def __call__(self) -> Moment:
        """Read the clocks."""
        with self._lock:
            seen = self._read()
            found = seen.now - seen.running
            if abs(found - self._trusted) <= _JUMP_SECONDS:
                self._trusted, self._untrusted = found, None
            elif self._untrusted is None or abs(found - self._untrusted[0]) > _JUMP_SECONDS:
                self._untrusted = found, seen.running
            elif seen.running - self._untrusted[1] >= CONFIRMED_SECONDS:
                self._trusted, self._untrusted = found, None
            return Moment(seen.running + self._trusted, seen.running, seen.awake, found - self._trusted)


@dataclass(frozen=True, slots=True)
class ClockChange:
    """Changes between two readings of the clocks."""

    set_seconds: float = 0.0
    """Seconds by which the wall clock was set; 0 if it was not."""
    jumped_seconds: float = 0.0
    """Seconds by which the trusted time jumped; 0 if it did not."""
    suspended: bool = False
    """Whether the machine was suspended."""

    @property
    def any(self) -> bool:
        """Whether anything changed."""
        return self.suspended or self.set_seconds != 0.0 or self.jumped_seconds != 0.0


def clock_change(before: Moment, after: Moment) -> ClockChange:
    """Compare two readings of the clocks; slewing is ignored."""
    passed = after.running - before.running
    slept = passed - (after.awake - before.awake)
    return ClockChange(
        _jump(after.wall - before.wall - passed), _jump(after.now - before.now - passed), slept > _SUSPENDED_SECONDS
    )


def _jump(seconds: float) -> float:
    return seconds if abs(seconds) > _JUMP_SECONDS else 0.0
