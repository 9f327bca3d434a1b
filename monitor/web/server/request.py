"""Requests and responses. Pages know nothing of sockets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request from an authorized client."""

    method: str
    path: str
    """Decoded, without the query."""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names in lower case."""
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Decoded; the first value of a repeated name counts."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a long response, compressed beforehand. Several responses may share it."""

    plain: tuple[bytes, ...] = ()
    packed: tuple[bytes, ...] = ()
    """The same, each piece deflated up to a full flush."""
    crc: int = 0
    """The CRC-32 of the plain bytes."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    start: Start = Start()
    """What comes before the body."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(map(len, self.start.plain)) + len(self.body)


@dataclass(frozen=True, slots=True)
class Page:
    """The handler of one path."""

    answer: Callable[[Request], Response]
    """Called on the server's worker threads, several at once. May block for a while."""
    methods: tuple[str, ...] = ("GET", "HEAD")
    one_at_a_time: bool = False
    """Whether further requests get 503 while one is being handled."""
    seconds: float = 30.0
    """The timeout, after which the client gets 503."""


Pages = Mapping[str, Page]
"""By exact path. Other paths are 404."""
