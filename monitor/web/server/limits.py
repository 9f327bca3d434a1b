"""Limits on clients: time, bytes, connections; and counters of what was closed."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus


@dataclass(frozen=True, slots=True)
class WebLimits:
    """The limits, each against a client that is slow or means harm."""

    connections: int = 128
    """Past it, the oldest connection that is not being answered makes room."""
    request_seconds: float = 8.0
    """From connecting to the last byte of the first request, the TLS handshake included; then from each further
    request's first byte to its last. However the bytes are spread: a byte a second gains nothing."""
    idle_seconds: float = 30.0
    """How long a connection is kept between requests."""
    write_seconds: float = 10.0
    """How long a client may take to read an answer, and in addition:"""
    write_bytes_per_second: int = 100_000
    stalled_seconds: float = 1.0
    """After how long without an end a client that reads slowly makes room, when nobody else can."""
    unsent_bytes: int = 256 << 20
    """The most that answers take together that their clients have not read yet; past it, the slowest makes room."""
    head_bytes: int = 64 << 10
    """The most of a request's line and headers."""
    body_bytes: int = 64 << 10
    """The most of a request's body. No page needs one; it is read and dropped."""
    linger_seconds: float = 2.0
    linger_bytes: int = 2 << 20
    """How long, and how much, a client that was refused in the middle of its request is listened to, so that it
    gets to read why."""
    stop_seconds: float = 2.0
    """How long answers that are under way when the server stops may still take."""
    page_threads: int = 4
    waiting_passwords: int = 96
    """How many passwords may wait to be checked; past it, clients are told 503. Fewer than connections, so that whoever
    need not wait still gets in."""

    def writing(self, size: int) -> float:
        """Return how long a client may take to read an answer of a size."""
        return self.write_seconds + size / self.write_bytes_per_second


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


class Unsent:
    """Bounds what all answers under way take together. Lives on the server's loop."""

    def __init__(self, most_bytes: int, counting: Counting) -> None:
        self._most_bytes = most_bytes
        self._counting = counting
        # In the order in which they began to be sent: who has read for longest is the slowest.
        self._held: dict[object, tuple[int, Callable[[], None]]] = {}

    def hold(self, owner: object, size: int, cut: Callable[[], None]) -> None:
        """An answer begins to be sent; where it does not fit in beside the others, the oldest ones are cut."""
        while self._held and sum(held for held, _ in self._held.values()) + size > self._most_bytes:
            oldest = next(iter(self._held))
            _, cut_oldest = self._held.pop(oldest)
            self._counting.closed(Closed.CAP)
            cut_oldest()
        self._held[owner] = (size, cut)

    def let_go(self, owner: object) -> None:
        """An answer was sent, or never will be."""
        self._held.pop(owner, None)
