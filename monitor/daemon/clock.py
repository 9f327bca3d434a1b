"""The two clocks: the wall's, which people set, and a steady one, which goes on through suspensions.

Records and reports are stamped by the wall clock, as far as it is trusted. Everything that waits goes by the steady one.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_JUMP_SECONDS = 60.0
"""What is less, a time server may have slewed."""
_SUSPENDED_SECONDS = 10.0
CONFIRMED_SECONDS = 600.0
"""How long the wall clock must keep a new time before that is trusted."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on all clocks."""

    now: float
    """Unix time, as far as it is trusted."""
    running: float
    """Seconds since the machine started, suspensions included; never set by anybody."""
    awake: float
    """The same without suspensions."""
    ahead: float = 0.0
    """By how much the wall clock is ahead of `now`, or behind; 0 when it is trusted."""

    @property
    def wall(self) -> float:
        """What the wall clock says."""
        return self.now + self.ahead


def moment() -> Moment:
    """Read the clocks."""
    return Moment(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic())


class Clock:
    """The clocks of this machine, with a wall clock that nobody can set for a moment. May be asked by any thread.

    A wall clock that is years ahead for some seconds would make every record too old for a window. So after a jump, time
    goes on from before by the steady clock, until the wall clock is back or has kept its new time for ten minutes.
    The first time that it says is trusted: nothing tells whether it is right.
    """

    def __init__(self, read: Callable[[], Moment] = moment) -> None:
        self._read = read
        self._lock = threading.Lock()
        first = read()
        self._trusted = first.now - first.running
        """The wall clock less the steady one."""
        self._doubted: tuple[float, float] | None = None
        """The same, and when it was first seen on the steady clock."""

    def __call__(self) -> Moment:
        """Read the clocks."""
        with self._lock:
            seen = self._read()
            found = seen.now - seen.running
            if abs(found - self._trusted) <= _JUMP_SECONDS:
                self._trusted, self._doubted = found, None
            elif self._doubted is None or abs(found - self._doubted[0]) > _JUMP_SECONDS:
                self._doubted = found, seen.running
            elif seen.running - self._doubted[1] >= CONFIRMED_SECONDS:
                self._trusted, self._doubted = found, None
            return Moment(seen.running + self._trusted, seen.running, seen.awake, found - self._trusted)


@dataclass(frozen=True, slots=True)
class Surprise:
    """What happened between two looks at the clocks."""

    set_seconds: float = 0.0
    """By how much the wall clock was set forward, or back; 0 when it was not."""
    jumped_seconds: float = 0.0
    """By how much the time that is trusted went forward or back thereby, at once or later; 0 when it did not."""
    suspended: bool = False
    """Whether the machine slept."""

    @property
    def any(self) -> bool:
        """Whether anything happened."""
        return self.suspended or self.set_seconds != 0.0 or self.jumped_seconds != 0.0


def surprise(before: Moment, after: Moment) -> Surprise:
    """Compare two looks at the clocks. What a time server slews is no surprise."""
    passed = after.running - before.running
    slept = passed - (after.awake - before.awake)
    return Surprise(
        _jump(after.wall - before.wall - passed), _jump(after.now - before.now - passed), slept > _SUSPENDED_SECONDS
    )


def _jump(seconds: float) -> float:
    return seconds if abs(seconds) > _JUMP_SECONDS else 0.0
