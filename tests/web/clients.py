"""HTTP clients and raw sockets for a server under test."""

import base64
import http.client
import select
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitor.web.server.limits import Closed
from monitor.web.server.web_server import WebServer
from tests.waiting import wait_until


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Client:
    """A client of a server."""

    def __init__(self, server: WebServer) -> None:
        self.server = server
        self.sockets: list[socket.socket] = []

    def ask(
        self,
        path: str = "/metrics",
        method: str = "GET",
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = 15.0,
        body: bytes | None = None,
        source: str = "127.0.0.1",
        **headers: str,
    ) -> Answer:
        """Send a request on a new connection; underscores in header names become hyphens."""
        port = self.server.port
        if tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout, source_address=(source, 0))
        else:
            connection = http.client.HTTPSConnection("localhost", port, timeout=timeout, context=tls)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            content = response.read()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, content)
        finally:
            connection.close()

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Return a new connection with some bytes sent; it is closed at the end of the test."""
        client = socket.create_connection(("127.0.0.1", self.server.port), timeout=15.0)
        self.sockets.append(client)
        if sent:
            client.sendall(sent)
        return client

    def talk(self, sent: bytes) -> bytes:
        """Send bytes on a new connection and return everything received."""
        return everything(self.connect(sent))

    def wait_for_closed(self, why: Closed, least: int = 1) -> int:
        """Wait for connections closed for a reason; returns their number."""
        wait_until(lambda: self.server.counts().closed[why] >= least)
        return self.server.counts().closed[why]

    def close(self) -> None:
        """Close all sockets."""
        for client in self.sockets:
            client.close()


def everything(client: socket.socket) -> bytes:
    """Return everything received until the peer closes."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def still_open(clients: Sequence[socket.socket], seconds: float) -> int:
    """Return the number of connections that the peer has not closed within a time."""
    left, end = set(clients), time.monotonic() + seconds
    poll = select.poll()
    by_number = {client.fileno(): client for client in clients}
    for number in by_number:
        poll.register(number, select.POLLIN)
    while left and (rest := end - time.monotonic()) > 0.0:
        for number, _ in poll.poll(1000.0 * rest):
            try:
                ended = by_number[number].recv(4096) == b""
            except OSError:
                ended = True
            if ended:
                left.discard(by_number[number])
                poll.unregister(number)
    return len(left)


def basic(name: str, password: str) -> str:
    """Return a header for basic authentication."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
