"""Limits on clients, and counters of requests and closed connections."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus


@dataclass(frozen=True, slots=True)
class WebLimits:
    """Limits against slow and malicious clients."""

    connections: int = 128
    """When exceeded, the oldest waiting connection is closed."""
    request_seconds: float = 8.0
    """From the connection to the last byte of the first request, including the TLS handshake; then from the first to the
    last byte of each further request."""
    idle_seconds: float = 30.0
    """The keep-alive timeout between requests."""
    write_seconds: float = 10.0
    """The time to read a response, plus its size divided by `write_bytes_per_second`."""
    write_bytes_per_second: int = 100_000
    stalled_seconds: float = 1.0
    """When no connection is waiting, one that has been reading its response for longer than this is closed."""
    unsent_bytes: int = 256 << 20
    """The total of unsent responses; when exceeded, the oldest is aborted."""
    head_bytes: int = 64 << 10
    """The size of a request line with its headers."""
    body_bytes: int = 64 << 10
    """The size of a request body. Only commands have one."""
    linger_seconds: float = 2.0
    linger_bytes: int = 2 << 20
    """How long and how much is read after refusing an incomplete request, so that the client can read the response."""
    stop_seconds: float = 2.0
    """How long the server waits for responses in progress when it stops."""
    page_threads: int = 4
    waiting_passwords: int = 96
    """Queued password checks; further clients get 503. Fewer than `connections`, so that known clients still get in."""

    def writing(self, size: int) -> float:
        """Return the time to read a response of a size."""
        return self.write_seconds + size / self.write_bytes_per_second


class Closed(StrEnum):
    """Why the server closed a connection. The values are metric labels."""

    HEADER_TIMEOUT = "header_timeout"
    HANDSHAKE_FAILED = "handshake_failed"
    """No TLS, an old version, too slow, or no accepted client certificate."""
    CAP = "cap"
    WRITE_TIMEOUT = "write_timeout"
    IDLE = "idle"


CLASSES = ("2xx", "3xx", "4xx", "5xx")


@dataclass(frozen=True, slots=True)
class WebCounts:
    """A snapshot of the counters; every label is present from the start."""

    requests: Mapping[str, int]
    """By class of status: 2xx, 3xx, 4xx, 5xx."""
    closed: Mapping[Closed, int]
    open: int
    """Connections now."""


class WebCounters:
    """Counters of the server, readable on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._closed: Counter[Closed] = Counter()
        self._open = 0

    def answered(self, status: HTTPStatus) -> None:
        """Count a request by the status of its response."""
        with self._lock:
            self._requests[f"{status // 100}xx"] += 1

    def closed(self, why: Closed) -> None:
        """Count a closed connection by reason."""
        with self._lock:
            self._closed[why] += 1

    def set_open(self, connections: int) -> None:
        """Set the number of open connections."""
        with self._lock:
            self._open = connections

    def counts(self) -> WebCounts:
        """Return a snapshot."""
        with self._lock:
            requests = {name: self._requests[name] for name in CLASSES}
            return WebCounts(requests, {why: self._closed[why] for why in Closed}, self._open)


class UnsentResponses:
    """Limits the total size of unsent responses. Used on the server's event loop."""

    def __init__(self, most_bytes: int, counters: WebCounters) -> None:
        self._most_bytes = most_bytes
        self._counters = counters
        # Oldest first.
        self._unsent: dict[object, tuple[int, Callable[[], None]]] = {}

    def add(self, owner: object, size: int, abort: Callable[[], None]) -> None:
        """Add a response; aborts the oldest ones when the total would exceed the limit."""
        while self._unsent and sum(size_of_one for size_of_one, _ in self._unsent.values()) + size > self._most_bytes:
            oldest = next(iter(self._unsent))
            _, abort_oldest = self._unsent.pop(oldest)
            self._counters.closed(Closed.CAP)
            abort_oldest()
        self._unsent[owner] = (size, abort)

    def remove(self, owner: object) -> None:
        """Remove a response that was sent or aborted."""
        self._unsent.pop(owner, None)
