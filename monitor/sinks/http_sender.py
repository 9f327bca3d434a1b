"""Sends one HTTP request to a URL of the configuration.

The name is resolved once, its addresses are checked, and the connection goes to a checked address: against SSRF, also when
the name resolves to something else a moment later. Written on sockets, because http.client and urllib resolve again, limit
the time of each read instead of the whole exchange, and follow redirects and proxies.
"""

import base64
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from monitor.config.config import HttpTarget

Resolver = Callable[..., list[tuple[Any, ...]]]
"""`socket.getaddrinfo`, or a substitute in tests."""

MAX_RESPONSE_BYTES = 64 << 10
"""The most that is read of a response. Only the status counts."""
_CONNECT_SECONDS = 5.0
"""The longest attempt to connect to one address."""
_RETRIED_STATUSES = {408, 425, 429}  # and 500 and above
_METADATA = frozenset(
    ipaddress.ip_address(one)
    for one in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
"""Metadata services of cloud providers, which hand out credentials, outside the link-local networks."""
_EMBEDDING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""IPv6 networks whose last four bytes are an IPv4 address, beside those that `ipaddress` knows."""


def is_forbidden(text: str) -> bool:
    """Return whether an address is link-local, multicast, unspecified or of a metadata service, also embedded in IPv6."""
    address = ipaddress.ip_address(text.partition("%")[0])
    meant: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        meant += [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
        # ::1 is the loopback address, not 0.0.0.1.
        if not address.is_loopback and any(address in network for network in _EMBEDDING):
            meant.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return any(one.is_link_local or one.is_multicast or one.is_unspecified or one in _METADATA for one in meant)


class Outcome(StrEnum):
    """The outcome of a request."""

    SENT = "sent"
    RETRY = "retry"
    """It failed, and may succeed later."""
    FAILED = "failed"
    """It failed, and would fail again."""
    REDIRECTED = "redirected"
    """The response was a redirect, which is never followed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a request, and the reason, which never contains the URL or text of the response."""

    outcome: Outcome
    reason: str


class HttpSender:
    """Sends requests to one URL that `config.notifications` has checked. Any part of it but the host may be a secret."""

    def __init__(
        self, settings: HttpTarget, resolve: Resolver = socket.getaddrinfo, tls: ssl.SSLContext | None = None
    ) -> None:
        url = urlsplit(settings.url)
        self._settings, self._resolve, self._tls = settings, resolve, tls
        self._host, self._port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        self._path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._headers = [f"Host: {url.netloc.rpartition('@')[2]}", "User-Agent: cpcmon", "Accept: */*"]
        if url.username is not None:
            login = unquote_to_bytes(url.username) + b":" + unquote_to_bytes(url.password or "")
            self._headers.append(f"Authorization: Basic {base64.b64encode(login).decode()}")
        if url.scheme == "https" and tls is None:
            self._tls = ssl.create_default_context()
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2

    def send(self, body: bytes | None) -> Answer:
        """Send a POST with a body, or a GET. Blocks for at most the timeout, plus the time of the system's resolver."""
        try:
            found = self._resolve(self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:
            return Answer(Outcome.RETRY, f"expected the name to resolve, found {_reason(error)}")
        allow = self._settings.allow_link_local
        addresses = [(family, address) for family, *_, address in found if allow or not is_forbidden(address[0])]
        if not addresses:
            forbidden = "a link-local, metadata or multicast one" if found else "none"
            return Answer(Outcome.FAILED, f"expected an address that may be connected to, found {forbidden}")
        deadline = time.monotonic() + self._settings.timeout_seconds
        try:
            with _connected(addresses, deadline) as plain, self._secured(plain, deadline) as connection:
                return _answer(_exchange(connection, self._request(body), deadline))
        except Exception as error:  # noqa: BLE001 - the delivery thread must survive any response
            return Answer(Outcome.RETRY, f"expected an answer, found {_reason(error)}")

    def _secured(self, plain: socket.socket, deadline: float) -> socket.socket:
        if self._tls is None:
            return plain
        plain.settimeout(_left(deadline))
        # The certificate must be for the host name, whatever the address.
        return self._tls.wrap_socket(plain, server_hostname=self._host)

    def _request(self, body: bytes | None) -> bytes:
        lines = [f"{'GET' if body is None else 'POST'} {self._path} HTTP/1.1", *self._headers, "Connection: close"]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + (body or b"")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("timed out")
    return left


def _connected(addresses: list[tuple[int, Any]], deadline: float) -> socket.socket:
    """Return a connection to the first address that accepts one."""
    failure: OSError = TimeoutError("timed out")
    for family, address in addresses:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(min(_CONNECT_SECONDS, _left(deadline)))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def _exchange(connection: socket.socket, request: bytes, deadline: float) -> int:
    """Send a request and return the status of the response. The body is not read."""
    unsent = memoryview(request)
    while unsent:
        connection.settimeout(_left(deadline))
        unsent = unsent[connection.send(unsent) :]
    received, allowed = b"", MAX_RESPONSE_BYTES
    while True:
        while b"\r\n\r\n" not in received:
            if not allowed:
                raise ValueError(f"more than {MAX_RESPONSE_BYTES} bytes of headers")
            connection.settimeout(_left(deadline))
            piece = connection.recv(min(4096, allowed))
            if not piece:
                raise ConnectionError("a connection closed before the end of the headers")
            received, allowed = received + piece, allowed - len(piece)
        line = re.match(rb"HTTP/1\.[01] ([1-9]\d\d)[ \r]", received)
        if line is None:
            raise ValueError("something that is not HTTP")
        if (status := int(line.group(1))) >= 200:
            return status
        # An interim response: the final one follows.
        received = received.partition(b"\r\n\r\n")[2]


def _answer(status: int) -> Answer:
    if 200 <= status < 300:
        return Answer(Outcome.SENT, f"status {status}")
    reason = f"expected a status from 200 to 299, found {status}"
    if 300 <= status < 400:
        return Answer(Outcome.REDIRECTED, f"{reason}; redirects are not followed")
    return Answer(Outcome.RETRY if status >= 500 or status in _RETRIED_STATUSES else Outcome.FAILED, reason)


def _reason(error: Exception) -> str:
    """Return the reason for an error in words of the system, none of which came over the network."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"a certificate that is not trusted: {error.verify_message}"
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
