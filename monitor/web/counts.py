"""What the server counts, for the page of metrics."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus


class Closed(StrEnum):
    """Why the server closed a connection on its own account. A closed list: its values become labels."""

    HEADER_TIMEOUT = "header_timeout"
    HANDSHAKE_FAILED = "handshake_failed"
    """No TLS, too old a one, too slow, no certificate, or not one that is let in."""
    CAP = "cap"
    WRITE_TIMEOUT = "write_timeout"
    IDLE = "idle"


CLASSES = ("2xx", "3xx", "4xx", "5xx")


@dataclass(frozen=True, slots=True)
class WebCounts:
    """The counts at one moment. Every label is there from the start, with 0."""

    requests: Mapping[str, int]
    """By class of status: 2xx, 3xx, 4xx, 5xx."""
    closed: Mapping[Closed, int]
    open: int
    """Connections now."""


class Counting:
    """Counts from the server's thread, and tells on any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._closed: Counter[Closed] = Counter()
        self._open = 0

    def answered(self, status: HTTPStatus) -> None:
        """Count a request by what it was answered."""
        with self._lock:
            self._requests[f"{status // 100}xx"] += 1

    def closed(self, why: Closed) -> None:
        """Count a connection that was closed for a reason."""
        with self._lock:
            self._closed[why] += 1

    def set_open(self, connections: int) -> None:
        """Note how many connections there are."""
        with self._lock:
            self._open = connections

    def counts(self) -> WebCounts:
        """Return the counts as they are now."""
        with self._lock:
            requests = {name: self._requests[name] for name in CLASSES}
            return WebCounts(requests, {why: self._closed[why] for why in Closed}, self._open)
