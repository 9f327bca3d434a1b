"""One HTTP request to an address of the configuration, within a time, and what became of it.

Written on sockets, because the limits are the point: http.client and urllib limit the time of each read and not of the
whole, resolve a name again after it was checked, and follow redirects or proxies of the environment unless told not to.
"""

import re
import socket
import ssl
import time
from dataclasses import dataclass
from enum import StrEnum

from monitor.sinks.addresses import Place, Resolver, Target, places_of

MOST_READ = 64 << 10
"""Bytes of a response. Only its status is wanted."""
CONNECT_SECONDS = 5.0
"""The most that one attempt to connect may take of the whole time."""
_AGAIN = {408, 425, 429}
"""Statuses below 500 after which another attempt may succeed."""


class Fate(StrEnum):
    """What became of a request."""

    SENT = "sent"
    RETRY = "retry"
    """It failed in a way that may pass."""
    FAILED = "failed"
    """It would fail again."""
    REDIRECTED = "redirected"
    """It was told to go elsewhere, and did not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request, and why in a few words, which never hold the URL or anything the other side said."""

    fate: Fate
    why: str


class Poster:
    """Sends requests to one URL. Knows nothing of threads or queues; `send` blocks for at most the timeout."""

    def __init__(
        self,
        target: Target,
        *,
        timeout_seconds: float,
        allow_link_local: bool = False,
        resolve: Resolver = socket.getaddrinfo,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._target, self._timeout = target, timeout_seconds
        self._allow_link_local, self._resolve = allow_link_local, resolve
        if target.secure and tls is None:
            tls = ssl.create_default_context()
            tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._tls = tls

    def send(self, method: str, body: bytes | None = None) -> Answer:
        """Send one request. The system's resolver keeps its own time, everything after it ours."""
        try:
            places, refused = places_of(self._target, self._resolve, allow_link_local=self._allow_link_local)
        except (OSError, UnicodeError) as error:
            return Answer(Fate.RETRY, f"expected the name to resolve, found {_words(error)}")
        if not places:
            why = "a link-local, metadata or multicast one" if refused else "none"
            return Answer(Fate.FAILED, f"expected an address that may be connected to, found {why}")
        deadline = _Deadline(self._timeout)
        try:
            status = self._exchange(places, method, body, deadline)
        except (OSError, ValueError) as error:
            # A wrong certificate is not retried faster than anything else, but it may be mended meanwhile.
            return Answer(Fate.RETRY, f"expected an answer, found {_words(error)}")
        return _judged(status)

    def _exchange(self, places: list[Place], method: str, body: bytes | None, deadline: "_Deadline") -> int:
        with _connected(places, deadline) as plain:
            if not self._target.secure or self._tls is None:
                return _asked(plain, self._request(method, body), deadline)
            plain.settimeout(deadline.left())
            # The name is the host's, whatever address was connected to: the certificate must be for it.
            with self._tls.wrap_socket(plain, server_hostname=self._target.host) as secured:
                return _asked(secured, self._request(method, body), deadline)

    def _request(self, method: str, body: bytes | None) -> bytes:
        target = self._target
        lines = [f"{method} {target.path} HTTP/1.1", f"Host: {target.host_header}", "User-Agent: cpcmon", "Accept: */*"]
        if target.authorization is not None:
            lines.append(f"Authorization: {target.authorization}")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("ascii") + (body or b"")


class _Deadline:
    """A time that is over at some moment, however many steps are taken until then."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; raises TimeoutError when none are."""
        left = self._end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("timed out")
        return left


def _connected(places: list[Place], deadline: _Deadline) -> socket.socket:
    """Return a connection to the first place that takes one."""
    failure: OSError = TimeoutError("timed out")
    for place in places:
        connection = socket.socket(place.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(min(CONNECT_SECONDS, deadline.left()))
            connection.connect(place.sockaddr)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def _asked(connection: socket.socket, request: bytes, deadline: _Deadline) -> int:
    """Send a request and return the status of the answer; its body is left unread."""
    waiting = memoryview(request)
    while waiting:
        connection.settimeout(deadline.left())
        waiting = waiting[connection.send(waiting) :]
    received, unread = b"", MOST_READ
    while True:
        while b"\r\n\r\n" not in received:
            if not unread:
                raise ValueError(f"more than {MOST_READ} bytes before the answer was whole")
            connection.settimeout(deadline.left())
            piece = connection.recv(min(4096, unread))
            if not piece:
                raise ConnectionError("a connection closed before the answer was whole")
            received, unread = received + piece, unread - len(piece)
        line = re.match(rb"HTTP/1\.[01] ([1-9]\d\d)[ \r]", received)
        if line is None:
            raise ValueError("something that is not HTTP")
        status = int(line.group(1))
        if status >= 200:
            return status
        # An interim answer: the one that counts follows.
        received = received.partition(b"\r\n\r\n")[2]


def _judged(status: int) -> Answer:
    why = f"expected a status from 200 to 299, found {status}"
    if 200 <= status < 300:
        return Answer(Fate.SENT, f"status {status}")
    if 300 <= status < 400:
        return Answer(Fate.REDIRECTED, f"{why}; redirects are never followed")
    return Answer(Fate.RETRY if status >= 500 or status in _AGAIN else Fate.FAILED, why)


def _words(error: Exception) -> str:
    """Return what an error of the system says; its own words, and none that came over the wire."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"a certificate that is not trusted: {error.verify_message}"
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
