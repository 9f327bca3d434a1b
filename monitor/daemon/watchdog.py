"""Detects loops without progress, and notifies systemd as in sd_notify(3)."""

import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_STUCK_SECONDS = 120.0
"""Longer than any batch takes."""


class Watchdog:
    """Records when each loop last made progress, on the steady clock. Thread-safe."""

    def __init__(self, stuck_seconds: float = _STUCK_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def moved(self, loop: str, running: float) -> None:
        """Record progress of a loop."""
        with self._lock:
            self._last[loop] = running

    def end(self, loop: str) -> None:
        """Stop watching a loop."""
        with self._lock:
            self._last.pop(loop, None)

    def stuck(self, running: float) -> dict[str, float]:
        """Return the loops without progress, and for how many seconds."""
        with self._lock:
            return {loop: running - last for loop, last in self._last.items() if running - last > self._stuck_seconds}


_MOST_STATUS = 512
"""Characters of a status line."""


@dataclass(frozen=True, slots=True)
class Notifier:
    """Sends notifications to systemd, if it started us. Never raises and never blocks."""

    address: str | None = None
    """A path, or an abstract socket name after @; None without a service manager."""
    watchdog_seconds: float | None = None
    """systemd kills us without a `watchdog` call for this long; None if disabled."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID."""
        address = environment.get("NOTIFY_SOCKET", "")
        return cls(address if address[:1] in {"/", "@"} else None, _watchdog_seconds(environment))

    def ready(self) -> None:
        """The start or a reload is complete."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(f"STATUS={_one_line(text)}")

    def reloading(self) -> None:
        """A reload has begun; `ready` ends it, whether it succeeded or not."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The daemon is stopping."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """Reset systemd's watchdog. Call only after real progress."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self.address is None:
            return
        # An abstract socket name starts with a null byte.
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode("utf-8", "backslashreplace"), address)


def _one_line(text: str) -> str:
    """Replace newlines, which would start another assignment."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_MOST_STATUS]


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    microseconds, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    # An inherited variable may be meant for the parent process.
    if process and process != str(os.getpid()):
        return None
    if not (microseconds.isascii() and microseconds.isdigit()) or int(microseconds) == 0:
        return None
    return int(microseconds) / 1e6
