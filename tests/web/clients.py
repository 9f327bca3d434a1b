"""Clients of a server under test: one that asks orderly, and sockets for those that do not."""

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


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Client:
    """Somebody who talks to a server."""

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
        """Ask once, on a connection of its own, from an address; underscores in names of headers stand for hyphens."""
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

    def connect(self, said: bytes = b"") -> socket.socket:
        """Return a connection on which something was said; it is closed at the end of the test."""
        client = socket.create_connection(("127.0.0.1", self.server.port), timeout=15.0)
        self.sockets.append(client)
        if said:
            client.sendall(said)
        return client

    def talk(self, said: bytes) -> bytes:
        """Say something on a connection of its own and return all that comes back until its end."""
        return everything(self.connect(said))

    def wait_for_closed(self, why: Closed, least: int = 1) -> int:
        """Wait until connections were closed for a reason; returns how many."""
        end = time.monotonic() + 15.0
        while (count := self.server.counts().closed[why]) < least and time.monotonic() < end:
            time.sleep(0.01)
        return count

    def close(self) -> None:
        """Close what was left open."""
        for client in self.sockets:
            client.close()


def everything(client: socket.socket) -> bytes:
    """Return what comes until the other side ends."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def still_open(clients: Sequence[socket.socket], seconds: float) -> int:
    """Return how many connections the other side has not ended after some time at most."""
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
