"""Whether ingestion and evaluation still make progress, and what systemd is told.

The protocol is a datagram of `NAME=value` lines to the socket that $NOTIFY_SOCKET names; see sd_notify(3).
"""

import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

_STUCK_SECONDS = 120.0
"""Longer than any batch takes. A loop without progress for so long is stuck."""


class Watchdog:
    """When each loop last made progress, on the steady clock. May be used by any thread."""

    def __init__(self, stuck_seconds: float = _STUCK_SECONDS) -> None:
        self._stuck_seconds = stuck_seconds
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def moved(self, loop: str, running: float) -> None:
        """Note progress of a loop."""
        with self._lock:
            self._last[loop] = running

    def end(self, loop: str) -> None:
        """Expect no more progress of a loop."""
        with self._lock:
            self._last.pop(loop, None)

    def problems(self, running: float) -> list[str]:
        """Return a sentence for each loop that is stuck."""
        with self._lock:
            return [
                f"{loop} has not moved for {running - last:.0f} seconds"
                for loop, last in self._last.items()
                if running - last > self._stuck_seconds
            ]


_MOST_STATUS = 512
"""Characters of a status: it is one line for a person."""


@dataclass(frozen=True, slots=True)
class Notifier:
    """Whom to tell, if anybody. Never raises and never waits: a service manager that is gone must not stop the daemon."""

    address: str | None = None
    """A path, or a name after @ that is in no file system; None when nobody listens."""
    watchdog_seconds: float | None = None
    """Without a sign of progress for this long we are killed; None when nobody watches. Give one twice as often."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return whom the service manager that started us named."""
        address = environment.get("NOTIFY_SOCKET", "")
        return cls(address if address[:1] in {"/", "@"} else None, _watchdog_seconds(environment))

    def ready(self) -> None:
        """Say that the start, or a reload, is done."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Show a line to whoever asks `systemctl status`."""
        self._send(f"STATUS={_one_line(text)}")

    def reloading(self) -> None:
        """Say that a reload has begun; `ready` ends it, whether it succeeded or not."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that we are on our way out."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """Give a sign of progress. Only for whoever has seen real progress: a timer would vouch for a daemon that hangs."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self.address is None:
            return
        # The null byte is how the kernel writes a name that is in no file system.
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)
            to.sendto(message.encode("utf-8", "backslashreplace"), address)


def _one_line(text: str) -> str:
    """Return a text whose newlines cannot be taken for further messages."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_MOST_STATUS]


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    microseconds, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    # A variable that was inherited from a parent is not about us.
    if process and process != str(os.getpid()):
        return None
    if not (microseconds.isascii() and microseconds.isdigit()) or int(microseconds) == 0:
        return None
    return int(microseconds) / 1e6
