"""What the server hands to a page, and what a page hands back. Pages know nothing of sockets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose line and headers were read whole, and whose sender was let in."""

    method: str
    path: str
    """Decoded, without the query."""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names in lower case."""
    query: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Decoded; of a name that comes twice the first counts."""


@dataclass(frozen=True, slots=True)
class Response:
    """What is sent back."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Page:
    """Something that answers under one path."""

    answer: Callable[[Request], Response]
    """Called on a thread of the server's own pool, so several may be asked at once. May block for a while."""
    methods: tuple[str, ...] = ("GET", "HEAD")
    one_at_a_time: bool = False
    """Whether it must not be asked again while it is still at it: others are told 503, and do not wait."""
    seconds: float = 30.0
    """How long it may take. After that the client is told 503, whatever becomes of it."""


Pages = Mapping[str, Page]
"""By exact path. Everything else is 404."""
