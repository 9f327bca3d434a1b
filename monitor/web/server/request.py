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
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Packed:
    """Bytes that were compressed beforehand."""

    pieces: tuple[bytes, ...] = ()
    """Deflated, up to a full flush."""
    size: int = 0
    """Of the plain bytes."""
    crc: int = 0
    """The CRC-32 of the plain bytes."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    start: Packed | None = None
    """What comes before the body."""


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
