"""One HTTP request to an address of the configuration, after the check of where it leads.

A name may resolve to anything, also to the service that hands a cloud machine its credentials. So the addresses are
looked at after resolution, and whoever connects takes one of those that were looked at and never asks again.

Written on sockets, because the limits are the point: http.client and urllib limit the time of each read and not of the
whole, resolve a name again after it was checked, and follow redirects or proxies of the environment unless told not to.
"""

import base64
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self
from urllib.parse import unquote_to_bytes, urlsplit

from monitor.config.config import Config
from monitor.errors import UsageError

Resolver = Callable[..., list[tuple[Any, ...]]]
"""`socket.getaddrinfo`, or what a test puts in its place."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The services of cloud providers that hand out credentials and do not answer on a link-local address.
_METADATA = frozenset(
    ipaddress.ip_address(one)
    for one in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
_EMBEDDING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Networks of IPv6 whose last four bytes are an address of IPv4, beside those that `ipaddress` knows."""


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL. Only the host is ever shown: a token may stand in each of the others."""

    host: str
    port: int
    path: str = field(repr=False)
    """With the query."""
    secure: bool
    authorization: str | None = field(repr=False)
    """What `user:password@` asks to be sent as a header; None without it."""

    @classmethod
    def of(cls, url: str, *, allow_http: bool = False) -> Self:
        """Return the parts of a URL; raises UsageError, which never shows the URL."""
        # Before anything is split: urlsplit drops tabs and newlines without a word.
        if not re.fullmatch(r"[!-~]+", url):
            raise UsageError("url: expected visible ASCII characters only, found others")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError("url: expected https://host/path, found something that is no URL") from None
        if parts.scheme not in {"https", "http"}:
            raise UsageError("url: expected it to start with https://, found another beginning")
        if parts.scheme == "http" and not allow_http:
            raise UsageError("url: expected https://, found http://: alerts would go unencrypted; allow_http insists")
        if not parts.hostname or port == 0:
            raise UsageError("url: expected a host, and a port above 0 if any, found none")
        if not re.fullmatch(r"[A-Za-z0-9._:-]+", parts.hostname):
            raise UsageError("url: expected a host of letters, digits, dots and dashes, found others")
        if parts.fragment:
            raise UsageError("url: expected no part after #, which is never sent, found one")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), path, secure, _authorization(parts.netloc))

    @property
    def host_header(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def check_targets(config: Config) -> None:
    """Refuse addresses that could not be called; asked before anything that calls them is replaced.

    A configuration that was read from a file holds none: there they are mistakes with a line, told with all the others.
    """
    for name, one in (("webhook", config.webhook), ("heartbeat", config.heartbeat)):
        if one is not None:
            try:
                Target.of(one.url, allow_http=one.allow_http)
            except UsageError as error:
                raise UsageError(f"notify.{name}.{error}") from error


def _authorization(netloc: str) -> str | None:
    userinfo, at, _ = netloc.rpartition("@")
    if not at:
        return None
    user, _, password = userinfo.partition(":")
    return "Basic " + base64.b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password)).decode()


@dataclass(frozen=True, slots=True)
class Place:
    """A resolved address, ready to be connected to."""

    family: int
    sockaddr: tuple[Any, ...]


def places_of(target: Target, resolve: Resolver, *, allow_link_local: bool) -> tuple[list[Place], int]:
    """Resolve a target's name once; return where one may connect to, and how many addresses were refused."""
    found = resolve(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    places = [Place(family, sockaddr) for family, _, _, _, sockaddr in found]
    allowed = [place for place in places if allow_link_local or not is_refused(place.sockaddr[0])]
    return allowed, len(places) - len(allowed)


def is_refused(text: str) -> bool:
    """Tell whether an address is one that no notification is meant for: link-local, metadata, multicast, unspecified."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    return any(
        one.is_link_local or one.is_multicast or one.is_unspecified or one in _METADATA for one in _meant_by(address)
    )


def _meant_by(address: Address) -> list[Address]:
    """Return the address, and those of IPv4 that it stands for when it is one of IPv6."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner: list[Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    # ::1 is this machine, and not 0.0.0.1.
    if not address.is_loopback and any(address in network for network in _EMBEDDING):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *inner]


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
